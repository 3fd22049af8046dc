//! The ownership stage: a legacy session belongs to the principal that opened it.
//!
//! Anyone else, and anyone naming a session that Lictor never saw opened, is told that there is no such
//! session (404), which tells a stranger nothing and makes an honest client initialise anew (MCP
//! 2025-11-25 transports, "Session Management").
//!
//! INVARIANT: what can't be looked up is refused as that, never as unknown: a client that is told 404 throws
//! its session away.

use super::chain::{Facts, Findings, Needs, Owner, Request, Stage, Verdict};
use crate::{
    denial::Denial,
    protocol::{Call, Era, SessionId},
};

/// Compares the owner of what a call names with the caller.
#[derive(Debug)]
pub struct OwnershipStage;

impl Stage for OwnershipStage {
    fn name(&self) -> &'static str {
        "ownership"
    }

    fn needs<'a>(&self, call: &'a Call, needs: &mut Needs<'a>) {
        needs.session = session(call).map(SessionId::expose);
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, _: &mut Findings) -> Verdict {
        let call = request.call;
        let owned = &facts.owned;
        let caller = request.principal.id.as_str();
        if session(call).is_none() {
            return Verdict::Continue;
        }
        match check(&owned.session, caller, Denial::UnknownSession) {
            Ok(()) => Verdict::Continue,
            Err(denial) => Verdict::Deny(denial),
        }
    }
}

fn check(owner: &Owner, caller: &str, unknown: Denial) -> Result<(), Denial> {
    match owner {
        Owner::Is(owner) if **owner == *caller => Ok(()),
        Owner::Is(_) | Owner::Nobody => Err(unknown),
        Owner::Unavailable => Err(Denial::StateUnavailable),
    }
}

/// The session that a call is in. Modern servers ignore the header, and so does Lictor.
fn session(call: &Call) -> Option<&SessionId> {
    call.session.as_ref().filter(|_| call.era == Era::Legacy)
}

//! The ownership stage: sessions, tasks, continuations and conversations belong to the principal that they were
//! given to.
//!
//! Anyone else is told what they would be told of one that doesn't exist, so that a stranger learns nothing:
//! no such session (404, which makes an honest client initialise anew; MCP 2025-11-25 transports, "Session
//! Management"), no such task (−32602, as servers say it), no such continuation. Nor does anything exist that
//! Lictor never saw given away.
//!
//! A conversation with an agent (`contextId` of A2A) is the one thing that a caller may name first: one that is
//! nobody's becomes the caller's before the agent hears of it.
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
        needs.tasks.extend(call.tasks());
        needs.continuation = call.continuation.as_ref().map(|continuation| continuation.as_str());
        needs.contexts.extend(call.contexts());
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, _: &mut Findings) -> Verdict {
        let call = request.call;
        let owned = &facts.owned;
        let caller = request.principal.id.as_str();
        let mut verdict = Ok(());
        if session(call).is_some() {
            verdict = verdict.and_then(|()| check(&owned.session, caller, Denial::UnknownSession));
        }
        let mut owners = owned.tasks.iter();
        for _ in call.tasks() {
            let owner = owners.next().unwrap_or(&Owner::Nobody);
            verdict = verdict.and_then(|()| check(owner, caller, Denial::UnknownTask));
        }
        if call.continuation.is_some() {
            let owner = &owned.continuation;
            verdict = verdict.and_then(|()| check(owner, caller, Denial::UnknownContinuation));
        }
        for owner in &owned.contexts {
            verdict = verdict.and_then(|()| match owner {
                Owner::Nobody => Ok(()),
                owner => check(owner, caller, Denial::UnknownTask),
            });
        }
        match verdict {
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

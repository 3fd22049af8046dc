//! The session stage: a legacy session belongs to the principal that opened it.
//!
//! Anyone else, and anyone naming a session that Lictor never saw opened, is told that there is no such
//! session (404), which tells a stranger nothing and makes an honest client initialise anew (MCP
//! 2025-11-25 transports, "Session Management").

use super::chain::{Facts, Findings, Needs, Request, Stage, Verdict};
use crate::{
    denial::Denial,
    protocol::{Call, Era},
};

/// Compares the session's owner with the caller.
#[derive(Debug)]
pub struct SessionStage;

impl Stage for SessionStage {
    fn name(&self) -> &'static str {
        "session"
    }

    fn needs(&self, call: &Call, needs: &mut Needs) {
        if call.era == Era::Legacy {
            needs.session.clone_from(&call.session);
        }
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, _: &mut Findings) -> Verdict {
        if request.call.era == Era::Modern || request.call.session.is_none() {
            return Verdict::Continue;
        }
        match &facts.session_owner {
            Some(owner) if **owner == *request.principal.id.as_str() => Verdict::Continue,
            Some(_) | None => Verdict::Deny(Denial::UnknownSession),
        }
    }
}

//! The push notification stage: an agent isn't told to call an address that it must not call.
//!
//! A caller names such an address in a configuration of its own or within a message; both are looked at alike.
//! Whether an address may be called is a fact, since names have to be looked up for it.

use super::chain::{Facts, Findings, Needs, Request, Stage, Verdict};
use crate::{denial::Denial, protocol::Call};

/// Refuses addresses for push notifications.
#[derive(Debug)]
pub struct PushUrlStage;

impl Stage for PushUrlStage {
    fn name(&self) -> &'static str {
        "push_url"
    }

    fn needs<'a>(&self, call: &'a Call, needs: &mut Needs<'a>) {
        let facts = call.a2a.iter();
        needs.push_urls.extend(facts.flat_map(|facts| facts.push_urls.iter().map(|url| &**url)));
    }

    fn judge(&self, _: &Request<'_>, facts: &Facts, _: &mut Findings) -> Verdict {
        match facts.push_refused {
            Some(detail) => Verdict::Deny(Denial::PushUrl(detail)),
            None => Verdict::Continue,
        }
    }
}

//! A call that is under way and has to end, because something that it has to do with was revoked.
//!
//! Every wait for a token, a card or an answer, every stream and every long document is raced against this; the
//! short wait for a place isn't, since nothing is sent before the next look. What waits is refused, its answer never
//! asked for or withheld; a stream ends in band, and a document is cut. Each drops the upstream's side at once, which is
//! all that can be done about a call that a server works on already.

use tokio::sync::watch;

use super::{Proxy, Served};
use crate::{
    delegation::Behalf,
    denial::Denial,
    governance::{Request, revocation},
    identity::Principal,
    protocol::Call,
};

/// Looks whether a call may go on, whenever that may have changed.
#[derive(Clone)]
pub(super) struct Recall<'a> {
    proxy: &'a Proxy,
    request: Request<'a>,
    changes: watch::Receiver<()>,
}

impl Proxy {
    /// The watch over a call.
    pub(super) fn recall<'a>(
        &'a self,
        (call, principal, behalf): (&'a Call, &'a Principal, &'a Behalf),
        served: &'a Served,
    ) -> Recall<'a> {
        let request = self.request((call, principal, behalf), served);
        let mut changes = self.shared.revocations.changes();
        // There may have been a change since the call was judged.
        changes.mark_changed();
        Recall { proxy: self, request, changes }
    }
}

impl Recall<'_> {
    /// Whether nothing of the call is revoked now.
    pub(super) fn check(&self) -> Result<(), Denial> {
        let shared = &self.proxy.shared;
        revocation::check(&self.request, &shared.policies.load(), &shared.revocations.current())
    }

    /// Waits until something is. Told again to everybody who asks later.
    pub(super) async fn recalled(&mut self) -> Denial {
        loop {
            // The sender lives as long as the process.
            let _ = self.changes.changed().await;
            if let Err(denial) = self.check() {
                self.changes.mark_changed();
                return denial;
            }
        }
    }
}

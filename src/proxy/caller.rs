//! The caller, while a call of theirs waits.

use std::future::pending;

use pingora::{ErrorType, protocols::http::ServerSession};

use super::{Halt, Proxy, drain::Phase};
use crate::{denial::Denial, exchange::End};

impl Proxy {
    /// Waits for what a call needs. The wait ends as well when the caller leaves or the process ends.
    pub(super) async fn while_wanted<T>(
        &self,
        session: &mut ServerSession,
        mut needed: impl Future<Output = T> + Unpin,
    ) -> Result<T, Halt> {
        let mut phase = self.shared.drain.watch();
        let mut watching = true;
        loop {
            tokio::select! { biased;
                needed = &mut needed => return Ok(needed),
                gone = gone(session, &mut watching) => if gone {
                    return Err(Halt::Caller(End::CallerGone));
                },
                _ = phase.wait_for(|phase| *phase == Phase::Ending) => {
                    return Err(Denial::Draining.into());
                }
            }
        }
    }
}

/// Waits until the caller leaves (`true`) or sends something it should not send yet (`false`, once).
///
/// HTTP/1 sees a FIN or reset, HTTP/2 a reset of the stream. A caller that pipelines a second request is
/// answered for the first; the second is not read, and the connection ends after the answer.
pub(super) async fn gone(session: &mut ServerSession, watching: &mut bool) -> bool {
    if !*watching {
        return pending().await;
    }
    match session.read_body_or_idle(true).await {
        Err(error) if *error.etype() == ErrorType::ConnectError => {
            *watching = false;
            session.set_keepalive(None);
            false
        }
        Ok(_) | Err(_) => true,
    }
}

//! Noticing that a caller has left.

use pingora::{ErrorType, protocols::http::ServerSession};

/// Waits until the caller leaves (`true`) or sends something it should not send yet (`false`, once).
///
/// HTTP/1 sees a FIN or reset, HTTP/2 a reset of the stream. A caller that pipelines a second request is
/// answered for the first; the second is not read, and the connection ends after the answer.
pub(super) async fn gone(session: &mut ServerSession, watching: &mut bool) -> bool {
    if !*watching {
        return std::future::pending().await;
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

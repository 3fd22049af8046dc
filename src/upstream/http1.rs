//! Calls over plain HTTP/1.1, to servers on the same host.
//!
//! The call that waits for an answer reads it itself: there is no task for each connection, no channel
//! between the two, and no buffer while nothing comes. An event stream is silent most of the time and open
//! for hours, and thousands of them may be.
//!
//! INVARIANT: a call is sent at most once. Another connection is tried only if not one byte of the call was
//! written, for any method and any body.
//!
//! Refused are heads that are too long or can't be parsed, and answers whose end could be seen in two ways;
//! see [`head`] for which.

mod body;
mod chunks;
mod connection;
mod head;
mod shelf;
#[cfg(test)]
mod tests;

use std::{future::poll_fn, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Uri, request::Parts};

pub(super) use self::body::Body;
use self::{connection::Connection, shelf::Shelf};
use super::{Error, connector::Dialer};

/// What went wrong on a connection.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    #[error("the connection ended before the answer did")]
    Cut,
    #[error("the head of the answer is longer than {} bytes", head::LONGEST)]
    LongHead,
    #[error("the head of the answer can't be parsed")]
    Head(#[from] httparse::Error),
    #[error("the answer's `{0}` can't be understood")]
    Field(http::HeaderName),
    #[error("an upgrade that nobody asked for")]
    Upgrade,
    #[error("a chunk of the answer can't be parsed")]
    Chunk,
}

/// The way to one server.
pub(super) struct Client {
    dialer: Dialer,
    shelf: Arc<Shelf>,
}

impl Client {
    /// Connects to nothing yet; a connection that was unused for `idle` is not used again.
    pub(super) fn new(dialer: Dialer, idle: Duration) -> Self {
        Self { dialer, shelf: Shelf::new(idle) }
    }

    /// Sends a call to `target`, of which path and query are used, and waits for the head of the answer.
    /// `head` has `Host` and the framing of `body`.
    pub(super) async fn send(
        &self,
        target: &Uri,
        head: &Parts,
        body: Bytes,
    ) -> Result<http::Response<Body>, Error> {
        let mut unsent: (Bytes, Bytes) = (head::write(target, head).into(), body);
        loop {
            let (stream, reused) = match self.shelf.take() {
                Some(stream) => (stream, true),
                None => {
                    let dialled = self.dialer.connect().await;
                    (dialled.map_err(|error| Error::Unreachable(Box::new(error)))?, false)
                }
            };
            // All of it, so that the body is held no longer than until it is sent.
            let mut connection = Connection::new(stream, unsent.0, unsent.1);
            match poll_fn(|context| connection.poll_head(context, &head.method)).await {
                Ok(answer) => {
                    let body = Body::new(connection, answer.framing, answer.keeps, &self.shelf);
                    return Ok(http::Response::from_parts(answer.parts, body));
                }
                Err(broken) => match connection.into_unsent() {
                    // The server had closed it; now one may be dialled.
                    Some(whole) if reused => unsent = whole,
                    Some(_) | None => return Err(Error::Failed(Box::new(broken))),
                },
            }
        }
    }
}

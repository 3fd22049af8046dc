//! Who is at the other end of a connection, and whether it has asked for anything yet.

use std::sync::Arc;

use pingora::protocols::{http::ServerSession, tls::SslDigest};
use tokio::sync::Notify;

use crate::identity::Peer;

/// A TLS connection; pingora carries it from the handshake to every request.
#[derive(Debug)]
pub(super) struct Connection {
    peer: Option<Arc<Peer>>,
    pub(super) begun: Notify,
}

impl Connection {
    pub(super) fn new(peer: Option<Peer>) -> Self {
        Self { peer: peer.map(Arc::new), begun: Notify::new() }
    }

    pub(super) fn of(tls: &SslDigest) -> Option<&Self> {
        tls.extension.get()
    }
}

/// The verified peer of the connection that a request came in on, HTTP/1.1 or HTTP/2. `None` on a plain
/// listener, and when a handshake was completed that proved nothing (a resumed session whose SVID isn't
/// believed any more): on a listener with mutual TLS the request has to be refused and the connection
/// closed.
pub fn peer(session: &ServerSession) -> Option<Arc<Peer>> {
    connection(session)?.peer.clone()
}

/// The exchange loop looks after the times of the connection from here on; see [`super::Limited`].
pub fn begun(session: &ServerSession) {
    if let Some(connection) = connection(session) {
        connection.begun.notify_one();
    }
}

fn connection(session: &ServerSession) -> Option<&Connection> {
    Connection::of(session.digest()?.ssl_digest.as_ref()?)
}

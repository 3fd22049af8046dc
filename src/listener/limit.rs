//! The cap on connections.
//!
//! pingora's own hook (feature `connection_filter`) sees connections come but not go, so it can't count.
//! This wraps the application instead: a connection counts from the end of its handshake to its close.
//! Handshakes in progress aren't counted here, only for each address by [`Shield`]; pingora ends them after
//! 60 s. It waits for ever, though, for whoever has chosen HTTP/2 to begin with it, so that wait is bounded
//! here.

use std::{future::pending, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::BytesMut;
use pingora::{
    apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream, ServerApp},
    protocols::{ALPN, Stream, http::ServerSession},
    server::ShutdownWatch,
};
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

use super::{
    arrival::{Application, Idle},
    peer::Connection,
    shield::Shield,
};
use crate::telemetry::Metrics;

/// The connections of a listener, counted. Clones count together.
#[derive(Clone, Debug)]
pub struct Connections {
    free: Arc<Semaphore>,
    most: usize,
    /// Followed by each that carries HTTP/2, as long as it is open.
    multiplexed: watch::Sender<()>,
}

/// An application that serves at most a given number of connections at once. Further ones are closed
/// before a byte of them is read.
pub struct Limited<A> {
    app: Arc<A>,
    connections: Connections,
    shield: Shield,
    metrics: Metrics,
    listener: Arc<str>,
    first_request: Duration,
}

impl Connections {
    /// Allows `most` at once.
    pub fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(most)), most, multiplexed: watch::Sender::default() }
    }

    /// Those that are open now.
    pub fn open(&self) -> usize {
        self.most.saturating_sub(self.free.available_permits())
    }

    /// Waits until none is open that carries HTTP/2. When a message there has been served, the end of its answer may
    /// still wait in the connection, which ends when it is told to stop and has sent everything. Whoever serves HTTP/1.1
    /// writes by itself.
    pub async fn sent(&self) {
        self.multiplexed.closed().await;
    }
}

impl<A> Limited<A> {
    /// Caps the connections of `app`, tells `shield` of them, and counts them under the listener's name. A TLS
    /// connection for which `app` hasn't called [`super::begun`] within `first_request` is closed.
    pub fn new(
        app: Arc<A>,
        connections: Connections,
        shield: Shield,
        metrics: Metrics,
        listener: &str,
        first_request: Duration,
    ) -> Self {
        Self { app, connections, shield, metrics, listener: listener.into(), first_request }
    }
}

#[async_trait]
impl<A: Application + Send + Sync + 'static> ServerApp for Limited<A> {
    async fn process_new(
        self: &Arc<Self>,
        session: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let digest = session.get_socket_digest();
        let address = digest.as_ref().and_then(|digest| digest.peer_addr()?.as_inet());
        let counted = self.shield.opened(address);
        let Ok(place) = Arc::clone(&self.connections.free).try_acquire_owned() else {
            self.metrics.refuse_connection(&self.listener, "limit");
            tracing::debug!(most = self.connections.most, "connection closed: too many");
            return None;
        };
        let open = self.metrics.open_connection(&self.listener);
        let (app, shutdown) = (Arc::clone(&self.app), shutdown.clone());
        let limit = self.first_request;
        let multiplexed = is_http2(&session).then(|| self.connections.multiplexed.subscribe());
        // pingora's task has room for a handshake, some 9 KiB, for as long as it runs. It ends here.
        tokio::spawn(async move {
            let _held = (place, open, counted, multiplexed);
            let tls = session.get_ssl_digest();
            let connection = tls.as_deref().and_then(Connection::of);
            tokio::select! {
                () = serve(app, session, &shutdown) => {}
                () = not_begun(connection, limit) => {}
            }
        });
        None
    }

    async fn cleanup(&self) {
        self.app.http_cleanup().await;
    }
}

/// Serves what comes on one connection, as pingora does it for an [`HttpServerApp`], but without room for
/// HTTP/2 in what waits on a connection with HTTP/1.1, and with its own wait for the [first
/// bytes](Application::arrival) of a message.
async fn serve<A>(app: Arc<A>, stream: Stream, shutdown: &ShutdownWatch)
where
    A: Application + Send + Sync + 'static,
{
    if is_http2(&stream) {
        app.process_new(stream, shutdown).await;
        return;
    }
    let mut settings = None;
    let mut idle = Idle::new(stream);
    while let Some((first, _held)) = app.arrival(&mut idle).await {
        let next = message(&app, idle.stream, settings, first, shutdown).await;
        let Some(reused) = next.map(ReusedHttpStream::consume) else { return };
        (idle.stream, settings) = reused;
    }
}

fn is_http2(stream: &Stream) -> bool {
    matches!(stream.selected_alpn_proto(), Some(ALPN::H2))
}

/// Begins with the message whose first bytes are `first`. Not a future of its own, which would keep room for
/// the session.
fn message<'a, A: HttpServerApp>(
    app: &'a Arc<A>,
    stream: Stream,
    settings: Option<HttpPersistentSettings>,
    first: BytesMut,
    shutdown: &'a ShutdownWatch,
) -> Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>> {
    let mut session = ServerSession::new_http1(stream);
    match settings {
        Some(settings) => settings.apply_to_session(&mut session),
        None => session.set_keepalive((!*shutdown.borrow()).then_some(60)),
    }
    session.set_pipelined_prefix(first);
    app.process_new_http(session, shutdown)
}

/// Ends when a TLS connection hasn't begun in time, and never otherwise.
async fn not_begun(connection: Option<&Connection>, limit: Duration) {
    match connection {
        Some(connection) if timeout(limit, connection.begun.notified()).await.is_err() => {}
        Some(_) | None => pending().await,
    }
}

//! Opens connections to one upstream: plain ones, and with TLS for hyper-util's pool.
//!
//! The address is always that of the settings; the URI that the pool asks for is only its key.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::pki_types::ServerName;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{resolver::Resolver, tls};
use crate::telemetry::Clock;

/// Why no connection came about. Nothing of a call was sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("`{host}` can't be resolved")]
    Resolve { host: String, source: io::Error },
    #[error("`{host}` has no address")]
    NoAddress { host: String },
    #[error("`{address}` isn't a loopback address, and the upstream is plain HTTP")]
    NotLoopback { address: SocketAddr },
    #[error("`{address}` can't be reached")]
    Dial { address: SocketAddr, source: io::Error },
    #[error("the TLS handshake with `{host}` failed: {reason}")]
    Tls { host: String, reason: String },
    #[error("no connection within {0:?}")]
    Timeout(Duration),
}

/// Opens TCP connections to one host.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) resolver: Resolver,
    pub(super) timeout: Duration,
    /// Whether other addresses than those of this host itself are refused.
    pub(super) loopback_only: bool,
}

/// Opens TLS connections, verified as the configuration says. Cloned for every connection.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) dialer: Dialer,
    pub(super) config: Arc<rustls::ClientConfig>,
    pub(super) name: ServerName<'static>,
    /// The earliest end of validity among the SVIDs that upstream connections were verified with.
    pub(super) valid_until: Arc<AtomicU64>,
    /// The addresses that there are, or were, connections to.
    pub(super) used: Arc<Mutex<BTreeSet<SocketAddr>>>,
}

/// A connection in the pool.
pub(super) struct Io(Box<TokioIo<TlsStream<TcpStream>>>);

impl Dialer {
    /// Opens a connection in time.
    pub(super) async fn connect(&self) -> Result<TcpStream, ConnectError> {
        self.within(self.dial()).await
    }

    /// Bounds the time of `connecting`, and mistrusts what is known of the name when it is over.
    async fn within<T>(
        &self,
        connecting: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        timeout(self.timeout, connecting).await.unwrap_or_else(|_elapsed| {
            self.resolver.doubt();
            Err(ConnectError::Timeout(self.timeout))
        })
    }

    /// Tries the addresses in the resolver's order, and gives each a fair share of the time.
    async fn dial(&self) -> Result<TcpStream, ConnectError> {
        let host = || self.resolver.host().to_owned();
        let addresses = self.resolver.addresses().await;
        let addresses =
            addresses.map_err(|source| ConnectError::Resolve { host: host(), source })?;
        let share = self.timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let mut last = ConnectError::NoAddress { host: host() };
        for address in addresses {
            if self.loopback_only && !address.ip().is_loopback() {
                return Err(ConnectError::NotLoopback { address });
            }
            match timeout(share, open_socket(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(source)) => last = ConnectError::Dial { address, source },
                Err(_elapsed) => last = ConnectError::Timeout(share),
            }
        }
        self.resolver.doubt();
        Err(last)
    }
}

impl Connector {
    async fn connect(self) -> Result<Io, ConnectError> {
        self.dialer.within(self.establish()).await
    }

    async fn establish(&self) -> Result<Io, ConnectError> {
        let stream = self.dialer.dial().await?;
        if let Ok(address) = stream.peer_addr() {
            self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(address);
        }
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await.map_err(|error| {
            ConnectError::Tls {
                host: self.dialer.resolver.host().to_owned(),
                reason: tls::explain(&error),
            }
        })?;
        if let Some(not_after) = tls::svid_expiry(stream.get_ref().1, Clock.unix().as_secs()) {
            self.valid_until.fetch_min(not_after, Ordering::Relaxed);
        }
        Ok(Io(Box::new(TokioIo::new(stream))))
    }
}

async fn open_socket(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // For event streams that are silent for hours: the kernel finds out when the other end is gone.
    socket.set_keepalive(true)?;
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

impl tower_service::Service<Uri> for Connector {
    type Response = Io;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Io, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _key: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resolver = &self.dialer.resolver;
        f.debug_struct("Connector").field("resolver", resolver).finish_non_exhaustive()
    }
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        let h2 = self.0.inner().get_ref().1.alpn_protocol() == Some(b"h2");
        if h2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, buffer)
    }
}

impl Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(context, slices)
    }
}

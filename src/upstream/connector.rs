//! Opens connections to one upstream, for hyper-util's pool.
//!
//! The address is always that of the settings; the URI that the pool asks for is only its key.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
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

/// Where and how to connect. Cloned for every connection.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) resolver: Resolver,
    pub(super) timeout: Duration,
    pub(super) security: Security,
    /// The earliest end of validity among the SVIDs that upstream connections were verified with.
    pub(super) valid_until: Arc<AtomicU64>,
}

#[derive(Clone)]
pub(super) enum Security {
    /// Plain HTTP, to loopback addresses only.
    Loopback,
    /// TLS, verified as the configuration behind it says.
    Tls { config: Arc<rustls::ClientConfig>, name: ServerName<'static> },
}

/// A connection in the pool.
pub(super) enum Io {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connector {
    async fn connect(self) -> Result<Io, ConnectError> {
        let limit = self.timeout;
        let resolver = self.resolver.clone();
        timeout(limit, self.establish()).await.unwrap_or_else(|_elapsed| {
            resolver.forget();
            Err(ConnectError::Timeout(limit))
        })
    }

    async fn establish(self) -> Result<Io, ConnectError> {
        let stream = self.dial().await?;
        let (config, name) = match self.security {
            Security::Loopback => return Ok(Io::Plain(TokioIo::new(stream))),
            Security::Tls { config, name } => (config, name),
        };
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
            ConnectError::Tls {
                host: self.resolver.host().to_owned(),
                reason: tls::explain(&error),
            }
        })?;
        if let Some(not_after) = tls::svid_expiry(stream.get_ref().1) {
            self.valid_until.fetch_min(not_after, Ordering::Relaxed);
        }
        Ok(Io::Tls(Box::new(TokioIo::new(stream))))
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
            if matches!(self.security, Security::Loopback) && !address.ip().is_loopback() {
                return Err(ConnectError::NotLoopback { address });
            }
            match timeout(share, open_socket(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(source)) => last = ConnectError::Dial { address, source },
                Err(_elapsed) => last = ConnectError::Timeout(share),
            }
        }
        self.resolver.forget();
        Err(last)
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
        f.debug_struct("Connector").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        let h2 = match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
        };
        if h2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, buffer),
        }
    }
}

impl Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, slices),
        }
    }
}

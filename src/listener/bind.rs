//! Binding.
//!
//! pingora binds when a service starts, panics if it can't, and doesn't tell which port the system chose.
//! It takes sockets over, though, as it does in an upgrade. So they are bound here, where a fault is an
//! error and the address is known, and handed over by address.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::IntoRawFd,
    sync::Arc,
};

use pingora::{
    apps::ServerApp,
    listeners::{ListenerConfig, tls::TlsSettings},
    protocols::l4::stream::L4BufferSettings,
    server::{Fds, ListenFds},
    services::listening::Service,
};

use super::shield::Shield;

/// pingora would put 64 KiB, all of them written to, in front of each connection for as long as it is open,
/// and event streams are open for hours. Heads and bodies have buffers of their own, which are read into
/// directly then.
const PLAIN_BUFFERS: L4BufferSettings = L4BufferSettings { read: Some(0), write: None };

/// rustls reads 4 KiB at a time; this halves its system calls.
const TLS_BUFFERS: L4BufferSettings = L4BufferSettings { read: Some(8 * 1024), write: None };

/// A socket that is bound and queues connections, but isn't served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Binds; port 0 lets the system choose.
    pub fn new(bind: SocketAddr) -> io::Result<Self> {
        Self::over(TcpListener::bind(bind)?)
    }

    /// Takes a socket that listens already.
    pub fn over(listener: TcpListener) -> io::Result<Self> {
        // pingora takes it over as it is, and waits for it with epoll.
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The address with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A service of `app` on this socket, behind `shield`, with the table to start it with:
    /// `service.start_service(Some(sockets), shutdown, 1)`.
    pub fn serve<A: ServerApp>(
        self,
        name: &str,
        app: A,
        tls: Option<TlsSettings>,
        shield: Shield,
    ) -> (Service<A>, ListenFds) {
        let mut service = Service::new(name.to_owned(), app);
        service.set_connection_filter(Arc::new(shield));
        let address = self.address.to_string();
        let endpoint = ListenerConfig::tcp(address.as_str());
        service.add_listener(match tls {
            Some(tls) => endpoint.l4_buffer(TLS_BUFFERS).tls(tls),
            None => endpoint.l4_buffer(PLAIN_BUFFERS),
        });
        let mut sockets = Fds::new();
        sockets.add(address, self.listener.into_raw_fd());
        (service, ListenFds::new(sockets.into()))
    }
}

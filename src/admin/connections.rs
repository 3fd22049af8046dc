//! Bounds on the connections of a listener that strangers may reach.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Sleep, sleep},
};

/// How long a connection may live; probes and scrapers connect anew without a word.
const LIFE: Duration = Duration::from_secs(120);

/// Accepts no more connections than it has places for, each for a bounded time.
#[derive(Debug)]
pub(super) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    accepting: watch::Receiver<bool>,
}

impl Bounded {
    pub(super) fn new(
        listener: TcpListener,
        most: usize,
        accepting: watch::Receiver<bool>,
    ) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(most)), accepting }
    }
}

/// Waits until this is `wanted`. For ever if it doesn't change any more.
async fn turns(accepting: &watch::Receiver<bool>, wanted: bool) {
    if accepting.clone().wait_for(|now| *now == wanted).await.is_err() {
        pending::<()>().await;
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed; `None` only means an unbounded connection.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, address) = loop {
            turns(&self.accepting, true).await;
            // Meanwhile another process may accept from the same socket.
            tokio::select! { biased;
                () = turns(&self.accepting, false) => {}
                accepted = Listener::accept(&mut self.listener) => break accepted,
            }
        };
        (Connection { stream, end: Box::pin(sleep(LIFE)), _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that holds a place and ends when its time is over.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

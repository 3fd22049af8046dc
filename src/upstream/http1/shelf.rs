//! Connections that wait for another call.

use std::{
    io,
    mem::MaybeUninit,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use socket2::SockRef;
use tokio::{net::TcpStream, time::sleep};

use crate::telemetry::Clock;

/// Most connections that wait; beyond that they are closed after their call.
const MOST: usize = 512;

/// The connections to one server that wait.
#[derive(Debug)]
pub(super) struct Shelf {
    /// How long one may wait.
    idle: Duration,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The one that was used last is at the end.
    connections: Vec<(TcpStream, Instant)>,
    /// Whether a task looks after them.
    is_kept: bool,
}

impl Shelf {
    pub(super) fn new(idle: Duration) -> Arc<Self> {
        Arc::new(Self { idle, waiting: Mutex::default() })
    }

    /// The connection that was used last, if it is still good.
    pub(super) fn take(&self) -> Option<TcpStream> {
        let mut waiting = self.lock();
        while let Some((stream, since)) = waiting.connections.pop() {
            if self.is_good(&stream, since) {
                return Some(stream);
            }
        }
        None
    }

    /// Puts a connection back on which nothing is under way.
    pub(super) fn put(self: &Arc<Self>, stream: TcpStream) {
        let mut waiting = self.lock();
        if waiting.connections.len() >= MOST {
            return;
        }
        waiting.connections.push((stream, Clock.instant()));
        if !std::mem::replace(&mut waiting.is_kept, true) {
            tokio::spawn(keep(Arc::downgrade(self), self.idle));
        }
    }

    /// Nothing may come on a connection that waits: neither its end nor an answer that nobody waits for.
    fn is_good(&self, stream: &TcpStream, since: Instant) -> bool {
        let waited = Clock.instant().saturating_duration_since(since);
        // Asks the kernel: what the runtime knows of the connection may be a moment old.
        let come = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
        waited < self.idle && come.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what has waited for too long, as long as anything waits.
async fn keep(shelf: Weak<Shelf>, idle: Duration) {
    loop {
        sleep(idle).await;
        let Some(shelf) = shelf.upgrade() else { return };
        let mut waiting = shelf.lock();
        waiting.connections.retain(|(stream, since)| shelf.is_good(stream, *since));
        if waiting.connections.is_empty() {
            waiting.is_kept = false;
            return;
        }
    }
}

//! What one address may take of a listener before anybody there has proven who they are.
//!
//! pingora's connection filter is asked between `accept` and the handshake, so whoever is refused costs an
//! `accept` and a `close`, and hears nothing. It isn't told how a handshake ends. A connection therefore counts
//! as opening from there until its handshake is complete, or for as long as pingora lets one take. One whose
//! handshake fails at once counts too long, at the cost of its own address.
//!
//! An address is an IPv4 address, or the /64 that an IPv6 address is in: that much is given to one host, which
//! may use a new one for each connection. What a header says of addresses plays no part.
//!
//! INVARIANT: what is remembered is bounded, however many addresses come: the buckets by the connections that
//! the machine can accept in a second and `SWEEP` more, the rest by the connections that are open and
//! `MOST_OPENING`. Beyond these, connections that are opening aren't counted; the other two limits go on.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use pingora::listeners::ConnectionFilter;

use crate::telemetry::{Clock, Metrics};

/// How long pingora lets a handshake take.
const HANDSHAKE: Duration = Duration::from_secs(60);

/// Most connections that are counted while they open.
const MOST_OPENING: usize = 65_536;

/// How many connections come before what isn't needed any more is forgotten.
const SWEEP: usize = 4096;

/// What one address may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections at once, those among them whose handshake goes on.
    pub connections: usize,
    /// New connections a second; as many may come at once.
    pub new_per_second: NonZeroU32,
    /// Whether loopback addresses are held to it too.
    pub loopback: bool,
}

/// Holds the addresses that connect to one listener to their limits. Clones count together.
#[derive(Clone, Debug)]
pub struct Shield(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    rate: DefaultKeyedRateLimiter<Block>,
    taken: Mutex<Taken>,
    arrived: AtomicUsize,
    metrics: Metrics,
    listener: Arc<str>,
}

/// What counts as one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Block {
    V4(Ipv4Addr),
    /// The upper 64 bits.
    V6(u64),
}

/// Who has what.
#[derive(Debug, Default)]
struct Taken {
    blocks: HashMap<Block, Connections>,
    opening: usize,
}

/// The connections of one block.
#[derive(Debug, Default)]
struct Connections {
    open: usize,
    /// When those came whose handshake isn't complete, in their order.
    opening: VecDeque<Instant>,
}

/// Why a connection is refused; the label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Rate,
    Connections,
}

/// An open connection, counted for as long as this lives.
#[derive(Debug)]
#[must_use = "it is counted for as long as the guard lives"]
pub(super) struct Counted {
    shield: Shield,
    block: Block,
}

#[async_trait]
impl ConnectionFilter for Shield {
    async fn should_accept(&self, address: Option<&SocketAddr>) -> bool {
        let Some(block) = self.block(address) else { return true };
        if self.0.arrived.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1 {
            let shield = self.clone();
            tokio::task::spawn_blocking(move || shield.sweep(Clock.instant()));
        }
        match self.admit(block, Clock.instant()) {
            Ok(()) => true,
            Err(reason) => {
                self.0.metrics.refuse_connection(&self.0.listener, reason.as_str());
                // Anybody can set this off, as often as they like.
                tracing::debug!(?block, reason = reason.as_str(), "connection refused");
                false
            }
        }
    }
}

impl Shield {
    /// Guards a listener of this name.
    pub fn new(settings: Settings, metrics: Metrics, listener: &str) -> Self {
        Self(Arc::new(Inner {
            settings,
            rate: RateLimiter::keyed(Quota::per_second(settings.new_per_second)),
            taken: Mutex::default(),
            arrived: AtomicUsize::new(0),
            metrics,
            listener: listener.into(),
        }))
    }

    /// The handshake of a connection from this address is complete.
    pub(super) fn opened(&self, address: Option<&SocketAddr>) -> Option<Counted> {
        let block = self.block(address)?;
        let mut taken = self.taken();
        let connections = taken.blocks.entry(block).or_default();
        connections.open += 1;
        // The oldest: should it be another one that is still opening, that one counts for too long, not too
        // short.
        if connections.opening.pop_front().is_some() {
            taken.opening = taken.opening.saturating_sub(1);
        }
        drop(taken);
        Some(Counted { shield: self.clone(), block })
    }

    fn admit(&self, block: Block, now: Instant) -> Result<(), Reason> {
        self.0.rate.check_key(&block).map_err(|_| Reason::Rate)?;
        let mut taken = self.taken();
        taken.begin(block, now, self.0.settings.connections)
    }

    /// Forgets whoever has nothing any more and could do what they like again.
    fn sweep(&self, now: Instant) {
        self.0.rate.retain_recent();
        self.0.rate.shrink_to_fit();
        self.taken().sweep(now);
    }

    /// Whose connection it is, if that counts. Only a connection that is gone already, or one over a Unix
    /// socket, has no address.
    fn block(&self, address: Option<&SocketAddr>) -> Option<Block> {
        let address = address?.ip().to_canonical();
        (self.0.settings.loopback || !address.is_loopback()).then(|| Block::of(address))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Block {
    /// An IPv4 address within IPv6 is one of IPv4.
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                // Shifting leaves 64 bits.
                Self::V6(u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX))
            }
        }
    }
}

impl Taken {
    fn begin(&mut self, block: Block, now: Instant, most: usize) -> Result<(), Reason> {
        let room = self.opening < MOST_OPENING;
        let connections = self.blocks.entry(block).or_default();
        let ended = connections.end_overdue(now);
        let used = connections.open.saturating_add(connections.opening.len());
        let begun = if used >= most {
            Err(Reason::Connections)
        } else {
            if room {
                connections.opening.push_back(now);
            }
            Ok(usize::from(room))
        };
        if connections.is_empty() {
            self.blocks.remove(&block);
        }
        self.opening = self.opening.saturating_sub(ended);
        self.opening += begun?;
        Ok(())
    }

    fn end(&mut self, block: Block) {
        let Some(connections) = self.blocks.get_mut(&block) else { return };
        connections.open = connections.open.saturating_sub(1);
        if connections.is_empty() {
            self.blocks.remove(&block);
        }
    }

    fn sweep(&mut self, now: Instant) {
        let mut ended = 0;
        self.blocks.retain(|_, connections| {
            ended += connections.end_overdue(now);
            !connections.is_empty()
        });
        self.blocks.shrink_to_fit();
        self.opening = self.opening.saturating_sub(ended);
    }
}

impl Connections {
    /// Forgets those that pingora must have ended; how many.
    fn end_overdue(&mut self, now: Instant) -> usize {
        let overdue = |came: &Instant| now.saturating_duration_since(*came) >= HANDSHAKE;
        let ended = self.opening.iter().take_while(|came| overdue(came)).count();
        self.opening.drain(..ended);
        ended
    }

    fn is_empty(&self) -> bool {
        self.open == 0 && self.opening.is_empty()
    }
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "address_rate",
            Self::Connections => "address_connections",
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shield.taken().end(self.block);
    }
}

#[cfg(test)]
mod tests;

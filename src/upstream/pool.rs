//! Pooled clients of one rotation epoch.
//!
//! hyper-util keeps one HTTP/2 connection a client, and calls above the server's limit of streams
//! (commonly 100) wait in it without a word. Event streams stay open for hours, so they would starve the
//! calls. Calls are therefore spread over several clients, each filled before the next is used.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};

use super::{connector::Connector, resolver::Resolver};

/// Calls in flight on one client before the next is used; below the limits that servers usually have.
const LANE: usize = 64;
/// Clients of an epoch. Calls beyond `LANE * LANES` in flight share the last ones.
const LANES: usize = 32;
/// Idle HTTP/1.1 connections that are kept in one client.
const MAX_IDLE: usize = LANE;
/// How long an HTTP/2 connection with calls in flight may be silent before it is asked for a sign of
/// life, so that calls don't pile up on a connection whose other end has vanished.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// hyper-util's client over our connector.
pub(super) type Client = legacy::Client<Connector, Full<Bytes>>;

pub(super) struct Pool {
    /// The generation of our identity that its connections were made with.
    pub(super) generation: u64,
    valid_until: Arc<AtomicU64>,
    /// What its connections lead to, and how many losses of addresses that has been held against.
    used: Arc<Mutex<BTreeSet<SocketAddr>>>,
    losses: AtomicU64,
    lanes: [Lane; LANES],
}

struct Lane {
    client: Client,
    in_flight: Arc<AtomicUsize>,
}

/// One call's place; free again when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Pool {
    pub(super) fn new(generation: u64, connector: &Connector, idle: Duration) -> Self {
        let (valid_until, used) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::default());
        let losses = AtomicU64::new(connector.dialer.resolver.losses());
        let connector = Connector {
            valid_until: Arc::clone(&valid_until),
            used: Arc::clone(&used),
            ..connector.clone()
        };
        let lanes = std::array::from_fn(|_| Lane::new(connector.clone(), idle));
        Self { generation, valid_until, used, losses, lanes }
    }

    /// Whether one of its connections leads, or led, to an address that isn't the host's any more.
    pub(super) fn stranded(&self, resolver: &Resolver) -> bool {
        let losses = resolver.losses();
        if self.losses.load(Ordering::Relaxed) == losses {
            return false;
        }
        self.losses.store(losses, Ordering::Relaxed);
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.iter().any(|address| !resolver.has(*address))
    }

    /// Whether an SVID that one of its connections was verified with has expired at `now` (Unix seconds).
    pub(super) fn expired(&self, now: u64) -> bool {
        now >= self.valid_until.load(Ordering::Relaxed)
    }

    /// The first client with a place, or the one with the fewest calls in flight.
    pub(super) fn place(&self) -> (Client, Place) {
        let [first, rest @ ..] = &self.lanes;
        let mut lane = first;
        for other in rest {
            if lane.calls() < LANE {
                break;
            }
            if other.calls() < lane.calls() {
                lane = other;
            }
        }
        // Calls that race here may overfill a lane by a few, which its margin allows.
        lane.in_flight.fetch_add(1, Ordering::Relaxed);
        (lane.client.clone(), Place(Arc::clone(&lane.in_flight)))
    }
}

impl Lane {
    fn new(connector: Connector, idle: Duration) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .pool_max_idle_per_host(MAX_IDLE)
            .http2_keep_alive_interval(PING_AFTER)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector);
        Self { client, in_flight: Arc::default() }
    }

    fn calls(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

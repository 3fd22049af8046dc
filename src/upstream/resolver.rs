//! Name to addresses, off the path of calls.
//!
//! Only the first connection to an upstream waits for the resolver. Later ones use what is known, and if
//! that has grown old, have it looked up behind them: a resolver that hangs slows nobody down. Old
//! addresses are harmless, since whoever answers at one still has to prove who it is.
//!
//! How long an answer may be used isn't told by the system's resolver, so it is asked again after [`FRESH`], as
//! long as there are calls. An address is gone when the answers of [`GONE`] didn't have it: some resolvers
//! give a part of the addresses each time. A look-up that fails changes nothing.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use tokio::net::lookup_host;

use crate::telemetry::Clock;

/// Age at which addresses are looked up again.
const FRESH: Duration = Duration::from_secs(10);

/// How long an address is held for one of the host's that answers don't have any more.
const GONE: Duration = Duration::from_secs(30);

/// The addresses of one host. Clones share what is known.
#[derive(Clone, Debug)]
pub(super) struct Resolver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    host: Box<str>,
    port: u16,
    /// Whether the host is an address itself, and there is nothing to look up.
    is_address: bool,
    known: ArcSwapOption<Known>,
    looking: AtomicBool,
    /// Whether the next connection waits for a look-up.
    is_doubted: AtomicBool,
    /// What answers of the last time had, and when one had it last.
    seen: Mutex<Vec<(SocketAddr, Instant)>>,
    /// How often addresses have gone.
    losses: AtomicU64,
}

#[derive(Debug)]
struct Known {
    addresses: Vec<SocketAddr>,
    at: Instant,
}

impl Resolver {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self(Arc::new(Shared {
            host: host.into(),
            port,
            is_address: host.parse::<IpAddr>().is_ok(),
            known: ArcSwapOption::empty(),
            looking: AtomicBool::new(false),
            is_doubted: AtomicBool::new(false),
            seen: Mutex::default(),
            losses: AtomicU64::new(0),
        }))
    }

    pub(super) fn host(&self) -> &str {
        &self.0.host
    }

    /// The addresses in the resolver's order.
    pub(super) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let Some(known) = self.0.known.load_full() else {
            return self.0.look_up().await;
        };
        if self.0.is_doubted.swap(false, Ordering::AcqRel) {
            // They may be good again, which is better than none.
            return Ok(self.0.look_up().await.unwrap_or_else(|_| known.addresses.clone()));
        }
        self.refresh();
        Ok(known.addresses.clone())
    }

    /// Has addresses that have grown old looked up again, behind whoever calls this.
    pub(super) fn refresh(&self) {
        let is_old = |known: &Known| Clock.instant().saturating_duration_since(known.at) >= FRESH;
        let is_due = !self.0.is_address && self.0.known.load().as_deref().is_some_and(is_old);
        if !is_due || self.0.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            // A failure leaves what is known in use; the next call tries again.
            let looked_up = shared.look_up().await;
            tracing::debug!(host = %shared.host, ?looked_up, "addresses looked up");
            shared.looking.store(false, Ordering::Release);
        });
    }

    /// Has the next connection wait for a new look-up; for when none of the addresses answers.
    pub(super) fn doubt(&self) {
        self.0.is_doubted.store(true, Ordering::Release);
    }

    /// How often addresses have gone; whoever has connections looks after them when this has changed.
    pub(super) fn losses(&self) -> u64 {
        self.0.losses.load(Ordering::Acquire)
    }

    /// Whether an address is one of the host's, as far as is known.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.0.seen().iter().any(|(known, _)| *known == address)
    }

    /// As if these had been looked up then.
    #[cfg(test)]
    pub(super) fn learn(&self, addresses: Vec<SocketAddr>, at: Instant) {
        self.0.learn(addresses, at);
    }
}

impl Shared {
    async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = lookup_host((&*self.host, self.port)).await?.collect();
        self.learn(addresses.clone(), Clock.instant());
        Ok(addresses)
    }

    fn learn(&self, addresses: Vec<SocketAddr>, at: Instant) {
        let mut seen = self.seen();
        for address in &addresses {
            match seen.iter_mut().find(|(known, _)| known == address) {
                Some((_, last)) => *last = at,
                None => seen.push((*address, at)),
            }
        }
        let before = seen.len();
        seen.retain(|(_, last)| at.saturating_duration_since(*last) < GONE);
        if seen.len() < before {
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
        self.known.store(Some(Arc::new(Known { addresses, at })));
    }

    fn seen(&self) -> MutexGuard<'_, Vec<(SocketAddr, Instant)>> {
        // Nothing in there panics half-way.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn old_addresses_are_used_at_once_and_replaced_behind() {
        let resolver = Resolver::new("localhost", 80);
        let old: SocketAddr = ([192, 0, 2, 1], 80).into();
        let at = Clock.instant().checked_sub(FRESH).expect("the machine is up for longer");
        resolver.learn(vec![old], at);
        assert_eq!(resolver.addresses().await.expect("known"), [old]);
        let replaced = async {
            while resolver.addresses().await.expect("known") == [old] {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), replaced).await.expect("looked up behind");
        let addresses = resolver.addresses().await.expect("known");
        assert!(addresses.iter().all(|address| address.ip().is_loopback()), "{addresses:?}");
    }

    #[tokio::test]
    async fn what_is_doubted_is_looked_up_again() {
        let resolver = Resolver::new("localhost", 80);
        let old: SocketAddr = ([192, 0, 2, 1], 80).into();
        resolver.learn(vec![old], Clock.instant());
        assert_eq!(resolver.addresses().await.expect("fresh"), [old]);
        resolver.doubt();
        assert_ne!(resolver.addresses().await.expect("looked up"), [old]);
    }

    #[tokio::test]
    async fn a_look_up_that_fails_leaves_the_old_ones() {
        // RFC 6761 §6.4: there is no such name.
        let resolver = Resolver::new("lictor.invalid", 80);
        assert!(resolver.addresses().await.is_err());
        let old: SocketAddr = ([192, 0, 2, 1], 80).into();
        resolver.learn(vec![old], Clock.instant());
        for _ in 0..3 {
            resolver.doubt();
            assert_eq!(resolver.addresses().await.expect("the old one"), [old]);
        }
        assert!(resolver.has(old));
        assert_eq!(resolver.losses(), 0);
    }

    #[test]
    fn an_address_is_gone_once_answers_have_been_without_it() {
        let resolver = Resolver::new("localhost", 80);
        let [one, two] = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 80)));
        let start = Clock.instant();
        resolver.learn(vec![one, two], start);
        // In turn: neither has gone.
        for turn in 1..9 {
            let address = if turn % 2 == 0 { one } else { two };
            resolver.learn(vec![address], start + FRESH * turn);
        }
        assert!(resolver.has(one) && resolver.has(two));
        assert_eq!(resolver.losses(), 0);
        resolver.learn(vec![one], start + FRESH * 9);
        assert!(resolver.has(two));
        resolver.learn(vec![one], start + FRESH * 10);
        assert!(resolver.has(one) && !resolver.has(two));
        assert_eq!(resolver.losses(), 1);
        resolver.learn(vec![one, two], start + FRESH * 11);
        assert!(resolver.has(two));
        assert_eq!(resolver.losses(), 1);
    }
}

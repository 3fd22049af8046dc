//! Name to addresses, off the path of calls.
//!
//! Only the first connection to an upstream waits for the resolver. Later ones use what is known, and if
//! that has grown old, have it looked up behind them: a resolver that hangs slows nobody down. Old
//! addresses are harmless, since whoever answers at one still has to prove who it is.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use tokio::net::lookup_host;

use crate::telemetry::Clock;

/// Age at which addresses are looked up again.
const FRESH: Duration = Duration::from_secs(10);

/// The addresses of one host. Clones share what is known.
#[derive(Clone, Debug)]
pub(super) struct Resolver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    host: Box<str>,
    port: u16,
    known: ArcSwapOption<Known>,
    looking: AtomicBool,
}

#[derive(Debug)]
struct Known {
    addresses: Vec<SocketAddr>,
    at: Instant,
}

impl Resolver {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let (known, looking) = (ArcSwapOption::empty(), AtomicBool::new(false));
        Self(Arc::new(Shared { host: host.into(), port, known, looking }))
    }

    pub(super) fn host(&self) -> &str {
        &self.0.host
    }

    /// The addresses in the resolver's order.
    pub(super) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let Some(known) = self.0.known.load_full() else {
            return self.0.look_up().await;
        };
        if Clock.instant().saturating_duration_since(known.at) >= FRESH
            && !self.0.looking.swap(true, Ordering::AcqRel)
        {
            let shared = Arc::clone(&self.0);
            tokio::spawn(async move {
                // A failure leaves what is known in use; the next connection tries again.
                let looked_up = shared.look_up().await;
                tracing::debug!(host = %shared.host, ?looked_up, "addresses looked up");
                shared.looking.store(false, Ordering::Release);
            });
        }
        Ok(known.addresses.clone())
    }

    /// Has the next connection wait for a new look-up; for when none of the addresses answers.
    pub(super) fn forget(&self) {
        self.0.known.store(None);
    }
}

impl Shared {
    async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = lookup_host((&*self.host, self.port)).await?.collect();
        let known = Known { addresses: addresses.clone(), at: Clock.instant() };
        self.known.store(Some(Arc::new(known)));
        Ok(addresses)
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
        resolver.0.known.store(Some(Arc::new(Known { addresses: vec![old], at })));
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
    async fn what_is_forgotten_is_looked_up_again() {
        let resolver = Resolver::new("localhost", 80);
        let old: SocketAddr = ([192, 0, 2, 1], 80).into();
        let known = Known { addresses: vec![old], at: Clock.instant() };
        resolver.0.known.store(Some(Arc::new(known)));
        assert_eq!(resolver.addresses().await.expect("fresh"), [old]);
        resolver.forget();
        assert_ne!(resolver.addresses().await.expect("looked up"), [old]);
    }
}

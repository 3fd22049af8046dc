//! A counter of something that is counted elsewhere.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus::{IntCounter, Registry};

use super::register;

/// A counter of something that is counted elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Total {
    counter: IntCounter,
    known: Arc<AtomicU64>,
}

impl Total {
    pub(super) fn new(registry: &Registry, name: &str, help: &str) -> Self {
        Self { counter: register(registry, IntCounter::new(name, help)), known: Arc::default() }
    }

    /// Two scrapes at once may tell different totals in any order; each step is added once.
    pub(super) fn set(&self, total: u64) {
        let known = self.known.fetch_max(total, Ordering::Relaxed);
        self.counter.inc_by(total.saturating_sub(known));
    }
}

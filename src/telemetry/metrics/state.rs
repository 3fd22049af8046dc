//! What is told of who owns what.

use prometheus::{IntGauge, IntGaugeVec, Registry};

use super::{gauge, gauges, total::Total};

/// A reading of the state. The total only ever grows; a smaller one is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateReading {
    /// Kind → how many are in memory. Kinds come from a table of ours.
    pub bindings: [(&'static str, usize); 4],
    /// Whether the store works; true where there is none.
    pub available: bool,
    /// Requests to the store that failed since the start.
    pub failures: u64,
}

/// The state's series.
#[derive(Clone, Debug)]
pub(super) struct State {
    bindings: IntGaugeVec,
    available: IntGauge,
    failures: Total,
}

impl State {
    pub(super) fn new(registry: &Registry) -> Self {
        let available = gauge(
            registry,
            "lictor_state_available",
            "1 while the state store works, or where there is none, else 0.",
        );
        available.set(1);
        Self {
            bindings: gauges(
                registry,
                "lictor_state_bindings",
                "Sessions, tasks, continuations and contexts whose owners are known in memory.",
                &["kind"],
            ),
            available,
            failures: Total::new(
                registry,
                "lictor_state_failures_total",
                "Requests to the state store that failed.",
            ),
        }
    }

    pub(super) fn set(&self, reading: &StateReading) {
        for (kind, count) in reading.bindings {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.bindings.with_label_values(&[kind]).set(count);
        }
        self.available.set(i64::from(reading.available));
        self.failures.set(reading.failures);
    }
}

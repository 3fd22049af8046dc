//! What is told of what is revoked.

use prometheus::{IntGauge, IntGaugeVec, Registry};

use super::{gauge, gauges};

/// A reading of what is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevocationReading {
    /// Kind → how many are in force. Kinds come from a table of ours.
    pub in_force: [(&'static str, usize); 6],
    /// Whether that is what the store has, as of the last look.
    pub current: bool,
}

/// The series.
#[derive(Clone, Debug)]
pub(super) struct Revocations {
    in_force: IntGaugeVec,
    current: IntGauge,
}

impl Revocations {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            in_force: gauges(
                registry,
                "lictor_revocations",
                "Revocations that are in force.",
                &["kind"],
            ),
            current: gauge(
                registry,
                "lictor_revocations_current",
                "1 while what is revoked can be read where it is kept, else 0.",
            ),
        }
    }

    pub(super) fn set(&self, reading: &RevocationReading) {
        for (kind, count) in reading.in_force {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.in_force.with_label_values(&[kind]).set(count);
        }
        self.current.set(i64::from(reading.current));
    }
}

//! What the ledger tells of itself.

use std::time::Duration;

use prometheus::{Gauge, IntGauge, Registry};

use super::{float_gauge, gauge, total::Total};

/// A reading of the ledger. Totals only ever grow; a smaller one is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerReading {
    /// Durable entries of the chain.
    pub durable: u64,
    /// Entries that wait to be made durable.
    pub backlog: usize,
    /// Commits since the start.
    pub commits: u64,
    /// How long the last one took.
    pub last_commit: Duration,
    /// Entries lost since the start.
    pub lost: u64,
    /// Whether the last attempt to write succeeded.
    pub writable: bool,
}

/// The ledger's series.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    entries: Total,
    commits: Total,
    lost: Total,
    last_commit: Gauge,
    queued: IntGauge,
    writable: IntGauge,
}

impl Ledger {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            entries: Total::new(
                registry,
                "lictor_ledger_entries_total",
                "Entries of the chain that are durable, those of earlier processes included.",
            ),
            commits: Total::new(
                registry,
                "lictor_ledger_commits_total",
                "Groups of entries that were made durable.",
            ),
            lost: Total::new(
                registry,
                "lictor_ledger_lost_entries_total",
                "Entries that could not be written; the ledger has a gap entry with their number.",
            ),
            last_commit: float_gauge(
                registry,
                "lictor_ledger_last_commit_seconds",
                "How long the last commit took, write and sync.",
            ),
            queued: gauge(
                registry,
                "lictor_ledger_queued_entries",
                "Entries that wait to be made durable.",
            ),
            writable: gauge(
                registry,
                "lictor_ledger_writable",
                "1 while the ledger can be written, else 0.",
            ),
        }
    }

    pub(super) fn set(&self, reading: &LedgerReading) {
        self.entries.set(reading.durable);
        self.commits.set(reading.commits);
        self.lost.set(reading.lost);
        self.last_commit.set(reading.last_commit.as_secs_f64());
        self.queued.set(i64::try_from(reading.backlog).unwrap_or(i64::MAX));
        self.writable.set(i64::from(reading.writable));
    }
}

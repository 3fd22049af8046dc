//! What the ledger is configured with.

use std::{path::PathBuf, time::Duration};

/// What happens to calls while the ledger can't be written: the disk refuses, or has hung for five seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Every call is refused.
    DenyAll,
    /// Calls that may change state are refused; reads go on and the loss is recorded as a gap.
    DenyWrites,
}

/// The ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directory of this replica's own chain; one process at a time.
    pub directory: PathBuf,
    /// Longest time that an entry nobody waits for stays in memory before it is durable.
    pub commit_interval: Duration,
    /// Write a durable intent before reads too, so that a crash loses none of them.
    pub read_intent: bool,
    /// What to do when the disk refuses or hangs.
    pub on_failure: OnFailure,
}

//! Logs refused handshakes at a bounded rate, so that whoever can connect can't fill the disk.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{identity::PeerError, telemetry::Causes};

/// What is done about a refused certificate, besides the log line. Called for every one; `true` for the one
/// in a second that was also logged, for what has to be bounded as the log is.
pub type OnRefusal = Box<dyn Fn(bool) + Send + Sync>;

/// At most one line a second; the next line says how many were left out.
pub(super) struct Refusals {
    on_refusal: OnRefusal,
    last_second: AtomicU64,
    left_out: AtomicU64,
}

impl Refusals {
    pub(super) fn new(on_refusal: OnRefusal) -> Self {
        Self { on_refusal, last_second: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Logs one refusal at `now` (time since the Unix epoch), or counts it.
    pub(super) fn log(&self, error: &PeerError, now: Duration) {
        let turn = self.turn(now.as_secs());
        if let Some(left_out) = turn {
            let reason = Causes(error).to_string();
            tracing::warn!(reason, left_out, "refused a caller's certificate");
        }
        (self.on_refusal)(turn.is_some());
    }

    /// Whether a line may be written in this second, and how many were left out before it. Relaxed: a
    /// race costs one line more or less.
    fn turn(&self, second: u64) -> Option<u64> {
        if self.last_second.swap(second, Ordering::Relaxed) == second {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

impl std::fmt::Debug for Refusals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refusals").field("left_out", &self.left_out).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_one_line_a_second_and_counts_the_rest() {
        let refusals = Refusals::new(Box::new(|_| ()));
        let turns: Vec<_> = [10, 10, 10, 11, 12].map(|second| refusals.turn(second)).into();
        assert_eq!(turns, [Some(0), None, None, Some(2), Some(0)]);
    }
}

//! How soon a process that crashed may be started again.
//!
//! Counted for each caller: whoever makes its processes crash waits, and nobody else does.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// The wait after the second crash in a row; it doubles with each further one. After the first one there is
/// none.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// A crash so long after the one before isn't in a row with it.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Recent crashes by the caller whose processes they were.
#[derive(Debug, Default)]
pub(super) struct Backoff(HashMap<Arc<str>, Crashes>);

#[derive(Debug)]
struct Crashes {
    in_a_row: u32,
    last: Instant,
}

impl Backoff {
    pub(super) fn crashed(&mut self, owner: &Arc<str>, now: Instant) {
        self.0.retain(|_, crashes| now.saturating_duration_since(crashes.last) < FORGOTTEN);
        let fresh = Crashes { in_a_row: 0, last: now };
        let crashes = self.0.entry(Arc::clone(owner)).or_insert(fresh);
        crashes.in_a_row = crashes.in_a_row.saturating_add(1);
        crashes.last = now;
    }

    /// How long it still takes until another may be started; zero if one may be now.
    pub(super) fn wait(&self, owner: &str, now: Instant) -> Duration {
        let Some(crashes) = self.0.get(owner) else { return Duration::ZERO };
        let Some(doublings) = crashes.in_a_row.checked_sub(2) else { return Duration::ZERO };
        let wait = FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST);
        wait.saturating_sub(now.saturating_duration_since(crashes.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Clock;

    #[test]
    fn the_wait_doubles_up_to_a_bound_and_is_the_callers_own() {
        let mut backoff = Backoff::default();
        let start = Clock.instant();
        let owner = Arc::from("a");
        let mut waits = Vec::new();
        for _ in 0..9 {
            backoff.crashed(&owner, start);
            waits.push(backoff.wait("a", start).as_millis());
        }
        assert_eq!(waits, [0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(backoff.wait("b", start), Duration::ZERO);
        assert_eq!(backoff.wait("a", start + Duration::from_secs(29)).as_secs(), 1);
        assert_eq!(backoff.wait("a", start + LONGEST), Duration::ZERO);
        backoff.crashed(&owner, start + FORGOTTEN);
        assert_eq!(backoff.wait("a", start + FORGOTTEN), Duration::ZERO);
    }
}

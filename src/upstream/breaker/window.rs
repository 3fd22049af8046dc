//! [`Window`]: how many calls of the last half minute there were, and how many failed.

use std::time::{Duration, Instant};

/// How long a call is counted, give or take a slice.
const LENGTH: Duration = Duration::from_secs(30);

/// It is forgotten by slices.
const SLICES: usize = 6;
const SLICE: Duration = Duration::from_secs(5);

const _: () =
    assert!(SLICE.as_secs() * SLICES as u64 == LENGTH.as_secs(), "slices fill the window");

/// Calls without which a share says nothing.
const ENOUGH: u32 = 20;

#[derive(Debug)]
pub(super) struct Window {
    /// When the newest slice began.
    since: Instant,
    /// Newest first.
    slices: [Count; SLICES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    calls: u32,
    failed: u32,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, slices: Default::default() }
    }

    pub(super) fn count(&mut self, failed: bool, now: Instant) {
        self.advance(now);
        let [newest, ..] = &mut self.slices;
        newest.calls = newest.calls.saturating_add(1);
        newest.failed = newest.failed.saturating_add(u32::from(failed));
    }

    /// Whether this share or more of enough calls have failed.
    pub(super) fn is_failing(&self, percent: u32) -> bool {
        let sum = |of: fn(&Count) -> u32| self.slices.iter().map(of).map(u64::from).sum::<u64>();
        let (calls, failed) = (sum(|it| it.calls), sum(|it| it.failed));
        calls >= u64::from(ENOUGH) && failed * 100 >= calls * u64::from(percent)
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_millis() / SLICE.as_millis();
        if passed == 0 {
            return;
        }
        match u32::try_from(passed) {
            Ok(passed) => self.since += SLICE * passed,
            Err(_) => self.since = now,
        }
        let gone = usize::try_from(passed).unwrap_or(SLICES).min(SLICES);
        self.slices.rotate_right(gone);
        self.slices.iter_mut().take(gone).for_each(|slice| *slice = Count::default());
    }
}

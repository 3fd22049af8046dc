//! The one place that reads the time, so that decisions can be replayed on a clock of a test's own.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reads the machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Wall-clock time since the Unix epoch; zero when the clock stands before it.
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the wall clock")]
    pub fn unix(self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// Monotonic time, for measuring how long something took.
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the monotonic clock")]
    pub fn instant(self) -> Instant {
        Instant::now()
    }
}

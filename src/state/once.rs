//! What may be used once, and was.
//!
//! Two generations of digests take turns, so that nothing has to be searched for what may be forgotten: one is
//! thrown away when the last use in it can't be repeated any more. With a file, each use is written down before it
//! is granted.
//!
//! INVARIANT: what can't be remembered isn't used. Whoever fills the memory stops what may be used once until the
//! older generation has ended, and nothing else.

use std::{
    collections::HashSet,
    io, mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Unavailable, embedded::Log};

/// Most digests in a generation: about 15,000 uses a second, of what can be used for a minute.
const MOST: usize = 1 << 20;

/// What one may hear who wants to use something that may be used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nobody has used it.
    First,
    /// Somebody has.
    Again,
    /// It could be used before this time (since the Unix epoch), and what was used then isn't known.
    Unknown {
        /// The time.
        since: Duration,
    },
}

/// What was used, and from when on that is known.
#[derive(Debug)]
pub(super) struct Once {
    since: Duration,
    used: Arc<Mutex<Used>>,
    failures: Arc<AtomicU64>,
    /// Whether there is a log, for those who must not wait for the lock: it is held while the log is written.
    is_written: bool,
}

#[derive(Debug)]
struct Used {
    now: Generation,
    before: Generation,
    most: usize,
    log: Option<Log>,
}

/// Uses, until the last of them can't be repeated.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) digests: HashSet<u128>,
    /// Since the Unix epoch.
    pub(super) until: Duration,
}

impl Once {
    /// In memory only. What was used before `since` is known elsewhere, or not at all.
    pub(super) fn unwritten(since: Duration) -> Self {
        Self::of(since, [Generation::default(), Generation::default()], None)
    }

    /// With what an earlier process has written, the older generation first, and where to go on.
    pub(super) fn written(since: Duration, left: [Generation; 2], log: Log) -> Self {
        Self::of(since, left, Some(log))
    }

    fn of(since: Duration, [before, now]: [Generation; 2], log: Option<Log>) -> Self {
        let is_written = log.is_some();
        let used = Arc::new(Mutex::new(Used { now, before, most: MOST, log }));
        Self { since, used, failures: Arc::default(), is_written }
    }

    /// Uses what can be used `from` and `until` such times.
    pub(super) async fn claim(
        &self,
        digest: &[u8; 32],
        from: Duration,
        until: Duration,
        now: Duration,
    ) -> Result<Use, Unavailable> {
        if from <= self.since {
            return Ok(Use::Unknown { since: self.since });
        }
        let digest = half(digest);
        let claimed = if self.is_written {
            let (used, failures) = (Arc::clone(&self.used), Arc::clone(&self.failures));
            // It is a system call into the page cache, and a disk that is behind may still make it wait.
            let work = move || claim(&used, &failures, digest, until, now);
            tokio::task::spawn_blocking(work).await.unwrap_or(Err(Unavailable))
        } else {
            claim(&self.used, &self.failures, digest, until, now)
        };
        Ok(if claimed? { Use::First } else { Use::Again })
    }

    /// How often something could not be written down since the start.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

fn claim(
    used: &Mutex<Used>,
    failures: &AtomicU64,
    digest: u128,
    until: Duration,
    now: Duration,
) -> Result<bool, Unavailable> {
    // A panic elsewhere can't leave the sets half changed.
    let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
    used.claim(digest, until, now).map_err(|error| {
        failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, "what may be used once can't be remembered, and isn't used");
        Unavailable
    })
}

impl Used {
    /// Whether this is the first use.
    fn claim(&mut self, digest: u128, until: Duration, now: Duration) -> io::Result<bool> {
        while self.before.until <= now && !(self.before.is_empty() && self.now.is_empty()) {
            if let Some(log) = &mut self.log {
                log.turn()?;
            }
            self.before = mem::take(&mut self.now);
        }
        if self.before.digests.contains(&digest) || self.now.digests.contains(&digest) {
            return Ok(false);
        }
        if self.now.digests.len() >= self.most {
            return Err(io::Error::other("too much was used"));
        }
        if let Some(log) = &mut self.log {
            log.append(digest, until)?;
        }
        self.now.insert(digest, until);
        Ok(true)
    }
}

impl Generation {
    fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    pub(super) fn insert(&mut self, digest: u128, until: Duration) {
        self.digests.insert(digest);
        self.until = self.until.max(until);
    }
}

/// Whoever finds two things of their own with the same half has one of them refused.
fn half(digest: &[u8; 32]) -> u128 {
    digest.iter().take(16).fold(0, |half, &byte| half << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn used(most: usize) -> Used {
        let (now, before) = Default::default();
        Used { now, before, most, log: None }
    }

    #[test]
    fn a_use_is_known_for_as_long_as_it_could_be_repeated() {
        let mut used = used(100);
        for (digest, now, first) in [
            (1, 1005, true),
            (1, 1005, false),
            (2, 1005, true),
            // A clock that was set back makes it remember longer, never shorter.
            (1, 990, false),
            (1, 1014, false),
            (3, 1014, true),
            // The generation before has ended, that of 2 and 3 takes its place.
            (2, 1015, false),
            (3, 1023, false),
            (4, 1023, true),
            (3, 1024, true),
            (4, 1032, false),
        ] {
            let claimed = used.claim(digest, at(now + 10), at(now)).expect("room");
            assert_eq!(claimed, first, "{digest} at {now}");
        }
    }

    #[test]
    fn what_has_ended_takes_no_room() {
        let mut used = used(1000);
        for second in 1..2000 {
            for number in 0..10 {
                let claimed =
                    used.claim(second << 8 | number, at(second as u64 + 10), at(second as u64));
                assert!(claimed.expect("room"));
            }
            assert!(used.now.digests.len() + used.before.digests.len() <= 220);
        }
    }

    #[test]
    fn what_cant_be_remembered_isnt_used() {
        let mut used = used(2);
        for digest in [1, 2, 3] {
            assert!(used.claim(digest, at(1010), at(1000)).expect("room"));
        }
        assert!(used.claim(4, at(1010), at(1000)).is_err());
        assert!(!used.claim(2, at(1010), at(1000)).expect("known"));
        assert!(used.claim(4, at(1020), at(1010)).expect("room"));
    }
}

//! [`Memory`]: which hops were shown already.
//!
//! Two generations of digests take turns, so that nothing has to be searched for what may be forgotten: each
//! is remembered for one period at least and two at most.
//!
//! INVARIANT: what can't be remembered isn't taken. Whoever fills the memory stops the calls that come with a
//! chain until a period has passed, and nothing else.

use std::{
    collections::HashSet,
    mem,
    sync::{Mutex, PoisonError},
};

use sha2::{Digest, Sha256};

use crate::identity::SpiffeId;

/// Most digests in a generation: about 15,000 calls a second.
const MOST: usize = 1 << 20;

/// The hops that were shown within a period, which is given in seconds.
#[derive(Debug)]
pub(super) struct Memory {
    period: u64,
    most: usize,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    /// When `now` began, Unix seconds.
    since: u64,
    now: HashSet<u128>,
    before: HashSet<u128>,
}

/// Why a hop isn't taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Shown,
    Full,
}

impl Memory {
    pub(super) fn new(period: u64) -> Self {
        Self { period, most: MOST, shown: Mutex::default() }
    }

    /// Takes note of a hop at `now` (Unix seconds), unless it was shown within the period.
    pub(super) fn claim(&self, issuer: &SpiffeId, id: &str, now: u64) -> Result<(), Refused> {
        let digest = digest(issuer, id);
        // A panic elsewhere can't leave the sets half changed.
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.turn(self.period, now);
        if shown.before.contains(&digest) || shown.now.contains(&digest) {
            return Err(Refused::Shown);
        }
        if shown.now.len() >= self.most {
            return Err(Refused::Full);
        }
        shown.now.insert(digest);
        Ok(())
    }
}

impl Shown {
    /// A clock that was set back makes it remember longer, never shorter.
    fn turn(&mut self, period: u64, now: u64) {
        let age = now.saturating_sub(self.since);
        if age < period {
            return;
        }
        self.before = mem::take(&mut self.now);
        if age >= 2 * period {
            self.before = HashSet::new();
        }
        self.since = now;
    }
}

/// Half of a SHA-256: whoever finds two of their own ids with the same one has one of them refused.
fn digest(issuer: &SpiffeId, id: &str) -> u128 {
    let mut hash = Sha256::new();
    // No SPIFFE ID has a space in it.
    hash.update(issuer.as_str());
    hash.update(" ");
    hash.update(id);
    let bytes: [u8; 32] = hash.finalize().into();
    bytes.iter().take(16).fold(0, |digest, &byte| digest << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(name: &str) -> SpiffeId {
        SpiffeId::parse(&format!("spiffe://td/{name}")).expect("ID")
    }

    #[test]
    fn a_hop_is_taken_once_in_a_period() {
        let memory = Memory::new(10);
        let (a, b) = (issuer("a"), issuer("b"));
        for (who, id, now, expected) in [
            (&a, "1", 1005, Ok(())),
            (&a, "1", 1005, Err(Refused::Shown)),
            (&b, "1", 1005, Ok(())),
            (&a, "2", 1005, Ok(())),
            (&a, "1", 990, Err(Refused::Shown)),
            (&a, "1", 1014, Err(Refused::Shown)),
            (&a, "3", 1014, Ok(())),
            // The next generation has begun, and the last is still there.
            (&a, "1", 1015, Err(Refused::Shown)),
            (&a, "3", 1024, Err(Refused::Shown)),
            (&a, "3", 1025, Ok(())),
            (&a, "3", 1044, Err(Refused::Shown)),
            (&a, "3", 1053, Err(Refused::Shown)),
            (&a, "3", 1054, Ok(())),
        ] {
            assert_eq!(memory.claim(who, id, now), expected, "{who} {id} at {now}");
        }
    }

    #[test]
    fn what_cant_be_remembered_isnt_taken() {
        let memory = Memory { most: 2, ..Memory::new(10) };
        let a = issuer("a");
        assert_eq!(memory.claim(&a, "1", 1000), Ok(()));
        assert_eq!(memory.claim(&a, "2", 1000), Ok(()));
        assert_eq!(memory.claim(&a, "3", 1000), Err(Refused::Full));
        assert_eq!(memory.claim(&a, "2", 1000), Err(Refused::Shown));
        assert_eq!(memory.claim(&a, "3", 1010), Ok(()));
    }
}

//! [`Cell`]: one key of a limit, with the tokens that were leased for it.

use std::time::Duration;

use super::{
    lease::{Lease, Outcome},
    meter::{Empty, Law, Meter, nanos},
    settings::{OnStoreFailure, Sharing},
};

/// How long a store that didn't answer isn't asked again for one key, in nanoseconds.
const DOWN: u64 = 1_000_000_000;

/// A limit's laws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laws {
    /// Of the whole limit.
    pub(super) whole: Law,
    /// How replicas share it, and the law of a replica's part.
    pub(super) shared: Option<(Sharing, Law)>,
}

/// What is known of one key. The time is in nanoseconds since the limiter began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    /// What was taken here: of the whole limit, or of this replica's part of it while the store is down.
    meter: Meter,
    /// Tokens leased from the store, and when they are lost.
    leased: u32,
    until: u64,
    store: Store,
}

/// What the store said last, if it wasn't a lease.
#[derive(Clone, Copy, Debug, Default)]
enum Store {
    #[default]
    Untold,
    /// Nothing is left, until then; for ever, if that is `None`.
    Empty(Option<u64>),
    /// It did not answer; it isn't asked again until then.
    Down(u64),
}

/// Why tokens can't be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// There are none.
    Empty(Empty),
    /// The store has to be asked.
    Short,
}

impl Cell {
    /// The cell once the tokens are taken.
    pub(super) fn take(self, laws: &Laws, now: u64, cost: u32) -> Result<Self, Lack> {
        let Some((sharing, part)) = &laws.shared else { return self.meter(laws.whole, now, cost) };
        if self.until > now
            && let Some(leased) = self.leased.checked_sub(cost)
        {
            return Ok(Self { leased, ..self });
        }
        match self.store {
            Store::Empty(until) if until.is_none_or(|until| until > now) => {
                let retry_after = until.map(|until| until.saturating_sub(now));
                Err(Lack::Empty(Empty { remaining: 0, retry_after }))
            }
            Store::Down(until) if until > now => match sharing.on_store_failure {
                OnStoreFailure::Local => self.meter(*part, now, cost),
                OnStoreFailure::UnsafeAllow => Ok(self),
                OnStoreFailure::Deny => {
                    let wait = Some(until.saturating_sub(now));
                    Err(Lack::Empty(Empty { remaining: 0, retry_after: wait }))
                }
            },
            Store::Untold | Store::Empty(_) | Store::Down(_) => Err(Lack::Short),
        }
    }

    fn meter(self, law: Law, now: u64, cost: u32) -> Result<Self, Lack> {
        let meter = self.meter.take(law, now, cost).map_err(Lack::Empty)?;
        Ok(Self { meter, ..self })
    }

    /// Takes in what the store said.
    pub(super) fn feed(&mut self, outcome: Outcome, now: u64) {
        let after = |duration: Duration| now.saturating_add(nanos(duration));
        self.store = match outcome {
            Outcome::Granted(Lease { tokens, valid_for }) => {
                let kept = if self.until > now { self.leased } else { 0 };
                self.leased = kept.saturating_add(tokens);
                self.until = self.until.max(after(valid_for));
                Store::Untold
            }
            Outcome::Refused { retry_after } => Store::Empty(retry_after.map(after)),
            Outcome::Unavailable => Store::Down(now.saturating_add(DOWN)),
        };
    }

    /// Whether it says no more than a new one does.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let told = match self.store {
            Store::Untold => false,
            // The store knows it still, and is asked again.
            Store::Empty(None) => false,
            Store::Empty(Some(until)) | Store::Down(until) => until > now,
        };
        let leased = self.leased > 0 && self.until > now;
        !told && !leased && self.meter.is_idle(now)
    }
}

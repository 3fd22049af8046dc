//! [`Cell`]: one key of a limit, with the tokens that were leased for it.

use std::time::Duration;

use super::{
    demand::Demand,
    lease::{Lease, Outcome},
    meter::{Empty, Law, Meter, nanos},
    settings::{OnStoreFailure, Sharing},
};

/// How long a store that didn't answer isn't asked again for one key, in nanoseconds.
const DOWN: u64 = 1_000_000_000;

/// How long a store that was asked for a block may take before it is asked for another, in nanoseconds.
const ASKED: u64 = 1_000_000_000;

/// A block, as a part of what was used here of late: so much is lost when calls come to an end.
const BLOCK: u32 = 20;

/// A limit's laws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laws {
    /// Of the whole limit.
    pub(super) whole: Law,
    pub(super) shared: Option<Shared>,
}

/// How replicas share a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) sharing: Sharing,
    /// The law of a replica's part.
    pub(super) part: Law,
    /// Largest block.
    pub(super) block: u32,
    /// The time over which use is looked at, and for which a block is good, in nanoseconds.
    pub(super) span: u64,
}

/// What is known of one key. The time is in nanoseconds since the limiter began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    /// What was taken here: of the whole limit, or of this replica's part of it while the store is down.
    meter: Meter,
    /// Tokens leased from the store, and when they are lost.
    leased: u32,
    until: u64,
    /// How many leased tokens were used.
    demand: Demand,
    /// Until when it is waited for a block that was asked for.
    asked: u64,
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

/// A cell once tokens are taken, and what to do about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) cell: Cell,
    /// What stood in for the store.
    pub(super) instead: Option<OnStoreFailure>,
    /// How many tokens to ask the store for, ahead of the calls that will need them.
    pub(super) ahead: Option<u32>,
}

/// Why tokens can't be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// There are none.
    Empty(Empty),
    /// The store has to be asked, for so many or as many as are needed: for a block, or none if one is on its way.
    Short(u32),
    /// The store doesn't answer, and isn't asked for so many nanoseconds.
    Unknown(u64),
}

impl Cell {
    /// The cell once the tokens are taken.
    pub(super) fn take(self, laws: &Laws, now: u64, cost: u32) -> Result<Took, Lack> {
        let Some(shared) = &laws.shared else {
            return self.meter(laws.whole, now, cost).map(Took::counted);
        };
        if let Some(left) = self.left(now).checked_sub(cost) {
            let demand = self.demand.and(cost, now, shared.span);
            return Ok(Self { leased: left, demand, ..self }.look_ahead(shared, now));
        }
        match self.store {
            Store::Empty(until) if until.is_none_or(|until| until > now) => {
                let retry_after = until.map(|until| until.saturating_sub(now));
                Err(Lack::Empty(Empty { remaining: 0, retry_after }))
            }
            Store::Down(until) if until > now => {
                let instead = shared.sharing.on_store_failure;
                let cell = match instead {
                    OnStoreFailure::Local => self.meter(shared.part, now, cost)?,
                    OnStoreFailure::UnsafeAllow => self,
                    OnStoreFailure::Deny => return Err(Lack::Unknown(until.saturating_sub(now))),
                };
                Ok(Took { cell, instead: Some(instead), ahead: None })
            }
            Store::Untold | Store::Empty(_) | Store::Down(_) => {
                Err(Lack::Short(if self.asked > now { 0 } else { self.block(shared, now) }))
            }
        }
    }

    fn meter(self, law: Law, now: u64, cost: u32) -> Result<Self, Lack> {
        let meter = self.meter.take(law, now, cost).map_err(Lack::Empty)?;
        Ok(Self { meter, ..self })
    }

    /// Asks for the next block when half of one is left, unless blocks are too small for that.
    fn look_ahead(self, shared: &Shared, now: u64) -> Took {
        let block = self.block(shared, now);
        let low = self.leased <= block / 2 && block > 1;
        if !low || self.asked > now || !matches!(self.store, Store::Untold) {
            return Took::counted(self);
        }
        Took { cell: self.asking(now), instead: None, ahead: Some(block) }
    }

    /// The cell while a block is on its way. Of many calls that find nothing left, one asks for a block: else they
    /// took far more than they use from the other replicas.
    pub(super) fn asking(self, now: u64) -> Self {
        Self { asked: now.saturating_add(ASKED), ..self }
    }

    /// The cell once it is told of the block that was asked for.
    pub(super) fn told(self) -> Self {
        Self { asked: 0, ..self }
    }

    fn block(self, shared: &Shared, now: u64) -> u32 {
        (self.demand.recent(now, shared.span) / BLOCK).clamp(1, shared.block.max(1))
    }

    /// Tokens that were leased and are good.
    fn left(self, now: u64) -> u32 {
        if self.until > now { self.leased } else { 0 }
    }

    /// Takes in what the store said.
    pub(super) fn feed(&mut self, outcome: Outcome, now: u64) {
        let after = |duration: Duration| now.saturating_add(nanos(duration));
        self.store = match outcome {
            Outcome::Granted(Lease { tokens, valid_for }) => {
                self.leased = self.left(now).saturating_add(tokens);
                self.until = after(valid_for);
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
        !told && self.left(now) == 0 && self.meter.is_idle(now)
    }
}

impl Took {
    fn counted(cell: Cell) -> Self {
        Self { cell, instead: None, ahead: None }
    }
}

#[cfg(test)]
mod tests;

//! Blocks of tokens from a store that replicas share.
//!
//! A shared limit is counted in the store and spent here: a replica takes a block of tokens out of it
//! ([`Lease`]) and serves calls from the block without asking again. The limiter waits for nothing, so it
//! only says what it lacks ([`Shortage`]); whoever can wait asks the store and tells what came of it
//! ([`Outcome`]). When half of a block is left it says so, too, so that the next one is there before a call
//! has to wait.
//!
//! A block is a twentieth of the tokens that were used here within a span of time, the period or ten seconds. So
//! little is lost when calls come to an end, and a block of one token, which every call asks for, is for callers
//! that seldom come. All blocks of all replicas together are a twentieth of all tokens that there can be: by so
//! much, at most, can replicas that have none be short, and by so much, at most, can calls within one period
//! be more than the limit, when tokens of the period before are used in it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    counter::{Counter, Short},
    key::Key,
    settings::Quota,
};

/// A shared limit that has too few tokens left here for a call.
#[derive(Clone, Debug)]
pub struct Shortage {
    pub(super) counter: Arc<Counter>,
    pub(super) short: Short,
}

impl Shortage {
    /// The limit's name: 1 to 63 characters of `a-z`, `0-9` and `-`.
    pub fn limit(&self) -> &Arc<str> {
        &self.counter.name
    }

    /// Whose share of the limit it is; the same on every replica.
    pub fn key(&self) -> Key {
        self.short.key
    }

    /// What the store has to enforce for each key, over all replicas.
    pub fn quota(&self) -> &Quota {
        &self.counter.count.quota
    }

    /// The fewest tokens that serve the call; a smaller block serves nobody.
    pub fn need(&self) -> u32 {
        self.short.need
    }

    /// How many tokens to ask for, at least [`Self::need`]: enough for a while, and few enough for the other
    /// replicas to get theirs.
    pub fn want(&self) -> u32 {
        self.short.want
    }

    /// For how long a block is good, at most.
    pub fn span(&self) -> Duration {
        self.counter.span()
    }

    /// Tells the limit what the store said. Then the call, if there is one that waits, is to be tried again.
    pub fn feed(&self, outcome: Outcome, now: Instant) {
        self.counter.feed(self.short, outcome, now);
    }
}

/// A block of tokens that the store has counted as spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How many.
    pub tokens: u32,
    /// For how long they may be used here; what is left then is lost.
    pub valid_for: Duration,
}

/// What the store said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A block was given.
    Granted(Lease),
    /// There are not that many left.
    Refused {
        /// Until there are; `None` if there never will be for this key. The store isn't asked again for this
        /// key before that.
        retry_after: Option<Duration>,
    },
    /// It did not answer in time, or it is known not to.
    Unavailable,
}

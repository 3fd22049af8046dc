//! What the limits are.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use super::{hours::Hours, subject::When};

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Unique; what callers, ledger and metrics know it by.
    pub name: Arc<str>,
    /// The calls that it is about.
    pub when: When,
    /// What it holds them to.
    pub measure: Measure,
}

impl Limit {
    /// Whether calls are not limited while a store can't be asked.
    pub fn allows_on_store_failure(&self) -> bool {
        match &self.measure {
            Measure::Hours(_) => false,
            Measure::Count(count) => {
                count.sharing.is_some_and(|it| it.on_store_failure == OnStoreFailure::UnsafeAllow)
            }
        }
    }
}

/// What a limit holds calls to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Only at these hours.
    Hours(Hours),
    /// Only so many of them.
    Count(Count),
}

/// So many calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub quota: Quota,
    /// Calls that differ in one of these are counted apart; none: all are counted together.
    pub per: BTreeSet<Dimension>,
    /// Tool → tokens that a call of it costs; any other target costs one.
    pub cost: BTreeMap<Box<str>, u32>,
    /// Whether replicas share it.
    pub sharing: Option<Sharing>,
}

/// How many tokens there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// They come back evenly.
    Rate {
        /// How many come back in a period.
        tokens: NonZeroU32,
        /// The period.
        period: Duration,
        /// How many there are when none was taken for long.
        burst: NonZeroU32,
    },
    /// They come back all at once, a period after the first of them was taken.
    Budget {
        /// How many.
        tokens: NonZeroU32,
        /// The period; `None`: never, for each run has its own.
        period: Option<Duration>,
    },
}

impl Quota {
    /// Most tokens that can be taken at once.
    pub fn capacity(&self) -> u32 {
        match self {
            Self::Rate { burst, .. } => burst.get(),
            Self::Budget { tokens, .. } => tokens.get(),
        }
    }

    /// A replica's part of it while nobody knows what the others take; at least one token.
    #[must_use]
    pub fn share(&self, replicas: NonZeroU32) -> Self {
        let part = |tokens: NonZeroU32| {
            NonZeroU32::new(tokens.get() / replicas).unwrap_or(NonZeroU32::MIN)
        };
        match *self {
            Self::Rate { tokens, period, burst } => Self::Rate {
                tokens,
                period: period.saturating_mul(replicas.get()),
                burst: part(burst),
            },
            Self::Budget { tokens, period } => Self::Budget { tokens: part(tokens), period },
        }
    }
}

/// What can tell calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    /// The caller, by SPIFFE ID.
    Principal,
    /// The caller's tenant within its trust domain. Those without one count together.
    Tenant,
    /// The tool. What is no tool counts together.
    Tool,
    /// The upstream.
    Upstream,
    /// How far a call can reach.
    Class,
    /// The method, by the name that policies know it by.
    Method,
    /// The listener.
    Listener,
    /// The run of a chain of delegation. A call that belongs to no run begins one, and so has all tokens.
    Run,
}

/// How replicas share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// What holds while the store can't be asked.
    pub on_store_failure: OnStoreFailure,
    /// About how many replicas there are, for their parts of it.
    pub replicas: NonZeroU32,
}

/// What holds while the store can't be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Each replica counts its own calls, against its part of the limit.
    Local,
    /// Such calls are refused.
    Deny,
    /// Such calls are not limited.
    UnsafeAllow,
}

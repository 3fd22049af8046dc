//! Tokens of limits that replicas share: what is counted, and what is said to who asks for some.

use std::{num::NonZeroU32, time::Duration};

/// How many tokens there are for one key, over all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// They come back evenly (GCRA).
    Rate {
        /// How many come back in a period.
        tokens: NonZeroU32,
        /// The period, in whole microseconds.
        period: Duration,
        /// How many there are when none was taken for long.
        burst: NonZeroU32,
    },
    /// They come back all at once, a period after the first of them was taken.
    Window {
        /// How many.
        tokens: NonZeroU32,
        /// The period, in whole microseconds.
        period: Duration,
    },
    /// They don't come back, as long as one is taken within a day.
    Once {
        /// How many.
        tokens: NonZeroU32,
    },
}

/// What a store says to who asks for a block of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// They are counted as taken.
    Granted {
        /// How many: as many as are needed or more, as many as are wanted or fewer.
        tokens: u32,
        /// Until they all come back, where that is at once; what isn't used by then is lost.
        ends_in: Option<Duration>,
    },
    /// There are fewer than are needed; none was taken.
    Refused {
        /// Until there are as many, if nobody else takes them; `None` if there never will be.
        retry_after: Option<Duration>,
    },
}

impl Allowance {
    /// Most tokens that can be taken at once.
    pub(super) fn most(&self) -> u32 {
        match self {
            Self::Rate { burst, .. } => burst.get(),
            Self::Window { tokens, .. } | Self::Once { tokens } => tokens.get(),
        }
    }
}

//! The generic cell rate algorithm, as a leaky bucket that is described by one instant.
//!
//! The theoretical arrival time (TAT) is when all tokens taken so far will have come back. A call of cost `n`
//! puts it `n` emission intervals further off, and fits if it is then no further off than the burst. One instant
//! a key is all there is to store, and replicas can share it (ITU-T I.371 annex A, the "virtual scheduling"
//! form). Pure: the time is handed in, in nanoseconds since an origin that the caller fixes.
//!
//! INVARIANT: in any span of time no more tokens are taken than the burst and those that came back in it. The
//! interval is rounded up for that.

use std::{num::NonZeroU32, time::Duration};

/// The law for one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gcra {
    /// Nanoseconds in which one token comes back; never zero.
    interval: u64,
    /// Most tokens at once.
    burst: NonZeroU32,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It fits; this is the TAT once its tokens are taken.
    Fits(u64),
    /// It would fit after so many nanoseconds without any other call.
    Early(u64),
    /// It costs more than there ever is.
    Never,
}

impl Gcra {
    pub(super) fn new(tokens: NonZeroU32, period: Duration, burst: NonZeroU32) -> Self {
        let interval = period.as_nanos().div_ceil(u128::from(tokens.get()));
        Self { interval: u64::try_from(interval).unwrap_or(u64::MAX).max(1), burst }
    }

    pub(super) fn arrive(self, tat: u64, now: u64, cost: u32) -> Arrival {
        if cost > self.burst.get() {
            return Arrival::Never;
        }
        let next = self.base(tat, now).saturating_add(self.span(cost));
        match next.saturating_sub(now).checked_sub(self.depth()) {
            None | Some(0) => Arrival::Fits(next),
            Some(early) => Arrival::Early(early),
        }
    }

    /// Tokens that can be taken at once.
    pub(super) fn remaining(self, tat: u64, now: u64) -> u32 {
        let taken = self.base(tat, now).saturating_sub(now);
        let left = self.depth().saturating_sub(taken) / self.interval;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// A TAT that no call can have brought about, since a clock was set back, would refuse calls for as long as
    /// it is off; it counts as one at which there is nothing left.
    fn base(self, tat: u64, now: u64) -> u64 {
        tat.clamp(now, now.saturating_add(self.depth()))
    }

    fn depth(self) -> u64 {
        self.span(self.burst.get())
    }

    fn span(self, tokens: u32) -> u64 {
        self.interval.saturating_mul(u64::from(tokens))
    }
}

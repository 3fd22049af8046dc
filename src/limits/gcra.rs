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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn law(tokens: u32, period: Duration, burst: u32) -> Gcra {
        let number = |number| NonZeroU32::new(number).expect("more than zero");
        Gcra::new(number(tokens), period, number(burst))
    }

    /// Admits calls of `(pause before, cost)` at their times; time and cost of those that were let through.
    fn admit(gcra: Gcra, calls: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let (mut tat, mut now) = (0, 0);
        let mut admitted = Vec::new();
        for (pause, cost) in calls {
            now += pause;
            if let Arrival::Fits(next) = gcra.arrive(tat, now, *cost) {
                tat = next;
                admitted.push((now, *cost));
            }
        }
        admitted
    }

    #[test]
    fn tokens_come_back_evenly() {
        // Three at once, one back every ten.
        let gcra = law(1, Duration::from_nanos(10), 3);
        let mut tat = 0;
        for (now, cost, arrival, remaining) in [
            (100, 1, Arrival::Fits(110), 3),
            (100, 2, Arrival::Fits(130), 2),
            (100, 1, Arrival::Early(10), 0),
            (105, 2, Arrival::Early(15), 0),
            (110, 1, Arrival::Fits(140), 1),
            (139, 3, Arrival::Early(1), 2),
            (139, 4, Arrival::Never, 2),
            (140, 3, Arrival::Fits(170), 3),
            (1_000, 0, Arrival::Fits(1_000), 3),
        ] {
            assert_eq!(gcra.remaining(tat, now), remaining, "at {now}");
            assert_eq!(gcra.arrive(tat, now, cost), arrival, "{cost} at {now}");
            if let Arrival::Fits(next) = arrival {
                tat = next;
            }
        }
    }

    #[test]
    fn a_period_that_tokens_dont_divide_gives_none_too_many() {
        let gcra = law(7, Duration::from_secs(1), 1);
        // The eighth comes no sooner than a second after the first.
        assert_eq!(gcra.span(7), 1_000_000_001);
    }

    /// A clock that was set back leaves a TAT far ahead. Nobody waits longer than if all were just taken.
    #[test]
    fn a_time_that_no_call_brought_about_is_not_waited_for() {
        let gcra = law(1, Duration::from_nanos(10), 3);
        assert_eq!(gcra.arrive(u64::MAX, 100, 3), Arrival::Early(30));
        assert_eq!(gcra.arrive(u64::MAX, 100, 1), Arrival::Early(10));
        assert_eq!(gcra.remaining(u64::MAX, 100), 0);
    }

    proptest! {
        /// A bucket that tokens drip into, counted in nanoseconds, says the same of every call; and who waits as
        /// told is let through, but not a nanosecond earlier.
        #[test]
        fn it_is_a_bucket(
            (tokens, period, burst) in (1..50_u32, 1..5_000_u64, 1..20_u32),
            calls in prop::collection::vec((0..3_000_u64, 0..24_u32), 1..200),
        ) {
            let gcra = law(tokens, Duration::from_nanos(period), burst);
            let full = gcra.interval * u64::from(burst);
            let (mut tat, mut now, mut level) = (0, 0, full);
            for (pause, cost) in calls {
                now += pause;
                level = full.min(level + pause);
                let price = gcra.interval * u64::from(cost);
                prop_assert_eq!(u64::from(gcra.remaining(tat, now)), level / gcra.interval);
                match gcra.arrive(tat, now, cost) {
                    Arrival::Fits(next) => {
                        prop_assert!(price <= level);
                        (tat, level) = (next, level - price);
                    }
                    Arrival::Early(wait) => {
                        prop_assert_eq!(wait, price - level);
                        prop_assert!(matches!(gcra.arrive(tat, now + wait, cost), Arrival::Fits(_)));
                        let sooner = gcra.arrive(tat, now + wait - 1, cost);
                        prop_assert_eq!(sooner, Arrival::Early(1));
                    }
                    Arrival::Never => prop_assert!(cost > burst),
                }
            }
        }

        /// The law itself: in any span, no more than the burst and what came back in it.
        #[test]
        fn no_span_has_too_many(
            (tokens, period, burst) in (1..50_u32, 1..5_000_u64, 1..20_u32),
            calls in prop::collection::vec((0..1_000_u64, 1..5_u32), 1..80),
        ) {
            let gcra = law(tokens, Duration::from_nanos(period), burst);
            let admitted = admit(gcra, &calls);
            for (at, (from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for (to, cost) in &admitted[at..] {
                    sum += u64::from(*cost);
                    let most = u64::from(burst)
                        + (to - from) * u64::from(tokens) / period;
                    prop_assert!(sum <= most, "{} from {} to {}", sum, from, to);
                }
            }
        }
    }
}

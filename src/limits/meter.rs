//! [`Meter`]: what was taken of one limit for one key.

use std::time::Duration;

use super::{
    gcra::{Arrival, Gcra},
    settings::Quota,
};

/// What a budget without a period is remembered for after the last call that took of it. No chain of delegation,
/// and so no run, lasts that long.
const RUN: u64 = 24 * 3600 * 1_000_000_000;

/// The law of a quota.
#[derive(Clone, Copy, Debug)]
pub(super) enum Law {
    Rate(Gcra),
    /// Tokens, and nanoseconds after which they come back.
    Budget(u32, Option<u64>),
}

/// What was taken. The time is in nanoseconds since the limiter began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    /// Of a rate the TAT, of a budget the end of the period or of the memory of it.
    until: u64,
    /// Of a budget.
    taken: u32,
}

/// Why tokens can't be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Empty {
    /// How many could be.
    pub(super) remaining: u32,
    /// Nanoseconds until those asked for could be, if that helps.
    pub(super) retry_after: Option<u64>,
}

impl Empty {
    /// Of two, the one that lasts longer.
    pub(super) fn or_worse(self, other: Self) -> Self {
        let wait = |empty: Self| empty.retry_after.unwrap_or(u64::MAX);
        if wait(other) > wait(self) { other } else { self }
    }
}

impl From<&Quota> for Law {
    fn from(quota: &Quota) -> Self {
        match *quota {
            Quota::Rate { tokens, period, burst } => Self::Rate(Gcra::new(tokens, period, burst)),
            Quota::Budget { tokens, period } => Self::Budget(tokens.get(), period.map(nanos)),
        }
    }
}

impl Meter {
    /// The meter once the tokens are taken.
    pub(super) fn take(self, law: Law, now: u64, cost: u32) -> Result<Self, Empty> {
        match law {
            Law::Rate(gcra) => {
                let retry_after = match gcra.arrive(self.until, now, cost) {
                    Arrival::Fits(until) => return Ok(Self { until, taken: 0 }),
                    Arrival::Early(early) => Some(early),
                    Arrival::Never => None,
                };
                let remaining = gcra.remaining(self.until, now);
                Err(Empty { remaining, retry_after })
            }
            Law::Budget(tokens, period) => {
                let meter = if self.is_idle(now) { Self::default() } else { self };
                let left = tokens.saturating_sub(meter.taken);
                if cost <= left {
                    let until = match period {
                        Some(_) if meter.until > now => meter.until,
                        Some(period) => now.saturating_add(period),
                        None => now.saturating_add(RUN),
                    };
                    return Ok(Self { until, taken: meter.taken.saturating_add(cost) });
                }
                let retry_after = period.filter(|_| cost <= tokens);
                let retry_after = retry_after.map(|_| meter.until.saturating_sub(now));
                Err(Empty { remaining: left, retry_after })
            }
        }
    }

    /// Whether it says no more than a new one does.
    pub(super) fn is_idle(self, now: u64) -> bool {
        self.until <= now
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

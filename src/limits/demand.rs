//! [`Demand`]: how many tokens of one key were used here of late.

/// A count over two spans of time. The time is in nanoseconds since the limiter began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    began: u64,
    used: u32,
    /// In the span before.
    before: u32,
}

impl Demand {
    /// What it is once so many more are used.
    pub(super) fn and(self, cost: u32, now: u64, span: u64) -> Self {
        let passed = now.saturating_sub(self.began);
        if passed >= span.saturating_mul(2) {
            Self { began: now, used: cost, before: 0 }
        } else if passed >= span {
            Self { began: self.began.saturating_add(span), used: cost, before: self.used }
        } else {
            Self { used: self.used.saturating_add(cost), ..self }
        }
    }

    /// How many were used in a span.
    pub(super) fn recent(self, now: u64, span: u64) -> u32 {
        let passed = now.saturating_sub(self.began);
        if passed >= span.saturating_mul(2) {
            0
        } else if passed >= span {
            self.used
        } else {
            self.used.max(self.before)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_long_ago_is_forgotten() {
        let mut demand = Demand::default();
        for now in 0..100 {
            demand = demand.and(2, now, 100);
        }
        for (now, recent) in [(99, 200), (100, 200), (199, 200), (200, 0), (1_000, 0)] {
            assert_eq!(demand.recent(now, 100), recent, "{now}");
        }
        let demand = demand.and(1, 150, 100);
        for (now, recent) in [(150, 200), (199, 200), (200, 1), (299, 1), (300, 0)] {
            assert_eq!(demand.recent(now, 100), recent, "{now}");
        }
        assert_eq!(demand.and(u32::MAX, 160, 100).recent(160, 100), u32::MAX);
    }
}

//! [`Limiter`]: which limits a call meets, and taking from all of them or none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    counter::{Aside, Costs, Counter, Short, Unmet},
    hours::Hours,
    lease::Shortage,
    limited::{Exceeded, Kind, Limited},
    settings::{Limit, Measure, OnStoreFailure},
    subject::{Subject, When},
};

/// The limits in force, and what was taken of them.
#[derive(Debug)]
pub struct Limiter {
    hours: Vec<Arc<Opening>>,
    /// Sorted by name.
    ///
    /// INVARIANT: counters are locked in this order, which is the same for any two limiters that share some.
    counters: Vec<Arc<Counter>>,
}

/// A limit that has hours.
#[derive(Debug)]
struct Opening {
    name: Arc<str>,
    when: When,
    hours: Hours,
}

/// What a call takes of each limit that it meets.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    hours: Vec<Arc<Opening>>,
    /// Sorted by name, each with what it takes.
    charges: Vec<(Arc<Counter>, Costs)>,
}

/// The time by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For what lasts.
    pub instant: Instant,
    /// For hours of the day: the time since the Unix epoch.
    pub unix: Duration,
}

/// The proof that a call was counted. Only [`Counted::take`] makes one, or a refusal that isn't enforced.
#[derive(Debug, Default)]
#[must_use = "it is asked for where the call goes on"]
pub struct Taken {
    low: Vec<Shortage>,
    instead: Vec<(Arc<str>, OnStoreFailure)>,
}

/// Why a call wasn't counted.
#[derive(Clone, Debug)]
pub enum Untaken {
    /// It is over limits; nothing was taken of any.
    Limited(Limited),
    /// The store has to be asked for tokens first; then it is to be tried again.
    Short(Vec<Shortage>),
}

impl Limiter {
    /// Nothing is taken yet. Names of limits have to be unique.
    pub fn new(limits: Vec<Limit>, now: Instant) -> Self {
        let (mut hours, mut counters) = (Vec::new(), Vec::new());
        for Limit { name, when, measure } in limits {
            match measure {
                Measure::Hours(it) => hours.push(Arc::new(Opening { name, when, hours: it })),
                Measure::Count(it) => counters.push(Arc::new(Counter::new(name, when, it, now))),
            }
        }
        counters.sort_by(|one, other| one.name.cmp(&other.name));
        Self { hours, counters }
    }

    /// With other limits. Those that are the same keep what was taken of them; one that is changed begins anew.
    #[must_use]
    pub fn renewed(&self, limits: Vec<Limit>, now: Instant) -> Self {
        let mut renewed = Self::new(limits, now);
        for counter in &mut renewed.counters {
            if let Some(known) = self.counters.iter().find(|known| known.is_same(counter)) {
                *counter = Arc::clone(known);
            }
        }
        renewed
    }

    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.hours.is_empty() && self.counters.is_empty()
    }

    /// Finds the limits that a call meets, and what it takes of each.
    pub fn count(&self, subject: &Subject<'_>) -> Counted {
        let meets = |opening: &Opening| {
            subject.targets.iter().any(|touched| opening.when.meets(subject, touched))
        };
        let hours = self.hours.iter().filter(|opening| meets(opening)).map(Arc::clone);
        let charges = self.counters.iter().filter_map(|counter| {
            let costs = counter.costs(subject);
            (!costs.is_empty()).then(|| (Arc::clone(counter), costs))
        });
        Counted { hours: hours.collect(), charges: charges.collect() }
    }

    /// The names of all limits.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let hours = self.hours.iter().map(|opening| &*opening.name);
        hours.chain(self.counters.iter().map(|counter| &*counter.name))
    }

    /// Name → how many keys are in memory, for metrics.
    pub fn keys(&self) -> impl Iterator<Item = (&str, usize)> {
        self.counters.iter().map(|counter| (&*counter.name, counter.keys()))
    }
}

impl Counted {
    /// What it takes of the limits of two limiters, whose names are different ones.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hours.extend(other.hours);
        self.charges.extend(other.charges);
        self.charges.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        self
    }

    /// Names of the limits that it meets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let hours = self.hours.iter().map(|opening| &*opening.name);
        hours.chain(self.charges.iter().map(|(counter, _)| &*counter.name))
    }

    /// Takes from every limit, or from none.
    ///
    /// # Errors
    /// [`Untaken::Limited`] tells all limits that the call is over. Only if there are none, [`Untaken::Short`]
    /// tells those for which the store has to be asked.
    pub fn take(&self, now: Now) -> Result<Taken, Untaken> {
        let closed = self.hours.iter().filter_map(|opening| {
            let opens_in = opening.hours.opens_in(now.unix)?;
            let limit = Arc::clone(&opening.name);
            Some(Exceeded { limit, kind: Kind::Hours, retry_after: Some(opens_in) })
        });
        let mut exceeded: Vec<_> = closed.collect();
        let mut shortages = Vec::new();
        let mut checked = Vec::with_capacity(self.charges.len());
        for (counter, costs) in &self.charges {
            match counter.check(costs, now.instant) {
                Ok(it) => checked.push((counter, it)),
                Err(Unmet::Exceeded(it)) => exceeded.push(it),
                Err(Unmet::Short(keys)) => shortages.extend(short(counter, keys)),
            }
        }
        match Limited::of(exceeded) {
            Some(limited) => Err(Untaken::Limited(limited)),
            None if shortages.is_empty() => {
                let mut taken = Taken::default();
                for (counter, checked) in checked {
                    let Aside { low, instead } = checked.take();
                    taken.low.extend(short(counter, low));
                    taken.instead.extend(instead.map(|it| (Arc::clone(&counter.name), it)));
                }
                Ok(taken)
            }
            None => Err(Untaken::Short(shortages)),
        }
    }
}

impl Taken {
    /// Goes on although the call is over limits, where refusals are only recorded.
    pub fn unenforced(_over: &Limited) -> Self {
        Self::default()
    }

    /// Limits whose block is used up soon; the store is to be asked for the next one while the call goes on.
    pub fn take_low(&mut self) -> Vec<Shortage> {
        std::mem::take(&mut self.low)
    }

    /// Limits that were held without the store that counts them, and what stood in for it.
    pub fn instead(&self) -> &[(Arc<str>, OnStoreFailure)] {
        &self.instead
    }
}

fn short(counter: &Arc<Counter>, keys: Vec<Short>) -> impl Iterator<Item = Shortage> {
    keys.into_iter().map(|short| Shortage { counter: Arc::clone(counter), short })
}

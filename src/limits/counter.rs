//! [`Counter`]: one limit that counts, and what was taken of it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    cell::{Cell, Lack, Laws},
    key::Key,
    lease::Outcome,
    limited::{Exceeded, Kind, Level},
    meter::{Empty, nanos},
    settings::{Count, Dimension, Quota},
    subject::{Subject, When},
    table::{Place, Table},
};

/// Most tokens that are leased at once, as a part of all that there can be: one that is small enough for the
/// other replicas to get theirs.
const BLOCK: u32 = 10;

/// A limit that counts.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) name: Arc<str>,
    pub(super) count: Count,
    when: When,
    laws: Laws,
    /// What the time in the table is counted from.
    began: Instant,
    table: Mutex<Table>,
}

/// What a call takes of each of its keys, which are different ones.
pub(super) type Costs = Vec<(Key, u32)>;

/// Why a call can't be served.
#[derive(Debug)]
pub(super) enum Unmet {
    /// There are too few tokens.
    Exceeded(Exceeded),
    /// So many are needed from the store for these keys.
    Short(Costs),
}

/// A counter that has tokens for a call, held until they are taken or given up.
#[must_use]
pub(super) struct Checked<'a> {
    table: MutexGuard<'a, Table>,
    cells: Vec<(Place, Cell)>,
}

impl Counter {
    pub(super) fn new(name: Arc<str>, when: When, count: Count, began: Instant) -> Self {
        let whole = (&count.quota).into();
        let shared = count.sharing.map(|it| (it, (&count.quota.share(it.replicas)).into()));
        let laws = Laws { whole, shared };
        Self { name, count, when, laws, began, table: Mutex::default() }
    }

    /// What a call takes of it, each key once; nothing where it isn't about such calls.
    pub(super) fn costs(&self, subject: &Subject<'_>) -> Costs {
        // Without a run the call begins one, of which nothing is taken yet.
        let runs: Vec<_> = if self.count.per.contains(&Dimension::Run) {
            subject.runs.iter().map(Some).collect()
        } else {
            vec![None]
        };
        let mut costs = Costs::new();
        for touched in subject.targets.iter().filter(|it| self.when.meets(subject, it)) {
            for run in &runs {
                let (key, cost) = self.count.charge(subject, touched, *run);
                match costs.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, sum)) => *sum = sum.saturating_add(cost),
                    None => costs.push((key, cost)),
                }
            }
        }
        costs.retain(|(_, cost)| *cost > 0);
        costs
    }

    /// Looks whether there are tokens for all of it.
    pub(super) fn check(&self, costs: &[(Key, u32)], now: Instant) -> Result<Checked<'_>, Unmet> {
        let mut table = self.lock();
        let now = self.time(now);
        let mut cells: Vec<(Place, Cell)> = Vec::with_capacity(costs.len());
        let mut worst: Option<Empty> = None;
        let mut short = Vec::new();
        for &(key, cost) in costs {
            let place = table.place(key, now);
            // Several keys may have the spare cell.
            let known = cells.iter().position(|(taken, _)| *taken == place);
            let known = known.map(|at| cells.swap_remove(at).1);
            let cell = known.unwrap_or_else(|| table.cell(place));
            match cell.take(&self.laws, now, cost) {
                Ok(cell) => cells.push((place, cell)),
                Err(Lack::Short) => short.push((key, cost)),
                Err(Lack::Empty(empty)) => {
                    worst = Some(worst.map_or(empty, |worst| worst.or_worse(empty)));
                }
            }
        }
        match worst {
            Some(empty) => Err(Unmet::Exceeded(self.exceeded(empty))),
            None if short.is_empty() => Ok(Checked { table, cells }),
            None => Err(Unmet::Short(short)),
        }
    }

    /// Takes in what the store said of a key.
    pub(super) fn feed(&self, key: Key, outcome: Outcome, now: Instant) {
        let mut table = self.lock();
        let now = self.time(now);
        let place = table.place(key, now);
        let mut cell = table.cell(place);
        cell.feed(outcome, now);
        table.set(place, cell);
    }

    /// How many tokens to lease where so many are needed.
    pub(super) fn block(&self, need: u32) -> u32 {
        let replicas = self.count.sharing.map_or(1, |sharing| sharing.replicas.get());
        let part = self.count.quota.capacity() / BLOCK.saturating_mul(replicas);
        need.max(part)
    }

    /// Keys that are in memory.
    pub(super) fn keys(&self) -> usize {
        self.lock().len()
    }

    fn exceeded(&self, empty: Empty) -> Exceeded {
        let Empty { remaining, retry_after } = empty;
        let retry_after = retry_after.map(Duration::from_nanos);
        let kind = match self.count.quota {
            Quota::Rate { tokens, period, .. } => {
                Kind::Rate(Level { quota: tokens.get(), period: Some(period), remaining })
            }
            Quota::Budget { tokens, period } => {
                Kind::Budget(Level { quota: tokens.get(), period, remaining })
            }
        };
        Exceeded { limit: Arc::clone(&self.name), kind, retry_after }
    }

    fn time(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.began))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A table is never left half written: cells are set one by one, each whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checked<'_> {
    /// Takes the tokens.
    pub(super) fn take(mut self) {
        for (place, cell) in self.cells {
            self.table.set(place, cell);
        }
    }
}

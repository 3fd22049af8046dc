//! [`Counter`]: one limit that counts, and what was taken of it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    cell::{Lack, Laws, Shared, Took},
    key::Key,
    lease::Outcome,
    limited::{Exceeded, Kind, Level},
    meter::{Empty, nanos},
    settings::{Count, Dimension, OnStoreFailure, Quota},
    subject::{Subject, When},
    table::{Place, Table},
};

/// The blocks that all replicas have, as a part of all tokens that there can be: what one of them doesn't use, the
/// others don't get.
const BLOCKS: u32 = 20;

/// Longest time for which a block is good.
const SPAN: Duration = Duration::from_secs(10);

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
    /// The store has to be asked for tokens of these keys.
    Short(Vec<Short>),
}

/// A key that needs tokens from the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    pub(super) key: Key,
    /// So many serve the call.
    pub(super) need: u32,
    /// So many serve the next ones, too.
    pub(super) want: u32,
}

/// What there is to know of tokens that were taken.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Keys that will need tokens soon.
    pub(super) low: Vec<Short>,
    /// What stood in for a store that doesn't answer.
    pub(super) instead: Option<OnStoreFailure>,
}

/// A counter that has tokens for a call, held until they are taken or given up.
#[must_use]
pub(super) struct Checked<'a> {
    table: MutexGuard<'a, Table>,
    cells: Vec<(Place, Took)>,
}

impl Counter {
    pub(super) fn new(name: Arc<str>, when: When, count: Count, began: Instant) -> Self {
        let quota = &count.quota;
        let shared = count.sharing.map(|sharing| Shared {
            sharing,
            part: (&quota.share(sharing.replicas)).into(),
            block: quota.capacity() / BLOCKS.saturating_mul(sharing.replicas.get()),
            span: nanos(span(quota)),
        });
        let laws = Laws { whole: quota.into(), shared };
        Self { name, count, when, laws, began, table: Mutex::default() }
    }

    /// Whether it is the same limit.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.when, &self.count) == (&other.name, &other.when, &other.count)
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
        let mut cells: Vec<(Place, Took)> = Vec::with_capacity(costs.len());
        let mut worst: Option<Empty> = None;
        let mut unknown: Option<u64> = None;
        let mut short = Vec::new();
        for &(key, cost) in costs {
            let place = table.place(key, now);
            // Several keys may have the spare cell.
            let known = cells.iter().position(|(taken, _)| *taken == place);
            let known = known.map(|at| cells.swap_remove(at).1.cell);
            let cell = known.unwrap_or_else(|| table.cell(place));
            match cell.take(&self.laws, now, cost) {
                Ok(took) => cells.push((place, took)),
                Err(Lack::Short(want)) => {
                    let wanted = Short { key, need: cost, want: want.max(cost) };
                    if wanted.is_block() {
                        // If another limit refuses the call, nobody asks; then calls do without blocks for a while.
                        let asking = table.cell(place).asking(now);
                        table.set(place, asking);
                    }
                    short.push(wanted);
                }
                Err(Lack::Unknown(wait)) => unknown = unknown.max(Some(wait)),
                Err(Lack::Empty(empty)) => {
                    worst = Some(worst.map_or(empty, |worst| worst.or_worse(empty)));
                }
            }
        }
        match (worst, unknown) {
            (Some(empty), _) => Err(Unmet::Exceeded(self.exceeded(empty))),
            (None, Some(wait)) => Err(Unmet::Exceeded(Exceeded {
                limit: Arc::clone(&self.name),
                kind: Kind::Unknown,
                retry_after: Some(Duration::from_nanos(wait)),
            })),
            (None, None) if short.is_empty() => Ok(Checked { table, cells }),
            (None, None) => Err(Unmet::Short(short)),
        }
    }

    /// Takes in what the store said to who asked for these tokens.
    pub(super) fn feed(&self, short: Short, outcome: Outcome, now: Instant) {
        let mut table = self.lock();
        let now = self.time(now);
        let place = table.place(short.key, now);
        let mut cell = table.cell(place);
        cell.feed(outcome, now);
        if short.is_block() {
            cell = cell.told();
        }
        table.set(place, cell);
    }

    /// For how long a block is good.
    pub(super) fn span(&self) -> Duration {
        span(&self.count.quota)
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

impl Short {
    fn is_block(&self) -> bool {
        self.want > self.need
    }
}

impl Checked<'_> {
    /// Takes the tokens.
    pub(super) fn take(mut self) -> Aside {
        let mut aside = Aside::default();
        for (place, took) in self.cells {
            self.table.set(place, took.cell);
            aside.instead = aside.instead.or(took.instead);
            // The spare cell is of many keys, for which nothing is asked ahead.
            if let (Place::Own(key), Some(want)) = (place, took.ahead) {
                aside.low.push(Short { key, need: 1, want });
            }
        }
        aside
    }
}

fn span(quota: &Quota) -> Duration {
    match *quota {
        Quota::Rate { period, .. } | Quota::Budget { period: Some(period), .. } => period.min(SPAN),
        Quota::Budget { period: None, .. } => SPAN,
    }
}

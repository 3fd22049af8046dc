//! [`Limited`]: why a call has to wait.

use std::{fmt, sync::Arc, time::Duration};

/// The limits that a call is over.
///
/// INVARIANT: there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The one that holds it up for longest, and so is told as the reason.
    pub worst: Exceeded,
    /// The others, sorted by name.
    pub others: Vec<Exceeded>,
}

/// One limit that a call is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit's name.
    pub limit: Arc<str>,
    /// How it is counted.
    pub kind: Kind,
    /// Until the call would be let through if there were no others; `None` if it never will be.
    pub retry_after: Option<Duration>,
}

/// How a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tokens come back evenly.
    Rate(Level),
    /// Tokens come back all at once, or never.
    Budget(Level),
    /// It isn't counted; there are hours.
    Hours,
    /// The store that counts it can't be asked.
    Unknown,
}

/// Where a count stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Tokens in a period.
    pub quota: u32,
    /// The period, if tokens come back.
    pub period: Option<Duration>,
    /// Tokens that are left.
    pub remaining: u32,
}

impl Limited {
    /// `None` if there is nothing that a call is over.
    pub(super) fn of(exceeded: impl IntoIterator<Item = Exceeded>) -> Option<Self> {
        let mut others: Vec<_> = exceeded.into_iter().collect();
        let wait = |one: &Exceeded| one.retry_after.unwrap_or(Duration::MAX);
        let worst = others.iter().enumerate().max_by_key(|(_, one)| wait(one))?.0;
        let worst = others.swap_remove(worst);
        others.sort_by(|one, other| one.limit.cmp(&other.limit));
        Some(Self { worst, others })
    }

    /// All limits that it is over.
    pub fn exceeded(&self) -> impl Iterator<Item = &Exceeded> {
        std::iter::once(&self.worst).chain(&self.others)
    }

    /// Until such a call would be let through, if no other one comes first; `None` if it never will be.
    pub fn retry_after(&self) -> Option<Duration> {
        self.worst.retry_after
    }
}

impl fmt::Display for Limited {
    /// One sentence for the caller, with all names: some clients show nothing else.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exceeded { limit, kind, .. } = &self.worst;
        match kind {
            Kind::Rate(_) => write!(f, "too many calls for the limit `{limit}`")?,
            Kind::Budget(_) => write!(f, "the budget `{limit}` is used up")?,
            Kind::Hours => write!(f, "outside the hours of `{limit}`")?,
            Kind::Unknown => write!(f, "the limit `{limit}` can't be looked up")?,
        }
        for (at, other) in self.others.iter().enumerate() {
            let before = if at == 0 { " and over " } else { ", " };
            write!(f, "{before}`{}`", other.limit)?;
        }
        match self.retry_after() {
            Some(_) => Ok(()),
            None => f.write_str("; trying again doesn't help"),
        }
    }
}

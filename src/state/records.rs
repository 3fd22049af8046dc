//! Small records that every replica has to know, all of them, at once.
//!
//! What belongs to somebody is looked up when it is named ([`super::Owners`]). A record is the other way round:
//! it is known beforehand, read again whenever anything has changed, and never expires here. Whoever keeps
//! records keeps a copy of them all in memory, so there may be some thousands, not more.
//!
//! Each reading has a [`Mark`]. By it a reader knows whether anything has changed since, and whether the store
//! may have *lost* something meanwhile, as a Redis does that comes back empty or from an older copy.

use std::sync::Arc;

use uuid::Uuid;

use super::{Unavailable, store::Store};

/// A record: its id, and its text.
pub type Record = (Uuid, Box<str>);

/// The records of a store.
#[derive(Clone, Debug)]
pub struct Records(Arc<Store>);

/// Where records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Nowhere: they end with the process.
    Memory,
    /// In a file of this process.
    File,
    /// In a Redis that replicas share.
    Shared,
}

/// All records, and when that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// To be shown with the next reading.
    pub mark: Mark,
    /// The records, in no order.
    pub records: Vec<Record>,
}

/// A state of the records: whose history it is, how many changes there were, and which was the last. Empty
/// before the first change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark(pub(super) Box<str>);

impl Records {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self(store)
    }

    /// Where they are kept.
    pub fn keeping(&self) -> Keeping {
        match &*self.0 {
            Store::None => Keeping::Memory,
            Store::Embedded(_) => Keeping::File,
            Store::Redis(_) => Keeping::Shared,
        }
    }

    /// Keeps a record; one with the same id is replaced. Durable when it returns, as far as the store is.
    ///
    /// # Errors
    /// When it can't be written. It may have been, all the same.
    pub async fn put(&self, id: Uuid, text: &str) -> Result<(), Unavailable> {
        match &*self.0 {
            Store::None => Ok(()),
            Store::Embedded(file) => file.put_record(id, text).await,
            Store::Redis(redis) => redis.put_record(id, text).await,
        }
    }

    /// Forgets a record, if there is one.
    ///
    /// # Errors
    /// When it can't be written. It may have been, all the same.
    pub async fn remove(&self, id: Uuid) -> Result<(), Unavailable> {
        match &*self.0 {
            Store::None => Ok(()),
            Store::Embedded(file) => file.remove_record(id).await,
            Store::Redis(redis) => redis.remove_record(id).await,
        }
    }

    /// All records; `None` if nothing has changed since `known`.
    ///
    /// # Errors
    /// When they can't be read.
    pub async fn read(&self, known: Option<&Mark>) -> Result<Option<Kept>, Unavailable> {
        match (&*self.0, known) {
            (Store::Redis(redis), known) => redis.records(known).await,
            // Nobody else writes to it.
            (Store::None | Store::Embedded(_), Some(_)) => Ok(None),
            (Store::None, None) => Ok(Some(Kept { mark: Mark::default(), records: Vec::new() })),
            (Store::Embedded(file), None) => {
                let records = file.records().await?;
                Ok(Some(Kept { mark: Mark::default(), records }))
            }
        }
    }
}

impl Mark {
    /// Whether everything that was known at `earlier` was still known when this was read, or was taken back
    /// since. If not, the store has lost some of it.
    pub fn follows(&self, earlier: &Self) -> bool {
        match (self.place(), earlier.place()) {
            (Some((history, number)), Some((known, before))) => {
                history == known && (number > before || self == earlier)
            }
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }

    /// The history, and the number of the last change in it.
    fn place(&self) -> Option<(&str, u64)> {
        let (history, rest) = self.0.split_once('/')?;
        let (number, _) = rest.split_once('/')?;
        Some((history, number.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_has_lost_is_noticed() {
        let mark = |text: &str| Mark(text.into());
        for (later, earlier, follows) in [
            ("", "", true),
            ("h/1/a", "", true),
            ("h/2/b", "h/1/a", true),
            ("h/9/c", "h/1/a", true),
            ("h/1/a", "h/1/a", true),
            // It came back from an older copy, and somebody has written since, or not.
            ("h/1/b", "h/1/a", false),
            ("h/1/a", "h/2/b", false),
            // It came back empty.
            ("", "h/1/a", false),
            ("i/1/b", "h/1/a", false),
            ("i/7/b", "h/1/a", false),
            ("odd", "h/1/a", false),
        ] {
            assert_eq!(mark(later).follows(&mark(earlier)), follows, "{later:?} {earlier:?}");
        }
    }
}

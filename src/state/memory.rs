//! Bindings of one kind, in memory.
//!
//! An entry is made only when a server has handed something out, so that a caller can't fill the table by
//! asking. Entries end with what they stand for, or when they were silent for too long.
//!
//! INVARIANT: an entry's owner never changes; a second [`Memory::bind`] of the same key by somebody else is
//! refused.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{BindError, Kind, key::Key};

/// Shortest time between two searches for silent entries that callers set off.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Bounds on what is kept of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most entries of one owner.
    pub per_owner: usize,
    /// Most entries at all.
    pub total: usize,
    /// How long an entry may be silent.
    pub idle: Duration,
    /// Whether an owner's oldest entries make room for its new ones; if not, new ones are refused.
    pub forgets: bool,
}

impl Limits {
    /// The bounds on a kind.
    ///
    /// A session is refused before the server opens it. Tasks and continuations come with the answer to a call
    /// that has run, which can't be refused any more; whoever has ten thousand of them can do without the oldest.
    pub fn of(kind: Kind) -> Self {
        let (hours, forgets) = match kind {
            Kind::Session => (24, false),
            Kind::Task => (24, true),
            Kind::Continuation => (6, true),
            Kind::Context => (24, true),
        };
        let idle = Duration::from_secs(hours * 3600);
        Self { per_owner: 10_000, total: 100_000, idle, forgets }
    }
}

/// An owner with fewer entries than this has them walked over no more often than in [`REAP_INTERVAL`].
const MANY: usize = 1000;

/// A table.
#[derive(Debug)]
pub(super) struct Memory {
    table: Mutex<Table>,
    limits: Limits,
}

#[derive(Default)]
struct Table {
    bindings: HashMap<Key, Binding>,
    per_owner: HashMap<Arc<str>, usize>,
    /// When silent entries were last looked for.
    reaped: Duration,
}

struct Binding {
    owner: Arc<str>,
    used: Duration,
    /// When the store last said so.
    confirmed: Duration,
}

/// What memory has for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recalled {
    /// The owner.
    Known(Arc<str>),
    /// The owner, but the store has to be told again. Whoever gets this is the only one to do so.
    Stale(Arc<str>),
    /// Nothing.
    Unknown,
}

impl Memory {
    pub(super) fn new(limits: Limits) -> Self {
        Self { table: Mutex::default(), limits }
    }

    /// The owner, if it is known; counts as use. What was confirmed before `fresh` is stale. Both times are
    /// since the Unix epoch.
    pub(super) fn recall(&self, key: &Key, now: Duration, fresh: Duration) -> Recalled {
        let mut table = self.lock();
        let Some(binding) = table.bindings.get_mut(key) else { return Recalled::Unknown };
        if now.saturating_sub(binding.used) > self.limits.idle {
            table.remove(key);
            return Recalled::Unknown;
        }
        binding.used = now;
        let owner = Arc::clone(&binding.owner);
        if binding.confirmed < fresh {
            binding.confirmed = now;
            return Recalled::Stale(owner);
        }
        Recalled::Known(owner)
    }

    /// Makes a binding stale once more, after the store could not be told.
    pub(super) fn doubt(&self, key: &Key) {
        if let Some(binding) = self.lock().bindings.get_mut(key) {
            binding.confirmed = Duration::ZERO;
        }
    }

    /// Whether one more entry of `owner` can be made.
    pub(super) fn admits(&self, owner: &str, now: Duration) -> bool {
        self.limits.forgets || self.make_room(owner, now).is_ok()
    }

    /// Makes room for one more entry of `owner`, and tells what had to be forgotten for it.
    pub(super) fn make_room(&self, owner: &str, now: Duration) -> Result<Vec<Key>, BindError> {
        let mut table = self.lock();
        if self.fits(&table, owner) {
            return Ok(Vec::new());
        }
        // It takes a walk over the table, which callers at their limit must not be able to ask for as
        // often as they like.
        let walked = now.saturating_sub(table.reaped) < REAP_INTERVAL;
        if !walked {
            table.reaped = now;
            table.reap(self.limits.idle, now);
            if self.fits(&table, owner) {
                return Ok(Vec::new());
            }
        }
        let own = table.per_owner.get(owner).copied().unwrap_or_default();
        if !self.limits.forgets || own == 0 || (walked && own < MANY) {
            return Err(BindError::Full);
        }
        Ok(table.forget_oldest(owner, own.div_ceil(4)))
    }

    /// Makes an entry, for which there has to be room.
    pub(super) fn bind(&self, key: Key, owner: &Arc<str>, now: Duration) -> Result<(), BindError> {
        let mut table = self.lock();
        let fits = self.fits(&table, owner);
        match table.bindings.entry(key) {
            Entry::Occupied(mut taken) if taken.get().owner == *owner => {
                let binding = taken.get_mut();
                (binding.used, binding.confirmed) = (now, now);
                return Ok(());
            }
            Entry::Occupied(_) => return Err(BindError::Taken),
            Entry::Vacant(_) if !fits => return Err(BindError::Full),
            Entry::Vacant(vacant) => {
                vacant.insert(Binding { owner: Arc::clone(owner), used: now, confirmed: now });
            }
        }
        *table.per_owner.entry(Arc::clone(owner)).or_default() += 1;
        Ok(())
    }

    /// Forgets an entry, unless it is somebody else's: an answer that comes late may speak of one that was
    /// there before, under the same id.
    pub(super) fn end(&self, key: &Key, owner: &str) {
        let mut table = self.lock();
        if table.bindings.get(key).is_some_and(|binding| *binding.owner == *owner) {
            table.remove(key);
        }
    }

    /// Forgets an entry, whosever it is.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Forgets everything that was silent for too long.
    pub(super) fn reap(&self, now: Duration) {
        self.lock().reap(self.limits.idle, now);
    }

    /// How long an entry may be silent.
    pub(super) fn idle(&self) -> Duration {
        self.limits.idle
    }

    /// Entries held now.
    pub(super) fn len(&self) -> usize {
        self.lock().bindings.len()
    }

    fn fits(&self, table: &Table, owner: &str) -> bool {
        let own = table.per_owner.get(owner).copied().unwrap_or_default();
        own < self.limits.per_owner && table.bindings.len() < self.limits.total
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table whole, so a poisoned lock is usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("bindings", &self.bindings.len()).finish_non_exhaustive()
    }
}

impl Table {
    fn remove(&mut self, key: &Key) {
        if let Some(binding) = self.bindings.remove(key) {
            self.forget(&binding.owner);
        }
    }

    fn reap(&mut self, idle: Duration, now: Duration) {
        let stale: Vec<Key> = self
            .bindings
            .iter()
            .filter(|(_, binding)| now.saturating_sub(binding.used) > idle)
            .map(|(key, _)| *key)
            .collect();
        for key in stale {
            self.remove(&key);
        }
    }

    /// Takes out an owner's entries that were silent for the longest time.
    fn forget_oldest(&mut self, owner: &str, count: usize) -> Vec<Key> {
        let own = self.bindings.iter().filter(|(_, binding)| *binding.owner == *owner);
        let mut own: Vec<_> = own.map(|(key, binding)| (binding.used, *key)).collect();
        own.sort_unstable_by_key(|(used, _)| *used);
        let oldest: Vec<Key> = own.into_iter().take(count).map(|(_, key)| key).collect();
        for key in &oldest {
            self.remove(key);
        }
        oldest
    }

    fn forget(&mut self, owner: &Arc<str>) {
        if let Entry::Occupied(mut count) = self.per_owner.entry(Arc::clone(owner)) {
            *count.get_mut() = count.get().saturating_sub(1);
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Kind;

    const SECOND: Duration = Duration::from_secs(1);

    fn memory() -> Memory {
        Memory::new(Limits { per_owner: 2, total: 3, idle: 10 * SECOND, forgets: false })
    }

    fn key(id: &str) -> Key {
        Key::new(Kind::Session, "s", id)
    }

    fn recall(memory: &Memory, id: &str, now: Duration) -> Recalled {
        memory.recall(&key(id), now, Duration::ZERO)
    }

    #[test]
    fn an_entry_belongs_to_who_made_it() {
        let memory = memory();
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        memory.bind(key("1"), &a, SECOND).unwrap();
        assert_eq!(memory.bind(key("1"), &b, SECOND), Err(BindError::Taken));
        assert_eq!(recall(&memory, "1", SECOND), Recalled::Known(a));
        assert_eq!(recall(&memory, "2", SECOND), Recalled::Unknown);
        memory.end(&key("1"), "b");
        assert_eq!(memory.len(), 1);
        memory.end(&key("1"), "a");
        assert_eq!(recall(&memory, "1", SECOND), Recalled::Unknown);
        assert_eq!(memory.len(), 0);
    }

    #[test]
    fn the_table_is_bounded_and_silent_entries_are_reaped() {
        let memory = memory();
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        memory.bind(key("1"), &a, SECOND).unwrap();
        memory.bind(key("2"), &a, SECOND).unwrap();
        assert_eq!(memory.bind(key("3"), &a, SECOND), Err(BindError::Full));
        memory.bind(key("4"), &b, SECOND).unwrap();
        assert!(!memory.admits("c", SECOND));
        assert_eq!(recall(&memory, "4", 9 * SECOND), Recalled::Known(b));
        assert!(memory.admits("a", 12 * SECOND));
        assert_eq!(memory.len(), 1);
        assert_eq!(recall(&memory, "4", 30 * SECOND), Recalled::Unknown);
    }

    #[test]
    fn one_caller_alone_has_to_ask_the_store_again() {
        let memory = memory();
        let a: Arc<str> = "a".into();
        memory.bind(key("1"), &a, SECOND).unwrap();
        let recall = |now, fresh| memory.recall(&key("1"), now * SECOND, fresh * SECOND);
        assert_eq!(recall(2, 1), Recalled::Known(a.clone()));
        assert_eq!(recall(3, 2), Recalled::Stale(a.clone()));
        assert_eq!(recall(3, 2), Recalled::Known(a.clone()));
        memory.doubt(&key("1"));
        assert_eq!(recall(3, 2), Recalled::Stale(a));
    }

    #[test]
    fn the_oldest_make_room_where_nothing_can_be_refused() {
        let limits = Limits { per_owner: 8, total: 10, idle: 100 * SECOND, forgets: true };
        let memory = Memory::new(limits);
        let (a, b, c) = (Arc::from("a"), Arc::from("b"), Arc::from("c"));
        for id in 0..8 {
            memory.bind(key(&id.to_string()), &a, (10 + id) * SECOND).unwrap();
        }
        memory.bind(key("b1"), &b, SECOND).unwrap();
        memory.bind(key("b2"), &b, SECOND).unwrap();
        assert!(memory.admits("a", 20 * SECOND));
        assert_eq!(recall(&memory, "0", 20 * SECOND), Recalled::Known(a.clone()));
        // Its own two that were silent for the longest time; nobody else's, however old.
        let forgotten = memory.make_room("a", 21 * SECOND).unwrap();
        assert_eq!(forgotten, [key("1"), key("2")]);
        assert_eq!(memory.len(), 8);
        memory.bind(key("8"), &a, 21 * SECOND).unwrap();
        memory.bind(key("9"), &a, 21 * SECOND).unwrap();
        // There is no room for those who have nothing to forget, nor for a walk in the same second.
        assert_eq!(memory.make_room("c", 22 * SECOND), Err(BindError::Full));
        assert_eq!(memory.bind(key("c1"), &c, 22 * SECOND), Err(BindError::Full));
        assert_eq!(memory.make_room("b", 22 * SECOND), Err(BindError::Full));
        assert_eq!(memory.make_room("b", 23 * SECOND).unwrap().len(), 1);
        memory.bind(key("c1"), &c, 23 * SECOND).unwrap();
    }

    #[test]
    fn the_table_is_not_walked_for_every_caller_who_asks() {
        let memory = memory();
        let a = Arc::from("a");
        memory.bind(key("1"), &a, 20 * SECOND).unwrap();
        memory.bind(key("2"), &a, 21 * SECOND).unwrap();
        assert!(!memory.admits("a", 30 * SECOND));
        // One is stale by now, but nobody looks again within a second.
        assert!(!memory.admits("a", 30 * SECOND + SECOND / 2));
        assert!(memory.admits("a", 31 * SECOND));
    }
}

//! Who opened which legacy session.
//!
//! An entry is made only when an upstream has answered `initialize` with a session id, so that a caller
//! can't fill the table by asking. Entries end with the session (`DELETE`, 404 of the upstream) or when
//! they were silent for too long.
//!
//! INVARIANT: an entry's owner never changes; a second `bind` of the same id by somebody else is refused.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Shortest time between two searches for silent sessions.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Sessions of all upstreams, in memory.
#[derive(Debug)]
pub struct Sessions {
    table: Mutex<Table>,
    limits: Limits,
}

/// Bounds on the table.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most sessions of one owner.
    pub per_owner: usize,
    /// Most sessions at all.
    pub total: usize,
    /// How long a session may be silent.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_owner: 10_000, total: 100_000, idle: Duration::from_secs(24 * 3600) }
    }
}

/// Why a session can't be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The table, or the owner's share of it, is full.
    #[error("too many sessions")]
    Full,
    /// The upstream handed out an id that somebody else holds.
    #[error("the session id is already taken")]
    Taken,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<Key, Session>,
    per_owner: HashMap<Arc<str>, usize>,
    /// When silent sessions were last looked for.
    reaped: Duration,
}

/// Server and session id. The id is a bearer secret of the upstream.
type Key = (Box<str>, Box<str>);

struct Session {
    owner: Arc<str>,
    used: Duration,
}

impl Sessions {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Self { table: Mutex::default(), limits }
    }

    /// The owner of a session, if it is known; counts as use. `now` is time since the Unix epoch.
    pub fn owner(&self, server: &str, id: &str, now: Duration) -> Option<Arc<str>> {
        let mut table = self.lock();
        let key = key(server, id);
        let session = table.sessions.get_mut(&key)?;
        if now.saturating_sub(session.used) > self.limits.idle {
            table.remove(&key);
            return None;
        }
        session.used = now;
        Some(Arc::clone(&session.owner))
    }

    /// Whether `owner` may open one more; asked before an `initialize` is forwarded.
    pub fn admits(&self, owner: &str, now: Duration) -> bool {
        let mut table = self.lock();
        self.make_room(&mut table, owner, now)
    }

    /// Remembers who opened a session.
    pub fn bind(
        &self,
        server: &str,
        id: &str,
        owner: &Arc<str>,
        now: Duration,
    ) -> Result<(), BindError> {
        let mut table = self.lock();
        if !self.make_room(&mut table, owner, now) {
            return Err(BindError::Full);
        }
        match table.sessions.entry(key(server, id)) {
            Entry::Occupied(mut taken) if taken.get().owner == *owner => {
                taken.get_mut().used = now;
                return Ok(());
            }
            Entry::Occupied(_) => return Err(BindError::Taken),
            Entry::Vacant(vacant) => {
                vacant.insert(Session { owner: Arc::clone(owner), used: now });
            }
        }
        *table.per_owner.entry(Arc::clone(owner)).or_default() += 1;
        Ok(())
    }

    /// Forgets a session that ended, unless it is somebody else's: an answer that comes late may speak of
    /// one that was there before, under the same id.
    pub fn end(&self, server: &str, id: &str, owner: &str) {
        let mut table = self.lock();
        let key = key(server, id);
        if table.sessions.get(&key).is_some_and(|session| *session.owner == *owner) {
            table.remove(&key);
        }
    }

    /// Sessions held now.
    pub fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Whether no session is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn make_room(&self, table: &mut Table, owner: &str, now: Duration) -> bool {
        if self.fits(table, owner) {
            return true;
        }
        // It takes a walk over the table, which callers at their limit must not be able to ask for as
        // often as they like.
        if now.saturating_sub(table.reaped) < REAP_INTERVAL {
            return false;
        }
        table.reaped = now;
        table.reap(self.limits.idle, now);
        self.fits(table, owner)
    }

    fn fits(&self, table: &Table, owner: &str) -> bool {
        let own = table.per_owner.get(owner).copied().unwrap_or_default();
        own < self.limits.per_owner && table.sessions.len() < self.limits.total
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table whole, so a poisoned lock is usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Table {
    /// Without the ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

impl Table {
    fn remove(&mut self, key: &Key) {
        if let Some(session) = self.sessions.remove(key) {
            self.forget(&session.owner);
        }
    }

    fn reap(&mut self, idle: Duration, now: Duration) {
        let stale: Vec<Key> = self
            .sessions
            .iter()
            .filter(|(_, session)| now.saturating_sub(session.used) > idle)
            .map(|(key, _)| key.clone())
            .collect();
        for key in stale {
            self.remove(&key);
        }
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

fn key(server: &str, id: &str) -> Key {
    (server.into(), id.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sessions() -> Sessions {
        Sessions::new(Limits { per_owner: 2, total: 3, idle: 10 * SECOND })
    }

    #[test]
    fn a_session_belongs_to_who_opened_it() {
        let sessions = sessions();
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        sessions.bind("s", "1", &a, SECOND).unwrap();
        assert_eq!(sessions.bind("s", "1", &b, SECOND), Err(BindError::Taken));
        assert_eq!(sessions.owner("s", "1", SECOND), Some(a));
        assert_eq!(sessions.owner("other", "1", SECOND), None);
        sessions.end("s", "1", "b");
        assert_eq!(sessions.len(), 1);
        sessions.end("s", "1", "a");
        assert_eq!(sessions.owner("s", "1", SECOND), None);
        assert!(sessions.is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_silent_sessions_are_reaped() {
        let sessions = sessions();
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        sessions.bind("s", "1", &a, SECOND).unwrap();
        sessions.bind("s", "2", &a, SECOND).unwrap();
        assert_eq!(sessions.bind("s", "3", &a, SECOND), Err(BindError::Full));
        sessions.bind("s", "4", &b, SECOND).unwrap();
        assert!(!sessions.admits("c", SECOND));
        assert!(sessions.owner("s", "4", 9 * SECOND).is_some());
        assert!(sessions.admits("a", 12 * SECOND));
        assert_eq!(sessions.len(), 1);
        assert_eq!(sessions.owner("s", "4", 30 * SECOND), None);
    }

    #[test]
    fn the_table_is_not_walked_for_every_caller_who_asks() {
        let sessions = sessions();
        let a = Arc::from("a");
        sessions.bind("s", "1", &a, 20 * SECOND).unwrap();
        sessions.bind("s", "2", &a, 21 * SECOND).unwrap();
        assert!(!sessions.admits("a", 30 * SECOND));
        // One is stale by now, but nobody looks again within a second.
        assert!(!sessions.admits("a", 30 * SECOND + SECOND / 2));
        assert!(sessions.admits("a", 31 * SECOND));
    }

    #[test]
    fn ids_are_not_shown() {
        let sessions = sessions();
        sessions.bind("s", "top-secret", &Arc::from("a"), SECOND).unwrap();
        assert!(!format!("{sessions:?}").contains("top-secret"));
    }
}

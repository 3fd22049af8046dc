//! Which processes run, and for whom.

use std::{
    collections::HashMap,
    io,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use super::{
    backoff::Backoff,
    connection::{Connection, End},
    process::Ended,
};
use crate::{telemetry::Clock, upstream::Error};

/// Longest time that a process takes to end once it was told to.
const ENDING: Duration = Duration::from_secs(4);

/// What a process is found by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A legacy session's id, which is a secret of its caller.
    Session(Arc<str>),
    /// A caller's identity.
    Caller(Arc<str>),
    /// It is everybody's.
    Everybody,
}

/// The processes of one command.
#[derive(Debug)]
pub(super) struct Table {
    rows: Mutex<Rows>,
    most: usize,
    most_per_caller: usize,
    freed: Notify,
}

/// The processes of a command, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// That have not ended yet.
    pub running: usize,
    /// That have ended by themselves since the start.
    pub crashed: u64,
}

#[derive(Default)]
struct Rows {
    closed: bool,
    next: u64,
    /// Everything that has not been reaped yet.
    running: HashMap<u64, Running>,
    numbers: HashMap<Key, u64>,
    backoff: Backoff,
    crashed: u64,
}

/// A process that has not been reaped yet.
#[derive(Clone)]
pub(super) struct Running {
    number: u64,
    key: Key,
    owner: Arc<str>,
    connection: Arc<Connection>,
}

impl Table {
    pub(super) fn new(most: usize, most_per_caller: usize) -> Self {
        Self { rows: Mutex::default(), most, most_per_caller, freed: Notify::new() }
    }

    /// A process that takes calls.
    pub(super) fn find(&self, key: &Key) -> Option<Arc<Connection>> {
        let rows = self.lock();
        let running = rows.running.get(rows.numbers.get(key)?)?;
        (!running.connection.is_over()).then(|| Arc::clone(&running.connection))
    }

    /// Starts a process, if one more may run; or gives back one that somebody else has just started.
    /// `start` is short: it waits for nothing but the system.
    pub(super) fn start<P>(
        &self,
        key: Key,
        owner: &str,
        start: impl FnOnce() -> io::Result<(Arc<Connection>, P)>,
        run: impl FnOnce(Running, P),
    ) -> Result<Arc<Connection>, Error> {
        let owner: Arc<str> = match key {
            Key::Session(_) | Key::Caller(_) => owner.into(),
            Key::Everybody => "".into(),
        };
        let mut rows = self.lock();
        if rows.closed {
            return Err(Error::Unreachable("no process is started any more".into()));
        }
        let known = rows.numbers.get(&key).and_then(|number| rows.running.get(number));
        if let Some(known) = known.filter(|known| !known.connection.is_over()) {
            return Ok(Arc::clone(&known.connection));
        }
        let own = rows.running.values().filter(|running| running.owner == owner).count();
        if rows.running.len() >= self.most || own >= self.most_per_caller {
            return Err(Error::Full);
        }
        let wait = rows.backoff.wait(&owner, Clock.instant());
        if !wait.is_zero() {
            let reason = format!("its process keeps crashing; the next one is due in {wait:.1?}");
            return Err(Error::Unreachable(reason.into()));
        }
        let (connection, process) = start().map_err(|error| Error::Unreachable(error.into()))?;
        let number = rows.next;
        rows.next += 1;
        let running =
            Running { number, key: key.clone(), owner, connection: Arc::clone(&connection) };
        rows.running.insert(number, running.clone());
        rows.numbers.insert(key, number);
        drop(rows);
        run(running, process);
        Ok(connection)
    }

    /// Forgets a process that has been reaped.
    pub(super) fn forget(&self, ended: &Running, how: &Ended) {
        let mut rows = self.lock();
        if how.crashed {
            rows.crashed += 1;
            rows.backoff.crashed(&ended.owner, Clock.instant());
        }
        rows.running.remove(&ended.number);
        if rows.numbers.get(&ended.key) == Some(&ended.number) {
            rows.numbers.remove(&ended.key);
        }
        self.freed.notify_waiters();
    }

    /// Where as many processes run as may, ends one that serves no session and that nobody has used for the
    /// longest time, and waits for that. Whether it helped.
    pub(super) async fn make_room(&self) -> bool {
        let mut freed = pin!(self.freed.notified());
        // Registered before the end is asked for, so that it can't fall in between.
        freed.as_mut().enable();
        let ended = {
            let rows = self.lock();
            let mut stateless: Vec<&Running> = rows
                .running
                .values()
                .filter(|running| running.connection.is_stateless())
                .filter(|_| rows.running.len() >= self.most)
                .collect();
            stateless.sort_by_key(|running| running.connection.used());
            stateless.into_iter().any(|running| running.connection.end_if_unused())
        };
        ended && timeout(ENDING, freed).await.is_ok()
    }

    pub(super) fn census(&self) -> Census {
        let rows = self.lock();
        Census { running: rows.running.len(), crashed: rows.crashed }
    }

    /// Ends everything that runs, and waits for it. Nothing is started any more.
    pub(super) async fn close(&self) {
        loop {
            let mut freed = pin!(self.freed.notified());
            // Registered before the look, so that the last end can't fall in between.
            freed.as_mut().enable();
            {
                let mut rows = self.lock();
                rows.closed = true;
                for running in rows.running.values() {
                    running.connection.end(End::Asked);
                }
                if rows.running.is_empty() {
                    return;
                }
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // Every critical section leaves the rows whole, so a poisoned lock is usable.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl std::fmt::Debug for Rows {
    /// Without the keys, some of which are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

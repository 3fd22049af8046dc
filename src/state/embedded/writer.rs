//! The thread that writes.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use redb::{Database, DatabaseError, ReadableTable, Table};
use tokio::sync::oneshot;

use super::{
    Health, Row, TABLE, millis,
    records::{self, Work},
};
use crate::{
    state::{Record, Unavailable, key::Key, store::Claim},
    telemetry::Clock,
};

/// Most tasks in one transaction.
const GROUP: usize = 1024;

/// How often the file is searched for what has ended.
const REAP: Duration = Duration::from_secs(600);

/// Shortest time between two attempts to open a file that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens the file.
pub(super) type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// What there is to write.
pub(super) enum Task {
    Claim {
        key: Key,
        owner: Arc<str>,
        /// In milliseconds since the Unix epoch.
        ends: u64,
        answer: oneshot::Sender<Result<Claim, Unavailable>>,
    },
    Release {
        key: Key,
        owner: Box<str>,
    },
    /// In a transaction of its own: there are few.
    Records {
        work: Work,
        answer: oneshot::Sender<Result<Vec<Record>, Unavailable>>,
    },
}

/// The file, and how to get it back.
pub(super) struct Writer {
    /// `None` after a failure.
    database: Option<Database>,
    open: Opener,
    tried: Instant,
    reaped: Instant,
    health: Arc<Health>,
}

impl Writer {
    pub(super) fn new(database: Database, open: Opener, health: Arc<Health>) -> Self {
        let now = Clock.instant();
        Self { database: Some(database), open, tried: now, reaped: now, health }
    }

    /// Writes until nobody is left who could ask.
    pub(super) fn run(mut self, tasks: &Receiver<Task>) {
        loop {
            match tasks.recv_timeout(REAP) {
                Ok(first) => {
                    let mut group = vec![first];
                    group.extend(tasks.try_iter().take(GROUP - 1));
                    self.write(group);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Clock.instant().saturating_duration_since(self.reaped) >= REAP {
                self.reaped = Clock.instant();
                self.attempt(reap);
            }
        }
    }

    fn write(&mut self, group: Vec<Task>) {
        let claims = self.attempt(|database| commit(database, &group));
        let mut claims = claims.into_iter().flatten();
        for task in group {
            match task {
                // Who asked may be gone.
                Task::Claim { answer, .. } => drop(answer.send(claims.next().ok_or(Unavailable))),
                Task::Release { .. } => {}
                Task::Records { work, answer } => {
                    let done = self.attempt(|database| records::apply(database, &work));
                    drop(answer.send(done.ok_or(Unavailable)));
                }
            }
        }
    }

    /// Does something with the file, which is given up when it fails.
    fn attempt<T>(&mut self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Option<T> {
        let worked = self.database().and_then(work);
        match worked {
            Ok(done) => {
                if !self.health.available.swap(true, Ordering::Relaxed) {
                    tracing::info!("the state file can be written again");
                }
                Some(done)
            }
            Err(error) => {
                self.database = None;
                self.health.failures.fetch_add(1, Ordering::Relaxed);
                if self.health.available.swap(false, Ordering::Relaxed) {
                    tracing::error!(%error, "the state file can't be written");
                }
                None
            }
        }
    }

    fn database(&mut self) -> Result<&Database, redb::Error> {
        let database = match self.database.take() {
            Some(database) => database,
            None => {
                let now = Clock.instant();
                if now.saturating_duration_since(self.tried) < PAUSE {
                    return Err(redb::Error::PreviousIo);
                }
                self.tried = now;
                (self.open)()?
            }
        };
        Ok(self.database.insert(database))
    }
}

/// Writes a group, and says what became of each claim in it, in their order.
fn commit(database: &Database, group: &[Task]) -> Result<Vec<Claim>, redb::Error> {
    let now = millis(Clock.unix());
    let writing = database.begin_write()?;
    let mut claims = Vec::new();
    {
        let mut table = writing.open_table(TABLE)?;
        for task in group {
            match task {
                Task::Claim { key, owner, ends, .. } => {
                    let taken = owned(&table, key, now, |held| *held != **owner)?;
                    if !taken {
                        table.insert(key.digest(), (key.code(), *ends, &**owner))?;
                    }
                    claims.push(if taken { Claim::Taken } else { Claim::Granted });
                }
                Task::Release { key, owner } => {
                    if owned(&table, key, now, |held| *held == **owner)? {
                        table.remove(key.digest())?;
                    }
                }
                Task::Records { .. } => {}
            }
        }
    }
    writing.commit()?;
    Ok(claims)
}

/// Whether there is an owner, and `is` holds for it.
fn owned(
    table: &Table<'_, [u8; 32], Row>,
    key: &Key,
    now: u64,
    is: impl FnOnce(&str) -> bool,
) -> Result<bool, redb::Error> {
    let held = table.get(key.digest())?;
    Ok(held.is_some_and(|held| {
        let (_, ends, owner) = held.value();
        ends > now && is(owner)
    }))
}

/// Takes out what has ended.
pub(super) fn reap(database: &Database) -> Result<(), redb::Error> {
    let now = millis(Clock.unix());
    let writing = database.begin_write()?;
    writing.open_table(TABLE)?.retain(|_, (_, ends, _)| ends > now)?;
    writing.commit()?;
    Ok(())
}

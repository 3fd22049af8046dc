//! Bindings in a file of this process.
//!
//! The file is there for the next process: memory holds all that is in it, and is filled from it at start. One
//! thread writes. It takes together what has come while it was busy, so that many who wait share one `fsync`, and
//! none of the threads that serve calls waits for a disk.
//!
//! INVARIANT: a claim that was granted is on disk. One that could not be written is refused, and the file is
//! opened anew before it is written to again: after a failed write nobody knows what is in it.

mod log;
mod records;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use tokio::sync::oneshot;

pub(super) use self::log::Log;
use self::writer::{Opener, Task, Writer};
use super::{Unavailable, key::Key, once::Once, store::Claim};
use crate::telemetry::Clock;

/// Digest → kind, when it ends in milliseconds since the Unix epoch, owner.
type Row = (u8, u64, &'static str);

const TABLE: TableDefinition<'_, [u8; 32], Row> = TableDefinition::new("owners");

/// The file's name in its folder.
const FILE: &str = "state.redb";

/// Most claims and releases that wait for the disk.
const QUEUE: usize = 4096;

/// Bytes of the file that are kept in memory beside the table of our own.
const CACHE: usize = 4 << 20;

/// A file with bindings.
#[derive(Debug)]
pub(super) struct Embedded {
    tasks: SyncSender<Task>,
    health: Arc<Health>,
    /// What was in the file when it was opened.
    found: Vec<Found>,
}

/// A binding that an earlier process left.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) owner: Arc<str>,
}

/// How the writer is doing.
#[derive(Debug)]
struct Health {
    available: AtomicBool,
    failures: AtomicU64,
}

/// Why the file can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder can't be made.
    #[error("`{path}` can't be made")]
    Directory {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Another process has it open, or it is damaged.
    #[error("`{path}` can't be opened")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<redb::Error>,
    },
    /// What was used before can't be read, or what is used now not be written.
    #[error("`once.0` and `once.1` in `{path}` can't be opened")]
    Log {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// There is no thread for it.
    #[error("the writer can't be started")]
    Thread(#[source] io::Error),
}

impl Embedded {
    /// Opens the files in a folder; all are made if they aren't there, for their owner only.
    pub(super) fn open(directory: &Path, now: Duration) -> Result<(Self, Once), OpenError> {
        make_directory(directory)
            .map_err(|source| OpenError::Directory { path: directory.to_owned(), source })?;
        let path = directory.join(FILE);
        let (opening, begun) = (path.clone(), !path.exists());
        let file = Self::start(Box::new(move || open_file(&opening)))
            .map_err(|source| OpenError::File { path, source: Box::new(source) })?
            .map_err(OpenError::Thread)?;
        // Nobody else has them open: the file before is of one process.
        let once = log::open(directory, begun, now)
            .map_err(|source| OpenError::Log { path: directory.to_owned(), source })?;
        Ok((file, once))
    }

    fn start(open: Opener) -> Result<io::Result<Self>, redb::Error> {
        let database = open()?;
        let found = read(&database, millis(Clock.unix()))?;
        let health =
            Arc::new(Health { available: AtomicBool::new(true), failures: AtomicU64::new(0) });
        let (tasks, queue) = sync_channel(QUEUE);
        let writer = Writer::new(database, open, Arc::clone(&health));
        let thread = thread::Builder::new().name("lictor-state".to_owned());
        Ok(thread.spawn(move || writer.run(&queue)).map(|_thread| Self { tasks, health, found }))
    }

    /// What an earlier process left; once.
    pub(super) fn take_found(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    pub(super) async fn claim(
        &self,
        key: &Key,
        owner: &Arc<str>,
        ttl: Duration,
    ) -> Result<Claim, Unavailable> {
        let (answer, answered) = oneshot::channel();
        let ends = millis(Clock.unix().saturating_add(ttl));
        let claim = Task::Claim { key: *key, owner: Arc::clone(owner), ends, answer };
        self.tasks.try_send(claim).map_err(|_| {
            self.health.failures.fetch_add(1, Ordering::Relaxed);
            Unavailable
        })?;
        answered.await.unwrap_or(Err(Unavailable))
    }

    pub(super) fn release(&self, key: &Key, owner: &str) {
        let release = Task::Release { key: *key, owner: owner.into() };
        if self.tasks.try_send(release).is_err() {
            tracing::debug!("a binding that has ended can't be released; it ends with its time");
        }
    }

    pub(super) fn available(&self) -> bool {
        self.health.available.load(Ordering::Relaxed)
    }

    pub(super) fn failures(&self) -> u64 {
        self.health.failures.load(Ordering::Relaxed)
    }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn open_file(path: &Path) -> Result<Database, DatabaseError> {
    use std::os::unix::fs::OpenOptionsExt;
    // redb would make it for everybody to read.
    let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    made.map_err(|error| DatabaseError::Storage(error.into()))?;
    Database::builder().set_cache_size(CACHE).create(path)
}

/// Everything that has not ended by `now`, in milliseconds since the Unix epoch.
fn read(database: &Database, now: u64) -> Result<Vec<Found>, redb::Error> {
    let reading = database.begin_read()?;
    let table = match reading.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in table.iter()? {
        let (key, value) = entry?;
        let (kind, ends, owner) = value.value();
        let key = Key::from_stored(kind, key.value());
        found.extend(key.filter(|_| ends > now).map(|key| Found { key, owner: owner.into() }));
    }
    Ok(found)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

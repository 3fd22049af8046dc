//! The tamper-evident record of every call.
//!
//! Entries go into one hash chain per process that writes, in JSONL segments that can be read and verified without
//! this program (`docs/ledger.md`). One thread writes; callers either wait until their entry is durable
//! ([`Ledger::intent`]) or leave it in a bounded queue ([`Ledger::record`]). All that is queued is
//! committed together, so the cost of a sync is shared by everybody who waits for it.
//!
//! INVARIANT: a call that may change state is forwarded only after its intent is durable.
//! INVARIANT: `record` never blocks on the disk, never fails and works from `Drop`; [`Ledger::admits`]
//! refuses calls early enough that it need not lose anything.
//! INVARIANT: nobody waits without limit for a disk that hangs, neither a call nor the end of the process.
//!
//! Refuses: a second writer, other than one that takes over by agreement ([`Ledger::succeed`]), a chain
//! that is damaged anywhere but in a half-written end, a chain of another identity, and calls while the
//! disk refuses or hangs ([`OnFailure`]).

mod chains;
mod check;
mod entry;
mod genesis;
mod line;
mod list;
mod queue;
mod recovery;
mod replace;
mod segment;
pub mod settings;
mod stamp;
mod verify;
mod writer;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::time::timeout;

pub use self::{
    check::Fault,
    entry::{Behalf, Decision, Entry, Event, Mode, Revocation},
    genesis::{Genesis, Previous, SignFn, SignedBy, Signer},
    line::{Hash, link_hash, unescape},
    list::{Filter, ListError, Row, Rows, find, list, printable},
    recovery::OpenError,
    replace::{ReplaceError, Replaced, replace},
    settings::{OnFailure, Settings},
    verify::{Damage, Gap, Report, Torn, verify, verify_all},
};
use self::{
    line::{Body, Tip},
    queue::{Limits, Queue},
    recovery::Opened,
    segment::{Segments, Store},
    stamp::Stamp,
    writer::Writer,
};

/// The ledger can't take an entry now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The disk refuses, and an attempt is made every second; or it hangs, for more than five seconds.
    #[error("the ledger can't write")]
    Failing,
    /// The entry has not become durable within five seconds. It may yet.
    #[error("the ledger takes too long to write")]
    Stalled,
    /// Too many entries wait already.
    #[error("too many entries wait for the ledger")]
    Backlog,
    /// The ledger is closed.
    #[error("the ledger is closed")]
    Closed,
}

/// How the ledger is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Number of durable entries, which is the sequence number of the next one.
    pub durable: u64,
    /// Entries queued or being written.
    pub backlog: usize,
    /// Commits since the start.
    pub commits: u64,
    /// How long the last one took, write and sync.
    pub last_commit: Duration,
    /// Entries lost since the start.
    pub lost: u64,
    /// The error of the last attempt while writing fails, or that a commit takes too long.
    pub failure: Option<String>,
}

/// A handle on the one chain that this process writes. Cloning is cheap; the writer ends with
/// [`Ledger::close`] or with the last handle, whose drop waits for the last commit too.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chain: Arc<str>,
    /// Where the chain is that this one follows, until it is known how that one ended.
    predecessor: Mutex<Option<PathBuf>>,
    queue: Arc<Queue>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Ledger {
    /// Opens the chain in the settings' directory, or begins one, and starts its writer. Replays what is
    /// there, so it takes time in proportion to it, and blocks.
    ///
    /// # Errors
    /// If another writer is there, the chain is damaged or of another identity, or the disk refuses.
    pub fn open(settings: Settings, genesis: Genesis) -> Result<Self, OpenError> {
        let opened = recovery::open(&settings.directory, &genesis)?;
        Self::of(opened, &settings)
    }

    /// Begins a chain in the settings' directory that follows the one that another process still writes there,
    /// and starts its writer. `previous` is what that process says of it ([`Ledger::tip`]); whether it is so is
    /// for [`verify_all`] to say.
    ///
    /// # Errors
    /// If that chain isn't there, another one is damaged, or the disk refuses.
    pub fn succeed(
        settings: Settings,
        genesis: Genesis,
        previous: &Previous,
    ) -> Result<Self, OpenError> {
        let opened = recovery::succeed(&settings.directory, &genesis, previous)?;
        Self::of(opened, &settings)
    }

    fn of(opened: Opened, settings: &Settings) -> Result<Self, OpenError> {
        let queue = |tip| Queue::new(settings, tip, Limits::default());
        Self::start(opened, |segments: Segments| segments, queue).map_err(|source| OpenError::Io {
            directory: settings.directory.clone(),
            verb: "written",
            source,
        })
    }

    fn start<S: Store + 'static>(
        opened: Opened,
        store: impl FnOnce(Segments) -> S,
        queue: impl FnOnce(Tip) -> Queue,
    ) -> io::Result<Self> {
        let Opened { chain, tip, segments, lock, owed, noted, predecessor } = opened;
        let mut writer = Writer::new(Arc::clone(&chain), tip, store(segments), lock);
        let now = Stamp::now();
        writer.append(owed.iter().map(|body| (now, body)))?;
        noted.iter().try_for_each(|directory| replace::forget(directory))?;
        let queue = Arc::new(queue(writer.tip()));
        let thread = thread::Builder::new().name("ledger".to_owned()).spawn({
            let queue = Arc::clone(&queue);
            move || writer.run(&queue)
        })?;
        Ok(Self(Arc::new(Shared {
            chain,
            predecessor: Mutex::new(predecessor),
            queue,
            writer: Mutex::new(Some(thread)),
        })))
    }

    /// Id of the chain.
    pub fn chain(&self) -> &str {
        &self.0.chain
    }

    /// How far the chain is durable.
    pub fn tip(&self) -> Previous {
        Previous::at(&self.0.chain, self.0.queue.tip())
    }

    /// Whether it is known how the chain ended that this one follows, if it does.
    pub fn is_settled(&self) -> bool {
        self.0.predecessor().is_none()
    }

    /// Looks whether the writer of the chain that this one follows has ended. If so, closes what that left open,
    /// and records here how it ended. Blocks, and does nothing once [`Ledger::is_settled`].
    ///
    /// # Errors
    /// As long as somebody writes there, and if that chain is damaged or the disk refuses.
    pub fn settle(&self) -> Result<(), OpenError> {
        // Not under the lock: a long chain takes its time.
        let Some(directory) = self.0.predecessor().clone() else { return Ok(()) };
        let ended = recovery::settle(&directory)?;
        let first = self.0.predecessor().take().is_some();
        if let (Some((previous, _)), true) = (ended, first) {
            self.0.queue.push(Body::Settled { previous });
        }
        Ok(())
    }

    /// Whether a call needs an intent before it is forwarded: if it may change state, and all calls if
    /// the settings say so.
    pub fn needs_intent(&self, class_may_change_state: bool) -> bool {
        self.0.queue.needs_intent(class_may_change_state)
    }

    /// Asked before a call is let in: whether there is room for its entries. Cheap.
    ///
    /// # Errors
    /// While the disk refuses or has hung for five seconds, for the calls that [`OnFailure`] names; while more than
    /// 65,536 entries wait, and after closing, for all.
    pub fn admits(&self, class_may_change_state: bool) -> Result<(), Unavailable> {
        self.0.queue.admits(class_may_change_state)
    }

    /// Writes an entry and waits until it is durable, for five seconds at most. If the future is dropped, or the time
    /// is over, the entry may still be written, and then wants a closing entry like any other.
    ///
    /// # Errors
    /// If it could not be made durable. But for [`Unavailable::Stalled`], the entry is not in the chain then and
    /// won't be.
    pub async fn intent(&self, entry: Entry) -> Result<(), Unavailable> {
        self.durable(Body::Call(entry)).await
    }

    async fn durable(&self, body: Body) -> Result<(), Unavailable> {
        let acked = self.0.queue.push_awaited(body)?;
        match timeout(self.0.queue.patience(), acked).await {
            Ok(acked) => acked.unwrap_or(Err(Unavailable::Closed)),
            Err(_elapsed) => Err(Unavailable::Stalled),
        }
    }

    /// Queues an entry; it is durable within the commit interval. Never blocks on the disk, never fails;
    /// may be called from `Drop` and from any thread, with or without a runtime.
    pub fn record(&self, entry: Entry) {
        self.0.queue.push(Body::Call(entry));
    }

    /// Queues a record of what is in force from now on; called at the start and after each reload.
    pub fn record_config(&self, policy_version: Arc<str>, config_sha256: Option<[u8; 32]>) {
        self.0.queue.push(Body::Config { policy_version, config_sha256 });
    }

    /// Queues a record that something was revoked. Never waits: a revocation is in force whatever the disk says.
    pub fn record_revocation(&self, revocation: Revocation) {
        self.0.queue.push(Body::Revocation(Box::new(revocation)));
    }

    /// Records that a revocation will be lifted, and waits until that is durable, for five seconds at most.
    ///
    /// # Errors
    /// If it could not be made durable. The entry is not in the chain then and won't be; or it may yet, and after it
    /// one that says that the revocation stays.
    pub async fn record_lifting(&self, revocation: Revocation) -> Result<(), Unavailable> {
        let stays = Revocation { lifted: false, ..revocation.clone() };
        let recorded = self.durable(Body::Revocation(Box::new(revocation))).await;
        if recorded == Err(Unavailable::Stalled) {
            self.record_revocation(stays);
        }
        recorded
    }

    /// Returns when everything queued before has been committed, or when writing fails (see
    /// [`Status::failure`]) or has taken five seconds.
    pub async fn flush(&self) {
        // An error means that writing fails, or that the writer has ended, after its last commit.
        let _ = timeout(self.0.queue.patience(), self.0.queue.push_flush()).await;
    }

    /// Commits what is queued, ends the writer and releases the directory; blocks for that long, as long as no
    /// commit takes more than five seconds. Other handles refuse and lose entries from here on.
    pub fn close(self) {
        self.0.close();
    }

    /// How the ledger is doing.
    pub fn status(&self) -> Status {
        self.0.queue.status()
    }
}

impl Shared {
    fn predecessor(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.predecessor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.queue.close();
        let thread = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if !self.queue.has_ended() {
            // Nobody knows when it will; the next start closes what is left open.
            let entries = self.queue.status().backlog;
            tracing::error!(
                entries,
                "the disk hangs; the ledger ends without knowing its last entries written"
            );
        } else if thread.join().is_err() {
            tracing::error!("the ledger's writer panicked");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;

//! [`Register`]: keeps the snapshot current, and changes what is revoked.
//!
//! What is revoked is in force here at once, and written where every replica reads it; the others look for changes
//! four times a second. What can't be read leaves the last snapshot in force; what a store has lost
//! (a Redis that came back empty, or from an older copy) is written to it again, since losing is no lifting.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use uuid::Uuid;

use super::{LONGEST_TEXT, Revocation, Revocations, Subject, Unreadable, What};
use crate::{
    ledger::{self, Ledger},
    state::{Keeping, Mark, Records, Unavailable},
    telemetry::{Clock, Metrics, metrics::RevocationReading},
};

/// How often it is looked for changes of others, and for what is over.
const LOOK: Duration = Duration::from_millis(250);

/// Most revocations at once. All of them are in memory, and a group is better named by a prefix.
const MOST: usize = 10_000;

/// How long something that is over stays where it is kept, in seconds: clocks of replicas differ.
const AFTERLIFE: u64 = 60;

/// What is revoked, and how that changes.
#[derive(Debug)]
pub struct Register {
    current: ArcSwap<Revocations>,
    /// Tells that there is another snapshot.
    changes: watch::Sender<()>,
    /// What snapshots are made from.
    table: Mutex<Table>,
    /// The store, for one change or reading at a time: an older reading must not undo a change.
    desk: tokio::sync::Mutex<Desk>,
    keeping: Keeping,
    ledger: Ledger,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Table {
    /// Whether the store was ever read.
    known: bool,
    /// What the store has.
    kept: BTreeMap<Uuid, Arc<Revocation>>,
    /// What it has still to be told.
    owed: BTreeMap<Uuid, Arc<Revocation>>,
}

#[derive(Debug)]
struct Desk {
    records: Records,
    /// `None` before the first reading.
    mark: Option<Mark>,
    /// Whether the last visit failed.
    stale: bool,
}

/// Something that was revoked.
#[derive(Clone, Debug)]
pub struct Revoked {
    /// It.
    pub revocation: Arc<Revocation>,
    /// Whether it is kept, and so in force on every replica within a second. If not, it is in force here, and the
    /// store will be told as soon as it answers.
    pub kept: bool,
}

/// What is kept can't be read at the start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store doesn't answer.
    #[error("the revocations can't be read")]
    Unavailable(#[from] Unavailable),
    /// It has something that isn't known here.
    #[error("the revocations can't be understood")]
    Unreadable(#[from] Unreadable),
}

/// Why nothing was changed, or perhaps not everywhere.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The reason, or who gives it, is empty, too long or has control characters.
    #[error("`{0}` has 1 to {LONGEST_TEXT} bytes and no control characters")]
    Text(&'static str),
    /// Its time is over already.
    #[error("the time until which it holds is over")]
    Over,
    /// There are too many.
    #[error("there are {MOST} revocations already; lift some, or revoke a prefix")]
    Full,
    /// No such revocation.
    #[error("there is no revocation `{0}`")]
    Unknown(Uuid),
    /// It can't be forgotten where it is kept.
    #[error("it can't be lifted now: {0}")]
    Store(#[from] Unavailable),
    /// It can't be recorded that it is lifted.
    #[error("it can't be lifted now: {0}")]
    Ledger(#[from] ledger::Unavailable),
}

impl Register {
    /// Reads what is kept. Without a Redis that answers, nothing is known, and so everything is refused until it
    /// does; a file that can't be read is no place to start from.
    ///
    /// # Errors
    /// If the file of this process can't be read or understood.
    pub async fn open(
        records: Records,
        ledger: Ledger,
        metrics: Metrics,
    ) -> Result<Self, OpenError> {
        let keeping = records.keeping();
        let register = Self {
            current: ArcSwap::from_pointee(Revocations::unknown()),
            changes: watch::Sender::new(()),
            table: Mutex::default(),
            desk: tokio::sync::Mutex::new(Desk { records, mark: None, stale: false }),
            keeping,
            ledger,
            metrics,
        };
        match (register.visit().await, keeping) {
            (Ok(()), _) | (Err(_), Keeping::Shared) => Ok(register),
            (Err(error), Keeping::Memory | Keeping::File) => Err(error),
        }
    }

    /// What is revoked now.
    pub fn current(&self) -> Arc<Revocations> {
        self.current.load_full()
    }

    /// Tells of every snapshot that comes after the one that is current now.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Where it is kept.
    pub fn keeping(&self) -> Keeping {
        self.keeping
    }

    /// Revokes something: here at once, whatever the store says, and everywhere within a second once that has
    /// it. `until` is in Unix seconds.
    ///
    /// # Errors
    /// If it makes no sense, or there are too many. Nothing has changed then.
    pub async fn revoke(
        &self,
        subject: Subject,
        reason: &str,
        by: &str,
        until: Option<u64>,
    ) -> Result<Revoked, ChangeError> {
        check("reason", reason)?;
        check("by", by)?;
        let (id, at) = (Uuid::now_v7(), Clock.unix().as_secs());
        let (reason, by) = (reason.into(), by.into());
        let revocation = Arc::new(Revocation { id, subject, reason, by, at, until });
        if revocation.is_over(at) {
            return Err(ChangeError::Over);
        }
        self.change(|table| {
            if table.kept.len() + table.owed.len() >= MOST {
                return Err(ChangeError::Full);
            }
            table.owed.insert(id, Arc::clone(&revocation));
            Ok(())
        })?;
        self.ledger.record_revocation(written(&revocation, false));
        tracing::warn!(
            revocation = %id,
            subject = revocation.subject.what().as_str(),
            value = &*revocation.subject.value(),
            by = &*revocation.by,
            "revoked"
        );
        let kept = self.settle(&*self.desk.lock().await).await.is_ok();
        Ok(Revoked { revocation, kept })
    }

    /// Lifts a revocation; the one that it was.
    ///
    /// # Errors
    /// If there is none, or this can't be recorded or written where it is kept. It stays in force then.
    pub async fn lift(&self, id: Uuid) -> Result<Arc<Revocation>, ChangeError> {
        let desk = self.desk.lock().await;
        let revocation =
            self.current().entry(id).map(Arc::clone).ok_or(ChangeError::Unknown(id))?;
        self.ledger.record_lifting(written(&revocation, true)).await?;
        desk.records.remove(id).await?;
        self.change(|table| {
            table.kept.remove(&id);
            table.owed.remove(&id);
        });
        tracing::warn!(revocation = %id, "a revocation was lifted");
        Ok(revocation)
    }

    /// Follows what others change, and ends what is over, for as long as it is polled.
    pub async fn follow(&self) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            // An error was told where it occurred.
            drop(self.visit().await);
            let now = Clock.unix().as_secs();
            if self.current.load().entries().any(|entry| entry.is_over(now)) {
                self.change(|_| ());
            }
        }
    }

    /// Tells the store what it doesn't know and reads what has changed in it.
    async fn visit(&self) -> Result<(), OpenError> {
        let mut desk = self.desk.lock().await;
        // What can't be written is no reason not to hear of others.
        let settled = self.settle(&desk).await;
        let visited = match self.read(&mut desk).await {
            Ok(()) => settled.and(self.sweep(&desk).await).map_err(OpenError::from),
            Err(error) => Err(error),
        };
        let in_force = self.current.load();
        match &visited {
            Err(error) if !desk.stale => {
                let known = in_force.is_known();
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                tracing::error!(%error, cause, known, "revocations can't be read; those that are known stay");
            }
            Ok(()) if desk.stale => tracing::info!("revocations can be read again"),
            Ok(()) | Err(_) => {}
        }
        desk.stale = visited.is_err();
        self.metrics.set_revocations(&RevocationReading {
            in_force: What::ALL.map(|what| (what.as_str(), in_force.count(what))),
            current: in_force.is_known() && visited.is_ok(),
        });
        visited
    }

    async fn settle(&self, desk: &Desk) -> Result<(), Unavailable> {
        let owed: Vec<_> = self.table().owed.values().cloned().collect();
        for entry in owed {
            desk.records.put(entry.id, &entry.to_text()).await?;
            self.change(|table| {
                table.owed.remove(&entry.id);
                table.kept.insert(entry.id, entry);
            });
        }
        Ok(())
    }

    async fn read(&self, desk: &mut Desk) -> Result<(), OpenError> {
        let Some(read) = desk.records.read(desk.mark.as_ref()).await? else { return Ok(()) };
        let mut kept = BTreeMap::new();
        for (id, text) in &read.records {
            kept.insert(*id, Arc::new(Revocation::from_text(*id, text)?));
        }
        let lost = desk.mark.as_ref().is_some_and(|earlier| !read.mark.follows(earlier));
        desk.mark = Some(read.mark);
        self.change(|table| {
            let before = std::mem::replace(&mut table.kept, kept);
            table.known = true;
            if lost {
                let missing = before.into_iter().filter(|(id, _)| !table.kept.contains_key(id));
                table.owed.extend(missing.collect::<Vec<_>>());
                let restored = table.owed.len();
                tracing::warn!(
                    restored,
                    "the state store has lost revocations; they are written again"
                );
            }
        });
        Ok(())
    }

    /// Forgets what has been over for a while.
    async fn sweep(&self, desk: &Desk) -> Result<(), Unavailable> {
        let then = Clock.unix().as_secs().saturating_sub(AFTERLIFE);
        let over = |it: &&Arc<Revocation>| it.is_over(then);
        let over: Vec<_> = self.table().kept.values().filter(over).map(|it| it.id).collect();
        for id in over {
            desk.records.remove(id).await?;
            self.table().kept.remove(&id);
        }
        Ok(())
    }

    /// Changes what is revoked, and puts that in force.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let changed = change(&mut table);
        let now = Clock.unix().as_secs();
        let entries = table.kept.values().chain(table.owed.values());
        let entries = entries.filter(|entry| !entry.is_over(now)).cloned();
        // Under the lock, so that the last change is what is in force.
        self.current.store(Arc::new(Revocations::of(table.known, entries)));
        self.changes.send_replace(());
        changed
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table whole, so a poisoned lock is usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(what: &'static str, text: &str) -> Result<(), ChangeError> {
    let fine = (1..=LONGEST_TEXT).contains(&text.len()) && !text.chars().any(char::is_control);
    if fine { Ok(()) } else { Err(ChangeError::Text(what)) }
}

fn written(revocation: &Revocation, lifted: bool) -> ledger::Revocation {
    ledger::Revocation {
        id: revocation.id,
        lifted,
        what: revocation.subject.what().as_str(),
        value: revocation.subject.value().into(),
        reason: revocation.reason.clone(),
        by: revocation.by.clone(),
        until: revocation.until,
    }
}

//! A disk that hangs: no error, and no end.

use std::sync::Condvar;

use super::*;
use crate::ledger::recovery;

/// Longer than any disk of a test takes, unless it was told to hang.
const PATIENCE: Duration = Duration::from_millis(700);
const BACKLOG: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Works,
    Hangs,
    Refuses,
}

/// What a sync meets; those that hang see it change.
#[derive(Clone, Debug)]
struct Gate(Arc<(Mutex<Disk>, Condvar)>);

impl Gate {
    fn turn(&self, disk: Disk) {
        *self.0.0.lock().expect("a gate") = disk;
        self.0.1.notify_all();
    }

    fn pass(&self) -> io::Result<()> {
        let disk = self.0.0.lock().expect("a gate");
        let disk = self.0.1.wait_while(disk, |disk| *disk == Disk::Hangs).expect("a gate");
        match *disk {
            Disk::Works | Disk::Hangs => Ok(()),
            Disk::Refuses => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }
}

#[derive(Debug)]
struct Gated(Segments, Gate);

impl Store for Gated {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.pass()?;
        self.0.sync()
    }

    fn resume(&mut self, next: u64) -> io::Result<()> {
        self.0.resume(next)
    }
}

fn gated(directory: &Path, on_failure: OnFailure) -> (Ledger, Gate) {
    let gate = Gate(Arc::new((Mutex::new(Disk::Works), Condvar::new())));
    let settings = Settings { on_failure, ..settings(directory) };
    let opened = recovery::open(directory, &Genesis::default()).expect("opens");
    let limits = Limits { backlog: BACKLOG, retry: Duration::from_millis(10), patience: PATIENCE };
    let store = |disk| Gated(disk, gate.clone());
    let ledger =
        Ledger::start(opened, store, |tip| Queue::new(&settings, tip, limits)).expect("starts");
    (ledger, gate)
}

/// Waits until it writes again, or not.
async fn until(ledger: &Ledger, writes: bool) {
    let deadline = Clock.instant() + Duration::from_secs(10);
    while ledger.status().failure.is_none() != writes {
        assert!(Clock.instant() < deadline, "{:?}", ledger.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn kinds(directory: &Path, call: u128) -> Vec<String> {
    let found = find(directory, &id(call)).expect("readable");
    found.into_iter().map(|row| row.kind).collect()
}

#[tokio::test]
async fn it_counts_as_one_that_refuses() {
    for (on_failure, reads) in
        [(OnFailure::DenyAll, Err(Unavailable::Failing)), (OnFailure::DenyWrites, Ok(()))]
    {
        let directory = directory();
        let (ledger, gate) = gated(directory.path(), on_failure);
        ledger.intent(entry(Event::Intent, 1)).await.expect("durable");
        gate.turn(Disk::Hangs);
        let began = Clock.instant();
        assert_eq!(ledger.admits(true), Ok(()));
        let waited = ledger.intent(entry(Event::Intent, 2)).await;
        assert_eq!(waited, Err(Unavailable::Stalled));
        ledger.record(entry(Event::Denied, 2));
        until(&ledger, false).await;
        assert!((PATIENCE..PATIENCE * 5).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!((ledger.admits(true), ledger.admits(false)), (Err(Unavailable::Failing), reads));
        // Nobody waits any more.
        let began = Clock.instant();
        assert_eq!(ledger.intent(entry(Event::Intent, 3)).await, Err(Unavailable::Failing));
        ledger.record(entry(Event::Denied, 3));
        ledger.flush().await;
        assert!(began.elapsed() < PATIENCE);
        gate.turn(Disk::Works);
        until(&ledger, true).await;
        assert_eq!((ledger.admits(true), ledger.admits(false)), (Ok(()), Ok(())));
        ledger.intent(entry(Event::Intent, 1)).await.expect("durable again");
        ledger.record(entry(Event::Outcome, 1));
        assert_eq!(ledger.status().lost, 0);
        ledger.close();
        let report = sound(directory.path());
        assert!(report.dangling.is_empty() && report.gaps.is_empty(), "{report:?}");
        // It was under way when its caller was refused.
        assert_eq!(kinds(directory.path(), 2), ["intent", "denied"]);
        assert_eq!(kinds(directory.path(), 3), ["denied"]);
    }
}

#[tokio::test]
async fn what_it_refuses_in_the_end_is_not_in_the_chain() {
    let directory = directory();
    let (ledger, gate) = gated(directory.path(), OnFailure::DenyWrites);
    gate.turn(Disk::Hangs);
    assert_eq!(ledger.intent(entry(Event::Intent, 1)).await, Err(Unavailable::Stalled));
    ledger.record(entry(Event::Denied, 1));
    gate.turn(Disk::Refuses);
    let deadline = Clock.instant() + Duration::from_secs(10);
    while !ledger.status().failure.is_some_and(|told| told.contains("storage")) {
        assert!(Clock.instant() < deadline, "{:?}", ledger.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gate.turn(Disk::Works);
    until(&ledger, true).await;
    ledger.close();
    assert!(sound(directory.path()).dangling.is_empty());
    assert_eq!(kinds(directory.path(), 1), ["denied"]);
}

#[tokio::test]
async fn what_reads_leave_behind_is_bounded() {
    let directory = directory();
    let (ledger, gate) = gated(directory.path(), OnFailure::DenyWrites);
    gate.turn(Disk::Hangs);
    ledger.record(entry(Event::Outcome, 0));
    until(&ledger, false).await;
    for call in 1..BACKLOG as u128 + 3 {
        assert_eq!(ledger.admits(false), Ok(()));
        ledger.record(entry(Event::Outcome, call));
    }
    let status = ledger.status();
    assert_eq!((status.backlog, status.lost), (BACKLOG, 3));
    gate.turn(Disk::Works);
    until(&ledger, true).await;
    ledger.close();
    let report = sound(directory.path());
    let gaps: Vec<_> = report.gaps.iter().map(|gap| gap.count).collect();
    assert_eq!((report.entries, gaps), (1 + BACKLOG as u64 + 1, vec![3]));
}

#[tokio::test]
async fn a_lifting_that_was_given_up_is_taken_back() {
    let directory = directory();
    let (ledger, gate) = gated(directory.path(), OnFailure::DenyWrites);
    let revocation = Revocation {
        id: Uuid::from_u128(7),
        lifted: true,
        what: "tool",
        value: "files/delete".into(),
        reason: "over".into(),
        by: "operator".into(),
        until: None,
    };
    gate.turn(Disk::Hangs);
    assert_eq!(ledger.record_lifting(revocation).await, Err(Unavailable::Stalled));
    gate.turn(Disk::Works);
    until(&ledger, true).await;
    ledger.close();
    let rows = rows(directory.path());
    let told: Vec<_> = rows.iter().filter(|row| row.kind == "revocation").collect();
    let told: Vec<_> = told.iter().filter_map(|row| row.status.as_deref()).collect();
    assert_eq!(told, ["lifted", "revoked"]);
}

#[tokio::test]
async fn it_holds_up_no_end() {
    let directory = directory();
    let (ledger, gate) = gated(directory.path(), OnFailure::DenyWrites);
    ledger.intent(entry(Event::Intent, 1)).await.expect("durable");
    gate.turn(Disk::Hangs);
    ledger.record(entry(Event::Outcome, 1));
    let began = Clock.instant();
    ledger.flush().await;
    ledger.close();
    assert!(began.elapsed() < PATIENCE * 5, "{:?}", began.elapsed());
    // Here, unlike at the end of a process, the writer goes on.
    gate.turn(Disk::Works);
    let deadline = Clock.instant() + Duration::from_secs(10);
    while recovery::open(directory.path(), &Genesis::default()).is_err() {
        assert!(Clock.instant() < deadline, "the writer never ended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(kinds(directory.path(), 1), ["intent", "outcome"]);
}

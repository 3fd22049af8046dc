//! A disk that refuses, at the seam where batches meet it.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
};

use super::*;
use crate::ledger::recovery;

/// What the next calls into the store do; nothing left means that all goes well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Half of the bytes arrive.
    Append,
    /// The bytes may or may not have arrived.
    Sync,
    Resume,
}

#[derive(Clone, Debug, Default)]
struct Plan(Arc<Mutex<VecDeque<Fault>>>);

impl Plan {
    fn add(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.lock().expect("plan").extend(faults);
    }

    fn clear(&self) {
        self.0.lock().expect("plan").clear();
    }

    fn strikes(&self, fault: Fault) -> io::Result<()> {
        let mut plan = self.0.lock().expect("plan");
        match plan.front() == Some(&fault) {
            true => {
                plan.pop_front();
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Faulty {
    disk: Segments,
    plan: Plan,
}

impl Store for Faulty {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.plan.strikes(Fault::Append) {
            self.disk.append(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.disk.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.plan.strikes(Fault::Sync)?;
        self.disk.sync()
    }

    fn resume(&mut self, next: u64) -> io::Result<()> {
        self.plan.strikes(Fault::Resume)?;
        self.disk.resume(next)
    }
}

fn faulty(directory: &Path, on_failure: OnFailure, retry: Duration) -> (Ledger, Plan) {
    let plan = Plan::default();
    // Only what a test waits for starts a commit.
    let settings = Settings { on_failure, commit_interval: NEVER, ..settings(directory) };
    let opened = recovery::open(directory, &Genesis::default()).expect("opens");
    let store = |disk| Faulty { disk, plan: plan.clone() };
    let ledger = Ledger::start(opened, store, |tip| {
        Queue::new(&settings, tip, Limits { backlog: BACKLOG, retry, patience: NEVER })
    })
    .expect("starts");
    (ledger, plan)
}

const BACKLOG: usize = 100;
const SOON: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_refused_intent_is_not_in_the_chain_and_what_nobody_waited_for_is() {
    for faults in [
        vec![Fault::Append],
        vec![Fault::Sync],
        vec![Fault::Sync, Fault::Resume, Fault::Append, Fault::Sync],
    ] {
        let directory = directory();
        let (ledger, plan) = faulty(directory.path(), OnFailure::DenyWrites, SOON);
        ledger.intent(entry(Event::Intent, 1)).await.expect("durable");
        plan.add(faults.clone());
        ledger.record(entry(Event::Outcome, 1));
        let refused = ledger.intent(entry(Event::Intent, 2)).await;
        assert_eq!(refused, Err(Unavailable::Failing), "{faults:?}");
        ledger.record(entry(Event::Denied, 2));
        let deadline = Clock.instant() + Duration::from_secs(10);
        while ledger.status().failure.is_some() {
            assert!(Clock.instant() < deadline, "never recovered");
            tokio::task::yield_now().await;
        }
        ledger.intent(entry(Event::Intent, 3)).await.expect("durable again");
        assert_eq!(ledger.status().lost, 0);
        ledger.close();

        let report = sound(directory.path());
        assert_eq!((report.dangling, report.gaps.len()), (vec![id(3)], 1), "{faults:?}");
        assert_eq!(report.gaps[0].count, 0);
        let kinds = |call| -> Vec<_> {
            let found = find(directory.path(), &id(call)).expect("readable");
            found.into_iter().map(|row| row.kind).collect()
        };
        assert_eq!(kinds(1), ["intent", "outcome"]);
        assert_eq!(kinds(2), ["denied"], "{faults:?}");
        assert_eq!(segment::segments(directory.path()).expect("readable").len(), 2);
    }
}

#[tokio::test]
async fn while_the_disk_refuses_calls_are_refused_as_configured() {
    for (on_failure, reads) in
        [(OnFailure::DenyAll, Err(Unavailable::Failing)), (OnFailure::DenyWrites, Ok(()))]
    {
        let directory = directory();
        let (ledger, plan) = faulty(directory.path(), on_failure, NEVER);
        assert_eq!((ledger.admits(true), ledger.admits(false)), (Ok(()), Ok(())));
        plan.add([Fault::Sync]);
        assert_eq!(ledger.intent(entry(Event::Intent, 1)).await, Err(Unavailable::Failing));
        assert_eq!(ledger.admits(true), Err(Unavailable::Failing));
        assert_eq!(ledger.admits(false), reads);
        assert_eq!(ledger.intent(entry(Event::Intent, 2)).await, Err(Unavailable::Failing));
        assert!(ledger.status().failure.is_some());
        // Closing makes a last attempt.
        ledger.record(entry(Event::Denied, 1));
        ledger.close();
        assert_eq!(find(directory.path(), &id(1)).expect("readable").len(), 1);
    }
}

#[tokio::test]
async fn what_does_not_fit_any_more_is_counted_and_said() {
    let directory = directory();
    let (ledger, plan) = faulty(directory.path(), OnFailure::DenyWrites, NEVER);
    plan.add([Fault::Append]);
    assert_eq!(ledger.intent(entry(Event::Intent, 1)).await, Err(Unavailable::Failing));
    for call in 0..BACKLOG as u128 + 3 {
        ledger.record(entry(Event::Outcome, call));
    }
    let status = ledger.status();
    assert_eq!((status.backlog, status.lost), (BACKLOG, 3));
    ledger.close();
    let report = sound(directory.path());
    assert_eq!(report.entries, 1 + BACKLOG as u64 + 1);
    assert_eq!(report.gaps, [Gap { seq: BACKLOG as u64 + 1, count: 3 }]);
}

#[tokio::test]
async fn a_disk_that_never_comes_back_does_not_keep_the_process() {
    let directory = directory();
    let (ledger, plan) = faulty(directory.path(), OnFailure::DenyWrites, NEVER);
    ledger.intent(entry(Event::Intent, 1)).await.expect("durable");
    plan.add([Fault::Append, Fault::Resume]);
    ledger.record(entry(Event::Outcome, 1));
    ledger.flush().await;
    let clone = ledger.clone();
    ledger.close();
    assert_eq!(clone.status().lost, 1);
    drop(clone);
    plan.clear();
    // Half a line is on the disk; the restart says so, and that the call's end is unknown.
    assert!(sound(directory.path()).torn.is_some());
    open(directory.path()).close();
    let statuses: Vec<_> =
        rows(directory.path()).into_iter().filter_map(|row| row.status).collect();
    assert_eq!(statuses, ["torn", "unknown"]);
}

#[test]
fn a_full_backlog_refuses_new_calls_before_anything_is_lost() {
    let directory = directory();
    let settings = settings(directory.path());
    let queue = Queue::new(
        &settings,
        Tip { next: 1, ..Tip::GENESIS },
        Limits { backlog: BACKLOG, retry: NEVER, patience: NEVER },
    );
    for call in 0..BACKLOG as u128 {
        assert_eq!(queue.admits(false), Ok(()));
        queue.push(Body::Call(entry(Event::Outcome, call)));
    }
    assert_eq!(queue.admits(false), Err(Unavailable::Backlog));
    assert_eq!(queue.admits(true), Err(Unavailable::Backlog));
    queue.push(Body::Call(entry(Event::Outcome, 0)));
    let status = queue.status();
    assert_eq!((status.backlog, status.lost), (BACKLOG + 1, 0));
}

use std::{fs, path::Path};

use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::telemetry::Clock;

mod chains;
mod damage;
mod failure;
mod hanging;

pub(super) fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

pub(super) fn settings(directory: &Path) -> Settings {
    Settings {
        directory: directory.to_owned(),
        commit_interval: Duration::from_millis(5),
        read_intent: false,
        on_failure: OnFailure::DenyWrites,
    }
}

pub(super) fn open(directory: &Path) -> Ledger {
    Ledger::open(settings(directory), Genesis::default()).expect("opens")
}

pub(super) fn entry(event: Event, call: u128) -> Entry {
    let mut entry =
        Entry::new(event, Uuid::from_u128(call), "spiffe://td/agent".into(), "inbound".into());
    entry.method = Some("tools/call".into());
    entry
}

pub(super) fn id(call: u128) -> String {
    Uuid::from_u128(call).to_string()
}

pub(super) fn rows(directory: &Path) -> Vec<Row> {
    list(directory, Filter::default()).expect("readable").collect::<Result<_, _>>().expect("rows")
}

pub(super) fn sound(directory: &Path) -> Report {
    let report = verify(directory).expect("readable");
    assert_eq!(report.damage, None);
    report
}

#[tokio::test]
async fn an_acknowledged_intent_is_on_disk() {
    let directory = directory();
    let ledger = open(directory.path());
    ledger.intent(entry(Event::Intent, 1)).await.expect("durable");
    let found = find(directory.path(), &id(1)).expect("readable");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind.as_str(), found[0].seq), ("intent", 1));
    assert_eq!(ledger.status().durable, 2);
    assert_eq!(sound(directory.path()).dangling, [id(1)]);
}

#[test]
fn records_need_no_runtime_and_closing_commits_them() {
    let directory = directory();
    let ledger = open(directory.path());
    for call in 0..5000 {
        ledger.record(entry(Event::Outcome, call));
    }
    ledger.close();
    let report = sound(directory.path());
    assert_eq!((report.entries, report.signed_by), (5001, Some(SignedBy::Itself)));
    assert!(report.dangling.is_empty() && report.torn.is_none());
}

#[tokio::test]
async fn a_record_is_durable_within_the_interval_and_flush_hurries_it() {
    let directory = directory();
    let slow =
        Settings { commit_interval: Duration::from_secs(3600), ..settings(directory.path()) };
    let ledger = Ledger::open(slow, Genesis::default()).expect("opens");
    ledger.record(entry(Event::Outcome, 1));
    ledger.flush().await;
    assert_eq!(rows(directory.path()).len(), 2);
    ledger.close();

    let ledger = open(directory.path());
    ledger.record(entry(Event::Outcome, 2));
    let deadline = Clock.instant() + Duration::from_secs(10);
    while ledger.status().durable < 3 {
        assert!(Clock.instant() < deadline, "never committed");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_writers_make_one_chain() {
    let directory = directory();
    let ledger = open(directory.path());
    let calls: Vec<_> = (0..200)
        .map(|call| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                ledger.intent(entry(Event::Intent, call)).await.expect("durable");
                ledger.record(entry(Event::Outcome, call));
            })
        })
        .collect();
    for call in calls {
        call.await.expect("done");
    }
    let commits = ledger.status().commits;
    ledger.close();
    let report = sound(directory.path());
    assert_eq!((report.entries, report.dangling.len()), (401, 0));
    assert!(commits < 200, "{commits} commits for 200 intents");
}

#[test]
fn one_writer_at_a_time() {
    let directory = directory();
    let ledger = open(directory.path());
    let second = Ledger::open(settings(directory.path()), Genesis::default());
    assert!(matches!(second, Err(OpenError::InUse(_))), "{second:?}");
    let clone = ledger.clone();
    ledger.close();
    open(directory.path());
    assert_eq!(clone.admits(false), Err(Unavailable::Closed));
}

#[test]
fn the_last_handle_ends_the_writer() {
    let directory = directory();
    let ledger = open(directory.path());
    ledger.record(entry(Event::Outcome, 1));
    drop(ledger);
    drop(open(directory.path()));
    assert_eq!(rows(directory.path()).len(), 2);
}

#[tokio::test]
async fn after_closing_nothing_is_promised() {
    let directory = directory();
    let ledger = open(directory.path());
    ledger.clone().close();
    assert_eq!(ledger.intent(entry(Event::Intent, 1)).await, Err(Unavailable::Closed));
    ledger.record(entry(Event::Outcome, 1));
    assert_eq!(ledger.status().lost, 1);
    ledger.flush().await;
}

#[test]
fn a_restart_goes_on_with_the_chain() {
    let directory = directory();
    for run in 0..3 {
        let ledger = open(directory.path());
        ledger.record(entry(Event::Outcome, run));
        ledger.record_config("v1".into(), Some([1; 32]));
        ledger.close();
    }
    assert_eq!(sound(directory.path()).entries, 7);
}

#[test]
fn what_needs_an_intent() {
    let directory = directory();
    let ledger = open(directory.path());
    assert_eq!((ledger.needs_intent(true), ledger.needs_intent(false)), (true, false));
    ledger.close();
    let all = Settings { read_intent: true, ..settings(directory.path()) };
    let ledger = Ledger::open(all, Genesis::default()).expect("opens");
    assert!(ledger.needs_intent(false));
}

#[test]
fn the_chain_belongs_to_an_identity() {
    let identity = |id: &str| Genesis { spiffe_id: Some(id.to_owned()), signer: None };
    let directory = directory();
    let ledger =
        Ledger::open(settings(directory.path()), identity("spiffe://td/a")).expect("opens");
    assert!(ledger.chain().starts_with("spiffe://td/a#"), "{}", ledger.chain());
    ledger.close();
    drop(Ledger::open(settings(directory.path()), identity("spiffe://td/a")).expect("opens"));
    let other = Ledger::open(settings(directory.path()), identity("spiffe://td/b"));
    assert!(matches!(other, Err(OpenError::OtherIdentity { .. })), "{other:?}");
    sound(directory.path());
}

#[test]
fn filters() {
    let directory = directory();
    let ledger = open(directory.path());
    for call in 1..=5 {
        let mut entry = entry(Event::Outcome, call << 120);
        if call % 2 == 0 {
            (entry.decision, entry.peer) = (Decision::Deny, "other".into());
            entry.method = None;
        }
        ledger.record(entry);
    }
    ledger.close();
    let some = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    for (filter, seqs) in [
        (all(), vec![0, 1, 2, 3, 4, 5]),
        (Filter { call_id: some("02"), ..all() }, vec![2]),
        (Filter { peer: some("other"), ..all() }, vec![2, 4]),
        (Filter { decision: some("none"), ..all() }, vec![1, 3, 5]),
        (Filter { method: some("tools/call"), ..all() }, vec![1, 3, 5]),
        (Filter { last: Some(2), ..all() }, vec![4, 5]),
        (Filter { last: Some(0), ..all() }, vec![]),
        (Filter { last: Some(1), peer: some("other"), ..all() }, vec![4]),
        (Filter { since: some("1970"), until: some("9999"), ..all() }, vec![0, 1, 2, 3, 4, 5]),
        (Filter { since: some("9999"), ..all() }, vec![]),
        (Filter { until: some("1970"), ..all() }, vec![]),
    ] {
        let rows = list(directory.path(), filter.clone()).expect("readable");
        let found: Vec<_> = rows.map(|row| row.expect("a row").seq).collect();
        assert_eq!(found, seqs, "{filter:?}");
    }
}

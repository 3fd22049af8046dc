//! One ledger, several chains: what an upgrade begins, and what ends at any place of it leave.

use super::*;
use crate::ledger::check::Fault;

fn succeed(directory: &Path, previous: &Previous) -> Ledger {
    Ledger::succeed(settings(directory), Genesis::default(), previous).expect("begins")
}

fn all(directory: &Path) -> Vec<(std::path::PathBuf, Report)> {
    verify_all(directory).expect("readable")
}

/// What is wrong, with the place among the chains and the entry.
fn faults(directory: &Path) -> Vec<(usize, u64, Fault)> {
    let reports = all(directory).into_iter().enumerate();
    reports.filter_map(|(at, (_, report))| report.damage.map(|it| (at, it.seq, it.fault))).collect()
}

/// Removes whole lines from the end of a chain.
fn cut(directory: &Path, lines: usize) {
    let path = directory.join(segment::file_name(0));
    let text = fs::read_to_string(&path).expect("readable");
    let kept = text.lines().count() - lines;
    let text: String = text.lines().take(kept).map(|line| format!("{line}\n")).collect();
    fs::write(path, text).expect("written");
}

#[tokio::test]
async fn two_chains_are_written_and_read_together() {
    let directory = directory();
    let here = directory.path();
    let old = open(here);
    old.intent(entry(Event::Intent, 1)).await.expect("durable");
    let tip = old.tip();
    assert_eq!((&*tip.chain, tip.entries), (old.chain(), 2));
    let new = succeed(here, &tip);
    assert_ne!(new.chain(), old.chain());
    for call in 2..6 {
        let ledger = if call % 2 == 0 { &new } else { &old };
        ledger.intent(entry(Event::Intent, call)).await.expect("durable");
        ledger.record(entry(Event::Outcome, call));
        ledger.flush().await;
    }
    old.record(entry(Event::Outcome, 1));
    old.flush().await;
    assert_eq!(faults(here), []);
    let calls: Vec<_> = rows(here).into_iter().filter_map(|row| row.call_id).collect();
    let expected = [1, 2, 2, 3, 3, 4, 4, 5, 5, 1].map(id);
    assert_eq!(calls, expected, "in order of time");
    assert_eq!(find(here, &id(3)).expect("readable").len(), 2);
    assert_eq!(find(here, &id(4)).expect("readable").len(), 2);
    let reports = all(here);
    assert_eq!(reports[1].1.previous.as_ref(), Some(&tip));
    assert_eq!(reports[1].0, here.join("upgraded-0001"));
    assert!(reports.iter().all(|(_, report)| report.dangling.is_empty()));
    let last = Filter { last: Some(1), ..Filter::default() };
    let last: Vec<_> = list(here, last).expect("readable").collect();
    assert_eq!(last[0].as_ref().expect("a row").call_id, Some(id(1)));
}

#[tokio::test]
async fn the_successor_says_how_the_chain_before_it_ended() {
    let directory = directory();
    let here = directory.path();
    let old = open(here);
    let new = succeed(here, &old.tip());
    old.intent(entry(Event::Intent, 1)).await.expect("durable");
    assert!(!new.is_settled());
    assert!(matches!(new.settle(), Err(OpenError::InUse(_))));
    // As a crash leaves it: an intent without an end, and half a line.
    old.close();
    let path = here.join(segment::file_name(0));
    let torn = fs::read_to_string(&path).expect("readable") + "{\"half";
    fs::write(&path, torn).expect("written");
    new.settle().expect("settled");
    assert!(new.is_settled());
    new.settle().expect("nothing more to do");
    new.close();
    assert_eq!(faults(here), []);
    let kinds: Vec<_> = rows(here).into_iter().map(|row| row.kind).collect();
    assert_eq!(kinds, ["genesis", "genesis", "intent", "recovered", "recovered", "settled"]);
    // Whatever is cut off from then on is missed.
    cut(here, 1);
    assert_eq!(faults(here), [(1, 1, Fault::Previous(sound(here).chain.expect("a chain")))]);
    open(here).close();
    assert_eq!(faults(here).len(), 1, "nothing covers it up");
}

/// Links one more line to a chain, as anybody can who may write the file.
fn forge(directory: &Path, fields: &str) {
    let (report, path) = (sound(directory), directory.join(segment::file_name(0)));
    let (chain, head) = (report.chain.expect("a chain"), report.head.expect("a head"));
    let entry = format!(
        r#"{{"chain":"{chain}",{fields},"seq":{},"ts":"2099-01-01T00:00:00.000000Z","v":1}}"#,
        report.entries,
    );
    let hash = data_encoding::HEXLOWER.encode(&link_hash(&head, entry.as_bytes()));
    let text = fs::read_to_string(&path).expect("readable");
    fs::write(path, format!("{text}{entry}\t{hash}\n")).expect("written");
}

#[test]
fn what_is_added_to_a_chain_that_has_ended_is_a_forgery() {
    for fields in [r#""kind":"outcome""#, r#""kind":"denied""#, r#""kind":"recovered""#] {
        let directory = directory();
        let here = directory.path();
        let old = open(here);
        let new = succeed(here, &old.tip());
        old.record(entry(Event::Outcome, 1));
        let chain = old.chain().to_owned();
        old.close();
        forge(here, r#""kind":"config""#);
        assert_eq!(faults(here), [], "nobody has said yet how it ended");
        new.settle().expect("settled");
        new.close();
        assert_eq!(faults(here), []);
        forge(here, fields);
        assert_eq!(faults(here), [(1, 1, Fault::Outgrown(chain.clone()))], "{fields}");
        open(here).close();
        assert_eq!(faults(here), [(1, 1, Fault::Outgrown(chain))], "nothing covers it up");
    }
    // Half a line is told before a start makes an entry of it.
    let directory = directory();
    let here = directory.path();
    let old = open(here);
    let new = succeed(here, &old.tip());
    let chain = old.chain().to_owned();
    old.close();
    new.settle().expect("settled");
    new.close();
    let path = here.join(segment::file_name(0));
    let text = fs::read_to_string(&path).expect("readable");
    fs::write(&path, text + "{\"half").expect("written");
    assert_eq!(faults(here), [(1, 1, Fault::Outgrown(chain.clone()))]);
    open(here).close();
    assert_eq!(faults(here), [(1, 1, Fault::Outgrown(chain))]);
}

#[test]
fn nobody_else_starts_while_one_of_them_is_written() {
    let directory = directory();
    let here = directory.path();
    let old = open(here);
    let new = succeed(here, &old.tip());
    let refused = || match Ledger::open(settings(here), Genesis::default()) {
        Err(OpenError::InUse(directory)) => directory,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(), here);
    old.close();
    assert_eq!(refused(), here.join("upgraded-0001"));
    new.record(entry(Event::Intent, 1));
    let chain = new.chain().to_owned();
    new.close();
    // The newest goes on, and says what nobody was there to say.
    for _ in 0..2 {
        let next = open(here);
        assert_eq!(next.chain(), chain);
        assert!(next.is_settled());
        next.close();
        let kinds: Vec<_> = rows(here).into_iter().skip(2).map(|row| row.kind).collect();
        assert_eq!(kinds, ["intent", "recovered", "settled"]);
        assert_eq!(faults(here), []);
    }
}

#[test]
fn an_upgrade_that_came_to_nothing_is_in_nobodys_way() {
    let directory = directory();
    let here = directory.path();
    let old = open(here);
    // One that ended before its first entry was durable, and one that ended later.
    fs::create_dir(here.join("upgraded-0001.new")).expect("a directory");
    fs::write(here.join("upgraded-0001.new").join(segment::file_name(0)), "{\"ha").expect("half");
    assert_eq!(all(here).len(), 1);
    succeed(here, &old.tip()).close();
    old.record(entry(Event::Outcome, 1));
    let third = succeed(here, &old.tip());
    assert!(!here.join("upgraded-0001.new").exists());
    old.close();
    third.settle().expect("settled");
    let fourth = succeed(here, &third.tip());
    third.close();
    fourth.settle().expect("settled");
    fourth.close();
    assert_eq!(all(here).len(), 4);
    assert_eq!(faults(here), []);
    let other = Previous { chain: "local#other".to_owned(), entries: 1, head: String::new() };
    let refused = Ledger::succeed(settings(here), Genesis::default(), &other);
    assert!(matches!(refused, Err(OpenError::OtherLedger { .. })), "{refused:?}");
    assert_eq!(all(here).len(), 4);
}

#[tokio::test]
async fn what_is_missing_of_a_chain_before_is_told() {
    let made = || async {
        let directory = directory();
        let here = directory.path().to_owned();
        let first = open(&here);
        first.intent(entry(Event::Intent, 1)).await.expect("durable");
        let second = succeed(&here, &first.tip());
        first.close();
        second.settle().expect("settled");
        second.flush().await;
        let third = succeed(&here, &second.tip());
        let chain = second.chain().to_owned();
        second.close();
        third.settle().expect("settled");
        third.close();
        assert_eq!(faults(&here), []);
        (directory, here, chain)
    };
    let (_held, here, second) = made().await;
    fs::remove_dir_all(here.join("upgraded-0001")).expect("removed");
    assert_eq!(faults(&here), [(1, 0, Fault::PreviousMissing(second))]);

    let (_held, here, second) = made().await;
    cut(&here.join("upgraded-0001"), 1);
    assert_eq!(faults(&here), [(2, 0, Fault::Previous(second))]);

    let (_held, here, _) = made().await;
    cut(&here, 1);
    let first = sound(&here).chain.expect("a chain");
    assert_eq!(faults(&here), [(1, 1, Fault::Previous(first.clone()))]);
    cut(&here, 1);
    assert_eq!(faults(&here), [(1, 0, Fault::Previous(first))]);

    // A damaged one keeps everybody from starting, until somebody puts it aside.
    let (_held, here, _) = made().await;
    let path = here.join(segment::file_name(0));
    let damaged = fs::read_to_string(&path).expect("readable").replacen("intent", "intenT", 1);
    fs::write(&path, damaged).expect("written");
    let refused = Ledger::open(settings(&here), Genesis::default());
    assert!(matches!(&refused, Err(OpenError::Damaged { directory, .. }) if *directory == here));
    replace(&here).expect("put aside");
    open(&here).close();
    assert_eq!(faults(&here), []);
}

/// Two chains, of which the second says how the first ended; the id of each.
fn two(here: &Path) -> [String; 2] {
    let old = open(here);
    old.record(entry(Event::Outcome, 1));
    let new = succeed(here, &old.tip());
    let ids = [old.chain().to_owned(), new.chain().to_owned()];
    old.close();
    new.settle().expect("settled");
    new.close();
    assert_eq!(faults(here), []);
    ids
}

/// Where a chain is put aside.
fn place(here: &Path, chain: &str) -> std::path::PathBuf {
    here.join(format!("replaced-{}", chain.rsplit_once('#').expect("an id").1))
}

#[test]
fn a_directory_for_what_is_put_aside_excuses_no_chain_that_is_there() {
    let directory = directory();
    let here = directory.path();
    let [first, _] = two(here);
    cut(here, 1);
    let expected = [(1, 1, Fault::Previous(first.clone()))];
    fs::create_dir(place(here, &first)).expect("a directory");
    assert_eq!(faults(here), expected);
    fs::copy(here.join("chain"), place(here, &first).join("chain")).expect("copied");
    assert_eq!(faults(here), expected);
    // Nor does an empty one excuse a chain that is gone.
    for name in ["chain", &segment::file_name(0)] {
        fs::remove_file(here.join(name)).expect("removed");
    }
    fs::remove_file(place(here, &first).join("chain")).expect("removed");
    assert_eq!(faults(here), [(1, 0, Fault::PreviousMissing(first))]);
}

#[test]
fn the_newest_chain_names_what_was_put_aside_of_the_others() {
    let directory = directory();
    let here = directory.path();
    let [first, second] = two(here);
    let before = sound(here);
    let replaced = replace(here).expect("put aside");
    assert!(!replaced.newest);
    assert_eq!((&replaced.previous.chain, replaced.previous.entries), (&first, before.entries));
    assert_eq!(replace(here).expect("done already").moved_to, replaced.moved_to);
    let note = fs::read(here.join("previous.json")).expect("a note");
    let told = || {
        let rows = rows(here).into_iter().filter(|row| row.kind == "replaced");
        rows.map(|row| (row.chain, row.json)).collect::<Vec<_>>()
    };
    assert_eq!((faults(here), told()), (vec![], vec![]));
    // Twice as if it had been cut short before the note was forgotten, and once more.
    for _ in 0..2 {
        fs::write(here.join("previous.json"), &note).expect("written");
        open(here).close();
    }
    open(here).close();
    assert!(!here.join("previous.json").exists());
    let told = told();
    let [(chain, json)] = &*told else { panic!("{told:?}") };
    assert_eq!(chain, &second);
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(json["previous"], serde_json::to_value(&replaced.previous).expect("JSON"));
    assert_eq!(faults(here), []);
    assert_eq!(all(here)[1].1.put_aside, [first.clone()].into());

    // Restored, it is what everybody says of it again.
    for name in ["chain", &segment::file_name(0)] {
        fs::rename(place(here, &first).join(name), here.join(name)).expect("moved");
    }
    open(here).close();
    assert_eq!(faults(here), []);
    assert!(all(here)[1].1.put_aside.is_empty());
}

#[test]
fn an_upgrade_names_what_was_put_aside_too() {
    let directory = directory();
    let here = directory.path();
    let [first, _] = two(here);
    let second = open(here);
    replace(here).expect("put aside");
    let third = succeed(here, &second.tip());
    second.close();
    third.settle().expect("settled");
    let chain = third.chain().to_owned();
    third.close();
    assert_eq!(faults(here), []);
    let rows = rows(here).into_iter().filter(|row| row.kind == "replaced");
    let told: Vec<_> = rows.map(|row| (row.chain, row.json.contains(&first))).collect();
    assert_eq!(told, [(chain, true)]);
}

#[test]
fn every_chain_but_the_newest_is_settled_by_one_that_is_there() {
    let directory = directory();
    let here = directory.path();
    let first = open(here);
    // One that comes to nothing, one that follows, and one that follows that.
    succeed(here, &first.tip()).close();
    let third = succeed(here, &first.tip());
    first.close();
    third.settle().expect("settled");
    let fourth = succeed(here, &third.tip());
    let ids = [id_of(here, "upgraded-0001"), third.chain().to_owned()];
    third.close();
    fourth.settle().expect("settled");
    fourth.close();
    assert_eq!(faults(here), []);
    // What the newest said of the third is gone with it.
    replace(&here.join("upgraded-0003")).expect("put aside");
    for _ in 0..2 {
        open(here).close();
        assert_eq!(faults(here), []);
        let rows = list(&here.join("upgraded-0003"), Filter::default()).expect("readable");
        let rows = rows.map(|row| row.expect("a row")).filter(|row| row.kind == "settled");
        let told: Vec<_> =
            rows.map(|row| ids.iter().position(|id| row.json.contains(id))).collect();
        assert_eq!(told, [Some(0), Some(1)]);
    }
    for (name, id, seq) in [("upgraded-0001", &ids[0], 1), ("upgraded-0002", &ids[1], 2)] {
        let path = here.join(name).join(segment::file_name(0));
        let text = fs::read_to_string(&path).expect("readable");
        forge(&here.join(name), r#""kind":"config""#);
        assert_eq!(faults(here), [(3, seq, Fault::Outgrown(id.clone()))], "{name}");
        fs::write(path, text).expect("written");
    }
    cut(&here.join("upgraded-0002"), 1);
    assert_eq!(faults(here), [(3, 2, Fault::Previous(ids[1].clone()))]);
}

/// The id of the chain in a directory of this name.
fn id_of(here: &Path, name: &str) -> String {
    sound(&here.join(name)).chain.expect("a chain")
}

#[test]
fn the_directory_of_a_later_chain_is_never_empty() {
    let directory = directory();
    let here = directory.path();
    let [_, second] = two(here);
    let later = here.join("upgraded-0001");
    assert!(replace(&later).expect("put aside").newest);
    assert_eq!(faults(here), [], "somebody put it aside");
    open(here).close();
    assert_eq!(faults(here), []);
    let reports = all(here);
    let previous = reports[1].1.previous.as_ref().expect("named");
    assert_eq!(previous.chain, second);

    fs::remove_dir_all(&later).expect("removed");
    fs::create_dir(&later).expect("a directory");
    assert_eq!(faults(here), [(1, 0, Fault::Emptied)]);
    let refused = Ledger::open(settings(here), Genesis::default());
    assert!(
        matches!(&refused, Err(OpenError::Damaged { source, .. }) if source.fault == Fault::Emptied)
    );
    assert_eq!(faults(here), [(1, 0, Fault::Emptied)]);
}

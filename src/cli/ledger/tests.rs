use std::{fs, time::Duration};

use clap::Parser;
use uuid::Uuid;

use super::*;
use crate::ledger::{Decision, Entry, Event, Genesis, OnFailure, Settings};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    ledger: Ledger,
}

fn run(directory: &Path, arguments: &[&str]) -> (ExitCode, String, String) {
    let [command, rest @ ..] = arguments else { panic!("no command") };
    let directory = directory.to_str().expect("text");
    let line = ["ledger", command, directory].into_iter().chain(rest.iter().copied());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let line = Line::try_parse_from(line).expect("a command line");
    let code = line.ledger.run(&mut out, &mut err).expect("written");
    (code, String::from_utf8(out).expect("text"), String::from_utf8(err).expect("text"))
}

fn write(directory: &Path) {
    let settings = Settings {
        directory: directory.to_owned(),
        commit_interval: Duration::from_millis(1),
        read_intent: false,
        on_failure: OnFailure::DenyWrites,
    };
    let ledger = ledger::Ledger::open(settings, Genesis::default()).expect("opens");
    let mut entry =
        Entry::new(Event::Outcome, Uuid::from_u128(1), "spiffe://td/a".into(), "in".into());
    (entry.method, entry.target) = (Some("tools/call".into()), Some("p\u{430}y\u{1b}[2J".into()));
    (entry.decision, entry.status, entry.latency_us) = (Decision::Permit, Some("ok"), Some(12_034));
    ledger.record(entry);
    ledger.close();
}

fn segment(directory: &Path) -> PathBuf {
    directory.join("00000000000000000000.jsonl")
}

#[test]
fn verify_says_how_far() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, out, _) = run(directory.path(), &["verify"]);
    assert_eq!(code, ExitCode::from(2));
    assert!(out.contains("nothing is proven"), "{out}");

    write(directory.path());
    let (code, out, _) = run(directory.path(), &["verify"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(out.contains("complete up to entry 1; nothing here proves what came after"), "{out}");
    assert!(out.contains("signed    by itself"), "{out}");

    let text = fs::read_to_string(segment(directory.path())).expect("text");
    fs::write(segment(directory.path()), text.replace("\"ok\"", "\"ko\"")).expect("written");
    let (code, out, _) = run(directory.path(), &["verify"]);
    assert_eq!(code, ExitCode::from(1));
    assert!(out.starts_with("DAMAGED at entry 1 (`00000000000000000000.jsonl`, byte "), "{out}");

    let (code, _, err) = run(&directory.path().join("none"), &["verify"]);
    assert_eq!(code, ExitCode::from(66));
    assert!(err.contains("none"), "{err}");
}

#[test]
fn list_prints_a_table_that_is_safe_to_look_at() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path());
    let (code, out, err) = run(directory.path(), &["list", "--peer", "spiffe://td/a"]);
    assert_eq!((code, err.as_str()), (ExitCode::SUCCESS, ""));
    assert!(out.starts_with("SEQ"), "{out}");
    assert!(out.contains("p\\u{430}y\\u{1b}[2J"), "{out}");
    assert!(out.contains("12.034"), "{out}");
    assert_eq!(out.lines().count(), 2, "{out}");

    // A file that somebody else wrote is not trusted either.
    let text = fs::read_to_string(segment(directory.path())).expect("text");
    let forged = text.replace("\"tools/call\"", "\"\u{202e}\\u001b[2J\"");
    fs::write(segment(directory.path()), forged).expect("written");
    let (_, out, _) = run(directory.path(), &["list"]);
    assert!(out.contains("\\u{202e}\\u{1b}[2J"), "{out}");
}

#[test]
fn list_prints_what_is_stored() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path());
    let (code, out, _) = run(directory.path(), &["list", "--json", "--last", "1"]);
    assert_eq!(code, ExitCode::SUCCESS);
    let stored = fs::read_to_string(segment(directory.path())).expect("text");
    let last = stored.lines().last().expect("a line");
    assert_eq!(out.trim_end(), last.split_once('\t').expect("a tab").0);
}

#[test]
fn list_shows_what_came_before_the_damage() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path());
    let mut text = fs::read_to_string(segment(directory.path())).expect("text");
    text.push_str("rubbish\n");
    fs::write(segment(directory.path()), text).expect("written");
    let (code, out, err) = run(directory.path(), &["list"]);
    assert_eq!((code, out.lines().count()), (ExitCode::from(1), 3), "{out}");
    assert!(err.contains("not an entry"), "{err}");
}

#[test]
fn a_broken_chain_is_replaced_by_one_that_names_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, _, err) = run(directory.path(), &["replace"]);
    assert_eq!(code, ExitCode::from(66));
    assert!(err.contains("holds no chain"), "{err}");

    write(directory.path());
    let before = ledger::verify(directory.path()).expect("readable");
    let text = fs::read_to_string(segment(directory.path())).expect("text");
    fs::write(segment(directory.path()), text.replace("\"ok\"", "\"ko\"")).expect("written");
    let (code, out, _) = run(directory.path(), &["replace"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(out.contains("1 entries verified"), "{out}");

    write(directory.path());
    let report = ledger::verify(directory.path()).expect("readable");
    assert!(report.damage.is_none());
    let previous = report.previous.expect("named");
    assert_eq!((Some(&previous.chain), previous.entries), (before.chain.as_ref(), 1));
    assert_ne!(report.chain, before.chain);
    let id = previous.chain.split_once('#').expect("an id").1;
    let old = ledger::verify(&directory.path().join(format!("replaced-{id}"))).expect("readable");
    assert_eq!(old.entries, 1);
    assert_eq!(previous.head, HEXLOWER.encode(&old.head.expect("a head")));
    let (_, out, _) = run(directory.path(), &["verify"]);
    assert!(out.contains(&format!("follows   {}: 1 entries", previous.chain)), "{out}");
    // The note has done its work.
    write(directory.path());
    assert!(!directory.path().join("previous.json").exists());
}

#[test]
fn replace_says_what_the_next_start_will_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = Settings {
        directory: directory.path().to_owned(),
        commit_interval: Duration::from_millis(1),
        read_intent: false,
        on_failure: OnFailure::DenyWrites,
    };
    let old = ledger::Ledger::open(settings.clone(), Genesis::default()).expect("opens");
    let new = ledger::Ledger::succeed(settings, Genesis::default(), &old.tip()).expect("begins");
    old.close();
    new.settle().expect("settled");
    new.close();
    let (code, out, _) = run(directory.path(), &["replace"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(out.contains("the next start goes on with the newest chain"), "{out}");
    write(directory.path());
    let (_, out, _) = run(directory.path(), &["verify"]);
    assert!(out.contains("\nput aside local#"), "{out}");
    let (_, out, _) = run(directory.path(), &["list"]);
    assert!(out.contains(" replaced "), "{out}");

    let (code, out, _) = run(&directory.path().join("upgraded-0001"), &["replace"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(out.contains("the next start begins a new chain that names this one"), "{out}");
}

#[test]
fn times_are_written_as_they_are_stored() {
    for good in ["2", "2026", "2026-11-29", "2026-11-29T08:30", "2026-11-29T08:30:00.000000Z"] {
        assert_eq!(time(good).as_deref(), Ok(good));
    }
    for bad in
        ["", "yesterday", "2026/11", "2026-11-29 08:30", "2026-11-29T08:30:00.000000Z0", "２"]
    {
        assert!(time(bad).is_err(), "{bad}");
    }
}

//! Kills a process that writes the ledger, again and again, and looks at what is left.
//!
//! The writer is this test binary itself, started with a variable that names the directory; it prints
//! each call id once its intent is acknowledged. After each kill: the chain verifies, with our verifier
//! and with one that shares no code with it, nothing that was acknowledged is missing, and after the next
//! start every intent has an end. While the victim lives nobody else can write. `LICTOR_CRASH_ROUNDS` sets the number of kills (20).

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test says with a panic what it did not expect"
)]

use std::{
    collections::{HashMap, HashSet},
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use lictor::ledger::{
    Entry, Event, Filter, Genesis, Ledger, OnFailure, OpenError, Settings, list, verify,
};
use uuid::Uuid;

const DIRECTORY: &str = "LICTOR_CRASH_DIRECTORY";
/// Rounds on one chain; then a fresh one, because each round looks at all of it.
const ROUNDS_PER_CHAIN: usize = 5;

fn settings(directory: &Path) -> Settings {
    Settings {
        directory: directory.to_owned(),
        commit_interval: Duration::from_millis(2),
        read_intent: false,
        on_failure: OnFailure::DenyWrites,
    }
}

fn open(directory: &Path) -> Ledger {
    Ledger::open(settings(directory), Genesis::default()).expect("opens after a crash")
}

#[test]
#[ignore = "the process that gets killed; does nothing by itself"]
fn victim() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let ledger = open(Path::new(&directory));
        let (peer, listener): (Arc<str>, Arc<str>) = ("spiffe://td/a".into(), "inbound".into());
        let callers = (0..16).map(|caller| {
            let (ledger, peer, listener) = (ledger.clone(), peer.clone(), listener.clone());
            tokio::spawn(async move {
                for call in 0_u64.. {
                    let id = Uuid::now_v7();
                    let mut entry = Entry::new(Event::Intent, id, peer.clone(), listener.clone());
                    ledger.intent(entry.clone()).await.expect("durable");
                    writeln!(std::io::stdout(), "acked {id}").expect("the parent reads");
                    // Some calls are still under way at any time.
                    if (call + caller) % 5 != 0 {
                        entry.event = Event::Outcome;
                        entry.status = Some("ok");
                        ledger.record(entry);
                    }
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("never ends");
        }
    });
}

#[test]
fn no_acknowledged_entry_is_lost_when_the_process_is_killed() {
    let rounds =
        env::var("LICTOR_CRASH_ROUNDS").map_or(20, |rounds| rounds.parse().expect("number"));
    let (mut torn, mut acked_total) = (0, 0);
    let mut left = rounds;
    while left > 0 {
        let directory = tempfile::tempdir().expect("a directory");
        let mut acked = HashSet::new();
        for _ in 0..left.min(ROUNDS_PER_CHAIN) {
            acked.extend(kill_one(directory.path()));
            torn += usize::from(check(directory.path(), &acked));
        }
        acked_total += acked.len();
        left -= left.min(ROUNDS_PER_CHAIN);
    }
    println!("{rounds} kills, {acked_total} acknowledged, {torn} torn tails");
    assert!(acked_total > 0, "the victim never wrote");
}

/// Lets a victim acknowledge some calls, up to 127, kills it, and returns what it said.
fn kill_one(directory: &Path) -> Vec<String> {
    let mut victim = Command::new(env::current_exe().expect("a path"))
        .args(["--exact", "victim", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a victim");
    let stdout = victim.stdout.take().expect("its output");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let ids = |line: String| line.strip_prefix("acked ").map(str::to_owned);
    let count = Uuid::now_v7().as_bytes()[15] / 2;
    let mut acked: Vec<_> = lines.by_ref().filter_map(ids).take(usize::from(count)).collect();
    if !acked.is_empty() {
        let second = Ledger::open(settings(directory), Genesis::default());
        assert!(matches!(second, Err(OpenError::InUse(_))), "two writers: {second:?}");
    }
    victim.kill().expect("killed");
    // What was in the pipe has been acknowledged too; a last line cut short has not been said.
    acked.extend(lines.filter_map(ids).filter(|id| id.len() == 36));
    victim.wait().expect("gone");
    acked
}

/// Whether the end was torn.
fn check(directory: &Path, acked: &HashSet<String>) -> bool {
    let begun = fs::read_dir(directory)
        .expect("a directory")
        .any(|file| file.expect("a file").file_name().to_string_lossy().ends_with(".jsonl"));
    let report = verify(directory).expect("readable");
    assert_eq!(report.damage, None);
    assert_eq!(independently_verified(directory), report.entries);
    assert!(begun || acked.is_empty());

    open(directory).close();
    let after = verify(directory).expect("readable");
    assert_eq!((after.damage, after.torn), (None, None));
    assert_eq!(after.dangling, Vec::<String>::new());
    assert_eq!(independently_verified(directory), after.entries);

    let mut kinds: HashMap<String, Vec<String>> = HashMap::new();
    for row in list(directory, Filter::default()).expect("readable") {
        let row = row.expect("an entry");
        kinds.entry(row.call_id.unwrap_or_default()).or_default().push(row.kind);
    }
    kinds.remove("");
    for id in acked {
        assert!(kinds.contains_key(id), "acknowledged call {id} is lost");
    }
    for (id, kinds) in kinds {
        assert_eq!(kinds.len(), 2, "{id}: {kinds:?}");
        assert_eq!(kinds[0], "intent", "{id}");
        assert!(["outcome", "recovered"].contains(&kinds[1].as_str()), "{id}: {kinds:?}");
    }
    report.torn.is_some()
}

/// Verifies with nothing but a JSON parser and another SHA-256; the number of whole entries.
fn independently_verified(directory: &Path) -> u64 {
    let mut segments: Vec<_> = fs::read_dir(directory)
        .expect("a directory")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    segments.sort();
    let (mut head, mut seq) = (vec![0; 32], 0);
    for segment in segments {
        let text = fs::read(segment).expect("readable");
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { continue };
        for line in text[..end].split(|byte| *byte == b'\n') {
            let (json, hex) = line.split_at(line.len() - 65);
            head.extend_from_slice(json);
            head = ring::digest::digest(&ring::digest::SHA256, &head).as_ref().to_vec();
            let hash: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(format!("\t{hash}").as_bytes(), hex, "entry {seq}");
            let entry: serde_json::Value = serde_json::from_slice(json).expect("JSON");
            assert_eq!(entry["seq"], seq);
            seq += 1;
        }
    }
    seq
}

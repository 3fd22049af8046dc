//! What crashes and other hands leave on the disk.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::ledger::{
    check::{Depth, Follower},
    line::{Tip, link_hash},
    segment::{Piece, file_name},
    verify::walk,
};

/// A chain of `calls` intents, each with its outcome; the bytes of its one segment.
fn chain(directory: &Path, calls: u128) -> Vec<u8> {
    let ledger = open(directory);
    for call in 1..=calls {
        ledger.record(entry(Event::Intent, call));
        ledger.record(entry(Event::Outcome, call));
    }
    ledger.close();
    fs::read(segment(directory)).expect("a segment")
}

fn segment(directory: &Path) -> std::path::PathBuf {
    directory.join(file_name(0))
}

fn torn_files(directory: &Path) -> usize {
    let files = fs::read_dir(directory).expect("a directory");
    files
        .filter(|file| {
            file.as_ref().expect("a file").path().display().to_string().contains(".torn-")
        })
        .count()
}

#[test]
fn a_tail_torn_at_any_byte_is_set_aside() {
    let directory = directory();
    let bytes = chain(directory.path(), 1);
    let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    for end in last..bytes.len() {
        fs::write(segment(directory.path()), &bytes[..end]).expect("cut");
        let report = walk(directory.path(), Depth::Links).expect("readable");
        let torn = report.torn.map_or(0, |torn| torn.bytes);
        assert_eq!((report.entries, torn), (2, (end - last) as u64), "cut at {end}");
    }
    for (round, end) in [last, last + 1, last + 100, bytes.len() - 1].into_iter().enumerate() {
        fs::write(segment(directory.path()), &bytes[..end]).expect("cut");
        open(directory.path()).close();
        assert_eq!(torn_files(directory.path()), round, "cut at {end}");
        let rows = rows(directory.path());
        let statuses: Vec<_> = rows.iter().skip(2).filter_map(|row| row.status.clone()).collect();
        // The chain was cut back behind the records of earlier rounds' pieces, so they come again.
        let expected = [vec!["torn"; round], vec!["unknown"]].concat();
        assert_eq!(statuses, expected, "cut at {end}");
        assert_eq!(rows.last().expect("rows").call_id, Some(id(1)));
        assert!(sound(directory.path()).dangling.is_empty());
        open(directory.path()).close();
        assert_eq!(self::rows(directory.path()).len(), rows.len(), "recovered twice");
    }
}

#[test]
fn a_flipped_byte_is_found_where_it_is() {
    let directory = directory();
    let bytes = chain(directory.path(), 1);
    let mut seq = 0;
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        fs::write(segment(directory.path()), &bad).expect("written");
        let report = walk(directory.path(), Depth::Links).expect("readable");
        if at + 1 == bytes.len() {
            // Without its line end the last entry is a torn one.
            assert!(report.damage.is_none() && report.torn.is_some() && report.entries == seq);
            break;
        }
        let damage = report.damage.expect("damage");
        assert_eq!((damage.seq, report.entries), (seq, seq), "byte {at}");
        if at % 97 == 0 {
            let opened = Ledger::open(settings(directory.path()), Genesis::default());
            assert!(matches!(opened, Err(OpenError::Damaged { .. })), "byte {at}: {opened:?}");
        }
        seq += u64::from(bytes[at] == b'\n');
    }
}

#[test]
fn lines_cannot_be_moved() {
    let directory = directory();
    let bytes = chain(directory.path(), 3);
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    type Change = fn(&mut Vec<&[u8]>);
    let changes: [(&str, Change, u64); 6] = [
        ("delete", |lines| lines[3] = b"", 3),
        ("delete the first", |lines| lines[0] = b"", 0),
        ("swap", |lines| lines.swap(2, 3), 2),
        ("duplicate", |lines| lines.insert(4, lines[4]), 5),
        ("empty line", |lines| lines.insert(4, b"\n"), 4),
        ("garbage", |lines| lines.insert(1, b"\xff\0\n"), 1),
    ];
    for (what, change, seq) in changes {
        let mut lines = lines.clone();
        change(&mut lines);
        fs::write(segment(directory.path()), lines.concat()).expect("written");
        let damage = verify(directory.path()).expect("readable").damage.expect(what);
        assert_eq!(damage.seq, seq, "{what}");
    }
}

#[test]
fn a_recomputed_chain_still_has_to_be_one() {
    let entry = |json: &str| {
        let hash = data_encoding::HEXLOWER.encode(&link_hash(&Tip::GENESIS.head, json.as_bytes()));
        format!("{json}\t{hash}")
    };
    let good = r#"{"chain":"c","kind":"genesis","seq":0,"ts":"2026-01-01T00:00:00.000000Z","v":1}"#;
    for (change, fault) in [
        (("", ""), Fault::Signature),
        (("\"v\":1", "\"v\":2"), Fault::Version(2)),
        (("\"seq\":0", "\"seq\":1"), Fault::Sequence(1)),
        (("genesis", "intent"), Fault::Genesis),
        (("genesis", "novel"), Fault::Kind("novel".to_owned())),
        (("2026-01", "2026-13"), Fault::Time("2026-13-01T00:00:00.000000Z".to_owned())),
        (("\"chain\":\"c\",", "\"chain\": \"c\","), Fault::NotCanonical),
        (("\"v\":1", "\"v\":1,\"x\":1e0"), Fault::NotCanonical),
        (("\"v\":1", "\"v\":1,\"x\":9007199254740993"), Fault::NotCanonical),
        (("\"v\":1", "\"v\":1,\"x\":1,\"x\":1"), Fault::NotCanonical),
        (
            ("\"seq\"", "\"peer\":7,\"seq\""),
            Fault::Json("invalid type: integer `7`, expected a string".to_owned()),
        ),
    ] {
        let line = entry(&good.replacen(change.0, change.1, 1));
        let mut follower = Follower::new(Depth::Everything);
        let found = follower.follow(Piece::Whole, line.as_bytes()).map(|_| ());
        assert_eq!(found, Err(fault), "{line}");
        assert_eq!(follower.tip, Tip::GENESIS);
    }
}

#[test]
fn an_entry_of_another_chain_or_time_does_not_follow() {
    for (change, fault) in [
        (("", ""), None),
        (("\"chain\":\"c\"", "\"chain\":\"d\""), Some(Fault::Chain("d".to_owned()))),
        (("2026", "2025"), Some(Fault::Time("2025-01-01T00:00:00.000000Z".to_owned()))),
        (("config", "genesis"), Some(Fault::Genesis)),
    ] {
        let mut follower = Follower::new(Depth::Links);
        let mut follow = |json: &str| {
            let hash = link_hash(&follower.tip.head, json.as_bytes());
            let line = format!("{json}\t{}", data_encoding::HEXLOWER.encode(&hash));
            follower.follow(Piece::Whole, line.as_bytes()).err()
        };
        let entry =
            r#"{"chain":"c","kind":"KIND","seq":SEQ,"ts":"2026-01-01T00:00:00.000000Z","v":1}"#;
        let entry = |kind, seq| entry.replace("KIND", kind).replace("SEQ", seq);
        assert_eq!(follow(&entry("genesis", "0")), None);
        assert_eq!(follow(&entry("config", "1").replacen(change.0, change.1, 1)), fault);
    }
}

#[test]
fn the_example_in_the_manual_verifies() {
    let manual = include_str!("../../../docs/ledger.md");
    let mut follower = Follower::new(Depth::Everything);
    let lines = manual.lines().filter(|line| line.starts_with("{\""));
    let kinds: Vec<_> = lines
        .map(|line| follower.follow(Piece::Whole, line.as_bytes()).expect("follows").kind)
        .collect();
    assert_eq!(kinds, ["genesis", "denied"]);
}

#[test]
fn a_lost_segment_or_key_is_not_a_new_beginning() {
    let directory = directory();
    let bytes = chain(directory.path(), 1);
    fs::remove_file(segment(directory.path())).expect("removed");
    let damage = verify(directory.path()).expect("readable").damage.expect("damage");
    assert!(matches!(damage.fault, Fault::Missing(_)), "{damage}");
    let opened = Ledger::open(settings(directory.path()), Genesis::default());
    assert!(matches!(opened, Err(OpenError::Damaged { .. })), "{opened:?}");

    fs::write(segment(directory.path()), "").expect("emptied");
    let damage = verify(directory.path()).expect("readable").damage.expect("damage");
    assert!(matches!(damage.fault, Fault::Missing(_)), "{damage}");
    let other = self::directory();
    fs::write(segment(directory.path()), chain(other.path(), 1)).expect("swapped");
    let damage = verify(directory.path()).expect("readable").damage.expect("damage");
    assert!(matches!(damage.fault, Fault::Chain(_)), "{damage}");
    fs::remove_file(segment(directory.path())).expect("removed");

    fs::write(directory.path().join(file_name(7)), &bytes).expect("written");
    let damage = verify(directory.path()).expect("readable").damage.expect("damage");
    assert_eq!(damage.fault, Fault::Segment(file_name(7)));
    fs::rename(directory.path().join(file_name(7)), segment(directory.path())).expect("renamed");

    fs::remove_file(directory.path().join("ledger.key")).expect("removed");
    let opened = Ledger::open(settings(directory.path()), Genesis::default());
    assert!(matches!(opened, Err(OpenError::Key { .. })), "{opened:?}");
}

#[test]
fn an_empty_directory_proves_nothing() {
    let directory = directory();
    let report = verify(directory.path()).expect("readable");
    assert_eq!((report.entries, report.chain, report.head), (0, None, None));
    assert!(verify(&directory.path().join("none")).is_err());
}

#[test]
fn a_first_start_that_was_cut_short_begins_again() {
    let directory = directory();
    let bytes = chain(directory.path(), 0);
    for end in [0, 1, bytes.len() - 1] {
        fs::remove_file(directory.path().join("chain")).expect("removed");
        fs::write(segment(directory.path()), &bytes[..end]).expect("cut");
        open(directory.path()).close();
        sound(directory.path());
    }
}

#[test]
fn the_key_file_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = directory();
    open(directory.path()).close();
    let key = directory.path().join("ledger.key");
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode(&key), mode(&segment(directory.path()))), (0o600, 0o600));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("changed");
    let opened = Ledger::open(settings(directory.path()), Genesis::default());
    assert!(matches!(opened, Err(OpenError::Key { .. })), "{opened:?}");

    let other = self::directory();
    open(other.path()).close();
    fs::copy(other.path().join("ledger.key"), &key).expect("copied");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("changed");
    let opened = Ledger::open(settings(directory.path()), Genesis::default());
    assert!(matches!(opened, Err(OpenError::Key { .. })), "{opened:?}");
}

#[test]
fn an_identity_that_cannot_sign_starts_nothing() {
    let directory = directory();
    let sign = Box::new(|_: &[u8]| Err("no key".into()));
    let signer = Some(Signer { algorithm: "ES256", certificates: Vec::new(), sign });
    let genesis = Genesis { spiffe_id: Some("spiffe://td/a".to_owned()), signer };
    let opened = Ledger::open(settings(directory.path()), genesis);
    assert!(matches!(opened, Err(OpenError::Sign(_))), "{opened:?}");
    assert_eq!(verify(directory.path()).expect("readable").entries, 0);
    open(directory.path()).close();
    sound(directory.path());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The fuzz target's law, on few inputs: whatever is linked, the verdict is not a panic.
    #[test]
    fn any_linked_lines_get_a_verdict(lines in vec("(\\PC|[{}\\[\\]\":,0-9]|\"(v|seq|ts|chain|kind)\":){0,30}", 0..5)) {
        let mut follower = Follower::new(Depth::Everything);
        for line in lines {
            let head = link_hash(&Tip::GENESIS.head, line.as_bytes());
            let line = format!("{line}\t{}", data_encoding::HEXLOWER.encode(&head));
            let fault = follower.follow(Piece::Whole, line.as_bytes()).expect_err("no genesis");
            prop_assert!(!fault.to_string().is_empty());
            prop_assert_eq!(follower.tip, Tip::GENESIS);
        }
    }
}

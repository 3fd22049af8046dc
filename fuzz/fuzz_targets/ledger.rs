//! A segment that somebody else wrote: verification and listing end with a verdict, never with a panic.
//!
//! Random bytes would not get past the hash, so each line of the input is taken for an entry and linked;
//! the parser behind the hash sees everything. Input that starts with NUL is taken as it is.

#![no_main]

use std::{fs, path::PathBuf, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use lictor::ledger::{Filter, link_hash, list, verify};

fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let name = format!("lictor-fuzz-ledger-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        directory
    })
}

fuzz_target!(|data: &[u8]| {
    let segment = match data.strip_prefix(b"\0") {
        Some(raw) => raw.to_vec(),
        None => linked(data),
    };
    let lines = segment.iter().filter(|byte| **byte == b'\n').count() as u64;
    fs::write(directory().join("00000000000000000000.jsonl"), segment).expect("written");

    let report = verify(directory()).expect("readable");
    assert!(report.entries <= lines);
    assert_eq!(report.head.is_some(), report.entries > 0);
    let listed = list(directory(), Filter::default()).expect("readable").flatten().count() as u64;
    assert!(listed >= report.entries && listed <= lines);
});

fn linked(data: &[u8]) -> Vec<u8> {
    let mut head = [0; 32];
    let mut segment = Vec::new();
    for json in data.split(|byte| *byte == b'\n') {
        head = link_hash(&head, json);
        segment.extend_from_slice(json);
        segment.push(b'\t');
        segment.extend(head.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        segment.push(b'\n');
    }
    segment
}

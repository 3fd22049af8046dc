//! Replays the corpus of every fuzz target.

use std::{fs, path::Path};

#[cfg(test)]
#[path = "../fuzz/fuzz_targets/checks.rs"]
mod checks;

#[cfg(test)]
fn replay(target: &str, check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(directory).expect("corpus") {
        let path = entry.expect("corpus entry").path();
        println!("{}", path.display());
        check(&fs::read(path).expect("readable entry"));
        count += 1;
    }
    assert!(count > 0, "no corpus for {target}");
}

#[test]
fn a2a_corpus() {
    replay("a2a", checks::a2a);
}

#[test]
fn a2a_answer_corpus() {
    replay("a2a_answer", checks::a2a_answer);
}

#[test]
fn delegation_corpus() {
    replay("delegation", checks::delegation);
}

#[test]
fn card_corpus() {
    replay("card", checks::card);
}

#[test]
fn json_corpus() {
    replay("json", checks::json);
}

#[test]
fn ledger_corpus() {
    replay("ledger", checks::ledger);
}

#[test]
fn mcp_corpus() {
    replay("mcp", checks::mcp);
}

#[test]
fn server_corpus() {
    replay("server", checks::server);
}

#[test]
fn web_corpus() {
    replay("web", checks::web);
}

#[test]
fn sse_corpus() {
    replay("sse", checks::sse);
}

//! `docs/compatibility.md`, whose tables tests write, and hold against what a run said.

use std::{env, fs, path::PathBuf};

/// Compares a table with the section under a heading, which ends where the next begins;
/// `LICTOR_WRITE_DOCS=1` writes it instead.
pub(crate) fn compare_with_document(heading: &str, table: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/compatibility.md");
    let document = fs::read_to_string(&path).expect("the document");
    let heading = format!("\n## {heading}\n\n");
    let (before, rest) = document.split_once(&heading).unwrap_or((&document, ""));
    let end = rest.find("\n## ").unwrap_or(rest.len());
    let (section, after) = rest.split_at(end);
    if env::var_os("LICTOR_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{before}{heading}{table}{after}")).expect("written");
    } else {
        assert_eq!(section, table, "LICTOR_WRITE_DOCS=1 writes the section anew");
    }
}

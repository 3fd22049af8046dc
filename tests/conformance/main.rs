//! The MCP conformance suite and the official client SDKs, through two Lictors and without them.
//!
//! The law: whatever passes against the fixture alone passes through the governed chain too, check by
//! check, and every client sees a refusal as an error of that one call. The suite, the fixture and the
//! clients are other people's software from the package registries; `make setup` installs them.

#![cfg(test)]

#[path = "../support/ca.rs"]
#[expect(dead_code, reason = "shared with tests that need every kind of bad certificate too")]
mod ca;
mod chain;
mod clients;
mod compatibility;
#[path = "../support/document.rs"]
mod document;
mod process;
#[path = "../support/programs.rs"]
mod programs;
mod reload;
mod suite;

use chain::{Wire, chain_to_command, governed_chain};
use suite::{Report, Selection};

/// What is run of the suite, and how many checks a fixture passes and fails on its own.
#[derive(Clone, Copy)]
struct Part {
    selection: Selection,
    passed: usize,
    failed: usize,
}

const ACTIVE: Part = Part { selection: &["--suite", "active"], passed: 73, failed: 0 };
const REQUIRED_2025_11_25: Part =
    Part { selection: &["--requirements", "2025-11-25"], passed: 84, failed: 0 };
const ALL_2026_07_28: Part =
    Part { selection: &["--suite", "all", "--spec-version", "2026-07-28"], passed: 152, failed: 0 };
/// The failures are all in `tasks-*`, an extension that no SDK's server has.
const REQUIRED_2026_07_28: Part =
    Part { selection: &["--requirements", "2026-07-28"], passed: 164, failed: 30 };
const ALL_2025_06_18: Part =
    Part { selection: &["--spec-version", "2025-06-18"], passed: 56, failed: 0 };

const PYTHON: &str = "mcp_server.py";
const TYPESCRIPT: &str = "mcp_server.mjs";

/// Runs one part against a fixture directly and through the chain, and compares.
async fn compare(script: &str, part: Part) {
    let Part { selection, passed, failed } = part;
    let fixture = process::fixture(script, Wire::StreamableHttp).await;
    let direct = Report::of(&fixture.url, selection).await;
    assert_eq!((direct.passed(), direct.failed()), (passed, failed), "the fixture by itself");

    let chain = governed_chain(&fixture).await;
    let governed = Report::of(&chain.url, selection).await;
    let lost = direct.lost_in(&governed);
    assert!(lost.is_empty(), "passes directly, but not through the chain:\n{}", lost.join("\n"));
}

/// What can't be the same: a process doesn't see headers, and Lictor doesn't know which arguments it wants
/// mirrored there; and what has nothing to stream comes as JSON, which the suite only notes.
const OTHERWISE: [&str; 2] = [
    "http-custom-header-server-validation: ",
    "server-sse-multiple-streams: server-sse-streams-functional ",
];

/// Runs one part against a fixture over HTTP, and against a process of it behind the chain.
async fn compare_with_process(part: Part) {
    let fixture = process::fixture(PYTHON, Wire::StreamableHttp).await;
    let direct = Report::of(&fixture.url, part.selection).await;
    assert_eq!((direct.passed(), direct.failed()), (part.passed, part.failed), "by itself");
    let chain = chain_to_command(&process::fixture_command(PYTHON)).await;
    let governed = Report::of(&chain.url, part.selection).await;
    let mut lost = direct.lost_in(&governed);
    lost.retain(|check| !OTHERWISE.iter().any(|known| check.starts_with(known)));
    assert!(lost.is_empty(), "passes over HTTP, but not here:\n{}", lost.join("\n"));
}

#[tokio::test]
async fn the_active_suite_passes_through_the_chain_to_standard_streams() {
    compare_with_process(ACTIVE).await;
}

#[tokio::test]
async fn everything_at_2026_07_28_passes_through_the_chain_to_standard_streams() {
    compare_with_process(ALL_2026_07_28).await;
}

/// What the suite asks of clients, but for authorization: there the server itself is the authority, and
/// Lictor hands no caller's token on.
const CLIENT: Part = Part {
    selection: &[
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ],
    passed: 73,
    failed: 0,
};

/// The suite's servers name their own tools, so that what passes here owes nothing to our fixtures.
#[tokio::test]
async fn the_client_suite_passes_through_lictor() {
    let node = programs::interpreter("conformance.mjs");
    let client = programs::tests_path("clients/conformance.mjs");
    let governed = programs::tests_path("clients/governed.mjs");
    let direct = format!("{} {}", node.display(), client.display());
    let lictor = env!("CARGO_BIN_EXE_lictor");
    let governed =
        format!("{} {} {lictor} {}", node.display(), governed.display(), client.display());
    let (direct, governed) = tokio::join!(
        Report::of_client(&direct, CLIENT.selection),
        Report::of_client(&governed, CLIENT.selection),
    );
    assert_eq!((direct.passed(), direct.failed()), (CLIENT.passed, CLIENT.failed), "{direct:?}");
    let lost = direct.lost_in(&governed);
    assert!(lost.is_empty(), "passes directly, but not through Lictor:\n{}", lost.join("\n"));
}

#[tokio::test]
async fn the_active_suite_passes_through_the_chain() {
    compare(PYTHON, ACTIVE).await;
}

#[tokio::test]
async fn what_2025_11_25_requires_passes_through_the_chain() {
    compare(PYTHON, REQUIRED_2025_11_25).await;
}

#[tokio::test]
async fn what_2025_11_25_requires_passes_through_the_chain_to_typescript() {
    compare(TYPESCRIPT, REQUIRED_2025_11_25).await;
}

#[tokio::test]
async fn the_whole_suite_of_2026_07_28_passes_through_the_chain() {
    compare(PYTHON, ALL_2026_07_28).await;
}

#[tokio::test]
async fn the_whole_suite_of_2026_07_28_passes_through_the_chain_to_typescript() {
    compare(TYPESCRIPT, ALL_2026_07_28).await;
}

#[tokio::test]
async fn what_2026_07_28_requires_passes_through_the_chain() {
    compare(PYTHON, REQUIRED_2026_07_28).await;
}

#[tokio::test]
async fn revision_2025_06_18_passes_through_the_chain() {
    compare(PYTHON, ALL_2025_06_18).await;
}

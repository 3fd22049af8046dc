//! Runs the MCP conformance suite, against a URL or on a client, and reads what it found, check by check.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::Path,
};

use serde::Deserialize;

use crate::programs::{interpreter, run, tests_path};

const SCRIPT: &str = "node/node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// Arguments of the suite that choose what is run, or names of scenarios.
pub(crate) type Selection = &'static [&'static str];

/// One kind of check in one scenario. The suite emits some more than once in a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Check {
    scenario: String,
    id: String,
    name: String,
}

/// How often a check came out how.
#[derive(Clone, Debug, Default)]
struct Outcomes {
    passed: usize,
    failed: usize,
    /// Not tested, or passed with a reservation.
    doubtful: usize,
    messages: Vec<String>,
}

/// What the suite found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    checks: BTreeMap<Check, Outcomes>,
}

impl Report {
    /// Runs the selected scenarios against the server at `url`.
    pub(crate) async fn of(url: &str, selection: Selection) -> Self {
        let mut arguments = vec!["server", "--url", url];
        arguments.extend(selection);
        Self::by(&arguments).await
    }

    /// Runs `scenarios` on the client that `command` starts; the suite appends its server's URL.
    pub(crate) async fn of_client(command: &str, scenarios: Selection) -> Self {
        let mut report = Self::default();
        for scenario in scenarios {
            let arguments = ["client", "--command", command, "--scenario", scenario];
            report.checks.extend(Self::by(&arguments).await.checks);
        }
        report
    }

    async fn by(arguments: &[&str]) -> Self {
        let results = tempfile::tempdir().expect("a directory for the results");
        let script = tests_path(SCRIPT);
        let mut command: Vec<&OsStr> = vec![script.as_ref()];
        command.extend(arguments.iter().map(OsStr::new));
        command.extend([OsStr::new("-o"), results.path().as_ref()]);
        let output = run(interpreter(SCRIPT), &command).await;
        let report = Self::read(results.path());
        assert!(!report.checks.is_empty(), "the suite reported nothing: {output:?}");
        report
    }

    /// Reads `[server-]SCENARIO-TIME/checks.json` of every scenario.
    fn read(results: &Path) -> Self {
        let mut report = Self::default();
        for entry in fs::read_dir(results).expect("the suite's results") {
            let directory = entry.expect("an entry of the results").path();
            let scenario = scenario(&directory);
            let json = fs::read(directory.join("checks.json")).expect("the checks of a scenario");
            let records: Vec<Record> = serde_json::from_slice(&json).expect("checks as JSON");
            for record in records {
                report.add(&scenario, record);
            }
        }
        report
    }

    fn add(&mut self, scenario: &str, record: Record) {
        let check = Check { scenario: scenario.to_owned(), id: record.id, name: record.name };
        let outcomes = self.checks.entry(check).or_default();
        match record.status {
            Status::Success => outcomes.passed += 1,
            Status::Failure => outcomes.failed += 1,
            Status::Warning | Status::Skipped => outcomes.doubtful += 1,
            Status::Info => {}
        }
        outcomes.messages.extend(record.error_message);
    }

    /// Checks that passed.
    pub(crate) fn passed(&self) -> usize {
        self.checks.values().map(|outcomes| outcomes.passed).sum()
    }

    /// Checks that failed.
    pub(crate) fn failed(&self) -> usize {
        self.checks.values().map(|outcomes| outcomes.failed).sum()
    }

    /// The checks that pass here and don't pass, or not as often, in `other`, and those that fail or
    /// become doubtful there and didn't here.
    pub(crate) fn lost_in(&self, other: &Self) -> Vec<String> {
        let nothing = Outcomes::default();
        let known: BTreeSet<_> = self.checks.keys().chain(other.checks.keys()).collect();
        known
            .into_iter()
            .filter_map(|check| {
                let here = self.checks.get(check).unwrap_or(&nothing);
                let there = other.checks.get(check).unwrap_or(&nothing);
                let worse = there.passed < here.passed
                    || there.failed > here.failed
                    || there.doubtful > here.doubtful;
                worse.then(|| {
                    let Check { scenario, id, name } = check;
                    format!("{scenario}: {id} ({name}): {}", there.messages.join("; "))
                })
            })
            .collect()
    }
}

/// `server-tools-list-2026-11-29T21-11-01-751Z` is of the scenario `tools-list`.
fn scenario(directory: &Path) -> String {
    const TIME: usize = "-2026-11-29T21-11-01-751Z".len();
    let name = directory.file_name().and_then(OsStr::to_str).expect("a readable name");
    let (name, _) = name.split_at_checked(name.len() - TIME).expect("a name that ends in a time");
    name.strip_prefix("server-").unwrap_or(name).to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    id: String,
    name: String,
    status: Status,
    error_message: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Success,
    Failure,
    Warning,
    Skipped,
    Info,
}

fn report(records: &[(&str, Status)]) -> Report {
    let mut report = Report::default();
    for (id, status) in records {
        let (id, name) = ((*id).to_owned(), "Name".to_owned());
        report.add("scenario", Record { id, name, status: *status, error_message: None });
    }
    report
}

#[test]
fn a_check_is_lost_when_it_fails_is_missing_or_becomes_doubtful() {
    let direct = report(&[("a", Status::Success), ("a", Status::Success), ("b", Status::Failure)]);
    let cases = [
        (report(&[("a", Status::Success), ("a", Status::Success), ("b", Status::Failure)]), 0),
        (report(&[("a", Status::Success), ("a", Status::Success), ("b", Status::Success)]), 0),
        (report(&[("a", Status::Success), ("b", Status::Failure)]), 1),
        (report(&[("a", Status::Success), ("a", Status::Failure)]), 1),
        (report(&[("a", Status::Success), ("a", Status::Success), ("c", Status::Warning)]), 1),
        (report(&[]), 1),
    ];
    for (governed, lost) in cases {
        assert_eq!(direct.lost_in(&governed).len(), lost, "{governed:?}");
    }
}

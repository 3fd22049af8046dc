//! `lictor policy test`: the cases in `tests/*.json` of a policy directory.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use comfy_table::Table;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Case, Given, TargetOptions,
    judged::{self, Judged, Refused, Rules},
};
use crate::{
    policy::Policies,
    protocol::{Method, Target, method::ListOf},
};

/// Runs all cases. 0: they passed, 1: one failed, 2: they can't be read.
pub(super) fn run(
    policies: &Policies,
    rules: &Rules,
    directory: &Path,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let outcomes = match run_cases(policies, rules, &directory.join("tests")) {
        Ok(outcomes) if outcomes.is_empty() => Err("no cases in `tests/*.json`".to_owned()),
        other => other,
    };
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(mistake) => {
            writeln!(out, "{mistake}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let mut table = Table::new();
    table.set_header(["", "case", "expected", "found"]);
    for outcome in &outcomes {
        let mark = if outcome.passed { "ok" } else { "FAILED" };
        table.add_row([mark, &outcome.name, &outcome.expected, &outcome.found]);
    }
    writeln!(out, "{table}")?;
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    writeln!(out, "{} cases, {failed} failed", outcomes.len())?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The file of a test: `{"cases": […]}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    cases: Vec<Box<RawValue>>,
}

/// A case that expects one decision.
#[derive(Debug, Deserialize)]
struct CallCase {
    tool: Option<Box<str>>,
    prompt: Option<Box<str>>,
    resource: Option<Box<str>>,
    task: Option<Box<str>>,
    arguments: Option<Box<RawValue>>,
    /// Parameters of what the server asks.
    asks: Option<Box<RawValue>>,
    expect: Expected,
    /// Id of a policy that has to be among those that determined the decision.
    policy: Option<String>,
    /// The hop that has to be the one that objects, the root's being 0.
    hop: Option<usize>,
}

/// A case that expects a filtered list.
#[derive(Debug, Deserialize)]
struct ListCase {
    /// What the server offers: names, URIs or URI templates.
    offered: Vec<Box<str>>,
    /// What is left of it, in the same order.
    shown: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
enum Expected {
    Allow,
    Deny,
}

const FIELDS: &[&str] = &[
    "name",
    "principal",
    "server",
    "listener",
    "method",
    "http",
    "era",
    "tool",
    "prompt",
    "resource",
    "task",
    "arguments",
    "asks",
    "delegation",
    "expect",
    "policy",
    "hop",
    "offered",
    "shown",
];

/// How one case came out.
struct Outcome {
    name: String,
    passed: bool,
    expected: String,
    found: String,
}

fn run_cases(policies: &Policies, rules: &Rules, directory: &Path) -> Result<Vec<Outcome>, String> {
    let entries = fs::read_dir(directory)
        .map_err(|error| format!("`{}` can't be read: {error}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut outcomes = vec![];
    for file in files {
        let place = |error: &dyn std::fmt::Display| format!("`{}`: {error}", file.display());
        let text = fs::read_to_string(&file).map_err(|error| place(&error))?;
        let Cases { cases } = serde_json::from_str(&text).map_err(|error| place(&error))?;
        for (number, case) in (1..).zip(cases) {
            let outcome = run_case(policies, rules, number, case.get());
            outcomes.push(outcome.map_err(|error| place(&format!("case {number}: {error}")))?);
        }
    }
    Ok(outcomes)
}

fn run_case(
    policies: &Policies,
    rules: &Rules,
    number: usize,
    text: &str,
) -> Result<Outcome, String> {
    let wrong = |error: serde_json::Error| error.to_string();
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(wrong)?;
    if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        let known = FIELDS.join("`, `");
        return Err(format!("unknown field `{unknown}` (hint: one of `{known}`)"));
    }
    let case: Case = serde_json::from_str(text).map_err(wrong)?;
    let name = case.name.clone().unwrap_or_else(|| format!("case {number}"));
    if fields.contains_key("offered") {
        let list: ListCase = serde_json::from_str(text).map_err(wrong)?;
        return case.run_list(policies, &list, name);
    }
    let call: CallCase = serde_json::from_str(text).map_err(wrong)?;
    case.run_call(policies, rules, call, name)
}

impl Case {
    fn run_call(
        &self,
        policies: &Policies,
        rules: &Rules,
        call: CallCase,
        name: String,
    ) -> Result<Outcome, String> {
        let CallCase { tool, prompt, resource, task, arguments, asks, expect, policy, hop } = call;
        let chain = self.chain()?;
        let target = TargetOptions { tool, prompt, resource, task }.target();
        let [arguments, asks] = [&arguments, &asks].map(|raw| raw.as_deref().map(RawValue::get));
        let given = Given { arguments, asks };
        let judged = self.ask(target, given, chain.as_ref(), |question| {
            judged::judge(policies, rules, chain.as_ref(), question)
        })?;
        let Judged { decision, refused } = judged;
        let by = decision.policies.iter().any(|id| policy.as_deref() == Some(&**id));
        let objecting = refused.as_ref().and_then(Refused::hop);
        let passed = refused.is_none() == (expect == Expected::Allow)
            && (policy.is_none() || by)
            && (hop.is_none() || hop == objecting);
        let mut found = describe(refused.is_none(), &decision.policies.join(", "), objecting);
        let told = refused.as_ref().and_then(Refused::told);
        for line in told.iter().chain(&decision.errors) {
            found.push('\n');
            found.push_str(line);
        }
        let policy = policy.as_deref().unwrap_or_default();
        let expected = describe(expect == Expected::Allow, policy, hop);
        Ok(Outcome { name, passed, expected, found })
    }

    fn run_list(
        &self,
        policies: &Policies,
        list: &ListCase,
        name: String,
    ) -> Result<Outcome, String> {
        let of = Method::parse(&self.method).list();
        let of = of.ok_or_else(|| format!("`{}` is no list that is filtered", self.method))?;
        let chain = self.chain()?;
        let mut shown = vec![];
        for item in &list.offered {
            let target = match of {
                ListOf::Tools => Target::Tool(item.clone()),
                ListOf::Prompts => Target::Prompt(item.clone()),
                ListOf::Resources => Target::Resource(item.clone()),
                ListOf::Templates => Target::Template(item.clone()),
            };
            let given = Given::default();
            if self.ask(target, given, chain.as_ref(), |question| policies.may_list(question))? {
                shown.push(item.clone());
            }
        }
        let passed = shown == list.shown;
        Ok(Outcome { name, passed, expected: list.shown.join(", "), found: shown.join(", ") })
    }
}

/// What was decided, by which policies and which hop.
fn describe(permit: bool, by: &str, hop: Option<usize>) -> String {
    let mut text = if permit { "allow" } else { "deny" }.to_owned();
    if !by.is_empty() {
        text.push_str(&format!(" by {by}"));
    }
    if let Some(hop) = hop {
        text.push_str(&format!(" at hop {hop}"));
    }
    text
}

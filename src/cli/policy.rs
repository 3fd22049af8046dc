//! `lictor policy`: check, test and explain policies without a running Lictor.

mod recorded;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use comfy_table::Table;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    config,
    identity::{Principal, Proof, SpiffeId},
    policy::{Policies, Question, Settings},
    protocol::{
        Era, Method, Target, json,
        mcp::server::{self, Asks, ServerMessage},
        method::Governs,
    },
};

/// `lictor policy …`
#[derive(Args, Debug)]
pub struct Options {
    /// The configuration, which tells the policy directory, servers, groups and ledger.
    #[arg(short, long, value_name = "FILE", global = true)]
    file: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load the policies and tell every fault and warning.
    Check(Directory),
    /// Run the cases in `tests/*.json` of the policy directory.
    Test(Directory),
    /// Tell why a call is permitted or denied.
    Explain(Box<Explain>),
}

#[derive(Args, Debug)]
struct Directory {
    /// The policy directory; that of the configuration by default.
    directory: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Explain {
    /// The policy directory; that of the configuration by default.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Id of a decision on record, as refusals and the ledger tell it.
    #[arg(long, value_name = "ID", conflicts_with_all = ["principal", "server"])]
    decision: Option<String>,
    /// The ledger to look the decision up in; that of the configuration by default.
    #[arg(long, value_name = "DIR", requires = "decision")]
    ledger: Option<PathBuf>,
    /// SPIFFE ID of the caller.
    #[arg(long, required_unless_present = "decision")]
    principal: Option<String>,
    /// Name of the upstream.
    #[arg(long, required_unless_present = "decision")]
    server: Option<String>,
    /// Method, named as the action of policies: `client/ping` is the `ping` of a server.
    #[arg(long, default_value = "tools/call")]
    method: String,
    #[command(flatten)]
    target: TargetOptions,
    /// Arguments of the tool, as JSON.
    #[arg(long)]
    arguments: Option<String>,
    /// Parameters of a request of the server to the caller, as JSON.
    #[arg(long, value_name = "PARAMS", conflicts_with = "arguments")]
    asks: Option<String>,
    /// Name of the listener.
    #[arg(long, default_value = "inbound")]
    listener: String,
    /// Era of the message.
    #[arg(long, value_enum, default_value = "modern")]
    era: EraName,
}

/// What is touched; none of them is the server itself.
#[derive(Args, Debug, Default, Deserialize)]
#[group(multiple = false)]
struct TargetOptions {
    /// Name of a tool.
    #[arg(long)]
    tool: Option<Box<str>>,
    /// Name of a prompt.
    #[arg(long)]
    prompt: Option<Box<str>>,
    /// URI of a resource.
    #[arg(long)]
    resource: Option<Box<str>>,
    /// Id of a task.
    #[arg(long)]
    task: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
enum EraName {
    Legacy,
    #[default]
    Modern,
}

impl Options {
    /// The policy directory that was given, if any; without one it is the configuration's.
    pub fn directory(&self) -> Option<&Path> {
        match &self.command {
            Command::Check(at) | Command::Test(at) => at.directory.as_deref(),
            Command::Explain(explain) => explain.directory.as_deref(),
        }
    }
}

/// Runs a command on the policies that the configuration names; a directory given on the command line
/// takes the place of the configuration's own. Success is 0; faults, failed cases and denials are 1, a
/// mistake in what was asked is 2, and a configuration with faults is 64.
///
/// # Errors
/// Only if `out` or `err` can't be written.
pub fn run(options: &Options, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let config = match options.file.as_deref().map(config::load).transpose() {
        Ok(config) => config,
        Err(faults) => {
            for fault in faults.iter() {
                writeln!(err, "lictor: {fault}")?;
            }
            return Ok(ExitCode::from(super::EXIT_USAGE));
        }
    };
    if options.directory().is_none() && config.is_none() {
        writeln!(err, "lictor: name the policy directory, or the configuration with -f")?;
        return Ok(ExitCode::from(super::EXIT_USAGE));
    }
    let ledger = config.as_ref().map(|config| config.ledger.directory.clone());
    let settings = config.map(|config| config.policy).unwrap_or_default();
    run_on(options, &settings, ledger, out, err)
}

fn run_on(
    options: &Options,
    settings: &Settings,
    ledger: Option<PathBuf>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    let directory = options.directory().unwrap_or(&settings.directory).to_owned();
    let settings = Settings { directory, ..settings.clone() };
    let policies = match Policies::load(&settings) {
        Ok(policies) => policies,
        Err(error) => {
            writeln!(out, "{error}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    match &options.command {
        Command::Check(_) => check(&policies, out),
        Command::Test(_) => test(&policies, &settings.directory, out),
        Command::Explain(explain) => match (&explain.decision, explain.ledger.clone().or(ledger)) {
            (Some(id), Some(ledger)) => recorded::explain(&policies, &ledger, id, out),
            (Some(_), None) => {
                writeln!(err, "lictor: name the ledger's directory, or the configuration with -f")?;
                Ok(ExitCode::from(super::EXIT_USAGE))
            }
            (None, _) => explain_call(&policies, explain, out),
        },
    }
}

fn check(policies: &Policies, out: &mut dyn Write) -> io::Result<ExitCode> {
    for warning in policies.warnings() {
        writeln!(out, "warning: {warning}")?;
    }
    let (count, version) = (policies.origins().len(), policies.version());
    writeln!(out, "{count} policies, version {version}")?;
    Ok(ExitCode::SUCCESS)
}

fn explain_call(
    policies: &Policies,
    explain: &Explain,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let case = Case {
        name: None,
        // clap asks for both where no decision is named.
        principal: explain.principal.clone().unwrap_or_default(),
        server: explain.server.clone().unwrap_or_default(),
        listener: explain.listener.clone(),
        method: explain.method.clone(),
        era: explain.era,
    };
    let target = explain.target.target();
    let given = Given { arguments: explain.arguments.as_deref(), asks: explain.asks.as_deref() };
    match case.ask(target, given, |question| policies.explain(question)) {
        Ok(explanation) => {
            write!(out, "{explanation}")?;
            let permit = explanation.decision.permit;
            Ok(if permit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(mistake) => {
            writeln!(out, "{mistake}")?;
            Ok(ExitCode::from(2))
        }
    }
}

/// The file of a test: `{"cases": […]}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    cases: Vec<Box<RawValue>>,
}

/// What every case tells.
#[derive(Debug, Deserialize)]
struct Case {
    name: Option<String>,
    principal: String,
    server: String,
    #[serde(default = "inbound")]
    listener: String,
    #[serde(default = "tools_call")]
    method: String,
    #[serde(default)]
    era: EraName,
}

fn inbound() -> String {
    "inbound".to_owned()
}

fn tools_call() -> String {
    "tools/call".to_owned()
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
    "era",
    "tool",
    "prompt",
    "resource",
    "task",
    "arguments",
    "asks",
    "expect",
    "policy",
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

fn test(policies: &Policies, directory: &Path, out: &mut dyn Write) -> io::Result<ExitCode> {
    let outcomes = match run_cases(policies, &directory.join("tests")) {
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

fn run_cases(policies: &Policies, directory: &Path) -> Result<Vec<Outcome>, String> {
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
            let outcome = run_case(policies, number, case.get());
            outcomes.push(outcome.map_err(|error| place(&format!("case {number}: {error}")))?);
        }
    }
    Ok(outcomes)
}

fn run_case(policies: &Policies, number: usize, text: &str) -> Result<Outcome, String> {
    let wrong = |error: serde_json::Error| error.to_string();
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(wrong)?;
    if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(format!("unknown field `{unknown}`"));
    }
    let case: Case = serde_json::from_str(text).map_err(wrong)?;
    let name = case.name.clone().unwrap_or_else(|| format!("case {number}"));
    if fields.contains_key("offered") {
        let list: ListCase = serde_json::from_str(text).map_err(wrong)?;
        return case.run_list(policies, &list, name);
    }
    let call: CallCase = serde_json::from_str(text).map_err(wrong)?;
    case.run_call(policies, call, name)
}

impl Case {
    /// Puts the case as a question.
    fn ask<T>(
        &self,
        target: Target,
        given: Given<'_>,
        judge: impl FnOnce(&Question<'_>) -> T,
    ) -> Result<T, String> {
        let id = SpiffeId::parse(&self.principal)
            .map_err(|error| format!("principal `{}`: {error}", self.principal))?;
        let method = Method::named(&self.method);
        let asks = given.asks(&method)?;
        let target = match (&asks, target) {
            (Some(_), Target::Server) => Target::Caller,
            (Some(_), _) => return Err(format!("`{}` touches the caller", self.method)),
            (None, target) => target,
        };
        let document = given
            .arguments
            .map(|text| json::scan(text.as_bytes(), json::Limits::default()))
            .transpose()
            .map_err(|error| format!("arguments: {error}"))?;
        Ok(judge(&Question {
            principal: &Principal { id, proof: Proof::Configured },
            server: &self.server,
            listener: &self.listener,
            method: &method,
            target: &target,
            arguments: document.as_ref().map(json::Document::root),
            asks: asks.as_ref(),
            era: match self.era {
                EraName::Legacy => Era::Legacy,
                EraName::Modern => Era::Modern,
            },
        }))
    }

    fn run_call(
        &self,
        policies: &Policies,
        call: CallCase,
        name: String,
    ) -> Result<Outcome, String> {
        let CallCase { tool, prompt, resource, task, arguments, asks, expect, policy } = call;
        let target = TargetOptions { tool, prompt, resource, task }.target();
        let [arguments, asks] = [&arguments, &asks].map(|raw| raw.as_deref().map(RawValue::get));
        let given = Given { arguments, asks };
        let decision = self.ask(target, given, |question| policies.decide(question))?;
        let by = decision.policies.iter().any(|id| policy.as_deref() == Some(&**id));
        let passed = decision.permit == (expect == Expected::Allow) && (policy.is_none() || by);
        let word = |permit: bool| if permit { "allow" } else { "deny" };
        let describe = |permit: bool, by: &str| match by {
            "" => word(permit).to_owned(),
            by => format!("{} by {by}", word(permit)),
        };
        let mut found = describe(decision.permit, &decision.policies.join(", "));
        for error in &decision.errors {
            found.push('\n');
            found.push_str(error);
        }
        let expected = describe(expect == Expected::Allow, policy.as_deref().unwrap_or_default());
        Ok(Outcome { name, passed, expected, found })
    }

    fn run_list(
        &self,
        policies: &Policies,
        list: &ListCase,
        name: String,
    ) -> Result<Outcome, String> {
        use crate::protocol::method::ListOf;
        let of = Method::parse(&self.method).list();
        let of = of.ok_or_else(|| format!("`{}` is no list that is filtered", self.method))?;
        let mut shown = vec![];
        for item in &list.offered {
            let target = match of {
                ListOf::Tools => Target::Tool(item.clone()),
                ListOf::Prompts => Target::Prompt(item.clone()),
                ListOf::Resources => Target::Resource(item.clone()),
                ListOf::Templates => Target::Template(item.clone()),
            };
            if self.ask(target, Given::default(), |question| policies.may_list(question))? {
                shown.push(item.clone());
            }
        }
        let passed = shown == list.shown;
        Ok(Outcome { name, passed, expected: list.shown.join(", "), found: shown.join(", ") })
    }
}

/// The JSON that goes with a question.
#[derive(Clone, Copy, Debug, Default)]
struct Given<'a> {
    arguments: Option<&'a str>,
    asks: Option<&'a str>,
}

impl Given<'_> {
    /// What the server asks, read as it would be from the wire; `None` if the method is a caller's.
    fn asks(&self, method: &Method) -> Result<Option<Asks>, String> {
        let name = method.name();
        match (method.rule().map(|rule| rule.governs), self.asks) {
            (Some(Governs::Caller), _) | (None, Some(_)) => {}
            (Some(_), Some(_)) => return Err(format!("`{name}` is nothing that servers ask")),
            (_, None) => return Ok(None),
        }
        let (quoted, params) = (serde_json::Value::from(name), self.asks.unwrap_or("{}"));
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{quoted},"params":{params}}}"#);
        match server::decode(text.as_bytes(), Era::Legacy) {
            Ok(ServerMessage::Request { asked, .. }) => Ok(Some(asked.asks)),
            Ok(_) => Err(format!("`{name}` is nothing that servers ask")),
            Err(refused) => Err(format!("asks: {refused}")),
        }
    }
}

impl TargetOptions {
    fn target(&self) -> Target {
        let tool = self.tool.clone().map(Target::Tool);
        let prompt = self.prompt.clone().map(Target::Prompt);
        let resource = self.resource.clone().map(Target::Resource);
        let task = self.task.clone().map(Target::Task);
        tool.or(prompt).or(resource).or(task).unwrap_or(Target::Server)
    }
}

#[cfg(test)]
mod tests;

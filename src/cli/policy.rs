//! `lictor policy`: check, test and explain policies without a running Lictor.

mod cases;
mod chain;
mod grants;
mod judged;
mod recorded;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use http::{HeaderMap, HeaderValue, Method as HttpMethod, header::CONTENT_TYPE};
use serde::Deserialize;

use self::{chain::Supposed, judged::Rules};
use crate::{
    config,
    identity::{Principal, Proof, SpiffeId},
    policy::{Policies, Question, Settings},
    protocol::{
        Call, Era, Method, Protocol, Target,
        a2a::{self, Traits},
        json,
        mcp::server::{self, Asks, ServerMessage},
        method::{Governs, Rule},
        web,
    },
    upstream,
};

/// Look into policies: their faults, their cases, the reasons of a decision, the grants.
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
    /// Show who may do what by the documents of grants.
    Grants(Grants),
}

#[derive(Args, Debug)]
struct Directory {
    /// The policy directory; that of the configuration by default.
    directory: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Grants {
    /// The policy directory; that of the configuration by default.
    directory: Option<PathBuf>,
    /// Show the policies that the documents became, as Cedar.
    #[arg(long)]
    cedar: bool,
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
    /// SPIFFE ID of the caller; with a chain, by default who made its last hop.
    #[arg(long, required_unless_present_any = ["decision", "via"])]
    principal: Option<String>,
    /// Name of the upstream.
    #[arg(long, required_unless_present = "decision")]
    server: Option<String>,
    /// Method, named as the action of policies: `client/ping` is the `ping` of a server.
    #[arg(long, default_value = "tools/call")]
    method: String,
    /// A request of plain HTTP: method, path below the route, and query.
    #[arg(
        long,
        value_name = "METHOD PATH",
        conflicts_with_all = ["method", "tool", "prompt", "resource", "task", "asks", "era"],
    )]
    http: Option<String>,
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    chain: chain::Flags,
    /// Arguments of the tool, parameters of a call of A2A, or the body of a request of plain HTTP, as JSON.
    #[arg(long)]
    arguments: Option<String>,
    /// Parameters of a request of the server to the caller, as JSON.
    #[arg(long, value_name = "PARAMS", conflicts_with = "arguments")]
    asks: Option<String>,
    /// Name of the listener.
    #[arg(long, default_value = "inbound")]
    listener: String,
    /// Era of the message; calls of A2A are of version 1.0.
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
            Command::Grants(grants) => grants.directory.as_deref(),
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
    let known = match config {
        None => Known { settings: Settings::default(), ledger: None, rules: Rules::Unknown },
        Some(config) => {
            let callee = |upstream: &upstream::Settings| {
                Some((upstream.name.clone(), upstream.identity()?.clone()))
            };
            let callees = config.upstreams.iter().filter_map(callee).collect();
            let set = |settings| Rules::Set { settings, callees };
            Known {
                settings: config.policy,
                ledger: Some(config.ledger.directory),
                rules: config.delegation.map_or(Rules::Without, set),
            }
        }
    };
    run_on(options, &known, out, err)
}

/// What the configuration tells, if there is one.
struct Known {
    settings: Settings,
    ledger: Option<PathBuf>,
    rules: Rules,
}

fn run_on(
    options: &Options,
    known: &Known,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    let Known { settings, ledger, rules } = known;
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
        Command::Test(_) => cases::run(&policies, rules, &settings.directory, out),
        Command::Grants(options) => grants::run(&policies, &settings, options.cedar, out),
        Command::Explain(explain) => {
            match (&explain.decision, explain.ledger.as_ref().or(ledger.as_ref())) {
                (Some(id), Some(ledger)) => recorded::explain(&policies, ledger, id, out),
                (Some(_), None) => {
                    writeln!(
                        err,
                        "lictor: name the ledger's directory, or the configuration with -f"
                    )?;
                    Ok(ExitCode::from(super::EXIT_USAGE))
                }
                (None, _) => explain_call(&policies, rules, explain, out),
            }
        }
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
    rules: &Rules,
    explain: &Explain,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let case = Case {
        name: None,
        principal: explain.principal.clone(),
        // clap asks for it where no decision is named.
        server: explain.server.clone().unwrap_or_default(),
        listener: explain.listener.clone(),
        method: explain.method.clone(),
        http: explain.http.clone(),
        era: explain.era,
        delegation: None,
    };
    let target = explain.target.target();
    let given = Given { arguments: explain.arguments.as_deref(), asks: explain.asks.as_deref() };
    let explained = explain.chain.chain().and_then(|chain| {
        let chain = chain.as_ref();
        case.ask(target, given, chain, |question| {
            judged::explain(policies, rules, chain, question, out)
        })
    });
    match explained {
        Ok(permit) => Ok(if permit? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Err(mistake) => {
            writeln!(out, "{mistake}")?;
            Ok(ExitCode::from(2))
        }
    }
}

/// What every case tells.
#[derive(Debug, Deserialize)]
struct Case {
    name: Option<String>,
    /// By default who made the last hop.
    principal: Option<String>,
    server: String,
    #[serde(default = "inbound")]
    listener: String,
    #[serde(default = "tools_call")]
    method: String,
    /// A request of plain HTTP: method, path below the route, and query.
    http: Option<String>,
    #[serde(default)]
    era: EraName,
    delegation: Option<serde_json::Value>,
}

fn inbound() -> String {
    "inbound".to_owned()
}

fn tools_call() -> String {
    "tools/call".to_owned()
}

impl Case {
    /// The chain that it comes with, if any.
    fn chain(&self) -> Result<Option<Supposed>, String> {
        self.delegation.clone().map(Supposed::read).transpose()
    }

    /// Who calls.
    fn caller(&self, chain: Option<&Supposed>) -> Result<SpiffeId, String> {
        let parse =
            |text| SpiffeId::parse(text).map_err(|error| format!("principal `{text}`: {error}"));
        let given = self.principal.as_deref().map(parse).transpose()?;
        match chain {
            Some(chain) => chain.caller(given),
            None => given.ok_or_else(|| "principal: is missing".to_owned()),
        }
    }

    /// Puts the case as a question.
    fn ask<T>(
        &self,
        target: Target,
        given: Given<'_>,
        chain: Option<&Supposed>,
        judge: impl FnOnce(&Question<'_>) -> T,
    ) -> Result<T, String> {
        let id = self.caller(chain)?;
        let principal = Principal { id, proof: Proof::Configured };
        let delegation = chain.and_then(|chain| chain.members().last()).map(|member| member.place);
        if let Some(request) = &self.http {
            let call = given.request(request)?;
            let [target] = &*call.targets else {
                return Err("http: it touches more than the server".to_owned());
            };
            return Ok(judge(&Question {
                principal: &principal,
                server: &self.server,
                listener: &self.listener,
                method: &call.method,
                target,
                arguments: call.arguments_value(),
                asks: None,
                a2a: None,
                web: call.web.as_deref().map(|facts| &facts.traits),
                era: call.era,
                delegation,
            }));
        }
        let method = Method::named(&self.method);
        let asks = given.asks(&method)?;
        let target = match (&asks, target) {
            (Some(_), Target::Server) => Target::Caller,
            (Some(_), _) => return Err(format!("`{}` touches the caller", self.method)),
            (None, target) => target,
        };
        let protocol = method.rule().map_or(Protocol::Mcp, Rule::protocol);
        let (arguments, traits) = match protocol {
            Protocol::Mcp => (given.arguments, None),
            Protocol::A2a => (None, given.traits(&method)?),
            Protocol::Http => {
                let name = method.name();
                return Err(format!("say what is requested: `http: {name} /path`"));
            }
        };
        let document = arguments
            .map(|text| json::scan(text.as_bytes(), json::Limits::default()))
            .transpose()
            .map_err(|error| format!("arguments: {error}"))?;
        Ok(judge(&Question {
            principal: &principal,
            server: &self.server,
            listener: &self.listener,
            method: &method,
            target: &target,
            arguments: document.as_ref().map(json::Document::root),
            asks: asks.as_ref(),
            a2a: traits.as_ref(),
            web: None,
            era: match (protocol, self.era) {
                (Protocol::A2a, _) => Era::V10,
                (Protocol::Mcp | Protocol::Http, EraName::Legacy) => Era::Legacy,
                (Protocol::Mcp | Protocol::Http, EraName::Modern) => Era::Modern,
            },
            delegation,
        }))
    }
}

/// The JSON that goes with a question.
#[derive(Clone, Copy, Debug, Default)]
struct Given<'a> {
    arguments: Option<&'a str>,
    asks: Option<&'a str>,
}

impl Given<'_> {
    /// What a call of A2A tells, read as it would be from the wire; `None` without parameters.
    fn traits(&self, method: &Method) -> Result<Option<Traits>, String> {
        let Some(params) = self.arguments else { return Ok(None) };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = text_of(method.name(), params).into();
        let call = a2a::decode(&HttpMethod::POST, "", None, &headers, body)
            .map_err(|error| format!("arguments: {error}"))?;
        Ok(call.a2a.map(|facts| facts.traits))
    }

    /// A request of plain HTTP, read as it would be from the wire: `GET /path?query`.
    fn request(&self, request: &str) -> Result<Call, String> {
        let (method, target) = request.split_once(' ').unwrap_or((request, "/"));
        let method = method.parse().map_err(|_| format!("http: `{method}` is no method"))?;
        let (below, query) = match target.split_once('?') {
            Some((below, query)) => (below, Some(query)),
            None => (target, None),
        };
        let mut headers = HeaderMap::new();
        if self.arguments.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = self.arguments.unwrap_or_default().to_owned().into();
        // Which parameters are lists is a route's to say, and no policy's.
        let call = web::decode(&method, below, query, &headers, body, |_| true);
        call.map_err(|error| format!("http: {error}"))
    }

    /// What the server asks, read as it would be from the wire; `None` if the method is a caller's.
    fn asks(&self, method: &Method) -> Result<Option<Asks>, String> {
        let name = method.name();
        match (method.rule().map(|rule| rule.governs), self.asks) {
            (Some(Governs::Caller), _) | (None, Some(_)) => {}
            (Some(_), Some(_)) => return Err(format!("`{name}` is nothing that servers ask")),
            (_, None) => return Ok(None),
        }
        let text = text_of(name, self.asks.unwrap_or("{}"));
        match server::decode(text.as_bytes(), Era::Legacy) {
            Ok(ServerMessage::Request { asked, .. }) => Ok(Some(asked.asks)),
            Ok(_) => Err(format!("`{name}` is nothing that servers ask")),
            Err(refused) => Err(format!("asks: {refused}")),
        }
    }
}

/// The JSON-RPC text of a call.
fn text_of(method: &str, params: &str) -> String {
    let quoted = serde_json::Value::from(method);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":{quoted},"params":{params}}}"#)
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

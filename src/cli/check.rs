//! `lictor check`: says what is wrong with a configuration, or what it would run.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use url::Url;

use super::EXIT_USAGE;
use crate::{
    config::{self, Config},
    listener::Door,
    policy::{self, Policies},
    proxy::settings::Refusals,
    state,
    upstream::{Verification, settings::Server},
};

/// Check a configuration file and its policies without starting anything.
///
/// Prints every fault with its place, or what the configuration would run, with what is odd about its policies.
/// Exits with 0 or 64.
#[derive(Debug, Args)]
pub struct Check {
    /// The configuration file.
    #[arg(value_name = "FILE", required_unless_present_any = ["schema", "grants_schema"])]
    file: Option<PathBuf>,
    /// Print the JSON schema of configuration files.
    #[arg(long, conflicts_with = "file")]
    schema: bool,
    /// Print the JSON schema of documents of grants.
    #[arg(long, conflicts_with_all = ["file", "schema"])]
    grants_schema: bool,
}

impl Check {
    pub(super) fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let Some(file) = self.file else {
            let grants = self.grants_schema;
            let schema = if grants { policy::grants::schema() } else { config::schema() };
            write!(out, "{schema}")?;
            return Ok(ExitCode::SUCCESS);
        };
        match config::load(&file) {
            Ok(config) => {
                let policies = match Policies::load(&config.policy) {
                    Ok(policies) => policies,
                    Err(error) => {
                        writeln!(err, "{}: {error}", file.display())?;
                        return Ok(ExitCode::from(EXIT_USAGE));
                    }
                };
                writeln!(out, "{}: no faults", file.display())?;
                summarise(&config, out)?;
                for warning in policies.warnings() {
                    writeln!(out, "warning: {warning}")?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(faults) => {
                for fault in faults.iter() {
                    writeln!(err, "{}: {fault}", file.display())?;
                }
                let count = faults.iter().count();
                writeln!(err, "{count} {}", plural(count, "fault", "faults"))?;
                Ok(ExitCode::from(EXIT_USAGE))
            }
        }
    }
}

fn summarise(config: &Config, out: &mut dyn Write) -> io::Result<()> {
    for listener in &config.listeners {
        let settings = &listener.settings;
        let door = match &settings.door {
            Door::MutualTls => "mutual TLS".to_owned(),
            Door::PlainLoopback(id) => format!("no TLS, every caller is {id}"),
            Door::Workload => "no TLS, callers are the workload beside".to_owned(),
        };
        let (name, direction) = (&settings.name, settings.direction.as_str());
        writeln!(out, "listener {name}: {direction}, {}, {door}", settings.bind)?;
        for route in &listener.routes {
            let mode = if route.shadow { "shadow: denials are not enforced" } else { "enforce" };
            let refusals = match route.refusals {
                Refusals::JsonRpc => "",
                Refusals::HttpStatus => ", refusals by HTTP status",
            };
            writeln!(out, "  {} to {}, {mode}{refusals}", route.path, route.upstream)?;
        }
    }
    for upstream in &config.upstreams {
        let name = &upstream.name;
        match &upstream.server {
            Server::Http(http) => {
                let urls: Vec<_> = http.urls().map(Url::as_str).collect();
                let (urls, verified) = (urls.join(", "), verified(&http.verification));
                writeln!(out, "upstream {name}: {urls}, {verified}")?;
            }
            Server::Command(command) => {
                let words = command.arguments.len();
                let words = format!("{words} {}", plural(words, "argument", "arguments"));
                writeln!(out, "upstream {name}: runs `{}` with {words}", command.program)?;
            }
        }
    }
    for limit in &config.rate_limits {
        writeln!(out, "limit {}", limit.name)?;
    }
    writeln!(out, "policies: {}", config.policy.directory.display())?;
    writeln!(out, "ledger: {}", config.ledger.directory.display())?;
    match &config.state {
        state::Settings::Memory => writeln!(out, "state: in memory")?,
        state::Settings::Directory(path) => writeln!(out, "state: {}", path.display())?,
        state::Settings::Redis(redis) => {
            writeln!(out, "state: Redis at {}:{}", redis.host, redis.port)?;
        }
    }
    writeln!(out, "administration: {}", config.admin.admin)?;
    match config.admin.health {
        Some(health) => writeln!(out, "health: {health}")?,
        None => writeln!(out, "health: with administration")?,
    }
    writeln!(out, "drain: {}", humantime::format_duration(config.drain))?;
    for (setting, count) in config.weakened() {
        writeln!(out, "weakened: `{setting}` in {count} {}", plural(count, "place", "places"))?;
    }
    Ok(())
}

fn verified(verification: &Verification) -> String {
    match verification {
        Verification::Loopback => "loopback".to_owned(),
        Verification::Spiffe(id) => format!("has to be {id}"),
        Verification::WebPki { roots: None } => "verified by public roots".to_owned(),
        Verification::WebPki { roots: Some(path) } => {
            format!("verified by the roots in {}", path.display())
        }
    }
}

fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

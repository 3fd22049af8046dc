//! From the file as written to each module's settings, with every fault reported.

mod admission;
mod agent;
mod bindings;
mod command;
mod delegation;
mod endpoints;
mod listeners;
mod rate_limits;
mod spiffe;
mod token_exchange;
mod upstreams;
mod web;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tracing::level_filters::LevelFilter;

use super::{
    Config,
    fault::{Faults, Place},
    names,
    shape::{self, Document},
    units::{Size, Span},
};
use crate::{admin, identity::SpiffeId, ledger, policy, proxy::settings::Limits, state, telemetry};

/// Environment variable with the seconds between SIGTERM and SIGKILL, as a pod's author sets it to its
/// `terminationGracePeriodSeconds`.
const GRACE: &str = "TERMINATION_GRACE_PERIOD_SECONDS";

/// Converts a document. `written` is the whole of it, also where the schema refused a part: names
/// that are known from there don't count as unknown.
pub(super) fn config(
    document: Document,
    written: &Value,
    base: &Path,
    faults: &mut Faults,
) -> Option<Config> {
    let mut reader = Reader {
        base,
        faults,
        has_identity: written.get("identity").is_some(),
        has_delegation: written.get("delegation").is_some(),
        upstreams: names_in(written, "upstreams"),
        agents: spoken_with(written, &["a2a"]),
        webs: spoken_with(written, &["http"]),
        others: spoken_with(written, &["mcp", "a2a"]),
        bound: Vec::new(),
    };
    let root = Place::default();
    let policy_place = root.key("policy");
    let identity = document.identity.map(|it| reader.identity(it, &root.key("identity")));
    let listeners = reader.required(document.listeners, &root.key("listeners"));
    let listeners = listeners.map(|all| reader.listeners(all, &root.key("listeners")));
    let upstreams = reader.required(document.upstreams, &root.key("upstreams"));
    let mut servers = BTreeMap::new();
    let upstreams =
        upstreams.map(|all| reader.upstreams(all, &mut servers, &root.key("upstreams")));
    let policy = reader.required(document.policy, &policy_place);
    let policy = policy.and_then(|it| reader.policy(it, servers, &policy_place));
    let delegation = match document.delegation {
        None => Some(None),
        Some(it) => reader.delegation(it, &root.key("delegation")).map(Some),
    };
    let ledger = reader.required(document.ledger, &root.key("ledger"));
    let ledger = ledger.and_then(|it| reader.ledger(it, &root.key("ledger")));
    let state = match document.state {
        None => Some(state::Settings::Memory),
        Some(it) => reader.state(it, &root.key("state")),
    };
    let offered = rate_limits::Offered {
        redis: written.pointer("/state/redis").is_some(),
        tenants: written
            .pointer("/policy/pathTemplate")
            .and_then(Value::as_str)
            .is_some_and(|template| template.split('/').any(|segment| segment == "{tenant}")),
    };
    let rate_limits = reader.rate_limits(document.rate_limits, offered, &root.key("rateLimits"));
    let limits = reader.limits(&document.limits, &root.key("limits"));
    let grace = std::env::var_os(GRACE);
    let drain = reader.drain(document.drain.as_ref(), grace.as_deref(), &root.key("drain"));
    let admin = reader.admin(document.admin, document.health, &root);
    let telemetry = telemetry(document.telemetry);
    Some(Config {
        identity: identity.flatten(),
        listeners: listeners?,
        upstreams: upstreams?,
        policy: policy?,
        delegation: delegation?,
        ledger: ledger?,
        state: state?,
        admin: admin?,
        rate_limits: rate_limits?,
        limits: limits?,
        drain: drain?,
        telemetry,
    })
}

/// Whether the system would refuse to bind both; `[::]` takes IPv4 addresses too.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let takes = |any: SocketAddr, one: SocketAddr| {
        any.ip().is_unspecified() && (any.is_ipv6() || one.is_ipv4())
    };
    let same = one.ip() == other.ip() || takes(one, other) || takes(other, one);
    one.port() == other.port() && same
}

fn names_in(written: &Value, list: &str) -> BTreeSet<String> {
    let entries = written.get(list).and_then(Value::as_array).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.get("name").and_then(Value::as_str));
    names.map(str::to_owned).collect()
}

/// The upstreams that some route speaks one of these protocols with.
fn spoken_with(written: &Value, protocols: &[&str]) -> BTreeSet<String> {
    let lists = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned();
    let listeners = lists(written, "listeners").unwrap_or_default();
    let routes = listeners.iter().filter_map(|listener| lists(listener, "routes")).flatten();
    let spoken = |route: &Value| {
        let name = route.get("protocol").and_then(Value::as_str);
        name.is_some_and(|name| protocols.contains(&name))
    };
    let names =
        routes.filter(spoken).filter_map(|route| Some(route.get("upstream")?.as_str()?.to_owned()));
    names.collect()
}

fn telemetry(it: shape::Telemetry) -> telemetry::Settings {
    let logs = match it.logs {
        shape::Logs::Json => telemetry::Format::Json,
        shape::Logs::Text => telemetry::Format::Text,
    };
    let level = match it.level {
        shape::Level::Error => LevelFilter::ERROR,
        shape::Level::Warn => LevelFilter::WARN,
        shape::Level::Info => LevelFilter::INFO,
        shape::Level::Debug => LevelFilter::DEBUG,
        shape::Level::Trace => LevelFilter::TRACE,
    };
    telemetry::Settings { logs, level }
}

struct Reader<'a> {
    base: &'a Path,
    faults: &'a mut Faults,
    has_identity: bool,
    has_delegation: bool,
    upstreams: BTreeSet<String>,
    /// The upstreams that A2A is spoken with.
    agents: BTreeSet<String>,
    /// Those that plain HTTP is spoken with.
    webs: BTreeSet<String>,
    /// Those that another protocol is spoken with.
    others: BTreeSet<String>,
    /// Addresses that are taken, each with the place that took it.
    bound: Vec<(SocketAddr, Place)>,
}

impl Reader<'_> {
    fn policy(
        &mut self,
        it: shape::Policy,
        servers: BTreeMap<String, policy::settings::Server>,
        place: &Place,
    ) -> Option<policy::Settings> {
        let at = place.key("groups");
        for (group, members) in &it.groups {
            let at = at.key(group);
            if group.is_empty() {
                self.faults.push(&at, "a group has a name");
            }
            for (index, member) in members.iter().enumerate() {
                if let Err(error) = names::check_member(member) {
                    let problem = format!("`{member}` is no member: {error}");
                    let hint = "a SPIFFE ID, or a prefix of IDs that ends in `/*`";
                    self.faults.push_with(&at.index(index), problem, hint);
                }
            }
        }
        if let Some(template) = &it.path_template {
            self.check(names::check_template(template), &place.key("pathTemplate"));
        }
        let at = place.key("directory");
        let directory = self.required(it.directory, &at)?;
        let directory = self.path(&directory, &at)?;
        if let Err(error) = std::fs::read_dir(&directory) {
            self.faults.push(&at, format!("`{}` can't be read: {error}", directory.display()));
        }
        let (groups, path_template) = (it.groups, it.path_template);
        let runs = self.has_delegation;
        Some(policy::Settings { directory, groups, path_template, runs, servers })
    }

    fn ledger(&mut self, it: shape::Ledger, place: &Place) -> Option<ledger::Settings> {
        let at = place.key("directory");
        let directory = self.required(it.directory, &at);
        let directory = directory.and_then(|directory| self.path(&directory, &at));
        let commit_interval = match &it.commit_interval {
            None => Some(Duration::from_millis(50)),
            given => self.span(given.as_ref(), 0, &place.key("commitInterval")),
        };
        let on_failure = match it.on_failure {
            shape::OnFailure::DenyAll => ledger::OnFailure::DenyAll,
            shape::OnFailure::DenyWrites => ledger::OnFailure::DenyWrites,
        };
        Some(ledger::Settings {
            directory: directory?,
            commit_interval: commit_interval?,
            read_intent: it.read_intent,
            on_failure,
        })
    }

    fn limits(&mut self, it: &shape::Limits, place: &Place) -> Option<Limits> {
        let body = self.size(it.body.as_ref(), 4 << 20, &place.key("body"));
        let at = place.key("bodiesInFlight");
        let bodies_in_flight = self.size(it.bodies_in_flight.as_ref(), 256 << 20, &at);
        let answer = self.size(it.answer.as_ref(), 16 << 20, &place.key("answer"));
        let limits = Limits { body: body?, bodies_in_flight: bodies_in_flight?, answer: answer? };
        if limits.bodies_in_flight < limits.body {
            self.faults.push(&at, "has to be at least `limits.body`, or no such body is served");
        }
        Some(limits)
    }

    /// `grace` is how long the process has to end; what calls get of it leaves time for saying goodbye
    /// to streams and for the ledger.
    fn drain(
        &mut self,
        given: Option<&Span>,
        grace: Option<&OsStr>,
        place: &Place,
    ) -> Option<Duration> {
        let (None, Some(grace)) = (given, grace) else { return self.span(given, 25, place) };
        let Some(seconds) = grace.to_str().and_then(|text| text.parse::<u64>().ok()) else {
            let problem = format!("the environment's `{GRACE}` is no whole number of seconds");
            self.faults.push_with(place, problem, "correct it, or set `drain` in the file");
            return None;
        };
        Some(Duration::from_secs(seconds.saturating_sub(5).max(1)))
    }

    fn admin(
        &mut self,
        admin: shape::Admin,
        health: Option<shape::Health>,
        root: &Place,
    ) -> Option<admin::Settings> {
        let bind = admin.bind.unwrap_or_else(|| "127.0.0.1:9440".into());
        let bind = self.bind(&bind, &root.key("admin").key("bind"));
        let token_file = match admin.token_file {
            None => Some(None),
            file => self.file(file, &root.key("admin").key("tokenFile")).map(Some),
        };
        let Some(health) = health else {
            return Some(admin::Settings { health: None, admin: bind?, token_file: token_file? });
        };
        let at = root.key("health").key("bind");
        let health = self.required(health.bind, &at);
        let health = health.and_then(|text| self.bind(&text, &at));
        Some(admin::Settings { health: Some(health?), admin: bind?, token_file: token_file? })
    }

    fn required<T>(&mut self, value: Option<T>, place: &Place) -> Option<T> {
        if value.is_none() {
            self.faults.missing(place);
        }
        value
    }

    fn check(&mut self, result: Result<(), &'static str>, place: &Place) -> Option<()> {
        result.map_err(|problem| self.faults.push(place, problem)).ok()
    }

    fn unique(&mut self, name: Option<&String>, seen: &mut BTreeSet<String>, place: &Place) {
        if let Some(name) = name
            && !seen.insert(name.clone())
        {
            let problem = format!("the name `{name}` is taken");
            self.faults.push(&place.key("name"), problem);
        }
    }

    fn needs_identity(&mut self, what: &str, place: &Place) {
        if !self.has_identity {
            let problem = format!("{what} needs an identity of Lictor's own");
            let hint = "add `identity: { spiffe: { workloadApi: … } }`";
            self.faults.push_with(place, problem, hint);
        }
    }

    fn bind(&mut self, text: &str, place: &Place) -> Option<SocketAddr> {
        let Ok(address) = text.parse::<SocketAddr>() else {
            let problem = format!("`{text}` is no IP address with a port");
            self.faults.push_with(place, problem, "such as `127.0.0.1:8080` or `[::]:8443`");
            return None;
        };
        let clash = |taken: &SocketAddr| address.port() != 0 && overlap(*taken, address);
        if let Some((_, other)) = self.bound.iter().find(|(taken, _)| clash(taken)) {
            let problem = format!("`{address}` is taken by `{other}`");
            self.faults.push(place, problem);
        }
        self.bound.push((address, place.clone()));
        Some(address)
    }

    fn span(&mut self, given: Option<&Span>, seconds: u64, place: &Place) -> Option<Duration> {
        let Some(given) = given else { return Some(Duration::from_secs(seconds)) };
        given.duration().map_err(|problem| self.faults.push(place, problem)).ok()
    }

    fn size(&mut self, given: Option<&Size>, default: usize, place: &Place) -> Option<usize> {
        let Some(given) = given else { return Some(default) };
        given.bytes().map_err(|problem| self.faults.push(place, problem)).ok()
    }

    fn spiffe_id(&mut self, text: &str, place: &Place) -> Option<SpiffeId> {
        let parsed = SpiffeId::parse(text);
        parsed.map_err(|error| self.faults.push(place, format!("`{text}`: {error}"))).ok()
    }

    fn each(
        &mut self,
        given: &[String],
        place: &Place,
        read: fn(&str) -> Option<String>,
        example: &str,
    ) -> Vec<String> {
        let mut all = Vec::new();
        for (index, text) in given.iter().enumerate() {
            match read(text) {
                Some(value) => all.push(value),
                None => {
                    let problem = format!("`{text}` is not of the form that is sent");
                    let hint = format!("such as `{example}`");
                    self.faults.push_with(&place.index(index), problem, hint);
                }
            }
        }
        all
    }

    fn path(&mut self, text: &str, place: &Place) -> Option<PathBuf> {
        if text.is_empty() {
            self.faults.push(place, "is empty");
            return None;
        }
        Some(self.base.join(text))
    }

    /// A file that can be opened now.
    fn file(&mut self, text: Option<String>, place: &Place) -> Option<PathBuf> {
        let text = self.required(text, place)?;
        let path = self.path(&text, place)?;
        let opened = std::fs::File::open(&path).and_then(|file| file.metadata());
        let problem = match opened {
            Ok(metadata) if metadata.is_dir() => "it is a directory".to_owned(),
            Ok(_) => return Some(path),
            Err(error) => error.to_string(),
        };
        self.faults.push(place, format!("`{}` can't be read: {problem}", path.display()));
        None
    }
}

//! The file as its author writes it; the source of the published JSON schema.
//!
//! Keys that must be there are optional to serde and `required` in the schema: a file with faults
//! can then be read as far as it goes, so that all its faults are told at once.

mod delegation;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Size, Span};

mod admission;
mod agent;
mod listener;
mod rate_limit;
mod upstream;

pub(super) use admission::{Breaker, Bulkhead};
pub(super) use agent::{AgentCard, PushNotifications, Sign};
pub(super) use listener::{Denials, Direction, Listener, Mode, Protocol, Route, Shield, Tls};
pub(super) use rate_limit::{Class, Day, Dimension, Hours, OnStoreFailure, RateLimit, When};
pub(super) use upstream::{
    Env, HealthCheck, Processes, TokenExchange, Tool, ToolClass, Transport, Trust, Upstream,
    UpstreamTimeouts,
};

pub(super) use delegation::{Ambient, Delegation, Mode as DelegationMode, Origin, Pair};

/// Configuration of one Lictor process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Lictor")]
pub(super) struct Document {
    /// Lictor's own identity; needed by `tls: mutual` and by `spiffeId` of an upstream.
    pub identity: Option<Identity>,
    /// Where callers connect.
    #[schemars(required, length(min = 1))]
    pub listeners: Option<Vec<Listener>>,
    /// The servers behind Lictor.
    #[schemars(required, length(min = 1))]
    pub upstreams: Option<Vec<Upstream>>,
    /// What callers may do.
    #[schemars(required)]
    pub policy: Option<Policy>,
    /// On whose behalf calls are made; without it, everybody calls for themselves.
    pub delegation: Option<Delegation>,
    /// The tamper-evident record of every call.
    #[schemars(required)]
    pub ledger: Option<Ledger>,
    /// Where it is kept whose sessions, tasks and request states are whose; in memory only, without it.
    pub state: Option<State>,
    /// How many calls there may be, by whom and of what.
    #[serde(default)]
    pub rate_limits: Vec<RateLimit>,
    /// Bounds on what is held in memory.
    #[serde(default)]
    pub limits: Limits,
    /// How long calls in flight may take to finish once the process is told to stop; 25s, or the
    /// environment's `TERMINATION_GRACE_PERIOD_SECONDS` less five.
    #[schemars(example = "25s")]
    pub drain: Option<Span>,
    /// Metrics and the administration API.
    #[serde(default)]
    pub admin: Admin,
    /// Health and readiness, where a kubelet reaches them.
    pub health: Option<Health>,
    /// Logs.
    #[serde(default)]
    pub telemetry: Telemetry,
}

/// Lictor's own identity.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Identity {
    /// An X.509-SVID and trust bundles.
    #[schemars(required)]
    pub spiffe: Option<Spiffe>,
}

/// Where SVID and bundles come from; exactly one of the keys.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spiffe {
    /// SPIFFE Workload API of a local agent.
    #[schemars(example = "unix:///run/spire/agent.sock")]
    pub workload_api: Option<String>,
    /// PEM files, watched.
    pub files: Option<Files>,
}

/// PEM files that hold an SVID and the bundles.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Files {
    /// The SVID and its intermediates, leaf first.
    #[schemars(required)]
    pub certificate: Option<String>,
    /// Its private key.
    #[schemars(required)]
    pub key: Option<String>,
    /// Trust domain → file with the roots of that domain and of no other.
    #[schemars(required, extend("minProperties" = 1))]
    pub bundles: Option<BTreeMap<String, String>>,
}

/// What callers may do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Policy {
    /// Holds `*.cedar` policies, `*.grants.yaml` documents and `*.cedarschema` fragments.
    #[schemars(required, example = &"policies")]
    pub directory: Option<String>,
    /// Group name → members: SPIFFE IDs, or prefixes of IDs that end in `/*`.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<String>>,
    /// Shape of the callers' SPIFFE paths; a segment in braces matches one segment and names it.
    #[schemars(example = "/tenant/{tenant}/agent/{agent}")]
    pub path_template: Option<String>,
}

/// The tamper-evident record of every call.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Ledger {
    /// This process's own directory; made when it isn't there.
    #[schemars(required, example = "/var/lib/lictor/ledger")]
    pub directory: Option<String>,
    /// Longest time that an entry nobody waits for stays in memory before it is durable.
    #[schemars(extend("default" = "50ms"))]
    pub commit_interval: Option<Span>,
    /// A durable entry before reads too, so that a crash loses none of them.
    #[schemars(extend("default" = false))]
    #[serde(default)]
    pub read_intent: bool,
    /// What happens to calls while the ledger can't be written.
    #[schemars(extend("default" = "denyAll"))]
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// What happens to calls while the ledger can't be written.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum OnFailure {
    /// Every call is refused.
    #[default]
    DenyAll,
    /// Calls that may change state are refused; reads go on and the loss is recorded as a gap.
    DenyWrites,
}

/// Where it is kept what belongs to whom; exactly one of the keys.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct State {
    /// This process's own directory; made when it isn't there.
    #[schemars(example = "/var/lib/lictor/state")]
    pub directory: Option<String>,
    /// A Redis that replicas share.
    pub redis: Option<Redis>,
}

/// A Redis that replicas share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Redis {
    /// Where it is, with an ACL user and the number of a database if need be; `redis`, without TLS, is for loopback addresses.
    #[schemars(required, example = "rediss://lictor@redis.example.org:6379/0")]
    pub url: Option<String>,
    /// File with the password; read again for each connection.
    pub password_file: Option<String>,
    /// Environment variable with the password.
    #[schemars(example = &"REDIS_PASSWORD")]
    pub password_env: Option<String>,
    /// PEM file with the roots that its certificate is checked against, in place of the public
    /// ones.
    pub roots: Option<String>,
    /// Allows `redis` to other hosts.
    #[schemars(extend("default" = false))]
    #[serde(default)]
    pub unsafe_plaintext: bool,
}

/// Bounds on what is held in memory.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Limits {
    /// Longest body of one request.
    #[schemars(extend("default" = "4MiB"))]
    pub body: Option<Size>,
    /// Bodies of all calls that are being judged, and answers that are held for that, together.
    #[schemars(extend("default" = "256MiB"))]
    pub bodies_in_flight: Option<Size>,
    /// Longest answer, or single event of a stream, that is held to be judged or cut down.
    #[schemars(extend("default" = "16MiB"))]
    pub answer: Option<Size>,
}

/// Metrics and the administration API.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Admin {
    /// Address and port.
    #[schemars(extend("default" = "127.0.0.1:9440"))]
    pub bind: Option<String>,
    /// File with the token that operators show to the API, which is off without it; read again for each request.
    #[schemars(example = &"/run/secrets/lictor-admin")]
    pub token_file: Option<String>,
}

/// Health and readiness.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Health {
    /// Address and port.
    #[schemars(required, example = "0.0.0.0:9441")]
    pub bind: Option<String>,
}

/// Logs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Telemetry {
    /// How lines are written.
    #[schemars(extend("default" = "json"))]
    #[serde(default)]
    pub logs: Logs,
    /// The least severe level that is written; the environment's `RUST_LOG` wins over it.
    #[schemars(extend("default" = "info"))]
    #[serde(default)]
    pub level: Level,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Logs {
    /// One object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

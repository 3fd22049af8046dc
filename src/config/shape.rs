//! The file as its author writes it; the source of the published JSON schema.
//!
//! Keys that must be there are optional to serde and `required` in the schema: a file with faults
//! can then be read as far as it goes, so that all its faults are told at once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Name, Size, Span};

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
    /// The tamper-evident record of every call.
    #[schemars(required)]
    pub ledger: Option<Ledger>,
    /// Where it is kept whose sessions, tasks and request states are whose; in memory only, without it.
    pub state: Option<State>,
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

/// Where callers connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Listener {
    /// Unique name, used in policies, metrics and the ledger.
    #[schemars(required)]
    pub name: Option<Name>,
    /// Towards the workload that Lictor stands beside, or away from it.
    #[schemars(extend("default" = "inbound"))]
    #[serde(default)]
    pub direction: Direction,
    /// Address and port; port 0 lets the system choose.
    #[schemars(required, example = "0.0.0.0:8443")]
    pub bind: Option<String>,
    /// How callers prove who they are.
    #[schemars(required)]
    pub tls: Option<Tls>,
    /// SPIFFE ID of every caller of a listener with `tls: none`.
    #[schemars(example = "spiffe://example.org/agent")]
    pub identity: Option<String>,
    /// Accepted `Host` values; without it, loopback names where `tls: none`, anything otherwise.
    #[schemars(example = ["mcp.example.org"])]
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Accepted `Origin` values; without it, those at the accepted hosts where `tls: none`, none otherwise.
    #[schemars(example = ["https://app.example.org"])]
    #[serde(default)]
    pub origins: Vec<String>,
    /// Most connections at once.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 10_000))]
    pub max_connections: Option<usize>,
    /// How long callers may take.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
    /// What is served.
    #[schemars(required, length(min = 1))]
    pub routes: Option<Vec<Route>>,
}

/// Which way calls go.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Direction {
    #[default]
    Inbound,
}

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Tls {
    /// X.509-SVIDs on both sides.
    Mutual,
    /// Plain HTTP on a loopback address; every caller is the listener's `identity`.
    None,
}

/// How long callers may take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListenerTimeouts {
    /// For the head of a request to arrive.
    #[schemars(extend("default" = "10s"))]
    pub head: Option<Span>,
    /// For the body of a request to arrive.
    #[schemars(extend("default" = "30s"))]
    pub body: Option<Span>,
    /// How long one write to a caller may stall before the connection is cut.
    #[schemars(extend("default" = "30s"))]
    pub stall: Option<Span>,
    /// How long a connection may idle between requests.
    #[schemars(extend("default" = "75s"))]
    pub idle: Option<Span>,
    /// How long an event stream may be silent before a comment line keeps it alive.
    #[schemars(extend("default" = "15s"))]
    pub keep_alive: Option<Span>,
}

/// One path of a listener.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Route {
    /// Exact path; no trailing slash, no percent-encoding.
    #[schemars(required, example = "/mcp")]
    pub path: Option<String>,
    /// What is spoken on it.
    #[schemars(required)]
    pub protocol: Option<Protocol>,
    /// Name of an upstream.
    #[schemars(required)]
    pub upstream: Option<String>,
    /// `shadow` records what would have been denied and lets it pass.
    #[schemars(extend("default" = "enforce"))]
    #[serde(default)]
    pub mode: Mode,
    /// How refusals are told.
    #[schemars(extend("default" = "jsonRpc"))]
    #[serde(default)]
    pub denials: Denials,
}

/// What is spoken on a route.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Protocol {
    Mcp,
}

/// Whether denials are enforced.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Mode {
    #[default]
    Enforce,
    Shadow,
}

/// How refusals are told.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Denials {
    /// As the protocol's SDKs understand it best.
    #[default]
    JsonRpc,
    /// By the HTTP status too.
    HttpStatus,
}

/// A server behind Lictor.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Upstream {
    /// Unique name; the server's name in policies.
    #[schemars(required)]
    pub name: Option<Name>,
    /// Endpoint with path and query. `http` is for loopback addresses only. Either this or `command`.
    #[schemars(example = "https://files.example.org/mcp")]
    pub url: Option<String>,
    /// The MCP transport it speaks.
    #[schemars(extend("default" = "streamableHttp"))]
    pub transport: Option<Transport>,
    /// A program and its arguments, in place of `url`: it is started, and speaks MCP on its standard input
    /// and output. Needs `--allow-stdio` on Lictor's own command line.
    #[schemars(length(min = 1), example = ["npx", "-y", "some-server"])]
    pub command: Option<Vec<String>>,
    /// Where the command runs; the file's folder without it.
    pub directory: Option<String>,
    /// What the command finds in its environment, beside a few names that programs can't do without.
    pub env: Option<Env>,
    /// Who shares a process of the command; `perSession` without it.
    pub processes: Option<Processes>,
    /// Most processes of the command at once; 64 without it.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_processes: Option<usize>,
    /// Most processes of one caller at once; 16 without it.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_processes_per_caller: Option<usize>,
    /// How far its answers are believed.
    #[schemars(extend("default" = "trusted"))]
    #[serde(default)]
    pub trust: Trust,
    /// The SPIFFE ID that it has to prove, exactly.
    #[schemars(example = "spiffe://example.org/server/files")]
    pub spiffe_id: Option<String>,
    /// PEM file with the roots that its certificate is checked against, in place of the public
    /// ones.
    pub roots: Option<String>,
    /// `Host` sent to it, where it differs from the URL's.
    #[schemars(example = "files.example.org")]
    pub host: Option<String>,
    /// Free tags, for policies.
    #[serde(default)]
    pub tags: Vec<String>,
    /// What is known of its tools, by name.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// How long it may take.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
}

/// The MCP transport that an upstream speaks.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Transport {
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP+SSE of revision 2024-11-05; `url` is that of the event stream.
    Sse,
}

/// The environment of a command.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Env {
    /// Names that it inherits from Lictor's own environment.
    #[schemars(example = ["GITHUB_TOKEN"])]
    #[serde(default)]
    pub allow: Vec<String>,
    /// Name → value.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Name → file that holds the value; for secrets.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// Who shares a process of a command.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Processes {
    /// One for each session, and one for each caller of the revisions without sessions.
    #[default]
    PerSession,
    /// One for all callers, of the revisions without sessions only.
    Shared,
}

/// How far an upstream's answers are believed.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Trust {
    #[default]
    Trusted,
}

/// What is known of a tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Tool {
    /// How far it can reach.
    #[schemars(extend("default" = "execute"))]
    #[serde(default)]
    pub class: ToolClass,
    /// Free tags, for policies.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// How far a tool can reach.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum ToolClass {
    /// Reads data, changes nothing.
    Read,
    /// Changes something in a bounded, repairable way.
    Write,
    /// May do anything.
    #[default]
    Execute,
}

/// How long an upstream may take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UpstreamTimeouts {
    /// To connect, TLS included.
    #[schemars(extend("default" = "5s"))]
    pub connect: Option<Span>,
    /// For a process of `command` to send its first message; 60s without it.
    #[schemars(example = "60s")]
    pub start: Option<Span>,
    /// From the last byte sent to the head of the answer.
    #[schemars(extend("default" = "5m"))]
    pub first_byte: Option<Span>,
    /// Longest silence inside a JSON answer; event streams may be silent for longer.
    #[schemars(extend("default" = "60s"))]
    pub idle: Option<Span>,
    /// How long an unused connection is kept; has to be below the server's own time.
    #[schemars(extend("default" = "4s"))]
    pub pool_idle: Option<Span>,
    /// How long a process of `command` is kept that nobody has a call or a stream at; 30m without it.
    #[schemars(example = "30m")]
    pub unused: Option<Span>,
}

/// What callers may do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Policy {
    /// Holds `*.cedar` policies and `*.cedarschema` fragments.
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

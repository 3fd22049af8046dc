//! An entry of `upstreams`, as its author writes it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    admission::{Breaker, Bulkhead},
    agent::{AgentCard, PushNotifications},
};
use crate::config::units::{Name, Span};

/// A server behind Lictor.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Upstream {
    /// Unique name; the server's name in policies.
    #[schemars(required)]
    pub name: Option<Name>,
    /// Endpoint with path and query. `http` is for loopback addresses only. Either this or `command`.
    #[schemars(example = "https://files.example.org/mcp")]
    pub url: Option<String>,
    /// Several endpoints that serve the same, in place of `url`; they differ in host and port only.
    #[schemars(length(min = 1, max = 32), example = ["https://one.example.org/mcp", "https://two.example.org/mcp"])]
    pub urls: Option<Vec<String>>,
    /// How it is found out whether endpoints are there; on where there are several.
    pub health_check: Option<HealthCheck>,
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
    /// Where the agent's card is, if not below `url` or at the root of its origin under a well-known name.
    #[schemars(example = "https://files.example.org/agents/files/card.json")]
    pub card: Option<String>,
    /// Base of the agent's HTTP+JSON binding; `url` without it.
    #[schemars(example = "https://files.example.org/rest")]
    pub rest: Option<String>,
    /// How the agent's card is read and shown.
    pub agent_card: Option<AgentCard>,
    /// Where the agent may be told to send push notifications; nowhere without it.
    pub push_notifications: Option<PushNotifications>,
    /// A token service where users' tokens are exchanged for tokens that it accepts (RFC 8693).
    pub token_exchange: Option<TokenExchange>,
    /// Free tags, for policies.
    #[serde(default)]
    pub tags: Vec<String>,
    /// What is known of its tools, by name.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// How long it may take.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// When it is left alone, since it fails.
    #[serde(default)]
    pub breaker: Breaker,
    /// How many calls it has at once.
    #[serde(default)]
    pub bulkhead: Bulkhead,
}

/// How endpoints are asked whether they are there.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct HealthCheck {
    /// Whether they are asked.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Time between two questions to one endpoint, give or take a tenth.
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<Span>,
    /// Longest wait for an answer, connecting included.
    #[schemars(extend("default" = "2s"))]
    pub timeout: Option<Span>,
}

/// The MCP transport that an upstream speaks.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Transport {
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP+SSE of revision 2024-11-05; `url` is that of the event stream.
    Sse,
}

/// The environment of a command.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Env {
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
pub(in crate::config) enum Processes {
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
pub(in crate::config) enum Trust {
    #[default]
    Trusted,
}

/// A token service, and what it is asked for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct TokenExchange {
    /// Its token endpoint. `http` is for loopback addresses only.
    #[schemars(required, example = "https://sts.example.org/oauth2/token")]
    pub url: Option<String>,
    /// What Lictor is known by there.
    #[schemars(required)]
    pub client_id: Option<String>,
    /// File with the client secret; read again for each exchange. Either this or `clientSecretEnv`.
    pub client_secret_file: Option<String>,
    /// Environment variable with the client secret.
    pub client_secret_env: Option<String>,
    /// PEM file with the roots that its certificate is checked against, in place of the public ones.
    pub roots: Option<String>,
    /// The upstream's logical name at the service. This, `resource` or both.
    #[schemars(example = "https://crm.example.org")]
    pub audience: Option<String>,
    /// The upstream's address as the service knows it: an absolute URI without a fragment.
    #[schemars(example = "https://crm.example.org/mcp")]
    pub resource: Option<String>,
    /// Scopes to ask for; what the service gives without it.
    #[schemars(example = ["tickets.read"])]
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Whether calls without a user's token are refused; otherwise they go without one.
    #[schemars(extend("default" = true))]
    pub required: Option<bool>,
}

/// What is known of a tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Tool {
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
pub(in crate::config) enum ToolClass {
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
pub(in crate::config) struct UpstreamTimeouts {
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
    /// From the call to the end of an answer that is no event stream.
    #[schemars(extend("default" = "15m"))]
    pub call: Option<Span>,
    /// Longest silence inside an event stream; without it, one may be silent for ever.
    #[schemars(example = "10m")]
    pub stream_idle: Option<Span>,
    /// How long an unused connection is kept; has to be below the server's own time.
    #[schemars(extend("default" = "4s"))]
    pub pool_idle: Option<Span>,
    /// How long a process of `command` is kept that nobody has a call or a stream at; 30m without it.
    #[schemars(example = "30m")]
    pub unused: Option<Span>,
}

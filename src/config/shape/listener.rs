//! An entry of `listeners`, as its author writes it.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use super::DelegationMode;
use crate::config::units::{Name, Span};

/// Where callers connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Listener {
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
    /// SPIFFE ID of every caller of a listener with `tls: none`; of an outbound one it is that of Lictor's own
    /// SVID without it.
    #[schemars(example = "spiffe://example.org/agent")]
    pub identity: Option<String>,
    /// How callers reach it, with a path in front of those of the routes if need be; stands on the cards of
    /// agents.
    #[schemars(example = "https://agents.example.org")]
    pub public_url: Option<String>,
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
    /// What one address may take of them.
    #[serde(default)]
    pub shield: Shield,
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
pub(in crate::config) enum Direction {
    /// Towards the workload that Lictor stands beside.
    #[default]
    Inbound,
    /// Away from it: the workload's own calls.
    Outbound,
}

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Tls {
    /// X.509-SVIDs on both sides.
    Mutual,
    /// Plain HTTP on a loopback address; every caller is the listener's `identity`.
    None,
}

/// What one address may take: an IPv4 address, or the /64 of an IPv6 address.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Shield {
    /// Most connections at once.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    pub connections: Option<usize>,
    /// Most new connections a second; as many may come at once.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 100))]
    pub new_per_second: Option<NonZeroU32>,
    /// Whether loopback addresses are held to it too.
    #[schemars(extend("default" = false))]
    #[serde(default)]
    pub loopback: bool,
}

/// How long callers may take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct ListenerTimeouts {
    /// For the first byte on a new connection to arrive, and for a head from its first byte on.
    #[schemars(extend("default" = "10s"))]
    pub head: Option<Span>,
    /// For the body of a request to arrive.
    #[schemars(extend("default" = "30s"))]
    pub body: Option<Span>,
    /// How long a caller may take for the next 64 KiB of an answer before the connection is cut.
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
pub(in crate::config) struct Route {
    /// Exact path, or with A2A and plain HTTP that of everything below it; no trailing slash, no percent-encoding.
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
    /// Whether the agent's card is found at the root of the listener too, where callers look for it that know
    /// only the host; one A2A route of a listener, and where there is just one it is that one.
    pub card_at_root: Option<bool>,
    /// Whether messages to an agent that have a form (`metadata.form`, or a data part of such a type) have to be of
    /// one of the fourteen known ones, and say the same in both places.
    #[schemars(extend("default" = false))]
    #[serde(default)]
    pub message_forms: bool,
    /// Further headers of requests that pass to a web API. What is between two hops, cookies, and what says where a
    /// request came from can't be named.
    #[schemars(example = ["x-github-api-version"])]
    #[serde(default)]
    pub headers: Vec<String>,
    /// Names of query parameters that are lists to a web API, and so may be there more than once.
    #[schemars(example = ["labels"])]
    #[serde(default)]
    pub repeatable: Vec<String>,
    /// How far those may go whom the workload calls here, on behalf of whoever called it; as far as it may go
    /// itself, without it. For outbound listeners.
    pub delegate: Option<DelegationMode>,
    /// How refusals are told.
    #[schemars(extend("default" = "jsonRpc"))]
    #[serde(default)]
    pub denials: Denials,
}

/// What is spoken on a route.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Protocol {
    Mcp,
    A2a,
    /// HTTP itself, to a web API.
    Http,
}

/// Whether denials are enforced.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Mode {
    #[default]
    Enforce,
    Shadow,
}

/// How refusals are told.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Denials {
    /// As the protocol's SDKs understand it best.
    #[default]
    JsonRpc,
    /// By the HTTP status too.
    HttpStatus,
}

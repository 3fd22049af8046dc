//! A document as its author writes it; the source of the published JSON schema.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

/// Who may call which tools, and which agents may invoke each other.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Lictor grants", extend("minProperties" = 1))]
#[expect(dead_code, reason = "entries are read one by one; this gives the schema its top")]
pub(super) struct Document {
    /// The agents that the other entries speak of.
    #[serde(default)]
    pub agents: Vec<Agent>,
    /// Tools that agents may call.
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// How far calls may be passed on, by tenant.
    #[serde(default)]
    pub delegation: Vec<TenantDelegation>,
}

/// An agent, or all agents below a path. To declare an agent closes it: whatever other policies
/// permit, it invokes only the agents in `canInvoke`, is invoked only by those in `invocableBy`, and
/// calls only tools that are granted to it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Agent {
    /// A SPIFFE ID, or a prefix of IDs that ends in `/*`.
    #[schemars(example = "spiffe://example.org/tenant/acme/agent/planner")]
    pub id: String,
    /// Whether it may take part at all.
    #[serde(default)]
    #[schemars(extend("default" = "active"))]
    pub status: Status,
    /// The upstream that leads to it. Not needed where an upstream proves this very ID (`spiffeId`).
    #[serde(default)]
    #[schemars(with = "String")]
    pub upstream: Option<String>,
    /// Agents that it may invoke, by ID or by the name of their upstream. They have to agree.
    #[serde(default)]
    pub can_invoke: Vec<String>,
    /// Who may invoke it: IDs, prefixes of IDs that end in `/*`, and groups of the configuration. They
    /// have to say so as well.
    #[serde(default)]
    pub invocable_by: Vec<String>,
    /// Who may see its public card.
    #[serde(default)]
    #[schemars(extend("default" = "invokers"))]
    pub card: Card,
    /// Whether other policies may permit it tools that are not granted here.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub dynamic_discovery: bool,
    /// Most calls of tools in a run of a chain of delegation that it takes part in.
    #[serde(default)]
    #[schemars(with = "u32", range(min = 1))]
    pub max_tool_calls_per_execution: Option<NonZeroU32>,
    /// Most invocations of other agents in such a run.
    #[serde(default)]
    #[schemars(with = "u32", range(min = 1))]
    pub max_delegations_per_execution: Option<NonZeroU32>,
    /// Told to callers that are refused because of this entry.
    #[serde(default)]
    #[schemars(with = "String")]
    pub reason: Option<String>,
}

/// Whether an agent may take part.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Status {
    /// As the other keys say.
    #[default]
    Active,
    /// It may neither call nor be called.
    Suspended,
    /// It may call, and goes on with tasks that it has; nobody gives it new ones.
    Deprecated,
}

/// Who may see an agent's card.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Card {
    /// Whoever may invoke the agent.
    #[default]
    Invokers,
    /// Every caller that proved who it is.
    Everybody,
}

/// Tools of one server that an agent may call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Grant {
    /// An agent of `agents`, as its `id` is written there.
    #[schemars(example = "spiffe://example.org/tenant/acme/agent/planner")]
    pub agent: String,
    /// Name of the upstream.
    #[schemars(example = &"files")]
    pub server: String,
    /// Name of the tool as its server spells it; `*` at the end stands for any rest.
    #[schemars(example = "read_*")]
    pub tool: String,
    /// Classes of tools that it covers: a tool is called only if its own class is among them.
    #[schemars(length(min = 1))]
    pub permissions: Vec<Permission>,
    /// How far calls under this grant may be passed on.
    #[serde(default)]
    #[schemars(with = "Delegation")]
    pub delegation: Option<Delegation>,
    /// Most calls under this grant in an hour that begins with the first of them, for each agent.
    #[serde(default)]
    #[schemars(with = "u32", range(min = 1))]
    pub max_calls_per_hour: Option<NonZeroU32>,
    /// The only hours of a day at which calls under this grant are let through.
    #[serde(default)]
    #[schemars(with = "TimeWindow")]
    pub time_window: Option<TimeWindow>,
    /// Why; for those who read explanations.
    #[serde(default)]
    #[schemars(with = "String")]
    pub reason: Option<String>,
}

/// A class of tools.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) enum Permission {
    /// Tools that only read.
    Read,
    /// Tools that change something in a bounded way.
    Write,
    /// Tools that may do anything.
    Execute,
}

/// Hours of every day, as a clock at a place shows them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TimeWindow {
    /// The first minute.
    #[schemars(example = &"08:00")]
    pub start: String,
    /// The minute that is none of them any more; on the next day, if it isn't later than `start`.
    #[schemars(example = &"18:00")]
    pub end: String,
    /// The place, by its name in the IANA time zone database.
    #[serde(default = "utc")]
    #[schemars(extend("default" = "UTC"))]
    pub timezone: String,
}

/// How far calls may be passed on.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Delegation {
    /// Most hops between the first caller and the server.
    #[serde(default = "five")]
    #[schemars(range(min = 0, max = 16), extend("default" = 5))]
    pub max_depth: u8,
    /// What may be done for somebody else.
    #[serde(default)]
    #[schemars(extend("default" = "full"))]
    pub mode: Mode,
}

/// How far the calls of a tenant's agents may be passed on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TenantDelegation {
    /// The tenant, as the path template of the configuration tells it from the SPIFFE ID.
    #[schemars(example = &"acme")]
    pub tenant: String,
    /// Most hops between the first caller and the server.
    #[serde(default = "five")]
    #[schemars(range(min = 0, max = 16), extend("default" = 5))]
    pub max_depth: u8,
    /// What may be done for somebody else.
    #[serde(default)]
    #[schemars(extend("default" = "full"))]
    pub mode: Mode,
}

/// What may be done for somebody else.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Mode {
    /// Everything.
    #[default]
    Full,
    /// Calls of the classes up to `write`.
    ReadWrite,
    /// Calls of the classes up to `read`.
    ReadOnly,
}

fn utc() -> String {
    "UTC".to_owned()
}

fn five() -> u8 {
    5
}

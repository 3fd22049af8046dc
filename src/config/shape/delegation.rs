//! Chains of delegation.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Span;

/// On whose behalf calls are made.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Delegation {
    /// Who may begin a chain, and call without one. Whoever isn't here works for others only.
    #[schemars(required)]
    pub may_originate: Option<Vec<Origin>>,
    /// Most hops of a chain.
    #[schemars(range(min = 1, max = 10), extend("default" = 5))]
    pub max_depth: Option<usize>,
    /// How long a chain that begins here lasts; 15m without it.
    #[schemars(example = "15m")]
    pub lifetime: Option<Span>,
    /// What becomes of a workload's call that says nothing of its cause while several callers are live.
    #[serde(default)]
    #[schemars(extend("default" = "all"))]
    pub ambient: Ambient,
    /// The tenant that chains which begin here are for.
    #[schemars(example = &"acme", length(min = 1, max = 64))]
    pub tenant: Option<String>,
    /// Who may call somebody who is in the chain already.
    #[serde(default)]
    pub allow_revisit: Vec<Pair>,
    /// Trust domains between which a hop may go.
    #[serde(default)]
    pub domains: Vec<Pair>,
}

/// What becomes of a call that says nothing of its cause while several callers are live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Ambient {
    /// It is made for all of them, and has to be permitted to all.
    #[default]
    All,
    /// It is refused.
    Deny,
}

/// Somebody who may begin a chain.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Origin {
    /// A SPIFFE ID, or a prefix of IDs that ends in `/*`; the longest that fits counts.
    #[schemars(required, example = "spiffe://example.org/agent/*")]
    pub id: Option<String>,
    /// How far its chains may reach, and its calls without one.
    #[schemars(required)]
    pub mode: Option<Mode>,
}

/// How far calls may reach.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum Mode {
    /// Classes up to `read`.
    ReadOnly,
    /// Classes up to `write`.
    ReadWrite,
    /// Everything.
    Full,
}

/// A hop from one to the other, in this direction.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Pair {
    /// Who calls.
    #[schemars(required)]
    pub from: Option<String>,
    /// Who is called.
    #[schemars(required)]
    pub to: Option<String>,
}

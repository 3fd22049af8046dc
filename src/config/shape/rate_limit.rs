//! An entry of `rateLimits`, as its author writes it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::units::{Amount, Name, TimeOfDay};

/// A limit on calls; exactly one of `rate`, `budget` and `hours`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct RateLimit {
    /// Unique name; callers are told it.
    #[schemars(required, example = &"per-agent")]
    pub name: Option<Name>,
    /// So many calls in a period, evenly.
    #[schemars(example = "100/1m")]
    pub rate: Option<Amount>,
    /// Most calls of a `rate` at once, after a while without any; as many as in a period, without it.
    #[schemars(range(min = 1))]
    pub burst: Option<u32>,
    /// So many calls in a period that begins with the first of them, or in a run of a chain of delegation.
    #[schemars(example = "1000/1h", example = "20/run")]
    pub budget: Option<Amount>,
    /// Calls only at these hours.
    pub hours: Option<Hours>,
    /// Calls that differ in one of these are counted apart; `[principal]` without it. With an empty list,
    /// all are counted together.
    pub per: Option<Vec<Dimension>>,
    /// Which calls it is about; all that do something, without it.
    #[serde(default)]
    pub when: When,
    /// Tool → how many calls one of it counts for; 1 without it.
    #[serde(default)]
    pub cost: BTreeMap<String, u32>,
    /// Whether replicas count together, in `state.redis`.
    #[schemars(extend("default" = false))]
    #[serde(default)]
    pub shared: bool,
    /// What holds for a shared limit while Redis can't be asked; `local` without it.
    pub on_store_failure: Option<OnStoreFailure>,
    /// About how many replicas there are; each takes its part of a shared limit while Redis can't be asked.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub replicas: Option<u32>,
}

/// Which calls a limit is about. What isn't named doesn't matter.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct When {
    /// Callers: SPIFFE IDs, or prefixes of IDs that end in `/*`.
    #[schemars(length(min = 1))]
    pub principals: Option<Vec<String>>,
    /// Tools, by name; `*` at the end stands for any rest.
    #[schemars(length(min = 1))]
    pub tools: Option<Vec<String>>,
    /// Upstreams, by name.
    #[schemars(length(min = 1))]
    pub upstreams: Option<Vec<String>>,
    /// Methods, by the names that policies have for them.
    #[schemars(length(min = 1))]
    pub methods: Option<Vec<String>>,
    /// How far calls can reach; `[read, write, execute]` without it.
    #[schemars(length(min = 1))]
    pub classes: Option<Vec<Class>>,
}

/// Hours of a week, as a clock at that place shows them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Hours {
    /// The days on which they begin; every day without it.
    #[schemars(length(min = 1))]
    pub days: Option<Vec<Day>>,
    /// The first minute.
    #[schemars(required, example = "08:00")]
    pub from: Option<TimeOfDay>,
    /// The minute that is none of them any more; on the next day, if it isn't later than `from`.
    #[schemars(required, example = "18:00")]
    pub to: Option<TimeOfDay>,
    /// The place, by its name in the IANA time zone database.
    #[schemars(required, example = "Europe/Berlin")]
    pub zone: Option<String>,
}

/// What tells calls apart.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Dimension {
    /// The caller.
    Principal,
    /// The caller's tenant, by `policy.pathTemplate`.
    Tenant,
    /// The tool.
    Tool,
    /// The upstream.
    Upstream,
    /// How far a call can reach.
    Class,
    /// The method.
    Method,
    /// The listener.
    Listener,
    /// The run of a chain of delegation.
    Run,
}

/// How far a call can reach.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Class {
    /// Lists of what there is.
    List,
    /// Reads.
    Read,
    /// Changes that are bounded.
    Write,
    /// Anything else.
    Execute,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// What holds while Redis can't be asked.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::config) enum OnStoreFailure {
    /// Each replica counts its own calls against its part of the limit.
    #[default]
    Local,
    /// Such calls are refused.
    Deny,
    /// Such calls are not limited.
    UnsafeAllow,
}

//! When an upstream is spared calls, as its author writes it.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::units::Span;

/// When an upstream that fails is left alone.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Breaker {
    /// Whether it is ever.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Failures in a row that open it.
    #[schemars(extend("default" = 5), range(min = 1, max = 1_000))]
    pub failures: Option<u32>,
    /// Percentage of failures among 20 calls or more within half a minute that opens it.
    #[schemars(extend("default" = 50), range(min = 1, max = 100))]
    pub failure_percent: Option<u32>,
    /// How long it is open for the first time; twice as long each time that it opens again.
    #[schemars(extend("default" = "5s"))]
    pub open: Option<Span>,
    /// How long it is open at most.
    #[schemars(extend("default" = "60s"))]
    pub max_open: Option<Span>,
    /// Whether failures of a tool count against that tool, and not against the whole server.
    #[schemars(extend("default" = false))]
    pub per_tool: Option<bool>,
}

/// How many calls an upstream has at once.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Bulkhead {
    /// Calls that have no answer yet, or one in a document that hasn't ended.
    #[schemars(extend("default" = 1024), range(min = 1, max = 1_000_000))]
    pub calls: Option<usize>,
    /// Those of one caller; half of `calls` without it.
    #[schemars(range(min = 1, max = 1_000_000), example = 512)]
    pub calls_per_caller: Option<usize>,
    /// Event streams.
    #[schemars(extend("default" = 10_000), range(min = 1, max = 1_000_000))]
    pub streams: Option<usize>,
    /// Those of one caller; half of `streams` without it.
    #[schemars(range(min = 1, max = 1_000_000), example = 5_000)]
    pub streams_per_caller: Option<usize>,
    /// Calls that may wait for a place; not more than `calls`, and as many without it.
    #[schemars(range(min = 0, max = 1_000_000), example = 1024)]
    pub queue: Option<usize>,
    /// How long they may.
    #[schemars(extend("default" = "1s"))]
    pub queue_time: Option<Span>,
}

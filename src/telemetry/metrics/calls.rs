//! What is counted of each call.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::{counters, register};

/// From a call's first byte to its last, in seconds; long answers are streams.
const TOTAL: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];
/// Lictor's own share, in seconds.
const OWN: &[f64] = &[
    0.000_05, 0.000_1, 0.000_2, 0.000_35, 0.000_5, 0.000_75, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1,
];

/// What was decided about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Permitted.
    Permit,
    /// Refused.
    Deny,
    /// Let through in shadow mode; it would have been refused.
    Shadow,
    /// Nothing, and it was answered: a preflight.
    None,
}

impl Verdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
            Self::Shadow => "shadow",
            Self::None => "none",
        }
    }
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// `mcp`, `a2a` or `http`.
    pub protocol: &'static str,
    /// Name of the method's row in the table; `None` for a vendor's method, or where the message
    /// could not be decoded.
    pub method: Option<&'static str>,
    /// What was decided.
    pub verdict: Verdict,
    /// `ok`, or the kind of the denial or failure.
    pub outcome: &'static str,
    /// From the first byte of the request to the last of the answer.
    pub total: Duration,
    /// `total` without the time that was spent waiting for the upstream or for the caller.
    pub own: Duration,
}

/// The families that a call adds to.
#[derive(Clone, Debug)]
pub(super) struct Families {
    total: IntCounterVec,
    duration: HistogramVec,
    own: HistogramVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let labels = ["protocol", "method", "decision", "upstream"];
            register(registry, HistogramVec::new(options, &labels))
        };
        Self {
            total: counters(
                registry,
                "lictor_calls_total",
                "Calls that have ended.",
                &["protocol", "method", "decision", "upstream", "outcome"],
            ),
            duration: histogram(
                "lictor_call_duration_seconds",
                "From the first byte of a request to the last of its answer.",
                TOTAL,
            ),
            own: histogram(
                "lictor_own_duration_seconds",
                "Lictor's own share of a call: without waiting for upstream or caller.",
                OWN,
            ),
        }
    }

    pub(super) fn calls(&self, upstream: &str) -> Calls {
        Calls(Arc::new(Upstream {
            families: self.clone(),
            name: upstream.into(),
            series: ArcSwap::default(),
        }))
    }
}

/// The calls that lead to one upstream. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Calls(Arc<Upstream>);

#[derive(Debug)]
struct Upstream {
    families: Families,
    name: Box<str>,
    /// The series that were looked up before. Every part of a key is a constant of the program, so
    /// the map stops growing soon.
    series: ArcSwap<HashMap<Key, Series>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    protocol: &'static str,
    method: &'static str,
    verdict: Verdict,
    outcome: &'static str,
}

#[derive(Clone, Debug)]
struct Series {
    total: IntCounter,
    duration: Histogram,
    own: Histogram,
}

impl Calls {
    /// Counts a call that has ended.
    pub fn observe(&self, call: &Finished) {
        let method = call.method.unwrap_or("other");
        let (protocol, verdict, outcome) = (call.protocol, call.verdict, call.outcome);
        let key = Key { protocol, method, verdict, outcome };
        let add = |series: &Series| {
            series.total.inc();
            series.duration.observe(call.total.as_secs_f64());
            series.own.observe(call.own.as_secs_f64());
        };
        match self.0.series.load().get(&key) {
            Some(series) => add(series),
            None => add(&self.0.look_up(key)),
        }
    }
}

impl Upstream {
    fn look_up(&self, key: Key) -> Series {
        let labels = [key.protocol, key.method, key.verdict.as_str(), &self.name];
        let [protocol, method, decision, upstream] = labels;
        let series = Series {
            total: self.families.total.with_label_values(&[
                protocol,
                method,
                decision,
                upstream,
                key.outcome,
            ]),
            duration: self.families.duration.with_label_values(&labels),
            own: self.families.own.with_label_values(&labels),
        };
        self.series.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(key, series.clone());
            known
        });
        series
    }
}

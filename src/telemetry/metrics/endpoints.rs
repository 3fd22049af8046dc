//! Metrics of the endpoints of upstreams that have several.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::{counters, gauges};

#[derive(Clone, Debug)]
pub(super) struct Families {
    up: IntGaugeVec,
    ejections: IntCounterVec,
    passed_over: IntCounterVec,
    probes: IntCounterVec,
}

/// One endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    name: Box<str>,
    up: IntGauge,
    ejections: IntCounter,
    passed_over: IntCounter,
    good_probes: IntCounter,
    failed_probes: IntCounter,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let labels = ["upstream", "endpoint"];
        Self {
            up: gauges(
                registry,
                "lictor_upstream_endpoint_up",
                "1 for an endpoint that calls go to, 0 for one that is left out.",
                &labels,
            ),
            ejections: counters(
                registry,
                "lictor_upstream_endpoint_ejections_total",
                "How often an endpoint was left out since it failed calls in a row.",
                &labels,
            ),
            passed_over: counters(
                registry,
                "lictor_upstream_endpoint_passed_over_total",
                "Calls that no connection to an endpoint came about for.",
                &labels,
            ),
            probes: counters(
                registry,
                "lictor_upstream_endpoint_probes_total",
                "Questions to an endpoint whether it is there.",
                &["upstream", "endpoint", "outcome"],
            ),
        }
    }

    pub(super) fn endpoint(&self, upstream: &str, endpoint: &str) -> Endpoint {
        let labels = [upstream, endpoint];
        let up = self.up.with_label_values(&labels);
        up.set(1);
        let probes = |outcome| self.probes.with_label_values(&[upstream, endpoint, outcome]);
        Endpoint {
            name: endpoint.into(),
            up,
            ejections: self.ejections.with_label_values(&labels),
            passed_over: self.passed_over.with_label_values(&labels),
            good_probes: probes("ok"),
            failed_probes: probes("failed"),
        }
    }
}

impl Endpoint {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells whether calls go to it.
    pub fn set_up(&self, up: bool) {
        self.up.set(i64::from(up));
    }

    /// Counts that it is left out for failing calls.
    pub fn ejected(&self) {
        self.ejections.inc();
    }

    /// Counts a call that no connection came about for.
    pub fn passed_over(&self) {
        self.passed_over.inc();
    }

    /// Counts a probe.
    pub fn probed(&self, alive: bool) {
        if alive { self.good_probes.inc() } else { self.failed_probes.inc() }
    }
}

//! Metrics of the endpoints of upstreams that have several.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::{counters, gauges, tellers::Tellers};

#[derive(Clone, Debug)]
pub(super) struct Families {
    up: IntGaugeVec,
    ejections: IntCounterVec,
    passed_over: IntCounterVec,
    probes: IntCounterVec,
    tellers: Tellers,
}

/// What a question to an endpoint can come to.
const OUTCOMES: [&str; 2] = ["ok", "failed"];

/// One endpoint. Its series go with the last of the same name.
#[derive(Debug)]
pub struct Endpoint {
    families: Families,
    upstream: Box<str>,
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
            tellers: Tellers::default(),
        }
    }

    pub(super) fn endpoint(&self, upstream: &str, endpoint: &str) -> Endpoint {
        let labels = [upstream, endpoint];
        let [good, failed] = OUTCOMES;
        let probes = |outcome| self.probes.with_label_values(&[upstream, endpoint, outcome]);
        self.tellers.join(&teller(upstream, endpoint), || {
            let up = self.up.with_label_values(&labels);
            up.set(1);
            Endpoint {
                families: self.clone(),
                upstream: upstream.into(),
                name: endpoint.into(),
                up,
                ejections: self.ejections.with_label_values(&labels),
                passed_over: self.passed_over.with_label_values(&labels),
                good_probes: probes(good),
                failed_probes: probes(failed),
            }
        })
    }

    fn remove(&self, upstream: &str, endpoint: &str) {
        // What isn't there needn't be removed.
        let _ = self.up.remove_label_values(&[upstream, endpoint]);
        let _ = self.ejections.remove_label_values(&[upstream, endpoint]);
        let _ = self.passed_over.remove_label_values(&[upstream, endpoint]);
        for outcome in OUTCOMES {
            let _ = self.probes.remove_label_values(&[upstream, endpoint, outcome]);
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

impl Drop for Endpoint {
    fn drop(&mut self) {
        let Self { families, upstream, name, .. } = self;
        families.tellers.leave(&teller(upstream, name), || families.remove(upstream, name));
    }
}

/// No authority has a space in it.
fn teller(upstream: &str, endpoint: &str) -> String {
    format!("{endpoint} {upstream}")
}

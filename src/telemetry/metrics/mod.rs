//! Every metric of Lictor, its name, its labels and its buckets: one place.
//!
//! Label sets are bounded: a label's value comes from a table of ours or from the configuration,
//! never from what a caller sent. The parts of the program hold typed handles and can't make up
//! series.

mod admissions;
mod calls;
mod endpoints;
mod ledger;
mod limits;
mod revocations;
mod state;
mod tellers;
mod total;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus::{
    Gauge, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, GenericGauge},
};

pub use admissions::Admissions;
pub use calls::{Calls, Finished, Verdict};
pub use endpoints::Endpoint;
pub use ledger::LedgerReading;
pub use revocations::RevocationReading;
pub use state::StateReading;

/// The media type of [`Metrics::render`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The states that [`Metrics::set_identity`] knows.
const IDENTITY_STATES: [&str; 5] = ["starting", "ready", "stale", "expired", "withdrawn"];

/// All metrics of one process. Cloning is cheap and gives handles to the same series.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    families: calls::Families,
    admissions: admissions::Families,
    ledger: ledger::Ledger,
    endpoints: endpoints::Families,
    state: state::State,
    revocations: revocations::Revocations,
    open_streams: IntGauge,
    bodies_in_flight: IntGauge,
    connections: IntGaugeVec,
    refused_connections: IntCounterVec,
    shadow_denials: IntCounterVec,
    server_requests: IntCounterVec,
    server_replies: IntCounterVec,
    withheld: IntCounterVec,
    token_exchanges: IntCounterVec,
    limits: IntCounterVec,
    limit_keys: IntGaugeVec,
    identity_state: IntGaugeVec,
    svid_remaining: Gauge,
    /// End of the SVID's validity in Unix seconds; 0 without one.
    svid_not_after: Arc<AtomicU64>,
    policy_reloads: IntCounterVec,
    policies_current: IntGauge,
    config_reloads: IntCounterVec,
    unsafe_settings: IntGaugeVec,
    processes: IntGaugeVec,
    crashed_processes: IntCounterVec,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry of its own with every metric in it.
    pub fn new() -> Self {
        let registry = Registry::new();
        let build = gauges(
            &registry,
            "lictor_build_info",
            "Always 1; the label tells the version.",
            &["version"],
        );
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let policies_current = gauge(
            &registry,
            "lictor_policies_current",
            "1 while the policies on disk are those in force, else 0.",
        );
        policies_current.set(1);
        Self {
            families: calls::Families::new(&registry),
            admissions: admissions::Families::new(&registry),
            ledger: ledger::Ledger::new(&registry),
            endpoints: endpoints::Families::new(&registry),
            state: state::State::new(&registry),
            revocations: revocations::Revocations::new(&registry),
            open_streams: gauge(
                &registry,
                "lictor_open_streams",
                "Answers that are being streamed to callers now.",
            ),
            bodies_in_flight: gauge(
                &registry,
                "lictor_bodies_in_flight_bytes",
                "Bytes of request bodies that are held while they are judged.",
            ),
            connections: gauges(
                &registry,
                "lictor_open_connections",
                "Connections of callers that are open now.",
                &["listener"],
            ),
            refused_connections: counters(
                &registry,
                "lictor_connections_refused_total",
                "Connections that ended before a request: too many, or no acceptable certificate.",
                &["listener", "reason"],
            ),
            shadow_denials: counters(
                &registry,
                "lictor_shadow_denials_total",
                "Calls that were let through in shadow mode and would have been denied.",
                &["upstream", "kind"],
            ),
            server_requests: counters(
                &registry,
                "lictor_server_requests_total",
                "Requests of servers to callers that have ended.",
                &["upstream", "method", "decision", "outcome"],
            ),
            server_replies: counters(
                &registry,
                "lictor_server_replies_total",
                "Errors that Lictor sent to servers in answer to their refused requests.",
                &["upstream", "outcome"],
            ),
            withheld: counters(
                &registry,
                "lictor_withheld_messages_total",
                "Messages of servers that did not go on, other than refused requests.",
                &["upstream", "reason"],
            ),
            token_exchanges: counters(
                &registry,
                "lictor_token_exchanges_total",
                "Requests to a token service for a token on behalf of a user, by what came of them.",
                &["upstream", "outcome"],
            ),
            limits: counters(
                &registry,
                "lictor_limits_total",
                "Calls that met a limit, by what it said.",
                &["limit", "outcome"],
            ),
            limit_keys: gauges(
                &registry,
                "lictor_limit_keys",
                "Callers, tools or whatever else a limit counts apart, that are in memory.",
                &["limit"],
            ),
            identity_state: gauges(
                &registry,
                "lictor_identity_state",
                "1 for the state that Lictor's own identity is in, 0 for the others.",
                &["state"],
            ),
            svid_remaining: float_gauge(
                &registry,
                "lictor_svid_remaining_seconds",
                "Time until Lictor's own SVID expires; 0 without one.",
            ),
            svid_not_after: Arc::default(),
            policy_reloads: counters(
                &registry,
                "lictor_policy_reloads_total",
                "Attempts to put new policies in force; rejected ones leave the old in force.",
                &["outcome"],
            ),
            policies_current,
            config_reloads: counters(
                &registry,
                "lictor_config_reloads_total",
                "Attempts to put a new configuration in force; rejected ones leave the old in force.",
                &["outcome"],
            ),
            unsafe_settings: gauges(
                &registry,
                "lictor_unsafe_settings",
                "Settings in force that weaken what is enforced, and in how many places.",
                &["setting"],
            ),
            processes: gauges(
                &registry,
                "lictor_upstream_processes",
                "Processes that run for an upstream that is a command.",
                &["upstream"],
            ),
            crashed_processes: counters(
                &registry,
                "lictor_upstream_process_crashes_total",
                "Processes of an upstream that ended by themselves.",
                &["upstream"],
            ),
            registry,
        }
    }

    /// The calls that lead to an upstream; `upstream` is a name from the configuration. To be taken
    /// once for each route, at start.
    pub fn calls(&self, upstream: &str) -> Calls {
        self.families.calls(upstream)
    }

    /// The calls that were refused before a route was known; their label `upstream` is empty.
    pub fn unrouted(&self) -> Calls {
        self.families.calls("")
    }

    /// The places at an upstream and its breaker; `upstream` is a name from the configuration.
    pub fn admissions(&self, upstream: &str) -> Admissions {
        self.admissions.of(upstream)
    }

    /// One of several endpoints of an upstream; both names come from the configuration.
    pub fn endpoint(&self, upstream: &str, endpoint: &str) -> Endpoint {
        self.endpoints.endpoint(upstream, endpoint)
    }

    /// Counts an answer as being streamed for as long as the guard lives.
    pub fn open_stream(&self) -> Held {
        Held::new(&self.open_streams, 1)
    }

    /// Tells how many bytes of bodies are held while they are judged.
    pub fn set_bodies_in_flight(&self, bytes: usize) {
        self.bodies_in_flight.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Tells how many processes run for an upstream, and how many more have crashed than at the last time.
    pub fn set_processes(&self, upstream: &str, running: usize, crashed: u64) {
        let running = i64::try_from(running).unwrap_or(i64::MAX);
        self.processes.with_label_values(&[upstream]).set(running);
        self.crashed_processes.with_label_values(&[upstream]).inc_by(crashed);
    }

    /// Counts a caller's connection as open for as long as the guard lives; `listener` is a name
    /// from the configuration.
    pub fn open_connection(&self, listener: &str) -> Held {
        Held::new(&self.connections.with_label_values(&[listener]), 1)
    }

    /// Counts a connection that ended before a request.
    pub fn refuse_connection(&self, listener: &str, reason: &'static str) {
        self.refused_connections.with_label_values(&[listener, reason]).inc();
    }

    /// Counts a call that only shadow mode let through; `kind` is that of the denial.
    pub fn shadow_denial(&self, upstream: &str, kind: &'static str) {
        self.shadow_denials.with_label_values(&[upstream, kind]).inc();
    }

    /// Counts a request of a server to a caller that has ended; `method` is its row's name, if it has one.
    pub fn server_request(
        &self,
        upstream: &str,
        method: Option<&'static str>,
        verdict: Verdict,
        outcome: &'static str,
    ) {
        let labels = [upstream, method.unwrap_or("other"), verdict.as_str(), outcome];
        self.server_requests.with_label_values(&labels).inc();
    }

    /// Counts an error that was to tell a server of its refused request.
    pub fn server_reply(&self, upstream: &str, outcome: &'static str) {
        self.server_replies.with_label_values(&[upstream, outcome]).inc();
    }

    /// Counts a message of a server that did not go on.
    pub fn withheld(&self, upstream: &str, reason: &'static str) {
        self.withheld.with_label_values(&[upstream, reason]).inc();
    }

    /// Counts a request to the token service of an upstream.
    pub fn token_exchange(&self, upstream: &str, outcome: &'static str) {
        self.token_exchanges.with_label_values(&[upstream, outcome]).inc();
    }

    /// Counts a call that met a limit, which let it pass (`taken`), refused it (`refused`) or would have
    /// (`shadow`); `limit` is a name from the configuration.
    pub fn limit(&self, limit: &str, outcome: &'static str) {
        self.limits.with_label_values(&[limit, outcome]).inc();
    }

    /// Tells how many keys of a limit are in memory.
    pub fn set_limit_keys(&self, limit: &str, keys: usize) {
        let keys = i64::try_from(keys).unwrap_or(i64::MAX);
        self.limit_keys.with_label_values(&[limit]).set(keys);
    }

    /// Takes out what is told of limits that aren't among those in force.
    pub fn retain_limits(&self, in_force: &HashSet<&str>) {
        limits::retain(&self.limit_keys, in_force);
        limits::retain(&self.limits, in_force);
    }

    /// Tells the state of Lictor's own identity (`starting`, `ready`, `stale`, `expired` or
    /// `withdrawn`) and when its SVID expires, in Unix seconds.
    pub fn set_identity(&self, state: &'static str, not_after: Option<u64>) {
        for known in IDENTITY_STATES {
            let here = i64::from(known == state);
            self.identity_state.with_label_values(&[known]).set(here);
        }
        self.svid_not_after.store(not_after.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Tells how the ledger is doing.
    pub fn set_ledger(&self, reading: &LedgerReading) {
        self.ledger.set(reading);
    }

    /// Tells who owns how much, and how the store is doing.
    pub fn set_state(&self, reading: &StateReading) {
        self.state.set(reading);
    }

    /// Tells what is revoked.
    pub fn set_revocations(&self, reading: &RevocationReading) {
        self.revocations.set(reading);
    }

    /// Counts an attempt to put new policies in force.
    pub fn policy_reload(&self, applied: bool) {
        let outcome = if applied { "applied" } else { "rejected" };
        self.policy_reloads.with_label_values(&[outcome]).inc();
    }

    /// Tells whether the policies in force are those on disk.
    pub fn set_policies_current(&self, current: bool) {
        self.policies_current.set(i64::from(current));
    }

    /// Counts an attempt to put a new configuration in force.
    pub fn config_reload(&self, applied: bool) {
        let outcome = if applied { "applied" } else { "rejected" };
        self.config_reloads.with_label_values(&[outcome]).inc();
    }

    /// Tells a setting in force that weakens what is enforced, and in how many places it does.
    pub fn set_unsafe_setting(&self, setting: &'static str, places: usize) {
        let places = i64::try_from(places).unwrap_or(i64::MAX);
        self.unsafe_settings.with_label_values(&[setting]).set(places);
    }

    /// All series in Prometheus' text format; `now` is the time since the Unix epoch.
    pub fn render(&self, now: Duration) -> Result<String, prometheus::Error> {
        let not_after = self.svid_not_after.load(Ordering::Relaxed);
        let remaining = Duration::from_secs(not_after).saturating_sub(now);
        self.svid_remaining.set(remaining.as_secs_f64());
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// Something that is counted for as long as this lives.
#[derive(Debug)]
#[must_use = "it is counted for as long as the guard lives"]
pub struct Held {
    gauge: IntGauge,
    amount: i64,
}

impl Held {
    fn new(gauge: &IntGauge, amount: i64) -> Self {
        gauge.add(amount);
        Self { gauge: gauge.clone(), amount }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.sub(self.amount);
    }
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, GenericGauge::new(name, help))
}

fn float_gauge(registry: &Registry, name: &str, help: &str) -> Gauge {
    register(registry, Gauge::new(name, help))
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

#[expect(clippy::expect_used, reason = "names are constants, and a test registers them all")]
fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: Result<C, prometheus::Error>,
) -> C {
    let metric = metric.expect("a valid metric");
    registry.register(Box::new(metric.clone())).expect("a name used once");
    metric
}

#[cfg(test)]
mod tests;

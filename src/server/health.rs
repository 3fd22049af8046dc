//! What is told of how things stand: readiness and metrics of identity, ledger and state.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use crate::{
    admin::{Part, Readiness},
    identity::Source,
    proxy::Shared,
    state,
    telemetry::{
        Clock,
        metrics::{LedgerReading, StateReading},
    },
};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);

/// How often what was silent for too long is forgotten.
const REAP: Duration = Duration::from_secs(60);

/// Waits until there is an identity to serve with.
pub(super) async fn first_identity(source: &Source) {
    let mut changed = source.changed();
    // The sender lives in the source, so the wait can't fail.
    let _ = changed.wait_for(|status| status.state.serves()).await;
}

/// Tells readiness and metrics how identity, ledger and state are doing.
pub(super) async fn follow(
    shared: Arc<Shared>,
    source: Option<Arc<Source>>,
    readiness: Arc<Readiness>,
) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reaped = Clock.instant();
    loop {
        ticks.tick().await;
        if Clock.instant().saturating_duration_since(reaped) >= REAP {
            reaped = Clock.instant();
            shared.owners.reap(Clock.unix());
        }
        look(&shared, source.as_deref(), &readiness);
    }
}

/// One look.
pub(super) fn look(shared: &Shared, source: Option<&Source>, readiness: &Readiness) {
    follow_state(shared, readiness);
    let status = source.map(|source| source.status(Clock.unix().as_secs()));
    if let Some(status) = &status {
        shared.record.metrics.set_identity(status.state.as_str(), status.not_after);
    }
    readiness.set(Part::Identity, status.is_none_or(|status| status.state.serves()));
    let (limiter, granted) = (shared.limiter.load(), shared.granted.load());
    for (limit, keys) in limiter.keys().chain(granted.keys()) {
        shared.record.metrics.set_limit_keys(limit, keys);
    }
    let names = limiter.names().chain(granted.names());
    shared.record.metrics.retain_limits(&names.collect());
    shared.record.metrics.set_bodies_in_flight(shared.budget.used());
    let ledger = shared.record.ledger.status();
    let writable = shared.record.ledger.admits(true).is_ok();
    readiness.set(Part::Ledger, writable);
    readiness.set(Part::Revocations, shared.revocations.current().is_known());
    shared.record.metrics.set_ledger(&LedgerReading {
        durable: ledger.durable,
        backlog: ledger.backlog,
        commits: ledger.commits,
        last_commit: ledger.last_commit,
        lost: ledger.lost,
        writable,
    });
}

fn follow_state(shared: &Shared, readiness: &Readiness) {
    let health = shared.owners.health();
    let available = health.available.unwrap_or(true);
    readiness.set_state(available);
    shared.record.metrics.set_state(&StateReading {
        bindings: state::Kind::ALL.map(|kind| (kind.as_str(), shared.owners.len(kind))),
        available,
        failures: health.failures,
    });
}

//! What changes while the process runs: policies, identity, and what is told about them.

use std::{sync::Arc, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    admin::{Part, Readiness},
    identity::Source,
    policy::{self, Glance, Policies},
    proxy::Shared,
    state,
    telemetry::{
        Clock,
        metrics::{LedgerReading, StateReading},
    },
};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How often what was silent for too long is forgotten.
const REAP: Duration = Duration::from_secs(60);

/// Waits until there is an identity to serve with.
pub(super) async fn first_identity(source: &Source) {
    let mut changed = source.changed();
    // The sender lives in the source, so the wait can't fail.
    let _ = changed.wait_for(|status| status.state.serves()).await;
}

/// Starts the tasks that keep things fresh; they end with the set.
pub(super) fn start(
    shared: &Arc<Shared>,
    settings: policy::Settings,
    source: Option<&Arc<Source>>,
    readiness: &Arc<Readiness>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let revocations = Arc::clone(&shared.revocations);
    tasks.spawn(async move { revocations.follow().await });
    tasks.spawn(follow_policies(Arc::clone(shared), settings));
    tasks.spawn(follow_health(Arc::clone(shared), source.cloned(), Arc::clone(readiness)));
    tasks
}

/// Tells what is odd about policies that are in force all the same, such as a set that permits nothing.
pub(super) fn warn_of(policies: &Policies) {
    for warning in policies.warnings() {
        tracing::warn!(%warning, "the policies are in force, but look at this");
    }
}

/// Puts changed policies in force. A set with faults changes nothing and says so.
async fn follow_policies(shared: Arc<Shared>, settings: policy::Settings) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => {
            tracing::error!(%error, "SIGHUP can't be waited for; policies are not reloaded");
            return;
        }
    };
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = shared.policies.load().version().to_string();
    let mut glance = Glance::default();
    loop {
        let asked = tokio::select! {
            _ = ticks.tick() => false,
            asked = hangup.recv() => asked.is_some(),
        };
        let directory = settings.directory.clone();
        let Some(now) = aside(move || Glance::at(&directory)).await else { continue };
        if now == glance && !asked {
            continue;
        }
        glance = now;
        let look = settings.clone();
        match aside(move || policy::version_on_disk(&look)).await.flatten() {
            Some(now) if now != seen => seen = now,
            Some(_) | None if asked => {}
            Some(_) | None => continue,
        }
        let load = settings.clone();
        match aside(move || Policies::load(&load)).await {
            Some(Ok(policies)) => {
                let version = Arc::clone(policies.version());
                tracing::info!(version = &*version, "policies reloaded");
                warn_of(&policies);
                shared.policies.store(Arc::new(policies));
                shared.record.metrics.policy_reload(true);
                shared.record.ledger.record_config(version, None);
            }
            Some(Err(error)) => {
                shared.record.metrics.policy_reload(false);
                for fault in error.faults {
                    tracing::error!(%fault, "policies not reloaded; the old ones stay in force");
                }
            }
            None => shared.record.metrics.policy_reload(false),
        }
    }
}

/// Does what may wait for a disk, or keeps a processor busy, away from the threads that serve calls. `None`,
/// with a line in the log, if it panicked.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work)
        .await
        .inspect_err(|error| tracing::error!(%error, "the policies can't be looked at"))
        .ok()
}

/// Tells readiness and metrics how identity, ledger and state are doing.
async fn follow_health(
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
        follow_state(&shared, &readiness);
        let status = source.as_ref().map(|source| source.status(Clock.unix().as_secs()));
        if let Some(status) = &status {
            shared.record.metrics.set_identity(status.state.as_str(), status.not_after);
        }
        readiness.set(Part::Identity, status.is_none_or(|status| status.state.serves()));
        for (limit, keys) in shared.limiter.keys() {
            shared.record.metrics.set_limit_keys(limit, keys);
        }
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

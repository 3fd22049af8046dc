//! What runs: the doors, what is behind them, and the configuration and policies that it was made from.
//!
//! A change is taken over as a whole or not at all. Everything that can go wrong with it goes wrong while the old
//! serves on; what comes into force then are pointers.
//!
//! INVARIANT: policies come into force before the routes that were planned with them, so that no call takes a new
//! route and is judged by old policies. The other way round there is no such care: a call that began before is
//! judged by the policies of now, since what an operator forbids has to count at once.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use super::{
    Commands, StartError,
    listeners::{self, Ready},
    plan::{Means, Plan, Standing, fingerprint},
    processes,
    sockets::Sockets,
};
use crate::{
    config::{Config, Faults},
    identity::Source,
    listener::Connections,
    policy::{self, Policies},
    proxy::{Proxy, Shared},
    telemetry::Clock,
    upstream::Upstream,
};

/// What runs.
#[derive(Debug)]
pub(super) struct Site {
    shared: Arc<Shared>,
    source: Option<Arc<Source>>,
    commands: Commands,
    doors: Vec<Door>,
    in_force: ArcSwap<InForce>,
    /// Upstreams that are in force no more and may have calls.
    leaving: Mutex<Vec<Weak<Upstream>>>,
}

/// A listener that is open.
#[derive(Debug)]
struct Door {
    name: String,
    address: SocketAddr,
    proxy: Arc<Proxy>,
    connections: Connections,
}

/// The configuration in force, with what was made from it and can be made again only at a cost.
#[derive(Debug)]
pub(super) struct InForce {
    /// The configuration.
    pub(super) config: Config,
    /// The SHA-256 of its file; `None` where there is none.
    pub(super) sha256: Option<[u8; 32]>,
    /// What it and the files that it names were known by when they were read.
    pub(super) fingerprint: [u8; 32],
    /// Its upstreams.
    pub(super) upstreams: Vec<Arc<Standing>>,
}

/// Why a change isn't taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// The configuration has faults, or asks for what takes a restart.
    #[error("the configuration has faults")]
    Faults(#[from] Faults),
    /// It would not start either.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What a change was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policing {
    /// The policies are others, or were loaded again because somebody asked.
    Renewed,
    /// They are the same.
    Same,
}

impl Site {
    /// Binds the listeners, sets up what is behind them and serves them until `closed` turns true.
    pub(super) fn open(
        (config, sha256): (Config, Option<[u8; 32]>),
        commands: Commands,
        shared: &Arc<Shared>,
        source: Option<&Arc<Source>>,
        sockets: &mut Sockets,
        closed: &watch::Receiver<bool>,
    ) -> Result<Arc<Self>, StartError> {
        let fingerprint = fingerprint(sha256, &config);
        let mut ready = Vec::with_capacity(config.listeners.len());
        for listener in &config.listeners {
            ready.push(Ready::new(&listener.settings, &shared.record, source, sockets)?);
        }
        let addresses: Vec<_> = ready.iter().map(Ready::address).collect();
        let means = Means { source, metrics: &shared.record.metrics };
        let plan = Plan::new(&config, &addresses, &[], means)?;
        let mut doors = Vec::with_capacity(ready.len());
        for ((listener, ready), inside) in config.listeners.iter().zip(ready).zip(plan.insides) {
            let settings = listener.settings.clone();
            let (name, address) = (settings.name.clone(), ready.address());
            let proxy = Proxy::new(Arc::clone(shared), settings, source.cloned(), inside);
            let proxy = Arc::new(proxy);
            let metrics = &shared.record.metrics;
            let connections = listeners::serve(ready, &listener.settings, &proxy, metrics, closed);
            doors.push(Door { name, address, proxy, connections });
        }
        let upstreams = plan.upstreams;
        let in_force = ArcSwap::from_pointee(InForce { config, sha256, fingerprint, upstreams });
        let (shared, source) = (Arc::clone(shared), source.cloned());
        let leaving = Mutex::default();
        Ok(Arc::new(Self { shared, source, commands, doors, in_force, leaving }))
    }

    /// What is in force now.
    pub(super) fn in_force(&self) -> Guard<Arc<InForce>> {
        self.in_force.load()
    }

    /// Where it is told what has become of changes.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Goes over to another configuration and the policies of now. `again` loads them anew even if they are the
    /// same. Waits for disks, and has to be called within the runtime.
    pub(super) fn turn_to(
        &self,
        config: Config,
        sha256: [u8; 32],
        again: bool,
    ) -> Result<Policing, Refused> {
        let before = self.in_force.load_full();
        before.config.admits(&config)?;
        self.commands.admit(&config)?;
        let sha256 = Some(sha256);
        let fingerprint = fingerprint(sha256, &config);
        let policies = Policies::load(&config.policy).map_err(StartError::Policies)?;
        // The configuration of before has the same listeners.
        let doors: Vec<_> = config
            .listeners
            .iter()
            .filter_map(|it| self.doors.iter().find(|door| door.name == it.settings.name))
            .collect();
        let addresses: Vec<_> = doors.iter().map(|door| door.address).collect();
        let means = Means { source: self.source.as_ref(), metrics: &self.shared.record.metrics };
        let plan = Plan::new(&config, &addresses, &before.upstreams, means)?;
        // From here on nothing can go wrong.
        let policing = self.put_policies(policies, again);
        let weakened = config.weakened();
        let metrics = &self.shared.record.metrics;
        for (setting, _) in before.config.weakened() {
            if !weakened.iter().any(|(still, _)| *still == setting) {
                metrics.set_unsafe_setting(setting, 0);
            }
        }
        super::warn_of_weakened(&weakened, metrics);
        let limiter = self.shared.limiter.load();
        let limiter = limiter.renewed(config.rate_limits.clone(), Clock.instant());
        self.shared.limiter.store(Arc::new(limiter));
        self.shared.budget.resize(config.limits.bodies_in_flight);
        let upstreams = plan.upstreams;
        self.in_force.store(Arc::new(InForce { config, sha256, fingerprint, upstreams }));
        self.record();
        for (door, inside) in doors.into_iter().zip(plan.insides) {
            door.proxy.open(inside);
        }
        self.let_go(&before);
        Ok(policing)
    }

    /// Goes over to the policies of now.
    pub(super) fn turn_to_policies(&self, again: bool) -> Result<Policing, policy::LoadError> {
        let policies = Policies::load(&self.in_force().config.policy)?;
        let policing = self.put_policies(policies, again);
        if policing == Policing::Renewed {
            self.record();
        }
        Ok(policing)
    }

    fn put_policies(&self, policies: Policies, again: bool) -> Policing {
        if !again && *self.shared.policies.load().version() == *policies.version() {
            return Policing::Same;
        }
        super::reload::warn_of(&policies);
        // Before the policies: nobody is permitted by the new set and held to limits of the old one.
        let granted = self.shared.granted.load();
        let granted = granted.renewed(policies.limits().to_vec(), Clock.instant());
        self.shared.granted.store(Arc::new(granted));
        self.shared.policies.store(Arc::new(policies));
        Policing::Renewed
    }

    /// Puts on record what is in force.
    fn record(&self) {
        let version = Arc::clone(self.shared.policies.load().version());
        self.shared.record.ledger.record_config(version, self.in_force().sha256);
    }

    /// Ends the upstreams that are in force no more, as soon as nobody has a call at them.
    fn let_go(&self, before: &InForce) {
        let in_force = self.in_force();
        let stays =
            |old: &Arc<Standing>| in_force.upstreams.iter().any(|new| Arc::ptr_eq(old, new));
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|upstream| upstream.strong_count() > 0);
        for old in before.upstreams.iter().filter(|old| !stays(old)) {
            let upstream = &old.upstream;
            let name = upstream.settings().name.as_str();
            tracing::info!(upstream = name, "in force no more; calls in flight go on");
            leaving.push(Arc::downgrade(upstream));
            let follows = in_force.upstreams.iter().any(|it| it.upstream.settings().name == name);
            let metrics = (!follows).then(|| self.shared.record.metrics.clone());
            let patience = in_force.config.drain;
            tokio::spawn(processes::let_go(Arc::clone(upstream), patience, metrics));
        }
    }

    /// Waits until everything that was written for callers is sent, once the listeners are closed and nothing is in flight.
    pub(super) async fn sent(&self) {
        for door in &self.doors {
            door.connections.sent().await;
        }
    }

    /// All upstreams that may have something running.
    pub(super) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = self.in_force();
        let standing = in_force.upstreams.iter().map(|standing| Arc::clone(&standing.upstream));
        leaving.iter().filter_map(Weak::upgrade).chain(standing).collect()
    }
}

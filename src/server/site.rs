//! What runs: the doors, what is behind them, and the configuration that it was made from.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use super::{
    StartError,
    listeners::{self, Ready},
    plan::{Means, Place, Plan, Standing},
};
use crate::{
    config::Config,
    identity::Source,
    listener,
    proxy::{Proxy, Shared},
    upstream::Upstream,
};

/// What runs.
#[derive(Debug)]
pub(super) struct Site {
    in_force: ArcSwap<InForce>,
}

/// The configuration in force, with what was made from it and can be made again only at a cost.
#[derive(Debug)]
pub(super) struct InForce {
    /// The configuration.
    pub(super) config: Config,
    /// Its upstreams.
    pub(super) upstreams: Vec<Arc<Standing>>,
}

impl Site {
    /// Binds the listeners, sets up what is behind them and serves them until `closed` turns true.
    pub(super) fn open(
        config: Config,
        shared: &Arc<Shared>,
        source: Option<&Arc<Source>>,
        closed: &watch::Receiver<bool>,
    ) -> Result<Arc<Self>, StartError> {
        let settings: Vec<listener::Settings> =
            config.listeners.iter().map(|listener| listener.settings.clone()).collect();
        let ready = settings
            .iter()
            .map(|settings| Ready::new(settings, &shared.record, source))
            .collect::<Result<Vec<_>, _>>()?;
        let places: Vec<_> = settings
            .iter()
            .zip(&ready)
            .map(|(settings, ready)| Place { settings, address: ready.address() })
            .collect();
        let means = Means { source, metrics: &shared.record.metrics };
        let plan = Plan::new(&config, &places, &[], means)?;
        for ((settings, ready), routes) in settings.into_iter().zip(ready).zip(plan.routes) {
            let proxy = Proxy::new(Arc::clone(shared), settings.clone(), source.cloned(), routes);
            let proxy = Arc::new(proxy);
            listeners::serve(ready, &settings, &proxy, &shared.record.metrics, closed);
        }
        let in_force = ArcSwap::from_pointee(InForce { config, upstreams: plan.upstreams });
        Ok(Arc::new(Self { in_force }))
    }

    /// All upstreams that may have something running.
    pub(super) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        let in_force = self.in_force();
        in_force.upstreams.iter().map(|standing| Arc::clone(&standing.upstream)).collect()
    }

    /// What is in force now.
    pub(super) fn in_force(&self) -> Guard<Arc<InForce>> {
        self.in_force.load()
    }
}

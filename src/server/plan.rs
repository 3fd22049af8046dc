//! From a configuration to what is behind the doors: upstreams, and the routes that lead to them.
//!
//! The start and a reload come by here alike. A plan is whole or isn't made at all, and making one changes nothing
//! of what is in force: whatever can go wrong with a configuration goes wrong here.
//!
//! INVARIANT: an upstream whose settings and files are those of before is the one of before, with its connections,
//! processes and whatever else it has learned. Any other is new.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64},
};

use sha2::{Digest, Sha256};

use super::{StartError, cards};
use crate::{
    config::Config,
    governance::{
        Chain, DelegationStage, OwnershipStage, PolicyStage, PushUrlStage, RevocationStage,
    },
    identity::Source,
    listener,
    protocol::Protocol,
    proxy::{Routes, Served, Terms, settings::Route},
    telemetry::Metrics,
    upstream::{Settings, Upstream},
};

/// An upstream that is in force.
#[derive(Debug)]
pub(super) struct Standing {
    /// The upstream.
    pub(super) upstream: Arc<Upstream>,
    /// The digest of the files that it was made from.
    material: [u8; 32],
    /// How many crashes of its processes have been counted.
    pub(super) crashes_told: AtomicU64,
}

/// A listener that is bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Its settings of now.
    pub(super) settings: &'a listener::Settings,
    /// Where it is bound.
    pub(super) address: SocketAddr,
}

/// What will be behind the doors.
#[derive(Debug)]
pub(super) struct Plan {
    /// In the order of the configuration.
    pub(super) upstreams: Vec<Arc<Standing>>,
    /// For each listener of the configuration, in the order of `places`.
    pub(super) routes: Vec<Routes>,
}

/// What every plan of a process is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means<'a> {
    /// Lictor's own identity.
    pub(super) source: Option<&'a Arc<Source>>,
    /// Where upstreams and calls are counted.
    pub(super) metrics: &'a Metrics,
}

impl Plan {
    /// Plans for a configuration whose listeners are bound at `places`, in its order. What can stay of `before`
    /// stays. Reads files, so it may wait for a disk.
    pub(super) fn new(
        config: &Config,
        places: &[Place<'_>],
        before: &[Arc<Standing>],
        means: Means<'_>,
    ) -> Result<Self, StartError> {
        let upstreams = config
            .upstreams
            .iter()
            .map(|settings| Standing::or_new(settings, before, means))
            .collect::<Result<Vec<_>, _>>()?;
        let terms = Arc::new(Terms {
            chain: Chain::new(vec![
                Box::new(RevocationStage),
                Box::new(OwnershipStage),
                Box::new(PolicyStage),
                Box::new(DelegationStage::new(config.delegation.clone())),
                Box::new(PushUrlStage),
            ]),
            delegation: config.delegation.clone(),
            limits: config.limits,
        });
        let mut routes = Vec::with_capacity(config.listeners.len());
        for (listener, place) in config.listeners.iter().zip(places) {
            let mut served = Vec::with_capacity(listener.routes.len());
            for route in &listener.routes {
                // The configuration names no other.
                let named = |it: &&Arc<Standing>| it.upstream.settings().name == route.upstream;
                let Some(standing) = upstreams.iter().find(named) else { continue };
                served.push(serve(route, standing, *place, &terms, means.metrics)?);
            }
            routes.push(Routes::new(served));
        }
        Ok(Self { upstreams, routes })
    }
}

fn serve(
    route: &Route,
    standing: &Standing,
    place: Place<'_>,
    terms: &Arc<Terms>,
    metrics: &Metrics,
) -> Result<Served, StartError> {
    let upstream = &standing.upstream;
    let card = match route.protocol {
        Protocol::Mcp => None,
        Protocol::A2a => {
            let server = &upstream.settings().server;
            cards::publisher(place.settings, place.address, route, server)
                .map_err(|reason| StartError::Card { upstream: route.upstream.clone(), reason })?
        }
    };
    Ok(Served {
        route: route.clone(),
        server: route.upstream.as_str().into(),
        upstream: Arc::clone(upstream),
        card,
        calls: metrics.calls(&route.upstream),
        terms: Arc::clone(terms),
    })
}

impl Standing {
    /// The one of before, if nothing that it was made from has changed, or a new one.
    fn or_new(
        settings: &Settings,
        before: &[Arc<Self>],
        means: Means<'_>,
    ) -> Result<Arc<Self>, StartError> {
        // Before the upstream reads them itself: if they change in between, the next look will find it.
        let material = material(settings);
        let same = |it: &&Arc<Self>| it.upstream.settings() == settings && it.material == material;
        if let Some(standing) = before.iter().find(same) {
            return Ok(Arc::clone(standing));
        }
        let upstream = Upstream::new(settings.clone(), means.source.cloned(), means.metrics)
            .map_err(|source| StartError::Upstream { name: settings.name.clone(), source })?;
        Ok(Arc::new(Self { upstream, material, crashes_told: AtomicU64::new(0) }))
    }
}

/// The digest of the files that an upstream is made from. What can't be read counts as empty here, and is a fault
/// where it is used.
fn material(settings: &Settings) -> [u8; 32] {
    let mut hash = Sha256::new();
    for path in settings.files() {
        let content = std::fs::read(path).unwrap_or_default();
        hash.update(content.len().to_be_bytes());
        hash.update(content);
    }
    hash.finalize().into()
}

//! From a configuration to what is behind the doors: upstreams, and the routes that lead to them.
//!
//! The start and a reload come by here alike. A plan is whole or isn't made at all, and making one changes nothing
//! of what is in force: whatever can go wrong with a configuration goes wrong here.
//!
//! INVARIANT: an upstream whose settings and files are those of before is the one of before, with its connections,
//! processes and whatever else it has learned. Any other is new.

use std::{
    fs::File,
    io::Read,
    net::SocketAddr,
    path::Path,
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
    proxy::{Inside, Served, Terms, settings::Route},
    telemetry::Metrics,
    upstream::{Settings, Upstream, settings::Server},
};

/// What of a file counts, in bytes; those that are used are far shorter.
const MAX_FILE: u64 = 4 << 20;

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

/// What will be behind the doors.
#[derive(Debug)]
pub(super) struct Plan {
    /// In the order of the configuration.
    pub(super) upstreams: Vec<Arc<Standing>>,
    /// For each listener of the configuration, in its order.
    pub(super) insides: Vec<Inside>,
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
    /// Plans for a configuration whose listeners are bound at `addresses`, in its order. What can stay of `before`
    /// stays. Reads files, so it may wait for a disk.
    pub(super) fn new(
        config: &Config,
        addresses: &[SocketAddr],
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
        let mut insides = Vec::with_capacity(config.listeners.len());
        for (listener, address) in config.listeners.iter().zip(addresses) {
            let settings = &listener.settings;
            let mut served = Vec::with_capacity(listener.routes.len());
            for route in &listener.routes {
                // The configuration names no other.
                let named = |it: &&Arc<Standing>| it.upstream.settings().name == route.upstream;
                let Some(standing) = upstreams.iter().find(named) else { continue };
                served.push(serve(route, standing, (settings, *address), &terms, means.metrics)?);
            }
            insides.push(Inside::new(settings, served));
        }
        Ok(Self { upstreams, insides })
    }
}

fn serve(
    route: &Route,
    standing: &Standing,
    (listener, address): (&listener::Settings, SocketAddr),
    terms: &Arc<Terms>,
    metrics: &Metrics,
) -> Result<Served, StartError> {
    let upstream = &standing.upstream;
    let card = match route.protocol {
        Protocol::Mcp | Protocol::Http => None,
        Protocol::A2a => {
            let server = &upstream.settings().server;
            cards::publisher(listener, address, route, server)
                .map_err(|reason| StartError::Card { upstream: route.upstream.clone(), reason })?
        }
    };
    Ok(Served {
        route: route.clone(),
        server: route.upstream.as_str().into(),
        upstream: Arc::clone(upstream),
        host: host(route, &upstream.settings().server),
        card,
        calls: metrics.calls(&route.upstream),
        terms: Arc::clone(terms),
    })
}

/// What a web API is called by whom it is asked for; of several hosts the first.
fn host(route: &Route, server: &Server) -> Option<Arc<str>> {
    let Server::Http(http) = server else { return None };
    match (route.protocol, &http.host) {
        (Protocol::Mcp | Protocol::A2a, _) => None,
        (Protocol::Http, Some(host)) => Some(host.as_str().into()),
        (Protocol::Http, None) => Some(http.url.authority().into()),
    }
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

/// The digest of the files that an upstream is made from.
fn material(settings: &Settings) -> [u8; 32] {
    let mut hash = Sha256::new();
    for path in settings.files() {
        add(&mut hash, path);
    }
    hash.finalize().into()
}

/// What a configuration and the files that it names are known by, as they are now. Those of Lictor's own identity
/// and the policies are followed by themselves.
pub(super) fn fingerprint(sha256: Option<[u8; 32]>, config: &Config) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(sha256.unwrap_or_default());
    for path in files(config) {
        add(&mut hash, path);
    }
    hash.finalize().into()
}

/// The files that a plan is made from, beside the configuration.
pub(super) fn files(config: &Config) -> impl Iterator<Item = &Path> {
    config.upstreams.iter().flat_map(|settings| {
        let agent = match &settings.server {
            Server::Http(http) => Some(&http.agent),
            Server::Command(_) => None,
        };
        let keys = agent.and_then(|agent| agent.keys.as_deref());
        let key = agent.and_then(|agent| agent.signing.as_ref()).map(|it| it.key.as_path());
        settings.files().into_iter().chain(keys).chain(key)
    })
}

/// What can't be read counts as empty here, and is a fault where it is used.
fn add(hash: &mut Sha256, path: &Path) {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut content));
    hash.update([u8::from(read.is_ok())]);
    hash.update(content.len().to_be_bytes());
    hash.update(content);
}

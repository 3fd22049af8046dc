//! Identity from the SPIFFE Workload API (SPIFFE_Workload_API.md, `spiffe/spiffe`).
//!
//! [`X509Source`] keeps the stream open and reconnects with jittered back-off. Each message of the agent is
//! the whole truth: a bundle that is missing in it is unloaded. A refusal withdraws the identity at once;
//! silence doesn't, and what was received serves until it expires.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use spiffe::{
    WorkloadApiClient, X509Source, X509SourceError,
    transport::Endpoint,
    x509_source::{MetricsErrorKind, MetricsRecorder, X509SourceState},
};
use tokio::time::{sleep, timeout};

use super::{
    TrustBundles,
    keeper::{Keeper, Material, Observation},
    source::StartError,
};
use crate::telemetry::{Causes, Clock};

/// How often expiry and the agent's presence are looked at when the agent says nothing.
const EVERY: Duration = Duration::from_secs(1);
const MIN_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Parses the endpoint: `unix:///…` or `tcp://<ip>:<port>`.
pub(super) fn check(endpoint: &str) -> Result<Endpoint, StartError> {
    Endpoint::parse(endpoint)
        .map_err(|source| StartError::Endpoint { endpoint: endpoint.to_owned(), source })
}

/// Follows the agent for as long as the task lives.
pub(super) async fn watch(endpoint: Endpoint, mut keeper: Keeper) {
    loop {
        let presence = Arc::new(Presence::default());
        match connect(&endpoint, &presence, &mut keeper).await {
            Ok(source) => follow(&source, &presence, &mut keeper).await,
            Err(error) => keeper.observe(Observation::Unavailable(Causes(&error).to_string())),
        }
        sleep(MAX_BACKOFF).await;
    }
}

/// Waits for the first SVID. Ends early only for what the agent will refuse again.
async fn connect(
    endpoint: &Endpoint,
    presence: &Arc<Presence>,
    keeper: &mut Keeper,
) -> Result<X509Source, X509SourceError> {
    let dialled = (endpoint.clone(), Arc::clone(presence));
    let building = X509Source::builder()
        .client_factory(Arc::new(move || {
            let (endpoint, presence) = dialled.clone();
            Box::pin(async move {
                let client = WorkloadApiClient::connect(endpoint).await?;
                presence.0.store(true, Ordering::Relaxed);
                Ok(client)
            })
        }))
        .metrics(Arc::clone(presence) as Arc<dyn MetricsRecorder>)
        .reconnect_backoff(MIN_BACKOFF, MAX_BACKOFF)
        .build();
    tokio::pin!(building);
    loop {
        match timeout(EVERY, &mut building).await {
            Ok(result) => return result,
            Err(_elapsed) => {
                keeper.observe(Observation::Unavailable("no SVID from the agent yet".to_owned()));
            }
        }
    }
}

/// Passes on what the source knows, at every update and every second.
async fn follow(source: &X509Source, presence: &Presence, keeper: &mut Keeper) {
    let mut updates = source.updated();
    loop {
        let state = source.state();
        if state.is_closed() {
            return;
        }
        keeper.observe(observation(&state, presence));
        if let Ok(Err(_closed)) = timeout(EVERY, updates.changed()).await {
            return;
        }
    }
}

fn observation(state: &X509SourceState, presence: &Presence) -> Observation {
    if let Some(reason) = state.withdrawal() {
        return Observation::Withdrawn(reason.to_string());
    }
    match material(state) {
        Err(error) => Observation::Unavailable(Causes(&error).to_string()),
        Ok(material) if presence.0.load(Ordering::Relaxed) => Observation::Present(material),
        Ok(material) => Observation::Last(material),
    }
}

fn material(state: &X509SourceState) -> Result<Material, X509SourceError> {
    let svid = state.svid()?;
    let context = state.context()?;
    let der = |bytes: &[u8]| CertificateDer::from(bytes.to_vec());
    let mut roots: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (domain, bundle) in context.bundle_set().iter() {
        let authorities = bundle.authorities().iter().map(|root| der(root.as_bytes())).collect();
        roots.insert(domain.as_str().to_owned(), authorities);
    }
    drop_faulty_federated(&mut roots, svid.spiffe_id().trust_domain_name());
    Ok(Material {
        chain: svid.cert_chain().iter().map(|link| der(link.as_bytes())).collect(),
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(svid.private_key().as_bytes().to_vec())),
        roots,
    })
}

/// A partner's unusable bundle must not stand in the way of our own rotation; that partner is then not
/// trusted.
fn drop_faulty_federated(roots: &mut BTreeMap<String, Vec<CertificateDer<'static>>>, own: &str) {
    let (_, faults) = TrustBundles::new(roots, Clock.unix().as_secs());
    for fault in faults {
        if fault.domain != own {
            tracing::debug!(%fault, "federated bundle left out");
            roots.remove(&fault.domain);
        }
    }
}

/// Whether the agent can be reached, as far as the source's reports tell.
#[derive(Debug, Default)]
struct Presence(AtomicBool);

impl MetricsRecorder for Presence {
    fn record_update(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn record_reconnect(&self) {}

    fn record_error(&self, kind: MetricsErrorKind) {
        if matches!(
            kind,
            MetricsErrorKind::ClientCreation
                | MetricsErrorKind::StreamConnect
                | MetricsErrorKind::StreamError
                | MetricsErrorKind::StreamEnded
        ) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
}

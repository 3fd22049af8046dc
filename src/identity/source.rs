//! [`Source`]: Lictor's own SVID and the trust bundles, kept fresh.
//!
//! Everything that a handshake or a request looks at is in one immutable [`Snapshot`] behind an atomic
//! pointer, so that an SVID is never used with the bundles of another moment, and a look costs a few
//! nanoseconds. One background task, fed from files or from the Workload API, replaces it.
//!
//! INVARIANT: a snapshot's generation changes whenever its SVID or its bundles do, and only then.
//! Connections in both directions are bound to the generation they were verified under.
//!
//! Fails closed: with no valid SVID of our own nobody is believed and nothing is dialled. Expiry needs no
//! background task to take effect, since every look compares with the caller's clock.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::{ArcSwap, Guard};
use rustls::{pki_types::CertificateDer, sign::CertifiedKey};
use tokio::{runtime::Handle, sync::watch, task::AbortHandle};

use super::{
    Peer, PeerError, Role, Settings, SpiffeId, TrustBundles, files, keeper::Keeper, svid,
    workload_api,
};
use crate::telemetry::Clock;

/// Lictor's identity. Dropping it stops the background task.
#[derive(Debug)]
pub struct Source {
    current: Arc<Current>,
    task: AbortHandle,
}

/// How things stand with Lictor's own identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No SVID has arrived yet.
    Starting,
    /// A valid SVID, and what it came from can be reached.
    Ready,
    /// The SVID is valid, but what it came from can't be reached or read now. Serving goes on.
    Stale,
    /// The SVID has expired. Nothing is served.
    Expired,
    /// The Workload API took the identity back. Nothing is served.
    Withdrawn,
}

/// A reading of the source, for metrics, readiness and pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The state at the time of the reading.
    pub state: State,
    /// Counts changes of SVID or bundles; 0 before the first.
    pub generation: u64,
    /// Lictor's own SPIFFE ID, once known.
    pub id: Option<SpiffeId>,
    /// Start of the SVID's validity, Unix seconds.
    pub not_before: Option<u64>,
    /// End of the SVID's validity, Unix seconds.
    pub not_after: Option<u64>,
    /// Number of trust domains with a usable bundle.
    pub bundles: usize,
}

/// What is believed at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) generation: u64,
    pub(super) state: State,
    pub(super) svid: Option<Arc<Svid>>,
    pub(super) bundles: Arc<TrustBundles>,
}

/// Lictor's own SVID with its key.
pub struct Svid {
    /// Its SPIFFE ID.
    pub id: SpiffeId,
    /// Start of validity, Unix seconds.
    pub not_before: u64,
    /// End of validity, Unix seconds.
    pub not_after: u64,
    pub(super) key: Arc<CertifiedKey>,
}

/// The published snapshot, shared with the background task.
#[derive(Debug)]
pub(super) struct Current {
    snapshot: ArcSwap<Snapshot>,
    status: watch::Sender<Status>,
    confirmed: AtomicU64,
}

/// A fault in the settings; everything else is retried in the background.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Not a Workload API endpoint.
    #[error("`{endpoint}` is no Workload API endpoint")]
    Endpoint {
        /// As configured.
        endpoint: String,
        /// What is wrong with it.
        #[source]
        source: spiffe::transport::EndpointError,
    },
    /// Not a trust domain.
    #[error("`{0}` is no trust domain")]
    TrustDomain(String),
}

impl Source {
    /// Starts to obtain an SVID and bundles, and to keep them fresh, on `runtime`.
    ///
    /// Files are read once before this returns, so that a good set is ready at once; a bad one, or an
    /// agent that doesn't answer, leaves the source [`State::Starting`] and is tried again.
    pub fn start(settings: Settings, runtime: &Handle) -> Result<Arc<Self>, StartError> {
        let current = Arc::new(Current::new());
        let mut keeper = Keeper::new(Arc::clone(&current), Clock);
        let task = match settings {
            Settings::Files(files) => {
                files::check(&files)?;
                keeper.observe(files::look(&files));
                runtime.spawn(files::watch(files, keeper))
            }
            Settings::WorkloadApi { endpoint } => {
                runtime.spawn(workload_api::watch(workload_api::check(&endpoint)?, keeper))
            }
        };
        Ok(Arc::new(Self { current, task: task.abort_handle() }))
    }

    /// Verifies the chain that a caller showed, leaf first, at `now` (Unix seconds).
    pub fn verify_peer(&self, chain: &[CertificateDer<'_>], now: u64) -> Result<Peer, PeerError> {
        let snapshot = self.snapshot();
        snapshot.usable(now)?;
        let leaf = snapshot.bundles.verify(chain, Role::Client, now)?;
        let valid_until = svid::valid_until(chain, now)?;
        Ok(Peer::new(leaf.id, leaf.not_after, chain, snapshot.generation, valid_until))
    }

    /// Whether a peer that was verified when it connected can be believed for one more request at `now`
    /// (Unix seconds): its SVID is unexpired, our own is usable, and under the bundles of now its chain
    /// still leads to a root of its trust domain.
    pub fn recheck(&self, peer: &Peer, now: u64) -> Result<(), PeerError> {
        let snapshot = self.snapshot();
        snapshot.usable(now)?;
        peer.recheck(&snapshot, now)
    }

    /// What is believed now.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.current.snapshot.load()
    }

    /// The state at `now` (Unix seconds).
    pub fn status(&self, now: u64) -> Status {
        self.snapshot().status(now)
    }

    /// When what is believed was last confirmed by its files or by the agent, in Unix seconds; 0 before
    /// the first time. Its age says how long a change elsewhere may have gone unnoticed.
    pub fn confirmed(&self) -> u64 {
        self.current.confirmed.load(Ordering::Relaxed)
    }

    /// Is told of every change of state or generation, within about a second of an expiry.
    pub fn changed(&self) -> watch::Receiver<Status> {
        self.current.status.subscribe()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    /// The name used in metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stale => "stale",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Whether calls can be served.
    pub fn serves(self) -> bool {
        match self {
            Self::Ready | Self::Stale => true,
            Self::Starting | Self::Expired | Self::Withdrawn => false,
        }
    }
}

impl Status {
    /// Seconds until the SVID expires at `now`; 0 without one.
    pub fn remaining(&self, now: u64) -> u64 {
        self.not_after.unwrap_or_default().saturating_sub(now)
    }
}

impl Snapshot {
    /// Counts changes of SVID or bundles.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Our own SVID, if it is valid at `now` (Unix seconds).
    pub fn usable(&self, now: u64) -> Result<&Arc<Svid>, PeerError> {
        self.svid.as_ref().filter(|svid| now < svid.not_after).ok_or(PeerError::NotReady)
    }

    /// The bundles of every trust domain that is believed.
    pub fn bundles(&self) -> &TrustBundles {
        &self.bundles
    }

    fn status(&self, now: u64) -> Status {
        let expired = self.svid.as_ref().is_some_and(|svid| now >= svid.not_after);
        Status {
            state: if expired { State::Expired } else { self.state },
            generation: self.generation,
            id: self.svid.as_ref().map(|svid| svid.id.clone()),
            not_before: self.svid.as_ref().map(|svid| svid.not_before),
            not_after: self.svid.as_ref().map(|svid| svid.not_after),
            bundles: self.bundles.len(),
        }
    }
}

#[cfg(test)]
impl Snapshot {
    /// What is believed with such an SVID and such roots.
    pub(crate) fn of(
        credential: &super::ca::Credential,
        trusted: &[&super::ca::Ca],
        generation: u64,
    ) -> Self {
        use crate::tls::provider;
        let root = |ca: &&super::ca::Ca| (ca.domain.clone(), vec![ca.root.clone()]);
        let roots = trusted.iter().map(root).collect();
        let (bundles, faults) = TrustBundles::new(&roots, Clock.unix().as_secs());
        assert!(faults.is_empty(), "{faults:?}");
        let (chain, key) = (credential.chain.clone(), credential.key());
        let leaf = svid::parse_leaf(&chain[0]).expect("an SVID");
        let key = CertifiedKey::from_der(chain, key, &provider()).expect("a key that fits");
        let svid::Leaf { id, not_before, not_after } = leaf;
        let svid = Svid { id, not_before, not_after, key: Arc::new(key) };
        let (state, svid) = (State::Ready, Some(Arc::new(svid)));
        Self { generation, state, svid, bundles: Arc::new(bundles) }
    }
}

impl Svid {
    /// The chain and the key to show in TLS.
    pub(super) fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

impl fmt::Debug for Svid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Svid").field("id", &self.id).field("not_after", &self.not_after).finish()
    }
}

impl Current {
    fn new() -> Self {
        let snapshot =
            Snapshot { generation: 0, state: State::Starting, svid: None, bundles: Arc::default() };
        let status = watch::Sender::new(snapshot.status(0));
        Self { snapshot: ArcSwap::from_pointee(snapshot), status, confirmed: AtomicU64::new(0) }
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Replaces the snapshot and tells those who wait, if what they see has changed at `now`.
    pub(super) fn publish(&self, snapshot: Snapshot, now: u64) {
        let status = snapshot.status(now);
        self.snapshot.store(Arc::new(snapshot));
        self.announce(status);
    }

    pub(super) fn confirm(&self, now: u64) {
        self.confirmed.store(now, Ordering::Relaxed);
    }

    /// Tells those who wait what time alone has changed.
    pub(super) fn refresh(&self, now: u64) {
        self.announce(self.snapshot.load().status(now));
    }

    fn announce(&self, status: Status) {
        self.status.send_if_modified(|last| {
            let changed = *last != status;
            *last = status;
            changed
        });
    }
}

//! [`Peer`]: somebody whose SVID was verified, and what is kept to be able to verify it again.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use rustls::pki_types::CertificateDer;

use super::{SpiffeId, SvidError, source::Snapshot, svid};

/// The verified other end of a connection.
///
/// INVARIANT: only [`super::Source::verify_peer`] makes one, so holding one means that the chain was
/// verified against the bundle of its own trust domain. That was true then; whether it is true now is
/// what [`super::Source::recheck`] tells.
pub struct Peer {
    id: SpiffeId,
    not_after: u64,
    chain: Vec<CertificateDer<'static>>,
    /// The last generation of the source under which the chain was verified.
    generation: AtomicU64,
    /// Until when it stays verified under that one, Unix seconds.
    valid_until: AtomicU64,
}

/// Why a peer is not, or no longer, believed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// Lictor itself has no valid SVID, so it vouches for nobody.
    #[error("no valid SVID of our own")]
    NotReady,
    /// No certificate was shown.
    #[error("no certificate was shown")]
    NoCertificate,
    /// More certificates than any real chain has.
    #[error("the certificate chain is too long")]
    ChainLength,
    /// The leaf or an intermediate breaks a rule for SVIDs.
    #[error(transparent)]
    Svid(#[from] SvidError),
    /// The SVID's validity has ended.
    #[error("the SVID has expired")]
    Expired,
    /// There is no bundle for the trust domain, or not any more.
    #[error("no bundle for trust domain `{0}`")]
    UntrustedDomain(String),
    /// A valid SVID, but of another workload than the configuration names.
    #[error("the SVID is that of `{shown}`, not of `{expected}`")]
    WrongId {
        /// The configured ID.
        expected: SpiffeId,
        /// The ID that was shown.
        shown: SpiffeId,
    },
    /// No path to a root of the trust domain.
    #[error("no path to a root of the trust domain")]
    Chain(#[source] rustls::Error),
}

impl Peer {
    pub(super) fn new(
        id: SpiffeId,
        not_after: u64,
        chain: &[CertificateDer<'_>],
        generation: u64,
        valid_until: u64,
    ) -> Self {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let (generation, valid_until) = (AtomicU64::new(generation), AtomicU64::new(valid_until));
        Self { id, not_after, chain, generation, valid_until }
    }

    /// Its SPIFFE ID.
    pub fn id(&self) -> &SpiffeId {
        &self.id
    }

    /// End of its SVID's validity, Unix seconds.
    pub fn not_after(&self) -> u64 {
        self.not_after
    }

    /// The chain that it showed, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Whether it can still be believed under `snapshot` at `now`. Costs three comparisons as long as the
    /// snapshot is the one that the chain was last verified under and no certificate of it has ended since, and one
    /// path validation otherwise.
    pub(super) fn recheck(&self, snapshot: &Snapshot, now: u64) -> Result<(), PeerError> {
        if now >= self.not_after {
            return Err(PeerError::Expired);
        }
        // Relaxed: the numbers only say which snapshot was checked, and until when that holds, and publish no other
        // memory. Two requests that race here both verify.
        if self.generation.load(Ordering::Relaxed) == snapshot.generation
            && now < self.valid_until.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        snapshot.bundles.verify(&self.chain, super::Role::Client, now)?;
        self.valid_until.store(svid::valid_until(&self.chain, now)?, Ordering::Relaxed);
        self.generation.store(snapshot.generation, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("id", &self.id).field("not_after", &self.not_after).finish()
    }
}

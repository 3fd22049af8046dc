//! Trust bundles: for each trust domain the roots that may vouch for IDs of that domain, and of no other.
//!
//! INVARIANT: the roots of two trust domains are never in one store. A merged store would let one domain
//! mint the identities of another (SPIFFE Trust Domain and Bundle §4).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rustls::{
    RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    pki_types::{CertificateDer, UnixTime},
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{
    peer::PeerError,
    svid::{self, Leaf},
};
use crate::tls::provider;

/// Longest chain that is looked at, leaf included.
const MAX_CHAIN: usize = 10;

/// What a peer shows its SVID as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connected to Lictor.
    Client,
    /// Lictor connected to it.
    Server,
}

/// The roots of each trust domain.
#[derive(Debug, Default)]
pub struct TrustBundles {
    by_domain: BTreeMap<Box<str>, Bundle>,
}

#[derive(Debug)]
struct Bundle {
    roots: Vec<Root>,
    store: Arc<RootCertStore>,
    as_client: Arc<dyn ClientCertVerifier>,
}

#[derive(Clone, Debug)]
struct Root {
    certificate: CertificateDer<'static>,
    not_after: u64,
}

/// Why the roots of a trust domain can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the bundle of trust domain `{domain}` can't be used: {reason}")]
pub struct BundleError {
    /// The trust domain.
    pub domain: String,
    /// What is wrong with it.
    pub reason: String,
}

impl TrustBundles {
    /// Builds one store for each domain. A domain with a faulty root is left out and reported; one without
    /// a root that is still valid at `now` (Unix seconds) is left out. Such a domain trusts nobody.
    pub fn new(
        roots: &BTreeMap<String, Vec<CertificateDer<'static>>>,
        now: u64,
    ) -> (Self, Vec<BundleError>) {
        let mut bundles = Self::default();
        let mut faults = vec![];
        for (domain, certificates) in roots {
            match certificates.iter().map(Root::new).collect() {
                Ok(roots) => faults.extend(bundles.insert(domain, roots, now).err()),
                Err(reason) => faults.push(BundleError { domain: domain.clone(), reason }),
            }
        }
        (bundles, faults)
    }

    /// The same without the roots that have expired by `now`, if there are any.
    pub(super) fn prune(&self, now: u64) -> Option<Self> {
        let mut roots = self.by_domain.values().flat_map(|bundle| &bundle.roots);
        if roots.all(|root| now < root.not_after) {
            return None;
        }
        let mut pruned = Self::default();
        for (domain, bundle) in &self.by_domain {
            if let Err(error) = pruned.insert(domain, bundle.roots.clone(), now) {
                tracing::error!(%error, "bundle dropped");
            }
        }
        Some(pruned)
    }

    fn insert(&mut self, domain: &str, roots: Vec<Root>, now: u64) -> Result<(), BundleError> {
        let roots: Vec<_> = roots.into_iter().filter(|root| now < root.not_after).collect();
        if !roots.is_empty() {
            let bundle = Bundle::new(roots)
                .map_err(|reason| BundleError { domain: domain.to_owned(), reason })?;
            self.by_domain.insert(domain.into(), bundle);
        }
        Ok(())
    }

    /// Number of trust domains that have a usable bundle.
    pub fn len(&self) -> usize {
        self.by_domain.len()
    }

    /// Whether nobody is trusted.
    pub fn is_empty(&self) -> bool {
        self.by_domain.is_empty()
    }

    /// Checks a chain, leaf first, by all rules: the SVID rules for each certificate, and the path to a
    /// root of the leaf's own trust domain at `now` (Unix seconds).
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        role: Role,
        now: u64,
    ) -> Result<Leaf, PeerError> {
        let (leaf_der, intermediates) = chain.split_first().ok_or(PeerError::NoCertificate)?;
        if chain.len() > MAX_CHAIN {
            return Err(PeerError::ChainLength);
        }
        let leaf = svid::parse_leaf(leaf_der)?;
        intermediates.iter().try_for_each(svid::check_intermediate)?;
        if now >= leaf.not_after {
            return Err(PeerError::Expired);
        }
        let domain = leaf.id.trust_domain();
        let bundle = self
            .by_domain
            .get(domain)
            .ok_or_else(|| PeerError::UntrustedDomain(domain.to_owned()))?;
        bundle.verify(leaf_der, intermediates, role, now).map_err(PeerError::Chain)?;
        Ok(leaf)
    }
}

impl Root {
    fn new(certificate: &CertificateDer<'static>) -> Result<Self, String> {
        let not_after = svid::parse_root(certificate).map_err(|error| error.to_string())?;
        Ok(Self { certificate: certificate.clone(), not_after })
    }
}

impl Bundle {
    fn new(roots: Vec<Root>) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.certificate.clone()).map_err(|error| error.to_string())?;
        }
        let store = Arc::new(store);
        let as_client = WebPkiClientVerifier::builder_with_provider(Arc::clone(&store), provider())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { roots, store, as_client })
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        role: Role,
        now: u64,
    ) -> Result<(), rustls::Error> {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        match role {
            Role::Client => {
                self.as_client.verify_client_cert(leaf, intermediates, now).map(|_proof| ())
            }
            Role::Server => verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(leaf)?,
                &self.store,
                intermediates,
                now,
                provider().signature_verification_algorithms.all,
            ),
        }
    }
}

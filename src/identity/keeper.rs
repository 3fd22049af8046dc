//! [`Keeper`]: decides what an observation of files or agent does to the published snapshot.
//!
//! A set that can't be read or doesn't fit together never replaces one that works: during a rotation,
//! key, certificate and bundles change one after the other (Kubernetes swaps links, other tools don't).

use std::{collections::BTreeMap, sync::Arc};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};

use super::{
    BundleError, PeerError, Role, SvidError, TrustBundles,
    source::{Current, Snapshot, State, Svid},
    svid,
};
use crate::{
    telemetry::{Causes, Clock},
    tls::provider,
};

/// Everything that an identity is made of, as it was found.
pub(super) struct Material {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) roots: BTreeMap<String, Vec<CertificateDer<'static>>>,
}

/// What was seen when looking at the files or listening to the agent.
pub(super) enum Observation {
    /// The whole of what is there; what is missing in it is gone.
    Present(Material),
    /// The last that was there; whether it still is can't be told now.
    Last(Material),
    /// Nothing can be read now, for this reason.
    Unavailable(String),
    /// The agent says that this process has no identity any more.
    Withdrawn(String),
}

/// Why a set of material can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MaterialError {
    #[error("the SVID can't be used")]
    Leaf(#[from] SvidError),
    #[error("the private key can't be used or isn't that of the certificate")]
    Key(#[source] rustls::Error),
    #[error("the SVID isn't valid under the bundle of its own trust domain")]
    Chain(#[source] PeerError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

pub(super) struct Keeper {
    current: Arc<Current>,
    clock: Clock,
    /// Digest of the material behind the current snapshot.
    digest: Option<[u8; 32]>,
    /// The fault that was logged last, so that each is logged once.
    fault: Option<String>,
    /// End of validity of the SVID whose low remaining time, or end, was logged.
    warned: Option<u64>,
    ended: Option<u64>,
}

impl Keeper {
    pub(super) fn new(current: Arc<Current>, clock: Clock) -> Self {
        Self { current, clock, digest: None, fault: None, warned: None, ended: None }
    }

    /// Takes note of what was seen.
    pub(super) fn observe(&mut self, observation: Observation) {
        let now = self.clock.unix().as_secs();
        match observation {
            Observation::Present(material) => self.accept(&material, State::Ready, now),
            Observation::Last(material) => self.accept(&material, State::Stale, now),
            Observation::Unavailable(reason) => self.keep_old(&reason, now),
            Observation::Withdrawn(reason) => self.withdraw(&reason, now),
        }
        self.tick();
    }

    /// Lets time have its effect; to be called about once a second.
    pub(super) fn tick(&mut self) {
        let now = self.clock.unix().as_secs();
        self.drop_expired_roots(now);
        self.current.refresh(now);
        self.warn_before_expiry(now);
    }

    fn accept(&mut self, material: &Material, state: State, now: u64) {
        let digest = material.digest();
        let old = self.current.snapshot();
        if self.digest == Some(digest) {
            self.fault = None;
            self.confirm(state, now);
            self.set_state(&old, state, now);
            return;
        }
        match material.assemble(now) {
            Ok((svid, bundles)) => {
                let generation = old.generation.saturating_add(1);
                tracing::info!(
                    id = %svid.id,
                    not_after = svid.not_after,
                    bundles = bundles.len(),
                    generation,
                    "identity updated"
                );
                self.digest = Some(digest);
                self.fault = None;
                self.confirm(state, now);
                let snapshot = Snapshot {
                    generation,
                    state,
                    svid: Some(Arc::new(svid)),
                    bundles: Arc::new(bundles),
                };
                self.current.publish(snapshot, now);
            }
            Err(error) => self.keep_old(&Causes(&error).to_string(), now),
        }
    }

    fn confirm(&self, state: State, now: u64) {
        if state == State::Ready {
            self.current.confirm(now);
        }
    }

    fn keep_old(&mut self, reason: &str, now: u64) {
        if self.fault.as_deref() != Some(reason) {
            tracing::warn!(reason, "identity can't be refreshed; the last good one stays in use");
            self.fault = Some(reason.to_owned());
        }
        let old = self.current.snapshot();
        let state = match old.state {
            State::Ready | State::Stale => State::Stale,
            State::Starting | State::Expired | State::Withdrawn => old.state,
        };
        self.set_state(&old, state, now);
    }

    fn withdraw(&mut self, reason: &str, now: u64) {
        let old = self.current.snapshot();
        if old.state == State::Withdrawn {
            return;
        }
        tracing::error!(reason, "identity withdrawn; nothing is served until it is granted again");
        self.digest = None;
        let snapshot = Snapshot {
            generation: old.generation.saturating_add(1),
            state: State::Withdrawn,
            svid: None,
            bundles: Arc::default(),
        };
        self.current.publish(snapshot, now);
    }

    /// Publishes another state of the same material, under the same generation.
    fn set_state(&self, old: &Snapshot, state: State, now: u64) {
        if old.state == state {
            return;
        }
        let snapshot = Snapshot {
            generation: old.generation,
            state,
            svid: old.svid.clone(),
            bundles: Arc::clone(&old.bundles),
        };
        self.current.publish(snapshot, now);
    }

    fn drop_expired_roots(&self, now: u64) {
        let old = self.current.snapshot();
        if let Some(bundles) = old.bundles.prune(now) {
            tracing::warn!(
                bundles = bundles.len(),
                "a root has expired and is not trusted any more"
            );
            let snapshot = Snapshot {
                generation: old.generation.saturating_add(1),
                state: old.state,
                svid: old.svid.clone(),
                bundles: Arc::new(bundles),
            };
            self.current.publish(snapshot, now);
        }
    }

    fn warn_before_expiry(&mut self, now: u64) {
        let snapshot = self.current.snapshot();
        let Some(svid) = &snapshot.svid else { return };
        let lifetime = svid.not_after.saturating_sub(svid.not_before);
        let remaining = svid.not_after.saturating_sub(now);
        if remaining == 0 && self.ended != Some(svid.not_after) {
            tracing::error!(id = %svid.id, "our SVID has expired; nothing is served");
            self.ended = Some(svid.not_after);
        } else if remaining < lifetime / 4 && self.warned != Some(svid.not_after) {
            tracing::warn!(remaining, lifetime, "less than a quarter of the SVID's life is left");
            self.warned = Some(svid.not_after);
        }
    }
}

impl Material {
    /// Checks every part alone and all of them together.
    fn assemble(&self, now: u64) -> Result<(Svid, TrustBundles), MaterialError> {
        let (bundles, faults) = TrustBundles::new(&self.roots, now);
        if let Some(fault) = faults.into_iter().next() {
            return Err(fault.into());
        }
        let leaf = bundles.verify(&self.chain, Role::Server, now).map_err(MaterialError::Chain)?;
        bundles.verify(&self.chain, Role::Client, now).map_err(MaterialError::Chain)?;
        let key = CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), &provider())
            .map_err(MaterialError::Key)?;
        let svid::Leaf { id, not_before, not_after } = leaf;
        Ok((Svid { id, not_before, not_after, key: Arc::new(key) }, bundles))
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        };
        self.chain.iter().for_each(|certificate| add(certificate));
        add(self.key.secret_der());
        for (domain, roots) in &self.roots {
            add(domain.as_bytes());
            roots.iter().for_each(|root| add(root));
        }
        hash.finalize().into()
    }
}

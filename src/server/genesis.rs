//! Whose ledger it is: the genesis entry, signed with the SVID's key.

use std::sync::Arc;

use crate::{
    identity::{Algorithm, Source, Svid},
    ledger::{Genesis, Signer},
};

/// The algorithms that a verifier of ledgers takes.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Es256, Algorithm::Es384, Algorithm::Rs256];

/// The genesis for the identity of this moment; self-signed without one.
pub(super) fn of(source: Option<&Source>, now: u64) -> Genesis {
    let Some(source) = source else { return Genesis::default() };
    let snapshot = source.snapshot();
    let Ok(svid) = snapshot.usable(now) else { return Genesis::default() };
    Genesis { spiffe_id: Some(svid.id.as_str().to_owned()), signer: signer(Arc::clone(svid)) }
}

fn signer(svid: Arc<Svid>) -> Option<Signer> {
    let algorithm = svid.choose(&ALGORITHMS)?;
    let certificates = svid.certificates().iter().map(|der| der.to_vec()).collect();
    let sign = move |input: &[u8]| Ok(svid.sign(algorithm, input)?);
    Some(Signer { algorithm: algorithm.as_str(), certificates, sign: Box::new(sign) })
}

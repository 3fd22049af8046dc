//! Signatures of SVID keys over something else than TLS: made with our own, checked under somebody else's.
//!
//! The private key never leaves [`Svid`]: what is to be signed goes in. Signatures have the form of JWS
//! (RFC 7518 §3): rustls makes those of TLS, which for ECDSA are an ASN.1 `SEQUENCE { r, s }` (RFC 3279
//! §2.2.3) where a JWS has `r ‖ s` in fixed width.
//!
//! INVARIANT: only [`Snapshot::verify_signer`] makes a [`Signer`], so a key that signatures are checked
//! with is that of a leaf which passed every rule for SVIDs. What a message says of its own algorithm
//! never chooses how it is checked: the kind of the key does, and the message has to agree.

use std::fmt;

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::{SignatureScheme, pki_types::CertificateDer};
use x509_parser::der_parser::asn1_rs::{FromDer, Integer, Sequence};

use super::{
    PeerError, Role, SpiffeId,
    source::{Snapshot, Svid},
    svid::{self, KeyKind},
};

/// The algorithms of JWS that keys of SVIDs sign with (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
}

/// Somebody whose SVID was verified, to check what they signed. Holds for as long as the snapshot's
/// generation is in force, and until [`Self::not_after`].
#[derive(Clone)]
pub struct Signer {
    id: SpiffeId,
    not_after: u64,
    valid_until: u64,
    kind: KeyKind,
    key: Box<[u8]>,
}

/// A signature couldn't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The key is of another kind.
    #[error("our key can't sign with `{0}`")]
    Algorithm(Algorithm),
    /// The signature failed, or came in a form that isn't one.
    #[error("the signature failed")]
    Failed,
}

/// A signature doesn't hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The key is of a kind that doesn't sign like that.
    #[error("`{0}` is no algorithm of the leaf's key")]
    Algorithm(Algorithm),
    /// It isn't the signature of this key over these bytes.
    #[error("the signature doesn't hold")]
    Wrong,
}

impl Snapshot {
    /// Verifies an SVID, leaf first, by all rules at `now` (Unix seconds), to check signatures of its
    /// key.
    pub fn verify_signer(
        &self,
        chain: &[CertificateDer<'_>],
        now: u64,
    ) -> Result<Signer, PeerError> {
        let leaf = self.bundles.verify(chain, Role::Client, now)?;
        let valid_until = svid::valid_until(chain, now)?;
        let (kind, key) = match chain.first() {
            Some(leaf) => svid::public_key(leaf)?,
            None => return Err(PeerError::NoCertificate),
        };
        Ok(Signer { id: leaf.id, not_after: leaf.not_after, valid_until, kind, key })
    }
}

impl Signer {
    /// The SPIFFE ID of the SVID.
    pub fn id(&self) -> &SpiffeId {
        &self.id
    }

    /// End of the leaf's validity, Unix seconds.
    pub fn not_after(&self) -> u64 {
        self.not_after
    }

    /// When the first of the certificates ends, Unix seconds; from then on this has to be verified anew.
    pub fn valid_until(&self) -> u64 {
        self.valid_until
    }

    /// Checks a signature in the form of JWS.
    pub fn check(
        &self,
        algorithm: Algorithm,
        input: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        if algorithm.kind() != self.kind {
            return Err(SignatureError::Algorithm(algorithm));
        }
        UnparsedPublicKey::new(algorithm.verification(), &self.key)
            .verify(input, signature)
            .map_err(|_| SignatureError::Wrong)
    }
}

impl Svid {
    /// The certificates, DER, leaf first.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    /// The first of these algorithms that the key can sign with.
    pub fn choose(&self, algorithms: &[Algorithm]) -> Option<Algorithm> {
        let can =
            |algorithm: &&Algorithm| self.key.key.choose_scheme(&[algorithm.scheme()]).is_some();
        algorithms.iter().find(can).copied()
    }

    /// Signs, in the form of JWS.
    pub fn sign(&self, algorithm: Algorithm, input: &[u8]) -> Result<Vec<u8>, SignError> {
        let signer = self.key.key.choose_scheme(&[algorithm.scheme()]);
        let signer = signer.ok_or(SignError::Algorithm(algorithm))?;
        let signature = signer.sign(input).map_err(|_| SignError::Failed)?;
        match algorithm.width() {
            Some(width) => fixed(&signature, width).ok_or(SignError::Failed),
            None => Ok(signature),
        }
    }
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Es256, Self::Es384, Self::EdDsa, Self::Ps256, Self::Rs256];

    /// The name in JWS.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
            Self::Ps256 => "PS256",
            Self::Rs256 => "RS256",
        }
    }

    /// Looks up a name in JWS, byte for byte.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    fn kind(self) -> KeyKind {
        match self {
            Self::Es256 => KeyKind::P256,
            Self::Es384 => KeyKind::P384,
            Self::EdDsa => KeyKind::Ed25519,
            Self::Ps256 | Self::Rs256 => KeyKind::Rsa,
        }
    }

    fn scheme(self) -> SignatureScheme {
        match self {
            Self::Es256 => SignatureScheme::ECDSA_NISTP256_SHA256,
            Self::Es384 => SignatureScheme::ECDSA_NISTP384_SHA384,
            Self::EdDsa => SignatureScheme::ED25519,
            Self::Ps256 => SignatureScheme::RSA_PSS_SHA256,
            Self::Rs256 => SignatureScheme::RSA_PKCS1_SHA256,
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::EdDsa => &ED25519,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        }
    }

    /// Bytes of `r` and of `s`, with ECDSA.
    fn width(self) -> Option<usize> {
        match self {
            Self::Es256 => Some(32),
            Self::Es384 => Some(48),
            Self::EdDsa | Self::Ps256 | Self::Rs256 => None,
        }
    }
}

/// `r ‖ s`, each padded to `width` bytes.
fn fixed(der: &[u8], width: usize) -> Option<Vec<u8>> {
    let (_, pair) = Sequence::from_der(der).ok()?;
    let (rest, r) = Integer::from_der(&pair.content).ok()?;
    let (_, s) = Integer::from_der(rest).ok()?;
    let mut joined = Vec::with_capacity(2 * width);
    for number in [r, s] {
        let digits = match number.as_ref() {
            [0, digits @ ..] => digits,
            digits => digits,
        };
        let padding = width.checked_sub(digits.len())?;
        joined.resize(joined.len() + padding, 0);
        joined.extend_from_slice(digits);
    }
    Some(joined)
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("id", &self.id).field("kind", &self.kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;

    use super::{super::ca::Ca, *};
    use crate::telemetry::Clock;

    #[test]
    fn ecdsa_signatures_become_fixed_width() {
        let mut expected = vec![0; 64];
        expected[31] = 0x80;
        expected[63] = 1;
        assert_eq!(fixed(&[0x30, 7, 2, 2, 0, 0x80, 2, 1, 1], 32), Some(expected));
        assert_eq!(fixed(&[0x30, 7, 2, 2, 0, 0x80, 2, 1, 1], 0), None);
        assert_eq!(fixed(&[2, 1, 1], 32), None);
    }

    #[test]
    fn each_kind_of_key_signs_what_holds_under_its_leaf_and_under_nothing_else() {
        let ca = Ca::new("td");
        let now = Clock.unix().as_secs();
        let made = |kind| KeyPair::generate_for(kind).expect("key");
        // ring makes no RSA keys.
        let rsa = include_str!("../../tests/fixtures/rsa.pem");
        let keys = [
            (made(&rcgen::PKCS_ECDSA_P256_SHA256), &[Algorithm::Es256][..]),
            (made(&rcgen::PKCS_ECDSA_P384_SHA384), &[Algorithm::Es384]),
            (made(&rcgen::PKCS_ED25519), &[Algorithm::EdDsa]),
            (KeyPair::from_pem(rsa).expect("key"), &[Algorithm::Ps256, Algorithm::Rs256]),
        ];
        for (key, expected) in keys {
            let first = expected.first().copied();
            let credential = ca.leaf_of(key, "/agent", |_| {});
            let snapshot = Snapshot::of(&credential, &[&ca], 1);
            let svid = snapshot.usable(now).expect("valid");
            let signer = snapshot.verify_signer(&credential.chain, now).expect("verified");
            assert_eq!(signer.id(), &svid.id);
            for algorithm in Algorithm::ALL {
                assert_eq!(Algorithm::parse(algorithm.as_str()), Some(algorithm));
                let signature = svid.sign(algorithm, b"input");
                if !expected.contains(&algorithm) {
                    assert_eq!(signature, Err(SignError::Algorithm(algorithm)));
                    assert_eq!(
                        signer.check(algorithm, b"input", b"signature"),
                        Err(SignatureError::Algorithm(algorithm))
                    );
                    continue;
                }
                assert_eq!(svid.choose(&Algorithm::ALL), first);
                assert_eq!(svid.choose(&[algorithm]), Some(algorithm));
                let mut signature = signature.expect("signed");
                assert_eq!(signer.check(algorithm, b"input", &signature), Ok(()));
                let wrong = Err(SignatureError::Wrong);
                assert_eq!(signer.check(algorithm, b"inpus", &signature), wrong);
                signature[7] ^= 1;
                assert_eq!(signer.check(algorithm, b"input", &signature), wrong);
            }
        }
    }
}

//! Entry 0: which chain this is, whose it is, and which key will sign its checkpoints.
//!
//! The entry carries a detached JWS (RFC 7515 appendix F) whose payload is the canonical entry without
//! its `signature`. With an SVID the SVID's key signs, and `x5c` holds its certificates; without one the
//! ledger's own key signs and `self_signed` says so: that proves possession of the key, not an identity.

use std::{error::Error, fmt};

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, Ed25519KeyPair, KeyPair as _,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use uuid::{NoContext, Timestamp, Uuid};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::{
    line::{Tip, VERSION},
    stamp::Stamp,
};
use crate::telemetry::Clock;

/// Who opens the ledger; looked at when a chain begins, and compared when one goes on.
#[derive(Debug, Default)]
pub struct Genesis {
    /// The proxy's own SPIFFE ID, if it has one.
    pub spiffe_id: Option<String>,
    /// Signs with the SVID's key. Without it the genesis is self-signed.
    pub signer: Option<Signer>,
}

/// Signs with a key that a certificate vouches for.
pub struct Signer {
    /// The JWS algorithm of the key: `ES256`, `ES384` or `RS256`.
    pub algorithm: &'static str,
    /// The SVID and its intermediates, DER, leaf first.
    pub certificates: Vec<Vec<u8>>,
    /// Signs a JWS signing input; answers in the form that JWS wants (for ECDSA, `r ‖ s`).
    pub sign: Box<SignFn>,
}

/// See [`Signer::sign`].
pub type SignFn = dyn Fn(&[u8]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> + Send + Sync;

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The chain that a new one takes the place of, as it was at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Previous {
    /// Its id.
    pub chain: String,
    /// How many entries it had that were durable, or, if it was damaged, that verified.
    pub entries: u64,
    /// Hash of the last of them, hex.
    pub head: String,
}

impl Previous {
    /// A chain as it stands.
    pub(super) fn at(chain: &str, tip: Tip) -> Self {
        let head = HEXLOWER.encode(&tip.head);
        Self { chain: chain.to_owned(), entries: tip.next, head }
    }
}

/// The stored entry, fields sorted.
#[derive(Debug, Serialize)]
pub(super) struct GenesisLine<'a> {
    chain: &'a str,
    key: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<&'a Previous>,
    self_signed: bool,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    software: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    spiffe_id: Option<&'a str>,
    pub(super) ts: Stamp,
    v: u64,
}

/// A new chain's id: the SPIFFE ID, or `local`, and a UUIDv7. No spaces and no `+`, so that it can be
/// the origin of a C2SP checkpoint.
pub(super) fn new_chain(genesis: &Genesis) -> String {
    let now = Clock.unix();
    let id = Uuid::new_v7(Timestamp::from_unix(NoContext, now.as_secs(), now.subsec_nanos()));
    format!("{}#{id}", genesis.spiffe_id.as_deref().unwrap_or("local"))
}

impl<'a> GenesisLine<'a> {
    /// Signs the first entry of `chain`.
    pub(super) fn new(
        chain: &'a str,
        genesis: &'a Genesis,
        key: &Ed25519KeyPair,
        previous: Option<&'a Previous>,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut line = Self {
            chain,
            key: HEXLOWER.encode(key.public_key().as_ref()),
            kind: "genesis",
            previous,
            self_signed: genesis.signer.is_none(),
            seq: 0,
            signature: None,
            software: concat!("lictor ", env!("CARGO_PKG_VERSION")),
            spiffe_id: genesis.spiffe_id.as_deref(),
            ts: Stamp::now(),
            v: VERSION,
        };
        let header = match &genesis.signer {
            Some(signer) => Header {
                alg: signer.algorithm.to_owned(),
                x5c: signer.certificates.iter().map(|der| BASE64.encode(der)).collect(),
            },
            None => Header { alg: "EdDSA".to_owned(), x5c: Vec::new() },
        };
        let header = BASE64URL_NOPAD.encode(&serde_json::to_vec(&header)?);
        let input = signing_input(&header, &serde_json::to_vec(&line)?);
        let signature = match &genesis.signer {
            Some(signer) => (signer.sign)(input.as_bytes())?,
            None => key.sign(input.as_bytes()).as_ref().to_vec(),
        };
        line.signature = Some(format!("{header}..{}", BASE64URL_NOPAD.encode(&signature)));
        Ok(line)
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    x5c: Vec<String>,
}

fn signing_input(header: &str, payload: &[u8]) -> String {
    format!("{header}.{}", BASE64URL_NOPAD.encode(payload))
}

/// Who signed a genesis whose signature holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedBy {
    /// The ledger's own key: says nothing about whose ledger it is.
    Itself,
    /// The key of a certificate that names the chain's SPIFFE ID. Whether a trust bundle vouches for
    /// that certificate is not checked here.
    Svid,
}

/// Checks the signature of a stored genesis.
pub(super) fn check(entry: &serde_json::Value) -> Option<SignedBy> {
    let mut entry = entry.as_object()?.clone();
    let jws = entry.remove("signature")?;
    let (header, signature) = jws.as_str()?.split_once("..")?;
    let payload = serde_json_canonicalizer::to_vec(&entry).ok()?;
    let input = signing_input(header, &payload);
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
    let header: Header =
        serde_json::from_slice(&BASE64URL_NOPAD.decode(header.as_bytes()).ok()?).ok()?;
    let verify = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
        UnparsedPublicKey::new(algorithm, key).verify(input.as_bytes(), &signature).ok()
    };
    let spiffe_id = entry.get("spiffe_id").and_then(|id| id.as_str());
    let chain = entry.get("chain")?.as_str()?;
    if chain.rsplit_once('#')?.0 != spiffe_id.unwrap_or("local") {
        return None;
    }
    if entry.get("self_signed")?.as_bool()? {
        let key = HEXLOWER.decode(entry.get("key")?.as_str()?.as_bytes()).ok()?;
        if header.alg != "EdDSA" {
            return None;
        }
        return verify(&ED25519, &key).map(|()| SignedBy::Itself);
    }
    let leaf = BASE64.decode(header.x5c.first()?.as_bytes()).ok()?;
    let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
    let names = leaf.subject_alternative_name().ok()??;
    // An SVID has exactly one URI; DNS names and addresses beside it mean nothing (X509-SVID §2).
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let id = uris.next()?;
    if uris.next().is_some() || Some(id) != spiffe_id {
        return None;
    }
    let key = &leaf.public_key().subject_public_key.data;
    match header.alg.as_str() {
        "ES256" => verify(&ECDSA_P256_SHA256_FIXED, key),
        "ES384" => verify(&ECDSA_P384_SHA384_FIXED, key),
        "RS256" => verify(&RSA_PKCS1_2048_8192_SHA256, key),
        _ => None,
    }
    .map(|()| SignedBy::Svid)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, PKCS_ECDSA_P256_SHA256, SanType};
    use ring::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
    };
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "spiffe://td/proxy";

    fn svid(id: &str) -> Signer {
        let key = rcgen::KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(id.try_into().expect("ASCII"))];
        let certificate = params.self_signed(&key).expect("a certificate").der().to_vec();
        let (der, random) = (key.serialize_der(), SystemRandom::new());
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random)
            .expect("a key");
        let sign = move |input: &[u8]| {
            let signature = key.sign(&SystemRandom::new(), input).map_err(|_| "no signature")?;
            Ok(signature.as_ref().to_vec())
        };
        Signer { algorithm: "ES256", certificates: vec![certificate], sign: Box::new(sign) }
    }

    fn entry(genesis: &Genesis) -> Value {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key");
        let chain = new_chain(genesis);
        let previous = Previous { chain: "local#1".to_owned(), entries: 2, head: "00".to_owned() };
        let line = GenesisLine::new(&chain, genesis, &key, Some(&previous)).expect("signed");
        let written = serde_json::to_vec(&line).expect("JSON");
        let entry: Value = serde_json::from_slice(&written).expect("JSON");
        let canonical = serde_json_canonicalizer::to_vec(&entry).expect("canonical");
        assert_eq!(String::from_utf8(written), String::from_utf8(canonical));
        entry
    }

    fn identified(signer: Option<Signer>) -> Genesis {
        Genesis { spiffe_id: Some(ID.to_owned()), signer }
    }

    #[test]
    fn signatures_hold() {
        assert_eq!(check(&entry(&Genesis::default())), Some(SignedBy::Itself));
        assert_eq!(check(&entry(&identified(None))), Some(SignedBy::Itself));
        assert_eq!(check(&entry(&identified(Some(svid(ID))))), Some(SignedBy::Svid));
    }

    #[test]
    fn every_field_is_signed() {
        for genesis in [Genesis::default(), identified(Some(svid(ID)))] {
            let good = entry(&genesis);
            let fields: Vec<_> = good.as_object().expect("an object").keys().cloned().collect();
            for field in fields {
                let mut bad = good.clone();
                bad[&field] = match &good[&field] {
                    Value::Bool(value) => json!(!value),
                    Value::String(value) => json!(format!("{value}0")),
                    Value::Object(_) => json!({}),
                    Value::Number(_) | Value::Array(_) | Value::Null => json!(7),
                };
                assert_eq!(check(&bad), None, "{field} changed");
                bad.as_object_mut().expect("an object").remove(&field);
                assert_eq!(check(&bad), None, "{field} removed");
            }
        }
    }

    #[test]
    fn a_certificate_vouches_only_for_its_own_name_and_key() {
        assert_eq!(check(&entry(&identified(Some(svid("spiffe://td/other"))))), None);
        let (mut mine, other) = (svid(ID), svid(ID));
        mine.certificates = other.certificates;
        assert_eq!(check(&entry(&identified(Some(mine)))), None);
        assert_eq!(
            check(&entry(&identified(Some(Signer { algorithm: "none", ..svid(ID) })))),
            None
        );
        let bare = Signer { certificates: Vec::new(), ..svid(ID) };
        assert_eq!(check(&entry(&identified(Some(bare)))), None);
        let nameless = Genesis { spiffe_id: None, signer: Some(svid(ID)) };
        assert_eq!(check(&entry(&nameless)), None);
    }
}

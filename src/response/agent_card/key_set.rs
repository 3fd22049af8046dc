//! [`KeySet`]: public keys that agents sign their cards with.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

use crate::protocol::json::{self, Kind, Value};

/// Public keys from a JWK Set (RFC 7517 §5), each with its `kid`.
#[derive(Debug)]
pub struct KeySet(Vec<Key>);

/// Why a key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No JWK Set.
    #[error("it is no JWK Set (RFC 7517)")]
    NoSet,
    /// A symmetric or private key in a set of public ones.
    #[error("it holds a secret; only public keys belong there")]
    Secret,
    /// A key for signatures without a name.
    #[error("it holds a key without `kid`")]
    NoName,
    /// A key that is none of its type.
    #[error("its key `{0}` can't be read")]
    Broken(String),
    /// Nothing that could verify a signature.
    #[error("it holds no key for signatures by ES256, ES384, RS256, PS256 or EdDSA")]
    Empty,
    /// No private key of a type that signs.
    #[error("it is no PKCS#8 key in PEM, of P-256, P-384, Ed25519 or RSA with at least 2048 bits")]
    NoPrivateKey,
}

/// One public key.
pub(super) struct Key {
    pub(super) id: String,
    /// The one algorithm that it is for, if it says so.
    algorithm: Option<String>,
    material: Material,
}

enum Material {
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl KeySet {
    /// Reads a JWK Set. Keys for encryption and of unknown types are passed over (RFC 7517 §5).
    ///
    /// # Errors
    /// If it is none, holds a secret, a key without `kid` or a broken one, or none that is of use.
    pub fn from_jwks(bytes: &[u8]) -> Result<Self, KeyError> {
        let document = json::scan(bytes, json::Limits::default()).map_err(|_| KeyError::NoSet)?;
        let keys = document.root().member("keys").filter(|keys| keys.kind() == Kind::Array);
        let mut read = Vec::new();
        for key in keys.ok_or(KeyError::NoSet)?.elements() {
            read.extend(Key::read(key)?);
        }
        if read.is_empty() { Err(KeyError::Empty) } else { Ok(Self(read)) }
    }

    /// The keys of this name; more than one while a name is used for keys of several types.
    pub(super) fn named(&self, id: &str) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |key| key.id == id)
    }
}

impl Key {
    fn read(jwk: Value<'_>) -> Result<Option<Self>, KeyError> {
        let text = |name: &str| jwk.member(name).and_then(Value::as_str);
        let kind = text("kty").ok_or(KeyError::NoSet)?;
        if kind == "oct" || jwk.member("d").is_some() {
            return Err(KeyError::Secret);
        }
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return Ok(None);
        }
        let curve = text("crv");
        if !matches!(
            (&*kind, curve.as_deref()),
            ("EC", Some("P-256" | "P-384")) | ("OKP", Some("Ed25519")) | ("RSA", _)
        ) {
            return Ok(None);
        }
        let id = text("kid").filter(|id| !id.is_empty()).ok_or(KeyError::NoName)?.into_owned();
        let bytes = |name: &str| {
            let bytes = BASE64URL_NOPAD.decode(text(name)?.as_bytes()).ok()?;
            (!bytes.is_empty()).then_some(bytes)
        };
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            let fits = x.len() == length && y.len() == length;
            fits.then(|| [&[4_u8], x.as_slice(), y.as_slice()].concat())
        };
        let material = match curve.as_deref() {
            Some("P-256") => point(32).map(Material::P256),
            Some("P-384") => point(48).map(Material::P384),
            Some("Ed25519") => bytes("x").filter(|x| x.len() == 32).map(Material::Ed25519),
            _ => bytes("n").zip(bytes("e")).map(|(n, e)| Material::Rsa { n, e }),
        };
        let Some(material) = material else { return Err(KeyError::Broken(id)) };
        Ok(Some(Self { id, algorithm: text("alg").map(Into::into), material }))
    }

    /// Whether this key made the signature. The algorithm has to be one of the key's type, and the one
    /// that the key is for; what a header names never chooses how a key is used.
    pub(super) fn verifies(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        if self.algorithm.as_ref().is_some_and(|only| only != algorithm) {
            return false;
        }
        let rsa = |n, e| RsaPublicKeyComponents { n, e };
        match (&self.material, algorithm) {
            (Material::P256(point), "ES256") => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Material::P384(point), "ES384") => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            (Material::Ed25519(key), "EdDSA") => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            (Material::Rsa { n, e }, "RS256") => {
                rsa(n, e).verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Material::Rsa { n, e }, "PS256") => {
                rsa(n, e).verify(&RSA_PSS_2048_8192_SHA256, message, signature)
            }
            (
                Material::P256(_) | Material::P384(_) | Material::Ed25519(_) | Material::Rsa { .. },
                _,
            ) => return false,
        }
        .is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.id).finish()
    }
}

//! [`Signer`]: Lictor's own key for cards that it has rewritten.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::json;
use url::Url;

use super::{Error, KeyError};

/// A private key with the name that its public half is published under.
pub struct Signer {
    pair: Pair,
    /// Protected header, encoded.
    header: String,
    random: SystemRandom,
}

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Signer {
    /// Reads a PKCS#8 key in PEM. `key_id` goes into signatures as `kid`, and `keys_url`, where the JWK Set
    /// with the public key is published, as `jku`.
    ///
    /// # Errors
    /// If it is no such key, or of a type that isn't signed with here.
    pub fn from_pem(pem: &[u8], key_id: &str, keys_url: Option<&Url>) -> Result<Self, KeyError> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| KeyError::NoPrivateKey)?;
        let random = SystemRandom::new();
        let pair = Pair::read(key.secret_pkcs8_der(), &random).ok_or(KeyError::NoPrivateKey)?;
        let mut header = json!({ "alg": pair.algorithm(), "kid": key_id, "typ": "JOSE" });
        if let (Some(url), Some(header)) = (keys_url, header.as_object_mut()) {
            header.insert("jku".to_owned(), json!(url.as_str()));
        }
        let header = BASE64URL_NOPAD.encode(header.to_string().as_bytes());
        Ok(Self { pair, header, random })
    }

    /// A detached signature: protected header and signature, both encoded (RFC 7515 appendix F).
    pub(super) fn sign(&self, payload: &[u8]) -> Result<(&str, String), Error> {
        let input = format!("{}.{}", self.header, BASE64URL_NOPAD.encode(payload));
        let signature = self.pair.sign(input.as_bytes(), &self.random).ok_or(Error::Signing)?;
        Ok((&self.header, BASE64URL_NOPAD.encode(&signature)))
    }
}

impl Pair {
    fn read(der: &[u8], random: &SystemRandom) -> Option<Self> {
        let p256 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, random);
        let p384 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, der, random);
        // Only the second version of PKCS#8 has the public half, and OpenSSL writes the first.
        let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
        (p256().map(Self::P256).ok())
            .or_else(|| p384().map(Self::P384).ok())
            .or_else(|| ed25519().map(Self::Ed25519).ok())
            .or_else(|| RsaKeyPair::from_pkcs8(der).map(Self::Rsa).ok())
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::P384(_) => "ES384",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8], random: &SystemRandom) -> Option<Vec<u8>> {
        match self {
            Self::P256(pair) | Self::P384(pair) => {
                Some(pair.sign(random, message).ok()?.as_ref().to_vec())
            }
            Self::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(..)")
    }
}

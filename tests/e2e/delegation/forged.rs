//! Chains made by hand, with claims that no proxy would make.

use data_encoding::BASE64URL_NOPAD;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ca::Credential;

/// A hop of `by`.
pub(super) fn hop(by: &Credential, claims: &Value) -> String {
    let certificates: Vec<String> =
        by.chain.iter().map(|der| data_encoding::BASE64.encode(der)).collect();
    let header = json!({ "alg": "ES256", "typ": "agent-delegation+jwt", "x5c": certificates });
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&header), part(claims));
    let PrivateKeyDer::Pkcs8(der) = by.key() else { panic!("keys are PKCS #8") };
    let random = SystemRandom::new();
    let key =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der(), &random);
    let signature = key.expect("a key").sign(&random, signed.as_bytes()).expect("a signature");
    format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
}

pub(super) fn digest(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(bytes))
}

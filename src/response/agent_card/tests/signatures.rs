//! Cards that others have signed, and cards that we sign.

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use serde_json::{Value, json};

use super::{
    super::{KeyError, KeySet, Signer},
    DUAL, Demands, Error, PUBLIC, Settings, card, rewritten, settings,
};

/// Public keys and signatures of the card in `dual.json`, made by a2a-sdk 1.3.0.
const JWKS: &str = include_str!("dual.jwks.json");
const SIGNATURES: &str = include_str!("dual.signatures.json");

fn verifying(jwks: &Value) -> Settings {
    let keys = KeySet::from_jwks(jwks.to_string().as_bytes()).expect("keys");
    Settings { keys: Some(Arc::new(keys)), ..settings(Demands::MutualTls) }
}

fn known() -> Settings {
    verifying(&serde_json::from_str(JWKS).expect("JSON"))
}

fn tree(card: &str) -> Value {
    serde_json::from_str(card).expect("JSON")
}

fn signed_by(algorithm: &str) -> Value {
    let mut card = tree(DUAL);
    card["signatures"] = json!([tree(SIGNATURES)[algorithm]]);
    card
}

fn header(signature: &Value) -> Value {
    let protected = signature["protected"].as_str().expect("text");
    let protected = BASE64URL_NOPAD.decode(protected.as_bytes()).expect("base64url");
    serde_json::from_slice(&protected).expect("JSON")
}

#[test]
fn signatures_of_the_python_sdk_are_verified() {
    for algorithm in ["ES256", "ES384", "RS256", "PS256", "EdDSA"] {
        let card = signed_by(algorithm);
        let now = rewritten(&card.to_string(), &known());
        assert!(now.is_ok_and(|now| !now.contains("signatures")), "{algorithm}");
        // Whatever is said of the agent is covered.
        for (pointer, value) in [
            ("/name", json!("Other")),
            ("/skills/0/id", json!("other")),
            ("/capabilities/pushNotifications", json!(true)),
            ("/supportedInterfaces/2/tenant", json!("other")),
            ("/securitySchemes/bearer/httpAuthSecurityScheme/scheme", json!("basic")),
            ("/capabilities/extensions/0/uri", json!("https://example.org/other")),
        ] {
            let mut card = card.clone();
            *card.pointer_mut(pointer).expect("there") = value;
            let now = rewritten(&card.to_string(), &known());
            assert!(matches!(now, Err(Error::Untrusted(_))), "{algorithm} {pointer}");
        }
        let mut card = card.clone();
        card["added"] = json!(1);
        assert!(rewritten(&card.to_string(), &known()).is_err(), "{algorithm}");
    }
}

#[test]
fn one_good_signature_is_enough_and_none_is_not() {
    let good = tree(SIGNATURES);
    let mut bad = good["ES256"].clone();
    bad["signature"] = good["ES384"]["signature"].clone();
    let empty = json!({});
    for (signatures, wanted) in [
        (json!([bad, empty, good["ES256"]]), true),
        (json!([good["ES256"], bad]), true),
        (json!([bad, empty]), false),
        (json!([7]), false),
        (json!(["x", null]), false),
    ] {
        let mut card = tree(DUAL);
        card["signatures"] = signatures.clone();
        let now = rewritten(&card.to_string(), &known());
        assert_eq!(now.is_ok(), wanted, "{signatures}");
        assert!(wanted || matches!(now, Err(Error::Untrusted(_))));
    }
    for (signatures, wanted) in [
        (json!([]), Error::Unsigned),
        (json!(null), Error::Unsigned),
        (json!({}), Error::Malformed("signatures")),
        (json!(vec![good["ES256"].clone(); 9]), Error::Malformed("signatures")),
    ] {
        let mut card = tree(DUAL);
        card["signatures"] = signatures;
        assert_eq!(rewritten(&card.to_string(), &known()), Err(wanted));
    }
    let mut card = tree(DUAL);
    card.as_object_mut().expect("object").remove("signatures");
    assert_eq!(rewritten(&card.to_string(), &known()), Err(Error::Unsigned));
}

/// Each signature is good, and by a known key.
#[test]
fn headers_choose_nothing() {
    let (pem, jwk) = pair(&PKCS_ECDSA_P256_SHA256);
    let settings = verifying(&json!({ "keys": [jwk] }));
    let payload = br#"{"name":"a","skills":[],"url":"https://side.example.org/out/agent"}"#;
    for (header, wanted) in [
        (json!({"alg": "ES256", "kid": "lictor"}), true),
        (
            json!({"alg": "ES256", "kid": "lictor", "typ": "JOSE", "jku": "http://x", "jwk": {}}),
            true,
        ),
        (json!({"alg": "ES256", "kid": "lictor", "crit": ["x"], "x": 1}), false),
        (json!({"alg": "ES256", "kid": "lictor", "crit": []}), false),
        (json!({"alg": "ES256", "kid": "lictor", "b64": true}), false),
        (json!({"alg": "ES256", "kid": "other"}), false),
        (json!({"alg": "ES256", "kid": ["lictor"]}), false),
        (json!({"alg": "ES256"}), false),
        (json!({"kid": "lictor"}), false),
        (json!({"alg": "none", "kid": "lictor"}), false),
        (json!({"alg": "HS256", "kid": "lictor"}), false),
        (json!({"alg": "ES384", "kid": "lictor"}), false),
        (json!({"alg": "es256", "kid": "lictor"}), false),
        (json!({"alg": "RS256", "kid": "lictor"}), false),
        (json!({"alg": "EdDSA", "kid": "lictor"}), false),
    ] {
        let protected = BASE64URL_NOPAD.encode(header.to_string().as_bytes());
        let input = format!("{protected}.{}", BASE64URL_NOPAD.encode(payload));
        let signature = BASE64URL_NOPAD.encode(&p256(&pem, input.as_bytes()));
        let signature = json!([{ "protected": protected, "signature": signature }]);
        let sent = card(&format!(r#""url":"{PUBLIC}","signatures":{signature}"#));
        assert_eq!(rewritten(&sent, &settings).is_ok(), wanted, "{header}");
    }
}

#[test]
fn what_we_sign_is_verified_under_every_form() {
    let rsa = include_str!("rsa.test-key.pem").to_owned();
    let mut pairs = vec![(rsa, tree(include_str!("rsa.test-key.jwk.json")))];
    pairs.extend([&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519].map(pair));
    for (pem, jwk) in pairs {
        let url = "https://keys.example.org/jwks".parse().expect("valid");
        let signer = Signer::from_pem(pem.as_bytes(), "lictor", Some(&url)).expect("a key");
        let signing = Settings { signer: Some(Arc::new(signer)), ..settings(Demands::MutualTls) };
        let now = rewritten(DUAL, &signing).expect("a card");
        let signatures = tree(&now)["signatures"].as_array().expect("array").clone();
        assert!(signatures.len() > 1, "more than one form");
        for signature in signatures {
            let mut card = tree(&now);
            assert_eq!(header(&signature)["kid"], "lictor");
            assert_eq!(header(&signature)["jku"], url.as_str());
            card["signatures"] = json!([signature]);
            let settings = verifying(&json!({ "keys": [jwk] }));
            let again = rewritten(&card.to_string(), &settings);
            assert_eq!(again.as_deref(), Ok(&*card.to_string()), "unchanged");
        }
        assert_eq!(rewritten(&now, &signing).expect("a card"), now, "twice is once");
    }
}

#[test]
fn key_sets_hold_public_keys_that_verify() {
    let (_, good) = pair(&PKCS_ECDSA_P256_SHA256);
    let with = |change: Value| {
        let mut key = good.clone();
        for (name, value) in change.as_object().expect("object") {
            key[name] = value.clone();
        }
        KeySet::from_jwks(json!({ "keys": [key] }).to_string().as_bytes())
    };
    assert!(with(json!({})).is_ok());
    assert!(matches!(with(json!({"d": "AA"})), Err(KeyError::Secret)));
    assert!(matches!(with(json!({"kty": "oct", "k": "AA"})), Err(KeyError::Secret)));
    assert!(matches!(with(json!({"kid": null})), Err(KeyError::NoName)));
    assert!(matches!(with(json!({"kid": ""})), Err(KeyError::NoName)));
    assert!(matches!(with(json!({"use": "enc"})), Err(KeyError::Empty)));
    assert!(matches!(with(json!({"crv": "secp256k1"})), Err(KeyError::Empty)));
    assert!(matches!(with(json!({"crv": "P-384"})), Err(KeyError::Broken(_))));
    assert!(matches!(with(json!({"x": "AA"})), Err(KeyError::Broken(_))));
    assert!(matches!(with(json!({"x": "=="})), Err(KeyError::Broken(_))));
    for set in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[{}]}"#, r#"{"keys":[],"keys":[]}"#] {
        assert!(matches!(KeySet::from_jwks(set.as_bytes()), Err(KeyError::NoSet)), "{set}");
    }
    assert!(matches!(KeySet::from_jwks(br#"{"keys":[]}"#), Err(KeyError::Empty)));
    let only = with(json!({"alg": "ES384"})).expect("a key");
    assert!(only.named("lictor").all(|key| !key.verifies("ES256", b"", b"")));
    for pem in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        let read = Signer::from_pem(pem.as_bytes(), "a", None);
        assert!(matches!(read, Err(KeyError::NoPrivateKey)));
    }
}

/// A new private key in PEM, and its public half.
fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, Value) {
    let pair = KeyPair::generate_for(algorithm).expect("a key");
    let raw = pair.public_key_raw();
    let half = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let jwk = if *algorithm == PKCS_ED25519 {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": "lictor", "x": half(raw)})
    } else {
        let (x, y) = raw[1..].split_at((raw.len() - 1) / 2);
        let crv = if x.len() == 32 { "P-256" } else { "P-384" };
        json!({"kty": "EC", "crv": crv, "kid": "lictor", "x": half(x), "y": half(y)})
    };
    (pair.serialize_pem(), jwk)
}

fn p256(pem: &str, message: &[u8]) -> Vec<u8> {
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let random = ring::rand::SystemRandom::new();
    let der = key.secret_pkcs8_der();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random);
    pair.expect("a key").sign(&random, message).expect("signed").as_ref().to_vec()
}

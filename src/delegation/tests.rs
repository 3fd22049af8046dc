//! Chains of real SVIDs: made by [`super::mint`], or by hand where they have to be wrong.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::*;
use crate::{
    identity::{
        Snapshot, SpiffeId,
        ca::{Ca, Credential},
    },
    telemetry::Clock,
};

mod laws;
mod minting;
mod oracle;
mod rules;
mod verifier;

const BODY: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
const RUN: &str = "01993f0e-7b5a-7c3e-9a1d-0123456789ab";

/// The workloads a, b, c and d of one trust domain, and one of another.
pub(crate) struct World {
    one: Ca,
    two: Ca,
    pub(crate) members: Vec<Member>,
    pub(crate) now: u64,
}

pub(crate) struct Member {
    pub(crate) id: SpiffeId,
    credential: Credential,
    snapshot: Snapshot,
}

impl World {
    pub(crate) fn new() -> Self {
        let (one, two) = (Ca::new("one.test"), Ca::new("two.test"));
        let member = |ca: &Ca, path: &str| {
            let credential = ca.svid(path);
            let id = SpiffeId::parse(&format!("spiffe://{}{path}", ca.domain)).expect("ID");
            let snapshot = Snapshot::of(&credential, &[&one, &two], 1);
            Member { id, credential, snapshot }
        };
        let mut members: Vec<_> = ["/a", "/b", "/c", "/d"].map(|path| member(&one, path)).into();
        members.push(member(&two, "/e"));
        Self { one, two, members, now: Clock.unix().as_secs() }
    }

    pub(crate) fn settings(&self) -> Settings {
        let origins = vec![Origin { who: Who::One(self.members[0].id.clone()), mode: Mode::Full }];
        Settings { origins, ..Settings::default() }
    }

    /// What the hops of a → b → c → d say, without `prv`.
    pub(crate) fn claims(&self, hops: usize) -> Vec<Value> {
        let id = |at: usize| self.members[at].id.as_str();
        let hop = |at: usize| {
            json!({
                "iss": id(at), "aud": id(at + 1), "sub": id(0), "run": RUN, "dep": at,
                "mode": "full", "iat": self.now, "exp": self.now + 900,
                "jti": BASE64URL_NOPAD.encode(&[u8::try_from(at).expect("few"); 16]),
                "bh": BASE64URL_NOPAD.encode(&Sha256::digest(BODY)),
                "htm": "POST", "mth": "tools/call",
            })
        };
        (0..hops).map(hop).collect()
    }

    /// Signs each hop with the key of the member at its place, commits to the hop before where the claims
    /// say nothing of it, and joins them.
    pub(crate) fn sign(&self, claims: &[Value]) -> String {
        let mut hops: Vec<String> = Vec::new();
        for (at, claims) in claims.iter().enumerate() {
            let mut claims = claims.clone();
            if let (Some(before), None) = (hops.last(), claims.get("prv")) {
                claims["prv"] = BASE64URL_NOPAD.encode(&Sha256::digest(before)).into();
            }
            let credential = &self.members[at].credential;
            hops.push(jws(&header(credential), &claims.to_string(), credential));
        }
        hops.join("~")
    }

    /// Shows a header, as b's neighbour would, to the member who stands at the end of so many hops.
    pub(crate) fn show(
        &self,
        verifier: &Verifier,
        header: &str,
        hops: usize,
    ) -> Result<Chain, ChainError> {
        self.show_to(verifier, header, hops, &self.settings())
    }

    fn show_to(
        &self,
        verifier: &Verifier,
        header: &str,
        hops: usize,
        settings: &Settings,
    ) -> Result<Chain, ChainError> {
        let peer = &self.members[hops - 1].id;
        let snapshot = &self.members[hops].snapshot;
        let site = Site { snapshot, settings, now: self.now };
        verifier.verify(&arrival(header, peer), &site)?.taken(true)
    }
}

fn arrival<'a>(header: &'a str, peer: &'a SpiffeId) -> Arrival<'a> {
    Arrival { header, peer, http_method: "POST", method: "tools/call", body: BODY }
}

fn header(credential: &Credential) -> String {
    let x5c: Vec<_> = credential.chain.iter().map(|der| BASE64.encode(der)).collect();
    json!({"alg": "ES256", "typ": "agent-delegation+jwt", "x5c": x5c}).to_string()
}

fn jws(header: &str, claims: &str, by: &Credential) -> String {
    let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
    let input = format!("{}.{}", encode(header), encode(claims));
    let (key, random) = (by.key(), SystemRandom::new());
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let key = EcdsaKeyPair::from_pkcs8(algorithm, key.secret_der(), &random).expect("a P-256 key");
    let signature = key.sign(&random, input.as_bytes()).expect("signed");
    format!("{input}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
}

fn run() -> Uuid {
    Uuid::parse_str(RUN).expect("a UUID")
}

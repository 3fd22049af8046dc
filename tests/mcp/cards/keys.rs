//! Keys that cards are verified with, and the key that they are signed with, while Lictor runs.

use super::*;

/// A key of an agent, as it signs and as others know it.
struct Key {
    pair: Ed25519KeyPair,
    pem: String,
}

impl Key {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.serialized_der());
        Self { pair: pair.expect("a key"), pem: key.serialize_pem() }
    }

    fn jwks(&self) -> String {
        let x = BASE64URL_NOPAD.encode(self.pair.public_key().as_ref());
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x }] }).to_string()
    }

    /// A card with a signature over it as it is served, without whitespace and with its keys in order.
    fn sign(&self, mut card: Value) -> Value {
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let protected = encode(r#"{"alg":"EdDSA","kid":"k","typ":"JOSE"}"#);
        let input = format!("{protected}.{}", encode(&canonical(&card)));
        let signature = BASE64URL_NOPAD.encode(self.pair.sign(input.as_bytes()).as_ref());
        card["signatures"] = json!([{ "protected": protected, "signature": signature }]);
        card
    }

    /// Whether it signed a card, in the form in which the card is served.
    fn signed(&self, mut card: Value) -> bool {
        let signatures = card["signatures"].take();
        card.as_object_mut().expect("an object").remove("signatures");
        let payload = BASE64URL_NOPAD.encode(canonical(&card).as_bytes());
        let key = UnparsedPublicKey::new(&ED25519, self.pair.public_key().as_ref());
        signatures.as_array().into_iter().flatten().any(|it| {
            let [protected, signature] = ["protected", "signature"].map(|name| &it[name]);
            let input = format!("{}.{payload}", protected.as_str().expect("text"));
            let signature = signature.as_str().expect("text").as_bytes();
            let signature = BASE64URL_NOPAD.decode(signature).expect("base64url");
            key.verify(input.as_bytes(), &signature).is_ok()
        })
    }
}

/// As RFC 8785 has it, for plain ASCII: members in order, nothing between them.
fn canonical(json: &Value) -> String {
    match json {
        Value::Object(members) => {
            let sorted: std::collections::BTreeMap<_, _> = members.iter().collect();
            let member =
                |(name, value): (&String, &Value)| format!("{}:{}", json!(name), canonical(value));
            format!("{{{}}}", sorted.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

/// An agent whose card is signed with a key, and says so for a long time.
async fn agent(key: Key) -> Stub {
    Stub::answering(move |seen| kept(&key.sign(card(&[own_url(seen)])), "max-age=300")).await
}

#[tokio::test]
async fn cards_are_verified_with_the_keys_of_now() {
    let (key, other) = (Key::new(), Key::new());
    let (good, bad) = (key.jwks(), other.jwks());
    let agent = agent(key).await;
    let lictor = Site::to(&agent.url())
        .route(AGENT)
        .policies(EVERYTHING)
        .upstream("agentCard: { keys: agent.jwks.json }")
        .file("agent.jwks.json", &good)
        .start()
        .await;
    assert_eq!(fetch(&lictor).await.status, 200);
    // A key that is believed no more takes the card with it, also the one in memory.
    edit(&lictor, "agent.jwks.json", &good, &bad);
    reloads(&lictor, APPLIED, 1.0).await;
    let refused = fetch(&lictor).await;
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert!(refused.text().contains("upstream_unreadable"), "{}", refused.text());
    edit(&lictor, "agent.jwks.json", &bad, &good);
    reloads(&lictor, APPLIED, 2.0).await;
    assert_eq!(fetch(&lictor).await.status, 200);
    // What is no key set is refused as a whole, and that of before stays in force.
    edit(&lictor, "agent.jwks.json", &good, "{}");
    reloads(&lictor, &["outcome=\"rejected\""], 1.0).await;
    assert_eq!(fetch(&lictor).await.status, 200);
    assert_eq!(agent.requests(), 1, "one card for all of them");
    lictor.stop(4).await;
}

#[tokio::test]
async fn cards_are_signed_with_the_key_of_now() {
    let agent = Stub::answering(|seen| kept(&card(&[own_url(seen)]), "max-age=300")).await;
    let (first, second) = (Key::new(), Key::new());
    let lictor = Site::to(&agent.url())
        .route(AGENT)
        .policies(EVERYTHING)
        .upstream("agentCard: { sign: { key: sign.pem, keyId: lictor-1 } }")
        .file("sign.pem", &first.pem)
        .start()
        .await;
    let before = fetch(&lictor).await;
    assert!(first.signed(before.json()) && !second.signed(before.json()), "{}", before.text());
    edit(&lictor, "sign.pem", &first.pem, &second.pem);
    reloads(&lictor, APPLIED, 1.0).await;
    let after = fetch(&lictor).await;
    assert!(second.signed(after.json()) && !first.signed(after.json()), "{}", after.text());
    assert_ne!(before.header("etag"), after.header("etag"), "caches learn of it");
    // A caller who shows the tag of before gets the new one.
    let mut caller = agent_a(&lictor).await;
    let mut request = caller.request_to("GET", PLACE, whole(""));
    let tag = before.header("etag").expect("a tag").parse().expect("a value");
    request.headers_mut().insert("if-none-match", tag);
    assert_eq!(caller.send(request).await.whole().await.status, 200);
    assert_eq!(agent.requests(), 1);
    lictor.stop(3).await;
}

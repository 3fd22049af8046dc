//! Answers as tables, memory on a clock of its own, and exchanges with a service on loopback.

mod service;

use std::time::Instant;

use http::HeaderValue;
use proptest::prelude::*;

use super::{answer::Unreadable, *};

fn json(token_type: &str, more: &str) -> String {
    format!(
        r#"{{"access_token":"issued","issued_token_type":"{}","token_type":"{token_type}"{more}}}"#,
        answer::ACCESS_TOKEN
    )
}

#[test]
fn only_what_was_asked_for_is_taken() {
    let plain = json("Bearer", "");
    for good in [
        plain.clone(),
        json("bearer", r#","expires_in":60,"scope":"a b","refresh_token":"r","more":{"a":[1]}"#),
        plain.replace("issued\"", "a\\/b.c-d_e~f+9==\""),
        plain.replace("issued\"", &format!("{}\"", "a".repeat(8000))),
    ] {
        let issued = answer::issued(good.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let sent = issued.token.expose();
        assert!(sent.is_sensitive());
        assert!(sent.to_str().unwrap().starts_with("Bearer "));
    }
    let twice = r#","access_token":"other""#;
    let other_type = "urn:ietf:params:oauth:token-type:jwt";
    for (bad, reason) in [
        (String::new(), Unreadable::Document),
        ("null".into(), Unreadable::Document),
        ("[]".into(), Unreadable::Document),
        ("{}".into(), Unreadable::Document),
        ("access_token=issued".into(), Unreadable::Document),
        (format!("{plain} {plain}"), Unreadable::Document),
        (plain.trim_end_matches('}').into(), Unreadable::Document),
        (json("Bearer", twice), Unreadable::Document),
        (plain.replace("\"issued\"", "null"), Unreadable::Document),
        (plain.replace("\"issued\"", "7"), Unreadable::Document),
        (plain.replace("\"issued\"", "\"\\ud800\""), Unreadable::Document),
        (plain.replace("issued_token_type", "issued_type"), Unreadable::Document),
        (json("Bearer", r#","expires_in":"60""#), Unreadable::Document),
        (json("Bearer", r#","expires_in":-1"#), Unreadable::Document),
        (json("Bearer", r#","expires_in":1.5"#), Unreadable::Document),
        (plain.replace(answer::ACCESS_TOKEN, other_type), Unreadable::IssuedType),
        (plain.replace(answer::ACCESS_TOKEN, "access_token"), Unreadable::IssuedType),
        (json("N_A", ""), Unreadable::Type),
        (json("DPoP", ""), Unreadable::Type),
        (json("mac", ""), Unreadable::Type),
        (json("", ""), Unreadable::Type),
        (plain.replace("issued\"", "\""), Unreadable::Token),
        (plain.replace("issued\"", "a b\""), Unreadable::Token),
        (plain.replace("issued\"", "a\\r\\nX: y\""), Unreadable::Token),
        (plain.replace("issued\"", "ä\""), Unreadable::Token),
        (plain.replace("issued\"", "=\""), Unreadable::Token),
        (plain.replace("issued\"", &format!("{}\"", "a".repeat(8001))), Unreadable::Token),
        (json("Bearer", r#","expires_in":0"#), Unreadable::Expired),
    ] {
        assert_eq!(answer::issued(bad.as_bytes()).err(), Some(reason), "{bad}");
    }
}

#[test]
fn a_token_is_used_again_while_it_is_surely_valid() {
    for (expires_in, usable) in [
        ("", None),
        (r#","expires_in":null"#, None),
        (r#","expires_in":1"#, None),
        (r#","expires_in":30"#, None),
        (r#","expires_in":31"#, Some(1)),
        (r#","expires_in":300"#, Some(270)),
        (r#","expires_in":301"#, Some(270)),
        (r#","expires_in":18446744073709551615"#, Some(270)),
    ] {
        let issued = answer::issued(json("Bearer", expires_in).as_bytes()).ok().unwrap();
        assert_eq!(issued.usable_for(), usable.map(Duration::from_secs), "{expires_in}");
    }
}

#[test]
fn a_refusal_is_about_the_user_or_about_lictor() {
    let error = |code: &str| format!(r#"{{"error":"{code}","error_description":"secret"}}"#);
    for (status, document, told) in [
        (400, error("invalid_grant"), "the token service refuses: `invalid_grant`"),
        (400, error("invalid_target"), "the token service refuses: `invalid_target`"),
        (403, error("access_denied"), "the token service refuses: `access_denied`"),
        (401, error("invalid_token"), "the token service refuses: `invalid_token`"),
        (400, error("something_else"), "the token service refuses: `other`"),
        (403, error("Invalid_Client"), "the token service refuses: `other`"),
        (
            400,
            error("invalid_client"),
            "the token service doesn't accept Lictor as its client: `invalid_client`",
        ),
        (
            403,
            error("unauthorized_client"),
            "the token service doesn't accept Lictor as its client: `unauthorized_client`",
        ),
        (
            401,
            error("something_else"),
            "the token service doesn't accept Lictor as its client: `other`",
        ),
        (401, String::new(), "the token service doesn't accept Lictor as its client: `other`"),
        (403, "<html>".into(), "the token service answers 403"),
        (400, "{}".into(), "the token service answers 400"),
        (400, r#"{"error":{}}"#.into(), "the token service answers 400"),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let problem = answer::refusal(status, document.as_bytes());
        assert_eq!(problem.to_string(), told, "{status} {document}");
    }
}

fn token(value: &'static str) -> Secret<HeaderValue> {
    Secret::new(HeaderValue::from_static(value))
}

fn digest(number: usize) -> Digest {
    Sha256::digest(number.to_be_bytes()).into()
}

fn begin(memory: &Arc<Memory>, of: Digest, now: Instant) -> Place {
    match memory.find(of, "agent".into(), now) {
        Found::Nothing(place, _) => place,
        Found::Issued(_) | Found::Coming(_) | Found::Full => panic!("there is something"),
    }
}

fn known(memory: &Arc<Memory>, of: Digest, now: Instant) -> Option<HeaderValue> {
    match memory.find(of, "agent".into(), now) {
        Found::Issued(bearer) => Some(bearer.value.expose().clone()),
        // Giving the place up leaves all as it was.
        Found::Nothing(..) => None,
        Found::Coming(_) | Found::Full => panic!("an exchange"),
    }
}

#[test]
fn a_token_is_forgotten_at_its_time() {
    let (memory, now) = (Arc::<Memory>::default(), Clock.instant());
    let second = Duration::from_secs(1);
    begin(&memory, digest(1), now).finish(Ok((token("a"), Some(now + 2 * second))));
    assert_eq!(known(&memory, digest(1), now + second).unwrap(), "a");
    assert_eq!(known(&memory, digest(2), now + second), None);
    assert_eq!(known(&memory, digest(1), now + 2 * second), None);
    // And not only hidden.
    assert_eq!(known(&memory, digest(1), now), None);
    begin(&memory, digest(1), now).finish(Ok((token("b"), None)));
    assert_eq!(known(&memory, digest(1), now), None);
    begin(&memory, digest(1), now).finish(Err(TokenError::Refused));
    assert_eq!(known(&memory, digest(1), now), None);
}

#[test]
fn a_doubted_token_is_forgotten_and_its_successor_is_not() {
    let (memory, now) = (Arc::<Memory>::default(), Clock.instant());
    let until = Some(now + Duration::from_secs(9));
    begin(&memory, digest(1), now).finish(Ok((token("a"), until)));
    let Found::Issued(first) = memory.find(digest(1), "agent".into(), now) else {
        panic!("issued")
    };
    memory.forget(&first);
    assert_eq!(known(&memory, digest(1), now), None);
    begin(&memory, digest(1), now).finish(Ok((token("b"), until)));
    memory.forget(&first);
    assert_eq!(known(&memory, digest(1), now).unwrap(), "b");
}

#[test]
fn memory_is_bounded() {
    let (memory, now) = (Arc::<Memory>::default(), Clock.instant());
    let until = |number: usize| Some(now + Duration::from_millis(1000 + number as u64));
    for number in 0..10_100 {
        begin(&memory, digest(number), now).finish(Ok((token("a"), until(number))));
    }
    let left = (0..10_100).filter(|number| known(&memory, digest(*number), now).is_some());
    let left: Vec<_> = left.collect();
    assert_eq!((left.len(), left[0]), (10_000, 100));
}

#[tokio::test]
async fn exchanges_at_once_are_bounded_and_a_place_that_is_given_up_is_free() {
    let (memory, now) = (Arc::<Memory>::default(), Clock.instant());
    let find = |number: usize, caller: usize| {
        memory.find(digest(number), format!("agent-{caller}").into(), now)
    };
    let begun = |number: usize, caller: usize| match find(number, caller) {
        Found::Nothing(place, _) => Some(place),
        Found::Full => None,
        Found::Issued(_) | Found::Coming(_) => panic!("there is something"),
    };
    // One caller has a quarter of the places, and waits for what others have begun all the same.
    let mut places: Vec<_> = (0..64).map(|number| begun(number, 0).unwrap()).collect();
    assert!(begun(64, 0).is_none());
    places.extend((64..256).map(|number| begun(number, number / 64).unwrap()));
    assert!(begun(256, 4).is_none());
    let Found::Coming(waiting) = find(255, 0) else { panic!("under way") };
    drop(places.pop());
    assert_eq!(waiting.outcome().await.err(), Some(TokenError::Unavailable));
    assert!(begun(256, 0).is_none());
    places.push(begun(256, 4).unwrap());
    drop(places.remove(0));
    places.push(begun(0, 0).unwrap());
    assert!(begun(257, 5).is_none());
    drop(places);
    drop((0..64).map(|number| begun(number, 0).unwrap()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_told_of_a_failure_can_begin_anew() {
    let (memory, now) = (Arc::<Memory>::default(), Clock.instant());
    for _ in 0..2000 {
        let place = begin(&memory, digest(1), now);
        let Found::Coming(waiting) = memory.find(digest(1), "agent".into(), now) else {
            panic!("under way")
        };
        let again = Arc::clone(&memory);
        let told = tokio::spawn(async move {
            assert_eq!(waiting.outcome().await.err(), Some(TokenError::Refused));
            drop(begin(&again, digest(1), now));
        });
        tokio::task::yield_now().await;
        place.finish(Err(TokenError::Refused));
        told.await.expect("it begins");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    /// Whatever a service calls a token, what is sent is one header with one token, or nothing.
    #[test]
    fn an_issued_token_is_one_bearer_token(text in "\\PC{0,24}|[a-zA-Z0-9._~+/=-]{1,24}") {
        let document = serde_json::json!({
            "access_token": text, "token_type": "Bearer", "expires_in": 60,
            "issued_token_type": answer::ACCESS_TOKEN,
        });
        match answer::issued(document.to_string().as_bytes()) {
            Ok(issued) => {
                let sent = issued.token.expose().to_str().expect("text");
                prop_assert_eq!(sent, format!("Bearer {text}"));
                prop_assert!(UserToken::new(&text).is_some());
            }
            Err(error) => {
                prop_assert_eq!(error, Unreadable::Token);
                prop_assert!(UserToken::new(&text).is_none());
            }
        }
    }
}

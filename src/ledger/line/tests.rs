use proptest::{collection::vec, option, prelude::*};
use serde_json::Value;

use super::*;
use crate::ledger::{Behalf, Decision, Event, Mode, Revocation, check::split};

const CHAIN: &str = "spiffe://td/agent#0193";

fn line(body: &Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut tip = Tip::GENESIS;
    tip.extend(CHAIN, Stamp::from_micros(1), body, &mut bytes).expect("written");
    assert_eq!(bytes.pop(), Some(b'\n'));
    bytes
}

fn canonical(body: &Body) -> Vec<u8> {
    split(&line(body)).expect("a line").0.to_vec()
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![any::<String>(), "[a-z/:]{0,300}", "[\\\\{}u\u{0}-\u{20}\u{2028}é]{0,80}"]
        .prop_map(Arc::from)
}

fn entries() -> impl Strategy<Value = Entry> {
    let who = (any::<u128>(), text(), text(), option::of(text()), option::of(text()));
    let what = (option::of(text()), vec(text(), 0..40), option::of(text()), any::<bool>());
    let how = (
        option::of(any::<u16>()),
        option::of(any::<u64>()),
        option::of(any::<[u8; 32]>()),
        option::of(any::<bool>()),
        0..3_u8,
    );
    (who, what, how).prop_map(|(who, what, how)| {
        let event = match how.4 {
            0 => Event::Intent,
            1 => Event::Outcome,
            _ => Event::Denied,
        };
        let mut entry = Entry::new(event, Uuid::from_u128(who.0), who.1, who.2);
        (entry.server, entry.method) = (who.3, who.4);
        (entry.target, entry.policies, entry.policy_version) = (what.0, what.1, what.2);
        if what.3 {
            entry.cause = Some(Uuid::from_u128(!who.0));
            (entry.mode, entry.decision) = (Mode::Shadow, Decision::Permit);
            (entry.era, entry.class, entry.stage) = (Some("modern"), Some("write"), Some("policy"));
            (entry.status, entry.would_deny) = (Some("ok"), Some("policy_denied"));
            entry.limits = vec![Arc::clone(&entry.peer)];
            entry.limits_mode = Some("local");
            entry.peer_denied = Some("delegation_denied".into());
            entry.revocation = Some(Uuid::from_u128(who.0));
            entry.behalf = Some(Box::new(Behalf {
                link: Some("handle"),
                hops: how.1,
                root: Some(Arc::clone(&entry.peer)),
                user: Some("u".into()),
                tenant: Some("t".into()),
                run: Some(Uuid::from_u128(who.0)),
                peer_call: Some(Uuid::from_u128(who.0)),
                objection: how.1.map(|hop| (hop, Arc::clone(&entry.peer))),
            }));
        }
        (entry.http_status, entry.latency_us, entry.own_us) = (how.0, how.1, how.1);
        (entry.req_sha256, entry.resp_sha256) = (how.2, how.2);
        (entry.resp_bytes, entry.complete) = (how.1, how.3);
        entry
    })
}

fn bodies() -> impl Strategy<Value = Body> {
    prop_oneof![
        8 => entries().prop_map(Body::Call),
        1 => (text(), option::of(any::<[u8; 32]>())).prop_map(|(policy_version, config_sha256)| {
            Body::Config { policy_version, config_sha256 }
        }),
        1 => (text(), text(), any::<bool>(), option::of(any::<u64>())).prop_map(
            |(value, reason, lifted, until)| {
                let (value, reason) = (value.as_ref().into(), reason.as_ref().into());
                let (id, what, by) = (Uuid::from_u128(7), "user", "ops".into());
                Body::Revocation(Box::new(Revocation { id, lifted, what, value, reason, by, until }))
            }
        ),
        1 => text().prop_map(|id| Body::Recovered { call_id: id.to_string() }),
        1 => (any::<String>(), any::<u64>(), any::<[u8; 32]>())
            .prop_map(|(file, bytes, sha256)| Body::Torn { file, bytes, sha256 }),
        1 => (text(), 1..1_000_000_u64, any::<bool>()).prop_map(|(chain, entries, settled)| {
            let previous = Previous { chain: chain.to_string(), entries, head: "ab".repeat(32) };
            if settled { Body::Settled { previous } } else { Body::Replaced { previous } }
        }),
        1 => any::<u64>().prop_map(|count| Body::Gap { count, first: Stamp::from_micros(count) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_canonical(body in bodies()) {
        let written = canonical(&body);
        let value: Value = serde_json::from_slice(&written).expect("JSON");
        let again = serde_json_canonicalizer::to_vec(&value).expect("canonical");
        prop_assert_eq!(String::from_utf8(written), String::from_utf8(again));
        let object = value.as_object().expect("object");
        prop_assert!(!object.values().any(|value| value.is_null() || value.is_f64()));
        let integers = object.values().filter_map(Value::as_u64);
        prop_assert!(integers.max() < Some(1 << 53));
    }

    #[test]
    fn different_texts_stay_different(a in "[\\\\{}u0-9a-f é\u{430}]{0,12}", b in "[\\\\{}u0-9a-f é\u{430}]{0,12}") {
        prop_assert_eq!(a == b, escape(&a, 1000) == escape(&b, 1000));
    }

    #[test]
    fn what_was_stored_can_be_read_back(text in "\\PC{0,40}|[\\\\{}u0-9a-f cut\u{0}é\u{430}]{0,60}") {
        prop_assert_eq!(unescape(&escape(&text, 1000)), (text.clone(), true));
        let (kept, whole) = unescape(&escape(&text, 16));
        prop_assert!(text.starts_with(&kept));
        prop_assert_eq!(whole, kept == text);
    }

    #[test]
    fn no_text_outgrows_its_limit(text in any::<String>(), limit in 16..200_usize) {
        let escaped = escape(&text, limit);
        prop_assert!(escaped.len() <= limit);
        prop_assert!(escaped.bytes().all(|byte| byte.is_ascii_graphic()));
    }
}

#[test]
fn plain_characters_are_those_of_uris() {
    let marks = b"-._~:/?#[]@!$&'()*+,;=%";
    for byte in 0..=255_u8 {
        assert_eq!(plain(byte), byte.is_ascii_alphanumeric() || marks.contains(&byte), "{byte}");
    }
}

#[test]
fn escapes() {
    let long = "a".repeat(129);
    let full = "a".repeat(128);
    let cut = format!("{}\\cut", "a".repeat(124));
    let boundary = format!("{}é", "a".repeat(123));
    let boundary_cut = format!("{}\\cut", "a".repeat(123));
    for (text, escaped) in [
        ("", ""),
        ("files/read_file", "files/read_file"),
        ("file:///a%20b?x=[1]&y='2'", "file:///a%20b?x=[1]&y='2'"),
        ("pay pal", "pay\\u{20}pal"),
        ("p\u{430}ypal", "p\\u{430}ypal"),
        ("e\u{301}", "e\\u{301}"),
        ("a\\u{430}", "a\\u{5c}u\\u{7b}430\\u{7d}"),
        ("\u{202e}\n\0", "\\u{202e}\\u{a}\\u{0}"),
        (long.as_str(), cut.as_str()),
        (full.as_str(), full.as_str()),
        (boundary.as_str(), boundary_cut.as_str()),
    ] {
        assert_eq!(escape(text, 128), escaped, "{text:?}");
    }
}

/// The format is a promise: this line must not change while `v` is 1.
#[test]
fn an_outcome_looks_like_this() {
    let id = Uuid::from_u128(0x0193_5b3e_0000_7000_8000_0000_0000_0001);
    let mut entry = Entry::new(Event::Outcome, id, "spiffe://td/a".into(), "inbound".into());
    (entry.method, entry.target) = (Some("tools/call".into()), Some("read file".into()));
    (entry.decision, entry.status) = (Decision::Permit, Some("ok"));
    (entry.policies, entry.latency_us) = (vec!["reads".into()], Some(1234));
    entry.req_sha256 = Some([0xab; 32]);
    entry.complete = Some(true);
    let json = format!(
        concat!(
            r#"{{"call_id":"01935b3e-0000-7000-8000-000000000001","#,
            r#""chain":"spiffe://td/agent#0193","complete":true,"decision":"permit","#,
            r#""direction":"inbound","kind":"outcome","latency_us":1234,"listener":"inbound","#,
            r#""method":"tools/call","mode":"enforce","peer":"spiffe://td/a","#,
            r#""policies":["reads"],"protocol":"mcp","req_sha256":"{}","seq":0,"status":"ok","#,
            r#""target":"read\\u{{20}}file","ts":"1970-01-01T00:00:00.000001Z","v":1}}"#
        ),
        "ab".repeat(32)
    );
    let mut hashed = vec![0; 32];
    hashed.extend_from_slice(json.as_bytes());
    let hash = HEXLOWER.encode(&Sha256::digest(&hashed));
    assert_eq!(String::from_utf8(line(&Body::Call(entry))), Ok(format!("{json}\t{hash}")));
}

#[test]
fn time_does_not_run_backwards() {
    let mut tip = Tip::GENESIS;
    let mut bytes = Vec::new();
    let body = Body::Gap { count: 0, first: Stamp::EPOCH };
    for micros in [5, 3, 7] {
        tip.extend(CHAIN, Stamp::from_micros(micros), &body, &mut bytes).expect("written");
    }
    let times: Vec<String> = bytes
        .split(|byte| *byte == b'\n')
        .filter_map(split)
        .map(|(json, _)| serde_json::from_slice::<Value>(json).expect("JSON")["ts"].to_string())
        .collect();
    let expected = [5, 5, 7].map(|micros| format!("\"{}\"", Stamp::from_micros(micros)));
    assert_eq!(times, expected);
}

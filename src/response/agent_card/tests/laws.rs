//! Laws, on cards made of parts that fit and parts that don't.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::Value;

use crate::protocol::json::{Limits, scan};

use super::{Demands, Error, PUBLIC, rewritten, settings};

const URLS: &[&str] = &[
    "http://127.0.0.1:9000/in/agent",
    "http://localhost:9000/in/agent/",
    "http://127.0.0.1:9000/in/agent?key=1",
    "http://127.0.0.1:9000/elsewhere",
    "http://10.1.2.3:9000/in/agent",
    "https://evil.example/out/agent",
    "127.0.0.1:9000",
    PUBLIC,
];
const BINDINGS: &[&str] = &["JSONRPC", "HTTP+JSON", "GRPC", "X", ""];

fn interface(binding: &'static str) -> impl Strategy<Value = String> {
    let fields = (select(URLS), select(BINDINGS), any::<bool>(), any::<bool>());
    fields.prop_map(move |(url, value, first, tenant)| {
        let tenant = if tenant { r#","tenant":"t""# } else { "" };
        match first {
            true => format!(r#"{{"url":"{url}","{binding}":"{value}"{tenant}}}"#),
            false => format!(r#"{{ "{binding}" : "{value}"{tenant} ,"url": "{url}" }}"#),
        }
    })
}

fn list(name: &'static str, binding: &'static str) -> impl Strategy<Value = String> {
    vec(interface(binding), 0..4).prop_map(move |all| format!(r#""{name}":[{}]"#, all.join(", ")))
}

fn governed() -> impl Strategy<Value = String> {
    prop_oneof![
        select(URLS).prop_map(|url| format!(r#""url":"{url}""#)),
        select(BINDINGS).prop_map(|binding| format!(r#""preferredTransport":"{binding}""#)),
        list("additionalInterfaces", "transport"),
        list("supportedInterfaces", "protocolBinding"),
        list("supported_interfaces", "protocol_binding"),
        Just(r#""securitySchemes":{"a":{"type":"http"}}"#.to_owned()),
        Just(r#""security":[{"a":[]}]"#.to_owned()),
        Just(r#""securityRequirements":[{"schemes":{"a":{}}}]"#.to_owned()),
        Just(r#""signatures":[{"protected":"e30","signature":"AA"}]"#.to_owned()),
        Just(r#""protocolVersion":"0.2.6""#.to_owned()),
        select(
            &["url", "preferredTransport", "preferred_transport", "signatures", "securitySchemes"]
                [..]
        )
        .prop_map(|name| format!(r#""{name}":null"#)),
        Just(r#""protocolVersion":"0.3.0""#.to_owned()),
    ]
}

fn free() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#""documentationUrl":"http://127.0.0.1:9000/in/agent""#.to_owned()),
        Just(r#""provider":{"url":"http://127.0.0.1:9000/in/agent"}"#.to_owned()),
        Just(r#""x":{"url":[1.50,"\u0041"],"transport":"GRPC"}"#.to_owned()),
        Just(r#""iconUrl": "http://10.1.2.3/""#.to_owned()),
    ]
}

/// Members in any order, one of a name.
fn members() -> impl Strategy<Value = Vec<String>> {
    let skills = select(&[r#""skills":[]"#, r#""skills":[{"id":"s","security":[{"a":[]}]}]"#]);
    let parts = (vec(governed(), 0..7), vec(free(), 0..3), skills);
    let parts = parts.prop_map(|(governed, free, skills)| {
        let mut all = [governed, free].concat();
        all.extend([r#""name":"a""#.to_owned(), skills.to_owned()]);
        all.sort();
        all.dedup_by_key(|member| name_of(member).to_owned());
        all
    });
    parts.prop_shuffle()
}

fn name_of(member: &str) -> &str {
    member.split('"').nth(1).unwrap_or_default()
}

/// Every address that some reader may call, read without any of our own code.
fn callable(card: &Value) -> Vec<&str> {
    let of = |value: &Value| -> Vec<String> {
        let lists = ["additionalInterfaces", "supportedInterfaces", "supported_interfaces"];
        let lists = lists.iter().filter_map(|name| value[*name].as_array()).flatten();
        lists.chain([value]).filter_map(|it| Some(it["url"].as_str()?.to_owned())).collect()
    };
    let all = of(card);
    all.into_iter().map(|url| if url == PUBLIC { PUBLIC } else { "elsewhere" }).collect()
}

proptest! {
    #[test]
    fn nothing_leads_round_us_and_twice_is_once(
        members in members(), mutual in any::<bool>(), space in select(&["", " ", "\n\t"]),
    ) {
        let sent = format!("{{{space}{}{space}}}", members.join(&format!("{space},{space}")));
        let demands = if mutual { Demands::MutualTls } else { Demands::Nothing };
        let settings = settings(demands);
        let now = match rewritten(&sent, &settings) {
            Ok(now) => now,
            Err(Error::Ambiguous(_)) => {
                let both = |one: &str, other: &str| sent.contains(one) && sent.contains(other);
                let supported = both("\"supportedInterfaces", "\"supported_");
                prop_assert!(supported || both("\"preferredTransport", "\"preferred_"));
                return Ok(());
            }
            Err(error) => {
                prop_assert_eq!(error, Error::NoInterface);
                return Ok(());
            }
        };
        let tree: Value = serde_json::from_str(&now).expect("JSON");
        let addresses = callable(&tree);
        prop_assert!(!addresses.is_empty(), "{}", now);
        prop_assert!(addresses.iter().all(|url| *url == PUBLIC), "{} -> {}", sent, now);
        prop_assert!(!now.contains("GRPC\"}]") , "{}", now);
        let transport = tree["preferredTransport"].as_str().or(tree["preferred_transport"].as_str());
        let transport = transport.unwrap_or("JSONRPC");
        prop_assert!(["JSONRPC", "HTTP+JSON"].contains(&transport), "{}", now);
        prop_assert!(now == sent || tree.get("signatures").is_none());
        prop_assert!(scan(now.as_bytes(), Limits::default()).is_ok(), "{}", now);
        prop_assert_eq!(&rewritten(&now, &settings).expect("a card"), &now);
        for free in members.iter().filter(|member| {
            ["documentationUrl", "provider", "x", "iconUrl", "name"].contains(&name_of(member))
        }) {
            prop_assert!(now.contains(free.as_str()), "{} lost {}", now, free);
        }
    }
}

//! Cards as they are found, each with what callers get; laws over cards that nobody would write.

mod laws;
mod signatures;

use bytes::Bytes;
use serde_json::Value;
use url::Url;

use super::{Demands, Error, Settings, rewrite, rewrite_result};

pub(super) const PUBLIC: &str = "https://side.example.org/out/agent";

const V0_2: &str = include_str!("tests/v0_2.json");
const V0_3: &str = include_str!("tests/v0_3.json");
const V1: &str = include_str!("tests/v1.json");
const DUAL: &str = include_str!("tests/dual.json");

fn settings(demands: Demands) -> Settings {
    let agent = Url::parse("http://127.0.0.1:9000/in/agent").expect("valid");
    Settings {
        public_url: Url::parse(PUBLIC).expect("valid"),
        json_rpc: vec![agent.clone()],
        rest: vec![agent],
        demands,
        keys: None,
        signer: None,
    }
}

fn rewritten(card: &str, settings: &Settings) -> Result<String, Error> {
    let card = rewrite(&Bytes::copy_from_slice(card.as_bytes()), settings)?;
    Ok(String::from_utf8(card.to_vec()).expect("text"))
}

/// The card as callers get it where nothing is demanded of them.
fn open(card: &str) -> Result<String, Error> {
    rewritten(card, &settings(Demands::Nothing))
}

/// A card with nothing but what is needed, and `members`.
fn card(members: &str) -> String {
    format!(r#"{{"name":"a","skills":[],{members}}}"#)
}

#[test]
fn cards_as_they_are_found() {
    let demands = [("nothing", Demands::Nothing), ("mutual TLS", Demands::MutualTls)];
    for (name, card) in [("v0_2", V0_2), ("v0_3", V0_3), ("v1", V1), ("dual", DUAL)] {
        for (label, demands) in demands {
            let now = rewritten(card, &settings(demands)).expect("a card");
            let file = format!("{name}.{}.json", label.replace(' ', "_"));
            let path = format!("{}/src/response/agent_card/tests", env!("CARGO_MANIFEST_DIR"));
            let expected = std::fs::read_to_string(format!("{path}/{file}")).unwrap_or_default();
            assert_eq!(now, expected, "{file}");
        }
    }
}

#[test]
fn every_address_leads_to_lictor_or_goes() {
    let moved = format!(r#"{{"url":"{PUBLIC}","transport":"JSONRPC"}}"#);
    for url in [
        "http://127.0.0.1:9000/in/agent",
        "http://127.0.0.1:9000/in/agent/",
        "http://127.0.0.1:9000/in/agent?key=1#x",
        "http://127.0.0.1:9000/out/../in/agent",
        "http://user:word@127.0.0.1:9000/in/agent",
        "HTTP://127.1:9000/in/agent",
        "http://0x7f000001:9000/in/agent",
        "http://localhost:9000/in/agent",
        "http://0.0.0.0:9000/in/agent",
        "http://[::1]:9000/in/agent",
        "http://[::]:9000/in/agent",
        " http://127.0.0.1:9000/in/agent\\n",
        "https://side.example.org/out/agent/",
        "https://user@side.example.org:443/out/agent?key=1",
    ] {
        let sent = card(&format!(
            r#""url":"https://x.example","preferredTransport":"X","additionalInterfaces":[{{"url":"{url}","transport":"JSONRPC"}}]"#
        ));
        let now = open(&sent).expect("a card");
        assert!(now.contains(&moved), "{url}: {now}");
        assert!(now.contains(&format!(r#""url":"{PUBLIC}","preferredTransport":"JSONRPC""#)));
    }
    for url in [
        "https://127.0.0.1:9000/in/agent",
        "http://127.0.0.1:9001/in/agent",
        "http://127.0.0.1/in/agent",
        "http://127.0.0.1:9000/",
        "http://127.0.0.1:9000/in/agent/2",
        "http://127.0.0.1:9000/out/agent",
        "http://127.0.0.1:9000@evil.example/in/agent",
        "http://127.0.0.1.evil.example:9000/in/agent",
        "http://10.0.0.1:9000/in/agent",
        "https://side.example.org/out/agent/2",
        "https://side.example.org/",
        "//127.0.0.1:9000/in/agent",
        "/in/agent",
        "127.0.0.1:9000",
        "",
    ] {
        let sent = card(&format!(
            r#""supportedInterfaces":[{{"url":"{url}","protocolBinding":"JSONRPC"}}]"#
        ));
        assert_eq!(open(&sent), Err(Error::NoInterface), "{url}");
    }
}

#[test]
fn bindings_that_the_route_does_not_carry_go() {
    let only_rest = Settings { json_rpc: Vec::new(), ..settings(Demands::Nothing) };
    let agent = "http://127.0.0.1:9000/in/agent";
    for (binding, open_is_fine, rest_is_fine) in [
        ("JSONRPC", true, false),
        ("HTTP+JSON", true, true),
        ("GRPC", false, false),
        ("jsonrpc", false, false),
        ("JSONRPC ", false, false),
        ("WEBSOCKET", false, false),
        ("", false, false),
    ] {
        for members in [
            format!(r#""url":"{agent}","preferredTransport":"{binding}""#),
            format!(r#""supportedInterfaces":[{{"url":"{agent}","protocolBinding":"{binding}"}}]"#),
            format!(r#""additional_interfaces":[{{"url":"{agent}","transport":"{binding}"}}]"#),
        ] {
            assert_eq!(open(&card(&members)).is_ok(), open_is_fine, "{members}");
            assert_eq!(rewritten(&card(&members), &only_rest).is_ok(), rest_is_fine, "{members}");
        }
    }
    // JSON-RPC is what no preference means.
    let members = format!(
        r#""url":"{agent}","additionalInterfaces":[{{"url":"{agent}","transport":"HTTP+JSON"}}]"#
    );
    let now = rewritten(&card(&members), &only_rest).expect("a card");
    assert!(now.starts_with(r#"{"name":"a","preferredTransport":"HTTP+JSON","#), "{now}");
}

/// A second member of the name would be for each reader to choose from.
#[test]
fn null_is_replaced_where_it_stands() {
    let members = format!(
        r#""preferredTransport":null,"securitySchemes":null,"signatures":null,"url":"x","additionalInterfaces":[{{"url":"{PUBLIC}","transport":"JSONRPC"}}],"protocolVersion":"0.3.0""#
    );
    let now = rewritten(&card(&members), &settings(Demands::MutualTls)).expect("a card");
    assert_eq!(now.matches("preferredTransport").count(), 1, "{now}");
    assert_eq!(now.matches("securitySchemes").count(), 1, "{now}");
    assert!(now.contains(r#""preferredTransport":"JSONRPC""#) && !now.contains("null"), "{now}");
}

#[test]
fn an_interface_without_address_or_binding_goes() {
    let agent = "http://127.0.0.1:9000/in/agent";
    for interface in [
        r#"{"protocolBinding":"JSONRPC"}"#.to_owned(),
        r#"{"url":null,"protocolBinding":"JSONRPC"}"#.to_owned(),
        r#"{"url":7,"protocolBinding":"JSONRPC"}"#.to_owned(),
        format!(r#"{{"url":"{agent}"}}"#),
        format!(r#"{{"url":"{agent}","transport":"JSONRPC"}}"#),
        format!(r#"{{"url":"{agent}","protocolBinding":["JSONRPC"]}}"#),
    ] {
        let sent = card(&format!(r#""supportedInterfaces":[{interface}]"#));
        assert_eq!(open(&sent), Err(Error::NoInterface), "{interface}");
    }
}

#[test]
fn interfaces_that_are_one_now_are_told_once() {
    let agent = |host: &str, more: &str| {
        format!(
            r#"{{"url":"http://{host}:9000/in/agent","protocolBinding":"JSONRPC","protocolVersion":"1.0"{more}}}"#
        )
    };
    let list = [
        agent("127.0.0.1", ""),
        agent("localhost", ""),
        agent("localhost", r#","tenant":"acme""#),
        agent("0.0.0.0", ""),
    ];
    let now = open(&card(&format!(r#""supportedInterfaces":[{}]"#, list.join(",")))).expect("ok");
    let now: Value = serde_json::from_str(&now).expect("JSON");
    let interfaces = now["supportedInterfaces"].as_array().expect("array");
    assert_eq!(interfaces.len(), 2);
    assert_eq!(interfaces[1]["tenant"], "acme");
}

#[test]
fn a_bare_origin_has_no_slash_for_paths_to_be_doubled_by() {
    let root = Url::parse("https://side.example.org/").expect("valid");
    let settings = Settings { public_url: root, ..settings(Demands::Nothing) };
    let sent = card(r#""url":"http://127.0.0.1:9000/in/agent""#);
    let now = rewritten(&sent, &settings).expect("a card");
    assert!(now.contains(r#""url":"https://side.example.org""#), "{now}");
    assert_eq!(rewritten(&now, &settings).expect("a card"), now);
}

#[test]
fn a_card_that_needs_no_change_keeps_its_bytes_and_signatures() {
    for sent in [
        card(&format!(r#" "url" : "{PUBLIC}" , "signatures":[{{"protected":"a"}}]"#)),
        card(r#""url":"HTTPS://SIDE.example.org:443/out/agent","security":[]"#),
        card(&format!(
            r#""supportedInterfaces":[{{"url":"{PUBLIC}","protocolBinding":"JSONRPC"}}],"signatures":[]"#
        )),
    ] {
        assert_eq!(open(&sent).expect("a card"), sent);
    }
}

#[test]
fn a_card_that_readers_understand_differently_is_refused() {
    let fine = format!(r#""url":"{PUBLIC}""#);
    for members in [
        r#""Url":"http://evil.example""#,
        r#""URL":"http://evil.example""#,
        r#""supported_Interfaces":[]"#,
        r#""SupportedInterfaces":[]"#,
        r#""\u0073upportedinterfaces":[]"#,
        r#""\u017fupportedInterfaces":[]"#,
        r#""url\u0000":"http://evil.example""#,
        r#""supportedInterfaces":[],"supported_interfaces":[]"#,
        r#""supportedInterfaces":null,"supported_interfaces":[]"#,
        r#""securitySchemes":{},"security_schemes":{}"#,
        r#""additionalInterfaces":[{"url":"x","URL":"y","transport":"JSONRPC"}]"#,
        r#""supportedInterfaces":[{"url":"x","protocolBinding":"X","protocol_binding":"JSONRPC"}]"#,
    ] {
        let sent = card(&format!("{fine},{members}"));
        assert!(matches!(open(&sent), Err(Error::Ambiguous(_))), "{members}: {:?}", open(&sent));
    }
    for (members, wanted) in [
        (r#""supportedInterfaces":{}"#, Error::Malformed("supportedInterfaces")),
        (r#""supported_interfaces":["x"]"#, Error::Malformed("supported_interfaces")),
        (r#""additionalInterfaces":"x""#, Error::Malformed("additionalInterfaces")),
        (r#""preferredTransport":{}"#, Error::Malformed("preferredTransport")),
    ] {
        assert_eq!(open(&card(&format!("{fine},{members}"))), Err(wanted), "{members}");
    }
}

#[test]
fn a_card_has_a_name_and_skills() {
    let url = format!(r#""url":"{PUBLIC}""#);
    for (sent, wanted) in [
        (format!(r#"{{"skills":[],{url}}}"#), Error::Malformed("name")),
        (format!(r#"{{"name":7,"skills":[],{url}}}"#), Error::Malformed("name")),
        (format!(r#"{{"name":" ","skills":[],{url}}}"#), Error::Malformed("name")),
        (format!(r#"{{"name":"a",{url}}}"#), Error::Malformed("skills")),
        (format!(r#"{{"name":"a","skills":{{}},{url}}}"#), Error::Malformed("skills")),
        (format!(r#"{{"name":"a","skills":["b"],{url}}}"#), Error::Malformed("skills")),
        ("[]".to_owned(), Error::Malformed("name")),
        (card(r#""x":1"#), Error::NoInterface),
    ] {
        assert_eq!(open(&sent), Err(wanted), "{sent}");
    }
    for sent in ["", "{", "<html>", r#"{"name":"a","name":"b"}"#, "\u{feff}{}"] {
        assert!(matches!(open(sent), Err(Error::Json(_))), "{sent}");
    }
    let long = card(&format!(r#""x":"{}""#, "x".repeat(super::MAX_CARD)));
    assert_eq!(open(&long), Err(Error::TooLong));
}

#[test]
fn the_card_in_an_answer_is_rewritten_where_it_stands() {
    let settings = settings(Demands::Nothing);
    let sent = card(r#""url":"http://127.0.0.1:9000/in/agent""#);
    let answer = format!(r#"{{"jsonrpc":"2.0", "id":"7","result": {sent} }}"#);
    let now = rewrite_result(&answer.into(), &settings).expect("an answer");
    let moved = card(&format!(r#""url":"{PUBLIC}""#));
    assert_eq!(now, format!(r#"{{"jsonrpc":"2.0", "id":"7","result": {moved} }}"#));
    let error = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32007}}"#);
    assert_eq!(rewrite_result(&error, &settings).expect("an answer"), error);
    let foreign = Bytes::from_static(br#"{"result":{"name":"a","skills":[],"url":"http://x"}}"#);
    assert_eq!(rewrite_result(&foreign, &settings), Err(Error::NoInterface));
    assert!(rewrite_result(&Bytes::from_static(br#"{"result":7}"#), &settings).is_err());
}

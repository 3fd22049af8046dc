use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod};
use proptest::prelude::*;

use super::{LEGACY_VERSIONS, decode};
use crate::protocol::{
    Call, DecodeError, Era, Fault, Kind, Method, Target,
    method::{Governs, METHODS},
};

mod headers;
mod legacy;
mod modern;

const JSON: (&str, &str) = ("content-type", "application/json");

/// `_meta` with everything that a modern request needs.
const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}"#
);

fn map(headers: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().expect("header name");
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("header value"));
    }
    map
}

fn post_with(headers: &[(&str, &str)], body: &str) -> Result<Call, DecodeError> {
    decode(&HttpMethod::POST, &map(headers), Bytes::copy_from_slice(body.as_bytes()))
}

/// A legacy request with this `params` text.
fn legacy(method: &str, params: &str) -> Result<Call, DecodeError> {
    post_with(&[JSON], &request(method, params))
}

/// A modern request with this `params` text (without `_meta`) and correct headers.
fn modern(method: &str, params: &str, name: Option<&str>) -> Result<Call, DecodeError> {
    let mut headers = vec![JSON, ("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    headers.extend(name.map(|name| ("mcp-name", name)));
    post_with(&headers, &modern_request(method, params))
}

fn modern_request(method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    request(method, &format!("{{{params}{comma}{META}}}"))
}

fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
}

fn fault_of(outcome: Result<Call, DecodeError>) -> (Fault, Era, Option<String>) {
    let error = outcome.expect_err("refused");
    (error.fault, error.era, error.id.map(|id| id.as_json().to_owned()))
}

fn seven() -> Option<String> {
    Some("7".to_owned())
}

/// Parameters that say what each kind of method touches, and the value that `Mcp-Name` mirrors.
fn sample(governs: Governs) -> (&'static str, Option<&'static str>, Vec<Target>) {
    match governs {
        Governs::Server | Governs::Message => ("", None, vec![Target::Server]),
        Governs::Caller => ("", None, vec![Target::Caller]),
        Governs::Tool => {
            (r#""name":"t","arguments":{"a":1}"#, Some("t"), vec![Target::Tool("t".into())])
        }
        Governs::Prompt => (r#""name":"p""#, Some("p"), vec![Target::Prompt("p".into())]),
        Governs::Resource => {
            (r#""uri":"file:///r""#, Some("file:///r"), vec![Target::Resource("file:///r".into())])
        }
        Governs::Task => (r#""taskId":"k""#, Some("k"), vec![Target::Task("k".into())]),
        Governs::Reference => (
            r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}"#,
            None,
            vec![Target::Prompt("p".into())],
        ),
        Governs::Subscriptions => (
            r#""notifications":{"resourceSubscriptions":["r1","r2"],"taskIds":["k"]}"#,
            None,
            vec![
                Target::Resource("r1".into()),
                Target::Resource("r2".into()),
                Target::Task("k".into()),
            ],
        ),
    }
}

#[test]
fn every_method_is_decoded_in_its_eras_only() {
    for rule in METHODS {
        let (params, name, targets) = sample(rule.governs);
        let outcomes = if rule.notification {
            let text = |params: &str| {
                format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{{{params}}}}}"#, rule.name)
            };
            let headers = [JSON, ("mcp-protocol-version", "2026-07-28")];
            [
                (post_with(&[JSON], &text(params)), rule.exists_in(Era::Legacy)),
                (post_with(&headers, &text(params)), rule.exists_in(Era::Modern)),
            ]
        } else {
            [
                (legacy(rule.name, &format!("{{{params}}}")), rule.exists_in(Era::Legacy)),
                (modern(rule.name, params, name), rule.exists_in(Era::Modern)),
            ]
        };
        for ((outcome, exists), era) in outcomes.into_iter().zip([Era::Legacy, Era::Modern]) {
            let id = (!rule.notification).then(seven).flatten();
            if !exists {
                assert_eq!(fault_of(outcome), (Fault::UnknownMethod, era, id), "{}", rule.name);
                continue;
            }
            let call = outcome.expect(rule.name);
            assert_eq!(call.era, era);
            assert_eq!(call.method, Method::Known(rule));
            assert_eq!(call.targets, targets, "{}", rule.name);
            assert_eq!(call.id().map(|id| id.as_json().to_owned()), id);
        }
    }
}

#[test]
fn a_target_that_is_missing_or_garbled_is_refused() {
    for (method, name, params) in [
        ("tools/call", None, r#""arguments":{}"#),
        ("tools/call", None, r#""name":5"#),
        ("tools/call", None, r#""name":null"#),
        ("tools/call", Some("t"), r#""name":"t","arguments":[]"#),
        ("tools/call", Some("t"), r#""name":"t","arguments":null"#),
        ("tools/call", Some("t"), r#""name":"t","arguments":"{}""#),
        ("prompts/get", None, r#""arguments":{}"#),
        ("prompts/get", Some("p"), r#""name":"p","arguments":1"#),
        ("resources/read", None, ""),
        ("resources/read", None, r#""uri":["a"]"#),
        ("tasks/get", None, r#""taskId":1"#),
        ("completion/complete", None, ""),
        ("completion/complete", None, r#""ref":"x""#),
        ("completion/complete", None, r#""ref":{"type":"ref/prompt"}"#),
        ("completion/complete", None, r#""ref":{"type":"ref/resource","name":"a"}"#),
        ("completion/complete", None, r#""ref":{"type":"ref/tool","name":"a"}"#),
        ("completion/complete", None, r#""ref":{"name":"a"}"#),
    ] {
        let outcome = legacy(method, &format!("{{{params}}}"));
        assert_eq!(fault_of(outcome), (Fault::Params, Era::Legacy, seven()), "{method} {params}");
        let outcome = modern(method, params, name);
        assert_eq!(fault_of(outcome), (Fault::Params, Era::Modern, seven()), "{method} {params}");
    }
    assert_eq!(
        fault_of(post_with(&[JSON], r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#)),
        (Fault::Params, Era::Legacy, seven())
    );
}

#[test]
fn subscriptions_name_each_target() {
    let resource = |uri: &str| Target::Resource(uri.into());
    let many = |count: usize| {
        let uris: Vec<_> = (0..count).map(|uri| format!("\"r{uri}\"")).collect();
        format!(r#""notifications":{{"resourceSubscriptions":[{}]}}"#, uris.join(","))
    };
    for (notifications, expected) in [
        ("{}", vec![Target::Server]),
        (r#"{"toolsListChanged":true}"#, vec![Target::Server]),
        (r#"{"resourceSubscriptions":[],"taskIds":[]}"#, vec![Target::Server]),
        (r#"{"resourceSubscriptions":["a"]}"#, vec![resource("a")]),
        (r#"{"resourceSubscriptions":["a"],"toolsListChanged":false}"#, vec![resource("a")]),
        (
            r#"{"toolsListChanged":true,"resourceSubscriptions":["a","b"]}"#,
            vec![resource("a"), resource("b"), Target::Server],
        ),
        (r#"{"resourceSubscriptions":["a"],"x":1}"#, vec![resource("a"), Target::Server]),
    ] {
        let params = format!(r#""notifications":{notifications}"#);
        let call = modern("subscriptions/listen", &params, None).expect(notifications);
        assert_eq!(call.targets, expected, "{notifications}");
    }
    for params in [
        "",
        r#""notifications":[]"#,
        r#""notifications":{"resourceSubscriptions":"a"}"#,
        r#""notifications":{"resourceSubscriptions":[1]}"#,
        r#""notifications":{"taskIds":{}}"#,
        &many(257),
    ] {
        let outcome = modern("subscriptions/listen", params, None);
        assert_eq!(fault_of(outcome).0, Fault::Params, "{params}");
    }
    let call = modern("subscriptions/listen", &many(256), None).expect("256");
    assert_eq!(call.targets.len(), 256);
}

#[test]
fn variants_of_governed_names_are_refused() {
    for params in [
        r#"{"name":"echo","Name":"wipe"}"#,
        r#"{"Name":"wipe"}"#,
        r#"{"name":"echo","name\u0000":"wipe"}"#,
        r#"{"name":"echo","n\u0041me":"wipe"}"#,
        r#"{"name":"echo","na\u200bme":"wipe"}"#,
        r#"{"name":"echo","argument\u017f":{}}"#,
        r#"{"name":"echo","Arguments":{}}"#,
        r#"{"name":"echo","tas\u212aid":"x"}"#,
        r#"{"name":"echo","_META":{}}"#,
        r#"{"name":"echo","_meta":{"ProgressToken":1}}"#,
        r#"{"name":"echo","_meta":{"io.modelcontextprotocol/ProtocolVersion":"2026-07-28"}}"#,
        r#"{"name":"echo","_meta":{"io.modelcontextprotocol/protocolVer\u017fion":""}}"#,
    ] {
        let outcome = legacy("tools/call", params);
        assert_eq!(fault_of(outcome), (Fault::Invalid, Era::Legacy, seven()), "{params}");
    }
    for (method, params) in [
        ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"a","Name":"b"}}"#),
        ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"a","URI":"b"}}"#),
        ("vendor/method", r#"{"URI":"b"}"#),
    ] {
        assert_eq!(fault_of(legacy(method, params)).0, Fault::Invalid, "{params}");
    }
    let listen = r#""notifications":{"resourcesubscriptions":["a"]}"#;
    assert_eq!(fault_of(modern("subscriptions/listen", listen, None)).0, Fault::Invalid);
}

#[test]
fn arguments_are_the_callers_own() {
    let arguments = concat!(
        r#"{ "Name":1, "n":9223372036854775807, "m":12345678901234567890123,"#,
        r#" "f":1.0,"e":1E400, "z":-0.0,"__entity":{"type":"Agent","id":"admin"},"x":null}"#
    );
    let params = format!(r#"{{"name":"lookup","arguments":{arguments}}}"#);
    let call = legacy("tools/call", &params).expect("free arguments");
    assert_eq!(call.arguments(), Some(arguments.as_bytes()));
    let tokens: Vec<_> = call
        .arguments_value()
        .expect("arguments")
        .members()
        .filter_map(|member| member.value.as_number())
        .collect();
    let expected = ["1", "9223372036854775807", "12345678901234567890123", "1.0", "1E400", "-0.0"];
    assert_eq!(tokens, expected);
    assert_eq!(legacy("tools/call", r#"{"name":"t"}"#).expect("none").arguments(), None);
}

#[test]
fn duplicate_keys_are_refused() {
    for body in [
        request("tools/call", r#"{"name":"echo","arguments":{},"name":"wipe"}"#),
        request("tools/call", r#"{"name":"echo","na\u006de":"wipe"}"#),
        request("tools/call", r#"{"name":"echo","arguments":{"a":[{"b":1,"b":2}]}}"#),
        request("tools/call", r#"{"name":"echo","_meta":{"a":1,"a":2}}"#),
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.to_owned(),
    ] {
        assert_eq!(
            fault_of(post_with(&[JSON], &body)),
            (Fault::Invalid, Era::Legacy, None),
            "{body}"
        );
    }
}

#[test]
fn malformed_bodies_are_parse_errors() {
    for body in [
        "",
        " ",
        "{",
        "\u{feff}{}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x",
        "{\"jsonrpc\":\"2.0\",\"id\":NaN,\"method\":\"ping\"}",
        "id=1&method=ping",
    ] {
        let expected = (Fault::Parse, Era::Legacy, None);
        assert_eq!(fault_of(post_with(&[JSON], body)), expected, "{body}");
    }
    let body = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}");
    let outcome = decode(&HttpMethod::POST, &map(&[JSON]), body);
    assert_eq!(fault_of(outcome).0, Fault::Parse);
    let wide: Vec<u8> = request("ping", "{}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(fault_of(decode(&HttpMethod::POST, &map(&[JSON]), wide.into())).0, Fault::Parse);
}

#[test]
fn deep_nesting_and_lone_surrogates_are_refused() {
    let deep =
        format!(r#"{{"name":"t","arguments":{{"a":{}{}}}}}"#, "[".repeat(62), "]".repeat(62));
    assert_eq!(fault_of(legacy("tools/call", &deep)), (Fault::Invalid, Era::Legacy, None));
    let outcome = legacy("tools/call", r#"{"name":"\ud800"}"#);
    assert_eq!(fault_of(outcome), (Fault::Invalid, Era::Legacy, None));
}

#[test]
fn batches_are_refused_with_no_id() {
    let one = request("tools/call", r#"{"name":"wipe","arguments":{}}"#);
    for body in [format!("[{one}]"), "[]".to_owned(), format!("\n [{one},{one}]")] {
        for version in LEGACY_VERSIONS {
            let outcome = post_with(&[JSON, ("mcp-protocol-version", version)], &body);
            assert_eq!(fault_of(outcome), (Fault::Invalid, Era::Legacy, None), "{body}");
        }
    }
    assert_eq!(fault_of(post_with(&[JSON], "[{]")).0, Fault::Parse);
}

#[test]
fn names_are_taken_byte_for_byte() {
    for (literal, name) in [
        ("Wipe", "Wipe"),
        ("wipe ", "wipe "),
        (r"wipe\t", "wipe\t"),
        (r"wipe\u0000", "wipe\0"),
        (r"w\u0456pe", "w\u{456}pe"),
        (r"ec\u200bho", "ec\u{200b}ho"),
        ("\u{fb01}nd", "\u{fb01}nd"),
        ("cafe\u{301}", "cafe\u{301}"),
        (r"n\u0061me", "name"),
        ("", ""),
    ] {
        let call = legacy("tools/call", &format!(r#"{{"name":"{literal}"}}"#)).expect(literal);
        assert_eq!(call.targets, [Target::Tool(name.into())], "{literal}");
    }
}

#[test]
fn meta_is_untouched() {
    for token in ["0", r#""""#, "9223372036854775807", "1.0"] {
        let meta = format!(
            r#"{{"progressToken":{token},"traceparent":"00-x","vendor.example/x":{{"k":[1]}}}}"#
        );
        let params = format!(r#"{{"name":"t","_meta":{meta}}}"#);
        let call = legacy("tools/call", &params).expect(token);
        assert_eq!(call.body, request("tools/call", &params));
    }
    for meta in ["1", "null", "[]", "\"x\""] {
        let outcome = legacy("ping", &format!(r#"{{"_meta":{meta}}}"#));
        assert_eq!(fault_of(outcome).0, Fault::Params, "{meta}");
    }
}

#[test]
fn a_call_can_be_logged_without_its_body() {
    let params = r#"{"name":"t","arguments":{"password":"hunter2"}}"#;
    let headers = [JSON, ("mcp-session-id", "bearer-secret")];
    let call = post_with(&headers, &request("tools/call", params)).expect("call");
    let logged = format!("{call:?}");
    assert!(logged.contains("tools/call"), "{logged}");
    assert!(!logged.contains("hunter2") && !logged.contains("bearer-secret"), "{logged}");
}

#[test]
fn vendor_methods_are_named_and_touch_the_server() {
    for text in [
        request("vendor/do", r#"{"name":"x"}"#),
        r#"{"jsonrpc":"2.0","method":"notifications/vendor"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7,"method":"notifications/vendor"}"#.to_owned(),
        request("Tools/Call", r#"{"name":"x"}"#),
        request("tools/call ", "{}"),
        request(r"tools/call\u0000", "{}"),
    ] {
        let call = post_with(&[JSON], &text).expect(&text);
        assert!(matches!(call.method, Method::Vendor(_)), "{text}");
        assert_eq!(call.targets, [Target::Server]);
    }
    let call = post_with(&[JSON], &request(r"tools\/c\u0061ll", r#"{"name":"x"}"#)).expect("known");
    assert_eq!(call.targets, [Target::Tool("x".into())]);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        body: Vec<u8>,
        text in "\\PC{0,40}",
        method in "(POST|GET|DELETE|PUT|X)",
        headers in prop::collection::vec(
            (
                prop::sample::select(vec![
                    "content-type", "mcp-method", "mcp-name", "mcp-protocol-version",
                    "mcp-session-id", "content-encoding",
                ]),
                prop::sample::select(vec![
                    &b"application/json"[..], b"2026-07-28", b"2025-11-25", b"=?base64?",
                    b"=?base64??=",
                    b"=?base64?ZQ==?=", b"", b"\xff", b";charset=", b"tools/call",
                ]),
            ),
            0..5,
        ),
    ) {
        let mut map = map(&[JSON]);
        for (name, value) in headers {
            map.insert(name, HeaderValue::from_bytes(value).expect("header value"));
        }
        let method = method.parse().expect("method");
        for body in [body, text.clone().into_bytes(), request("tools/call", &text).into_bytes()] {
            drop(decode(&method, &map, body.into()));
        }
    }
}

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod};

use super::{Facts, decode};
use crate::protocol::{
    Call, DecodeError, Era, Fault, Kind, Method, Protocol, Target,
    method::{AGENT_METHODS, Governs, METHODS, SERVER_METHODS, operation},
};

mod forms;
mod laws;
mod messages;
mod rest;

const JSON: (&str, &str) = ("content-type", "application/json");

type Outcome = Result<Call, DecodeError>;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("value"));
    }
    headers
}

fn post(pairs: &[(&str, &str)], body: &str) -> Outcome {
    decode(&HttpMethod::POST, "", None, &headers(pairs), Bytes::copy_from_slice(body.as_bytes()))
}

fn call(method: &str, params: &str) -> Outcome {
    post(&[JSON], &text(method, params))
}

fn text(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
}

fn facts(call: &Call) -> &Facts {
    call.a2a.as_deref().expect("facts")
}

fn fault(outcome: Outcome) -> (Fault, Option<String>) {
    let error = outcome.expect_err("refused");
    (error.fault, error.id.map(|id| id.as_json().to_owned()))
}

fn task(id: &str) -> Target {
    Target::Task(id.into())
}

fn all(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

fn names<'a>(items: impl IntoIterator<Item = &'a Box<str>>) -> Vec<String> {
    items.into_iter().map(|item| item.to_string()).collect()
}

#[test]
fn the_table_is_sorted_and_two_names_are_one_action() {
    assert!(AGENT_METHODS.is_sorted_by(|left, right| left.name < right.name));
    for rule in AGENT_METHODS {
        assert_eq!(rule.eras.len(), 1, "{}", rule.name);
        assert_eq!(Method::of_agent(rule.name), Method::Known(rule));
        let Method::Known(named) = Method::named(rule.action) else { panic!("{}", rule.action) };
        assert_eq!(
            (named.action, named.class, named.governs),
            (rule.action, rule.class, rule.governs)
        );
        for other in METHODS.iter().chain(SERVER_METHODS) {
            assert_ne!(other.action, rule.action);
        }
    }
    assert_eq!(Method::named("GetAgentCard"), Method::Known(&operation::CARD));
    for (earlier, later) in [
        ("message/send", "SendMessage"),
        ("message/stream", "SendStreamingMessage"),
        ("tasks/get", "GetTask"),
        ("tasks/cancel", "CancelTask"),
        ("tasks/resubscribe", "SubscribeToTask"),
        ("tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig"),
        ("tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig"),
        ("tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigs"),
        ("tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig"),
        ("agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"),
    ] {
        assert_eq!(Method::of_agent(earlier).action(), later);
    }
}

/// Parameters that fit what a row governs, and the targets in them.
fn sample(name: &str, governs: Governs) -> (&'static str, Vec<Target>) {
    match (governs, name) {
        (Governs::Message, _) => {
            (r#"{"message":{"parts":[{"text":"hi"}],"taskId":"t"}}"#, vec![task("t")])
        }
        (Governs::Task, "tasks/pushNotificationConfig/set") => (
            r#"{"taskId":"t","pushNotificationConfig":{"id":"c","url":"https://a.example/"}}"#,
            vec![task("t")],
        ),
        (Governs::Task, "CreateTaskPushNotificationConfig") => {
            (r#"{"taskId":"t","id":"c","url":"https://a.example/"}"#, vec![task("t")])
        }
        (Governs::Task, name) if name.contains("TaskPush") => {
            (r#"{"taskId":"t","id":"c"}"#, vec![task("t")])
        }
        (Governs::Task, _) => (r#"{"id":"t","pushNotificationConfigId":"c"}"#, vec![task("t")]),
        _ => ("{}", vec![Target::Server]),
    }
}

#[test]
fn every_method_is_decoded_in_the_era_of_its_name() {
    for rule in AGENT_METHODS {
        let (params, targets) = sample(rule.name, rule.governs);
        let call = call(rule.name, params).expect(rule.name);
        assert_eq!(vec![call.era], rule.eras);
        assert_eq!(call.era.protocol(), Protocol::A2a);
        assert_eq!(call.method, Method::Known(rule));
        assert_eq!(call.targets, targets, "{}", rule.name);
        assert_eq!(call.id().map(|id| id.as_json()), Some("7"));
        assert_eq!((call.version.as_deref(), call.body), (None, text(rule.name, params).into()));
        let streams = ["SendStreamingMessage", "SubscribeToTask"].contains(&rule.action);
        let facts = call.a2a.expect("facts");
        assert_eq!((facts.traits.streaming, facts.rest), (streams, None), "{}", rule.name);
    }
}

#[test]
fn a_task_that_has_to_be_named_is_named() {
    for rule in AGENT_METHODS.iter().filter(|rule| rule.governs == Governs::Task) {
        for params in ["{}", r#"{"id":"","taskId":""}"#, r#"{"id":null}"#] {
            let refused = fault(call(rule.name, params));
            assert_eq!(refused, (Fault::Params, Some("7".into())), "{} {params}", rule.name);
        }
        for params in [r#"{"id":5,"taskId":5}"#, r#"{"id":{},"taskId":{}}"#] {
            assert_eq!(fault(call(rule.name, params)).0, Fault::Params, "{}", rule.name);
        }
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{}"}}"#, rule.name);
        assert_eq!(fault(post(&[JSON], &body)).0, Fault::Params, "{}", rule.name);
    }
    // Of the configuration, not of the task.
    for rule in AGENT_METHODS.iter().filter(|rule| rule.name.contains("TaskPush")) {
        let params = r#"{"id":"c","url":"https://a.example/"}"#;
        assert_eq!(fault(call(rule.name, params)).0, Fault::Params, "{}", rule.name);
    }
    assert_eq!(
        fault(call("tasks/pushNotificationConfig/set", r#"{"id":"t","url":"https://a.example/"}"#))
            .0,
        Fault::Params
    );
}

#[test]
fn malformed_messages_get_the_code_that_they_should() {
    for (body, expected, id) in [
        (r#"{"id":1,"method":"tasks/get"}"#, Fault::Invalid, Some("1")),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tasks/get"}"#, Fault::Invalid, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":"x"}"#, Fault::Params, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":[]}"#, Fault::Params, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, Fault::Invalid, Some("1")),
        ("{", Fault::Parse, None),
        ("", Fault::Parse, None),
        ("\u{feff}{}", Fault::Parse, None),
        // There are no notifications: agents run a call without an id.
        (r#"{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"t"}}"#, Fault::Invalid, None),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"tasks/get","params":{"id":"t"}}"#,
            Fault::Invalid,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"tasks/get","params":{"id":"t"}}"#,
            Fault::Invalid,
            None,
        ),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t"}}]"#,
            Fault::Invalid,
            None,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Fault::Invalid, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, Fault::Invalid, Some("1")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"tasks/get","params":{}}"#,
            Fault::Invalid,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","Params":{"id":"t"}}"#,
            Fault::Invalid,
            Some("1"),
        ),
    ] {
        let error = post(&[JSON], body).expect_err(body);
        let id_found = error.id.as_ref().map(|id| id.as_json());
        assert_eq!((error.fault, id_found), (expected, id), "{body}");
        assert!(!error.rest && !error.notification && error.era.protocol() == Protocol::A2a);
    }
}

#[test]
fn unknown_methods_are_nobodys() {
    for name in [
        "sendmessage",
        "Message/send",
        "message/Send",
        "tasks/send",
        "tasks/list",
        "tools/call",
        "",
    ] {
        let call = call(name, "{}").expect(name);
        assert_eq!(call.method, Method::Vendor(name.into()));
        assert_eq!((call.targets, call.era), (vec![Target::Server], Era::V03));
    }
    let call = post(&[JSON, ("a2a-version", "1.0")], &text("acme/do", "{}")).expect("decoded");
    assert_eq!(call.era, Era::V10);
}

#[test]
fn a_version_has_to_fit_the_name() {
    let (v03, v10) = (text("tasks/get", r#"{"id":"t"}"#), text("GetTask", r#"{"id":"t"}"#));
    for (version, earlier, later) in [
        ("", true, true),
        (" ", true, true),
        ("0.3", true, false),
        ("0.2.6", true, false),
        ("1.0", false, true),
        ("1", false, true),
        ("1.0.1", false, true),
        ("1.7", false, true),
        ("2.0", false, false),
        ("01.0", false, false),
        ("v1.0", false, false),
        ("1.0rc1", false, false),
        ("1.0.0.0", false, false),
        ("1..0", false, false),
        ("1.0 x", false, false),
        ("\u{b9}.0", false, false),
    ] {
        for (body, fits) in [(&v03, earlier), (&v10, later)] {
            let outcome = post(&[JSON, ("a2a-version", version)], body);
            match fits {
                true => {
                    let call = outcome.expect(version);
                    assert_eq!(call.version.as_deref().unwrap_or_default(), version.trim());
                }
                false => {
                    let error = outcome.expect_err(version);
                    assert_eq!(error.fault, Fault::Version, "{version}");
                    // Whoever asked can be told, unless the header isn't even text.
                    let is_text = version.bytes().all(|byte| byte.is_ascii_graphic());
                    assert_eq!((error.id.is_some(), error.requested.is_some()), (is_text, is_text));
                }
            }
        }
    }
    let twice = post(&[JSON, ("a2a-version", "1.0"), ("a2a-version", "1.0")], &v10);
    assert_eq!(fault(twice).0, Fault::Invalid);
    let error = post(&[JSON, ("a2a-version", "1.0")], &v03).expect_err("refused");
    assert_eq!(error.requested.as_deref(), Some("1.0"));
    assert_eq!(error.id.map(|id| id.as_json().to_owned()), Some("7".into()));
}

#[test]
fn a_version_in_the_query_is_compared_too() {
    let body = text("GetTask", r#"{"id":"t"}"#);
    let post = |query: &str, pairs: &[(&str, &str)]| {
        decode(&HttpMethod::POST, "/", Some(query), &headers(pairs), body.clone().into())
    };
    for (query, version, sent) in [
        ("", None, None),
        ("A2A-Version=1.0", None, Some("A2A-Version=1.0")),
        ("a2a-version=1.0", Some("1.0"), Some("A2A-Version=1.0")),
        ("A2A-Version=", Some("1.0"), Some("A2A-Version=")),
    ] {
        let pairs: Vec<_> =
            [JSON].into_iter().chain(version.map(|it| ("a2a-version", it))).collect();
        let call = post(query, &pairs).expect(query);
        let rest = call.a2a.expect("facts").rest;
        let query = rest.as_ref().map(|rest| rest.query.as_deref().expect("a query"));
        assert_eq!((query, rest.as_ref().map(|rest| &*rest.path)), (sent, sent.map(|_| "")));
    }
    for (query, version, expected) in [
        ("A2A-Version=0.3", None, Fault::Version),
        ("A2A-Version=1.0", Some("1.1"), Fault::Version),
        ("A2A-Version=1.0&A2A-Version=1.0", None, Fault::Invalid),
        ("A2A-Version=1.0&a2a-version=1.0", None, Fault::Invalid),
        ("x=1", None, Fault::Invalid),
        ("A2A-Version=1%", None, Fault::Invalid),
    ] {
        let pairs: Vec<_> =
            [JSON].into_iter().chain(version.map(|it| ("a2a-version", it))).collect();
        assert_eq!(fault(post(query, &pairs)).0, expected, "{query}");
    }
}

#[test]
fn only_plain_json_is_read() {
    let body = text("tasks/get", r#"{"id":"t"}"#);
    for (name, value, fits) in [
        ("content-type", "application/json", true),
        ("content-type", "Application/JSON; charset=\"UTF-8\"", true),
        ("content-type", "application/a2a+json", false),
        ("content-type", "text/plain", false),
        ("content-type", "application/json; charset=utf-16", false),
        ("x", "", false),
    ] {
        let outcome = post(&[(name, value)], &body);
        match fits {
            true => assert!(outcome.is_ok(), "{value}"),
            false => assert_eq!(fault(outcome).0, Fault::MediaType, "{value}"),
        }
    }
    assert_eq!(fault(post(&[JSON, ("content-encoding", "gzip")], &body)).0, Fault::MediaType);
    assert_eq!(fault(post(&[JSON, JSON], &body)).0, Fault::Invalid);
    for method in [HttpMethod::GET, HttpMethod::PUT, HttpMethod::DELETE, HttpMethod::HEAD] {
        let outcome = decode(&method, "", None, &headers(&[JSON]), body.clone().into());
        assert_eq!(fault(outcome).0, Fault::HttpMethod);
    }
}

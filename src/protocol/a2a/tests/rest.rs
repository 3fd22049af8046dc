//! The REST binding.

use super::{
    Era, Fault, HttpMethod, JSON, Kind, Method, Outcome, Target, all, decode, facts, headers,
    names, operation, task,
};
use crate::protocol::{Class, method::Rule};

const A2A_JSON: (&str, &str) = ("content-type", "application/a2a+json");
const MESSAGE: &str = r#"{"message":{"parts":[{"text":"hi"}],"taskId":"t"}}"#;
const PUSH: &str = r#"{"url":"https://a.example/"}"#;

fn send(method: &HttpMethod, target: &str, pairs: &[(&str, &str)], body: &str) -> Outcome {
    let (suffix, query) = match target.split_once('?') {
        Some((suffix, query)) => (suffix, Some(query)),
        None => (target, None),
    };
    let outcome = decode(method, suffix, query, &headers(pairs), body.to_owned().into());
    if let Err(error) = &outcome {
        assert!(error.rest && error.id.is_none(), "{target}");
    }
    outcome
}

fn get(target: &str) -> Outcome {
    send(&HttpMethod::GET, target, &[], "")
}

fn post(target: &str, body: &str) -> Outcome {
    let pairs: &[(&str, &str)] = if body.is_empty() { &[] } else { &[A2A_JSON] };
    send(&HttpMethod::POST, target, pairs, body)
}

fn fault(outcome: Outcome) -> Fault {
    outcome.expect_err("refused").fault
}

/// What is sent in place of the target.
fn sent(outcome: Outcome) -> String {
    let call = outcome.expect("decoded");
    let rest = facts(&call).rest.clone().expect("a target");
    match rest.query {
        Some(query) => format!("{}?{query}", rest.path),
        None => rest.path.into(),
    }
}

#[test]
fn every_path_is_an_operation() {
    use operation::{
        CANCEL, CARD, EXTENDED_CARD, GET, LIST, PUSH_CREATE, PUSH_DELETE, PUSH_GET, PUSH_LIST,
        SEND, STREAM, SUBSCRIBE,
    };
    let (t, server) = (Some("t"), None);
    let rows: [(&str, &str, &str, Rule, Option<&str>); 13] = [
        ("POST", "/message:send", MESSAGE, SEND, t),
        ("POST", "/message:stream", MESSAGE, STREAM, t),
        ("GET", "/tasks", "", LIST, server),
        ("GET", "/tasks/t", "", GET, t),
        ("POST", "/tasks/t:cancel", "", CANCEL, t),
        ("POST", "/tasks/t:cancel", r#"{"metadata":{"x":1}}"#, CANCEL, t),
        ("GET", "/tasks/t:subscribe", "", SUBSCRIBE, t),
        ("POST", "/tasks/t:subscribe", "", SUBSCRIBE, t),
        ("POST", "/tasks/t/pushNotificationConfigs", PUSH, PUSH_CREATE, t),
        ("GET", "/tasks/t/pushNotificationConfigs", "", PUSH_LIST, t),
        ("GET", "/tasks/t/pushNotificationConfigs/c", "", PUSH_GET, t),
        ("DELETE", "/tasks/t/pushNotificationConfigs/c", "", PUSH_DELETE, t),
        ("GET", "CARD", "", EXTENDED_CARD, server),
    ];
    for (method, path, body, rule, target) in &rows {
        let method = HttpMethod::from_bytes(method.as_bytes()).expect("method");
        for (prefix, card, era, tenant) in [
            ("", "/extendedAgentCard", Era::V10, None),
            ("/acme", "/extendedAgentCard", Era::V10, Some("acme")),
            ("/v1", "/card", Era::V03, None),
        ] {
            let path = format!("{prefix}{}", path.replace("CARD", card));
            let pairs: &[(&str, &str)] = if body.is_empty() { &[] } else { &[JSON] };
            let call = send(&method, &path, pairs, body).expect(&path);
            assert_eq!((call.era, &call.kind), (era, &Kind::Operation), "{path}");
            assert_eq!(call.method.rule(), Some(rule), "{path}");
            let expected = target.map_or(Target::Server, task);
            assert_eq!(call.targets, [expected], "{path}");
            let facts = facts(&call);
            assert_eq!(facts.traits.tenant.as_deref(), tenant);
            assert_eq!(facts.rest.as_ref().map(|rest| &*rest.path), Some(&*path));
            assert_eq!(call.body, body);
            let version = if era == Era::V03 { "0.3" } else { "1.0" };
            let other = if era == Era::V03 { "1.0" } else { "0.3" };
            for (version, fits) in [(version, true), (other, false)] {
                let pairs = [JSON, ("a2a-version", version)];
                let outcome = send(&method, &path, &pairs, body);
                assert_eq!(outcome.is_ok(), fits, "{path} {version}");
                assert!(fits || fault(outcome) == Fault::Version);
            }
        }
    }
    for (path, era) in
        [("/.well-known/agent-card.json", Era::V03), ("/.well-known/agent.json", Era::V03)]
    {
        for method in [HttpMethod::GET, HttpMethod::HEAD] {
            let call = send(&method, path, &[], "").expect(path);
            assert_eq!((call.era, &call.targets[..]), (era, &[Target::Server][..]));
            assert_eq!(call.method, Method::Known(&CARD));
            assert_eq!(call.method.rule().map(|rule| rule.class), Some(Class::Control));
        }
        assert_eq!(fault(post(path, "{}")), Fault::HttpMethod);
    }
    let version = [("a2a-version", "1.0")];
    let call = send(&HttpMethod::GET, "/.well-known/agent-card.json", &version, "");
    assert_eq!(call.expect("decoded").era, Era::V10);
    let call = get("/agent/authenticatedExtendedCard").expect("decoded");
    assert_eq!((call.era, call.method.action()), (Era::V03, "GetExtendedAgentCard"));
    assert_eq!(sent(get("/agent/authenticatedExtendedCard")), "/agent/authenticatedExtendedCard");
}

#[test]
fn other_http_methods_and_paths_are_none() {
    for (method, path) in [
        ("GET", "/message:send"),
        ("PUT", "/message:send"),
        ("POST", "/tasks"),
        ("POST", "/tasks/t"),
        ("DELETE", "/tasks/t"),
        ("HEAD", "/tasks/t"),
        ("GET", "/tasks/t:cancel"),
        ("DELETE", "/tasks/t:subscribe"),
        ("PUT", "/tasks/t/pushNotificationConfigs"),
        ("DELETE", "/tasks/t/pushNotificationConfigs"),
        ("POST", "/tasks/t/pushNotificationConfigs/c"),
        ("POST", "/v1/card"),
    ] {
        let method = HttpMethod::from_bytes(method.as_bytes()).expect("method");
        assert_eq!(fault(send(&method, path, &[JSON], "{}")), Fault::HttpMethod, "{path}");
    }
    for path in [
        "/message",
        "/Message:send",
        "/message:Send",
        "/TASKS",
        "/Tasks/t",
        "/tasks/t/PushNotificationConfigs",
        "/tasks/t/pushNotificationConfigs/c/d",
        "/tasks/t:Cancel",
        "/tasks/:cancel",
        "/tasks/t:cancel:subscribe",
        "/tasks/t:subscribe:cancel",
        "/tasks/tasks",
        "/tasks/extendedAgentCard",
        "/tasks/tasks/t",
        "/V1/tasks/t",
        "/v1/v1/tasks/t",
        "/v1/acme/tasks/t",
        "/acme/v1/tasks/t",
        "/acme/other/tasks/t",
        "/v1/extendedAgentCard",
        "/card",
        "/.hidden/tasks/t",
        "/.well-known/openid-configuration",
        "/.well-known/Agent.json",
    ] {
        for method in [HttpMethod::GET, HttpMethod::POST, HttpMethod::DELETE] {
            assert_eq!(fault(send(&method, path, &[], "")), Fault::UnknownMethod, "{path}");
        }
    }
}

#[test]
fn paths_are_decoded_once_and_written_anew() {
    for (path, id, written) in [
        ("/tasks/abc%2d1", "abc-1", "/tasks/abc-1"),
        ("/tasks/a%20b", "a b", "/tasks/a%20b"),
        ("/tasks/a+b", "a+b", "/tasks/a%2Bb"),
        ("/tasks/urn:uuid:1", "urn:uuid:1", "/tasks/urn%3Auuid%3A1"),
        ("/tasks/%C3%A9", "\u{e9}", "/tasks/%C3%A9"),
        ("/t%61sks/a", "a", "/tasks/a"),
        ("/tasks/..a", "..a", "/tasks/..a"),
        ("/tasks/a%3asubscribe", "a", "/tasks/a:subscribe"),
        ("/v1/tasks/a%3asubscribe", "a", "/v1/tasks/a:subscribe"),
        ("/tasks/a@b=c,d!", "a@b=c,d!", "/tasks/a%40b%3Dc%2Cd%21"),
        ("/ac%6de/tasks/a", "a", "/acme/tasks/a"),
        ("/tasks/a%22%3C%3E", "a\"<>", "/tasks/a%22%3C%3E"),
    ] {
        let call = get(path).expect(path);
        assert_eq!(call.targets, [task(id)], "{path}");
        assert_eq!(sent(get(path)), written);
        // What is sent is what was understood.
        let again = get(written).expect(written);
        assert_eq!((again.method, again.targets, again.a2a), (call.method, call.targets, call.a2a));
    }
    for path in [
        "/tasks/a%2fb",
        "/tasks/a%2Fb",
        "/tasks/a%5cb",
        r"/tasks/a\b",
        "/tasks/%252e",
        "/tasks/a%25b",
        "/tasks/.",
        "/tasks/..",
        "/tasks/%2e%2e",
        "/tasks/%2E./x",
        "/x/../tasks/a",
        "/./tasks/a",
        "//tasks/a",
        "/tasks//a",
        "/tasks/a/",
        "/tasks/",
        "/tasks/a%",
        "/tasks/a%2",
        "/tasks/a%zz",
        "/tasks/a%00",
        "/tasks/a%0a",
        "/tasks/a%7f",
        "/tasks/%ff",
        "/tasks/a;x=1",
        "/tasks;x/a",
        "/tasks/a%3bx",
        "/tasks/a%3Fx",
        "/tasks/a%23x",
        "tasks/a",
    ] {
        assert_eq!(fault(get(path)), Fault::Invalid, "{path}");
    }
}

#[test]
fn queries_have_what_the_operation_has() {
    for (target, written) in [
        ("/tasks/t?", "/tasks/t"),
        ("/tasks/t?historyLength=5", "/tasks/t?historyLength=5"),
        ("/tasks/t?history_length=5", "/tasks/t?historyLength=5"),
        ("/v1/tasks/t?historyLength=", "/v1/tasks/t?historyLength="),
        ("/tasks?contextId=c%20d&pageSize=2", "/tasks?contextId=c%20d&pageSize=2"),
        (
            "/tasks?page_token=a%2Bb%3D&status=TASK_STATE_WORKING",
            "/tasks?pageToken=a%2Bb%3D&status=TASK_STATE_WORKING",
        ),
        ("/tasks?contextI%64=c+d", "/tasks?contextId=c%20d"),
        (
            "/tasks?statusTimestampAfter=2026-01-01T00%3A00%3A00Z",
            "/tasks?statusTimestampAfter=2026-01-01T00%3A00%3A00Z",
        ),
        ("/tasks?A2A-Version=1.0", "/tasks?A2A-Version=1.0"),
    ] {
        assert_eq!(sent(get(target)), written);
    }
    let call = get("/tasks?context_id=c&tenant=acme").expect("decoded");
    assert_eq!(names(&facts(&call).contexts), all(&["c"]));
    assert_eq!(facts(&call).traits.tenant.as_deref(), Some("acme"));
    for target in [
        "/tasks/t?x=1",
        "/tasks/t?id=u",
        "/tasks/t?contextId=c",
        "/tasks/t?HistoryLength=1",
        "/tasks/t?historyLength=1&history_length=1",
        "/tasks/t?historyLength=1&historyLength=1",
        "/tasks/t?historyLength=1&",
        "/tasks/t?historyLength=%ff",
        "/tasks/t?historyLength=%",
        "/tasks?contextId=c;contextId=d&contextId=e",
        "/tasks?contextId=%00",
        "/acme/tasks/t?tenant=other",
        "/.well-known/agent-card.json?tenant=a",
    ] {
        assert_eq!(fault(get(target)), Fault::Invalid, "{target}");
    }
    assert_eq!(fault(get("/tasks?A2A-Version=0.3")), Fault::Version);
    assert_eq!(fault(get("/v1/tasks?A2A-Version=1.0")), Fault::Version);
    assert!(get("/acme/tasks/t?tenant=acme").is_ok());
}

#[test]
fn path_and_body_agree() {
    for (path, body) in [
        ("/tasks/t:cancel", r#"{"id":"t"}"#),
        ("/acme/tasks/t:cancel", r#"{"id":"t","tenant":"acme"}"#),
        ("/v1/tasks/t:cancel", r#"{"name":"tasks/t"}"#),
        ("/tasks/t:subscribe", r#"{"id":"t"}"#),
        (
            "/tasks/t/pushNotificationConfigs",
            r#"{"taskId":"t","id":"c","url":"https://a.example/"}"#,
        ),
        (
            "/v1/tasks/t/pushNotificationConfigs",
            r#"{"parent":"tasks/t","config_id":"c","config":{"name":
               "tasks/t/pushNotificationConfigs/c","push_notification_config":{"id":"c","url":"https://a.example/"}}}"#,
        ),
        ("/acme/message:send", r#"{"tenant":"acme","message":{"taskId":"t"}}"#),
        ("/v1/message:send", r#"{"request":{"task_id":"t","content":[{"text":"a"}]}}"#),
    ] {
        let call = post(path, body).expect(path);
        assert_eq!(call.targets, [task("t")], "{path}");
    }
    for (path, body) in [
        ("/message:send", r#"{"request":{"taskId":"t"}}"#),
        ("/message:send", r#"{"message":{"taskId":"t","content":[]}}"#),
        ("/v1/message:send", r#"{"request":{"taskId":"t"},"message":{}}"#),
        ("/v1/message:send", r#"{"message":{"parts":[],"content":[]}}"#),
        ("/tasks/t:cancel", r#"{"id":"u"}"#),
        ("/tasks/t:cancel", r#"{"task_id":"u"}"#),
        ("/v1/tasks/t:cancel", r#"{"name":"tasks/u"}"#),
        ("/acme/tasks/t:cancel", r#"{"tenant":"other"}"#),
        ("/tasks/t:subscribe", r#"{"id":"u"}"#),
        ("/tasks/t/pushNotificationConfigs", r#"{"taskId":"u","url":"https://a.example/"}"#),
        (
            "/tasks/t/pushNotificationConfigs",
            r#"{"url":"https://a.example/","config":{"taskId":"u"}}"#,
        ),
        (
            "/v1/tasks/t/pushNotificationConfigs",
            r#"{"parent":"tasks/u","config":{"pushNotificationConfig":{"url":"https://a.example/"}}}"#,
        ),
        ("/acme/message:send", r#"{"tenant":"other","message":{}}"#),
    ] {
        assert_eq!(fault(post(path, body)), Fault::Invalid, "{path} {body}");
    }
}

#[test]
fn bodies_are_where_they_belong() {
    assert_eq!(fault(post("/message:send", "")), Fault::Params);
    assert_eq!(fault(post("/tasks/t/pushNotificationConfigs", "")), Fault::Params);
    assert_eq!(fault(post("/message:send", "[]")), Fault::Params);
    assert_eq!(fault(post("/message:send", "{")), Fault::Parse);
    assert_eq!(fault(post("/message:send", r#"{"message":{},"message":{}}"#)), Fault::Invalid);
    for (method, path) in
        [(HttpMethod::GET, "/tasks/t"), (HttpMethod::DELETE, "/tasks/t/pushNotificationConfigs/c")]
    {
        assert_eq!(fault(send(&method, path, &[JSON], "{}")), Fault::Invalid);
    }
    for value in ["text/plain", "application/a2a+json; charset=latin1", "application/a2a"] {
        let outcome = send(&HttpMethod::POST, "/message:send", &[("content-type", value)], MESSAGE);
        assert_eq!(fault(outcome), Fault::MediaType);
    }
    assert_eq!(fault(send(&HttpMethod::POST, "/message:send", &[], MESSAGE)), Fault::MediaType);
    let call =
        send(&HttpMethod::POST, "/message:send", &[JSON, ("x-a2a-extensions", "e")], MESSAGE);
    assert_eq!(names(&facts(&call.expect("decoded")).traits.extensions), all(&["e"]));
}

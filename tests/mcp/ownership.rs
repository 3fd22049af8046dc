//! Tasks and request states: whose they are, for how long, and what nobody gave to the caller.

use serde_json::Value;

use crate::{
    http::{Answer, Caller, within},
    redis::RedisServer,
    site::{Site, TLS_A, agent_b, request, send},
    stub::{Seen, Stub, json, result},
    subject::Lictor,
};

const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}"#
);

const EVERYTHING: &str = r#"@id("all") permit (principal, action, resource);"#;

/// Method, `Mcp-Name` and parameters of messages that name something which isn't there.
const MODERN: &[(&str, Option<&str>, &str, i64)] = &[
    ("tasks/get", Some("t-1"), r#""taskId":"t-1""#, -32602),
    ("tasks/cancel", Some("t-1"), r#""taskId":"t-1""#, -32602),
    ("tasks/update", Some("t-1"), r#""taskId":"t-1","inputResponses":{}"#, -32602),
    ("subscriptions/listen", None, r#""notifications":{"taskIds":["t-1"]}"#, -32602),
    ("tools/call", Some("echo"), r#""name":"echo","requestState":"r-1""#, 4035),
    ("tools/call", Some("echo"), r#""name":"echo","requestState":"","inputResponses":{}"#, 4035),
    ("prompts/get", Some("hello"), r#""name":"hello","requestState":"r-1""#, 4035),
    ("resources/read", Some("note:///1"), r#""uri":"note:///1","requestState":"r-1""#, 4035),
];

#[tokio::test]
async fn what_was_never_given_to_the_caller_is_not_there() {
    let stub = Stub::answering(|seen| json(&result(seen, "{}"))).await;
    let lictor = Site::to(&stub.url()).policies(EVERYTHING).start().await;
    let mut caller = agent_b(&lictor).await;
    let mut bodies = Vec::new();
    for (method, name, params, code) in MODERN {
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", *method)];
        headers.extend(name.map(|name| ("mcp-name", name)));
        bodies.push((headers, request(method, &format!("{{{params},{META}}}")), *code));
        // In the era before, where there are such things.
        if *method != "tasks/update" && *method != "subscriptions/listen" {
            bodies.push((vec![], request(method, &format!("{{{params}}}")), *code));
        }
    }
    bodies.push((vec![], request("tasks/result", r#"{"taskId":"t-1"}"#), -32602));
    for (headers, body, code) in &bodies {
        let answer = send(&mut caller, "POST", headers, body.as_str()).await.whole().await;
        assert_eq!(answer.status, 200, "{body}");
        let told: Value = answer.json();
        assert_eq!((&told["id"], &told["error"]["code"]), (&7.into(), &(*code).into()), "{body}");
        let kind = if *code == 4035 { "unknown_continuation" } else { "unknown_task" };
        assert_eq!(answer.kind(), kind, "{body}");
    }
    assert_eq!(stub.requests(), 0);
    // The same without anything that could be somebody's.
    let plain = request("tools/call", r#"{"name":"echo","requestState":null}"#);
    let answer = send(&mut caller, "POST", &[], plain).await.whole().await;
    assert_eq!((answer.status, stub.requests()), (200, 1));
    let closings = lictor.stop(bodies.len() + 1).await;
    for entry in closings.iter().take(bodies.len()) {
        assert_eq!((&entry["stage"], &entry["decision"]), (&"ownership".into(), &"deny".into()));
    }
}

/// Gives a task to whoever calls `long`, asks whoever calls `echo` for more, and answers the rest.
fn giving(seen: &Seen) -> Vec<u8> {
    let message: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    let params = &message["params"];
    let answer = match (params["name"].as_str(), params["requestState"].as_str()) {
        (Some("long"), _) => {
            r#"{"resultType":"task","taskId":"t-1","status":"working","ttlMs":60000,"createdAt":"2026-11-30T00:00:00Z","lastUpdatedAt":"2026-11-30T00:00:00Z"}"#
        }
        (Some("echo"), None) => r#"{"resultType":"input_required","requestState":"r-1"}"#,
        _ => r#"{"resultType":"complete","content":[]}"#,
    };
    json(&result(seen, answer))
}

async fn a(lictor: &Lictor) -> Caller {
    Caller::tls(lictor.mutual, &TLS_A, false).await
}

async fn modern(caller: &mut Caller, method: &str, name: &str, params: &str) -> Answer {
    let headers =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
    let body = request(method, &format!("{{{params},{META}}}"));
    send(caller, "POST", &headers, body).await.whole().await
}

async fn calls(caller: &mut Caller, tool: &str) -> Answer {
    modern(caller, "tools/call", tool, &format!(r#""name":"{tool}""#)).await
}

const GET: (&str, &str, &str) = ("tasks/get", "t-1", r#""taskId":"t-1""#);
const RETRY: (&str, &str, &str) = ("tools/call", "echo", r#""name":"echo","requestState":"r-1""#);

/// The kind of refusal of something that was given before; none, if it goes on. A store that takes too long can be asked again.
async fn goes_on(caller: &mut Caller, (method, name, params): (&str, &str, &str)) -> String {
    let trying = async {
        loop {
            let answer = modern(caller, method, name, params).await;
            if answer.status != 503 {
                let kind = &answer.json()["error"]["data"]["kind"];
                return kind.as_str().unwrap_or_default().to_owned();
            }
        }
    };
    within("an answer", trying).await
}

/// Both are the caller's, and nobody else's.
async fn belong_to_a(lictor: &Lictor) {
    let (mut a, mut b) = (a(lictor).await, agent_b(lictor).await);
    assert_eq!(goes_on(&mut a, GET).await, "");
    assert_eq!(goes_on(&mut a, RETRY).await, "");
    assert_eq!(goes_on(&mut b, GET).await, "unknown_task");
    assert_eq!(goes_on(&mut b, RETRY).await, "unknown_continuation");
}

#[tokio::test]
async fn what_was_given_goes_on_after_a_restart_and_elsewhere() {
    let stub = Stub::answering(giving).await;
    let redis = RedisServer::start().await;
    let shared = format!("state: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}", redis.port);
    for state in ["state: { directory: state }", &shared] {
        let site = || Site::to(&stub.url()).policies(EVERYTHING).with(state);
        let mut lictor = site().start().await;
        let given = async {
            for tool in ["long", "echo"] {
                while calls(&mut a(&lictor).await, tool).await.status != 200 {}
            }
        };
        within("an answer", given).await;
        belong_to_a(&lictor).await;
        lictor.signal("KILL").await;
        lictor.ended().await;
        let lictor = lictor.restart().await;
        belong_to_a(&lictor).await;
        if state == shared {
            belong_to_a(&site().start().await).await;
        }
        lictor.stop_with(|closings| closings > 0).await;
    }
}

#[tokio::test]
async fn what_cant_be_recorded_is_not_given_away() {
    let stub = Stub::answering(giving).await;
    let mut redis = RedisServer::start().await;
    let state = format!("state: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}", redis.port);
    let lictor = Site::to(&stub.url()).policies(EVERYTHING).with(&state).start().await;
    redis.kill().await;
    let mut caller = a(&lictor).await;
    for tool in ["long", "echo"] {
        let answer = calls(&mut caller, tool).await;
        assert_eq!((answer.status, &*answer.kind()), (502, "answer_undeliverable"), "{tool}");
        assert_eq!(answer.json()["error"]["data"]["retryable"], false, "{tool}");
        assert!(!answer.text().contains("t-1") && !answer.text().contains("r-1"));
    }
    // Answers that bring nothing go on.
    assert_eq!(calls(&mut caller, "plain").await.status, 200);
    assert_eq!(stub.requests(), 3);
    lictor.stop(3).await;
}

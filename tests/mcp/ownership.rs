//! Tasks and request states that nobody gave to the caller.

use serde_json::Value;

use crate::{
    site::{Site, agent_b, request, send},
    stub::{Stub, json, result},
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

//! Revision 2026-07-28 behind the bridge: headers that mirror the body, and cancellation by closing.

use serde_json::json;

use super::Bridge;
use crate::{
    site::{POLICIES, Site, request},
    stub::Stub,
};

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn modern(method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    request(method, &format!("{{{params}{comma}{META}}}"))
}

#[tokio::test]
async fn headers_mirror_the_body() {
    let mut stub = Stub::scripted().await;
    let all = r#"@id("all") permit (principal, action, resource);"#;
    let lictor = Site::to(&stub.url()).policies(all).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    let cases = [
        (modern("server/discover", ""), None),
        (modern("tools/list", ""), None),
        (modern("tools/call", r#""name":"echo","arguments":{}"#), Some("echo")),
        (modern("resources/read", r#""uri":"note:///pub lic""#), Some("note:///pub lic")),
        (modern("prompts/get", r#""name":"grüße""#), Some("=?base64?Z3LDvMOfZQ==?=")),
        (modern("prompts/get", r#""name":" a""#), Some("=?base64?IGE=?=")),
        (
            modern("prompts/get", r#""name":"=?base64?YQ==?=""#),
            Some("=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ),
        (modern("tasks/get", r#""taskId":"t-1""#), Some("t-1")),
    ];
    let mut sent = 0;
    for (body, name) in &cases {
        bridge.say(body).await;
        // A task of nobody is refused by the Lictor, which has compared the header with the body by then.
        if body.contains("tasks/get") {
            assert_eq!(bridge.hear().await["error"]["data"]["kind"], "unknown_task");
            sent += 1;
            continue;
        }
        let asked = stub.call().await;
        let head = &asked.seen.head;
        assert_eq!(head.header("mcp-protocol-version"), Some("2026-07-28"));
        let message: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(head.header("mcp-method"), message["method"].as_str());
        assert_eq!(head.header("mcp-name"), *name, "{body}");
        assert_eq!(head.header("mcp-session-id"), None);
        assert_eq!(asked.seen.body, body);
        asked.answer(r#"{"resultType":"complete"}"#).await;
        assert_eq!(bridge.hear().await["id"], 7);
        sent += 1;
    }
    // No session, so none is ended.
    bridge.hang_up();
    assert!(bridge.ended().await.success());
    lictor.stop(sent).await;
}

#[tokio::test]
async fn arguments_are_mirrored_for_tools_that_were_listed() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    let call = modern("tools/call", r#""name":"echo","arguments":{"region":"eu"}"#);
    for listed in [false, true] {
        if listed {
            bridge.say(modern("tools/list", "")).await;
            let tool = r#"{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
            let list = format!(r#"{{"resultType":"complete","tools":[{tool}]}}"#);
            stub.call().await.answer(&list).await;
            assert_eq!(bridge.hear().await["result"]["tools"][0]["name"], "echo");
        }
        bridge.say(&call).await;
        let asked = stub.call().await;
        assert_eq!(asked.seen.head.header("mcp-param-region"), listed.then_some("eu"));
        asked.answer(r#"{"resultType":"complete"}"#).await;
        bridge.hear().await;
    }
    bridge.hang_up();
    assert!(bridge.ended().await.success());
    lictor.stop(3).await;
}

#[tokio::test]
async fn a_client_of_both_eras_falls_back() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.say(modern("server/discover", "")).await;
    let mut asked = stub.call().await;
    let told = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"not initialized"}}"#;
    let length = told.len();
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json";
    asked.send(format!("{head}\r\nContent-Length: {length}\r\n\r\n{told}")).await;
    asked.keep();
    let heard = bridge.hear().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(-32000)));
    bridge.open(&mut stub).await;
    bridge.close(&mut stub).await;
    lictor.stop(5).await;
}

#[tokio::test]
async fn a_cancelled_call_is_closed() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).policies(POLICIES).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.say(modern("tools/call", r#""name":"echo","arguments":{}"#)).await;
    let mut stream = stub.call().await;
    stream.begin_events().await;
    bridge
        .say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#)
        .await;
    stream.abandoned().await;
    // A stream that ends before its answer can't be resumed, whatever its events are called.
    bridge.say(modern("tools/call", r#""name":"echo","arguments":{}"#)).await;
    let mut stream = stub.call().await;
    stream.begin_events().await;
    stream.chunk("id: 1\nretry: 10\ndata:\n\n").await;
    stream.end().await;
    let heard = bridge.hear().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(5021)));
    assert_eq!(stub.requests(), 2);
    bridge.hang_up();
    assert!(bridge.ended().await.success());
    lictor.stop(2).await;
}

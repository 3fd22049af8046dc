//! What comes back from a server is governed as well: what it asks of its caller, and what it hands out.

mod asks;
mod documents;
mod inputs;
mod readings;
mod tasks;

use serde_json::Value;

use crate::{
    http::{Answer, Caller, Reply},
    site::{POLICIES, Site, request, send},
    stub::{Call, Seen, Stub, chunk},
};

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";

/// Beside what callers may do: servers may ask for forms, and where the caller's files are.
const ASKS: &str = r#"
@id("asks")
permit (principal == Server::"files", action in Action::"asks", resource is Agent);

@id("no-sampling")
@reason("no completions for servers")
forbid (principal, action == Action::"sampling/createMessage", resource);
"#;

/// In front of a server that may ask.
fn site(url: &str) -> Site {
    Site::to(url).policies(&format!("{POLICIES}{ASKS}"))
}

/// A question with a form.
fn form(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{{"message":"who?","requestedSchema":{{"type":"object","properties":{{"name":{{"type":"string"}}}}}}}}}}"#
    )
}

/// A request for a completion, which is refused.
fn sampling(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{{"messages":[],"maxTokens":100}}}}"#
    )
}

fn event(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// Opens a session, by an upstream in the hands of the test.
async fn open(caller: &mut Caller, stub: &mut Stub, session: &str) {
    let answering = async {
        let mut call = stub.call().await;
        let body = crate::stub::result(&call.seen, "{}");
        let head = format!(
            "HTTP/1.1 200 OK\r\nMcp-Session-Id: {session}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        call.send(head).await;
        call.keep();
    };
    let opening = send(caller, "POST", &[], request("initialize", "{}"));
    let (reply, ()) = tokio::join!(opening, answering);
    assert_eq!(reply.whole().await.status, 200);
}

/// A message whose answer the test streams.
async fn stream(
    caller: &mut Caller,
    stub: &mut Stub,
    verb: &str,
    headers: &[(&str, &str)],
    body: String,
) -> (Reply, Call) {
    tokio::join!(send(caller, verb, headers, body), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    })
}

/// The next bytes of a stream, which have to be these.
async fn reads(reply: &mut Reply, expected: &str) {
    let mut text = Vec::new();
    while text.len() < expected.len() {
        text.extend_from_slice(&reply.chunk().await.expect("more of the stream"));
    }
    assert_eq!(String::from_utf8_lossy(&text), expected);
}

/// All that is left of a stream.
async fn rest(mut reply: Reply) -> String {
    let mut text = Vec::new();
    while let Some(part) = reply.chunk().await {
        text.extend_from_slice(&part);
    }
    String::from_utf8(text).expect("UTF-8")
}

/// What Lictor posted of its own, which is taken.
async fn told(stub: &mut Stub) -> (Seen, Value) {
    let mut call = stub.call().await;
    call.send(ACCEPTED).await;
    let seen = call.seen.clone();
    call.keep();
    let message = serde_json::from_slice(&seen.body).expect("JSON");
    (seen, message)
}

/// A modern call and its headers.
async fn modern(caller: &mut Caller, method: &str, name: &str, params: &str) -> Answer {
    modern_reply(caller, method, name, params).await.whole().await
}

async fn modern_reply(caller: &mut Caller, method: &str, name: &str, params: &str) -> Reply {
    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("mcp-name", name),
        ("accept", "application/json, text/event-stream"),
    ];
    let body = request(method, &format!("{{{params},{META}}}"));
    send(caller, "POST", &headers, body).await
}

/// A whole answer of one event.
fn streamed(message: &str) -> Vec<u8> {
    let event = chunk(event(message).as_bytes());
    [crate::stub::EVENTS.as_bytes(), &event, b"0\r\n\r\n"].concat()
}

/// Those ledger entries that are of requests of the server.
fn asked(closings: &[Value]) -> Vec<&Value> {
    closings.iter().filter(|entry| entry["direction"] == "outbound").collect()
}

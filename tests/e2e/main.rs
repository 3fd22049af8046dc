//! A real Lictor over real sockets: what goes through, what doesn't, what the upstream hears of it, and
//! what the ledger says afterwards.
//!
//! Every test starts the binary in front of a scripted upstream, counts what reached that, and ends by
//! stopping the binary and checking its ledger: it verifies, and holds one closing entry for each request.

#![cfg(test)]

mod agents;
#[path = "../support/ca.rs"]
#[expect(dead_code, reason = "its bad certificates are for the tests of identity")]
mod ca;
mod delegation;
mod exchange;
mod framing;
mod hanging;
#[path = "../support/http.rs"]
mod http;
#[path = "../support/programs.rs"]
#[expect(dead_code, reason = "servers and pinned versions are for the tests of SDKs")]
mod programs;
#[path = "../support/redis.rs"]
#[expect(dead_code, reason = "what goes wrong with it is for the tests of state")]
mod redis;
mod refusals;
mod soak;
mod streams;
#[path = "../support/stub.rs"]
mod stub;
#[path = "../support/lictor.rs"]
mod subject;
mod upgrade;
mod web;

/// A call of a read tool, with id 7.
const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"look"}}"#;

/// A call of a tool that may change things, with id 7.
const CHANGE: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"change"}}"#;

/// For upstreams that do nothing but fail.
const NO_BREAKER: &str = "breaker: { enabled: false }";

/// A plain POST as MCP clients send it: more header lines, each with its end, and the body.
fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}\r\n{body}"
    )
}

/// A plain POST of known length.
fn post_whole(headers: &str, body: &str) -> String {
    post(&format!("{headers}Content-Length: {}\r\n", body.len()), body)
}

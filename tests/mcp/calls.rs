//! Single messages of both eras: what is refused never reaches the upstream; what is forwarded is what
//! was sent, byte for byte, once.

mod bodies;
mod headers;
mod records;

use serde_json::Value;

use crate::{
    site::{Site, wire_a},
    stub::{Seen, Stub, json, result},
    subject::Lictor,
};

/// What the modern era adds to `params`.
const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}"#
);

/// What every client says of a body.
const JSON: &str =
    "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";

/// The version header of a legacy message.
const LEGACY: &str = "MCP-Protocol-Version: 2025-11-25\r\n";

/// The version header of a modern message.
const MODERN: &str = "MCP-Protocol-Version: 2026-07-28\r\n";

/// The headers that mirror a call of `echo`.
const ECHO: &str = "Mcp-Method: tools/call\r\nMcp-Name: echo\r\n";

/// A good call of `echo`; `$M` is what the era adds.
const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M}}"#;

/// One message, and what becomes of it.
struct Row {
    name: String,
    headers: String,
    body: Vec<u8>,
    expect: Expect,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Expect {
    /// It reaches the upstream as it is, and the upstream's answer comes back.
    Forwarded,
    /// HTTP status, JSON-RPC code, and the `id` as it stands in the answer; empty for none.
    Refused(u16, i64, &'static str),
}
use Expect::{Forwarded, Refused};

impl Row {
    fn new(name: &str, headers: &str, body: impl Into<Vec<u8>>, expect: Expect) -> Self {
        Self { name: name.to_owned(), headers: headers.to_owned(), body: body.into(), expect }
    }

    /// The same call in both eras. `$M` in the body stands where modern messages have their `_meta`.
    fn both(name: &str, body: &str, expect: Expect) -> [Self; 2] {
        Self::both_as(name, "", body, expect, |body| body.into())
    }

    /// As [`Self::both`], with more headers, and a body that is no UTF-8 text.
    fn both_as(
        name: &str,
        headers: &str,
        body: &str,
        expect: Expect,
        encode: impl Fn(&str) -> Vec<u8>,
    ) -> [Self; 2] {
        let json = if headers.contains("Content-Type") { "" } else { JSON };
        let legacy = body.replace(",$M", "").replace("$M", r#""_meta":{}"#);
        let modern = body.replace("$M", META);
        [
            Self::new(
                &format!("legacy: {name}"),
                &format!("{json}{LEGACY}{headers}"),
                encode(&legacy),
                expect,
            ),
            Self::new(
                &format!("modern: {name}"),
                &format!("{json}{MODERN}{ECHO}{headers}"),
                encode(&modern),
                expect,
            ),
        ]
    }

    fn text(&self) -> Vec<u8> {
        let Self { headers, body, .. } = self;
        let length = body.len();
        let mut text = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        text.extend_from_slice(body);
        text
    }
}

/// Answers requests with a result and everything else with 202.
fn answer(seen: &Seen) -> Vec<u8> {
    let message: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    match message.get("id").filter(|_| message.get("method").is_some()) {
        Some(_) => json(&result(seen, "{}")),
        None => b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_vec(),
    }
}

/// Sends every row as `agent-a`, each on a connection of its own, and wants its answer, what reached the
/// upstream, and one closing entry that says the same.
async fn judge(rows: Vec<Row>) -> Vec<Value> {
    let stub = Stub::answering(answer).await;
    let lictor = Site::to(&stub.url()).start().await;
    judge_at(lictor, &stub, rows).await
}

/// As [`judge`], at a Lictor with settings of its own; the closing entries.
async fn judge_at(lictor: Lictor, stub: &Stub, rows: Vec<Row>) -> Vec<Value> {
    let mut wrong = Vec::new();
    let mut decisions = Vec::new();
    for row in &rows {
        let before = stub.seen().len();
        let mut wire = wire_a(&lictor).await;
        wire.send(row.text()).await;
        let answer = wire.answer().await;
        let seen = stub.seen().split_off(before);
        let text = answer.text();
        let became = match &*seen {
            [] => {
                let json = answer.json();
                let code = json["error"]["code"].as_i64().unwrap_or_default();
                let (status, kind) = (answer.status, answer.kind());
                let decision = json["error"]["data"]["decisionId"].as_str().expect("an id");
                decisions.push((decision.to_owned(), status, kind));
                let typed = answer.header("content-type") == Some("application/json");
                assert!(typed, "{}: {:?}", row.name, answer.headers);
                match row.expect {
                    Refused(_, _, id) if id_of(&text) == id => Refused(status, code, id),
                    _ => Refused(status, code, "another"),
                }
            }
            [one] if one.body == row.body && matches!(answer.status, 200 | 202) => Forwarded,
            seen => {
                panic!("{}: {} {text}, {} requests upstream", row.name, answer.status, seen.len())
            }
        };
        if became != row.expect {
            wrong.push((&row.name, became, row.expect, text));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let closings = lictor.stop(rows.len()).await;
    for (decision, status, kind) in decisions {
        let entry = closings.iter().find(|entry| entry["call_id"] == *decision);
        let entry = entry.unwrap_or_else(|| panic!("no entry of {decision}"));
        assert_eq!(entry["kind"], "denied", "{entry}");
        assert_eq!((&entry["status"], &entry["http_status"]), (&kind.into(), &status.into()));
    }
    closings
}

/// The id of an error as it stands there.
fn id_of(text: &str) -> &str {
    let Some(rest) = text.strip_prefix(r#"{"jsonrpc":"2.0","#) else { return "no JSON-RPC" };
    match rest.strip_prefix(r#""id":"#) {
        Some(rest) => rest.split_once(r#","error""#).expect("an error").0,
        None => "",
    }
}

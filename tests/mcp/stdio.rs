//! Servers on standard input and output, behind the same calls as any other.

mod life;
mod permission;
mod sessions;
mod stateless;

use std::path::Path;

use serde_json::Value;

use crate::{
    http::{Answer, Caller, Reply},
    site::{Site, send},
};

const EVERYTHING: &str = "@id(\"all\") permit (principal, action, resource);\n\
     @id(\"no-wipe\") forbid (principal, action, resource == Tool::\"files/wipe\");\n";

/// The scripted server, as a list in flow style.
fn command(options: &str) -> String {
    format!("[python3, '{}'{options}]", script())
}

fn script() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/stdio/server.py");
    script.to_str().expect("UTF-8").to_owned()
}

/// In front of the scripted server.
fn site() -> Site {
    Site::running(&command("")).policies(EVERYTHING)
}

/// A legacy session with a process of its own.
struct Session {
    id: String,
}

impl Session {
    async fn open(caller: &mut Caller) -> Self {
        let reply = send(caller, "POST", &[], message("1", "initialize", "{}")).await;
        assert_eq!(reply.status, 200);
        let id = reply.header("mcp-session-id").expect("a session").to_owned();
        assert!(id.len() == 32, "{id}");
        let session = Self { id };
        let answer = reply.whole().await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.json()["id"], 1);
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(session.post(caller, initialized).await.whole().await.status, 202);
        session
    }

    async fn post(&self, caller: &mut Caller, body: &str) -> Reply {
        send(caller, "POST", &[("mcp-session-id", &self.id)], body).await
    }

    /// The text that a tool answers with.
    async fn call(&self, caller: &mut Caller, tool: &str, arguments: &str) -> String {
        text(&self.post(caller, &tool_call("7", tool, arguments)).await.whole().await)
    }

    async fn stream(&self, caller: &mut Caller) -> Reply {
        send(caller, "GET", &[("mcp-session-id", &self.id)], "").await
    }

    async fn delete(&self, caller: &mut Caller) -> u16 {
        let answer = send(caller, "DELETE", &[("mcp-session-id", &self.id)], "").await;
        answer.whole().await.status
    }
}

/// A request with an id of one's own.
fn message(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn tool_call(id: &str, tool: &str, arguments: &str) -> String {
    message(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
}

/// The same in the stateless revision.
fn stateless_call(id: &str, tool: &str, arguments: &str) -> String {
    let named = format!(r#""name":"{tool}","arguments":{arguments}"#);
    stateless(id, "tools/call", &named)
}

fn stateless(id: &str, method: &str, params: &str) -> String {
    let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
    let comma = if params.is_empty() { "" } else { "," };
    let token = format!(r#""progressToken":{id}"#);
    message(id, method, &format!(r#"{{"_meta":{{{meta},{token}}}{comma}{params}}}"#))
}

/// Sends a stateless request, with the headers that repeat its body.
async fn post_stateless(caller: &mut Caller, body: &str) -> Reply {
    let message: Value = serde_json::from_str(body).expect("a message");
    let method = message["method"].as_str().expect("a method");
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    headers.extend(message["params"]["name"].as_str().map(|name| ("mcp-name", name)));
    send(caller, "POST", &headers, body).await
}

/// The messages of an event stream so far.
fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("a message")).collect()
}

/// The messages of an answer, document or stream.
fn messages(answer: &Answer) -> Vec<Value> {
    match answer.header("content-type") {
        Some("text/event-stream") => events(&answer.text()),
        _ => vec![answer.json()],
    }
}

/// The text that a tool answered with.
fn text(answer: &Answer) -> String {
    let messages = messages(answer);
    let last = messages.last().expect("a message");
    let text = last.pointer("/result/content/0/text").and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no text: {last}")).to_owned()
}

/// The next event of a stream.
async fn event(reply: &mut Reply) -> Value {
    let mut text = String::new();
    loop {
        let chunk = reply.chunk().await.expect("another event");
        text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        if let [event] = events(&text).as_slice()
            && text.ends_with("\n\n")
        {
            return event.clone();
        }
    }
}

//! `lictor stdio`: a client on standard input and output, through mutual TLS, to a scripted server.

use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    http::within,
    site::{Site, TD_ONE, call, request},
    stub::{Call, Stub, json as document, result},
    subject::Lictor,
};

mod endings;
mod modern;
mod streams;

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
const NO_STREAM: &str =
    "HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n";
const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A running bridge; it is killed with this value.
struct Bridge {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    _home: TempDir,
}

impl Bridge {
    /// Starts it with the SVID of `agent-a`, towards a Lictor.
    async fn to(lictor: &Lictor) -> Self {
        Self::at(&format!("https://{}/mcp", lictor.mutual), &SVID)
    }

    /// Starts it with more arguments than the URL; those that name files find `agent-a`'s.
    fn at(url: &str, arguments: &[&str]) -> Self {
        let home = TempDir::new().expect("a directory");
        TD_ONE.svid("/agent-a").write(home.path(), &[&TD_ONE]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_lictor"))
            .args(["stdio", "--url", url])
            .args(arguments)
            .current_dir(home.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary runs");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, stdin, stdout, _home: home }
    }

    async fn say(&mut self, line: impl AsRef<str>) {
        let line = format!("{}\n", line.as_ref());
        let stdin = self.stdin.as_mut().expect("an open end");
        within("a line in", stdin.write_all(line.as_bytes())).await.expect("written");
    }

    async fn line(&mut self) -> Option<String> {
        within("a line out", self.stdout.next_line()).await.expect("UTF-8")
    }

    async fn hear(&mut self) -> Value {
        let line = self.line().await.expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }

    /// Closes its standard input.
    fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Waits until it ends, with nothing more to say.
    async fn ended(&mut self) -> ExitStatus {
        assert_eq!(self.line().await, None);
        within("its end", self.child.wait()).await.expect("a status")
    }

    /// Opens a legacy session named `s-1` at a server that offers no stream.
    async fn open(&mut self, stub: &mut Stub) {
        self.open_without_stream(stub).await;
        let mut asked = stub.call().await;
        assert_eq!(asked.seen.head.start, "GET /mcp HTTP/1.1");
        asked.send(NO_STREAM).await;
        asked.keep();
    }

    /// The same up to where the stream is asked for.
    async fn open_without_stream(&mut self, stub: &mut Stub) {
        self.say(request("initialize", r#"{"protocolVersion":"2025-11-25"}"#)).await;
        let mut asked = stub.call().await;
        let head = &asked.seen.head;
        assert_eq!(
            (head.header("mcp-session-id"), head.header("mcp-protocol-version")),
            (None, None)
        );
        assert_eq!(head.header("accept"), Some("application/json, text/event-stream"));
        let body = result(&asked.seen, r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#);
        let length = body.len();
        asked
            .send(format!(
                "HTTP/1.1 200 OK\r\nMcp-Session-Id: s-1\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n{body}"
            ))
            .await;
        asked.keep();
        assert_eq!(self.hear().await["result"]["protocolVersion"], "2025-06-18");
        self.say(INITIALIZED).await;
        let mut asked = stub.call().await;
        in_session(&asked);
        assert_eq!(asked.seen.body, INITIALIZED);
        asked.send(ACCEPTED).await;
        asked.keep();
    }

    /// Says goodbye to a server with the session.
    async fn close(mut self, stub: &mut Stub) {
        self.hang_up();
        let mut asked = stub.call().await;
        assert_eq!(asked.seen.head.start, "DELETE /mcp HTTP/1.1");
        in_session(&asked);
        asked.send(NO_CONTENT).await;
        asked.keep();
        assert!(self.ended().await.success());
    }
}

const SVID: [&str; 8] = [
    "--certificate",
    "svid.pem",
    "--key",
    "key.pem",
    "--bundle",
    "td-one.example.org=td-one.example.org.pem",
    "--spiffe-id",
    "spiffe://td-one.example.org/lictor",
];

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What every message of a session carries.
fn in_session(call: &Call) {
    let head = &call.seen.head;
    assert_eq!(head.header("mcp-session-id"), Some("s-1"));
    assert_eq!(head.header("mcp-protocol-version"), Some("2025-06-18"));
}

/// A request with another id than 7.
fn numbered(body: &str, id: &str) -> String {
    body.replace(r#""id":7"#, &format!(r#""id":{id}"#))
}

#[tokio::test]
async fn a_session_goes_through_and_ends_with_its_client() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    // A blank line is none, and the end of a line may be Windows'.
    bridge.say(format!("\n \r\n{}\r", call("echo", r#"{"a" : [1,  2.50]}"#))).await;
    let asked = stub.call().await;
    in_session(&asked);
    assert_eq!(asked.seen.body, call("echo", r#"{"a" : [1,  2.50]}"#));
    asked.answer("{\"text\":\"a\\nb\",\n \"n\":\r\n1.10}").await;
    // One line, with its tokens as they were.
    let line = bridge.line().await.expect("a line");
    assert_eq!(line, r#"{"jsonrpc":"2.0","id":7,"result":{"text":"a\nb",  "n":  1.10}}"#);
    bridge.close(&mut stub).await;
    lictor.stop(5).await;
}

#[tokio::test]
async fn lines_that_come_all_at_once_wait_for_the_session() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    let ahead = tokio::spawn(async move {
        let all = [request("initialize", "{}"), INITIALIZED.to_owned(), call("echo", "{}")];
        bridge.say(all.join("\n")).await;
        bridge.hang_up();
        assert_eq!(bridge.hear().await["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(bridge.hear().await["result"], json!({}));
        bridge.ended().await
    });
    let mut asked = stub.call().await;
    let body = result(&asked.seen, r#"{"protocolVersion":"2025-06-18"}"#);
    let length = body.len();
    let head = "HTTP/1.1 200 OK\r\nMcp-Session-Id: s-1\r\nContent-Type: application/json";
    asked.send(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}")).await;
    asked.keep();
    let mut asked = stub.call().await;
    assert_eq!(asked.seen.body, INITIALIZED);
    asked.send(ACCEPTED).await;
    asked.keep();
    // The stream and the call may come in any order.
    for _ in 0..2 {
        let mut asked = stub.call().await;
        in_session(&asked);
        if asked.seen.head.start.starts_with("GET") {
            asked.send(NO_STREAM).await;
            asked.keep();
        } else {
            asked.answer("{}").await;
        }
    }
    let mut asked = stub.call().await;
    assert!(asked.seen.head.start.starts_with("DELETE"));
    asked.send(NO_CONTENT).await;
    assert!(within("its end", ahead).await.expect("no panic").success());
    lictor.stop(5).await;
}

#[tokio::test]
async fn refusals_and_failures_are_errors_of_their_request() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    let before = stub.requests();
    // Refused by policy, and undecodable: the error of the Lictor.
    bridge.say(call("wipe", "{}")).await;
    let heard = bridge.hear().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(4030)));
    assert!(heard["error"]["data"]["decisionId"].is_string());
    bridge
        .say(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"a","name":"b"}}"#)
        .await;
    let heard = bridge.hear().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!("x"), &json!(-32600)));
    // No message at all: said by the bridge.
    for line in ["{", "[]", "7", r#"{"id":{},"method":"ping"}"#] {
        bridge.say(line).await;
        let heard = bridge.hear().await;
        assert_eq!(
            (&heard["id"], &heard["error"]["code"]),
            (&Value::Null, &json!(-32600)),
            "{line}"
        );
    }
    assert_eq!(stub.requests(), before);
    // A server that breaks off is the Lictor's error; other statuses are the bridge's.
    bridge.say(call("echo", "{}")).await;
    drop(stub.call().await);
    let heard = bridge.hear().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(5021)));
    for (answer, code, said) in [
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", 4010, "401"),
        (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\nso\nsorry\n",
            5030,
            "so sorry",
        ),
        (ACCEPTED, 2020, "without an answer"),
    ] {
        bridge.say(call("echo", "{}")).await;
        let mut asked = stub.call().await;
        asked.send(answer).await;
        asked.keep();
        let heard = bridge.hear().await;
        assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(code)), "{heard}");
        assert!(heard["error"]["message"].as_str().expect("text").contains(said), "{heard}");
    }
    // What is no JSON-RPC, or answers something else.
    let other = r#"{"jsonrpc":"2.0","id":8,"result":{}}"#;
    for body in ["<html>", other, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#] {
        bridge.say(call("echo", "{}")).await;
        let mut asked = stub.call().await;
        asked.send(document(body)).await;
        asked.keep();
        let heard = bridge.hear().await;
        assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(5022)), "{body}");
    }
    bridge.close(&mut stub).await;
    lictor.stop(3 + 2 + 1 + 3 + 3 + 1).await;
}

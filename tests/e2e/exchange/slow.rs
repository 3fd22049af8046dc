//! Callers that take their time for an answer.

use lictor::telemetry::Clock;

use super::*;
use crate::{http::Wire, stub::result, subject::CALLER_TLS};

/// An answer that is held until it is whole, and longer than what sockets and a window of HTTP/2 hold.
const LONG: usize = 6 << 20;

/// What is read at once.
const PART: usize = 64 << 10;

/// How often.
const PACE: Duration = Duration::from_millis(40);

const ASK: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"look","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

const HEADERS: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "look")];

/// A Lictor that gives callers two seconds, and what its server answers.
async fn site() -> (Stub, Lictor) {
    let text = "x".repeat(LONG);
    let stub = Stub::answering(move |seen| {
        json(&result(seen, &format!(r#"{{"resultType":"complete","text":"{text}"}}"#)))
    })
    .await;
    let lictor = Setup::to(&stub.url()).listener("timeouts: { stall: 2s }").start().await;
    (stub, lictor)
}

/// Asks, and reads the head of the answer; the length of what follows.
async fn ask(wire: &mut Wire) -> usize {
    let headers: String =
        HEADERS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    wire.send(post_whole(&headers, ASK)).await;
    let head = wire.head().await;
    assert_eq!(head.status(), 200);
    head.header("content-length").expect("a length").parse().expect("a number")
}

async fn read(mut wire: Wire) {
    let mut left = ask(&mut wire).await;
    let mut pace = tokio::time::interval(PACE);
    while left > 0 {
        pace.tick().await;
        left -= wire.exactly(left.min(PART)).await.len();
    }
}

#[tokio::test]
async fn whoever_goes_on_reading_gets_everything() {
    let (_stub, lictor) = site().await;
    let plain = Wire::connect_narrow(lictor.plain).await;
    let tls = Wire::connect_narrow_tls(lictor.mutual, &CALLER_TLS, b"http/1.1").await;
    let mut caller = lictor.caller(Transport::Http2Tls).await;
    let mut request = caller.request("POST", whole(ASK));
    for (name, value) in HEADERS {
        request.headers_mut().insert(name, value.parse().expect("a value"));
    }
    let http2 = async {
        let mut reply = caller.send(request).await;
        let (mut pace, mut received) = (tokio::time::interval(PACE), 0);
        while let Some(part) = reply.chunk().await {
            for _ in received / PART..(received + part.len()) / PART {
                pace.tick().await;
            }
            received += part.len();
        }
        assert!(received > LONG);
    };
    let started = Clock.instant();
    tokio::join!(read(plain), read(tls), http2);
    assert!(started.elapsed() > Duration::from_secs(3), "that was no test");
    for entry in lictor.stop(3).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"ok".into(), &true.into()));
    }
}

#[tokio::test]
async fn whoever_stops_reading_is_cut() {
    let (_stub, lictor) = site().await;
    let mut wires = [
        Wire::connect_narrow(lictor.plain).await,
        Wire::connect_narrow_tls(lictor.mutual, &CALLER_TLS, b"http/1.1").await,
    ];
    for wire in &mut wires {
        let length = ask(wire).await;
        wire.exactly(length / 8).await;
    }
    for entry in lictor.stop(2).await {
        let told = (&entry["status"], &entry["complete"]);
        assert_eq!(told, (&"client_stalled".into(), &false.into()));
        assert!(entry["resp_bytes"].as_u64().is_some_and(|bytes| bytes < LONG as u64), "{entry}");
    }
}

//! Streams that readers could read in several ways.

use super::{asked, open, sampling, site};
use crate::{
    site::{agent_a, send},
    stub::Stub,
};

const SESSION: [(&str, &str); 2] =
    [("mcp-session-id", "s-a"), ("mcp-protocol-version", "2025-11-25")];
const RESUMED: [(&str, &str); 3] = [SESSION[0], SESSION[1], ("last-event-id", "1")];

/// Types of answers, as lines of their heads.
const KINDS: [&str; 4] = [
    "",
    "Content-Type: text/plain\r\n",
    "Content-Type: application/json\r\n",
    "Content-Type: x/event-stream\r\n",
];

/// The TypeScript SDKs read what comes on a session's stream as events, whatever its type says.
#[tokio::test]
async fn a_sessions_own_stream_is_events_or_nothing() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    open(&mut caller, &mut stub, "s-a").await;
    let question = format!("data: {}\n\n", sampling("1"));
    let long = question.clone() + &": x\n\n".repeat(20 << 10);
    let mut calls = 0;
    for headers in [&SESSION[..], &RESUMED[..]] {
        for body in ["", "{}", &question, &long] {
            for (status, passes) in [("200 OK", false), ("202 Accepted", false), ("405 No", true)] {
                for kind in KINDS {
                    let answer = format!(
                        "HTTP/1.1 {status}\r\n{kind}Content-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    let refused = !passes || kind.contains("event");
                    let (reply, ()) = tokio::join!(send(&mut caller, "GET", headers, ""), async {
                        let mut call = stub.call().await;
                        // Not all of it is taken.
                        call.wire.try_send(answer).await;
                        if body.len() < 1000 && !refused {
                            call.keep();
                        }
                    });
                    let answer = reply.whole().await;
                    let expected = if refused { 502 } else { 405 };
                    assert_eq!(answer.status, expected, "{status} {kind} {}", body.len());
                    assert!(!refused || !answer.text().contains("sampling"), "{status} {kind}");
                    calls += 1;
                }
            }
        }
    }
    let closings = lictor.stop(1 + calls).await;
    assert!(asked(&closings).is_empty());
    let refused = closings.iter().filter(|entry| entry["status"] == "upstream_unreadable");
    assert_eq!(refused.count(), calls * 9 / 12);
}

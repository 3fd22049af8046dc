//! Servers that fail, hang or are too busy, and what that costs their callers and everybody else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use lictor::telemetry::Clock;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    http::{Answer, Caller, Reply, whole, within},
    site::{Site, agent_a, agent_b, call, metrics, request, sample, send},
    stub::{self, Stub},
    subject::Lictor,
};

mod places;
mod probes;
mod times;

/// Short enough for a test, and long enough to be seen on a busy machine.
const BREAKER: &str = "breaker: { open: 2s, maxOpen: 2s }";

/// A server that answers every call with the status that it is told to.
struct Moody {
    stub: Stub,
    status: Arc<AtomicU16>,
}

impl Moody {
    async fn new(status: u16) -> Self {
        let status = Arc::new(AtomicU16::new(status));
        let now = Arc::clone(&status);
        let stub = Stub::answering(move |seen| match now.load(Ordering::SeqCst) {
            200 => stub::json(&stub::result(seen, "{}")),
            // An error of the call, which is no failure of the server.
            0 => stub::json(
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no such thing"}}"#,
            ),
            1 => stub::json(&stub::result(seen, r#"{"isError":true,"content":[]}"#)),
            // Breaks off.
            2 => vec![],
            status => format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n").into_bytes(),
        })
        .await;
        Self { stub, status }
    }

    fn becomes(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
}

async fn post(caller: &mut Caller, body: impl Into<String>) -> Answer {
    send(caller, "POST", &[], body).await.whole().await
}

fn list() -> String {
    request("tools/list", "{}")
}

/// The kind of a refusal; empty where the server has answered.
fn kind(answer: &Answer) -> String {
    let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    told["error"]["data"]["kind"].as_str().unwrap_or_default().to_owned()
}

/// Calls until the breaker of a server that fails is open; how often.
async fn trip(caller: &mut Caller) -> usize {
    for calls in 1..20 {
        if kind(&post(caller, call("lookup", "{}")).await) == "breaker_open" {
            return calls;
        }
    }
    panic!("it doesn't open");
}

/// Calls until the breaker isn't open any more; the answer, and how often.
async fn until_tried(caller: &mut Caller, body: &str) -> (Answer, usize) {
    let trying = async {
        let mut calls = 0;
        loop {
            calls += 1;
            let answer = post(caller, body).await;
            if kind(&answer) != "breaker_open" {
                return (answer, calls);
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("another try", trying).await
}

#[tokio::test]
async fn a_server_that_fails_is_left_alone_and_comes_back() {
    let server = Moody::new(503).await;
    let lictor = Site::to(&server.stub.url()).upstream(BREAKER).start().await;
    let mut caller = agent_a(&lictor).await;
    let mut calls = trip(&mut caller).await;
    assert_eq!((calls, server.stub.requests()), (6, 5));

    // Everybody is told at once, and for how long.
    let began = Clock.instant();
    let mut other = agent_b(&lictor).await;
    for (caller, body) in [(&mut caller, call("lookup", "{}")), (&mut other, call("echo", "{}"))] {
        let answer = post(caller, body).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, error["code"].as_i64()), (200, Some(5037)), "{error}");
        assert_eq!(answer.json()["id"], 7);
        assert_eq!(error["data"]["retryable"], true);
        let wait = error["data"]["retryAfterMs"].as_u64().expect("a time");
        assert!((1..=2200).contains(&wait), "{wait}");
        let seconds: u64 = answer.header("retry-after").expect("a header").parse().expect("one");
        assert_eq!(seconds, wait.div_ceil(1000));
        calls += 1;
    }
    let took = Clock.instant().saturating_duration_since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(server.stub.requests(), 5);
    let text = metrics(&lictor).await;
    let state = |text: &str, state: &str| {
        sample(text, "lictor_upstream_breaker_state", &[&format!("state=\"{state}\"")])
    };
    assert_eq!((state(&text, "open"), state(&text, "closed")), (1.0, 0.0));
    assert_eq!(sample(&text, "lictor_upstream_breaker_openings_total", &[]), 1.0);
    assert_eq!(sample(&text, "lictor_upstream_refused_total", &["reason=\"breaker_open\""]), 3.0);

    server.becomes(200);
    let (answer, tried) = until_tried(&mut caller, &call("lookup", "{}")).await;
    assert_eq!((answer.status, kind(&answer)), (200, String::new()));
    for _ in 0..2 {
        assert_eq!(post(&mut caller, call("lookup", "{}")).await.status, 200);
    }
    // Closed, once the end of the last answer was noticed: what may change something goes out, too.
    let (answer, more) = until_tried(&mut other, &call("echo", "{}")).await;
    assert_eq!(kind(&answer), "");
    assert_eq!(state(&metrics(&lictor).await, "closed"), 1.0);
    assert_eq!(server.stub.requests(), 9);
    let entries = lictor.stop(calls + tried + 2 + more).await;
    let refused = entries.iter().filter(|entry| entry["status"] == "breaker_open").count();
    assert_eq!(refused, 3 + tried - 1 + more - 1);
}

#[tokio::test]
async fn what_says_nothing_of_the_server_opens_nothing() {
    // 0 and 1 are an error in JSON-RPC, and one of a tool.
    for status in [0, 1, 400, 401, 403, 404, 405, 409, 429, 501] {
        let server = Moody::new(status).await;
        let lictor = Site::to(&server.stub.url()).upstream(BREAKER).start().await;
        let mut caller = agent_a(&lictor).await;
        for _ in 0..12 {
            let answer = post(&mut caller, call("lookup", "{}")).await;
            assert_ne!(kind(&answer), "breaker_open", "{status}");
        }
        // Nor what Lictor refuses itself.
        for _ in 0..12 {
            assert_eq!(kind(&post(&mut caller, call("wipe", "{}")).await), "policy_denied");
        }
        assert_eq!(server.stub.requests(), 12, "{status}");
        lictor.stop(24).await;
    }
}

/// F-24.
#[tokio::test]
async fn a_server_without_streams_is_asked_once_each_time_and_keeps_its_calls() {
    let server = Moody::new(405).await;
    let lictor = Site::to(&server.stub.url()).upstream(BREAKER).start().await;
    let mut caller = agent_a(&lictor).await;
    for asked in 1..=12 {
        assert_eq!(send(&mut caller, "GET", &[], "").await.whole().await.status, 405);
        assert_eq!(server.stub.requests(), asked);
    }
    server.becomes(200);
    assert_eq!(kind(&post(&mut caller, call("echo", "{}")).await), "");
    assert_eq!(server.stub.requests(), 13);
    lictor.stop(13).await;
}

#[tokio::test]
async fn a_caller_who_leaves_is_no_failure() {
    let mut server = Stub::scripted().await;
    let lictor = Site::to(&server.url()).upstream(BREAKER).start().await;
    for _ in 0..8 {
        let mut wire = crate::site::wire_a(&lictor).await;
        let body = call("echo", "{}");
        wire.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        let mut held = server.call().await;
        drop(wire);
        held.abandoned().await;
    }
    let mut caller = agent_a(&lictor).await;
    let body = call("echo", "{}");
    let (reply, ()) = tokio::join!(send(&mut caller, "POST", &[], body), async {
        server.call().await.answer("{}").await;
    });
    assert_eq!(kind(&reply.whole().await), "");
    lictor.stop(9).await;
}

#[tokio::test]
async fn one_bad_server_takes_no_other_with_it() {
    let gone = Stub::json().await.url();
    let well = Stub::json().await;
    let site = Site::to(&well.url())
        .beside("gone", &gone)
        .policies("permit(principal, action, resource);");
    let lictor = site.start().await;
    let mut caller = agent_a(&lictor).await;
    let mut at = async |path: &str| {
        let request = caller.request_to("POST", path, whole(call("lookup", "{}")));
        kind(&caller.send(request).await.whole().await)
    };
    for round in 0..12 {
        let expected = if round < 5 { "upstream_unreachable" } else { "breaker_open" };
        assert_eq!(at("/gone").await, expected);
        assert_eq!(at("/mcp").await, "");
    }
    assert_eq!(well.requests(), 12);
    lictor.stop(24).await;
}

#[tokio::test]
async fn nothing_that_was_sent_is_sent_again() {
    for status in [503, 500, 502, 504, 429, 0, 1, 2] {
        let server = Moody::new(status).await;
        let lictor = Site::to(&server.stub.url()).start().await;
        let mut caller = agent_a(&lictor).await;
        for (number, tool) in ["echo", "lookup"].into_iter().enumerate() {
            let answer = post(&mut caller, call(tool, "{}")).await;
            assert_eq!(server.stub.requests(), number + 1, "{status} {tool} {}", answer.status);
        }
        lictor.stop(2).await;
    }
}

#[tokio::test]
async fn where_denials_are_recorded_only_so_are_these() {
    let server = Moody::new(503).await;
    let site = Site::to(&server.stub.url()).upstream(BREAKER).route("mode: shadow");
    let lictor = site.start().await;
    let mut caller = agent_a(&lictor).await;
    for _ in 0..12 {
        assert_eq!(post(&mut caller, call("lookup", "{}")).await.status, 503);
    }
    assert_eq!(server.stub.requests(), 12);
    let text = metrics(&lictor).await;
    let counted = sample(&text, "lictor_shadow_denials_total", &["kind=\"breaker_open\""]);
    assert!((1.0..=7.0).contains(&counted), "{counted}");
    lictor.stop(12).await;
}

#[tokio::test]
async fn a_stream_and_the_end_of_a_session_are_told_to_come_later() {
    let server = Moody::new(503).await;
    let lictor = Site::to(&server.stub.url()).upstream("breaker: { open: 60s }").start().await;
    let mut caller = agent_a(&lictor).await;
    let calls = trip(&mut caller).await;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    for (method, body) in [("GET", ""), ("POST", note)] {
        let reply: Reply = send(&mut caller, method, &[], body).await;
        let answer = reply.whole().await;
        assert_eq!(answer.status, 503, "{method}");
        let wait: u64 = answer.header("retry-after").expect("a header").parse().expect("seconds");
        assert!((30..=66).contains(&wait), "{wait}");
        let told: Value = answer.json();
        assert_eq!(told["error"]["code"], 5037);
    }
    lictor.stop(calls + 2).await;
}

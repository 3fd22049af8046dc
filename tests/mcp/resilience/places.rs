//! How many calls and streams a server has at once.

use super::*;
use crate::{http::Wire, site::wire_a, stub::Call};

const TWO: &str =
    "bulkhead: { calls: 2, callsPerCaller: 1, streams: 2, streamsPerCaller: 1, queue: 0 }";

fn posted(body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A call of `agent-a` that the server has.
async fn begun(lictor: &Lictor, server: &mut Stub) -> (Wire, Call) {
    let mut wire = wire_a(lictor).await;
    wire.send(posted(&call("echo", "{}"))).await;
    (wire, server.call().await)
}

async fn taken(lictor: &Lictor) -> (f64, f64) {
    let text = metrics(lictor).await;
    let of =
        |kind: &str| sample(&text, "lictor_upstream_places_taken", &[&format!("kind=\"{kind}\"")]);
    (of("call"), of("stream"))
}

async fn until_taken(lictor: &Lictor, places: (f64, f64)) {
    let looking = async {
        while taken(lictor).await != places {
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("places", looking).await;
}

#[tokio::test]
async fn one_caller_has_its_share_and_the_others_have_theirs() {
    let mut server = Stub::scripted().await;
    let lictor = Site::to(&server.url()).upstream(TWO).start().await;
    let (mut first, mut held) = begun(&lictor, &mut server).await;
    assert_eq!(taken(&lictor).await, (1.0, 0.0));
    let mut caller = agent_a(&lictor).await;
    let answer = post(&mut caller, call("echo", "{}")).await;
    let error = &answer.json()["error"];
    assert_eq!((answer.status, error["code"].as_i64()), (200, Some(5038)), "{error}");
    assert_eq!(error["data"]["kind"], "upstream_busy");
    let wait = error["data"]["retryAfterMs"].as_u64().expect("a wait");
    assert!((1000..=1100).contains(&wait), "{wait}");
    assert_eq!(answer.header("retry-after"), Some(&*wait.div_ceil(1000).to_string()));
    // What the call may be waiting for goes through.
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let (reply, ()) = tokio::join!(send(&mut caller, "POST", &[], note), async {
        let mut call = server.call().await;
        call.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
        call.keep();
    });
    assert_eq!(reply.whole().await.status, 202);
    let mut other = agent_b(&lictor).await;
    let body = call("echo", "{}");
    let (reply, ()) = tokio::join!(send(&mut other, "POST", &[], body), async {
        server.call().await.answer("{}").await;
    });
    assert_eq!(kind(&reply.whole().await), "");
    held.send(stub::json(&stub::result(&held.seen, "{}"))).await;
    assert_eq!(first.answer().await.status, 200);
    until_taken(&lictor, (0.0, 0.0)).await;
    let text = metrics(&lictor).await;
    assert_eq!(sample(&text, "lictor_upstream_refused_total", &["reason=\"caller_full\""]), 1.0);
    lictor.stop(4).await;
}

#[tokio::test]
async fn a_stream_leaves_its_place_to_calls() {
    let mut server = Stub::scripted().await;
    let lictor = Site::to(&server.url()).upstream(TWO).start().await;
    let (mut first, mut stream) = begun(&lictor, &mut server).await;
    stream.begin_events().await;
    assert_eq!(first.head().await.status(), 200);
    assert_eq!(taken(&lictor).await, (0.0, 1.0));
    // The second one finds no stream's place and keeps its own.
    let (mut second, mut another) = begun(&lictor, &mut server).await;
    another.begin_events().await;
    assert_eq!(second.head().await.status(), 200);
    assert_eq!(taken(&lictor).await, (1.0, 1.0));
    let mut caller = agent_a(&lictor).await;
    assert_eq!(kind(&post(&mut caller, call("echo", "{}")).await), "upstream_busy");
    // Who only listens is told to come later.
    let answer = send(&mut caller, "GET", &[], "").await.whole().await;
    assert_eq!((answer.status, kind(&answer).as_str()), (503, "upstream_busy"));
    drop((first, second));
    stream.abandoned().await;
    another.abandoned().await;
    until_taken(&lictor, (0.0, 0.0)).await;
    lictor.stop(4).await;
}

#[tokio::test]
async fn a_call_waits_shortly_for_a_place() {
    let mut server = Stub::scripted().await;
    let one = "bulkhead: { calls: 1, callsPerCaller: 1, queue: 1, queueTime: 5s }";
    let lictor = Site::to(&server.url()).upstream(one).start().await;
    let (mut first, held) = begun(&lictor, &mut server).await;
    let mut other = agent_b(&lictor).await;
    let body = call("echo", "{}");
    let (reply, ()) = tokio::join!(send(&mut other, "POST", &[], body), async {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(server.requests(), 1);
        held.answer("{}").await;
        server.call().await.answer("{}").await;
    });
    assert_eq!(kind(&reply.whole().await), "");
    assert_eq!(first.answer().await.status, 200);
    lictor.stop(2).await;
}

#[tokio::test]
async fn who_leaves_the_queue_is_not_sent() {
    let mut server = Stub::scripted().await;
    let one = "bulkhead: { calls: 1, callsPerCaller: 1, queue: 1, queueTime: 60s }";
    let lictor = Site::to(&server.url()).upstream(one).start().await;
    let (mut first, held) = begun(&lictor, &mut server).await;
    let mut waits = crate::http::Caller::tls(lictor.mutual, &crate::site::TLS_B, false).await;
    let body = call("echo", "{}");
    let left =
        tokio::time::timeout(Duration::from_millis(300), send(&mut waits, "POST", &[], body));
    assert!(left.await.is_err());
    drop(waits);
    let left = async {
        let gone = ["outcome=\"client_gone\""];
        while sample(&metrics(&lictor).await, "lictor_calls_total", &gone) < 1.0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("the end of a call", left).await;
    held.answer("{}").await;
    assert_eq!(first.answer().await.status, 200);
    let mut other = agent_b(&lictor).await;
    let body = call("echo", "{}");
    let (reply, ()) = tokio::join!(send(&mut other, "POST", &[], body), async {
        server.call().await.answer("{}").await;
    });
    assert_eq!(kind(&reply.whole().await), "");
    assert_eq!(server.requests(), 2);
    lictor.stop(3).await;
}

//! Bounds on size, time and memory.

use super::*;

#[tokio::test]
async fn bodies_are_limited_to_the_byte() {
    const LIMIT: usize = 1024;
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).with("limits: { body: 1KiB }").start().await;
    let mut requests = 0;
    for length in [LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT] {
        for transport in TRANSPORTS {
            for announced in [true, false] {
                let mut caller = lictor.caller(transport).await;
                let body = padded(length);
                let request = match announced {
                    true => caller.request("POST", whole(body)),
                    false => caller.request("POST", pieces(&body, 100)),
                };
                let answer = caller.send(request).await.whole().await;
                requests += 1;
                let label = format!("{transport:?} {length} {announced}");
                if length <= LIMIT {
                    assert_eq!(answer.status, 200, "{label}");
                    continue;
                }
                let told = (answer.status, answer.kind());
                assert_eq!(told, (413, "request_too_large".to_owned()), "{label}");
                let error = &answer.json()["error"];
                assert_eq!(error["data"]["limit"], LIMIT, "{label}");
                assert!(error["message"].as_str().expect("text").contains("1024"), "{label}");
            }
        }
    }
    assert_eq!(stub.requests(), requests / 2);
    assert!(stub.seen().iter().all(|seen| seen.body.len() <= LIMIT));
    lictor.stop(requests).await;
}

/// A body without a length.
fn pieces(body: &str, size: usize) -> crate::http::Outgoing {
    use http_body_util::{BodyExt, StreamBody};
    let frames: Vec<_> = body
        .as_bytes()
        .chunks(size)
        .map(|piece| Ok(hyper::body::Frame::data(bytes::Bytes::copy_from_slice(piece))))
        .collect();
    StreamBody::new(tokio_stream::iter(frames)).boxed()
}

#[tokio::test]
async fn a_body_without_end_ends_at_the_limit() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).with("limits: { body: 64KiB }").start().await;
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        wire.send(post("Transfer-Encoding: chunked\r\n", "")).await;
        let piece = crate::stub::chunk(&[b' '; 1 << 10]);
        let sending = async { while wire.try_send(&piece).await {} };
        within("the end of the connection", sending).await;
        let told = String::from_utf8_lossy(&wire.rest().await).into_owned();
        // The answer may be lost to the reset that the unread rest causes.
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 413 "), "{told}");
    }
    assert_eq!(stub.connections(), 0);
    for entry in lictor.stop(2).await {
        assert_eq!(entry["status"], "request_too_large");
    }
}

#[tokio::test]
async fn a_length_beyond_the_limit_is_refused_before_the_body_comes() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        wire.send(post("Content-Length: 4194305\r\n", "")).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.kind().as_str()), (413, "request_too_large"));
        wire.ends().await;
    }
    assert_eq!(stub.connections(), 0);
    lictor.stop(2).await;
}

#[tokio::test]
async fn bodies_in_flight_are_limited_together() {
    let stub = Stub::json().await;
    let limits = "limits: { body: 64KiB, bodiesInFlight: 64KiB }";
    let lictor = Setup::to(&stub.url()).with(limits).start().await;
    let mut holder = lictor.wire().await;
    holder.send(post("Expect: 100-continue\r\nContent-Length: 65536\r\n", "")).await;
    assert_eq!(holder.head().await.status(), 100);
    // What is only announced takes nothing from others.
    let mut served = 0;
    for transport in TRANSPORTS {
        let answer = lictor.caller(transport).await.post(CALL).await.whole().await;
        assert_eq!(answer.status, 200, "{transport:?}");
        served += 1;
    }
    let admin = lictor.administration();
    let taken = async |bytes: usize| {
        let sample = format!("lictor_bodies_in_flight_bytes {bytes}\n");
        loop {
            let mut scraper = Caller::plain(admin).await;
            let request = scraper.request_to("GET", "/metrics", whole(""));
            let told = scraper.send(request).await.whole().await.text();
            if told.contains(&sample) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    // A call gives its share back a moment after its answer has arrived, and all that is there is taken before
    // the next one comes: otherwise another could be the one that is refused.
    within("the budget is given back", taken(0)).await;
    holder.send("x".repeat(65535)).await;
    within("the budget is taken", taken(65535)).await;
    let before = stub.connections();
    for transport in TRANSPORTS {
        let answer = lictor.caller(transport).await.post(CALL).await.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (503, "overloaded"), "{transport:?}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"]["data"]["retryable"], true);
    }
    assert_eq!(stub.connections(), before);
    drop(holder);
    let mut tries = 0;
    let recovered = async {
        loop {
            tries += 1;
            let answer = lictor.caller(Transport::Http1).await.post(CALL).await.whole().await;
            if answer.status == 200 {
                return;
            }
            assert_eq!(answer.kind(), "overloaded");
        }
    };
    within("the budget is given back", recovered).await;
    lictor.stop(served + 4 + tries).await;
}

#[tokio::test]
async fn lists_that_are_held_count_too() {
    let stub = Stub::answering(|seen| {
        let tools = r#"{"name":"look"},"#.repeat(8 << 10);
        let id = seen.id();
        let result = format!(r#"{{"tools":[{}]}}"#, tools.trim_end_matches(','));
        let message = crate::stub::result(seen, if id == "7" { "{}" } else { &result });
        if id != "2" {
            return crate::stub::json(&message);
        }
        let event = crate::stub::chunk(format!("data: {message}\n\n").as_bytes());
        [crate::stub::EVENTS.as_bytes(), &event, b"0\r\n\r\n"].concat()
    })
    .await;
    let lictor =
        Setup::to(&stub.url()).with("limits: { body: 16KiB, bodiesInFlight: 64KiB }").start().await;
    let list = |id: &str| CALL.replace(":7", id).replace("tools/call", "tools/list");
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let answer = caller.post(list(":1")).await.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (503, "overloaded"), "{transport:?}");
        let answer = caller.post(list(":2")).await.whole().await;
        assert!(answer.text().contains("overloaded"), "{transport:?}: {}", answer.text());
        assert!(!answer.text().contains("look"));
        // It is given back.
        assert_eq!(caller.post(CALL).await.whole().await.status, 200);
    }
    lictor.stop(9).await;
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).listener("timeouts: { head: 500ms }").start().await;
    let whole = post_whole("", CALL);
    for start in ["", "P", "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "] {
        for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
            wire.send(start).await;
            wire.ends().await;
        }
    }
    // Nor is HTTP/2 waited for, before its preface and behind it.
    for start in ["", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        let mut wire = lictor.wire_http2().await;
        wire.send(start).await;
        // Whatever the other side says of itself first.
        wire.rest().await;
    }
    // Byte by byte is no better.
    let mut wire = lictor.wire().await;
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let mut sent = 0;
    for byte in whole.bytes() {
        pace.tick().await;
        if !wire.try_send([byte]).await {
            break;
        }
        sent += 1;
    }
    assert!(sent < whole.len(), "it was waited for");
    assert_eq!(stub.connections(), 0);
    lictor.stop(0).await;
}

#[tokio::test]
async fn a_connection_may_idle_for_so_long() {
    let stub = Stub::json().await;
    let timeouts = "timeouts: { head: 10s, idle: 500ms }";
    let lictor = Setup::to(&stub.url()).listener(timeouts).start().await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        assert_eq!(caller.post(CALL).await.whole().await.status, 200);
        caller.closed().await;
    }
    lictor.stop(3).await;
    // The beginning of another head keeps it for as long as a head may take.
    let timeouts = "timeouts: { head: 500ms, idle: 60s }";
    let lictor = Setup::to(&stub.url()).listener(timeouts).start().await;
    let mut wire = lictor.wire().await;
    wire.send(post_whole("", CALL)).await;
    assert_eq!(wire.answer().await.status, 200);
    wire.send("POST /mcp HTTP/1.1\r\n").await;
    wire.ends().await;
    lictor.stop(1).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).listener("timeouts: { body: 500ms }").start().await;
    let parts = [
        post("Content-Length: 100\r\n", ""),
        post("Content-Length: 100\r\n", "{"),
        post("Transfer-Encoding: chunked\r\n", "1\r\n{\r\n"),
    ];
    let mut waiting = Vec::new();
    for part in &parts {
        for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
            wire.send(part).await;
            waiting.push(wire);
        }
    }
    for mut wire in waiting {
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.kind().as_str()), (408, "request_timeout"));
        wire.ends().await;
    }
    assert_eq!(stub.connections(), 0);
    lictor.stop(6).await;
}

/// Sends events without end until nobody takes them.
async fn flood(mut call: Call) {
    call.begin_events().await;
    let piece = crate::stub::chunk(format!("data: {}\n\n", "x".repeat(60 << 10)).as_bytes());
    while call.wire.try_send(&piece).await {}
}

#[tokio::test]
async fn a_caller_who_does_not_read_is_cut() {
    let mut stub = Stub::scripted().await;
    let lictor = Setup::to(&stub.url()).listener("timeouts: { stall: 1s }").start().await;
    // Nobody reads from these.
    let mut plain = lictor.wire().await;
    plain.send(post_whole("", CALL)).await;
    flood(stub.call().await).await;
    let mut tls = lictor.wire_tls().await;
    tls.send(post_whole("", CALL)).await;
    flood(stub.call().await).await;
    let mut caller = lictor.caller(Transport::Http2Tls).await;
    let (reply, call) = tokio::join!(caller.post(CALL), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    });
    let piece = crate::stub::chunk(format!("data: {}\n\n", "x".repeat(60 << 10)).as_bytes());
    let mut call = call;
    while call.wire.try_send(&piece).await {}
    drop(reply);
    for entry in lictor.stop(3).await {
        assert_eq!(
            (&entry["status"], &entry["complete"]),
            (&"client_stalled".into(), &false.into())
        );
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_given_up() {
    let mut stub = Stub::scripted().await;
    let timeouts = format!("timeouts: {{ firstByte: 500ms, idle: 500ms }}, {NO_BREAKER}");
    let lictor = Setup::to(&stub.url()).upstream(&timeouts).start().await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let (reply, ()) = tokio::join!(caller.post(CHANGE), abandoned(&mut stub));
        let answer = reply.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (504, "upstream_timeout"));
        assert_eq!(
            (&answer.json()["id"], &answer.json()["error"]["code"]),
            (&7.into(), &5040.into())
        );
        // Silent in the middle of a document.
        let (reply, ()) = tokio::join!(caller.post(CHANGE), async {
            let mut call = stub.call().await;
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").await;
            call.abandoned().await;
        });
        let answer = reply.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (504, "upstream_timeout"));
        // And of one that is too long to be held.
        let (reply, ()) = tokio::join!(caller.post(CHANGE), async {
            let mut call = stub.call().await;
            let begun = format!("{{\"{}", "x".repeat(100_000));
            call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n{begun}")).await;
            call.abandoned().await;
        });
        let mut reply = reply;
        let mut received = 0;
        while let Ok(Some(part)) = reply.try_chunk().await {
            received += part.len();
        }
        assert_eq!(received, 100_002, "{transport:?}");
    }
    assert_eq!(stub.requests(), 9);
    for entry in lictor.stop(9).await {
        assert_eq!(entry["status"], "upstream_timeout");
    }
}

#[tokio::test]
async fn connections_are_limited() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).listener("maxConnections: 2").start().await;
    let mut held = [lictor.wire().await, lictor.wire().await];
    for wire in &mut held {
        wire.send(post_whole("", CALL)).await;
        assert_eq!(wire.answer().await.status, 200);
    }
    let mut third = lictor.wire().await;
    third.try_send(post_whole("", CALL)).await;
    third.ends().await;
    drop(held);
    let recovered = async {
        loop {
            let mut wire = lictor.wire().await;
            wire.try_send(post_whole("", CALL)).await;
            if let Some(head) = wire.try_head().await {
                return assert_eq!(head.status(), 200);
            }
        }
    };
    within("a free place", recovered).await;
    assert_eq!(stub.requests(), 3);
    lictor.stop(3).await;
}

//! What comes on a connection beside one request: another one, its end, and what HTTP/1.0 and `Expect` ask for.

use super::*;

#[tokio::test]
async fn a_second_request_behind_the_first_is_not_lost_in_it() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    // Pipelining isn't served: the first request is answered, and the connection ends.
    let (answer, mut wire) = ask(&lictor, format!("{}{}", post_whole("", CALL), smuggled())).await;
    assert_eq!(answer.json()["id"], 7);
    wire.ends().await;
    assert!(stub.only().head.header("x-smuggled").is_none());
    // Nor does it become the body of an upgrade.
    let upgrade =
        "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n";
    let (answer, mut wire) = ask(&lictor, format!("{upgrade}{}", smuggled())).await;
    assert_eq!((answer.status, answer.kind().as_str()), (400, "bad_request"));
    wire.ends().await;
    assert_eq!(stub.requests(), 1);
    lictor.stop(2).await;
}

#[tokio::test]
async fn a_message_comes_in_whatever_pieces() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    // Longer than what is read at once, and than one record of TLS.
    let long = CALL.replacen("{", &format!("{{{}", " ".repeat(100_000)), 1);
    let mut requests = 0;
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        for body in [CALL, &long] {
            let text = post_whole("X-Note: a\r\n", body);
            let head = text.len() - body.len();
            let cuts = [1, 20, head - 3, head - 2, head - 1, head, head + 1, text.len() - 1];
            for cut in cuts.map(|cut| vec![cut]).into_iter().chain([vec![], cuts.to_vec()]) {
                let mut sent = 0;
                for cut in cut.into_iter().chain([text.len()]) {
                    wire.send(&text.as_bytes()[sent..cut]).await;
                    // Long enough to be read by itself mostly; nothing depends on it.
                    tokio::task::yield_now().await;
                    sent = cut;
                }
                assert_eq!(wire.answer().await.json()["id"], 7);
                requests += 1;
            }
            assert!(stub.seen().iter().rev().take(10).all(|seen| seen.body == body.as_bytes()));
        }
    }
    assert_eq!(stub.requests(), requests);
    lictor.stop(requests).await;
}

/// A request came while another was in flight. If it came before Lictor was done with the first, the
/// connection ends; else it is a request like any other. Whether it was served.
async fn ended_or_served(wire: &mut Wire, stub: &mut Stub) -> bool {
    tokio::select! {
        () = wire.ends() => return false,
        call = stub.call() => {
            assert_eq!(call.seen.head.start, "POST /mcp HTTP/1.1");
            assert_eq!(call.seen.body, CALL);
            call.answer("{}").await;
        }
    }
    assert_eq!(wire.answer().await.json()["id"], 7);
    true
}

#[tokio::test]
async fn a_request_while_another_is_in_flight_does_not_hang() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut requests = 0;
    for tls in [false, true, false, true] {
        let wires = match tls {
            true => [lictor.wire_tls().await, lictor.wire_tls().await],
            false => [lictor.wire().await, lictor.wire().await],
        };
        let [mut waiting, mut reading] = wires;
        // Before the head of the answer …
        waiting.send(post_whole("", CALL)).await;
        let call = stub.call().await;
        waiting.send(smuggled()).await;
        call.answer("{}").await;
        assert_eq!(waiting.answer().await.json()["id"], 7);
        requests += 1 + usize::from(ended_or_served(&mut waiting, &mut stub).await);
        // … and within its body.
        reading.send(post_whole("", CALL)).await;
        let mut call = stub.call().await;
        call.begin_events().await;
        call.chunk(": hello\n\n").await;
        assert_eq!(reading.head().await.status(), 200);
        assert_eq!(reading.chunk().await.as_deref(), Some(&b": hello\n\n"[..]));
        reading.send(smuggled()).await;
        let last = format!("data: {}\n\n", result(&call.seen, "{}"));
        call.chunk(&last).await;
        call.end().await;
        assert_eq!(reading.chunk().await.as_deref(), Some(last.as_bytes()));
        assert_eq!(reading.chunk().await, None);
        requests += 1 + usize::from(ended_or_served(&mut reading, &mut stub).await);
    }
    assert_eq!(stub.requests(), requests);
    lictor.stop(requests).await;
}

#[tokio::test]
async fn a_caller_who_has_nothing_more_to_say_counts_as_gone() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        wire.send(post_whole("", CALL)).await;
        let mut call = stub.call().await;
        wire.finish().await;
        call.abandoned().await;
        wire.ends().await;
    }
    for entry in lictor.stop(2).await {
        assert_eq!(entry["status"], "client_gone");
    }
}

#[tokio::test]
async fn continue_is_said_after_the_check_and_only_then() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).with("limits: { body: 1KiB }").start().await;
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        let expect = format!("Expect: 100-continue\r\nContent-Length: {}\r\n", CALL.len());
        wire.send(post(&expect, "")).await;
        assert_eq!(wire.head().await.status(), 100);
        wire.send(CALL).await;
        assert_eq!(wire.answer().await.json()["id"], 7);
        // In chunks, and written like that.
        wire.send(post("Expect: 100-CONTINUE\r\nTransfer-Encoding: chunked\r\n", "")).await;
        assert_eq!(wire.head().await.status(), 100);
        wire.send(chunk(CALL.as_bytes())).await;
        wire.send("0\r\n\r\n").await;
        assert_eq!(wire.answer().await.json()["id"], 7);
        // Too long: refused before a byte of the body was asked for.
        wire.send(post("Expect: 100-continue\r\nContent-Length: 1025\r\n", "")).await;
        let head = wire.head().await;
        assert_eq!(head.status(), 413);
    }
    for (target, status) in [("/other", 404), ("/mcp/../x", 400)] {
        let text = post("Expect: 100-continue\r\nContent-Length: 9\r\n", "");
        let (mut wire, text) = (lictor.wire().await, text.replacen("/mcp", target, 1));
        wire.send(text).await;
        assert_eq!(wire.head().await.status(), status, "{target}");
    }
    let seen = stub.seen();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|seen| !seen.head.headers.contains_key("expect")));
    lictor.stop(8).await;
}

#[tokio::test]
async fn a_client_of_http_1_0_is_served_and_sees_the_end() {
    let stub = Stub::answering(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
          2\r\n{}\r\n0\r\n\r\n"
            .to_vec()
    })
    .await;
    let lictor = Lictor::start(&stub.url()).await;
    let text = post_whole("", CALL).replace("HTTP/1.1", "HTTP/1.0");
    let (answer, mut wire) = ask(&lictor, text).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    assert_eq!(answer.header("transfer-encoding"), None);
    wire.ends().await;
    assert_eq!(stub.only().head.start, "POST /mcp HTTP/1.1");
    // What it expects isn't looked at.
    let expect = "Expect: 100-continue\r\n";
    let text = post_whole(expect, CALL).replace("HTTP/1.1", "HTTP/1.0");
    let mut wire = lictor.wire().await;
    wire.send(text).await;
    assert_eq!(wire.head().await.status(), 200);
    lictor.stop(2).await;
}

//! The end of the process: what is told, what may finish, and when it is over.

use super::*;
use crate::{
    CHANGE,
    framing::http2::{DATA, END_HEADERS, END_STREAM, GOOD, HEADERS, SETTINGS, frame, literals},
    http::Wire,
    post_whole,
    subject::CALLER_TLS,
};

const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;

#[tokio::test]
async fn what_is_idle_ends_at_once() {
    let stub = Stub::json().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let mut fresh = lictor.wire().await;
    let mut wire = lictor.wire_tls().await;
    wire.send(post_whole("", CALL)).await;
    assert_eq!(wire.answer().await.status, 200);
    let mut callers = Vec::new();
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        assert_eq!(caller.post(CALL).await.whole().await.status, 200);
        callers.push(caller);
    }
    lictor.terminate().await;
    let (plain, mutual) = (lictor.plain, lictor.mutual);
    let ending = async {
        fresh.ends().await;
        wire.ends().await;
        for caller in callers {
            caller.closed().await;
        }
        assert!(lictor.ended().await.success());
    };
    // Far below the time that calls in flight would have.
    timeout(Duration::from_secs(5), ending).await.expect("at once");
    for address in [plain, mutual] {
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
    }
    lictor.closings(4).await;
}

#[tokio::test]
async fn a_message_that_has_begun_to_come_is_served() {
    let stub = Stub::json().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let (begin, end) = ("POST /mc", post_whole("", CALL).replacen("POST /mc", "", 1));
    let mut wires = vec![lictor.wire().await, lictor.wire_tls().await];
    for wire in &mut wires {
        wire.send(post_whole("", CALL)).await;
        assert_eq!(wire.answer().await.status, 200);
        wire.send(begin).await;
    }
    lictor.terminate().await;
    lictor.shut().await;
    for wire in &mut wires {
        wire.send(&end).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        wire.ends().await;
    }
    assert!(lictor.ended().await.success());
    assert_eq!(stub.requests(), 4);
    lictor.closings(4).await;
}

#[tokio::test]
async fn a_call_in_flight_finishes() {
    let mut stub = Stub::scripted().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let mut running = Vec::new();
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let request = caller.request("POST", whole(CHANGE));
        let waiting = tokio::spawn(async move {
            let reply = caller.send(request).await;
            let connection = reply.header("connection").map(str::to_owned);
            (reply.whole().await, connection, caller)
        });
        let call = stub.call().await;
        // Another one has its answer under way.
        let streaming = streaming(&lictor, &mut stub, transport, CALL).await;
        running.push((transport, waiting, call, streaming));
    }
    lictor.terminate().await;
    lictor.shut().await;
    for (transport, waiting, call, (caller, mut reply, mut events)) in running {
        call.answer(r#"{"done":true}"#).await;
        let (answer, connection, waiting) = within("the answer", waiting).await.expect("no panic");
        assert_eq!(answer.json()["result"]["done"], true, "{transport:?}");
        if transport != Transport::Http2Tls {
            assert_eq!(connection.as_deref(), Some("close"), "{transport:?}");
        }
        let last = format!("data: {}\n\n", result(&events.seen, "{}"));
        events.chunk(&last).await;
        events.end().await;
        assert_eq!(rest_of(&mut reply).await, last, "{transport:?}");
        drop(reply);
        waiting.closed().await;
        caller.closed().await;
    }
    assert!(lictor.ended().await.success());
    for entry in lictor.closings(6).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"ok".into(), &true.into()));
    }
}

/// With HTTP/2, the connection still holds the end of an answer when the call is over.
#[tokio::test]
async fn the_tail_of_an_answer_arrives() {
    // More than the sockets hold, and less than that and what HTTP/2 queues.
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(450 << 10));
    let mut stub = Stub::scripted().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let mut wire = Wire::connect_narrow_tls(lictor.mutual, &CALLER_TLS, b"h2").await;
    wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    // No window of HTTP/2 holds anything up: SETTINGS_INITIAL_WINDOW_SIZE, and that of the connection.
    let wide = (1_u32 << 30).to_be_bytes();
    wire.send(frame(SETTINGS, 0, 0, &[&[0, 4], &wide[..]].concat())).await;
    wire.send(frame(WINDOW_UPDATE, 0, 0, &wide)).await;
    wire.send(frame(HEADERS, END_HEADERS, 1, &literals(&GOOD))).await;
    wire.send(frame(DATA, END_STREAM, 1, CALL.as_bytes())).await;
    let call = stub.call().await;
    let expected = result(&call.seen, &text).len();
    lictor.terminate().await;
    lictor.shut().await;
    call.answer(&text).await;
    // The caller has other things to do.
    assert!(timeout(Duration::from_secs(1), lictor.ended()).await.is_err(), "it leaves it behind");
    let outcome = lictor.entries().await.into_iter().find(|entry| entry["kind"] == "outcome");
    let outcome = outcome.expect("nothing is in flight");
    assert_eq!((&outcome["status"], &outcome["complete"]), (&"ok".into(), &true.into()));
    let mut received = 0;
    loop {
        let head = wire.exactly(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = wire.exactly(length).await;
        match head[3] {
            DATA => received += length,
            PING if head[4] & ACK == 0 => wire.send(frame(PING, ACK, 0, &payload)).await,
            _ => {}
        }
        if head[3] == DATA && head[4] & END_STREAM != 0 {
            break;
        }
    }
    assert_eq!(received, expected);
    wire.rest().await;
    let ended = timeout(Duration::from_secs(1), lictor.ended()).await;
    assert!(ended.expect("there is nothing to wait for").success());
    lictor.closings(1).await;
}

#[tokio::test]
async fn streams_that_only_listen_end_well() {
    let mut stub = Stub::scripted().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let mut listeners = Vec::new();
    for transport in TRANSPORTS {
        let modern = listening(&lictor, &mut stub, transport).await;
        listeners.push((modern, getting(&lictor, &mut stub, transport).await));
    }
    lictor.terminate().await;
    let ending = async {
        for ((_a, mut modern, mut first), (_b, mut legacy, mut second)) in listeners {
            let error = last_error(&rest_of(&mut modern).await);
            assert_eq!(
                (&error["id"], &error["error"]["data"]["kind"]),
                (&"l-1".into(), &"draining".into())
            );
            assert_eq!(error["error"]["data"]["retryable"], true);
            assert_eq!(rest_of(&mut legacy).await, "");
            first.abandoned().await;
            second.abandoned().await;
        }
        assert!(lictor.ended().await.success());
    };
    timeout(Duration::from_secs(5), ending).await.expect("at once");
    for entry in lictor.closings(6).await {
        assert_eq!(entry["status"], "draining");
    }
}

/// Some servers send the head of such a stream with its first event.
#[tokio::test]
async fn streams_whose_head_has_not_come_end_as_well() {
    let mut stub = Stub::scripted().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let mut waiting = Vec::new();
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let request = caller.request("GET", whole(""));
        let answer = tokio::spawn(async move { caller.send(request).await.whole().await });
        waiting.push((answer, stub.call().await));
    }
    lictor.terminate().await;
    let ending = async {
        for (answer, mut call) in waiting {
            let answer = answer.await.expect("no panic");
            assert_eq!((answer.status, answer.kind().as_str()), (503, "draining"));
            call.abandoned().await;
        }
        assert!(lictor.ended().await.success());
    };
    timeout(Duration::from_secs(5), ending).await.expect("at once");
    for entry in lictor.closings(3).await {
        assert_eq!(entry["status"], "draining");
    }
}

/// Sends events until nobody takes any for a while.
async fn fill(call: &mut Call) {
    let event = crate::stub::chunk(format!("data: {}\n\n", "x".repeat(60 << 10)).as_bytes());
    while timeout(Duration::from_millis(500), call.wire.try_send(&event)).await.is_ok() {}
}

#[tokio::test]
async fn a_listener_who_does_not_read_holds_nothing_up() {
    let mut stub = Stub::scripted().await;
    let setup = Setup::to(&stub.url()).listener("timeouts: { stall: 60s }");
    let mut lictor = setup.start().await;
    let get = "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let mut stalled = Vec::new();
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        wire.send(get).await;
        let mut call = stub.call().await;
        call.begin_events().await;
        fill(&mut call).await;
        stalled.push((wire, call));
    }
    lictor.terminate().await;
    let ended = timeout(Duration::from_secs(8), lictor.ended()).await;
    assert!(ended.expect("soon").success());
    for entry in lictor.closings(2).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"draining".into(), &false.into()));
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_told_so() {
    let mut stub = Stub::scripted().await;
    // Nothing else may end what is stuck.
    let timeouts = "timeouts: { body: 60s, stall: 60s }";
    let setup = Setup::to(&stub.url()).listener(timeouts).with("drain: 3s");
    let mut lictor = setup.start().await;
    // Stuck in the middle of a body, and in the middle of an answer that isn't read.
    let mut stuck = lictor.wire().await;
    stuck.send(crate::post("Content-Length: 100\r\nExpect: 100-continue\r\n", "")).await;
    assert_eq!(stuck.head().await.status(), 100);
    let mut unread = lictor.wire_tls().await;
    unread.send(post_whole("", CALL)).await;
    let mut flooding = stub.call().await;
    flooding.begin_events().await;
    fill(&mut flooding).await;
    let mut running = Vec::new();
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let request = caller.request("POST", whole(CHANGE));
        let waiting = tokio::spawn(async move { caller.send(request).await.whole().await });
        let call = stub.call().await;
        let (caller, mut reply, mut events) = streaming(&lictor, &mut stub, transport, CALL).await;
        let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
        events.chunk(event).await;
        assert_eq!(text_of(&mut reply, event.len()).await, event);
        running.push((transport, waiting, call, caller, reply, events));
    }
    lictor.terminate().await;
    // Calls in flight have their time, and streams some more to say goodbye.
    assert!(timeout(Duration::from_secs(2), lictor.ended()).await.is_err());
    let ended = timeout(Duration::from_secs(8), lictor.ended()).await;
    assert!(ended.expect("in time").success());
    for (transport, waiting, mut call, _caller, mut reply, mut events) in running {
        let answer = within("the answer", waiting).await.expect("no panic");
        assert_eq!((answer.status, answer.kind().as_str()), (503, "draining"), "{transport:?}");
        assert_eq!(answer.json()["id"], 7);
        let text = rest_of(&mut reply).await.replace(": keep-alive\n\n", "");
        let error = last_error(&text);
        assert_eq!(
            (&error["id"], &error["error"]["data"]["kind"]),
            (&7.into(), &"draining".into())
        );
        call.abandoned().await;
        events.abandoned().await;
    }
    drop((stuck, unread, flooding));
    let closed = lictor.closings(8).await;
    let of = |status: &str| closed.iter().filter(|entry| entry["status"] == status).count();
    assert_eq!((of("draining"), of("shutdown")), (7, 1), "{closed:#?}");
}

#[tokio::test]
async fn health_outlives_the_listeners() {
    let mut stub = Stub::scripted().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let mut caller = lictor.caller(Transport::Http1).await;
    let request = caller.request("POST", whole(CHANGE));
    let waiting = tokio::spawn(async move { caller.send(request).await.whole().await });
    let call = stub.call().await;
    lictor.terminate().await;
    lictor.shut().await;
    let admin = lictor.administration();
    for (path, status, told) in [
        ("/healthz", 200, "ok"),
        ("/readyz", 503, "shutting down"),
        ("/metrics", 200, "lictor_open_connections"),
    ] {
        let mut operator = Caller::plain(admin).await;
        let request = operator.request_to("GET", path, whole(""));
        let answer = operator.send(request).await.whole().await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text().contains(told), "{path}: {}", answer.text());
    }
    call.answer("{}").await;
    assert_eq!(within("the answer", waiting).await.expect("no panic").status, 200);
    assert!(lictor.ended().await.success());
    assert!(tokio::net::TcpStream::connect(admin).await.is_err());
}

#[tokio::test]
async fn a_second_signal_takes_the_time_away() {
    let mut stub = Stub::scripted().await;
    for signal in ["TERM", "INT"] {
        let timeouts = "timeouts: { stall: 60s }";
        let setup = Setup::to(&stub.url()).listener(timeouts).with("drain: 60s");
        let mut lictor = setup.start().await;
        let mut running = Vec::new();
        for transport in TRANSPORTS {
            let mut caller = lictor.caller(transport).await;
            let request = caller.request("POST", whole(CHANGE));
            let waiting = tokio::spawn(async move { caller.send(request).await.whole().await });
            running.push((transport, waiting, stub.call().await));
        }
        // Nobody reads the answer to this one, so that it can't be told anything.
        let mut unread = lictor.wire_tls().await;
        unread.send(post_whole("", CALL)).await;
        let mut flooding = stub.call().await;
        flooding.begin_events().await;
        fill(&mut flooding).await;
        lictor.terminate().await;
        lictor.shut().await;
        assert!(timeout(Duration::from_millis(300), lictor.ended()).await.is_err());
        lictor.signal(signal).await;
        let ended = timeout(Duration::from_secs(8), lictor.ended()).await;
        assert!(ended.expect("far below the time of calls in flight").success());
        for (transport, waiting, mut call) in running {
            let answer = within("the answer", waiting).await.expect("no panic");
            assert_eq!((answer.status, answer.kind().as_str()), (503, "draining"), "{transport:?}");
            call.abandoned().await;
        }
        let closed = lictor.closings(4).await;
        let of = |status: &str| closed.iter().filter(|entry| entry["status"] == status).count();
        assert_eq!(of("draining"), 4, "{closed:#?}");
    }
}

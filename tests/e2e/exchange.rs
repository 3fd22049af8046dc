//! One call and its answer: framing both ways, headers both ways, limits, time-outs, lost connections.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    CALL, CHANGE, NO_BREAKER,
    http::{Caller, TRANSPORTS, Transport, whole, within},
    post, post_whole,
    stub::{Call, Stub, json},
    subject::{Lictor, Setup},
};

mod headers;
mod http2;
mod limits;
mod slow;

/// A call with as much padding as makes it `length` bytes long.
fn padded(length: usize) -> String {
    let padding = length.checked_sub(CALL.len()).expect("room for a call");
    format!("{CALL}{}", " ".repeat(padding))
}

#[tokio::test]
async fn answers_arrive_whole_however_they_are_framed() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let long = "x".repeat(300_000);
    let rows: Vec<(String, u16, String)> = vec![
        (format!("{HEAD}Content-Length: 2\r\n\r\n{{}}"), 200, "{}".into()),
        (format!("{HEAD}Content-Length: 0\r\n\r\n"), 200, String::new()),
        (format!("{HEAD}Content-Length: 300000\r\n\r\n{long}"), 200, long.clone()),
        (
            format!(
                "{HEAD}Transfer-Encoding: chunked\r\n\r\n1;x=1\r\n{{\r\n1\r\n}}\r\n0\r\nX-T: 1\r\n\r\n"
            ),
            200,
            "{}".into(),
        ),
        (format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 200, String::new()),
        // Ends with the connection.
        (format!("{HEAD}\r\n{{}}"), 200, "{}".into()),
        (format!("{HEAD}\r\n{long}"), 200, long),
        (format!("{HEAD}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"), 200, "{}".into()),
        // Has no body, whatever its headers say.
        ("HTTP/1.1 204 No Content\r\n\r\n".into(), 204, String::new()),
        ("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".into(), 202, String::new()),
        // Both framings: the coding counts.
        (
            format!(
                "{HEAD}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
            ),
            200,
            "{}".into(),
        ),
        // Informational answers are for the next hop only.
        (
            format!(
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
                 {HEAD}Content-Length: 2\r\n\r\n{{}}"
            ),
            200,
            "{}".into(),
        ),
        // Errors of the upstream are its own to tell.
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno".into(), 404, "no".into()),
        ("HTTP/1.1 406 Not Acceptable\r\nContent-Length: 2\r\n\r\nno".into(), 406, "no".into()),
        ("HTTP/1.1 500 Oh No\r\nContent-Length: 2\r\n\r\nno".into(), 500, "no".into()),
    ];
    let answers: Vec<String> = rows.iter().map(|(answer, ..)| answer.clone()).collect();
    let stub = Stub::answering(move |seen| {
        let row: usize = seen.id().parse().expect("a row");
        answers[row].clone().into_bytes()
    })
    .await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        // One connection for all: whatever came before leaves nothing behind on it.
        let mut caller = lictor.caller(transport).await;
        for (row, (_, status, body)) in rows.iter().enumerate() {
            let call = CALL.replace(":7", &format!(":{row}"));
            let answer = caller.post(call).await.whole().await;
            assert_eq!(answer.status, *status, "{transport:?} {row}");
            assert!(answer.text() == *body, "{transport:?} {row}: {}", answer.text());
            assert_eq!(answer.header("link"), None);
        }
    }
    let requests = TRANSPORTS.len() * rows.len();
    assert_eq!(stub.requests(), requests);
    for entry in lictor.stop(requests).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"ok".into(), &true.into()));
    }
}

#[tokio::test]
async fn an_answer_without_a_body_has_no_framing() {
    let stub =
        Stub::answering(|_| b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n".to_vec());
    let stub = stub.await;
    let lictor = Lictor::start(&stub.url()).await;
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        for _ in 0..2 {
            wire.send(post_whole("", CALL)).await;
            let head = wire.head().await;
            assert_eq!(head.status(), 204);
            assert_eq!(
                (head.header("content-length"), head.header("transfer-encoding")),
                (None, None)
            );
        }
    }
    lictor.stop(4).await;
}

#[tokio::test]
async fn answers_that_no_client_may_get_become_a_bad_gateway() {
    let unreadable = "upstream_unreadable";
    let failed = "upstream_failed";
    let rows = [
        ("HTTP/1.1 301 Moved\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", unreadable),
        ("HTTP/1.1 302 Found\r\nLocation: http://other.example.org/\r\n\r\n", unreadable),
        ("HTTP/1.1 303 See\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", unreadable),
        ("HTTP/1.1 307 Temporary\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", unreadable),
        ("HTTP/1.1 308 Permanent\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", unreadable),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", unreadable),
        ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw", failed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", failed),
        ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab", failed),
        ("HTTP/1.1 200 OK\r\nContent-Le", failed),
        ("HTTP/1.1 20", failed),
        ("SSH-2.0-server\r\n", failed),
        ("HTTP/1.1 103 Early Hints\r\n\r\n", failed),
        ("", failed),
    ];
    let stub = Stub::answering(move |seen| {
        let row: usize = seen.id().parse().expect("a row");
        rows[row].0.as_bytes().to_vec()
    })
    .await;
    let lictor = Setup::to(&stub.url()).upstream(NO_BREAKER).start().await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for (row, (text, kind)) in rows.iter().enumerate() {
            let answer = caller.post(CALL.replace(":7", &format!(":{row}"))).await.whole().await;
            assert_eq!(
                (answer.status, answer.kind().as_str()),
                (502, *kind),
                "{transport:?} {text}"
            );
            assert_eq!(answer.json()["id"], row, "{text}");
            assert_eq!(answer.header("location"), None);
        }
    }
    let requests = TRANSPORTS.len() * rows.len();
    // Nothing was tried twice.
    assert_eq!(stub.requests(), requests);
    for entry in lictor.stop(requests).await {
        assert_eq!((&entry["kind"], &entry["decision"]), (&"outcome".into(), &"permit".into()));
        assert_eq!(entry["http_status"], 502);
    }
}

#[tokio::test]
async fn a_document_that_breaks_off_is_an_error_or_cut() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let breaking = |text: &str| {
        let length = text.len();
        [
            format!("{HEAD}Content-Length: 500000\r\n\r\n{text}"),
            format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{text}\r\n"),
            format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5{length:x}\r\n{text}"),
            format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{text}\r\nzz\r\n"),
        ]
    };
    // Longer than what is held before anything of it goes on.
    let cut = breaking(&format!("{{\"jsonrpc\":\"{}", "x".repeat(100_000)));
    let short = breaking("{\"jsonrpc\":");
    let mut stub = Stub::scripted().await;
    let lictor = Setup::to(&stub.url()).upstream(NO_BREAKER).start().await;
    for text in &cut {
        for transport in TRANSPORTS {
            let mut caller = lictor.caller(transport).await;
            let (reply, ()) = tokio::join!(caller.post(CALL), async {
                stub.call().await.send(text).await;
            });
            let mut reply = reply;
            assert_eq!(reply.status, 200);
            let broken = loop {
                match reply.try_chunk().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            assert!(broken, "{transport:?}: a cut document ended well");
        }
    }
    for text in &short {
        for transport in TRANSPORTS {
            let mut caller = lictor.caller(transport).await;
            let (reply, ()) = tokio::join!(caller.post(CALL), async {
                stub.call().await.send(text).await;
            });
            let answer = reply.whole().await;
            assert_eq!((answer.status, answer.kind().as_str()), (502, "upstream_failed"));
        }
    }
    let requests = (cut.len() + short.len()) * TRANSPORTS.len();
    assert_eq!(stub.requests(), requests);
    let entries = lictor.stop(requests).await;
    assert!(entries.iter().all(|entry| entry["status"] == "upstream_failed"));
    let whole = entries.iter().filter(|entry| entry["complete"] == true).count();
    assert_eq!(whole, short.len() * TRANSPORTS.len());
}

#[tokio::test]
async fn a_connection_outlives_refusals() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let get = "GET /other HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let refused = [
        (post_whole("", &CALL.replace("look", "wipe")), 200),
        (post_whole("", "{"), 400),
        (post_whole("", CALL).replacen("application/json", "text/plain", 1), 415),
        (post_whole("Mcp-Session-Id: stolen\r\n", CALL), 404),
        (get.to_owned(), 404),
        (get.replace("GET", "OPTIONS"), 405),
    ];
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        for (text, status) in &refused {
            wire.send(text).await;
            let answer = wire.answer().await;
            assert_eq!(answer.status, *status, "{text}");
            assert_eq!(answer.header("connection"), Some("keep-alive"), "{text}");
        }
        wire.send(post_whole("", CALL)).await;
        assert_eq!(wire.answer().await.status, 200);
        // What is refused by its head alone leaves a body behind; the connection ends, and says so.
        wire.send(post_whole("", CALL).replacen("/mcp", "/other", 1)).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (404, Some("close")));
        wire.ends().await;
    }
    assert_eq!(stub.requests(), 2);
    lictor.stop(2 * refused.len() + 4).await;
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_is_not_used_again() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for _ in 0..5 {
            let call = async {
                let mut call = stub.call().await;
                // Says that it will be kept, and closes it.
                call.send(json("{}")).await;
            };
            let (reply, ()) = tokio::join!(caller.post(CHANGE), call);
            assert_eq!(reply.whole().await.status, 200, "{transport:?}");
        }
    }
    assert_eq!((stub.connections(), stub.requests()), (15, 15));
    lictor.stop(15).await;
}

#[tokio::test]
async fn a_call_that_was_sent_is_not_sent_again() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        // A connection from the pool, where a client could think of trying another.
        let (reply, ()) =
            tokio::join!(caller.post(CHANGE), async { stub.call().await.answer("{}").await });
        assert_eq!(reply.whole().await.status, 200);
        for text in [CHANGE, CALL] {
            let (reply, seen) = tokio::join!(caller.post(text), async { stub.call().await.seen });
            assert_eq!(seen.body, text);
            let answer = reply.whole().await;
            assert_eq!((answer.status, answer.kind().as_str()), (502, "upstream_failed"));
            assert_eq!(answer.json()["error"]["data"]["retryable"], false);
            assert_eq!(answer.json()["id"], 7);
        }
    }
    assert_eq!(stub.requests(), 9);
    let closed = lictor.stop(9).await;
    let failed: Vec<_> = closed.iter().filter(|entry| entry["status"] != "ok").collect();
    assert_eq!(failed.len(), 6);
    assert!(failed.iter().all(|entry| entry["status"] == "upstream_failed"));
}

#[tokio::test]
async fn an_upstream_that_was_not_there_is_called_again_when_it_is() {
    let server = Stub::json().await;
    let (url, address) = (server.url(), server.address);
    drop(server);
    let breaker = "breaker: { open: 1s, maxOpen: 1s }";
    let lictor = Setup::to(&url).upstream(breaker).start().await;
    let mut caller = lictor.caller(Transport::Http1).await;
    let mut calls = 0;
    for kind in ["upstream_unreachable"; 5].into_iter().chain(["breaker_open"]) {
        assert_eq!(caller.post(CALL).await.whole().await.kind(), kind);
        calls += 1;
    }
    let server = Stub::json_at(address).await;
    let recovering = async {
        loop {
            calls += 1;
            let answer = caller.post(CALL).await.whole().await;
            if answer.json()["error"].is_null() {
                return answer;
            }
            assert_eq!(answer.kind(), "breaker_open");
        }
    };
    let answer = within("another try", recovering).await;
    assert_eq!((answer.status, server.requests()), (200, 1));
    lictor.stop(calls).await;
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_told_apart() {
    // Nobody listens here any more.
    let gone = Stub::json().await.url();
    let lictor = Setup::to(&gone).upstream(NO_BREAKER).start().await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for _ in 0..2 {
            let answer = caller.post(CHANGE).await.whole().await;
            assert_eq!((answer.status, answer.kind().as_str()), (502, "upstream_unreachable"));
            assert_eq!(answer.json()["error"]["data"]["retryable"], true);
            // Where it should be is the operator's to know.
            assert!(!answer.text().contains("127.0.0.1"));
        }
    }
    let reason = |line: &String| {
        line.contains("no answer") && line.contains("127.0.0.1") && line.contains("refused")
    };
    let logged = async {
        while lictor.logs().iter().filter(|line| reason(line)).count() < 6 {
            tokio::task::yield_now().await;
        }
    };
    within("six lines of the log", logged).await;
    lictor.stop(6).await;
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_gets_through() {
    let mut stub = Stub::scripted_by_heads().await;
    let lictor = Lictor::start(&stub.url()).await;
    let long = padded(4 << 20);
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let early = async {
            let mut call = stub.call().await;
            // Not a byte of the body is read.
            call.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
                .await;
            call
        };
        let (reply, call) = tokio::join!(caller.post(long.clone()), early);
        let answer = reply.whole().await;
        assert_eq!((answer.status, answer.text().as_str()), (413, "no"), "{transport:?}");
        drop(call);
    }
    assert_eq!(stub.requests(), 3);
    lictor.stop(3).await;
}

/// Waits for a request and for its being given up.
async fn abandoned(stub: &mut Stub) {
    stub.call().await.abandoned().await;
}

#[tokio::test]
async fn a_caller_who_leaves_before_the_answer_ends_the_call() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let leaving = async {
            let request = caller.request("POST", whole(CHANGE));
            tokio::select! {
                reply = caller.send(request) => panic!("an answer: {reply:?}"),
                call = stub.call() => call,
            }
        };
        let mut call = leaving.await;
        drop(caller);
        call.abandoned().await;
    }
    assert_eq!(stub.requests(), 3);
    for entry in lictor.stop(3).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"client_gone".into(), &false.into()));
    }
}

#[tokio::test]
async fn a_cancelled_request_of_http2_ends_its_call_only() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut caller = lictor.caller(Transport::Http2Tls).await;
    let request = caller.request("POST", whole(CHANGE));
    let mut first = tokio::select! {
        reply = caller.send(request) => panic!("an answer: {reply:?}"),
        call = stub.call() => call,
    };
    // The connection serves on while the stream of the first call is reset.
    let second = async {
        first.abandoned().await;
        stub.call().await.answer("{}").await;
    };
    let (reply, ()) = tokio::join!(caller.post(CALL), second);
    assert_eq!(reply.whole().await.status, 200);
    lictor.stop(2).await;
}

#[tokio::test]
async fn many_calls_at_once_make_one_chain() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut all = tokio::task::JoinSet::new();
    for transport in TRANSPORTS {
        for _ in 0..10 {
            let mut caller = lictor.caller(transport).await;
            all.spawn(async move {
                for round in 0..7 {
                    let call = if round % 2 == 0 { CHANGE } else { CALL };
                    assert_eq!(caller.post(call).await.whole().await.status, 200);
                }
            });
        }
    }
    while let Some(done) = within("all calls", all.join_next()).await {
        done.expect("no panic");
    }
    assert_eq!(stub.requests(), 210);
    let closed = lictor.stop(210).await;
    let ids: std::collections::HashSet<_> =
        closed.iter().map(|entry| entry["call_id"].as_str()).collect();
    assert_eq!(ids.len(), 210);
}

#[tokio::test]
async fn a_second_process_cannot_write_the_same_ledger() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let output = within("the second", lictor.again()).await;
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("the ledger can't be opened"), "{told}");
    assert_eq!(lictor.caller(Transport::Http1).await.post(CALL).await.whole().await.status, 200);
    lictor.stop(1).await;
}

#[tokio::test]
async fn a_crash_leaves_a_ledger_that_tells_of_the_open_call() {
    let mut stub = Stub::scripted().await;
    let mut lictor = Lictor::start(&stub.url()).await;
    let mut caller = lictor.caller(Transport::Http1).await;
    let request = caller.request("POST", whole(CHANGE));
    let _call = tokio::select! {
        reply = caller.send(request) => panic!("an answer: {reply:?}"),
        call = stub.call() => call,
    };
    lictor.signal("KILL").await;
    assert!(!lictor.ended().await.success());
    let entries = lictor.entries().await;
    let last = entries.last().expect("an entry");
    assert_eq!((&last["kind"], &last["target"]), (&"intent".into(), &"change".into()));
    let lictor = lictor.restart().await;
    let entries = {
        lictor.terminate().await;
        let mut lictor = lictor;
        assert!(lictor.ended().await.success());
        lictor.closings(0).await;
        lictor.entries().await
    };
    let recovered: Vec<_> =
        entries.iter().filter(|entry| entry["call_id"] == last["call_id"]).collect();
    assert_eq!(recovered.len(), 2, "{recovered:?}");
}

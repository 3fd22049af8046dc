//! Sessions: their streams, their ends, and whose they are.

use super::*;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// Answers `initialize` with a session.
async fn session(lictor: &Lictor, stub: &mut Stub, transport: Transport, id: &str) {
    let mut caller = lictor.caller(transport).await;
    let answering = async {
        let mut call = stub.call().await;
        let answer = json(&result(&call.seen, "{}"));
        let answer = String::from_utf8(answer).expect("ASCII");
        let answer = answer.replacen("\r\n", &format!("\r\nMcp-Session-Id: {id}\r\n"), 1);
        call.send(answer).await;
        call.keep();
    };
    let (reply, ()) = tokio::join!(caller.post(INITIALIZE), answering);
    assert_eq!(reply.header("mcp-session-id"), Some(id));
    reply.whole().await;
}

/// A request within a session.
async fn in_session(caller: &mut Caller, method: &str, session: &str, body: &str) -> Reply {
    let mut request = caller.request(method, whole(body.to_owned()));
    request.headers_mut().insert("mcp-session-id", session.parse().expect("a value"));
    caller.send(request).await
}

#[tokio::test]
async fn a_question_of_the_server_is_answered_while_its_call_waits() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let id = format!("s-{transport:?}");
        session(&lictor, &mut stub, transport, &id).await;
        let mut caller = lictor.caller(transport).await;
        let (mut reply, mut call) =
            tokio::join!(in_session(&mut caller, "POST", &id, CALL), async {
                let mut call = stub.call().await;
                call.begin_events().await;
                call
            });
        let question = "data: {\"jsonrpc\":\"2.0\",\"id\":\"srv-1\",\"method\":\"roots/list\"}\n\n";
        call.chunk(question).await;
        assert_eq!(text_of(&mut reply, question.len()).await, question);
        let answer = r#"{"jsonrpc":"2.0","id":"srv-1","result":{"action":"decline"}}"#;
        let mut other = lictor.caller(transport).await;
        let (posted, seen) = tokio::join!(in_session(&mut other, "POST", &id, answer), async {
            let mut call = stub.call().await;
            call.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
            let seen = call.seen.clone();
            call.keep();
            seen
        });
        assert_eq!(seen.body, answer);
        let posted = posted.whole().await;
        assert_eq!((posted.status, posted.text().as_str()), (202, ""));
        let last = format!("data: {}\n\n", result(&call.seen, "{}"));
        call.chunk(&last).await;
        call.end().await;
        assert_eq!(rest_of(&mut reply).await, last);
    }
    lictor.stop(12).await;
}

#[tokio::test]
async fn a_session_has_streams_and_an_end() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let id = format!("s-{transport:?}");
        session(&lictor, &mut stub, transport, &id).await;
        let mut caller = lictor.caller(transport).await;
        let (mut first, mut upstream) =
            tokio::join!(in_session(&mut caller, "GET", &id, ""), async {
                let mut call = stub.call().await;
                call.begin_events().await;
                call
            });
        assert_eq!(upstream.seen.head.start, "GET /mcp HTTP/1.1");
        assert_eq!(upstream.seen.head.header("mcp-session-id"), Some(id.as_str()));
        assert_eq!(upstream.seen.head.header("content-length"), None);
        // A second one is the upstream's to refuse, and no event goes to both.
        let mut second = lictor.caller(transport).await;
        let (refused, ()) = tokio::join!(in_session(&mut second, "GET", &id, ""), async {
            let mut call = stub.call().await;
            call.send("HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\nno").await;
            call.keep();
        });
        assert_eq!(refused.whole().await.status, 409);
        let event = "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
        upstream.chunk(event).await;
        assert_eq!(text_of(&mut first, event.len()).await, event);
        let (ended, seen) = tokio::join!(in_session(&mut second, "DELETE", &id, ""), async {
            let mut call = stub.call().await;
            call.send("HTTP/1.1 204 No Content\r\n\r\n").await;
            let seen = call.seen.clone();
            call.keep();
            seen
        });
        assert_eq!(seen.head.start, "DELETE /mcp HTTP/1.1");
        assert_eq!(ended.whole().await.status, 204);
        upstream.end().await;
        assert_eq!(rest_of(&mut first).await, "");
        // The session is over, for Lictor too.
        let answer = in_session(&mut second, "POST", &id, CALL).await.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (404, "unknown_session"));
    }
    assert_eq!(stub.requests(), 12);
    lictor.stop(15).await;
}

/// A client takes on whatever session id an answer brings.
#[tokio::test]
async fn no_session_comes_with_an_answer_that_opens_none() {
    let lines = "Mcp-Session-Id: s-1\r\n";
    let two = "Mcp-Session-Id: s-2\r\nMcp-Session-Id: s-3\r\n";
    for (status, headers, told) in
        [("500 Oops", lines, 500), ("401 No", two, 401), ("200 OK", two, 502)]
    {
        let stub = Stub::answering(move |seen| {
            let body = result(seen, "{}");
            let length = body.len();
            format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}\
                 Content-Length: {length}\r\n\r\n{body}"
            )
            .into_bytes()
        })
        .await;
        let lictor = Lictor::start(&stub.url()).await;
        for transport in TRANSPORTS {
            let mut caller = lictor.caller(transport).await;
            let answer = caller.post(INITIALIZE).await.whole().await;
            let session = answer.header("mcp-session-id");
            assert_eq!((answer.status, session), (told, None), "{transport:?} {status}");
        }
        lictor.stop(3).await;
    }
}

#[tokio::test]
async fn a_session_is_its_owners() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    session(&lictor, &mut stub, Transport::Http2Tls, "s-1").await;
    let other = CA.svid("/other");
    let config =
        caller_tls().with_client_auth_cert(other.chain.clone(), other.key()).expect("a credential");
    for http2 in [false, true] {
        let mut thief = Caller::tls(lictor.mutual, &config, http2).await;
        for (method, body) in [("POST", CALL), ("GET", ""), ("DELETE", "")] {
            let answer = in_session(&mut thief, method, "s-1", body).await.whole().await;
            assert_eq!((answer.status, answer.kind().as_str()), (404, "unknown_session"));
        }
    }
    assert_eq!(stub.requests(), 1);
    // The owner's own is not disturbed.
    let mut owner = lictor.caller(Transport::Http1).await;
    let (reply, ()) = tokio::join!(in_session(&mut owner, "POST", "s-1", CALL), async {
        stub.call().await.answer("{}").await;
    });
    assert_eq!(reply.whole().await.status, 200);
    let closed = lictor.stop(8).await;
    let denied: Vec<_> = closed.iter().filter(|entry| entry["kind"] == "denied").collect();
    assert_eq!(denied.len(), 6);
    assert!(denied.iter().all(|entry| entry["peer"] == "spiffe://one.test/other"));
    assert!(denied.iter().all(|entry| entry["stage"] == "ownership"));
}

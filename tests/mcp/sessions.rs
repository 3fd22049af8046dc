//! Legacy sessions: they belong to the principal that opened them, and end when the server says so.

mod back_channel;
mod crowds;
mod endpoints;
mod replicas;
mod restart;

use std::sync::Mutex;

use serde_json::Value;

use crate::{
    http::Caller,
    site::{self, Site, TD_ONE, TLS_A, TLS_B, call, request, send, tls_of},
    stub::{Seen, Stub, json, result},
    subject::Lictor,
};

const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";

async fn a(lictor: &Lictor) -> Caller {
    Caller::tls(lictor.mutual, &TLS_A, false).await
}

async fn b(lictor: &Lictor) -> Caller {
    Caller::tls(lictor.mutual, &TLS_B, false).await
}

/// The answer to `initialize` with a session.
fn opened(seen: &Seen, session: &str) -> String {
    let body = result(seen, "{}");
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nMcp-Session-Id: {session}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

fn method(seen: &Seen) -> String {
    let message: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    message["method"].as_str().unwrap_or_default().to_owned()
}

/// An upstream that opens a session of the next of these names whenever it is asked, and serves everything
/// else.
async fn upstream(sessions: Vec<String>) -> Stub {
    let sessions = Mutex::new(sessions.into_iter());
    Stub::answering(move |seen| match (&*seen.head.start, &*method(seen)) {
        ("DELETE /mcp HTTP/1.1", _) => NO_CONTENT.into(),
        ("GET /mcp HTTP/1.1", _) => {
            b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"
                .into()
        }
        (_, "initialize") => {
            let session = sessions.lock().expect("the lock").next().expect("a session");
            opened(seen, &session).into()
        }
        (_, method) if method.starts_with("notifications/") || method.is_empty() => ACCEPTED.into(),
        _ => json(&result(seen, "{}")),
    })
    .await
}

/// Opens a session at [`upstream`].
async fn open(caller: &mut Caller) -> String {
    let reply = send(caller, "POST", &[], request("initialize", "{}")).await;
    let session = reply.header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(reply.whole().await.status, 200);
    session
}

/// The status of one message in a session.
async fn status(caller: &mut Caller, verb: &str, session: &str, body: &str) -> u16 {
    let answer = send(caller, verb, &[("mcp-session-id", session)], body).await;
    assert_eq!(answer.header("mcp-session-id"), None);
    let answer = answer.whole().await;
    if answer.status == 404 {
        assert_eq!(answer.kind(), "unknown_session");
    }
    answer.status
}

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":"srv-1","result":{}}"#;
const CANCELLED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;

#[tokio::test]
async fn a_session_is_of_use_to_nobody_but_its_owner() {
    let stub = upstream(vec!["s-a".into(), "s-b".into()]).await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut a, mut b) = (a(&lictor).await, b(&lictor).await);
    let (of_a, of_b) = (open(&mut a).await, open(&mut b).await);
    let echo = call("echo", "{}");
    let messages = [
        ("POST", echo.as_str()),
        ("POST", ANSWER),
        ("POST", CANCELLED),
        ("GET", ""),
        ("DELETE", ""),
    ];
    let guessed = [of_a.as_str(), "s-nobody", "S-B", "s-b2"];
    for session in guessed {
        for (verb, body) in messages {
            assert_eq!(status(&mut b, verb, session, body).await, 404, "{verb} {session} {body}");
        }
    }
    assert_eq!(stub.requests(), 2);
    // Both are as they were.
    for (caller, session) in [(&mut a, &of_a), (&mut b, &of_b)] {
        let statuses = [200, 202, 202, 405, 204];
        for ((verb, body), expected) in messages.into_iter().zip(statuses) {
            assert_eq!(status(caller, verb, session, body).await, expected, "{verb} {body}");
            let seen = stub.seen().pop().expect("a request");
            assert_eq!(seen.head.header("mcp-session-id"), Some(session.as_str()));
        }
        // It has ended.
        assert_eq!(status(caller, "POST", session, &echo).await, 404);
    }
    assert_eq!(stub.requests(), 2 + 10);
    let closings = lictor.stop(2 + 20 + 12).await;
    let refused: Vec<_> =
        closings.iter().filter(|entry| entry["status"] == "unknown_session").collect();
    assert_eq!(refused.len(), 22);
    for entry in refused {
        assert_eq!((&entry["stage"], &entry["decision"]), (&"ownership".into(), &"deny".into()));
    }
}

#[tokio::test]
async fn a_session_id_may_be_anything_that_is_legal() {
    let all: String = (0x21..=0x7e_u8).map(char::from).collect();
    let long = all.chars().cycle().take(256).collect();
    let sessions = vec![all, long, "!".into(), "x".repeat(512)];
    let stub = upstream(sessions.clone()).await;
    let lictor = Site::to(&stub.url()).start().await;
    for session in &sessions {
        assert_eq!(&open(&mut a(&lictor).await).await, session);
        for (verb, body, expected) in [
            ("POST", &*call("echo", "{}"), 200),
            ("POST", ANSWER, 202),
            ("GET", "", 405),
            ("DELETE", "", 204),
        ] {
            // A connection of its own, so that nothing hangs on connections.
            assert_eq!(status(&mut a(&lictor).await, verb, session, body).await, expected);
            let seen = stub.seen().pop().expect("a request");
            assert_eq!(seen.head.header("mcp-session-id"), Some(session.as_str()));
        }
    }
    for illegal in ["a b", "a\tb", &"x".repeat(513)] {
        let mut caller = a(&lictor).await;
        let headers = [("mcp-session-id", illegal)];
        let answer = send(&mut caller, "POST", &headers, call("echo", "{}")).await;
        assert_eq!(answer.status, 400, "{illegal}");
    }
    assert_eq!(stub.requests(), 5 * sessions.len());
    lictor.stop(5 * sessions.len() + 3).await;
}

/// Lets the test answer `initialize` with a session.
async fn open_by_hand(caller: &mut Caller, stub: &mut Stub, session: &str) {
    let answering = async {
        let mut call = stub.call().await;
        let answer = opened(&call.seen, session);
        call.send(answer).await;
        call.keep();
    };
    let initialize = request("initialize", "{}");
    let (reply, ()) = tokio::join!(send(caller, "POST", &[], initialize), answering);
    assert_eq!(reply.whole().await.status, 200);
}

/// One message in a session, which the test answers.
async fn by_hand(
    caller: &mut Caller,
    stub: &mut Stub,
    verb: &str,
    session: &str,
    answer: &str,
) -> (u16, String) {
    let body = if verb == "POST" { call("echo", "{}") } else { String::new() };
    let headers = [("mcp-session-id", session)];
    let (reply, ()) = tokio::join!(send(caller, verb, &headers, body), async {
        let mut call = stub.call().await;
        call.send(answer).await;
        call.keep();
    });
    let answer = reply.whole().await;
    (answer.status, answer.text())
}

#[tokio::test]
async fn what_the_upstream_says_of_a_session_is_relayed_and_remembered() {
    let gone =
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let bad = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nno session";
    let stays = "HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\nContent-Length: 0\r\n\r\n";
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = a(&lictor).await;
    for verb in ["POST", "GET", "DELETE"] {
        open_by_hand(&mut caller, &mut stub, "s-1").await;
        let told = by_hand(&mut caller, &mut stub, "POST", "s-1", bad).await;
        assert_eq!(told, (400, "no session".to_owned()));
        let told = by_hand(&mut caller, &mut stub, "DELETE", "s-1", stays).await;
        assert_eq!(told, (405, String::new()));
        assert_eq!(
            by_hand(&mut caller, &mut stub, verb, "s-1", gone).await,
            (404, "{}".to_owned())
        );
        let before = stub.requests();
        assert_eq!(status(&mut caller, "POST", "s-1", &call("echo", "{}")).await, 404);
        assert_eq!(stub.requests(), before);
    }
    lictor.stop(15).await;
}

#[tokio::test]
async fn only_an_answer_to_initialize_opens_a_session() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut a, mut b) = (a(&lictor).await, b(&lictor).await);
    let with_session = |status: &str| {
        format!(
            "HTTP/1.1 {status}\r\nMcp-Session-Id: s-x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        )
    };
    // Not on another method, and not on a failure; nobody is shown the id.
    for (body, status) in [
        (call("echo", "{}"), "200 OK"),
        (request("ping", "{}"), "200 OK"),
        (request("initialize", "{}"), "500 Internal Server Error"),
        (request("initialize", "{}"), "401 Unauthorized"),
    ] {
        let (reply, ()) = tokio::join!(send(&mut a, "POST", &[], body.as_str()), async {
            let mut call = stub.call().await;
            call.send(with_session(status)).await;
            call.keep();
        });
        if !body.contains("initialize") {
            assert_eq!(reply.header("mcp-session-id"), None, "{body}");
        }
        reply.whole().await;
        assert_eq!(self::status(&mut a, "POST", "s-x", &call("echo", "{}")).await, 404, "{body}");
    }
    // An id that can't be one is no session, and one that somebody holds is nobody else's.
    let requests = stub.requests();
    open_by_hand(&mut a, &mut stub, "s-x").await;
    for (caller, session) in [("b", "s-x"), ("a", "s x"), ("a", &*"x".repeat(513))] {
        let caller = if caller == "a" { &mut a } else { &mut b };
        let (reply, ()) =
            tokio::join!(send(caller, "POST", &[], request("initialize", "{}")), async {
                let mut call = stub.call().await;
                let answer = opened(&call.seen, session);
                call.send(answer).await;
            });
        assert_eq!(reply.header("mcp-session-id"), None);
        let answer = reply.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (502, "upstream_unreadable"));
    }
    assert_eq!(status(&mut b, "POST", "s-x", &call("echo", "{}")).await, 404);
    let answer = json("{}");
    let answer = String::from_utf8(answer).expect("UTF-8");
    assert_eq!(by_hand(&mut a, &mut stub, "POST", "s-x", &answer).await.0, 200);
    assert_eq!(stub.requests(), requests + 5);
    lictor.stop(8 + 6).await;
}

#[tokio::test]
async fn refused_requests_leave_nothing_behind() {
    let stub = upstream(vec!["s-1".into()]).await;
    let policies = r#"@id("b") permit (principal == Agent::"spiffe://td-one.example.org/agent-b", action, resource);"#;
    let lictor = Site::to(&stub.url()).policies(policies).start().await;
    let mut caller = a(&lictor).await;
    for _ in 0..50 {
        let answer = send(&mut caller, "POST", &[], request("initialize", "{}")).await;
        assert_eq!(answer.header("mcp-session-id"), None);
        assert_eq!(answer.whole().await.kind(), "policy_denied");
        assert_eq!(send(&mut caller, "GET", &[], "").await.whole().await.status, 405);
        assert_eq!(send(&mut caller, "DELETE", &[], "").await.whole().await.status, 400);
        assert_eq!(send(&mut caller, "POST", &[], "{").await.whole().await.status, 400);
    }
    assert_eq!(stub.requests(), 0);
    assert_eq!(open(&mut b(&lictor).await).await, "s-1");
    lictor.stop(201).await;
}

#[tokio::test]
async fn the_order_of_a_handshake_is_the_servers_business() {
    let stub = upstream(vec!["s-1".into()]).await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = a(&lictor).await;
    let session = open(&mut caller).await;
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for (body, expected) in [
        (request("logging/setLevel", r#"{"level":"debug"}"#), 200),
        (request("ping", "{}"), 200),
        (initialized.to_owned(), 202),
        (request("tools/list", "{}"), 200),
    ] {
        assert_eq!(status(&mut caller, "POST", &session, &body).await, expected, "{body}");
    }
    let seen: Vec<_> = stub.seen().iter().map(method).collect();
    let order =
        ["initialize", "logging/setLevel", "ping", "notifications/initialized", "tools/list"];
    assert_eq!(seen, order);
    lictor.stop(5).await;
}

#[tokio::test]
async fn a_session_outlives_the_certificate_it_was_opened_with() {
    let stub = upstream(vec!["s-1".into(), "s-2".into()]).await;
    let lictor = Site::to(&stub.url()).start().await;
    let session = open(&mut a(&lictor).await).await;
    for http2 in [false, true] {
        let rotated = tls_of(&TD_ONE.svid("/agent-a"));
        let mut caller = Caller::tls(lictor.mutual, &rotated, http2).await;
        assert_eq!(status(&mut caller, "POST", &session, &call("echo", "{}")).await, 200);
    }
    // The plain listener takes everybody for the same principal.
    let mut caller = site::agent_a(&lictor).await;
    assert_eq!(status(&mut caller, "DELETE", &session, "").await, 204);
    lictor.stop(4).await;
}

//! Two Lictors that share a Redis, and a Redis that they lose.

use std::{collections::HashSet, sync::Mutex, time::Duration};

use serde_json::Value;

use super::{NO_CONTENT, a, b, method, opened};
use crate::{
    http::{Answer, Caller, within},
    redis::RedisServer,
    site::{Site, ask, call, metrics, request, sample, send},
    stub::{Stub, json, result},
    subject::Lictor,
};

const GONE: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const NO_STREAM: &str =
    "HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n";

/// A server that knows its sessions.
async fn server() -> Stub {
    let sessions = Mutex::new((0, HashSet::new()));
    Stub::answering(move |seen| {
        let mut sessions = sessions.lock().expect("the lock");
        let (count, open) = &mut *sessions;
        let session = seen.head.header("mcp-session-id").map(str::to_owned);
        match (&*method(seen), session) {
            ("initialize", _) => {
                *count += 1;
                let session = format!("s-{count}");
                let answer = opened(seen, &session);
                open.insert(session);
                answer.into()
            }
            (_, Some(session)) if !open.contains(&session) => GONE.into(),
            (_, Some(session)) if seen.head.start.starts_with("DELETE") => {
                open.remove(&session);
                NO_CONTENT.into()
            }
            (_, Some(_)) if seen.head.start.starts_with("GET") => NO_STREAM.into(),
            (_, Some(_) | None) => json(&result(seen, "{}")),
        }
    })
    .await
}

async fn replica(stub: &Stub, redis: &RedisServer) -> Lictor {
    let url = format!("redis://127.0.0.1:{}/1", redis.port);
    Site::to(&stub.url()).with(&format!("state: {{ redis: {{ url: '{url}' }} }}")).start().await
}

async fn two() -> (Stub, RedisServer, Lictor, Lictor) {
    let (stub, redis) = (server().await, RedisServer::start().await);
    let (one, other) = (replica(&stub, &redis).await, replica(&stub, &redis).await);
    (stub, redis, one, other)
}

#[tokio::test]
async fn a_session_is_at_home_on_every_replica() {
    let (stub, _redis, one, other) = two().await;
    let echo = call("echo", "{}");
    let session = open(&mut a(&one).await).await;
    for (verb, body, expected) in [("POST", &*echo, 200), ("GET", "", 405)] {
        assert_eq!(status(&mut a(&other).await, verb, &session, body).await, expected);
        assert_eq!(status(&mut b(&other).await, verb, &session, body).await, 404);
        assert_eq!(status(&mut b(&one).await, verb, &session, body).await, 404);
    }
    one.terminate().await;
    let mut one = one;
    one.ended().await;
    let one = one.restart().await;
    assert_eq!(status(&mut a(&one).await, "POST", &session, &echo).await, 200);
    assert_eq!(status(&mut b(&one).await, "POST", &session, &echo).await, 404);
    // It ends for all: where its owner is still known, by what the server says.
    assert_eq!(status(&mut a(&other).await, "DELETE", &session, "").await, 204);
    let requests = stub.requests();
    // The server's 404 has no body of ours.
    let mut late = a(&one).await;
    let late = send(&mut late, "POST", &[("mcp-session-id", &*session)], echo.as_str()).await;
    let late = late.whole().await;
    assert_eq!((late.status, late.text()), (404, String::new()));
    assert_eq!(stub.requests(), requests + 1);
    for lictor in [&one, &other] {
        assert_eq!(status(&mut a(lictor).await, "POST", &session, &echo).await, 404);
        assert_eq!(status(&mut a(lictor).await, "DELETE", &session, "").await, 404);
    }
    assert_eq!(stub.requests(), requests + 1);
    for lictor in [one, other] {
        lictor.stop_with(|closings| closings > 0).await;
    }
}

#[tokio::test]
async fn a_session_goes_on_through_an_upgrade() {
    let (stub, redis) = (server().await, RedisServer::start().await);
    let mut old = replica(&stub, &redis).await;
    let session = open(&mut a(&old).await).await;
    // Nothing is forgotten, so nobody has to say that it may be.
    let new = old.successor(&[]);
    old.signal("QUIT").await;
    let new = new.up().await;
    assert!(old.ended().await.success());
    let echo = call("echo", "{}");
    assert_eq!(status(&mut a(&new).await, "POST", &session, &echo).await, 200);
    assert_eq!(status(&mut b(&new).await, "POST", &session, &echo).await, 404);
    new.stop(3).await;
}

/// Opens a session, as [`status`] asks.
async fn open(caller: &mut Caller) -> String {
    let trying = async {
        loop {
            let reply = send(caller, "POST", &[], request("initialize", "{}")).await;
            let session = reply.header("mcp-session-id").map(str::to_owned);
            let answer = reply.whole().await;
            match session {
                Some(session) => return session,
                None => assert_eq!(answer.kind(), "state_unavailable"),
            }
        }
    };
    within("a session", trying).await
}

/// The status of one message in a session. On a busy machine Redis may take longer than it is waited for;
/// that can be tried again.
async fn status(caller: &mut Caller, verb: &str, session: &str, body: &str) -> u16 {
    let trying = async {
        loop {
            let answer = send(caller, verb, &[("mcp-session-id", session)], body).await;
            let answer = answer.whole().await;
            if answer.status != 503 {
                return answer.status;
            }
            assert_eq!(answer.kind(), "state_unavailable");
        }
    };
    within("an answer", trying).await
}

async fn refused(lictor: &Lictor, session: Option<&str>, body: &str) -> Answer {
    let session = session.map(|session| ("mcp-session-id", session));
    let headers: Vec<_> = session.into_iter().collect();
    let reply = send(&mut a(lictor).await, "POST", &headers, body).await;
    assert_eq!(reply.header("retry-after"), Some("1"));
    let answer = reply.whole().await;
    assert_eq!((answer.status, answer.kind().as_str()), (503, "state_unavailable"));
    answer
}

/// Waits until administration tells something.
async fn until_told(lictor: &Lictor, text: &str) {
    let asking = async {
        loop {
            let told = ask(lictor, "/readyz").await;
            let status = told.status;
            if told.text() == text {
                assert_eq!(status, 200, "it is ready all the same");
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("another state", asking).await;
}

const IN_ORDER: &str = r#"{"ready":true,"reasons":[]}"#;
const DEGRADED: &str =
    r#"{"ready":true,"reasons":[],"degraded":["the state store can't be used"]}"#;

#[tokio::test]
async fn without_redis_only_what_is_known_goes_on() {
    let (stub, mut redis, one, other) = two().await;
    let echo = call("echo", "{}");
    let session = open(&mut a(&one).await).await;
    until_told(&other, IN_ORDER).await;
    for frozen in [true, false] {
        if frozen {
            redis.freeze().await;
        } else {
            redis.kill().await;
        }
        assert_eq!(status(&mut a(&one).await, "POST", &session, &echo).await, 200);
        assert_eq!(status(&mut b(&one).await, "POST", &session, &echo).await, 404);
        let requests = stub.requests();
        for _ in 0..5 {
            refused(&other, Some(&session), &echo).await;
        }
        let answer = refused(&other, None, &request("initialize", "{}")).await;
        assert!(answer.text().contains(r#""retryable":true"#), "{}", answer.text());
        assert_eq!(stub.requests(), requests, "nothing is opened that nobody could have");
        // What needs no owner is served.
        let sessionless = send(&mut a(&other).await, "POST", &[], echo.as_str()).await;
        assert_eq!(sessionless.whole().await.status, 200);
        until_told(&other, DEGRADED).await;
        if !frozen {
            // A connection that breaks is noticed, whether it is needed or not.
            until_told(&one, DEGRADED).await;
        }
        let metrics = metrics(&other).await;
        assert!(metrics.contains("lictor_state_available 0"), "{metrics}");
        assert!(sample(&metrics, "lictor_state_failures_total", &[]) >= 5.0);
        if frozen {
            redis.thaw().await;
        } else {
            redis.revive().await;
        }
        for lictor in [&one, &other] {
            until_told(lictor, IN_ORDER).await;
        }
        // Its owner's next call on the one tells a Redis that came back empty; then it is known on the other.
        assert_eq!(status(&mut a(&one).await, "POST", &session, &echo).await, 200);
        if frozen {
            let elsewhere = replica(&stub, &redis).await;
            assert_eq!(status(&mut a(&elsewhere).await, "POST", &session, &echo).await, 200);
        } else {
            assert_eq!(status(&mut a(&other).await, "POST", &session, &echo).await, 200);
        }
    }
    one.stop_with(|closings| closings > 0).await;
    let closings = other.stop_with(|closings| closings > 0).await;
    let refused = |method: &str| {
        let of =
            |entry: &&Value| entry["method"] == method && entry["status"] == "state_unavailable";
        let of: Vec<_> = closings.iter().filter(of).collect();
        let keys = |entry: &&Value| ["kind", "decision", "stage"].map(|key| entry[key].to_string());
        let told: HashSet<_> = of.iter().map(keys).collect();
        (told.into_iter().collect::<Vec<_>>(), of.iter().all(|entry| entry["policies"].is_array()))
    };
    // The policies had permitted the one, and were not asked about the other.
    let told = |stage: &str| vec![["denied", "deny", stage].map(|text| format!("{text:?}"))];
    assert_eq!(refused("initialize"), (told("claim"), true));
    assert_eq!(refused("tools/call"), (told("ownership"), false));
}

#[tokio::test]
async fn lictor_starts_without_redis_and_finds_it_later() {
    let (stub, mut redis) = (server().await, RedisServer::start().await);
    redis.kill().await;
    let lictor = replica(&stub, &redis).await;
    // Nothing is served before it is known what is revoked.
    let answer = send(&mut a(&lictor).await, "POST", &[], request("initialize", "{}")).await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.whole().await.kind(), "revocations_unknown");
    assert_eq!(ask(&lictor, "/readyz").await.status, 503);
    redis.revive().await;
    until_told(&lictor, IN_ORDER).await;
    let session = open(&mut a(&lictor).await).await;
    assert_eq!(status(&mut a(&lictor).await, "POST", &session, &call("echo", "{}")).await, 200);
    lictor.stop_with(|closings| closings >= 3).await;
}

//! Chains that were shown to a process that isn't there any more.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    refused::{Forge, shown},
    *,
};
use crate::{http::within, redis::RedisServer};

const C: &str = "spiffe://one.test/c";

async fn keeping(state: &str, server: &Stub) -> Lictor {
    let mcp = doors("protocol: mcp", "protocol: mcp");
    proxy_keeping(state, "c", &mcp, &upstreams(server, None), ORIGINS, POLICIES).await
}

/// What the caller is told: its result, or the kind of refusal.
async fn told(lictor: &Lictor, forge: &Forge, header: &str) -> Value {
    let told = shown(lictor, &forge.members[1].1, header, CALL).await.json();
    match told["error"]["data"]["kind"].clone() {
        Value::Null => told["result"].clone(),
        kind => kind,
    }
}

fn chain(forge: &Forge) -> String {
    forge.chain(C, |_, _| {}).join("~")
}

/// A file knows what was shown, however its process ended, and so does a Redis. Whoever comes with a new chain
/// notices nothing.
#[tokio::test]
async fn a_chain_that_was_shown_stays_shown() {
    let forge = Forge::of(&["a", "b"]);
    let server = Stub::json().await;
    let redis = RedisServer::start().await;
    let shared = format!("state: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}\n", redis.port);
    for state in ["state: { directory: state }\n", &shared] {
        let mut calls = 0;
        let mut lictor = keeping(state, &server).await;
        let before = server.requests();
        // A Redis with nothing in it may have forgotten it; a directory with nothing in it is new.
        let first = taken(&lictor, &forge, &mut calls, usize::from(state == shared)).await;
        assert_eq!(told(&lictor, &forge, &first).await, "delegation_invalid", "{state}");
        lictor.kill().await;
        let lictor = lictor.restart().await;
        let second = chain(&forge);
        assert!(told(&lictor, &forge, &second).await.is_object(), "{state}");
        for header in [&first, &second] {
            assert_eq!(told(&lictor, &forge, header).await, "delegation_invalid", "{state}");
        }
        assert_eq!(server.requests() - before, 2, "{state}");
        // What was read of the process that was killed may not have reached its ledger.
        lictor.stop_with(|closings| (3..=4 + calls).contains(&closings)).await;
    }
}

#[tokio::test]
async fn an_upgrade_forgets_no_chain() {
    let forge = Forge::of(&["a", "b"]);
    let server = Stub::json().await;
    let redis = RedisServer::start().await;
    let state = format!("state: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}\n", redis.port);
    let mut old = keeping(&state, &server).await;
    let mut calls = 0;
    let header = taken(&old, &forge, &mut calls, 1).await;
    let new = old.upgrade().await;
    assert_eq!(told(&new, &forge, &header).await, "delegation_invalid");
    assert!(told(&new, &forge, &chain(&forge)).await.is_object());
    old.ended().await;
    assert_eq!(server.requests(), 2);
    new.stop(calls + 2).await;
}

/// Without a file or a Redis, what was shown before is forgotten: what could have been shown then isn't taken.
#[tokio::test]
async fn what_isnt_known_not_to_have_been_shown_is_refused() {
    let forge = Forge::of(&["a", "b"]);
    let server = Stub::json().await;
    let mut lictor = keeping("", &server).await;
    let mut calls = 0;
    // As at each start: a process may have been there before.
    let first = taken(&lictor, &forge, &mut calls, 1).await;
    let mut old = lictor;
    let new = old.upgrade().await;
    assert_eq!(told(&new, &forge, &first).await, "delegation_unknown");
    let second = taken(&new, &forge, &mut calls, 1).await;
    old.ended().await;
    lictor = new;
    lictor.kill().await;
    let lictor = lictor.restart().await;
    assert_eq!(told(&lictor, &forge, &second).await, "delegation_unknown");
    let third = taken(&lictor, &forge, &mut calls, 1).await;
    for (header, kind) in [
        (&first, "delegation_unknown"),
        (&second, "delegation_unknown"),
        (&third, "delegation_invalid"),
    ] {
        assert_eq!(told(&lictor, &forge, header).await, kind);
    }
    assert_eq!(server.requests(), 3);
    lictor.stop_with(|closings| closings <= calls + 5).await;
}

/// The first chain that is taken, after as many as `fewest` or a few more that were refused until when they said. They
/// count as `calls`.
async fn taken(lictor: &Lictor, forge: &Forge, calls: &mut usize, fewest: usize) -> String {
    let trying = async {
        let mut refused = 0;
        loop {
            let header = chain(forge);
            *calls += 1;
            let answer = shown(lictor, &forge.members[1].1, &header, CALL).await;
            let told = answer.json();
            if told["result"].is_object() {
                assert!((fewest..=fewest * 3).contains(&refused), "{refused}");
                return header;
            }
            let error = &told["error"];
            assert_eq!((answer.status, &error["code"]), (200, &json!(5041)), "{told}");
            assert_eq!(error["data"]["retryable"], true, "{told}");
            let wait = error["data"]["retryAfterMs"].as_u64().expect("a time");
            assert!((1..=7000).contains(&wait), "{told}");
            refused += 1;
            sleep(Duration::from_millis(wait)).await;
        }
    };
    within("a chain that is taken", trying).await
}

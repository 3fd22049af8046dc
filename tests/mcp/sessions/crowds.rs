//! Very many sessions, one after the other and at once.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};

use super::{NO_CONTENT, open, opened, status};
use crate::{
    http::{Caller, within},
    site::{Site, agent_a, agent_b, call, metrics, request, sample, send},
    stub::{Stub, json, result},
    subject::Lictor,
};

/// As many as one caller may have.
const MOST: usize = 10_000;
const CALLERS: usize = 8;

async fn server() -> Stub {
    let sessions = AtomicUsize::new(0);
    Stub::answering(move |seen| match &*super::method(seen) {
        "initialize" => {
            opened(seen, &format!("s-{}", sessions.fetch_add(1, Ordering::SeqCst))).into()
        }
        "" => NO_CONTENT.into(),
        _ => json(&result(seen, "{}")),
    })
    .await
}

/// Some callers, at once, each as often.
async fn by_many<F>(lictor: &Lictor, times: usize, one: fn(Caller, usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(one(agent_a(lictor).await, times / CALLERS));
    }
    callers.join_all().await;
}

/// Waits until so many sessions are told; they are once a second.
async fn until_held(lictor: &Lictor, sessions: usize) {
    let asking = async {
        loop {
            let metrics = metrics(lictor).await;
            if sample(&metrics, "lictor_state_bindings", &["kind=\"session\""]) == sessions as f64 {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("as many sessions", asking).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_ended_leaves_nothing() {
    opened_and_ended(400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; `make soak` runs it"]
async fn very_much_that_is_ended_leaves_nothing() {
    opened_and_ended(5_000).await;
}

async fn opened_and_ended(times: usize) {
    let stub = server().await;
    let lictor = Site::to(&stub.url()).with("state: { directory: state }").start().await;
    by_many(&lictor, times, |mut caller, times| async move {
        for _ in 0..times {
            let session = open(&mut caller).await;
            assert_eq!(status(&mut caller, "DELETE", &session, "").await, 204);
        }
    })
    .await;
    // An open one, so that zero isn't what was told before all began.
    let mut caller = agent_a(&lictor).await;
    let last = open(&mut caller).await;
    until_held(&lictor, 1).await;
    assert_eq!(status(&mut caller, "DELETE", &last, "").await, 204);
    until_held(&lictor, 0).await;
    assert_eq!(status(&mut caller, "POST", "s-0", &call("echo", "{}")).await, 404);
    assert_eq!(stub.requests(), 2 * times + 2);
    lictor.stop(2 * times + 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; `make soak` runs it"]
async fn what_is_abandoned_is_bounded() {
    let stub = server().await;
    let lictor = Site::to(&stub.url()).start().await;
    by_many(&lictor, MOST, |mut caller, times| async move {
        for _ in 0..times {
            open(&mut caller).await;
        }
    })
    .await;
    until_held(&lictor, MOST).await;
    let mut caller = agent_a(&lictor).await;
    for _ in 0..3 {
        let reply = send(&mut caller, "POST", &[], request("initialize", "{}")).await;
        assert_eq!(reply.header("retry-after"), Some("1"));
        let answer = reply.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (503, "too_many_sessions"));
    }
    assert_eq!(stub.requests(), MOST);
    // Neither are the sessions of before gone, nor is anybody else kept out; and whoever ends one can
    // open another.
    assert_eq!(status(&mut caller, "POST", "s-0", &call("echo", "{}")).await, 200);
    open(&mut agent_b(&lictor).await).await;
    assert_eq!(status(&mut caller, "DELETE", "s-0", "").await, 204);
    open(&mut caller).await;
    lictor.stop(MOST + 7).await;
}

//! After a restart, on other replicas, and without the Redis that they share.

use super::*;
use crate::{
    redis::RedisServer,
    site::{ask, logged},
};

#[tokio::test]
async fn a_restart_keeps_it() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).with("state: { directory: state }").start().await;
    let kept = pull(&lictor, "spiffe", AGENT_B).await;
    let lifted = pull(&lictor, "tool", "files/echo").await;
    lift(&lictor, &lifted).await;
    let mut lictor = lictor;
    lictor.terminate().await;
    lictor.ended().await;
    let lictor = lictor.restart().await;
    refused(&post(&mut agent_b(&lictor).await, call("echo", "{}")).await);
    let answer = post(&mut agent_a(&lictor).await, call("echo", "{}")).await;
    assert!(answer.json()["result"].is_object());
    let listed = revoke(&lictor, &["list"]).await;
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    assert!(listed.contains(&kept) && !listed.contains(&lifted), "{listed}");
    lift(&lictor, &kept).await;
    let answer = post(&mut agent_b(&lictor).await, call("echo", "{}")).await;
    assert!(answer.json()["result"].is_object());
    lictor.stop(3).await;
}

async fn replica(stub: &Stub, redis: &RedisServer) -> Lictor {
    let url = format!("redis://127.0.0.1:{}/1", redis.port);
    Site::to(&stub.url()).with(&format!("state: {{ redis: {{ url: '{url}' }} }}")).start().await
}

/// Calls until the answer is as wanted; how long that took.
async fn until(caller: &mut Caller, is_refused: bool) -> Duration {
    let began = Clock.instant();
    let asking = async {
        loop {
            let answer = post(caller, call("echo", "{}")).await;
            if answer.json()["error"].is_object() == is_refused {
                if is_refused {
                    refused(&answer);
                }
                return began.elapsed();
            }
        }
    };
    within("another answer", asking).await
}

#[tokio::test]
async fn every_replica_refuses_within_a_second() {
    let mut stub = Stub::scripted().await;
    let (served, mut redis) = (Stub::json().await, RedisServer::start().await);
    let (one, other) = (replica(&served, &redis).await, replica(&stub, &redis).await);
    // A stream at the one, the operator at the other.
    let mut b = agent_b(&other).await;
    let (mut reply, mut upstream) = streaming(&mut b, &mut stub, &call("echo", "{}")).await;
    let id = pull(&one, "spiffe", AGENT_B).await;
    let asked = Clock.instant();
    assert!(rest_of(&mut reply).await.contains("\"revoked\""));
    assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
    upstream.abandoned().await;
    refused(&post(&mut b, call("echo", "{}")).await);
    // Lifted at the other, served at the one.
    let mut b = agent_b(&one).await;
    refused(&post(&mut b, call("echo", "{}")).await);
    lift(&other, &id).await;
    let took = until(&mut b, false).await;
    assert!(took < SECOND, "{took:?}");
    // Without Redis it works where it is done, and it is said that the others don't know.
    redis.kill().await;
    let output = revoke(&one, &["spiffe", AGENT_B, "--reason", "a test", "--by", "tests"]).await;
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("on this replica only"), "{told}");
    refused(&post(&mut b, call("echo", "{}")).await);
    logged(&other, "revocations can't be read").await;
    redis.revive().await;
    let mut elsewhere = agent_b(&other).await;
    let asking = async {
        loop {
            let answering = async {
                let at = stub.call().await;
                at.answer("{}").await;
            };
            let asking = post(&mut elsewhere, call("echo", "{}"));
            let answer = tokio::select! {
                answer = asking => answer,
                () = async { answering.await; std::future::pending().await } => unreachable!(),
            };
            if answer.json()["error"].is_object() {
                return answer;
            }
        }
    };
    refused(&within("the other replica", asking).await);
    for lictor in [one, other] {
        lictor.stop_with(|closings| closings > 0).await;
    }
}

#[tokio::test]
async fn a_replica_that_never_read_it_serves_nothing() {
    let (stub, mut redis) = (Stub::json().await, RedisServer::start().await);
    let one = replica(&stub, &redis).await;
    pull(&one, "spiffe", AGENT_B).await;
    redis.freeze().await;
    let late = replica(&stub, &redis).await;
    for mut caller in [agent_a(&late).await, agent_b(&late).await] {
        let answer = post(&mut caller, call("echo", "{}")).await;
        assert_eq!((answer.status, &*answer.kind()), (503, "revocations_unknown"));
    }
    let ready = ask(&late, "/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("what was revoked isn't known yet"), "{}", ready.text());
    // The one that had read it goes on.
    let answer = post(&mut agent_a(&one).await, call("echo", "{}")).await;
    assert!(answer.json()["result"].is_object());
    redis.thaw().await;
    let ready = async { while ask(&late, "/readyz").await.status != 200 {} };
    within("readiness", ready).await;
    refused(&post(&mut agent_b(&late).await, call("echo", "{}")).await);
    let answer = post(&mut agent_a(&late).await, call("echo", "{}")).await;
    assert!(answer.json()["result"].is_object());
    redis.kill().await;
    late.stop(4).await;
    one.stop(1).await;
}

//! Limits that replicas share, and a Redis that they lose.

use std::time::Duration;

use lictor::telemetry::Clock;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::{code, echoes, post};
use crate::{
    http::{Caller, within},
    redis::RedisServer,
    site::{Site, agent_a, ask, call, metrics, sample},
    stub::Stub,
    subject::Lictor,
};

/// One of the replicas; every caller of its plain listener is `agent-a`.
async fn replica(stub: &Stub, redis: &RedisServer, limit: &str) -> Lictor {
    let url = format!("redis://127.0.0.1:{}/0", redis.port);
    let state = format!("state: {{ redis: {{ url: '{url}' }} }}");
    let limits = format!("rateLimits: [{{ name: all, shared: true, {limit} }}]");
    Site::to(&stub.url()).with(&state).with(&limits).start().await
}

async fn failures(lictor: &Lictor) -> usize {
    sample(&metrics(lictor).await, "lictor_state_failures_total", &[]) as usize
}

/// How many calls of 64 callers are served by two replicas until each caller was refused for good, and how many
/// requests there were.
async fn rush(
    replicas: [&Lictor; 2],
    give_up: impl Fn(i64) -> bool + Send + Copy + 'static,
) -> (usize, [usize; 2]) {
    let mut callers = JoinSet::new();
    for number in 0..64 {
        let mut caller = agent_a(replicas[number % 2]).await;
        callers.spawn(async move {
            let (mut served, mut asked) = (0, 0);
            loop {
                asked += 1;
                match code(&mut caller, call("echo", "{}")).await {
                    None => served += 1,
                    Some(code) if give_up(code) => return (number % 2, served, asked),
                    Some(code) => {
                        assert!([4290, 5035].contains(&code), "{code}");
                        sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        });
    }
    let mut requests = [0; 2];
    let mut all = 0;
    for (replica, served, asked) in within("all calls", callers.join_all()).await {
        requests[replica] += asked;
        all += served;
    }
    (all, requests)
}

#[tokio::test]
async fn replicas_hand_out_a_budget_once() {
    let (stub, redis) = (Stub::json().await, RedisServer::start().await);
    let limit = "budget: 300/1h, replicas: 2, onStoreFailure: deny";
    let (one, two) = (replica(&stub, &redis, limit).await, replica(&stub, &redis, limit).await);
    let (served, requests) = rush([&one, &two], |code| code == 4291).await;
    assert_eq!(stub.requests(), served);
    assert!(served <= 300, "{served} served");
    // An answer that comes too late, as it may on a busy machine, takes its block along. It is counted, a little later.
    let counted = async {
        while served + (failures(&one).await + failures(&two).await) * 7 < 285 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("all but a twentieth", counted).await;
    for (lictor, requests) in [(one, requests[0]), (two, requests[1])] {
        let entries = lictor.stop(requests).await;
        assert!(entries.iter().all(|entry| entry["limits_mode"] == Value::Null));
    }
}

#[tokio::test]
async fn replicas_keep_to_a_rate_together() {
    let (stub, redis) = (Stub::json().await, RedisServer::start().await);
    let limit = "rate: 100/1s, burst: 40, replicas: 2, onStoreFailure: deny";
    let (one, two) = (replica(&stub, &redis, limit).await, replica(&stub, &redis, limit).await);
    let began = Clock.instant();
    let enough = move |_| began.elapsed() > Duration::from_secs(3);
    let (served, requests) = rush([&one, &two], enough).await;
    let most = 40.0 + 100.0 * began.elapsed().as_secs_f64();
    assert!(served as f64 <= most, "{served} of {most}");
    // No more can be said of how few: callers that sleep don't ask, and on a busy machine answers come too late. That
    // nothing is lost otherwise, `state::tests::tokens` shows without callers.
    assert!(served >= 150, "{served} of {most}");
    assert_eq!(stub.requests(), served);
    one.stop(requests[0]).await;
    two.stop(requests[1]).await;
}

#[tokio::test]
async fn without_redis_a_replica_serves_its_part() {
    for (on_failure, served, refusal, mode) in [
        ("local", 3, Some(4291), Some("local")),
        ("deny", 0, Some(5035), None),
        ("unsafeAllow", 30, None, Some("unlimited")),
    ] {
        let (stub, mut redis) = (Stub::json().await, RedisServer::start().await);
        let limit = format!("budget: 6/1h, replicas: 2, onStoreFailure: {on_failure}");
        // One that never saw Redis knows no revocations, and serves nobody.
        let lictor = replica(&stub, &redis, &limit).await;
        redis.kill().await;
        let codes = echoes(&mut agent_a(&lictor).await, 30).await;
        let mut expected = vec![None; served];
        expected.extend(vec![refusal; 30 - served]);
        assert_eq!(codes, expected, "{on_failure}");
        assert_eq!(stub.requests(), served, "{on_failure}");
        // Told once, and not for each call.
        let lines = lictor.logs();
        let told = lines.iter().filter(|line| line.contains("Redis")).count();
        assert!((1..=3).contains(&told), "{lines:#?}");
        let degraded = async {
            while !ask(&lictor, "/readyz").await.text().contains("the state store can't be used") {
                sleep(Duration::from_millis(50)).await;
            }
        };
        within("degraded", degraded).await;
        let all = metrics(&lictor).await;
        let counted = |outcome: &str| {
            let labels = ["limit=\"all\"".to_owned(), format!("outcome=\"{outcome}\"")];
            sample(&all, "lictor_limits_total", &labels.each_ref().map(String::as_str))
        };
        assert_eq!(counted(mode.unwrap_or("local")), served as f64);
        assert_eq!(counted("refused"), (30 - served) as f64);
        let entries = lictor.stop(30).await;
        let modes = entries.iter().filter(|entry| entry["limits_mode"] == json!(mode));
        assert_eq!(modes.count(), if mode.is_some() { served } else { 30 }, "{on_failure}");
    }
}

#[tokio::test]
async fn a_limit_that_cannot_be_looked_up_is_told_as_that() {
    let (stub, mut redis) = (Stub::json().await, RedisServer::start().await);
    let lictor = replica(&stub, &redis, "rate: 6/1h, onStoreFailure: deny").await;
    redis.kill().await;
    let refused = post(&mut agent_a(&lictor).await, call("echo", "{}")).await;
    assert_eq!((refused.status, refused.kind()), (200, "limits_unavailable".to_owned()));
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["data"]["retryable"]), (&json!(5035), &json!(true)));
    assert_eq!(error["data"]["limits"], json!(["all"]));
    let wait = error["data"]["retryAfterMs"].as_u64().expect("a wait");
    assert!((1..=1_100).contains(&wait), "{wait}");
    assert_eq!(refused.header("retry-after"), Some(&*wait.div_ceil(1_000).to_string()));
    // It is no quota that could be told.
    assert_eq!((refused.header("ratelimit"), refused.header("ratelimit-policy")), (None, None));
    // With Redis, calls are served again, within a second or two.
    redis.revive().await;
    let mut calls = 1;
    let mut caller = agent_a(&lictor).await;
    let served = async {
        loop {
            calls += 1;
            if code(&mut caller, call("echo", "{}")).await.is_none() {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("Redis", served).await;
    lictor.stop(calls).await;
}

#[tokio::test]
async fn a_redis_that_is_lost_midway_never_means_unlimited() {
    let (stub, mut redis) = (Stub::json().await, RedisServer::start().await);
    let lictor = replica(&stub, &redis, "budget: 20/1h, replicas: 2").await;
    let mut caller = agent_a(&lictor).await;
    assert_eq!(echoes(&mut caller, 8).await, [None; 8]);
    // On a busy machine an answer may have come too late; the part is served from then on.
    let slow = failures(&lictor).await;
    redis.freeze().await;
    let began = Clock.instant();
    let codes = echoes(&mut caller, 60).await;
    // Its part, and what may have been leased before.
    let served = codes.iter().filter(|code| code.is_none()).count();
    assert!(served <= 11 && (served >= 10 || slow > 0), "{slow} {codes:?}");
    assert!(codes.iter().all(|code| [None, Some(4291)].contains(code)), "{codes:?}");
    // A wait for each call would make it longer than a second; each of them takes its own time, too.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    redis.kill().await;
    assert!(echoes(&mut caller, 20).await.iter().all(|code| *code == Some(4291)));
    // It comes back with nothing, and counts from there, once it was found again.
    redis.revive().await;
    let (mut calls, mut served) = (88, 0);
    let used_up = async {
        loop {
            calls += 1;
            match code(&mut caller, call("echo", "{}")).await {
                None => served += 1,
                Some(_) if served > 0 => return,
                Some(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    within("Redis", used_up).await;
    assert!((1..=20).contains(&served), "{served}");
    lictor.stop(calls).await;
}

/// What a store that closes idle connections does.
#[tokio::test]
async fn the_first_call_after_a_quiet_spell_is_served() {
    let (stub, redis) = (Stub::json().await, RedisServer::start().await);
    let lictor = replica(&stub, &redis, "budget: 1000/1h, onStoreFailure: deny").await;
    let mut caller: Caller = agent_a(&lictor).await;
    let mut unavailable = 0;
    for _ in 0..8 {
        let closed = redis.say("CLIENT KILL TYPE normal").await;
        assert!(closed.starts_with(':'), "{closed}");
        match code(&mut caller, call("echo", "{}")).await {
            None => {}
            // On a busy machine the next connection may take more than the 20 ms that a call waits, for once.
            Some(5035) => {
                unavailable += 1;
                sleep(Duration::from_secs(1)).await;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(unavailable <= 1, "{unavailable}");
    assert_eq!(stub.requests(), 8 - unavailable);
    lictor.stop(8).await;
}

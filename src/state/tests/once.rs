//! What may be used once, by all replicas together.

use std::ops::Range;

use super::*;

/// From now on, for a minute.
fn times() -> Range<Duration> {
    let now = Clock.unix() + Duration::from_millis(1);
    now..now + Duration::from_secs(60)
}

async fn claim(owners: &Owners, id: &str) -> Result<Use, Unavailable> {
    owners.claim_once(id, times(), Clock.unix()).await
}

/// What two replicas, or one that is alone, say to eight claims at the same time.
async fn eight(replicas: &[Arc<Owners>], id: &str) -> Vec<Result<Use, Unavailable>> {
    let mut claims = JoinSet::new();
    for at in 0..8 {
        let (owners, id) = (Arc::clone(&replicas[at % replicas.len()]), id.to_owned());
        claims.spawn(async move { claim(&owners, &id).await });
    }
    timeout(PATIENCE, claims.join_all()).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_replicas_one_may_use_it() {
    for (store, site) in sites().await {
        let mut replicas = vec![Arc::new(open(&site.settings).await)];
        if store == "redis" {
            replicas.push(Arc::new(open(&site.settings).await));
        }
        let mut rounds = (0..200).map(|round| format!("spiffe://td/a {round}"));
        let all_told = async {
            loop {
                let told = eight(&replicas, &rounds.next().expect("a round")).await;
                let granted = told.iter().filter(|told| **told == Ok(Use::First)).count();
                assert!(granted <= 1, "{store}: {told:?}");
                // On a busy machine some have no answer of Redis, and one of them may have it.
                if told.iter().all(Result::is_ok) {
                    assert_eq!(granted, 1, "{store}: {told:?}");
                    return;
                }
                assert_eq!(store, "redis");
            }
        };
        timeout(PATIENCE, all_told).await.expect("in time");
    }
}

/// The process that ends says nothing to anybody: its files and Redis are as they are.
#[tokio::test]
async fn what_was_used_before_a_restart_is_used_or_unknown() {
    for (store, site) in sites().await {
        let owners = open(&site.settings).await;
        let used = times();
        let use_it = async || owners.claim_once("a", used.clone(), Clock.unix()).await;
        // Redis may have heard of it when its answer is late; it is used then.
        assert!(matches!(patiently(use_it).await, Ok(Use::First | Use::Again)), "{store}");
        drop(owners);
        while Clock.unix() < used.start {
            tokio::task::yield_now().await;
        }
        let owners = reopened(&site.settings).await;
        let told = patiently(async || owners.claim_once("a", used.clone(), Clock.unix()).await);
        let told = told.await.expect("told");
        match store {
            "memory" => assert!(matches!(told, Use::Unknown { .. }), "{told:?}"),
            _ => assert_eq!(told, Use::Again, "{store}"),
        }
        // What can be used since is nobody's concern before.
        let mut others = (0..20).map(|number| number.to_string());
        let fresh = async {
            while claim(&owners, &others.next().expect("a try")).await != Ok(Use::First) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, fresh).await.expect(store);
    }
}

#[tokio::test]
async fn what_another_replica_used_ends_with_its_time() {
    let redis = RedisServer::start().await;
    let (one, other) = (open(&settings(&redis)).await, open(&settings(&redis)).await);
    let brief = || {
        let now = Clock.unix();
        now..now + Duration::from_millis(300)
    };
    let used = async {
        // A claim whose answer was lost may be the one that holds; it is a use as well.
        while one.claim_once("a", brief(), Clock.unix()).await.is_err() {
            tokio::task::yield_now().await;
        }
        while other.claim_once("a", brief(), Clock.unix()).await != Ok(Use::First) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, used).await.expect("it ended");
}

/// A Redis that is killed and comes back with nothing, to replicas that were there and one that wasn't.
#[tokio::test]
async fn what_a_redis_forgot_isnt_taken_for_unused() {
    let mut redis = RedisServer::start().await;
    let (one, other) = (open(&settings(&redis)).await, open(&settings(&redis)).await);
    let used = times();
    let claim_it = async |owners: &Owners| {
        patiently(async || owners.claim_once("a", used.clone(), Clock.unix()).await).await
    };
    assert!(matches!(claim_it(&one).await, Ok(Use::First | Use::Again)));
    while Clock.unix() < used.start {
        tokio::task::yield_now().await;
    }
    redis.kill().await;
    // Somebody notices, or the port would be taken by the next one unseen.
    let noticed = async {
        while one.health().available == Some(true) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, noticed).await.expect("it is missed");
    redis.revive().await;
    let late = open(&settings(&redis)).await;
    assert_eq!(claim_it(&one).await, Ok(Use::Again));
    for replica in [&other, &late] {
        let told = claim_it(replica).await;
        // When it tries again it remembers by itself.
        assert!(matches!(told, Ok(Use::Unknown { .. } | Use::Again)), "{told:?}");
    }
    // One that starts long after knows it as well, and what comes after is taken.
    let last = open(&settings(&redis)).await;
    let told = last.claim_once("b", used.clone(), Clock.unix()).await;
    assert!(matches!(told, Ok(Use::Unknown { .. }) | Err(Unavailable)), "{told:?}");
    let mut others = (0..20).map(|number| number.to_string());
    let fresh = async {
        while claim(&last, &others.next().expect("a try")).await != Ok(Use::First) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, fresh).await.expect("in time");
}

#[tokio::test]
async fn without_the_shared_store_nothing_is_used() {
    let mut redis = RedisServer::start().await;
    redis.kill().await;
    let owners = open(&settings(&redis)).await;
    assert_eq!(claim(&owners, "a").await, Err(Unavailable));
}

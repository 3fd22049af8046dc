//! What may be used once, by all replicas together.

use super::*;

const TTL: Duration = Duration::from_secs(60);

/// What two replicas, or one that is alone, say to eight claims at the same time.
async fn eight(replicas: &[Arc<Owners>], id: &str) -> Vec<Result<bool, Unavailable>> {
    let mut claims = JoinSet::new();
    for at in 0..8 {
        let (owners, id) = (Arc::clone(&replicas[at % replicas.len()]), id.to_owned());
        claims.spawn(async move { owners.claim_once(&id, TTL).await });
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
                let granted = told.iter().filter(|told| **told == Ok(true)).count();
                if store != "redis" {
                    // Each process remembers for itself; there is nobody to ask.
                    assert_eq!(granted, 8, "{store}");
                    return;
                }
                assert!(granted <= 1, "{told:?}");
                // On a busy machine some have no answer, and one of them may have it.
                if told.iter().all(Result::is_ok) {
                    assert_eq!(granted, 1, "{told:?}");
                    return;
                }
            }
        };
        timeout(PATIENCE, all_told).await.expect("in time");
    }
}

#[tokio::test]
async fn what_was_claimed_can_be_claimed_again_when_its_time_has_passed() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let brief = Duration::from_millis(300);
    let claim = async |id, ttl| patiently(async || owners.claim_once(id, ttl).await).await;
    let again = async {
        // A claim whose answer was lost may be the one that holds; its time passes as well.
        while claim("a", brief).await != Ok(true) {}
        while claim("a", brief).await != Ok(true) {}
        // Within its time it can't, whichever claim holds it.
        while claim("b", DAY).await == Ok(true) {}
        assert_eq!(claim("b", DAY).await, Ok(false));
    };
    timeout(PATIENCE, again).await.expect("in time");
}

#[tokio::test]
async fn without_the_shared_store_nothing_is_used() {
    let mut redis = RedisServer::start().await;
    redis.kill().await;
    let owners = open(&settings(&redis)).await;
    assert_eq!(owners.claim_once("a", TTL).await, Err(Unavailable));
}

//! Replicas that share a Redis, and a Redis that fails them.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn every_replica_knows_within_a_second() {
    let redis = RedisServer::start().await;
    let (one, other) = (Replica::open(shared(&redis)).await, Replica::open(shared(&redis)).await);
    let asked = Clock.instant();
    let revoked = one.revoke("user", "u-1", None).await;
    other.until(&["user u-1"]).await;
    assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
    other.revoke("user", "u-2", None).await;
    one.until(&["user u-1", "user u-2"]).await;
    other.register.lift(revoked.revocation.id).await.expect("lifted");
    one.until(&["user u-2"]).await;
    assert_eq!(Replica::open(shared(&redis)).await.in_force(), ["user u-2"]);
}

#[tokio::test]
async fn a_redis_that_is_gone_leaves_in_force_what_was_known() {
    let mut redis = RedisServer::start().await;
    let (one, other) = (Replica::open(shared(&redis)).await, Replica::open(shared(&redis)).await);
    let first = one.revoke("user", "u-1", None).await;
    other.until(&["user u-1"]).await;
    redis.kill().await;
    // The brake works without it, here; and nothing is lifted.
    let second = one.revoke("user", "u-2", None).await;
    assert!(!second.kept);
    assert_eq!(one.in_force(), ["user u-1", "user u-2"]);
    let lifted = one.register.lift(first.revocation.id).await;
    assert!(matches!(lifted, Err(ChangeError::Store(_))), "{lifted:?}");
    assert_eq!(other.in_force(), ["user u-1"]);
    // It comes back with nothing, is told again, and tells the others.
    redis.revive().await;
    other.until(&["user u-1", "user u-2"]).await;
    one.until(&["user u-1", "user u-2"]).await;
    let third = Replica::open(shared(&redis)).await;
    third.until(&["user u-1", "user u-2"]).await;
    // From here on lifting is lifting again.
    third.register.lift(first.revocation.id).await.expect("lifted");
    for replica in [&one, &other] {
        replica.until(&["user u-2"]).await;
    }
}

#[tokio::test]
async fn nothing_is_known_before_redis_was_asked() {
    let mut redis = RedisServer::start().await;
    let one = Replica::open(shared(&redis)).await;
    one.revoke("user", "u-1", None).await;
    redis.freeze().await;
    let late = Replica::open(shared(&redis)).await;
    assert!(!late.register.current().is_known());
    // A revocation that is made meanwhile is not forgotten over what is read later.
    let revoking = late.revoke("user", "u-2", None);
    assert!(!timeout(PATIENCE, revoking).await.expect("in time").kept);
    assert!(!late.register.current().is_known());
    redis.thaw().await;
    late.until(&["user u-1", "user u-2"]).await;
    assert!(late.register.current().is_known());
    redis.kill().await;
}

#[tokio::test]
async fn what_is_not_understood_changes_nothing() {
    let redis = RedisServer::start().await;
    let one = Replica::open(shared(&redis)).await;
    one.revoke("user", "u-1", None).await;
    let id = Uuid::now_v7();
    let set = format!("HSET lictor:{{records}} {id} nonsense . h/1/a");
    assert!(redis.say(&set).await.starts_with(':'));
    let late = Replica::open(shared(&redis)).await;
    assert!(!late.register.current().is_known());
    assert_eq!(one.in_force(), ["user u-1"]);
    assert!(redis.say(&format!("HDEL lictor:{{records}} {id}")).await.starts_with(':'));
    assert!(redis.say("HSET lictor:{records} . h/2/b").await.starts_with(':'));
    late.until(&["user u-1"]).await;
    assert!(late.register.current().is_known());
}

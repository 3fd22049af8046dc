//! Tokens of limits that replicas count together.

use std::num::NonZeroU32;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a number of tokens")
}

fn rate(tokens: u32, period: Duration, burst: u32) -> Allowance {
    Allowance::Rate { tokens: number(tokens), period, burst: number(burst) }
}

fn window(tokens: u32, period: Duration) -> Allowance {
    Allowance::Window { tokens: number(tokens), period }
}

type Told<T> = Result<T, Unavailable>;

/// What is said; of the limit `limit`.
async fn ask(owners: &Owners, key: &str, of: &Allowance, need: u32, want: u32) -> Told<Block> {
    owners.tokens(("limit", key), of, need, want).await
}

/// How many tokens are granted.
async fn granted(owners: &Owners, key: &str, of: &Allowance, need: u32, want: u32) -> Told<u32> {
    Ok(match ask(owners, key, of, need, want).await? {
        Block::Granted { tokens, .. } => tokens,
        Block::Refused { .. } => 0,
    })
}

/// On a busy machine an answer may come too late, and its tokens are lost then: all is tried again with keys of its
/// own.
async fn undisturbed<T>(mut attempt: impl AsyncFnMut(&str) -> Told<T>) -> T {
    let mut number = 0;
    patiently(async || {
        number += 1;
        attempt(&number.to_string()).await
    })
    .await
    .expect("an answer")
}

#[tokio::test]
async fn without_a_shared_store_nothing_is_counted_there() {
    for (store, site) in sites().await {
        let owners = open(&site.settings).await;
        let of = rate(3, MINUTE, 3);
        if store == "redis" {
            let one = undisturbed(async |key| granted(&owners, key, &of, 1, 1).await).await;
            assert_eq!(one, 1);
        } else {
            assert_eq!(ask(&owners, "a", &of, 1, 1).await, Err(Unavailable), "{store}");
        }
    }
}

#[tokio::test]
async fn a_block_is_as_large_as_there_are_tokens() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let never = Block::Refused { retry_after: None };
    for of in [rate(10, DAY, 10), window(10, DAY), Allowance::Once { tokens: number(10) }] {
        let wait = undisturbed(async |key| {
            assert_eq!(granted(&owners, key, &of, 1, 4).await?, 4, "{of:?}");
            assert_eq!(granted(&owners, key, &of, 2, 4).await?, 4, "{of:?}");
            // Less than is wanted, as much as is needed.
            assert_eq!(granted(&owners, key, &of, 3, 4).await?, 0, "{of:?}");
            assert_eq!(granted(&owners, key, &of, 1, 4).await?, 2, "{of:?}");
            // Another key, another limit and another kind of allowance have counts of their own.
            let other = format!("other {key}");
            assert_eq!(granted(&owners, &other, &of, 1, 4).await?, 4, "{of:?}");
            let told = owners.tokens(("other", key), &of, 1, 4).await?;
            assert!(matches!(told, Block::Granted { tokens: 4, .. }), "{of:?} {told:?}");
            // More than there ever is.
            assert_eq!(ask(&owners, &other, &of, 11, 11).await?, never, "{of:?}");
            match ask(&owners, key, &of, 1, 4).await? {
                Block::Refused { retry_after } => Ok(retry_after),
                Block::Granted { .. } => panic!("there are none left: {of:?}"),
            }
        });
        let expected = match of {
            Allowance::Rate { .. } => Some(DAY / 10),
            Allowance::Window { .. } => Some(DAY),
            Allowance::Once { .. } => None,
        };
        match (wait.await, expected) {
            (Some(wait), Some(most)) => assert!(wait > most - MINUTE && wait <= most, "{wait:?}"),
            (wait, expected) => assert_eq!(wait, expected, "{of:?}"),
        }
    }
    // Nothing is kept that can be read, nor for ever, but for when it began.
    let keys = redis.say("EVAL \"return #redis.call('KEYS', 'lictor:{*}')\" 0").await;
    let all = redis.say("DBSIZE").await;
    assert_eq!(keys, all);
    let lasting = "local n = 0 for _, k in ipairs(redis.call('KEYS', '*')) do \
                   if redis.call('PTTL', k) < 0 then n = n + 1 end end return n";
    assert_eq!(redis.say(&format!("EVAL \"{lasting}\" 0")).await, ":1");
}

#[tokio::test]
async fn tokens_come_back_on_the_clock_of_redis() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    for of in [rate(10, SECOND, 10), window(10, SECOND)] {
        let (tokens, waited) = undisturbed(async |key| {
            assert_eq!(granted(&owners, key, &of, 10, 10).await?, 10, "{of:?}");
            let mut waited = 0;
            loop {
                match ask(&owners, key, &of, 3, 3).await? {
                    Block::Granted { tokens, .. } => return Ok((tokens, waited)),
                    Block::Refused { retry_after } => {
                        waited += 1;
                        tokio::time::sleep(retry_after.expect("a wait")).await;
                    }
                }
            }
        })
        .await;
        // Whoever waits for as long as it is told has waited long enough.
        assert!(tokens == 3 && waited <= 1, "{of:?}: {tokens} {waited}");
    }
}

#[tokio::test]
async fn a_time_that_is_far_off_is_not_waited_for() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let year = Clock.unix().as_micros() + 365 * 24 * 3600 * 1_000_000;
    for (of, value) in [
        (rate(10, SECOND, 10), year.to_string()),
        (window(10, SECOND), format!("'{year} 10'")),
        (rate(10, SECOND, 10), "junk".into()),
        (window(10, SECOND), "junk".into()),
    ] {
        undisturbed(async |key| {
            let digest = data_encoding::HEXLOWER.encode(&key::tokens(&of, "limit", key));
            let set = format!("SET lictor:{{{digest}}} {value}");
            assert_eq!(redis.say(&set).await, "+OK");
            // It stands for nothing left, and a period later all is back.
            assert_eq!(granted(&owners, key, &of, 5, 5).await?, 0, "{of:?} {value}");
            tokio::time::sleep(SECOND).await;
            assert_eq!(granted(&owners, key, &of, 10, 10).await?, 10, "{of:?} {value}");
            Ok(())
        })
        .await;
    }
}

/// Many callers of two replicas take what they can for some time; how many tokens they got, and how long it was.
async fn take_all(replicas: [&Arc<Owners>; 2], of: Allowance) -> (u32, Duration) {
    let began = Clock.instant();
    let mut callers = JoinSet::new();
    for number in 0..64 {
        let owners = Arc::clone(replicas[number % 2]);
        callers.spawn(async move {
            let mut taken = 0;
            while began.elapsed() < SECOND {
                match owners.tokens(("limit", "a"), &of, 1, 5).await {
                    Ok(Block::Granted { tokens, .. }) => taken += tokens,
                    Ok(Block::Refused { .. }) | Err(Unavailable) => {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
            }
            taken
        });
    }
    let taken = timeout(PATIENCE, callers.join_all()).await.expect("in time").iter().sum();
    (taken, began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_of_two_replicas_get_the_limit_and_no_more() {
    let redis = RedisServer::start().await;
    let settings = settings(&redis);
    let (one, two) = (Arc::new(open(&settings).await), Arc::new(open(&settings).await));
    let (taken, time) = take_all([&one, &two], rate(1000, SECOND, 100)).await;
    let most = 100.0 + 1000.0 * time.as_secs_f64();
    assert!(f64::from(taken) <= most, "{taken} of {most}");
    // What a busy machine loses, by answers that come too late, is lost.
    assert!(f64::from(taken) >= 0.5 * most, "{taken} of {most}");
    let (taken, _) = take_all([&one, &two], window(500, DAY)).await;
    assert!((475..=500).contains(&taken), "{taken}");
}

#[tokio::test]
async fn a_failing_redis_grants_nothing() {
    let mut redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let of = window(3, DAY);
    let until = async |available| {
        let waiting = async {
            while owners.health().available != Some(available) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("in time");
    };
    let nothing = async |what: &str| {
        for _ in 0..100 {
            assert_eq!(ask(&owners, "a", &of, 1, 1).await, Err(Unavailable), "{what}");
        }
        assert_eq!(owners.health().available, Some(false), "{what}");
    };
    let all = undisturbed(async |key| granted(&owners, key, &of, 1, 3).await).await;
    assert_eq!(all, 3);
    redis.freeze().await;
    let began = Clock.instant();
    nothing("frozen").await;
    // Three waits, not a hundred.
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    redis.thaw().await;
    until(true).await;
    assert_eq!(redis.say("REPLICAOF 127.0.0.1 1").await, "+OK");
    nothing("read only").await;
    assert_eq!(redis.say("REPLICAOF NO ONE").await, "+OK");
    until(true).await;
    redis.kill().await;
    nothing("killed").await;
    redis.revive().await;
    until(true).await;
    // It has come back with nothing, and counts from there.
    undisturbed(async |key| {
        assert_eq!(granted(&owners, key, &of, 1, 5).await?, 3);
        assert_eq!(granted(&owners, key, &of, 1, 5).await?, 0);
        Ok(())
    })
    .await;
    // Something else under one key is a matter of that key.
    let digest = data_encoding::HEXLOWER.encode(&key::tokens(&of, "limit", "odd"));
    assert_eq!(redis.say(&format!("LPUSH lictor:{{{digest}}} x")).await, ":1");
    for _ in 0..10 {
        assert_eq!(ask(&owners, "odd", &of, 1, 1).await, Err(Unavailable));
    }
    assert_eq!(owners.health().available, Some(true));
}

#[tokio::test]
async fn a_connection_that_was_closed_in_between_costs_no_answer() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let of = window(100, DAY);
    for round in 0..5 {
        undisturbed(async |attempt| {
            let key = &format!("{round} {attempt}");
            let closed = redis.say("CLIENT KILL TYPE normal").await;
            assert!(closed.starts_with(':'), "{closed}");
            assert_eq!(granted(&owners, key, &of, 1, 1).await?, 1);
            // Counted once.
            let digest = data_encoding::HEXLOWER.encode(&key::tokens(&of, "limit", key));
            let value = redis.say(&format!("GET lictor:{{{digest}}}")).await;
            assert!(value.ends_with(" 1"), "{value}");
            Ok(())
        })
        .await;
    }
}

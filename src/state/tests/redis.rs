//! A Redis that fails, in each way that it can.

use std::num::NonZeroU32;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

/// Longest time for one call, on a busy machine, of which the store gets 20 ms.
const SOON: Duration = Duration::from_millis(500);

/// What is said at once.
async fn ask(owners: &Owners, id: &str) -> Result<Option<Arc<str>>, Unavailable> {
    owners.owner(Kind::Session, "s", id, Clock.unix()).await
}

async fn try_bind(owners: &Owners, id: &str, to: &Arc<str>) -> Result<(), BindError> {
    owners.bind(Kind::Session, "s", id, to, Clock.unix()).await
}

/// What is said by a store that works.
async fn owner(owners: &Owners, id: &str) -> Result<Option<Arc<str>>, Unavailable> {
    patiently(async || ask(owners, id).await).await
}

async fn bind(owners: &Owners, id: &str, to: &Arc<str>) -> Result<(), BindError> {
    patiently(async || try_bind(owners, id, to).await).await
}

/// Waits until the store is as wanted.
async fn until(owners: &Owners, available: bool) {
    let waiting = async {
        while owners.health().available != Some(available) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("in time");
}

/// Asks for what memory doesn't know until the store is given up; how long the longest took.
async fn give_up(owners: &Owners) -> Duration {
    let mut longest = Duration::ZERO;
    for number in 0..100 {
        let asked = Clock.instant();
        let told = ask(owners, &format!("unknown-{number}")).await;
        longest = longest.max(asked.elapsed());
        assert_eq!(told, Err(Unavailable), "{number}: never that there is none");
    }
    assert_eq!(owners.health().available, Some(false));
    longest
}

#[tokio::test]
async fn replicas_share_what_was_given_away() {
    let redis = RedisServer::start().await;
    let settings = settings(&redis);
    let (one, two) = (open(&settings).await, open(&settings).await);
    let (a, b) = (principal("a"), principal("b"));
    bind(&one, "1", &a).await.expect("bound");
    assert_eq!(owner(&two, "1").await, Ok(Some(a.clone())));
    assert_eq!(bind(&two, "1", &b).await, Err(BindError::Taken));
    let ending = async {
        while owner(&two, "1").await != Ok(None) {
            two.end(Kind::Session, "s", "1", &a).await;
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, ending).await.expect("in time");
    // The other one learns of it within a minute; then it is nobody's, or the next one's.
    bind(&two, "1", &b).await.expect("bound");
    assert_eq!(owner(&one, "1").await, Ok(Some(a)));
    // On a busy machine the first attempt may say what was known.
    let asking = async {
        let mut later = Clock.unix() + 61 * SECOND;
        while one.owner(Kind::Session, "s", "1", later).await != Ok(Some(b.clone())) {
            later += 61 * SECOND;
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, asking).await.expect("in time");
    assert_eq!(bind(&one, "1", &b).await, Ok(()));
    // One that was given to another while it was known here.
    bind(&one, "2", &b).await.expect("bound");
    let c = principal("c");
    let taking = async {
        while bind(&one, "2", &c).await != Ok(()) {
            two.end(Kind::Session, "s", "2", &b).await;
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, taking).await.expect("in time");
    assert_eq!(owner(&two, "2").await, Ok(Some(c)));
    let keys = redis.say("EVAL \"return #redis.call('KEYS', 'lictor:{*}')\" 0").await;
    assert_eq!(keys, ":4", "two, the probe, and when it began");
    let left = redis.say("EVAL \"return redis.call('KEYS', '*')[1]\" 0").await;
    assert!(left.starts_with("lictor:{"), "{left}");
}

#[tokio::test]
async fn a_killed_redis_is_missed_and_found_again() {
    let mut redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let (a, b) = (principal("a"), principal("b"));
    bind(&owners, "known", &a).await.expect("bound");
    redis.kill().await;
    assert!(give_up(&owners).await < SOON);
    assert_eq!(try_bind(&owners, "new", &a).await, Err(BindError::Unavailable(Unavailable)));
    let admitted = owners.admits(Kind::Session, &a, Clock.unix());
    assert_eq!(admitted, Err(BindError::Unavailable(Unavailable)));
    assert_eq!(owner(&owners, "known").await, Ok(Some(a.clone())), "memory goes on");
    redis.revive().await;
    until(&owners, true).await;
    assert_eq!(owners.admits(Kind::Session, &a, Clock.unix()), Ok(()));
    assert_eq!(owner(&owners, "unknown").await, Ok(None));
    assert_eq!(bind(&owners, "new", &b).await, Ok(()));
    // It has come back with nothing. What memory knows is told to it with the next use, whatever was
    // confirmed a moment ago.
    let other = open(&settings(&redis)).await;
    assert_eq!(owner(&other, "known").await, Ok(None));
    assert_eq!(owner(&owners, "known").await, Ok(Some(a.clone())));
    assert_eq!(owner(&other, "known").await, Ok(Some(a)));
    assert!(owners.health().failures > 0);
}

#[tokio::test]
async fn a_frozen_redis_costs_three_waits_and_not_one_a_call() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let a = principal("a");
    bind(&owners, "known", &a).await.expect("bound");
    redis.freeze().await;
    let began = Clock.instant();
    let longest = give_up(&owners).await;
    assert!(longest < SOON, "{longest:?}");
    // A hundred calls; each with a wait of its own would take two seconds.
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert_eq!(owner(&owners, "known").await, Ok(Some(a)));
    redis.thaw().await;
    until(&owners, true).await;
    assert_eq!(owner(&owners, "unknown").await, Ok(None));
}

#[tokio::test]
async fn a_connection_that_was_closed_in_between_is_no_failure() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let a = principal("a");
    bind(&owners, "1", &a).await.expect("bound");
    for number in 0..5 {
        let closed = redis.say("CLIENT KILL TYPE normal").await;
        assert!(closed.starts_with(':'), "{closed}");
        assert_eq!(owner(&owners, &format!("no-{number}")).await, Ok(None));
    }
}

#[tokio::test]
async fn errors_of_redis_are_no_answers() {
    let redis = RedisServer::start().await;
    let owners = open(&settings(&redis)).await;
    let a = principal("a");
    bind(&owners, "known", &a).await.expect("bound");
    // Something else under one key says nothing of the others.
    let key = key::Key::new(Kind::Session, "s", "odd");
    let name = format!("lictor:{{{}}}", data_encoding::HEXLOWER.encode(key.digest()));
    assert_eq!(redis.say(&format!("LPUSH {name} x")).await, ":1");
    for _ in 0..10 {
        assert_eq!(ask(&owners, "odd").await, Err(Unavailable));
        let bound = try_bind(&owners, "odd", &a).await;
        assert_eq!(bound, Err(BindError::Unavailable(Unavailable)));
    }
    assert_eq!(owners.health().available, Some(true));
    assert_eq!(owner(&owners, "unknown").await, Ok(None));
    // A replica answers, and takes no writes.
    assert_eq!(redis.say("REPLICAOF 127.0.0.1 1").await, "+OK");
    assert!(give_up(&owners).await < SOON);
    assert_eq!(owner(&owners, "known").await, Ok(Some(a)));
    assert_eq!(redis.say("REPLICAOF NO ONE").await, "+OK");
    until(&owners, true).await;
    // Full, and told not to forget.
    assert_eq!(redis.say("CONFIG SET maxmemory 1").await, "+OK");
    for number in 0..10 {
        let bound = try_bind(&owners, &number.to_string(), &principal("b")).await;
        assert_eq!(bound, Err(BindError::Unavailable(Unavailable)));
    }
    assert_eq!(redis.say("CONFIG SET maxmemory 0").await, "+OK");
    until(&owners, true).await;
    assert_eq!(bind(&owners, "1", &principal("b")).await, Ok(()));
}

/// Answers every command with the same line.
async fn answering(line: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    let commands = bytes[..read].iter().filter(|byte| **byte == b'*').count();
                    if stream.write_all(line.repeat(commands).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn what_never_answers_well_is_never_used() {
    for line in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-NOAUTH Authentication required.\r\n",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ] {
        let mut settings = RedisSettings {
            host: "127.0.0.1".into(),
            port: answering(line).await,
            database: 0,
            username: None,
            password: None,
            transport: Transport::Plain,
        };
        let owners = open(&Settings::Redis(settings.clone())).await;
        assert_eq!(owners.health().available, Some(false), "{line}");
        assert_eq!(ask(&owners, "1").await, Err(Unavailable), "{line}");
        // A plain server where TLS is expected.
        settings.transport = Transport::Tls { roots: None };
        let owners = open(&Settings::Redis(settings)).await;
        assert_eq!(ask(&owners, "1").await, Err(Unavailable), "{line}");
    }
}

#[tokio::test]
async fn a_user_and_a_password_are_shown_to_redis() {
    // No more than the documentation says.
    let acl = "--user lictor on >secret ~lictor:* +get +set +del +getex +time +eval +select \
               --user default off";
    let acl: Vec<&str> = acl.split(' ').collect();
    let redis = RedisServer::start_with(&acl).await;
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("password");
    std::fs::write(&file, "wrong\n").expect("a file");
    let Settings::Redis(mut settings) = settings(&redis) else { panic!("Redis") };
    settings.username = Some("lictor".into());
    settings.password = Some(Password::File(file.clone()));
    settings.database = 3;
    let owners = open(&Settings::Redis(settings.clone())).await;
    assert_eq!(ask(&owners, "1").await, Err(Unavailable));
    // The file is read again for the next attempt.
    std::fs::write(&file, "secret\n").expect("a file");
    until(&owners, true).await;
    let a = principal("a");
    assert_eq!(bind(&owners, "1", &a).await, Ok(()));
    assert_eq!(owner(&open(&Settings::Redis(settings.clone())).await, "1").await, Ok(Some(a)));
    owners.end(Kind::Session, "s", "1", "spiffe://td/a").await;
    for of in [
        Allowance::Rate { tokens: NonZeroU32::MIN, period: SECOND, burst: NonZeroU32::MIN },
        Allowance::Once { tokens: NonZeroU32::MIN },
    ] {
        let taking = async || owners.tokens(("limit", "a"), &of, 1, 1).await;
        assert!(matches!(patiently(taking).await, Ok(Block::Granted { .. })), "{of:?}");
    }
    settings.password = Some(Password::File(directory.path().join("none")));
    let opened = Owners::open(Settings::Redis(settings), limits, Clock.unix()).await;
    assert!(matches!(opened, Err(OpenError::Redis(_))));
}

//! What holds for each store, and for what stands in front of it.

use std::{sync::Arc, time::Duration};

use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};

use self::server::RedisServer;
use super::{
    store::{Claim, Store},
    *,
};
use crate::telemetry::Clock;

mod once;
mod redis;
#[path = "../../tests/support/redis.rs"]
pub(crate) mod server;
mod tokens;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
const PATIENCE: Duration = Duration::from_secs(20);

/// A store, and what it lives on.
struct Site {
    settings: Settings,
    _directory: Option<TempDir>,
    _redis: Option<RedisServer>,
}

async fn sites() -> [(&'static str, Site); 3] {
    let directory = TempDir::new().expect("a directory");
    let redis = RedisServer::start().await;
    [
        ("memory", Site { settings: Settings::Memory, _directory: None, _redis: None }),
        (
            "file",
            Site {
                settings: Settings::Directory(directory.path().join("state")),
                _directory: Some(directory),
                _redis: None,
            },
        ),
        ("redis", Site { settings: settings(&redis), _directory: None, _redis: Some(redis) }),
    ]
}

fn settings(redis: &RedisServer) -> Settings {
    Settings::Redis(RedisSettings {
        host: "127.0.0.1".into(),
        port: redis.port,
        database: 0,
        username: None,
        password: None,
        transport: Transport::Plain,
    })
}

fn limits(kind: Kind) -> Limits {
    Limits { per_owner: 100, total: 200, idle: DAY, forgets: kind == Kind::Continuation }
}

async fn open(settings: &Settings) -> Owners {
    Owners::open(settings.clone(), limits, Clock.unix()).await.expect("a store")
}

/// On a busy machine Redis may take longer than it is waited for; that can be tried again.
async fn patiently<T, E: From<Unavailable> + PartialEq>(
    mut ask: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let asking = async {
        loop {
            let told = ask().await;
            if told.as_ref().err() != Some(&Unavailable.into()) {
                return told;
            }
            // Who makes the next link may need this thread.
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, asking).await.expect("in time")
}

fn principal(name: &str) -> Arc<str> {
    format!("spiffe://td/{name}").into()
}

#[tokio::test]
async fn what_was_given_away_belongs_to_one_owner() {
    let (a, b) = (principal("a"), principal("b"));
    for (store, site) in sites().await {
        let owners = open(&site.settings).await;
        let now = Clock.unix();
        for kind in Kind::ALL {
            let owner = async |id| patiently(async || owners.owner(kind, "s", id, now).await).await;
            let bind =
                async |id, to| patiently(async || owners.bind(kind, "s", id, to, now).await).await;
            assert_eq!(owner("1").await, Ok(None), "{store}");
            assert_eq!(bind("1", &a).await, Ok(()), "{store}");
            assert_eq!(bind("1", &a).await, Ok(()), "{store}: again");
            assert_eq!(bind("1", &b).await, Err(BindError::Taken), "{store}");
            assert_eq!(owner("1").await, Ok(Some(a.clone())), "{store}");
            let other = patiently(async || owners.owner(kind, "other", "1", now).await).await;
            assert_eq!(other, Ok(None), "{store}");
            owners.end(kind, "s", "1", &b).await;
            assert_eq!(owner("1").await, Ok(Some(a.clone())), "{store}: not b's to end");
            owners.end(kind, "s", "1", &a).await;
            assert_eq!(owner("1").await, Ok(None), "{store}");
            assert_eq!(bind("1", &b).await, Ok(()), "{store}");
            assert_eq!(owner("1").await, Ok(Some(b.clone())), "{store}");
            assert_eq!(owners.len(kind), 1, "{store}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_are_given_the_same_one_wins() {
    for (store, site) in sites().await {
        let replicas = match store {
            "redis" => vec![open(&site.settings).await, open(&site.settings).await],
            _ => vec![open(&site.settings).await],
        };
        let replicas: Arc<Vec<Owners>> = Arc::new(replicas);
        let mut tries = JoinSet::new();
        for number in 0..64 {
            let replicas = Arc::clone(&replicas);
            tries.spawn(async move {
                let owners = &replicas[number % replicas.len()];
                let owner = principal(&number.to_string());
                loop {
                    let bound = owners.bind(Kind::Session, "s", "1", &owner, Clock.unix()).await;
                    if bound != Err(BindError::Unavailable(Unavailable)) {
                        return bound;
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        let ended = tries.join_all().await;
        let won = ended.iter().filter(|ended| ended.is_ok()).count();
        let lost = ended.iter().filter(|ended| **ended == Err(BindError::Taken)).count();
        assert_eq!((won, lost), (1, 63), "{store}");
        let mut owner = None;
        for replica in &*replicas {
            let ask = async || replica.owner(Kind::Session, "s", "1", Clock.unix()).await;
            let told = patiently(ask).await.expect("known");
            assert!(owner.is_none() || told == owner, "{store}");
            owner = told;
        }
        assert!(owner.is_some(), "{store}");
    }
}

#[tokio::test]
async fn owners_are_bounded_whatever_the_store() {
    let a = principal("a");
    for (store, site) in sites().await {
        let owners = open(&site.settings).await;
        let now = Clock.unix();
        for id in 0..100 {
            let id = id.to_string();
            let bound = patiently(async || owners.bind(Kind::Task, "s", &id, &a, now).await).await;
            assert_eq!(bound, Ok(()), "{store}");
        }
        let one_more = owners.bind(Kind::Task, "s", "100", &a, now).await;
        assert_eq!(one_more, Err(BindError::Full), "{store}");
        let admitted = patiently(async || owners.admits(Kind::Task, &a, now)).await;
        assert_eq!(admitted, Err(BindError::Full), "{store}");
        let none = patiently(async || owners.owner(Kind::Task, "s", "100", now).await).await;
        assert_eq!(none, Ok(None), "{store}");
        // One kind doesn't crowd out another, nor one owner another.
        let bind =
            async |kind, to| patiently(async || owners.bind(kind, "s", "1", to, now).await).await;
        assert_eq!(bind(Kind::Session, &a).await, Ok(()), "{store}");
        assert_eq!(bind(Kind::Task, &principal("b")).await, Err(BindError::Taken), "{store}");
        let other =
            patiently(async || owners.bind(Kind::Task, "s", "b", &principal("b"), now).await);
        assert_eq!(other.await, Ok(()), "{store}");
        // Where the answer to a call that has run brings them, the oldest make room.
        for id in 0..150 {
            let (id, now) = (id.to_string(), now + id * SECOND);
            let bind = async || owners.bind(Kind::Continuation, "s", &id, &a, now).await;
            assert_eq!(patiently(bind).await, Ok(()), "{store}");
        }
        let kept = owners.len(Kind::Continuation);
        assert!((75..=100).contains(&kept), "{store}: {kept}");
        let last = async || owners.owner(Kind::Continuation, "s", "149", now).await;
        assert_eq!(patiently(last).await, Ok(Some(a.clone())), "{store}");
        // After a day without use all is forgotten.
        let later = now + DAY + 200 * SECOND;
        let admitted = patiently(async || owners.admits(Kind::Task, &a, later)).await;
        assert_eq!(admitted, Ok(()), "{store}");
        owners.reap(later);
        assert!(Kind::ALL.iter().all(|kind| owners.len(*kind) == 0), "{store}");
    }
}

#[tokio::test]
async fn a_claim_ends_with_its_time() {
    let (a, b) = (principal("a"), principal("b"));
    for (name, site) in sites().await.into_iter().skip(1) {
        let (store, _) = Store::open(site.settings, Clock.unix()).await.expect("a store");
        let key = key::Key::new(Kind::Session, "s", "1");
        let claim = async |to, ttl| patiently(async || store.claim(&key, to, ttl).await).await;
        assert_eq!(claim(&a, DAY).await, Ok(Claim::Granted), "{name}");
        assert_eq!(claim(&a, Duration::from_millis(100)).await, Ok(Claim::Granted), "{name}");
        let taking = async { while claim(&b, DAY).await != Ok(Claim::Granted) {} };
        timeout(PATIENCE, taking).await.expect("it ended");
        assert_eq!(claim(&a, DAY).await, Ok(Claim::Taken), "{name}");
        store.release(&key, &a).await;
        assert_eq!(claim(&a, DAY).await, Ok(Claim::Taken), "{name}");
        // One that isn't heard is not repeated; the time ends it then.
        let releasing = async {
            while claim(&a, DAY).await != Ok(Claim::Granted) {
                store.release(&key, &b).await;
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, releasing).await.expect("it is free");
    }
}

#[tokio::test]
async fn the_file_remembers_what_the_process_forgets() {
    let directory = TempDir::new().expect("a directory");
    let settings = Settings::Directory(directory.path().join("deep/state"));
    let (a, b) = (principal("a"), principal("b"));
    let owners = open(&settings).await;
    let now = Clock.unix();
    for kind in Kind::ALL {
        owners.bind(kind, "s", "kept", &a, now).await.expect("bound");
        owners.bind(kind, "s", "ended", &a, now).await.expect("bound");
        owners.end(kind, "s", "ended", &a).await;
    }
    // Whatever is asked for next is written after it.
    owners.bind(Kind::Session, "s", "last", &b, now).await.expect("bound");
    let second = Owners::open(settings.clone(), limits, now).await;
    assert!(matches!(second, Err(OpenError::Embedded(_))), "one process at a time");
    drop(owners);
    let owners = reopened(&settings).await;
    for kind in Kind::ALL {
        assert_eq!(owners.owner(kind, "s", "kept", now).await, Ok(Some(a.clone())));
        assert_eq!(owners.owner(kind, "s", "ended", now).await, Ok(None));
    }
    assert_eq!(owners.owner(Kind::Session, "s", "last", now).await, Ok(Some(b.clone())));
    let bound = owners.bind(Kind::Session, "s", "kept", &b, now).await;
    assert_eq!(bound, Err(BindError::Taken));
    assert_eq!((owners.len(Kind::Session), owners.len(Kind::Task)), (2, 1));
    // Neither ids nor what could be made of them is in the file.
    let file = directory.path().join("deep/state/state.redb");
    let bytes = std::fs::read(&file).expect("the file");
    assert!(bytes.windows(a.len()).any(|window| window == a.as_bytes()));
    assert!(!bytes.windows(4).any(|window| window == b"kept"));
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The writer of the one before closes the file in its own time.
async fn reopened(settings: &Settings) -> Owners {
    let opening = async {
        loop {
            if let Ok(owners) = Owners::open(settings.clone(), limits, Clock.unix()).await {
                return owners;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, opening).await.expect("it opens")
}

#[tokio::test]
async fn a_damaged_file_is_not_taken_for_an_empty_one() {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("state.redb"), b"not what it should be").expect("a file");
    let settings = Settings::Directory(directory.path().to_owned());
    let opened = Owners::open(settings, limits, Clock.unix()).await;
    assert!(matches!(opened, Err(OpenError::Embedded(_))));
}

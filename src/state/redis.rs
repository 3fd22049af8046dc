//! Bindings in Redis, which replicas share.
//!
//! One key for each binding, `lictor:{…}` with the digest in braces, so that a cluster keeps whatever belongs to
//! it in one place; its value is the owner, its time to live that of the binding. Claiming and releasing compare
//! owners, which has to happen in one step: two short scripts.
//!
//! A call waits for 20 ms at most. Three failures in a row cut the link: from then on nobody waits, until
//! [`link::keep`] has made a new one and seen that it takes writes. So a Redis that stands still costs three
//! waits for each time that it does, not one a call, and a connection that nobody closed is not used for ever.
//!
//! INVARIANT: an answer that can't be had is [`Unavailable`] and never "nobody".

mod dial;
mod link;
mod records;
mod tokens;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use ::redis::{Cmd, FromRedisValue, RedisError, RedisResult};
use data_encoding::HEXLOWER;
use tokio::{sync::watch, task::JoinSet, time::timeout};
use uuid::Uuid;

pub(super) use self::dial::SetupError;
use self::{dial::Dialer, link::Link};
use super::{RedisSettings, Unavailable, key::Key, store::Claim};

/// Longest time that a call waits.
const BUDGET: Duration = Duration::from_millis(20);

/// How many failures in a row cut the link.
const TOLERATED: u32 = 3;

/// Longest owner that is believed: a SPIFFE ID has at most so many bytes.
const LONGEST_OWNER: usize = 2048;

/// Says whose it is for some more time, unless it is somebody else's.
const CLAIM: &str = "\
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// Deletes the binding of its owner.
const RELEASE: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// A Redis.
#[derive(Debug)]
pub(super) struct Redis {
    /// `None` while there is none; the breaker.
    link: Arc<watch::Sender<Option<Link>>>,
    in_a_row: AtomicU32,
    failures: AtomicU64,
    /// Ends with this.
    _keeper: JoinSet<()>,
}

impl Redis {
    /// Connects, or goes on trying.
    pub(super) async fn start(settings: RedisSettings) -> Result<Self, SetupError> {
        let dialer = Dialer::new(settings)?;
        let link = Arc::new(watch::Sender::new(None));
        let mut keeper = JoinSet::new();
        let first = link::first(&dialer, &link).await;
        keeper.spawn(link::keep(dialer, Arc::clone(&link), first));
        Ok(Self { link, in_a_row: AtomicU32::new(0), failures: AtomicU64::new(0), _keeper: keeper })
    }

    pub(super) async fn claim(
        &self,
        key: &Key,
        owner: &str,
        ttl: Duration,
    ) -> Result<Claim, Unavailable> {
        let mut claim = script(CLAIM, key.digest());
        claim.arg(owner).arg(millis(ttl));
        match self.ask(&claim).await? {
            1 => Ok(Claim::Granted),
            _ => Ok(Claim::Taken),
        }
    }

    /// Whether nobody has claimed it within `ttl`.
    pub(super) async fn claim_once(
        &self,
        digest: &[u8; 32],
        ttl: Duration,
    ) -> Result<bool, Unavailable> {
        let mut claim = script(CLAIM, digest);
        // A command may be sent twice, so each claim has an owner that no other has.
        claim.arg(Uuid::now_v7().to_string()).arg(millis(ttl));
        Ok(self.ask::<u32>(&claim).await? == 1)
    }

    pub(super) async fn owner(
        &self,
        key: &Key,
        ttl: Duration,
    ) -> Result<Option<Arc<str>>, Unavailable> {
        let mut look = ::redis::cmd("GETEX");
        look.arg(name(key.digest())).arg("PX").arg(millis(ttl));
        let owner: Option<String> = self.ask(&look).await?;
        match owner {
            Some(owner) if owner.len() > LONGEST_OWNER => Err(Unavailable),
            owner => Ok(owner.map(Into::into)),
        }
    }

    pub(super) async fn release(&self, key: &Key, owner: &str) {
        let mut release = script(RELEASE, key.digest());
        release.arg(owner);
        // The number says whether there was anything to delete, which there need not have been.
        let released: Result<u32, _> = self.ask(&release).await;
        if released.is_err() {
            tracing::debug!("a binding that has ended can't be released; it ends with its time");
        }
    }

    /// When the present link was made. What was written before may have been lost with the link before it.
    pub(super) fn since(&self) -> Duration {
        self.link.borrow().as_ref().map_or(Duration::ZERO, |link| link.since)
    }

    /// When what is there began. What was used before is forgotten, by a Redis that came back with nothing.
    pub(super) fn begun(&self) -> Duration {
        self.link.borrow().as_ref().map_or(Duration::ZERO, |link| link.begun)
    }

    pub(super) fn available(&self) -> bool {
        self.link.borrow().is_some()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Every command of ours can be sent twice without harm, though tokens that it takes are taken twice then.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Unavailable> {
        let link = self.link.borrow().clone();
        let Some(mut link) = link else {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(Unavailable);
        };
        let failure = match timeout(BUDGET, self.attempt(&mut link, command)).await {
            Ok(Ok(answer)) => {
                self.in_a_row.store(0, Ordering::Relaxed);
                return Ok(answer);
            }
            Ok(Err(error)) => Failure::Answer(error),
            Err(_) => Failure::TimeOut(BUDGET),
        };
        self.failed(&link, &failure);
        Err(Unavailable)
    }

    /// A connection that was closed while nobody looked is no failure yet: its successor is waited for, within
    /// the budget.
    async fn attempt<T: FromRedisValue>(&self, link: &mut Link, command: &Cmd) -> RedisResult<T> {
        match command.query_async(&mut link.connection).await {
            Err(error) if error.is_connection_dropped() => {
                let mut links = self.link.subscribe();
                let next = |next: &Option<Link>| next.as_ref().is_some_and(|it| it.follows(link));
                match links.wait_for(next).await.as_deref() {
                    Ok(Some(next)) => *link = next.clone(),
                    Ok(None) | Err(_) => return Err(error),
                }
                command.query_async(&mut link.connection).await
            }
            answer => answer,
        }
    }

    fn failed(&self, link: &Link, failure: &Failure) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if failure.is_of_one_key() {
            self.in_a_row.store(0, Ordering::Relaxed);
            tracing::warn!(%failure, "what Redis has under a key is nothing of ours");
            return;
        }
        tracing::debug!(%failure, "Redis doesn't answer as it should");
        if self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= TOLERATED {
            self.in_a_row.store(0, Ordering::Relaxed);
            if link::cut(&self.link, link) {
                tracing::warn!(%failure, "Redis is given up until it answers again");
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Answer(RedisError),
    #[error("no answer within {} ms", .0.as_millis())]
    TimeOut(Duration),
}

impl Failure {
    /// Whether it says nothing of Redis itself.
    fn is_of_one_key(&self) -> bool {
        match self {
            Self::Answer(error) => error.code() == Some("WRONGTYPE"),
            Self::TimeOut(_) => false,
        }
    }
}

fn script(text: &str, digest: &[u8; 32]) -> Cmd {
    let mut command = ::redis::cmd("EVAL");
    command.arg(text).arg(1).arg(name(digest));
    command
}

fn name(digest: &[u8; 32]) -> String {
    format!("lictor:{{{}}}", HEXLOWER.encode(digest))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

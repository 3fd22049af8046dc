//! What stands behind the memory.
//!
//! INVARIANT: [`Store::claim`] succeeds for one owner of a key only, whoever asks at the same time and wherever,
//! until that owner releases it or the time has passed.

use std::{sync::Arc, time::Duration};

use super::{
    Allowance, Block, Settings, Unavailable,
    embedded::{self, Embedded, Found},
    key::Key,
    once::Once,
    redis::{self, Redis},
};

/// A file that was written an hour ago is off by an hour at most after a crash, of a day.
const BELIEVED_EMBEDDED: Duration = Duration::from_secs(3600);

/// How long a replica goes by what it knows once another one may have ended a session.
const BELIEVED_SHARED: Duration = Duration::from_secs(60);

/// One of the places where bindings are kept beside memory.
#[derive(Debug)]
pub(super) enum Store {
    /// Nowhere.
    None,
    /// In a file. Memory knows all that is in it.
    Embedded(Embedded),
    /// In a Redis. Memory knows a part of it, and others write to it.
    Redis(Redis),
}

/// What a store says to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is the owner's now, or was before and stays so for longer.
    Granted,
    /// It is somebody else's.
    Taken,
}

/// Why a store can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file can't be opened.
    #[error("the state file can't be opened")]
    Embedded(#[source] embedded::OpenError),
    /// The settings of Redis have a fault.
    #[error("Redis can't be set up")]
    Redis(#[source] redis::SetupError),
}

impl Store {
    /// Opens it, with what is known of things that may be used once.
    pub(super) async fn open(settings: Settings, now: Duration) -> Result<(Self, Once), OpenError> {
        match settings {
            Settings::Memory => Ok((Self::None, Once::unwritten(now))),
            Settings::Directory(directory) => {
                let opened = Embedded::open(&directory, now).map_err(OpenError::Embedded);
                opened.map(|(file, once)| (Self::Embedded(file), once))
            }
            Settings::Redis(settings) => {
                let redis = Redis::start(settings).await.map_err(OpenError::Redis)?;
                Ok((Self::Redis(redis), Once::unwritten(Duration::ZERO)))
            }
        }
    }

    /// What an earlier process left; once.
    pub(super) fn take_found(&mut self) -> Vec<Found> {
        match self {
            Self::None | Self::Redis(_) => Vec::new(),
            Self::Embedded(file) => file.take_found(),
        }
    }

    /// Makes `owner` the owner for `ttl`, unless somebody else is; for its owner, starts the time anew. Durable
    /// when it returns.
    pub(super) async fn claim(
        &self,
        key: &Key,
        owner: &Arc<str>,
        ttl: Duration,
    ) -> Result<Claim, Unavailable> {
        match self {
            Self::None => Ok(Claim::Granted),
            Self::Embedded(file) => file.claim(key, owner, ttl).await,
            Self::Redis(redis) => redis.claim(key, owner, ttl).await,
        }
    }

    /// Whether something that may be used once wasn't used within `ttl` by any replica. A process that shares
    /// its store with nobody knows by its [`Once`].
    pub(super) async fn claim_once(
        &self,
        digest: &[u8; 32],
        ttl: Duration,
    ) -> Result<bool, Unavailable> {
        match self {
            Self::None | Self::Embedded(_) => Ok(true),
            Self::Redis(redis) => redis.claim_once(digest, ttl).await,
        }
    }

    /// From when on it knows what was used, since the Unix epoch. To be asked after it was told of a use, since it
    /// may have come back in between with nothing.
    pub(super) fn begun(&self) -> Duration {
        match self {
            Self::None | Self::Embedded(_) => Duration::ZERO,
            Self::Redis(redis) => redis.begun(),
        }
    }

    /// Takes a block of tokens that replicas share. A process that shares its store with nobody counts by itself.
    pub(super) async fn tokens(
        &self,
        digest: &[u8; 32],
        allowance: &Allowance,
        need: u32,
        want: u32,
    ) -> Result<Block, Unavailable> {
        match self {
            Self::None | Self::Embedded(_) => Err(Unavailable),
            Self::Redis(redis) => redis.tokens(digest, allowance, need, want).await,
        }
    }

    /// The owner of what memory doesn't know.
    pub(super) async fn owner(
        &self,
        key: &Key,
        ttl: Duration,
    ) -> Result<Option<Arc<str>>, Unavailable> {
        match self {
            Self::None | Self::Embedded(_) => Ok(None),
            Self::Redis(redis) => redis.owner(key, ttl).await,
        }
    }

    /// Forgets a binding, if it is `owner`'s. Nothing hangs on it: what isn't released ends with its time, and
    /// until then the upstream says that there is no such thing.
    pub(super) async fn release(&self, key: &Key, owner: &str) {
        match self {
            Self::None => {}
            Self::Embedded(file) => file.release(key, owner),
            Self::Redis(redis) => redis.release(key, owner).await,
        }
    }

    /// Is told that memory had no room for a binding any more: what memory doesn't know is not to be in a file.
    pub(super) fn forget(&self, key: &Key, owner: &str) {
        match self {
            // There it can be found again.
            Self::None | Self::Redis(_) => {}
            Self::Embedded(file) => file.release(key, owner),
        }
    }

    /// Whether others write to it, so that it knows better than memory.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::None | Self::Embedded(_) => false,
            Self::Redis(_) => true,
        }
    }

    /// How long memory is believed before the store is told, or asked, again. `None`: for ever.
    pub(super) fn believed(&self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Embedded(_) => Some(BELIEVED_EMBEDDED),
            Self::Redis(_) => Some(BELIEVED_SHARED),
        }
    }

    /// The time since the Unix epoch before which nothing that was told it counts: it may have been lost.
    pub(super) fn since(&self) -> Duration {
        match self {
            Self::None | Self::Embedded(_) => Duration::ZERO,
            Self::Redis(redis) => redis.since(),
        }
    }

    /// Whether it works at the moment, as far as is known; `None` without a store.
    pub(super) fn available(&self) -> Option<bool> {
        match self {
            Self::None => None,
            Self::Embedded(file) => Some(file.available()),
            Self::Redis(redis) => Some(redis.available()),
        }
    }

    /// How often it failed since the start.
    pub(super) fn failures(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Embedded(file) => file.failures(),
            Self::Redis(redis) => redis.failures(),
        }
    }
}

//! Who owns what.
//!
//! Memory stands in front of the store. What memory knows is answered from there, without waiting for anything;
//! the store is told of it again from time to time, so that it doesn't forget, and corrects it where it is shared.
//! What memory doesn't know is looked up, each time: that there is no such thing is never remembered.
//!
//! | store | known in memory | not in memory | store down |
//! |---|---|---|---|
//! | none | for as long as it is used | doesn't exist | – |
//! | file | for as long as it is used | doesn't exist | nothing new is given away |
//! | Redis | for a minute, then asked again | is looked up | what is known goes on, the rest is [`Unavailable`] |

use std::{ops::Range, sync::Arc, time::Duration};

use super::{
    Allowance, Block, Kind, Limits, OpenError, Records, Settings,
    key::{self, Key},
    memory::{Memory, Recalled},
    once::{Once, Use},
    store::{Claim, Store},
};

/// To whom sessions, tasks, continuations and contexts of all upstreams were given.
#[derive(Debug)]
pub struct Owners {
    sessions: Memory,
    tasks: Memory,
    continuations: Memory,
    contexts: Memory,
    once: Once,
    store: Arc<Store>,
}

/// Why something can't be given to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The table, or the owner's share of it, is full.
    #[error("too many bindings")]
    Full,
    /// The upstream handed out an id that somebody else holds.
    #[error("the id is already taken")]
    Taken,
    /// It can't be written down where it would be found again.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Whose it is can't be found out, or written down, at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state store is not available")]
pub struct Unavailable;

/// How the store is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it works, as far as is known; `None` without a store.
    pub available: Option<bool>,
    /// Requests to it that failed since the start.
    pub failures: u64,
}

impl Owners {
    /// Opens the store. Each kind has `limits` of its own, so that one can't crowd out another: [`Limits::of`],
    /// but for tests. `now` is time since the Unix epoch, here as everywhere.
    ///
    /// # Errors
    /// When the store can't be had with such settings. A Redis that doesn't answer is no error: it may come.
    pub async fn open(
        settings: Settings,
        limits: fn(Kind) -> Limits,
        now: Duration,
    ) -> Result<Self, OpenError> {
        let (mut store, once) = Store::open(settings, now).await?;
        let found = store.take_found();
        let owners = Self {
            sessions: Memory::new(limits(Kind::Session)),
            tasks: Memory::new(limits(Kind::Task)),
            continuations: Memory::new(limits(Kind::Continuation)),
            contexts: Memory::new(limits(Kind::Context)),
            once,
            store: Arc::new(store),
        };
        for found in found {
            // What is too much by the limits of today is not remembered any more.
            let _ = owners.of(found.key.kind()).bind(found.key, &found.owner, now);
        }
        Ok(owners)
    }

    /// The owner, if there is one; counts as use.
    ///
    /// # Errors
    /// When it isn't known here and can't be looked up, so that it may exist or not.
    pub async fn owner(
        &self,
        kind: Kind,
        server: &str,
        id: &str,
        now: Duration,
    ) -> Result<Option<Arc<str>>, Unavailable> {
        let key = Key::new(kind, server, id);
        let memory = self.of(kind);
        match memory.recall(&key, now, self.fresh(now)) {
            Recalled::Known(owner) => return Ok(Some(owner)),
            Recalled::Stale(owner) => match self.store.claim(&key, &owner, self.ttl(kind)).await {
                Ok(Claim::Granted) => return Ok(Some(owner)),
                Ok(Claim::Taken) => memory.end(&key, &owner),
                Err(Unavailable) => {
                    memory.doubt(&key);
                    return Ok(Some(owner));
                }
            },
            Recalled::Unknown => {}
        }
        let Some(owner) = self.store.owner(&key, self.ttl(kind)).await? else { return Ok(None) };
        // Without room it is looked up again the next time.
        if self.make_room(memory, &owner, now).is_ok() {
            let _ = memory.bind(key, &owner, now);
        }
        Ok(Some(owner))
    }

    /// Whether `owner` may be given one more; to be asked before a call is forwarded whose answer brings one.
    pub fn admits(&self, kind: Kind, owner: &str, now: Duration) -> Result<(), BindError> {
        if self.store.available() == Some(false) {
            return Err(Unavailable.into());
        }
        if self.of(kind).admits(owner, now) { Ok(()) } else { Err(BindError::Full) }
    }

    /// Remembers to whom something was given. To be called, and to have succeeded, before the caller hears of
    /// the id; again for the same owner is fine.
    pub async fn bind(
        &self,
        kind: Kind,
        server: &str,
        id: &str,
        owner: &Arc<str>,
        now: Duration,
    ) -> Result<(), BindError> {
        let key = Key::new(kind, server, id);
        let memory = self.of(kind);
        self.make_room(memory, owner, now)?;
        match self.store.claim(&key, owner, self.ttl(kind)).await? {
            Claim::Granted => {}
            Claim::Taken => return Err(BindError::Taken),
        }
        let mut bound = memory.bind(key, owner, now);
        if bound == Err(BindError::Taken) && self.store.is_shared() {
            // It ended elsewhere, and was given to somebody else since.
            memory.forget(&key);
            bound = memory.bind(key, owner, now);
        }
        if bound.is_err() {
            self.store.release(&key, owner).await;
        }
        bound
    }

    /// Uses something that may be used once and only at some times, such as a token that is shown. What could be
    /// used before it is known what was used is not: by a process before this one, of which nothing is left.
    ///
    /// # Errors
    /// When it can't be remembered, or the store that replicas share can't be asked: it may have been used.
    pub async fn claim_once(
        &self,
        id: &str,
        times: Range<Duration>,
        now: Duration,
    ) -> Result<Use, Unavailable> {
        let digest = key::once(id);
        let claimed = self.once.claim(&digest, times.start, times.end, now).await?;
        let ttl = times.end.saturating_sub(now).max(Duration::from_millis(1));
        if claimed != Use::First {
            return Ok(claimed);
        }
        if !self.store.claim_once(&digest, ttl).await? {
            return Ok(Use::Again);
        }
        let since = self.store.begun();
        Ok(if times.start <= since { Use::Unknown { since } } else { Use::First })
    }

    /// Takes a block of at least `need` tokens of a limit, `want` if there are so many, for one of its keys, from
    /// what all replicas have together.
    ///
    /// # Errors
    /// When replicas share no store, or it can't be asked. Tokens may have been taken then that nobody has.
    pub async fn tokens(
        &self,
        (limit, key): (&str, &str),
        allowance: &Allowance,
        need: u32,
        want: u32,
    ) -> Result<Block, Unavailable> {
        self.store.tokens(&key::tokens(allowance, limit, key), allowance, need, want).await
    }

    /// Forgets what has ended, if it was `owner`'s.
    pub async fn end(&self, kind: Kind, server: &str, id: &str, owner: &str) {
        let key = Key::new(kind, server, id);
        self.of(kind).end(&key, owner);
        self.store.release(&key, owner).await;
    }

    /// Forgets what was silent for too long; to be called now and then.
    pub fn reap(&self, now: Duration) {
        for kind in Kind::ALL {
            self.of(kind).reap(now);
        }
    }

    /// How many of a kind are remembered here.
    pub fn len(&self, kind: Kind) -> usize {
        self.of(kind).len()
    }

    /// What the same store keeps besides.
    pub fn records(&self) -> Records {
        Records::new(Arc::clone(&self.store))
    }

    /// How the store is doing.
    pub fn health(&self) -> Health {
        Health {
            available: self.store.available(),
            failures: self.store.failures().saturating_add(self.once.failures()),
        }
    }

    fn make_room(&self, memory: &Memory, owner: &str, now: Duration) -> Result<(), BindError> {
        for key in memory.make_room(owner, now)? {
            self.store.forget(&key, owner);
        }
        Ok(())
    }

    /// What was confirmed before is stale.
    fn fresh(&self, now: Duration) -> Duration {
        match self.store.believed() {
            None => Duration::ZERO,
            Some(believed) => now.saturating_sub(believed).max(self.store.since()),
        }
    }

    /// How long the store remembers: an entry that is used is told to it again before it has ended.
    fn ttl(&self, kind: Kind) -> Duration {
        self.of(kind).idle().saturating_add(self.store.believed().unwrap_or_default())
    }

    fn of(&self, kind: Kind) -> &Memory {
        match kind {
            Kind::Session => &self.sessions,
            Kind::Task => &self.tasks,
            Kind::Continuation => &self.continuations,
            Kind::Context => &self.contexts,
        }
    }
}

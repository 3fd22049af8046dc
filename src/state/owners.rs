//! Who owns what.

use std::{sync::Arc, time::Duration};

use super::{Kind, Limits, key::Key, memory::Memory};

/// To whom sessions, tasks and continuations of all upstreams were given.
#[derive(Debug)]
pub struct Owners {
    sessions: Memory,
    tasks: Memory,
    continuations: Memory,
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

impl Owners {
    /// Knows of nothing yet. `limits` hold for each kind on its own, so that one can't crowd out another.
    pub fn new(limits: Limits) -> Self {
        Self {
            sessions: Memory::new(limits),
            tasks: Memory::new(limits),
            continuations: Memory::new(limits),
        }
    }

    /// The owner, if there is one; counts as use. `now` is time since the Unix epoch.
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
        Ok(self.of(kind).owner(&Key::new(kind, server, id), now))
    }

    /// Whether `owner` may be given one more; to be asked before a call is forwarded whose answer brings one.
    pub fn admits(&self, kind: Kind, owner: &str, now: Duration) -> Result<(), BindError> {
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
        self.of(kind).bind(Key::new(kind, server, id), owner, now)
    }

    /// Forgets what has ended, if it was `owner`'s.
    pub async fn end(&self, kind: Kind, server: &str, id: &str, owner: &str) {
        self.of(kind).end(&Key::new(kind, server, id), owner);
    }

    /// How many of a kind are remembered here.
    pub fn len(&self, kind: Kind) -> usize {
        self.of(kind).len()
    }

    fn of(&self, kind: Kind) -> &Memory {
        match kind {
            Kind::Session => &self.sessions,
            Kind::Task => &self.tasks,
            Kind::Continuation => &self.continuations,
        }
    }
}

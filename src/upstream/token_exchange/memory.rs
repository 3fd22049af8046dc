//! Issued tokens that are still good, and exchanges that are under way.
//!
//! Exchanges at once are bounded for each caller as well, so that nobody whose tokens take long to refuse keeps
//! the others out.
//!
//! INVARIANT: for one digest there is one exchange at a time, and none while there is a good token: whoever
//! looks for one either finds it, or waits, or holds the only place to bring it. A place that is given up
//! frees the digest and tells those who wait.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use http::HeaderValue;
use tokio::sync::watch;

use super::{Bearer, Digest, TokenError};
use crate::telemetry::Secret;

/// Tokens that are kept; beyond it, the ones that end first make room.
const MOST_ISSUED: usize = 10_000;
/// Exchanges at once.
const MOST_COMING: usize = 256;
/// Those that one caller has begun.
const MOST_OF_ONE: usize = 64;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Memory(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    issued: HashMap<Digest, Kept>,
    /// The same, by when they end.
    ends: BTreeSet<(Instant, Digest)>,
    coming: HashMap<Digest, watch::Receiver<Option<Outcome>>>,
    /// How many of those each caller has begun.
    begun: HashMap<Arc<str>, usize>,
}

struct Kept {
    bearer: Bearer,
    until: Instant,
}

type Outcome = Result<Bearer, TokenError>;

/// What there is for a digest.
pub(super) enum Found {
    /// A good token.
    Issued(Bearer),
    /// An exchange that somebody else has begun.
    Coming(Coming),
    /// Nothing: the place is for whoever begins an exchange, whose outcome comes here as well.
    Nothing(Place, Coming),
    /// Nothing, and no room for one more exchange.
    Full,
}

/// Waits for the outcome of an exchange.
pub(super) struct Coming(watch::Receiver<Option<Outcome>>);

impl Coming {
    pub(super) async fn outcome(mut self) -> Outcome {
        match self.0.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(TokenError::Unavailable)),
            // Whoever held the place gave it up.
            Err(_) => Err(TokenError::Unavailable),
        }
    }
}

/// The one exchange for a digest.
pub(super) struct Place {
    memory: Arc<Memory>,
    of: Digest,
    caller: Arc<str>,
    brought: Option<Brought>,
    tell: watch::Sender<Option<Outcome>>,
}

/// What an exchange has come to: a token, and until when it may be used again.
type Brought = Result<(Secret<HeaderValue>, Option<Instant>), TokenError>;

impl Place {
    /// Tells those who wait, and keeps a token that may be used again until a moment.
    pub(super) fn finish(mut self, brought: Brought) {
        self.brought = Some(brought);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.memory.lock();
        inner.coming.remove(&self.of);
        if let Entry::Occupied(mut begun) = inner.begun.entry(Arc::clone(&self.caller)) {
            *begun.get_mut() = begun.get().saturating_sub(1);
            if *begun.get() == 0 {
                begun.remove();
            }
        }
        let outcome = self.brought.take().map(|brought| {
            let (value, until) = brought?;
            let bearer = Bearer { value, of: self.of };
            if let Some(until) = until {
                inner.keep(bearer.clone(), until);
            }
            Ok(bearer)
        });
        // Nobody is told before the place is free: whoever calls again after a failure is to begin anew.
        drop(inner);
        if outcome.is_some() {
            self.tell.send_replace(outcome);
        }
    }
}

impl Memory {
    /// What there is for a digest, at this moment and for this caller.
    pub(super) fn find(self: &Arc<Self>, of: Digest, caller: Arc<str>, now: Instant) -> Found {
        let mut inner = self.lock();
        if let Some(kept) = inner.issued.get(&of)
            && now < kept.until
        {
            return Found::Issued(kept.bearer.clone());
        }
        if let Some(coming) = inner.coming.get(&of) {
            return Found::Coming(Coming(coming.clone()));
        }
        inner.drop_ended(now);
        let own = inner.begun.get(&caller).copied().unwrap_or_default();
        if own >= MOST_OF_ONE || inner.coming.len() >= MOST_COMING {
            return Found::Full;
        }
        let (tell, told) = watch::channel(None);
        inner.coming.insert(of, told.clone());
        inner.begun.insert(Arc::clone(&caller), own + 1);
        let place = Place { memory: Arc::clone(self), of, caller, brought: None, tell };
        Found::Nothing(place, Coming(told))
    }

    /// Forgets a token, unless another was issued in its place.
    pub(super) fn forget(&self, bearer: &Bearer) {
        let mut inner = self.lock();
        let same = |kept: &Kept| kept.bearer.value.expose() == bearer.value.expose();
        if inner.issued.get(&bearer.of).is_some_and(same) {
            inner.remove(bearer.of);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No step in here leaves it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn keep(&mut self, bearer: Bearer, until: Instant) {
        self.remove(bearer.of);
        while self.issued.len() >= MOST_ISSUED
            && let Some((_, first)) = self.ends.first().copied()
        {
            self.remove(first);
        }
        self.ends.insert((until, bearer.of));
        self.issued.insert(bearer.of, Kept { bearer, until });
    }

    fn remove(&mut self, of: Digest) {
        if let Some(kept) = self.issued.remove(&of) {
            self.ends.remove(&(kept.until, of));
        }
    }

    fn drop_ended(&mut self, now: Instant) {
        while let Some((_, of)) = self.ends.first().copied().filter(|(until, _)| *until <= now) {
            self.remove(of);
        }
    }
}

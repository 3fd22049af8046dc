//! [`Streams`]: which client's stream a token stands for.
//!
//! In memory, since a stream is: it ends with its connection, and its entry with it.

use std::{
    collections::{HashMap, HashSet, hash_map},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc;

use crate::upstream::{Endpoint, Upstream};

/// Most streams of one caller, and of all together.
const MOST: (usize, usize) = (1_000, 100_000);

/// Most requests of a stream whose answers are waited for when the process has to stop.
const AWAITED: usize = 1_000;

/// An open stream of the HTTP+SSE transport.
#[derive(Debug)]
pub(in crate::proxy) struct Open {
    /// The upstream that it comes from.
    pub(super) upstream: Arc<Upstream>,
    /// SPIFFE ID of the caller that opened it.
    pub(super) owner: Arc<str>,
    /// Where its messages go.
    pub(in crate::proxy) endpoint: Endpoint,
    /// Takes events of ours for it.
    pub(super) tell: mpsc::Sender<Bytes>,
    /// Ids, as JSON, of requests that were posted and have no answer yet.
    pub(super) awaited: Mutex<HashSet<Box<str>>>,
}

impl Open {
    /// An answer with this id will come on the stream.
    pub(super) fn expect(&self, id: &str) {
        let mut awaited = self.awaited();
        if awaited.len() < AWAITED {
            awaited.insert(id.into());
        }
    }

    /// It has come, or won't.
    pub(super) fn settle(&self, id: &str) {
        self.awaited().remove(id);
    }

    /// Whether an answer is still to come.
    pub(in crate::proxy) fn is_awaited(&self) -> bool {
        !self.awaited().is_empty()
    }

    fn awaited(&self) -> MutexGuard<'_, HashSet<Box<str>>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All open streams with an announced endpoint.
#[derive(Default)]
pub struct Streams(Mutex<Table>);

#[derive(Default)]
struct Table {
    open: HashMap<Box<str>, Arc<Open>>,
    per_owner: HashMap<Arc<str>, usize>,
}

/// A stream's place in the table; free again when dropped.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    streams: &'a Streams,
    token: Box<str>,
    pub(super) open: Arc<Open>,
}

impl Streams {
    /// Whether `owner` may open one more; asked before the upstream is.
    pub(super) fn admits(&self, owner: &str) -> bool {
        self.lock().fits(owner)
    }

    /// Gives a stream a token of 128 random bits; `None` if the table, or the owner's share, is full.
    pub(super) fn open(&self, open: Open) -> Option<Entry<'_>> {
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random).ok()?;
        let token: Box<str> = HEXLOWER.encode(&random).into();
        let mut table = self.lock();
        if !table.fits(&open.owner) {
            return None;
        }
        *table.per_owner.entry(Arc::clone(&open.owner)).or_default() += 1;
        let open = Arc::new(open);
        table.open.insert(token.clone(), Arc::clone(&open));
        Some(Entry { streams: self, token, open })
    }

    /// The stream with this token, if it comes from `upstream` and `owner` has opened it. One that has the name
    /// of `upstream` and went before it is another: its place to post is unknown to this one.
    pub(super) fn find(
        &self,
        token: &str,
        upstream: &Arc<Upstream>,
        owner: &str,
    ) -> Option<Arc<Open>> {
        let table = self.lock();
        let open = table.open.get(token)?;
        let same = Arc::ptr_eq(&open.upstream, upstream) && *open.owner == *owner;
        same.then(|| Arc::clone(open))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table whole, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Streams {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("open", &self.lock().open.len()).finish_non_exhaustive()
    }
}

impl Table {
    fn fits(&self, owner: &str) -> bool {
        let (own, all) = MOST;
        let held = self.per_owner.get(owner).copied().unwrap_or_default();
        held < own && self.open.len() < all
    }
}

impl Entry<'_> {
    /// What stands for the stream: lower-case hexadecimal digits.
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut table = self.streams.lock();
        let Some(open) = table.open.remove(&self.token) else { return };
        if let hash_map::Entry::Occupied(mut held) = table.per_owner.entry(Arc::clone(&open.owner))
        {
            *held.get_mut() = held.get().saturating_sub(1);
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        telemetry::Metrics,
        upstream::{
            Settings, Transport, Upstream, Verification,
            settings::{Http, Server},
        },
    };

    fn upstream() -> Arc<Upstream> {
        let second = std::time::Duration::from_secs(1);
        let settings = Settings::new(
            "files",
            Server::Http(Http {
                url: "http://127.0.0.1:1/sse".parse().unwrap(),
                others: Vec::new(),
                health: None,
                transport: Transport::Sse,
                verification: Verification::Loopback,
                host: None,
                connect_timeout: second,
                pool_idle_timeout: second,
                agent: Box::default(),
            }),
        );
        Upstream::new(settings, None, &Metrics::new()).unwrap()
    }

    fn open(upstream: &Arc<Upstream>, owner: &str) -> Open {
        let endpoint = upstream.endpoint(b"/message").unwrap();
        let (tell, _) = mpsc::channel(1);
        Open {
            upstream: Arc::clone(upstream),
            owner: owner.into(),
            endpoint,
            tell,
            awaited: Mutex::default(),
        }
    }

    #[test]
    fn a_token_is_of_use_to_its_owner_for_its_server_while_the_stream_is_open() {
        let streams = Streams::default();
        let (files, other) = (upstream(), upstream());
        let entry = streams.open(open(&files, "a")).unwrap();
        let token = entry.token().to_owned();
        assert_eq!(token.len(), 32);
        assert!(streams.find(&token, &files, "a").is_some());
        assert!(streams.find(&token, &files, "b").is_none());
        assert!(streams.find(&token, &other, "a").is_none());
        assert!(
            streams.find(&token.to_uppercase(), &files, "a").is_none()
                || !token.contains(char::is_alphabetic)
        );
        assert!(!format!("{streams:?} {entry:?}").contains("message"));
        drop(entry);
        assert!(streams.find(&token, &files, "a").is_none());
        assert!(streams.lock().per_owner.is_empty());
    }

    #[test]
    fn a_caller_has_a_share() {
        let streams = Streams::default();
        let files = upstream();
        let mut held: Vec<_> =
            (0..MOST.0).map(|_| streams.open(open(&files, "a")).unwrap()).collect();
        assert!(!streams.admits("a"));
        assert!(streams.open(open(&files, "a")).is_none());
        assert!(streams.admits("b"));
        held.pop();
        assert!(streams.admits("a"));
    }
}

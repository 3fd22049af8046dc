//! The requests of servers that Lictor has answered itself, and the calls that their callers have cancelled.
//!
//! The former their callers never saw, so an answer that comes from there was made up. Servers use ids again:
//! one that is passed on is forgotten here. The newest are remembered; a server that has been answered
//! ignores another answer to the same id, so forgetting the others costs nothing but an entry. Of the latter
//! no answer is expected any more.

use std::{
    collections::{HashSet, VecDeque},
    sync::Mutex,
};

use sha2::{Digest, Sha256};

/// How many are remembered.
const REMEMBERED: usize = 4096;

/// Which request it was: a digest over server, session or caller, and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address([u8; 32]);

impl Address {
    /// Without a session, servers know their callers apart by nothing that is seen here.
    pub(super) fn new(server: &str, session: Option<&str>, caller: &str, id: &str) -> Self {
        // In JSON. Equal ids in two spellings are the same.
        let id = serde_json::from_str::<serde_json::Value>(id).unwrap_or_default();
        let mut hash = Sha256::new();
        for part in [server, session.unwrap_or_default(), caller, &id.to_string()] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// The requests that were answered, or cancelled.
#[derive(Debug, Default)]
pub struct Settled(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: HashSet<Address>,
    /// The same and forgotten ones, oldest first.
    order: VecDeque<Address>,
}

impl Settled {
    /// Remembers a request.
    pub(super) fn note(&self, address: Address) {
        self.with(|inner| {
            if inner.known.insert(address) {
                inner.order.push_back(address);
            }
            if inner.order.len() > REMEMBERED
                && let Some(oldest) = inner.order.pop_front()
            {
                inner.known.remove(&oldest);
            }
        });
    }

    /// A request of this address is passed on and open, or over.
    pub(super) fn forget(&self, address: &Address) {
        self.with(|inner| {
            if inner.known.remove(address) {
                inner.order.retain(|known| known != address);
            }
        });
    }

    /// Whether a request is remembered.
    pub(super) fn contains(&self, address: &Address) -> bool {
        self.with(|inner| inner.known.contains(address))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        // Nothing in here panics half-way.
        let mut inner = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        act(&mut inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_one_server_session_caller_and_id() {
        let of = Address::new;
        let base = of("s", Some("1"), "a", "1");
        assert_eq!(base, of("s", Some("1"), "a", "1"));
        assert_eq!(of("s", None, "a", "\"x\""), of("s", None, "a", "\"\\u0078\""));
        for other in [
            of("t", Some("1"), "a", "1"),
            of("s", Some("2"), "a", "1"),
            of("s", None, "a", "1"),
            of("s", Some("1"), "b", "1"),
            of("s", Some("1"), "a", "\"1\""),
            of("s1", Some(""), "a", "1"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn only_the_newest_are_remembered() {
        let settled = Settled::default();
        let address = |at: usize| Address::new("s", None, "a", &at.to_string());
        for at in 0..REMEMBERED + 2 {
            settled.note(address(at));
            settled.note(address(at));
        }
        assert!(!settled.contains(&address(1)));
        assert!(settled.contains(&address(2)));
        settled.forget(&address(2));
        assert!(!settled.contains(&address(2)));
        assert!(settled.contains(&address(3)));
    }
}

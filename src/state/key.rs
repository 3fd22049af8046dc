//! What a binding is found by.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{Allowance, Kind};

/// What kind it is of, and SHA-256 over kind, server and id.
///
/// Ids are bearer secrets of a server: whoever reads one from a core dump, a file or a shared store can use it
/// wherever Lictor isn't in between. So none is kept as it is, and what is kept gives nothing away.
///
/// INVARIANT: two different triples have different input, since the server's length is a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    kind: Kind,
    digest: [u8; 32],
}

impl Key {
    pub(super) fn new(kind: Kind, server: &str, id: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update([code(kind)]);
        hash.update(u64::try_from(server.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(server);
        hash.update(id);
        Self { kind, digest: hash.finalize().into() }
    }

    /// One that was stored.
    pub(super) fn from_stored(kind: u8, digest: [u8; 32]) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|known| code(*known) == kind)?;
        Some(Self { kind, digest })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The kind as it is stored.
    pub(super) fn code(&self) -> u8 {
        code(self.kind)
    }

    /// The digest as it is stored.
    pub(super) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// What something is found by that belongs to nobody and may be used once. Of no kind: 0 is no kind's number.
pub(super) fn once(id: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update([0]);
    hash.update(id);
    hash.finalize().into()
}

/// What the tokens of a limit for one of its keys are found by. Another kind of allowance has another count, since
/// what is kept of it says something else.
pub(super) fn tokens(allowance: &Allowance, limit: &str, key: &str) -> [u8; 32] {
    let code = match allowance {
        Allowance::Rate { .. } => 5,
        Allowance::Window { .. } => 6,
        Allowance::Once { .. } => 7,
    };
    let mut hash = Sha256::new();
    hash.update([code]);
    hash.update(u64::try_from(limit.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(limit);
    hash.update(key);
    hash.finalize().into()
}

/// Part of what is stored: a number that was used is never given to another kind.
/// 5 to 7 are those of [`tokens`].
fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Session => 1,
        Kind::Task => 2,
        Kind::Continuation => 3,
        Kind::Context => 4,
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_for_anything_else() {
        let keys = [
            Key::new(Kind::Session, "s", "1"),
            Key::new(Kind::Task, "s", "1"),
            Key::new(Kind::Continuation, "s", "1"),
            Key::new(Kind::Context, "s", "1"),
            Key::new(Kind::Session, "s1", ""),
            Key::new(Kind::Session, "", "s1"),
            Key::new(Kind::Session, "s", "2"),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(at));
        }
        assert_ne!(once("1"), once("2"));
        assert!(keys.iter().all(|key| *key.digest() != once("1")));
        assert_eq!(format!("{:?}", keys[0]), "Key { kind: Session, .. }");
    }

    #[test]
    fn what_was_stored_is_the_same() {
        for kind in Kind::ALL {
            let key = Key::new(kind, "s", "1");
            assert_eq!(Key::from_stored(key.code(), *key.digest()), Some(key));
        }
        assert_eq!(Key::from_stored(0, [0; 32]), None);
    }
}

//! What a binding is found by.

use std::fmt;

use sha2::{Digest, Sha256};

use super::Kind;

/// SHA-256 over kind, server and id.
///
/// Ids are bearer secrets of a server: whoever reads one from a core dump, a file or a shared store can use it
/// wherever Lictor isn't in between. So none is kept as it is, and what is kept gives nothing away.
///
/// INVARIANT: two different triples have different input, since the server's length is a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    pub(super) fn new(kind: Kind, server: &str, id: &str) -> Self {
        // Part of what is stored: an existing number is never given to another kind.
        let kind: u8 = match kind {
            Kind::Session => 1,
            Kind::Task => 2,
            Kind::Continuation => 3,
        };
        let mut hash = Sha256::new();
        hash.update([kind]);
        hash.update(u64::try_from(server.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(server);
        hash.update(id);
        Self(hash.finalize().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
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
            Key::new(Kind::Session, "s1", ""),
            Key::new(Kind::Session, "", "s1"),
            Key::new(Kind::Session, "s", "2"),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(at));
        }
        assert_eq!(format!("{:?}", keys[0]), "Key(..)");
    }
}

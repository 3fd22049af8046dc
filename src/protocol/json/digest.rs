//! The digest of a text, made while the text is scanned.
//!
//! SHA-256 waits for its own last step most of the time, and the scanner never waits: what the
//! processor does for the one fits into the gaps of the other, if they take turns every few bytes.

use sha2::{
    Digest as _, Sha256,
    digest::{
        array::Array,
        block_api::{Block, CoreProxy, UpdateCore},
    },
};

/// SHA-256 of whole blocks; [`Sha256`] itself has a buffer for parts of them in front, which costs as much
/// as is won.
type Core = <Sha256 as CoreProxy>::Core;

/// The length of a block in bytes.
const BLOCK: usize = size_of::<Block<Core>>();

/// The digest of what was scanned, if anybody wants it.
pub(super) struct Digest {
    hash: Core,
    /// All before it is in the digest.
    taken: usize,
    /// The offset that the scanner has to have reached before there is something to do.
    due: usize,
}

impl Digest {
    /// One that does nothing while the text is scanned.
    pub(super) fn unwanted() -> Self {
        Self { hash: Core::default(), taken: 0, due: usize::MAX }
    }

    pub(super) fn wanted() -> Self {
        Self { hash: Core::default(), taken: 0, due: BLOCK }
    }

    /// Takes in the whole blocks of what was scanned, which is all before `at`.
    #[inline(always)]
    pub(super) fn reach(&mut self, bytes: &[u8], at: usize) {
        if at >= self.due {
            self.take(bytes, at);
        }
    }

    #[inline(never)]
    fn take(&mut self, bytes: &[u8], at: usize) {
        let scanned = bytes.get(self.taken..at).unwrap_or_default();
        let (blocks, _) = Array::slice_as_chunks(scanned);
        self.hash.update_blocks(blocks);
        self.taken += blocks.len() * BLOCK;
        self.due = self.taken + BLOCK;
    }

    /// The digest of the whole text.
    pub(super) fn finish(self, bytes: &[u8]) -> [u8; 32] {
        let rest = bytes.get(self.taken..).unwrap_or_default();
        Sha256::compose(self.hash, Default::default()).chain_update(rest).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest as _, Sha256};

    use super::Digest;

    proptest! {
        #[test]
        fn it_is_the_digest_wherever_the_scanner_has_been(
            bytes in prop::collection::vec(any::<u8>(), 0..1000),
            steps in prop::collection::vec(0_usize..200, 0..20),
        ) {
            let mut digest = Digest::wanted();
            let mut at = 0;
            for step in steps {
                at = (at + step).min(bytes.len());
                digest.reach(&bytes, at);
            }
            let expected: [u8; 32] = Sha256::digest(&bytes).into();
            prop_assert_eq!(digest.finish(&bytes), expected);
        }
    }
}

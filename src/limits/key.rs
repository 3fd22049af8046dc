//! [`Key`]: whose share of a limit it is.

use std::fmt;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// A digest of what tells calls of one limit apart. It is of one size whatever callers send, the same on every
/// replica, and tells nothing about the caller to who can read the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 16]);

impl Key {
    /// Of values in an order that the limit fixes.
    pub(super) fn of<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for value in values {
            hash.update(u64::try_from(value.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(value);
        }
        let mut key = [0; 16];
        // Half of it: who would look for two values that share a count finds one in 2^64 tries.
        for (to, from) in key.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        Self(key)
    }
}

impl fmt::Display for Key {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

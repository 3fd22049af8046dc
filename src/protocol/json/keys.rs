//! The keys of the objects that are open, and whether one of them stands twice.
//!
//! Keys lie on one stack, each with a hash of what it decodes to. A small object compares each new
//! key with those before it; a large one puts its keys into a hash table when it closes. A sender
//! can choose keys whose hashes crowd together, so a table that gets crowded is given up and the
//! keys are sorted instead: n log n comparisons, whatever they are.

use std::{cmp::Ordering, ops::Range};

use super::{scan::ScanError, string::decode};

/// Up to this many keys of an object are compared one by one.
const FEW_KEYS: usize = 8;

/// A table in which a key finds no place within so many steps is crowded; it is half empty, so
/// chance alone doesn't get there.
const MAX_PROBES: usize = 64;

/// The keys of all open objects; an object's keys are the last ones on the stack while it closes.
pub(super) struct Keys {
    stack: Vec<Key>,
    /// One more than the place of a key; zero is free. Kept for its memory only.
    table: Vec<u32>,
}

/// A hash of the decoded key, and where the raw one stands.
#[derive(Clone, Copy)]
struct Key {
    hash: u64,
    start: u32,
    len: u32,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self { stack: Vec::with_capacity(32), table: Vec::new() }
    }

    /// Where the keys of an object that opens now will begin.
    pub(super) fn open(&self) -> usize {
        self.stack.len()
    }

    /// Adds the key whose raw form stands at `span` to the object whose keys begin at `base`.
    #[inline]
    pub(super) fn add(
        &mut self,
        bytes: &[u8],
        span: Range<usize>,
        escaped: bool,
        base: usize,
    ) -> Result<(), ScanError> {
        let start = span.start;
        let raw = bytes.get(span).unwrap_or_default();
        let hash = if escaped { hash(decode(raw).as_bytes()) } else { hash(raw) };
        // Fits: texts of 4 GiB are refused before.
        let key = Key { hash, start: start as u32, len: raw.len() as u32 };
        let siblings = self.stack.get(base..).unwrap_or_default();
        if siblings.len() < FEW_KEYS {
            for sibling in siblings {
                if sibling.hash == hash && compare(bytes, *sibling, key).is_eq() {
                    return Err(ScanError::DuplicateKey(start));
                }
            }
        }
        self.stack.push(key);
        Ok(())
    }

    /// Drops the keys from `base` on, after looking through them if that is still to be done.
    pub(super) fn close(&mut self, bytes: &[u8], base: usize) -> Result<(), ScanError> {
        let keys = self.stack.get_mut(base..).unwrap_or_default();
        if keys.len() > FEW_KEYS {
            let repeated = match repeated_by_table(bytes, keys, &mut self.table) {
                Ok(repeated) => repeated,
                Err(Crowded) => repeated_by_order(bytes, keys),
            };
            if let Some(key) = repeated {
                return Err(ScanError::DuplicateKey(key.start as usize));
            }
        }
        self.stack.truncate(base);
        Ok(())
    }
}

/// Too many keys want the same places.
struct Crowded;

/// Looks for a key that stands twice with a table at most half full.
fn repeated_by_table(
    bytes: &[u8],
    keys: &[Key],
    table: &mut Vec<u32>,
) -> Result<Option<Key>, Crowded> {
    let size = (keys.len() * 2).next_power_of_two();
    let shift = 64 - size.trailing_zeros();
    table.clear();
    table.resize(size, 0);
    for (place, key) in keys.iter().enumerate() {
        let mut free = false;
        for probe in 0..MAX_PROBES {
            let slot = ((key.hash >> shift) as usize + probe) & (size - 1);
            let Some(taken) = table.get_mut(slot) else { break };
            if *taken == 0 {
                *taken = place as u32 + 1;
                free = true;
                break;
            }
            let other = keys.get(*taken as usize - 1);
            if other
                .is_some_and(|other| other.hash == key.hash && compare(bytes, *other, *key).is_eq())
            {
                return Ok(Some(*key));
            }
        }
        if !free {
            return Err(Crowded);
        }
    }
    Ok(None)
}

/// Looks for a key that stands twice by making equal keys neighbours.
fn repeated_by_order(bytes: &[u8], keys: &mut [Key]) -> Option<Key> {
    keys.sort_unstable_by(|left, right| compare(bytes, *left, *right));
    let mut pairs = keys.iter().zip(keys.iter().skip(1));
    pairs.find(|(left, right)| compare(bytes, **left, **right).is_eq()).map(|(_, right)| *right)
}

/// Orders keys by hash, then by what they decode to, so that equal keys are neighbours.
fn compare(bytes: &[u8], left: Key, right: Key) -> Ordering {
    left.hash.cmp(&right.hash).then_with(|| {
        let raw = |key: Key| {
            let start = key.start as usize;
            bytes.get(start..start + key.len as usize).unwrap_or_default()
        };
        decode(raw(left)).cmp(&decode(raw(right)))
    })
}

/// Tells keys apart quickly. Nothing depends on collisions being hard to find.
#[inline]
fn hash(key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, tail) = key.as_chunks::<8>();
    let mut state = key.len() as u64;
    for word in words {
        state = mix(state, u64::from_le_bytes(*word));
    }
    state = mix(state, tail.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    // Once more, so that the high bits, which the table takes, depend on every bit.
    state.wrapping_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use super::{Crowded, Key, repeated_by_order, repeated_by_table};

    /// The keys "00" to "99", all with the same hash, and one more.
    fn colliding(last: u32) -> (Vec<u8>, Vec<Key>) {
        let text: String = (0..100).map(|key| format!("{key:02}")).collect();
        let key = |place: u32| Key { hash: 7, start: place * 2, len: 2 };
        (text.into_bytes(), (0..100).chain([last]).map(key).collect())
    }

    #[test]
    fn colliding_keys_fall_back_to_order() {
        let (text, mut keys) = colliding(42);
        let Err(Crowded) = repeated_by_table(&text, &keys[..100], &mut Vec::new()) else {
            panic!("a hundred collisions aren't crowded");
        };
        assert_eq!(repeated_by_order(&text, &mut keys).map(|key| key.start), Some(84));
        keys.retain(|key| key.start != 84);
        assert!(repeated_by_order(&text, &mut keys).is_none());
    }
}

//! The keys of the objects that are open, and whether one of them stands twice.
//!
//! Keys lie on one stack, each with a hash of what it decodes to. In a small object a new key is
//! compared with those before it, but only if a bit of its hash was seen there. A large object is
//! looked through when it closes: each key sets one of many bits, and only keys that share a bit
//! are sorted. A sender can choose keys that all share one; then all are sorted, which takes
//! n log n comparisons, whatever they are.

use std::{cmp::Ordering, ops::Range};

use super::{
    scan::{Failed, ScanError, fail},
    string::decode,
};

/// Up to this many keys of an object are compared one by one.
const FEW_KEYS: usize = 16;

/// Bits for each key of a larger object, so that few keys share one by chance.
const BITS_PER_KEY: usize = 16;

/// Bytes that are loaded at once.
const WORD: usize = 8;

/// The keys of all open objects; an object's keys are the last ones on the stack while it closes.
pub(super) struct Keys {
    stack: Vec<Key>,
    /// Kept for its memory only.
    bits: Bits,
}

/// An object that is open.
pub(super) struct Object {
    /// Where its keys begin on the stack.
    base: usize,
    /// One of 64 bits for each of its hashes.
    seen: u64,
}

/// A hash of the decoded key, and where the raw one stands.
#[derive(Clone, Copy)]
struct Key {
    hash: u64,
    start: u32,
    len: u32,
}

impl Keys {
    /// `open` is how many keys may be open at once before memory moves.
    pub(super) fn with_capacity(open: usize) -> Self {
        Self { stack: Vec::with_capacity(open), bits: Bits { words: Vec::new(), shift: 0 } }
    }

    pub(super) fn open(&self) -> Object {
        Object { base: self.stack.len(), seen: 0 }
    }

    /// Adds the key whose raw form stands at `span` to the innermost open object; `escaped` is
    /// whether it has escapes.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        object: &mut Object,
        bytes: &[u8],
        span: Range<usize>,
        escaped: bool,
    ) -> Result<(), Failed> {
        let hash = if escaped { decoded_hash(bytes, &span) } else { plain_hash(bytes, &span) };
        // Fits: texts of 4 GiB are refused before.
        let key = Key { hash, start: span.start as u32, len: (span.end - span.start) as u32 };
        let bit = 1 << (hash >> 58);
        if object.seen & bit != 0 && self.stack.len() - object.base < FEW_KEYS {
            self.compare_siblings(object, bytes, key)?;
        }
        object.seen |= bit;
        self.stack.push(key);
        Ok(())
    }

    /// Drops the keys of the innermost object, after looking through them if that is still to be
    /// done.
    pub(super) fn close(&mut self, object: &Object, bytes: &[u8]) -> Result<(), Failed> {
        if self.stack.len() - object.base > FEW_KEYS {
            let keys = self.stack.get(object.base..).unwrap_or_default();
            if let Some(key) = repeated(bytes, keys, &mut self.bits) {
                return fail(ScanError::DuplicateKey(key.start as usize));
            }
        }
        self.stack.truncate(object.base);
        Ok(())
    }

    #[inline(never)]
    fn compare_siblings(&self, object: &Object, bytes: &[u8], key: Key) -> Result<(), Failed> {
        let siblings = self.stack.get(object.base..).unwrap_or_default();
        if siblings.iter().any(|sibling| compare(bytes, sibling, &key).is_eq()) {
            return fail(ScanError::DuplicateKey(key.start as usize));
        }
        Ok(())
    }
}

/// Looks for a key that stands twice; the second of the two.
fn repeated(bytes: &[u8], keys: &[Key], bits: &mut Bits) -> Option<Key> {
    bits.clear(keys.len() * BITS_PER_KEY);
    let shared: Vec<u64> = keys.iter().map(|key| key.hash).filter(|&hash| bits.set(hash)).collect();
    if shared.is_empty() {
        return None;
    }
    bits.clear(keys.len() * BITS_PER_KEY);
    for hash in shared {
        bits.set(hash);
    }
    let mut sharing: Vec<&Key> = keys.iter().filter(|key| bits.has(key.hash)).collect();
    sharing.sort_unstable_by(|left, right| {
        compare(bytes, left, right).then(left.start.cmp(&right.start))
    });
    let mut pairs = sharing.iter().zip(sharing.iter().skip(1));
    pairs.find(|(left, right)| compare(bytes, left, right).is_eq()).map(|(_, right)| **right)
}

/// A set of hashes, told apart by their high bits only.
struct Bits {
    words: Vec<u64>,
    shift: u32,
}

impl Bits {
    /// Empties it, and gives it `size` bits or more.
    fn clear(&mut self, size: usize) {
        let size = size.next_power_of_two().max(64);
        self.shift = 64 - size.trailing_zeros();
        self.words.clear();
        self.words.resize(size / 64, 0);
    }

    /// Takes in a hash; whether it was there.
    fn set(&mut self, hash: u64) -> bool {
        let place = hash >> self.shift;
        let bit = 1 << (place % 64);
        // The shift leaves no place that has no word; taken for a shared one, it would be sorted.
        let Some(word) = self.words.get_mut(place as usize / 64) else { return true };
        let was_there = *word & bit != 0;
        *word |= bit;
        was_there
    }

    fn has(&self, hash: u64) -> bool {
        let place = hash >> self.shift;
        self.words.get(place as usize / 64).is_none_or(|word| word & 1 << (place % 64) != 0)
    }
}

/// Orders keys by hash, then by what they decode to, so that equal keys are neighbours.
#[inline(always)]
fn compare(bytes: &[u8], left: &Key, right: &Key) -> Ordering {
    left.hash.cmp(&right.hash).then_with(|| compare_decoded(bytes, left, right))
}

#[inline(never)]
fn compare_decoded(bytes: &[u8], left: &Key, right: &Key) -> Ordering {
    let raw = |key: &Key| {
        let start = key.start as usize;
        bytes.get(start..start + key.len as usize).unwrap_or_default()
    };
    decode(raw(left)).cmp(&decode(raw(right)))
}

/// The [`hash`] of the key at `span`, which has no escapes. Most are short, and have bytes before
/// them that can be loaded with them.
#[inline(always)]
fn plain_hash(bytes: &[u8], span: &Range<usize>) -> u64 {
    let len = span.end - span.start;
    let before = span.end.checked_sub(WORD).and_then(|start| bytes.get(start..span.end));
    match before.and_then(<[u8]>::first_chunk) {
        Some(last) if len <= WORD => {
            let unwanted = 8 * (WORD - len) as u32;
            short_hash(u64::from_le_bytes(*last).checked_shr(unwanted).unwrap_or_default(), len)
        }
        Some(_) | None => hash(bytes.get(span.clone()).unwrap_or_default()),
    }
}

#[inline(never)]
fn decoded_hash(bytes: &[u8], span: &Range<usize>) -> u64 {
    hash(decode(bytes.get(span.clone()).unwrap_or_default()).as_bytes())
}

/// Tells keys apart quickly. Nothing depends on collisions being hard to find.
fn hash(key: &[u8]) -> u64 {
    let Some(last) = key.last_chunk::<WORD>() else {
        let mut word = [0; WORD];
        for (to, from) in word.iter_mut().zip(key) {
            *to = *from;
        }
        return short_hash(u64::from_le_bytes(word), key.len());
    };
    let (words, _) = key.as_chunks::<WORD>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    match key.len() {
        WORD => short_hash(u64::from_le_bytes(*last), WORD),
        len => words.fold(u64::from_le_bytes(*last) ^ len as u64, mix),
    }
}

/// The hash of a key that is one word long at most.
#[inline(always)]
fn short_hash(word: u64, len: usize) -> u64 {
    mix(word, len as u64)
}

/// Two words into one whose high bits depend on every bit of both.
fn mix(left: u64, right: u64) -> u64 {
    const SEEDS: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f);
    let product = u128::from(left ^ SEEDS.0) * u128::from(right ^ SEEDS.1);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::{Bits, Key, decoded_hash, hash, plain_hash, repeated};

    /// The keys "00" to "99", all with the same hash, and one more.
    fn colliding(last: u32) -> (Vec<u8>, Vec<Key>) {
        let text: String = (0..100).map(|key| format!("{key:02}")).collect();
        let key = |place: u32| Key { hash: 7, start: place * 2, len: 2 };
        (text.into_bytes(), (0..100).chain([last]).map(key).collect())
    }

    #[test]
    fn colliding_keys_are_told_apart() {
        let mut bits = Bits { words: Vec::new(), shift: 0 };
        let (text, mut keys) = colliding(42);
        assert_eq!(repeated(&text, &keys, &mut bits).map(|key| key.start), Some(84));
        keys.retain(|key| key.start != 84);
        assert!(repeated(&text, &keys, &mut bits).is_none());
    }

    #[test]
    fn all_ways_of_hashing_agree() {
        for len in 0..=40 {
            let key = "k".repeat(len);
            for before in ["", "{\"", "{\"before\":1,\""] {
                let text = format!("{before}{key}\"");
                let span = before.len()..before.len() + len;
                assert_eq!(plain_hash(text.as_bytes(), &span), hash(key.as_bytes()), "{len}");
                assert_eq!(decoded_hash(text.as_bytes(), &span), hash(key.as_bytes()), "{len}");
            }
        }
    }

    #[test]
    fn every_byte_of_a_key_counts() {
        for len in 1..=40 {
            let key = vec![b'k'; len];
            for place in 0..len {
                let mut other = key.clone();
                other[place] = b'l';
                assert_ne!(hash(&key), hash(&other), "{len} {place}");
            }
        }
    }
}

//! Strict JSON: one pass that refuses what two readers could understand differently, and a cursor
//! over the text that passed.
//!
//! [`scan`] checks a whole text without building a tree: UTF-8, no byte order mark, the grammar of
//! RFC 8259 to the letter, bounded nesting, no lone surrogate, no key twice in an object (compared
//! after decoding, so `"a"` and `"\u0061"` are the same key), nothing after the value. A [`Value`]
//! points into the scanned bytes: reading and cutting never re-serialises, so numbers, key order,
//! escapes and white space of what is kept stay as they were sent.
//!
//! Numbers are tokens here. A literal such as `1E400` or `12345678901234567890123` follows the
//! grammar and is handed on unchanged; whoever gives a number a meaning has to refuse what it can't
//! represent.
//!
//! INVARIANT: a [`Value`] exists only over bytes that passed [`scan`] (its constructors are private
//! to this module and to [`Document`]), so its readers have no error cases.

use std::borrow::Cow;

mod digest;
mod edits;
mod keys;
mod marks;
mod scan;
mod string;
mod value;

#[cfg(test)]
mod tests;

pub use edits::Edits;
use marks::Marks;
pub use scan::{Limits, ScanError, scan, scan_and_digest};
pub use value::{Elements, Kind, Member, Members, Value};

/// Containers shorter than this many bytes are walked again instead of remembered.
const REMEMBERED: usize = 64;

/// A text that passed [`scan`].
#[derive(Debug)]
pub struct Document<'a> {
    bytes: &'a [u8],
    root: usize,
    index: Index,
}

impl<'a> Document<'a> {
    /// The one value of the text.
    pub fn root(&self) -> Value<'_> {
        Value::new(self.bytes, &self.index, self.root)
    }

    /// Gives up the borrow, so that the bytes and what was learned about them can be kept together.
    pub(super) fn into_index(self) -> Index {
        self.index
    }
}

/// Whether a text that nobody has scanned has a key, at any depth, that `is` takes; `is` sees the
/// key as it was sent, without its quotation marks. Exact for every text that is JSON, nonsense for
/// others, and cheaper than [`scan`].
pub(super) fn has_key(bytes: &[u8], is: impl Fn(&[u8]) -> bool) -> bool {
    let marks = Marks::of(bytes);
    let mut opening = marks.next_quote(bytes, 0);
    while opening < bytes.len() {
        let start = opening + 1;
        let end = marks.next_quote(bytes, start);
        let rest = bytes.get(end + 1..).unwrap_or_default();
        if rest.trim_ascii_start().first() == Some(&b':')
            && is(bytes.get(start..end).unwrap_or_default())
        {
            return true;
        }
        opening = marks.next_quote(bytes, end + 1);
    }
    false
}

/// What [`has_key`] hands out, decoded.
pub(super) fn decoded(key: &[u8]) -> Cow<'_, str> {
    string::decode(key)
}

/// What is known of a scanned text: where its longer containers end, so that a cursor can step over
/// them, and its SHA-256, if that was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Sorted by start, as the scanner meets them.
    spans: Vec<(u32, u32)>,
    digest: Option<[u8; 32]>,
}

impl Index {
    /// A cursor on the value that starts at `start` in `bytes`.
    ///
    /// `bytes` must be the text that this index was made from; with any other the cursor reads
    /// nonsense, but never out of bounds.
    pub(super) fn value<'a>(&'a self, bytes: &'a [u8], start: usize) -> Value<'a> {
        Value::new(bytes, self, start)
    }

    fn with_capacity(containers: usize) -> Self {
        Self { spans: Vec::with_capacity(containers), digest: None }
    }

    fn open(&mut self, start: usize) -> usize {
        self.spans.push((narrow(start), 0));
        self.spans.len()
    }

    /// `opened` is what [`Self::open`] answered; containers close in reverse order.
    fn close(&mut self, opened: usize, start: usize, end: usize) {
        if end - start < REMEMBERED {
            self.spans.truncate(opened - 1);
        } else if let Some(span) = self.spans.get_mut(opened - 1) {
            span.1 = narrow(end);
        }
    }

    /// The SHA-256 of the text, if [`scan_and_digest`] has read it.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        self.digest
    }

    fn end_of(&self, start: usize) -> Option<usize> {
        let start = narrow(start);
        let found = self.spans.binary_search_by_key(&start, |span| span.0).ok()?;
        self.spans.get(found).map(|span| span.1 as usize)
    }
}

/// Offsets are kept in 32 bits; [`scan`] refuses texts that don't fit.
fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

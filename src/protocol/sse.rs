//! Server-sent events, split where they end and kept as they are.
//!
//! Follows the line rules of the WHATWG HTML standard, "Server-sent events": lines end with LF, CR
//! or CR LF, an empty line ends an event, one leading byte order mark is ignored. Nothing is
//! normalised: the raw events, one after the other, are the stream, byte for byte.
//!
//! An event that ends with CR is complete at once, because waiting for a possible LF could hold it
//! back for ever. If that LF comes with a later chunk, it is an event of its own without any field: some
//! readers wait for it.
//!
//! What is judged and goes on is made clear first, see [`Event::clear`]: readers differ in these rules.

use std::{borrow::Cow, mem};

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

pub use clear::Ambiguous;

mod clear;

#[cfg(test)]
mod tests;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Knows whether a stream stands between two events, without keeping any of it.
#[derive(Clone, Debug)]
pub struct Boundary {
    line_empty: bool,
    after_cr: bool,
    between: bool,
}

impl Default for Boundary {
    fn default() -> Self {
        Self { line_empty: true, after_cr: false, between: true }
    }
}

impl Boundary {
    /// Takes note of bytes that pass.
    pub fn observe(&mut self, mut bytes: &[u8]) {
        while let Some(end) = self.advance(bytes) {
            bytes = bytes.get(end..).unwrap_or_default();
        }
    }

    /// Whether an event of our own could be written here without cutting another in two.
    pub fn is_between(&self) -> bool {
        self.between
    }

    /// The offset just past the first event that ends in `bytes`; what follows has to be given
    /// again. `None` takes note of everything.
    fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        if self.after_cr && !bytes.is_empty() {
            at = usize::from(bytes.starts_with(b"\n"));
            self.after_cr = false;
        }
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(content) = memchr2(b'\n', b'\r', rest) else {
                self.line_empty &= rest.is_empty();
                self.between &= rest.is_empty();
                return None;
            };
            let ends_event = self.line_empty && content == 0;
            at += content + 1;
            let after_cr = rest.get(content) == Some(&b'\r');
            match bytes.get(at) {
                Some(b'\n') if after_cr => at += 1,
                Some(_) => {}
                None => self.after_cr = after_cr,
            }
            self.line_empty = true;
            self.between = ends_event;
            if ends_event {
                return Some(at);
            }
        }
    }
}

/// An event is longer than the splitter may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server-sent event longer than {limit} bytes")]
pub struct Overlong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Splits a stream into events. Holds at most one incomplete event of at most `limit` bytes.
#[derive(Debug)]
pub struct Splitter {
    boundary: Boundary,
    partial: BytesMut,
    limit: usize,
    begun: bool,
}

impl Splitter {
    /// A splitter for one stream, from its start; `limit` bounds each event, in bytes.
    pub fn new(limit: usize) -> Self {
        Self { boundary: Boundary::default(), partial: BytesMut::new(), limit, begun: false }
    }

    /// Adds the events that end in `chunk` to `events`. An event within one chunk shares its
    /// memory.
    ///
    /// # Errors
    /// [`Overlong`] once an event exceeds the limit; the events before it are in `events`, and the
    /// stream can't be read any further.
    pub fn feed(&mut self, mut chunk: Bytes, events: &mut Vec<Event>) -> Result<(), Overlong> {
        if self.partial.is_empty() && self.boundary.after_cr && chunk.starts_with(b"\n") {
            let raw = chunk.split_to(1);
            self.boundary.observe(&raw);
            events.push(Event { raw, place: Place::Tail });
        }
        while let Some(end) = self.boundary.advance(&chunk) {
            let last = chunk.split_to(end);
            self.check(last.len())?;
            let raw = if self.partial.is_empty() {
                last
            } else {
                self.partial.extend_from_slice(&last);
                mem::take(&mut self.partial).freeze()
            };
            let place =
                if mem::replace(&mut self.begun, true) { Place::Later } else { Place::First };
            events.push(Event { raw, place });
        }
        self.check(chunk.len())?;
        self.partial.extend_from_slice(&chunk);
        Ok(())
    }

    /// Bytes of the unfinished event.
    pub fn held(&self) -> usize {
        self.partial.len()
    }

    /// What was fed after the last complete event, at the end of the stream. Clients discard it; it
    /// is no event.
    pub fn into_rest(self) -> Bytes {
        self.partial.freeze()
    }

    fn check(&self, more: usize) -> Result<(), Overlong> {
        let limit = self.limit;
        if self.partial.len() + more > limit { Err(Overlong { limit }) } else { Ok(()) }
    }
}

/// One event with the empty line that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    raw: Bytes,
    place: Place,
}

/// Where an event stands in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the start, where there may be a mark.
    First,
    /// Behind another one.
    Later,
    /// It is the line feed that belongs to the end of the event before.
    Tail,
}

impl Event {
    /// Its bytes as they came.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The `data` fields, joined with line feeds; `None` if there are none.
    pub fn data(&self) -> Option<Cow<'_, [u8]>> {
        let mut values = self.lines().filter_map(|line| line.data);
        let first = values.next()?;
        let Some(second) = values.next() else { return Some(Cow::Borrowed(first)) };
        let mut joined = [first, b"\n", second].concat();
        for value in values {
            joined.push(b'\n');
            joined.extend_from_slice(value);
        }
        Some(Cow::Owned(joined))
    }

    /// Whether one of its `event` fields has this value, whatever space is around it; the last one counts, and
    /// every space, but some readers differ.
    pub fn is_named(&self, name: &[u8]) -> bool {
        let names = self.lines().filter_map(|line| value(line.content, b"event"));
        names.map(<[u8]>::trim_ascii).any(|found| found == name)
    }

    /// Its `id`, if it has one; without a value it takes back those before.
    pub fn id(&self) -> Option<&[u8]> {
        let ids = self.lines().filter_map(|line| value(line.content, b"id"));
        ids.filter(|id| !id.contains(&0)).last()
    }

    /// How long to wait before connecting anew, in milliseconds, if it says so.
    pub fn retry(&self) -> Option<u64> {
        let waits = self.lines().filter_map(|line| value(line.content, b"retry"));
        let plain = waits.filter(|wait| wait.iter().all(u8::is_ascii_digit));
        plain.filter_map(|wait| std::str::from_utf8(wait).ok()?.parse().ok()).last()
    }

    /// The event with other data: new `data` fields stand where the first one stood, every other
    /// line is kept as it came. An event without data is returned as it is.
    pub fn with_data(&self, data: &[u8]) -> Bytes {
        let mut edited = BytesMut::with_capacity(self.raw.len() + data.len());
        let mut written = false;
        for line in self.lines() {
            if line.data.is_none() {
                edited.extend_from_slice(line.raw);
            } else if !mem::replace(&mut written, true) {
                edited.extend_from_slice(line.mark);
                for value in data.split(|&byte| byte == b'\n' || byte == b'\r') {
                    edited.extend_from_slice(b"data: ");
                    edited.extend_from_slice(value);
                    edited.extend_from_slice(line.ending);
                }
            }
        }
        edited.freeze()
    }

    fn lines(&self) -> impl Iterator<Item = Field<'_>> {
        let mut first = self.place == Place::First;
        Lines(&self.raw).map(move |line| {
            let marked = mem::take(&mut first) && line.content.starts_with(BYTE_ORDER_MARK);
            let mark_len = if marked { BYTE_ORDER_MARK.len() } else { 0 };
            let (mark, content) = line.content.split_at_checked(mark_len).unwrap_or_default();
            let data = value(content, b"data");
            Field { raw: line.raw, mark, content, ending: line.ending, data }
        })
    }
}

/// A line of an event.
struct Field<'a> {
    raw: &'a [u8],
    mark: &'a [u8],
    content: &'a [u8],
    ending: &'a [u8],
    data: Option<&'a [u8]>,
}

/// The value of a line with this field: what follows the colon and one space; empty without a colon.
fn value<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(field)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Splits an event into lines.
struct Lines<'a>(&'a [u8]);

struct Line<'a> {
    raw: &'a [u8],
    content: &'a [u8],
    ending: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let content = memchr2(b'\n', b'\r', self.0).unwrap_or(self.0.len());
        let tail = self.0.get(content..).unwrap_or_default();
        let ending = match tail {
            [b'\r', b'\n', ..] => 2,
            [_, ..] => 1,
            [] => 0,
        };
        let (raw, rest) = self.0.split_at_checked(content + ending)?;
        let (content, ending) = raw.split_at_checked(content)?;
        self.0 = rest;
        Some(Line { raw, content, ending })
    }
}

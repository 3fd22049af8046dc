//! A cursor over scanned bytes.

use std::{borrow::Cow, fmt, ops::Range};

use super::{
    Index,
    string::{closing_quote, decode},
};

/// The six kinds of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number, as a token.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// One value of a scanned text. Cheap to copy; reading it allocates only to decode escapes.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    bytes: &'a [u8],
    index: &'a Index,
    start: usize,
    end: usize,
}

impl<'a> Value<'a> {
    /// The value that starts at `start`.
    pub(super) fn new(bytes: &'a [u8], index: &'a Index, start: usize) -> Self {
        let end = end_of(bytes, index, start).min(bytes.len());
        Self { bytes, index, start, end }
    }

    /// What kind of value it is.
    pub fn kind(self) -> Kind {
        match self.bytes.get(self.start) {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            Some(_) | None => Kind::Null,
        }
    }

    /// Where it stands in the scanned text, in bytes.
    pub fn span(self) -> Range<usize> {
        self.start..self.end
    }

    /// Its bytes as they were sent, without white space around them.
    pub fn raw(self) -> &'a [u8] {
        self.bytes.get(self.span()).unwrap_or_default()
    }

    /// A string, decoded.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let content = self.raw().strip_prefix(b"\"")?;
        Some(decode(content.strip_suffix(b"\"").unwrap_or(content)))
    }

    /// A number, as the token that was sent. It follows the grammar and says nothing about range.
    pub fn as_number(self) -> Option<&'a str> {
        match self.kind() {
            Kind::Number => std::str::from_utf8(self.raw()).ok(),
            Kind::Null | Kind::Bool | Kind::String | Kind::Array | Kind::Object => None,
        }
    }

    /// `true` or `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.raw() {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The members of an object in the order in which they were sent; nothing for other values.
    pub fn members(self) -> Members<'a> {
        Members(self.items(Kind::Object))
    }

    /// The elements of an array; nothing for other values.
    pub fn elements(self) -> Elements<'a> {
        Elements(self.items(Kind::Array))
    }

    /// The member of this name, compared with the decoded key, byte for byte.
    pub fn member(self, name: &str) -> Option<Value<'a>> {
        self.members().find(|member| member.name == name).map(|member| member.value)
    }

    fn items(self, kind: Kind) -> Items<'a> {
        let at = if self.kind() == kind { self.start + 1 } else { self.end };
        Items { bytes: self.bytes, index: self.index, at, end: self.end }
    }
}

impl fmt::Debug for Value<'_> {
    /// Kind and place only: values are callers' data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:?}", self.kind(), self.span())
    }
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The key, decoded.
    pub name: Cow<'a, str>,
    /// Where the key stands in the scanned text, with its quotation marks.
    pub key_span: Range<usize>,
    /// The value.
    pub value: Value<'a>,
}

/// Iterates over the members of an object.
#[derive(Clone, Debug)]
pub struct Members<'a>(Items<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next()?;
        let value = self.0.next()?;
        Some(Member { name: key.as_str()?, key_span: key.span(), value })
    }
}

/// Iterates over the elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a>(Items<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// Walks over the values in a container; keys count as values.
#[derive(Clone)]
struct Items<'a> {
    bytes: &'a [u8],
    index: &'a Index,
    at: usize,
    end: usize,
}

impl<'a> Items<'a> {
    fn next(&mut self) -> Option<Value<'a>> {
        while self.at < self.end && is_between(self.bytes.get(self.at).copied()) {
            self.at += 1;
        }
        if self.at >= self.end {
            return None;
        }
        let value = Value::new(self.bytes, self.index, self.at);
        self.at = value.end.max(self.at + 1);
        Some(value)
    }
}

impl fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.at, self.end)
    }
}

/// What stands between values, or ends their container.
fn is_between(byte: Option<u8>) -> bool {
    matches!(byte, Some(b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b']' | b'}'))
}

/// The offset just past the value that starts at `start`.
fn end_of(bytes: &[u8], index: &Index, start: usize) -> usize {
    match bytes.get(start) {
        None => start,
        Some(b'"') => closing_quote(bytes, start + 1) + 1,
        Some(b'{' | b'[') => index.end_of(start).unwrap_or_else(|| container_end(bytes, start)),
        Some(_) => {
            let rest = bytes.get(start..).unwrap_or_default();
            start + rest.iter().position(|&byte| is_between(Some(byte))).unwrap_or(rest.len())
        }
    }
}

/// Walks over a container that was too short to be remembered.
fn container_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = closing_quote(bytes, at + 1),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

//! The one pass over a text.
//!
//! Recursive descent over offsets. Everything but the stack of open keys and the index of longer
//! containers stays in registers.

use super::{
    Document, Index,
    keys::Keys,
    string::{hex_unit, plain_end},
};

/// Keeps the scanner's own stack within a few dozen KiB.
const MAX_DEPTH: usize = 256;

/// What a text may need at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Objects and arrays within each other, the outermost counted. More than 256 is taken for 256,
    /// because the scanner recurses.
    pub depth: usize,
}

impl Default for Limits {
    /// 64 levels: deeper than any tool's arguments, less than half of what common parsers take.
    fn default() -> Self {
        Self { depth: 64 }
    }
}

/// Why a text was refused; offsets are in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Not UTF-8.
    #[error("invalid UTF-8 at byte {0}")]
    Utf8(usize),
    /// Starts with a byte order mark, which RFC 8259 §8.1 lets readers treat in two ways.
    #[error("byte order mark")]
    ByteOrderMark,
    /// Not the grammar of RFC 8259, or the text ends early.
    #[error("invalid JSON at byte {0}")]
    Syntax(usize),
    /// Something follows the value.
    #[error("data after the JSON value at byte {0}")]
    Trailing(usize),
    /// Nested deeper than the limit.
    #[error("nested too deep at byte {0}")]
    Depth(usize),
    /// An escaped surrogate without its other half; readers replace, drop or refuse it.
    #[error("lone surrogate at byte {0}")]
    LoneSurrogate(usize),
    /// A key that its object already has; readers take the first or the last.
    #[error("duplicate key at byte {0}")]
    DuplicateKey(usize),
    /// 4 GiB or more.
    #[error("longer than 4 GiB")]
    TooLong,
}

impl ScanError {
    /// Whether the text is no JSON at all (as opposed to JSON that is refused).
    pub fn is_malformed(self) -> bool {
        match self {
            Self::Utf8(_) | Self::ByteOrderMark | Self::Syntax(_) | Self::Trailing(_) => true,
            Self::Depth(_) | Self::LoneSurrogate(_) | Self::DuplicateKey(_) | Self::TooLong => {
                false
            }
        }
    }
}

/// Checks a text from its first to its last byte; see the [module](super) for what is refused.
///
/// Takes time linear in the text (n log n in the keys of an object, if they were chosen to be
/// slow), and memory in proportion to the keys that are open at once and to the containers of 64
/// bytes or more.
pub fn scan(bytes: &[u8], limits: Limits) -> Result<Document<'_>, ScanError> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(ScanError::TooLong);
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(ScanError::Utf8(error.valid_up_to()));
    }
    if bytes.starts_with("\u{feff}".as_bytes()) {
        return Err(ScanError::ByteOrderMark);
    }
    let mut scanner = Scanner {
        bytes,
        depth: limits.depth.min(MAX_DEPTH),
        keys: Keys::new(),
        index: Index::with_capacity(16),
    };
    let root = skip_space(bytes, 0);
    let end = scanner.value(root, 0)?;
    let end = skip_space(bytes, end);
    if end != bytes.len() {
        return Err(ScanError::Trailing(end));
    }
    Ok(Document { bytes, root, index: scanner.index })
}

/// The offset just past what was scanned.
type Scanned = Result<usize, ScanError>;

struct Scanner<'a> {
    bytes: &'a [u8],
    depth: usize,
    keys: Keys,
    index: Index,
}

impl Scanner<'_> {
    fn value(&mut self, at: usize, depth: usize) -> Scanned {
        match byte(self.bytes, at) {
            b'"' => string(self.bytes, at).map(|(end, _)| end),
            b'{' => {
                let opened = self.open(at, depth)?;
                let end = self.object(at + 1, depth + 1)?;
                self.index.close(opened, at, end);
                Ok(end)
            }
            b'[' => {
                let opened = self.open(at, depth)?;
                let end = self.array(at + 1, depth + 1)?;
                self.index.close(opened, at, end);
                Ok(end)
            }
            b'-' | b'0'..=b'9' => number(self.bytes, at),
            b't' => literal(self.bytes, at, b"true"),
            b'f' => literal(self.bytes, at, b"false"),
            b'n' => literal(self.bytes, at, b"null"),
            _ => Err(ScanError::Syntax(at)),
        }
    }

    fn open(&mut self, at: usize, depth: usize) -> Result<usize, ScanError> {
        if depth >= self.depth {
            return Err(ScanError::Depth(at));
        }
        Ok(self.index.open(at))
    }

    fn object(&mut self, at: usize, depth: usize) -> Scanned {
        let base = self.keys.open();
        let mut at = skip_space(self.bytes, at);
        if byte(self.bytes, at) == b'}' {
            return Ok(at + 1);
        }
        loop {
            at = self.key(at, base)?;
            at = skip_space(self.bytes, at);
            at = expect(self.bytes, at, b':')?;
            at = skip_space(self.bytes, at);
            at = self.value(at, depth)?;
            at = skip_space(self.bytes, at);
            if byte(self.bytes, at) != b',' {
                break;
            }
            at = skip_space(self.bytes, at + 1);
        }
        self.keys.close(self.bytes, base)?;
        expect(self.bytes, at, b'}')
    }

    fn array(&mut self, at: usize, depth: usize) -> Scanned {
        let mut at = skip_space(self.bytes, at);
        if byte(self.bytes, at) == b']' {
            return Ok(at + 1);
        }
        loop {
            at = self.value(at, depth)?;
            at = skip_space(self.bytes, at);
            if byte(self.bytes, at) != b',' {
                return expect(self.bytes, at, b']');
            }
            at = skip_space(self.bytes, at + 1);
        }
    }

    fn key(&mut self, at: usize, base: usize) -> Scanned {
        if byte(self.bytes, at) != b'"' {
            return Err(ScanError::Syntax(at));
        }
        let (end, escaped) = string(self.bytes, at)?;
        self.keys.add(self.bytes, at + 1..end - 1, escaped, base)?;
        Ok(end)
    }
}

/// The byte at `at`. Past the end it is NUL, which no rule of the grammar takes.
#[inline]
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

#[inline]
fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(byte(bytes, at), b' ' | b'\t' | b'\n' | b'\r') {
        at += 1;
    }
    at
}

#[inline]
fn expect(bytes: &[u8], at: usize, expected: u8) -> Scanned {
    if byte(bytes, at) == expected { Ok(at + 1) } else { Err(ScanError::Syntax(at)) }
}

fn literal(bytes: &[u8], at: usize, name: &[u8]) -> Scanned {
    if bytes.get(at..).unwrap_or_default().starts_with(name) {
        Ok(at + name.len())
    } else {
        Err(ScanError::Syntax(at))
    }
}

#[inline]
fn number(bytes: &[u8], mut at: usize) -> Scanned {
    at += usize::from(byte(bytes, at) == b'-');
    at = if byte(bytes, at) == b'0' { at + 1 } else { digits(bytes, at)? };
    if byte(bytes, at) == b'.' {
        at = digits(bytes, at + 1)?;
    }
    if matches!(byte(bytes, at), b'e' | b'E') {
        at += 1;
        at += usize::from(matches!(byte(bytes, at), b'+' | b'-'));
        at = digits(bytes, at)?;
    }
    Ok(at)
}

/// One digit or more.
#[inline]
fn digits(bytes: &[u8], start: usize) -> Scanned {
    let mut at = start;
    while byte(bytes, at).is_ascii_digit() {
        at += 1;
    }
    if at == start { Err(ScanError::Syntax(at)) } else { Ok(at) }
}

/// Steps over the string that starts at `at`; whether it has escapes.
#[inline(always)]
fn string(bytes: &[u8], at: usize) -> Result<(usize, bool), ScanError> {
    let at = plain_end(bytes, at + 1);
    match byte(bytes, at) {
        b'"' => Ok((at + 1, false)),
        _ => escaped_string(bytes, at).map(|end| (end, true)),
    }
}

/// Goes on with a string at its first special byte.
fn escaped_string(bytes: &[u8], mut at: usize) -> Scanned {
    loop {
        match byte(bytes, at) {
            b'"' => return Ok(at + 1),
            b'\\' => at = plain_end(bytes, escape(bytes, at)?),
            _ => return Err(ScanError::Syntax(at)),
        }
    }
}

fn escape(bytes: &[u8], at: usize) -> Scanned {
    match byte(bytes, at + 1) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => return Ok(at + 2),
        b'u' => {}
        _ => return Err(ScanError::Syntax(at)),
    }
    match unit(bytes, at)? {
        0xdc00..=0xdfff => Err(ScanError::LoneSurrogate(at)),
        0xd800..=0xdbff => {
            let next = at + 6;
            let pair = bytes.get(next..).unwrap_or_default().starts_with(br"\u");
            if !pair || !(0xdc00..=0xdfff).contains(&unit(bytes, next)?) {
                return Err(ScanError::LoneSurrogate(at));
            }
            Ok(next + 6)
        }
        _ => Ok(at + 6),
    }
}

/// The code unit of the `\u` escape that starts at `at`.
fn unit(bytes: &[u8], at: usize) -> Result<u16, ScanError> {
    let digits = bytes.get(at + 2..).unwrap_or_default();
    hex_unit(digits).map(|(unit, _)| unit).ok_or(ScanError::Syntax(at))
}

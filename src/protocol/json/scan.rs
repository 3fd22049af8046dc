//! The one pass over a text.
//!
//! Recursive descent over offsets. Everything but the stack of open keys and the index of longer
//! containers stays in registers. Every step first tries what compact texts have at that place; the
//! rest (white space, escapes, fractions) is kept in functions of its own, out of the way.

use super::{Document, Index, digest::Digest, keys::Keys, marks::Marks, string::hex_unit};

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
/// bytes or more, and while it runs one bit for each byte.
pub fn scan(bytes: &[u8], limits: Limits) -> Result<Document<'_>, ScanError> {
    scan_with(bytes, limits, Digest::unwanted()).map(|(document, _)| document)
}

/// As [`scan`], and the document knows its SHA-256 then, in less time than it takes to make it by
/// itself.
pub fn scan_and_digest(bytes: &[u8], limits: Limits) -> Result<Document<'_>, ScanError> {
    let (mut document, digest) = scan_with(bytes, limits, Digest::wanted())?;
    document.index.digest = Some(digest.finish(bytes));
    Ok(document)
}

fn scan_with(
    bytes: &[u8],
    limits: Limits,
    digest: Digest,
) -> Result<(Document<'_>, Digest), ScanError> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(ScanError::TooLong);
    }
    // Most texts are ASCII, which takes a tenth of the time to find out.
    if !bytes.is_ascii()
        && let Err(error) = std::str::from_utf8(bytes)
    {
        return Err(ScanError::Utf8(error.valid_up_to()));
    }
    if bytes.starts_with("\u{feff}".as_bytes()) {
        return Err(ScanError::ByteOrderMark);
    }
    let mut scanner = Scanner {
        depth: limits.depth.min(MAX_DEPTH),
        marks: Marks::of(bytes),
        digest,
        keys: Keys::with_capacity((bytes.len() / 32).clamp(8, 1024)),
        index: Index::with_capacity((bytes.len() / 128).clamp(16, 1024)),
    };
    let (root, first) = next(bytes, 0);
    let end = scanner.value(bytes, root, first, 0).map_err(|error| *error)?;
    let (end, _) = next(bytes, end);
    if end != bytes.len() {
        return Err(ScanError::Trailing(end));
    }
    Ok((Document { bytes, root, index: scanner.index }, scanner.digest))
}

/// The offset just past what was scanned.
type Scanned = Result<usize, Failed>;

/// Boxed, so that what a step answers fits two registers.
pub(super) type Failed = Box<ScanError>;

struct Scanner {
    depth: usize,
    marks: Marks,
    digest: Digest,
    keys: Keys,
    index: Index,
}

impl Scanner {
    #[inline(always)]
    fn value(&mut self, bytes: &[u8], at: usize, first: u8, depth: usize) -> Scanned {
        match first {
            b'"' => self.string(bytes, at + 1).map(|(end, _)| end),
            b'{' => {
                let opened = self.open(at, depth)?;
                let end = self.object(bytes, at + 1, depth + 1)?;
                self.index.close(opened, at, end);
                Ok(end)
            }
            b'[' => {
                let opened = self.open(at, depth)?;
                let end = self.array(bytes, at + 1, depth + 1)?;
                self.index.close(opened, at, end);
                Ok(end)
            }
            digit @ b'0'..=b'9' => number(bytes, at, digit),
            b'-' => negative(bytes, at),
            b't' => literal(bytes, at, b"true"),
            b'f' => literal(bytes, at, b"false"),
            b'n' => literal(bytes, at, b"null"),
            _ => fail(ScanError::Syntax(at)),
        }
    }

    #[inline(always)]
    fn open(&mut self, at: usize, depth: usize) -> Scanned {
        if depth >= self.depth {
            return fail(ScanError::Depth(at));
        }
        Ok(self.index.open(at))
    }

    fn object(&mut self, bytes: &[u8], at: usize, depth: usize) -> Scanned {
        let (mut at, first) = next(bytes, at);
        if first == b'}' {
            return Ok(at + 1);
        }
        let mut object = self.keys.open();
        loop {
            at = expect(bytes, at, b'"')?;
            let (end, escaped) = self.string(bytes, at)?;
            self.keys.add(&mut object, bytes, at..end - 1, escaped)?;
            let (start, first) = next(bytes, expect(bytes, end, b':')?);
            at = self.value(bytes, start, first, depth)?;
            self.digest.reach(bytes, at);
            match more(bytes, at, b'}')? {
                (after, true) => at = after,
                (end, false) => {
                    self.keys.close(&object, bytes)?;
                    return Ok(end);
                }
            }
        }
    }

    fn array(&mut self, bytes: &[u8], at: usize, depth: usize) -> Scanned {
        let (mut at, mut first) = next(bytes, at);
        if first == b']' {
            return Ok(at + 1);
        }
        loop {
            at = self.value(bytes, at, first, depth)?;
            self.digest.reach(bytes, at);
            match more(bytes, at, b']')? {
                (after, true) => (at, first) = next(bytes, after),
                (end, false) => return Ok(end),
            }
        }
    }

    /// Steps over the rest of the string whose content starts at `at`; whether it has escapes.
    #[inline(always)]
    fn string(&self, bytes: &[u8], at: usize) -> Result<(usize, bool), Failed> {
        let at = self.marks.next(at);
        match byte(bytes, at) {
            b'"' => Ok((at + 1, false)),
            _ => self.escaped_string(bytes, at).map(|end| (end, true)),
        }
    }

    /// Goes on with a string at its first marked byte.
    fn escaped_string(&self, bytes: &[u8], mut at: usize) -> Scanned {
        loop {
            match byte(bytes, at) {
                b'"' => return Ok(at + 1),
                b'\\' => at = self.marks.next(escape(bytes, at)?),
                _ => return fail(ScanError::Syntax(at)),
            }
        }
    }
}

/// Refuses the text.
#[cold]
pub(super) fn fail<T>(error: ScanError) -> Result<T, Failed> {
    Err(Box::new(error))
}

/// The byte at `at`. Past the end it is NUL, which no rule of the grammar takes.
#[inline]
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

/// The first offset from `at` on that has no white space, and the byte there.
#[inline(always)]
fn next(bytes: &[u8], at: usize) -> (usize, u8) {
    let next = byte(bytes, at);
    if next > b' ' { (at, next) } else { next_later(bytes, at) }
}

#[inline(never)]
fn next_later(bytes: &[u8], at: usize) -> (usize, u8) {
    let at = skip_spaces(bytes, at);
    (at, byte(bytes, at))
}

fn skip_spaces(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match byte(bytes, at) {
            // A line break mostly comes with an indentation.
            b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            _ => return at,
        }
        while let Some([b' ', b' ', b' ', b' ']) =
            bytes.get(at..).and_then(|rest| rest.first_chunk::<4>())
        {
            at += 4;
        }
    }
}

/// Steps over `expected` and the white space before it, of which there is none mostly.
#[inline(always)]
fn expect(bytes: &[u8], at: usize, expected: u8) -> Scanned {
    if byte(bytes, at) == expected { Ok(at + 1) } else { expect_later(bytes, at, expected) }
}

#[inline(never)]
fn expect_later(bytes: &[u8], at: usize, expected: u8) -> Scanned {
    match next(bytes, at) {
        (at, next) if next == expected => Ok(at + 1),
        (at, _) => fail(ScanError::Syntax(at)),
    }
}

/// Steps over a comma or over `close`, and the white space before it; whether it was a comma.
#[inline(always)]
fn more(bytes: &[u8], at: usize, close: u8) -> Result<(usize, bool), Failed> {
    let next = byte(bytes, at);
    if next == b',' {
        Ok((at + 1, true))
    } else if next == close {
        Ok((at + 1, false))
    } else {
        more_later(bytes, at, close)
    }
}

#[inline(never)]
fn more_later(bytes: &[u8], at: usize, close: u8) -> Result<(usize, bool), Failed> {
    match next(bytes, at) {
        (at, b',') => Ok((at + 1, true)),
        (at, next) if next == close => Ok((at + 1, false)),
        (at, _) => fail(ScanError::Syntax(at)),
    }
}

fn literal(bytes: &[u8], at: usize, name: &[u8]) -> Scanned {
    if bytes.get(at..).unwrap_or_default().starts_with(name) {
        Ok(at + name.len())
    } else {
        fail(ScanError::Syntax(at))
    }
}

/// Steps over the number whose first digit is `first` and stands at `at`.
#[inline(always)]
fn number(bytes: &[u8], at: usize, first: u8) -> Scanned {
    let mut at = at + 1;
    let mut next = byte(bytes, at);
    if first != b'0' {
        while next.is_ascii_digit() {
            at += 1;
            next = byte(bytes, at);
        }
    }
    if matches!(next, b'.' | b'e' | b'E') { fraction(bytes, at) } else { Ok(at) }
}

/// Steps over the number whose sign stands at `at`.
#[inline(never)]
fn negative(bytes: &[u8], at: usize) -> Scanned {
    match byte(bytes, at + 1) {
        digit @ b'0'..=b'9' => number(bytes, at + 1, digit),
        _ => fail(ScanError::Syntax(at + 1)),
    }
}

/// Steps over what follows the whole part of a number.
#[inline(never)]
fn fraction(bytes: &[u8], mut at: usize) -> Scanned {
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
fn digits(bytes: &[u8], start: usize) -> Scanned {
    let mut at = start;
    while byte(bytes, at).is_ascii_digit() {
        at += 1;
    }
    if at == start { fail(ScanError::Syntax(at)) } else { Ok(at) }
}

fn escape(bytes: &[u8], at: usize) -> Scanned {
    match byte(bytes, at + 1) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => return Ok(at + 2),
        b'u' => {}
        _ => return fail(ScanError::Syntax(at)),
    }
    match unit(bytes, at)? {
        0xdc00..=0xdfff => fail(ScanError::LoneSurrogate(at)),
        0xd800..=0xdbff => {
            let next = at + 6;
            let pair = bytes.get(next..).unwrap_or_default().starts_with(br"\u");
            if !pair || !(0xdc00..=0xdfff).contains(&unit(bytes, next)?) {
                return fail(ScanError::LoneSurrogate(at));
            }
            Ok(next + 6)
        }
        _ => Ok(at + 6),
    }
}

/// The code unit of the `\u` escape that starts at `at`.
fn unit(bytes: &[u8], at: usize) -> Result<u16, Failed> {
    let digits = bytes.get(at + 2..).unwrap_or_default();
    match hex_unit(digits) {
        Some((unit, _)) => Ok(unit),
        None => fail(ScanError::Syntax(at)),
    }
}

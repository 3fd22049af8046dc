//! The bytes between two quotation marks.

use std::borrow::Cow;

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// The first offset from `at` on that can't be part of a plain string: a quotation mark, a
/// backslash, a control character, or the end.
#[inline(always)]
pub(super) fn plain_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..at + 8).and_then(<[u8]>::first_chunk) {
        // Most strings are short.
        Some(word) => match specials(u64::from_le_bytes(*word)) {
            0 => long_plain_end(bytes, at + 8),
            marks => at + lowest(marks),
        },
        None => long_plain_end(bytes, at),
    }
}

#[inline(never)]
fn long_plain_end(bytes: &[u8], mut at: usize) -> usize {
    let mut words = 0;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let marks = specials(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + lowest(marks);
        }
        at += 8;
        words += 1;
        // What is still going on is worth wide steps.
        if words == 3 {
            at = skip_blocks(bytes, at);
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())
}

/// Marks the high bit of each byte of `word` that is special. Bits above the lowest mark may be
/// false, because the subtractions borrow; the lowest one is always true.
#[inline(always)]
pub(super) fn specials(word: u64) -> u64 {
    // Each of the three leaves the high bit of a byte below 0x80 set only if the byte is what is
    // looked for; the bytes from 0x80 on, which are never special, are taken out at the end.
    let quotes = (word ^ (ONES * b'"' as u64)).wrapping_sub(ONES);
    let escapes = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    let controls = word.wrapping_sub(ONES * 0x20);
    (quotes | escapes | controls) & !word & HIGH
}

/// The place of the lowest byte that is marked; 8 if there is none.
#[inline(always)]
pub(super) fn lowest(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Steps over blocks without any special byte; the inner loop has no branch, so it is vectorised.
fn skip_blocks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<64>) {
        let mut hit = false;
        for &byte in block {
            hit |= is_special(byte);
        }
        if hit {
            break;
        }
        at += 64;
    }
    at
}

/// The offset of the closing quotation mark of a scanned string whose content starts at `at`.
pub(super) fn closing_quote(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = plain_end(bytes, at);
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') | None => return at,
            Some(_) => at += 1,
        }
    }
}

/// The content of a scanned string (without its quotation marks), decoded.
pub(super) fn decode(raw: &[u8]) -> Cow<'_, str> {
    match memchr::memchr(b'\\', raw) {
        // Scanned bytes are UTF-8, and to find that out once more is cheaper than to look for what isn't.
        None => match std::str::from_utf8(raw) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(raw),
        },
        Some(first) => Cow::Owned(unescape(raw, first)),
    }
}

fn unescape(raw: &[u8], first: usize) -> String {
    let mut decoded = Vec::with_capacity(raw.len());
    let (plain, mut rest) = raw.split_at_checked(first).unwrap_or((raw, &[]));
    decoded.extend_from_slice(plain);
    while let [b'\\', letter, tail @ ..] = rest {
        rest = tail;
        match letter {
            b'b' => decoded.push(0x08),
            b'f' => decoded.push(0x0c),
            b'n' => decoded.push(b'\n'),
            b'r' => decoded.push(b'\r'),
            b't' => decoded.push(b'\t'),
            b'u' => {
                let (character, tail) = unicode_escape(rest);
                rest = tail;
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => decoded.push(*other),
        }
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        let (plain, tail) = rest.split_at_checked(plain).unwrap_or((rest, &[]));
        decoded.extend_from_slice(plain);
        rest = tail;
    }
    String::from_utf8(decoded)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Decodes what follows `\u`: four digits, and the second half of a surrogate pair.
fn unicode_escape(text: &[u8]) -> (char, &[u8]) {
    let replacement = (char::REPLACEMENT_CHARACTER, text);
    let Some((unit, rest)) = hex_unit(text) else { return replacement };
    if let Some(character) = char::from_u32(unit.into()) {
        return (character, rest);
    }
    let Some((low, rest)) = rest.strip_prefix(br"\u").and_then(hex_unit) else {
        return replacement;
    };
    match char::decode_utf16([unit, low]).next() {
        Some(Ok(character)) => (character, rest),
        Some(Err(_)) | None => replacement,
    }
}

/// Reads four hexadecimal digits.
pub(super) fn hex_unit(text: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let mut unit = 0;
    for &digit in digits {
        let value = char::from(digit).to_digit(16)?;
        unit = unit << 4 | value as u16;
    }
    Some((unit, rest))
}

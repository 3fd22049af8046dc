//! The bytes between two quotation marks.

use std::borrow::Cow;

/// The offset of the closing quotation mark of a scanned string whose content starts at `at`.
pub(super) fn closing_quote(bytes: &[u8], mut at: usize) -> usize {
    loop {
        let Some(end) = plain_end(bytes, at) else { return bytes.len() };
        match bytes.get(end) {
            Some(b'\\') => at = end + 2,
            Some(_) | None => return end,
        }
    }
}

/// The offset of the next quotation mark or backslash. Most strings are short, which is why the
/// first few bytes are looked at here.
#[inline(always)]
fn plain_end(bytes: &[u8], at: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let rest = bytes.get(at..)?;
    if let Some(word) = rest.first_chunk() {
        let word = u64::from_le_bytes(*word);
        // Each leaves the high bit of a byte below 0x80 set only if it is what is looked for. Above
        // the lowest one bits may be false, because the subtractions borrow.
        let quotes = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
        let escapes = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
        let found = (quotes | escapes) & !word & (ONES << 7);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
    }
    memchr::memchr2(b'"', b'\\', rest).map(|gap| at + gap)
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

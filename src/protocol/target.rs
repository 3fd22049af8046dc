//! The target of a request below an address: percent-encoding undone once, and written anew.
//!
//! Servers differ in what they decode, and how often. What is forwarded is written from what was understood,
//! so that the next reader finds in it what was judged.

/// Where a request goes, below the address of its upstream.
///
/// INVARIANT: both are made from what was judged, never copied from the request line; to send
/// anything else would be to run another call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// The path, which starts with a slash or is empty. Within a segment everything is
    /// percent-encoded that RFC 3986 §2.3 doesn't call unreserved, but what the protocol has there.
    pub path: Box<str>,
    /// The query without its question mark, encoded in the same way; `None` where there is none.
    pub query: Option<Box<str>>,
}

/// Undoes percent-encoding once; `None` for what isn't encoded as it has to be, or isn't UTF-8 then.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte == b'%' {
            let [high, low, tail @ ..] = tail else { return None };
            let digit = |digit: &u8| char::from(*digit).to_digit(16);
            bytes.push(u8::try_from(digit(high)? << 4 | digit(low)?).ok()?);
            rest = tail;
        } else {
            bytes.push(*byte);
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

/// Percent-encodes everything that RFC 3986 §2.3 doesn't call unreserved.
pub(super) fn encode(text: &str, into: &mut String) {
    encode_but(text, &[], into);
}

/// The same, but for some bytes of ASCII that stand for themselves.
pub(super) fn encode_but(text: &str, plain: &[u8], into: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => into.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() || plain.contains(&byte) => {
                into.push(char::from(byte));
            }
            byte => {
                let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
                into.push('%');
                into.push(digit(byte >> 4).to_ascii_uppercase());
                into.push(digit(byte & 15).to_ascii_uppercase());
            }
        }
    }
}

//! One reading of an event, whoever reads it.
//!
//! Readers of event streams differ: in which characters end a line (Python's `splitlines` knows ten, some
//! readers only the line feed), in what they drop from the start of a stream, in how they put several `data`
//! lines together, in which names they take for a field's. What is judged in one reading must not be acted
//! on in another. So an event goes on as it came only where all of them find the same fields in it; any
//! other is written anew, from what the standard finds in it: its known fields, a line feed behind each, and
//! in place of characters that some reader takes for a line's end their escapes in JSON.
//!
//! INVARIANT: of an event that has been made clear, whoever takes LF and CR LF for the end of a line finds the
//! same fields, and several `data` lines only where they are one JSON text, however else they read.
//!
//! Refuses: what can't be written anew without a guess, which is data over several lines, or with such
//! characters in it, that isn't strict JSON, and other fields with such characters.

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;

use super::{BYTE_ORDER_MARK, Event, Lines, Place, value};
use crate::protocol::json;

#[cfg(test)]
mod tests;

/// The fields that the standard knows.
const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];

/// What some reader drops from the start of a stream: the mark, and the characters that its bytes are in
/// Latin-1.
const MARKS: [&[u8]; 2] = [BYTE_ORDER_MARK, "\u{ef}\u{bb}\u{bf}".as_bytes()];

/// Characters beyond ASCII that some reader takes for the end of a line, and their escapes.
const SEPARATORS: [(&str, &str); 3] =
    [("\u{85}", "\\u0085"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")];

/// An event that readers could read differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event with more than one reading")]
pub struct Ambiguous;

/// How an event is written.
enum Form {
    /// So that it can be read in one way.
    Plain,
    /// The same, if the line feed is added that may still come.
    Cut,
    /// So that readers may differ.
    Odd,
}

impl Event {
    /// Gives the event a form in which all readers find the same fields; nothing may be left of it.
    ///
    /// # Errors
    /// [`Ambiguous`] if there is no such form; the event may not go on.
    pub fn clear(&mut self) -> Result<(), Ambiguous> {
        match std::mem::replace(&mut self.place, Place::Later) {
            Place::First => self.drop_marks(),
            Place::Later => {}
            // It has been added to the event before.
            Place::Tail => self.raw = Bytes::new(),
        }
        match self.form() {
            Form::Plain => {}
            Form::Cut => {
                let mut whole = BytesMut::with_capacity(self.raw.len() + 1);
                whole.extend_from_slice(&self.raw);
                whole.put_u8(b'\n');
                self.raw = whole.freeze();
            }
            Form::Odd => self.raw = self.rewritten()?,
        }
        Ok(())
    }

    /// What is dropped by some has to be dropped for all, however often it stands there.
    fn drop_marks(&mut self) {
        while let Some(mark) = MARKS.iter().find(|mark| self.raw.starts_with(mark)) {
            self.raw = self.raw.slice(mark.len()..);
        }
    }

    fn form(&self) -> Form {
        let mut cut = false;
        let mut data = 0;
        for line in Lines(&self.raw) {
            if cut || is_odd(line.content) || !is_plain_name(line.content) {
                return Form::Odd;
            }
            cut = line.ending == b"\r";
            data += usize::from(value(line.content, b"data").is_some());
        }
        match (data > 1 && !self.is_one_text(), cut) {
            (true, _) => Form::Odd,
            (false, true) => Form::Cut,
            (false, false) => Form::Plain,
        }
    }

    fn rewritten(&self) -> Result<Bytes, Ambiguous> {
        let several = self.lines().filter(|line| line.data.is_some()).nth(1).is_some();
        let odd = self.data().is_some_and(|data| is_odd(&data));
        if (several || odd) && !self.is_one_text() {
            return Err(Ambiguous);
        }
        let mut text = BytesMut::with_capacity(self.raw.len() + 64);
        for line in self.lines() {
            let known = FIELDS.iter().find_map(|name| Some((name, value(line.content, name)?)));
            let Some((name, value)) = known else { continue };
            text.extend_from_slice(name);
            text.extend_from_slice(b": ");
            match (is_odd(value), line.data.is_some()) {
                (false, _) => text.extend_from_slice(value),
                (true, true) => text.extend_from_slice(escaped(value).as_bytes()),
                (true, false) => return Err(Ambiguous),
            }
            text.put_u8(b'\n');
        }
        if !text.is_empty() {
            text.put_u8(b'\n');
        }
        Ok(text.freeze())
    }

    /// Whether the data is strict JSON, or nothing. Then no line of it ends within a string, and what one line
    /// of it says is a part of what all of them say.
    fn is_one_text(&self) -> bool {
        let data = self.data().unwrap_or_default();
        data.trim_ascii().is_empty() || json::scan(&data, json::Limits::default()).is_ok()
    }
}

/// Whether nobody reads anything in the name of a line's field but what the standard does: it is one of those
/// that it knows, or of a comment, or can't be taken for a known one.
fn is_plain_name(line: &[u8]) -> bool {
    let name = memchr::memchr(b':', line).and_then(|colon| line.get(..colon)).unwrap_or(line);
    let is_known = |name: &[u8]| FIELDS.contains(&name);
    name.is_empty()
        || is_known(name)
        || (name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !is_known(&name.to_ascii_lowercase()))
}

/// Whether a text holds a character that some reader takes for the end of a line, or of the text, and others
/// don't.
fn is_odd(text: &[u8]) -> bool {
    // Written so that compilers make wide instructions of it. Most lines are ASCII, and visible.
    let last = text.iter().fold(0, |last: u8, byte| last.max(byte.wrapping_sub(b' ')));
    if last <= b'~' - b' ' {
        return false;
    }
    let control = text.iter().fold(false, |found, byte| {
        found | ((*byte < b' ') & (*byte != b'\t') & (*byte != b'\n') & (*byte != b'\r'))
    });
    control || SEPARATORS.iter().any(|(found, _)| memmem::find(text, found.as_bytes()).is_some())
}

/// Data of which it is known that it is JSON: such characters are in its strings.
fn escaped(data: &[u8]) -> String {
    let data = String::from_utf8_lossy(data).into_owned();
    SEPARATORS.iter().fold(data, |data, (found, escape)| data.replace(found, escape))
}

//! A look at documents that are too long to be held.
//!
//! Clients act on whatever message a JSON document turns out to be, so a document can carry a request of
//! the server, a batch with one in it, or a result that asks for something. Those that fit into memory are
//! read strictly. The others pass part by part, followed only as far as it takes to see the names that
//! matter, and are cut when one of those comes up: an incomplete document can't be acted on.
//!
//! INVARIANT: a text that a JSON reader takes for an object with a watched member is refused no later than
//! in the part that ends the member's name. What no reader takes for JSON may pass.
//!
//! Refuses: arrays, another encoding than UTF-8, anything after the end, and where a watched name could
//! stand, names with an escape or beyond ASCII, which readers fold in ways of their own.

use memchr::memchr2;

use super::Unreadable;

#[cfg(test)]
mod tests;

/// Whether a whole text is one that no reader takes for a JSON object or array, in any encoding.
pub fn is_foreign(text: &[u8]) -> bool {
    let mut look = Look::default();
    let readable = text.iter().try_for_each(|byte| match look.place {
        Place::Start => look.begin(*byte),
        _ => Ok(()),
    });
    readable.is_ok() && matches!(look.place, Place::Start | Place::Foreign)
}

/// Whether a text could be in an encoding of Unicode that some readers guess from its first bytes, and in
/// which it says something else than in UTF-8.
pub fn may_be_wide(text: &[u8]) -> bool {
    text.iter().take(4).any(|byte| matches!(byte, 0 | 0xfe | 0xff))
}

/// Where in a text the look stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before the first byte that means something.
    #[default]
    Start,
    /// After so many bytes of a byte order mark.
    Mark(u8),
    /// In a container, between its values.
    Between,
    /// In a string.
    String,
    /// In a string, after a backslash that escapes.
    Escape,
    /// After the end.
    End,
    /// In something that is no JSON object.
    Foreign,
}

/// An object whose members have names that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    /// The document.
    Message,
    /// Its `result`.
    Result,
    /// Its `error`.
    Error,
    /// `error.data`.
    Data,
}

/// The last name that was read.
#[derive(Debug, Default)]
struct Name {
    /// In lower case, since some readers fold it.
    text: [u8; Name::LONGEST],
    length: usize,
    /// Something that readers understand differently was in it.
    odd: bool,
}

/// The look at one document, from its start.
#[derive(Debug, Default)]
pub struct Look {
    place: Place,
    depth: usize,
    /// The objects that the look is in, as long as their names matter.
    watched: Vec<Object>,
    /// The next string names a member of the innermost of them.
    names: bool,
    name: Name,
}

impl Look {
    /// Takes note of the next part; it may go on unless this is an error.
    pub fn at(&mut self, mut bytes: &[u8]) -> Result<(), Unreadable> {
        while let [first, rest @ ..] = bytes {
            bytes = match self.place {
                Place::Start => {
                    self.begin(*first)?;
                    rest
                }
                Place::Mark(seen) => {
                    self.place = match (seen, first) {
                        (1, 0xbb) => Place::Mark(2),
                        (2, 0xbf) => Place::Start,
                        _ => return Err(Unreadable),
                    };
                    rest
                }
                Place::Between if self.is_watching() => {
                    self.step(*first)?;
                    rest
                }
                Place::Between => self.skip(bytes),
                Place::String => self.string(bytes)?,
                Place::Escape => {
                    self.place = Place::String;
                    rest
                }
                Place::End if is_space(*first) => rest,
                Place::End => return Err(Unreadable),
                Place::Foreign => return Ok(()),
            };
        }
        Ok(())
    }

    fn begin(&mut self, first: u8) -> Result<(), Unreadable> {
        match first {
            b'{' => {
                self.place = Place::Between;
                self.enter(Some(Object::Message));
            }
            0xef => self.place = Place::Mark(1),
            // A batch; a comment; what other encodings of Unicode begin with.
            b'[' | b'/' | 0 | 0xfe | 0xff => return Err(Unreadable),
            _ if is_space(first) => {}
            _ => self.place = Place::Foreign,
        }
        Ok(())
    }

    fn is_watching(&self) -> bool {
        self.depth == self.watched.len()
    }

    fn enter(&mut self, object: Option<Object>) {
        self.depth += 1;
        self.watched.extend(object);
        self.names = object.is_some();
    }

    fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.watched.truncate(self.depth);
        self.names = false;
        if self.depth == 0 {
            self.place = Place::End;
        }
    }

    /// One byte where names matter. Only what can stand there in strict JSON passes.
    fn step(&mut self, byte: u8) -> Result<(), Unreadable> {
        match byte {
            b'"' => {
                self.name = Name::default();
                self.place = Place::String;
            }
            b'{' => self.enter(self.watched.last().and_then(|within| self.name.opens(*within))),
            b'[' => self.enter(None),
            b'}' | b']' => self.leave(),
            b',' => self.names = true,
            b':' | b'0'..=b'9' | b'+' | b'-' | b'.' | b'E' => {}
            // The letters of the three words. An unquoted name that is watched has others.
            b't' | b'r' | b'u' | b'e' | b'f' | b'a' | b'l' | b's' | b'n' => {}
            _ if is_space(byte) => {}
            _ => return Err(Unreadable),
        }
        Ok(())
    }

    /// Goes on to the next string, or to where names matter again.
    fn skip<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => self.place = Place::String,
                b'{' | b'[' => {
                    self.depth += 1;
                    continue;
                }
                b'}' | b']' => {
                    self.leave();
                    if !self.is_watching() {
                        continue;
                    }
                }
                _ => continue,
            }
            return bytes.get(at + 1..).unwrap_or_default();
        }
        &[]
    }

    /// Goes on in a string, and looks at it if it is a name.
    fn string<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Unreadable> {
        let at = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        let (content, rest) = bytes.split_at_checked(at).unwrap_or_default();
        if self.names {
            self.name.note(content);
        }
        match rest.first() {
            None => {}
            Some(b'"') => {
                self.place = Place::Between;
                if std::mem::take(&mut self.names) {
                    let within = self.watched.last().ok_or(Unreadable)?;
                    self.name.check(*within)?;
                }
            }
            Some(_) => {
                self.name.odd |= self.names;
                self.place = Place::Escape;
            }
        }
        Ok(rest.get(1..).unwrap_or_default())
    }
}

impl Name {
    /// Length of the longest that matters.
    const LONGEST: usize = 13;

    fn note(&mut self, content: &[u8]) {
        self.odd |= !content.is_ascii();
        let free = self.text.get_mut(self.length..).unwrap_or_default();
        for (to, from) in free.iter_mut().zip(content) {
            *to = from.to_ascii_lowercase();
        }
        self.length = self.length.saturating_add(content.len());
    }

    fn text(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or_default()
    }

    fn check(&self, within: Object) -> Result<(), Unreadable> {
        let watched: &[&[u8]] = match within {
            Object::Message => &[b"method"],
            Object::Result => &[b"inputrequests", b"requeststate", b"task", b"taskid"],
            Object::Error => &[],
            Object::Data => &[b"elicitations"],
        };
        if self.odd || watched.contains(&self.text()) { Err(Unreadable) } else { Ok(()) }
    }

    /// The object whose names matter that this name's value is.
    fn opens(&self, within: Object) -> Option<Object> {
        match (within, self.text()) {
            (Object::Message, b"result") => Some(Object::Result),
            (Object::Message, b"error") => Some(Object::Error),
            (Object::Error, b"data") => Some(Object::Data),
            (Object::Message | Object::Result | Object::Error | Object::Data, _) => None,
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

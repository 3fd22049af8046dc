//! The path of a request below its route.
//!
//! Servers differ in what they decode and how often, in dot segments, in what they cut off a segment. A path
//! that is more than one path to them is refused; a slash at its end is passed on and nothing that policies
//! see, since most servers have the same there.

use super::Refusal;
use crate::protocol::{
    Fault,
    target::{decoded, encode_but},
};

/// What may stand in a segment beside what is unreserved (RFC 3986 §3.3). A plus is a space to some, and
/// what follows a semicolon is no part of the name to others.
const PLAIN: &[u8] = b"!$&'()*,=:@";

/// Characters that some take for a dot, a slash, a backslash, a percent sign or a semicolon: what they stand for
/// in compatibility forms (Unicode NFKC), and in the tables of Windows for code pages.
const LOOKALIKES: &[char] = &[
    '\u{2024}', '\u{2025}', '\u{2026}', '\u{2044}', '\u{2048}', '\u{2215}', '\u{2216}', '\u{29f5}',
    '\u{29f8}', '\u{29f9}', '\u{fe19}', '\u{fe30}', '\u{fe52}', '\u{fe54}', '\u{fe56}', '\u{fe5f}',
    '\u{fe68}', '\u{fe6a}', '\u{ff03}', '\u{ff05}', '\u{ff0e}', '\u{ff0f}', '\u{ff1b}', '\u{ff1f}',
    '\u{ff3c}',
];

const ODD: Refusal = (Fault::Invalid, "the path could be read in two ways");

/// A path of plain segments.
#[derive(Debug)]
pub(super) struct Path {
    segments: Vec<String>,
    /// Whether a slash follows.
    slash: bool,
}

impl Path {
    /// Takes a path apart; it is empty or starts with a slash.
    pub(super) fn read(path: &str) -> Result<Self, Refusal> {
        let Some(rest) = path.strip_prefix('/') else {
            let empty = Self { segments: Vec::new(), slash: false };
            return if path.is_empty() { Ok(empty) } else { Err(ODD) };
        };
        let (rest, slash) = match rest.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (rest, rest.is_empty()),
        };
        if rest.is_empty() && path.len() > 1 {
            return Err(ODD);
        }
        let segments = rest.split('/').filter(|_| !rest.is_empty());
        let read = |segment| decoded(segment).filter(|segment| is_plain(segment)).ok_or(ODD);
        let segments = segments.map(read).collect::<Result<_, _>>()?;
        Ok(Self { segments, slash })
    }

    /// As policies see it.
    pub(super) fn text(&self) -> String {
        format!("/{}", self.segments.join("/"))
    }

    /// Number of segments.
    pub(super) fn depth(&self) -> usize {
        self.segments.len()
    }

    /// The path to send.
    pub(super) fn encoded(&self) -> Box<str> {
        let mut path = String::new();
        for segment in &self.segments {
            path.push('/');
            encode_but(segment, PLAIN, &mut path);
        }
        if self.slash {
            path.push('/');
        }
        path.into()
    }
}

/// Whether a decoded segment is one, and the same one, to every server, however often it decodes. Some cut
/// dots and spaces off its end.
fn is_plain(segment: &str) -> bool {
    let ends = |character: char| character == '.' || character.is_whitespace();
    !segment.is_empty()
        && !segment.ends_with(ends)
        && !segment.starts_with(char::is_whitespace)
        && !segment.contains(['/', '\\', '%', ';', '?', '#'])
        && !segment.contains(LOOKALIKES)
}

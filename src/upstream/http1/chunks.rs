//! The chunked transfer coding (RFC 9112 §7.1), sans I/O.
//!
//! Extensions and trailers are read and dropped. Refused: sizes that aren't plain hexadecimal digits or don't fit
//! 64 bits, lines that don't end with CR LF, and more than [`LONGEST`] bytes of extensions or of trailers.

use bytes::{Buf, Bytes, BytesMut};

use super::Broken;

/// Longest line of a chunk's size with its extensions, and longest trailers, in bytes.
const LONGEST: usize = 16 * 1024;

/// Where in the coding a body is.
#[derive(Debug)]
pub(super) enum Chunks {
    /// At a chunk's size.
    Size,
    /// In a chunk, with so many bytes to come.
    Data(u64),
    /// Behind a chunk's data.
    Break,
    /// Behind the last chunk, after so many bytes of trailers.
    Trailers(usize),
    /// Behind everything.
    End,
}

/// What comes out of the coding.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A part of the body.
    Data(Bytes),
    /// More has to come first.
    Nothing,
    /// This was all.
    End,
}

impl Chunks {
    /// The next piece of what has come.
    pub(super) fn next(&mut self, come: &mut BytesMut) -> Result<Piece, Broken> {
        loop {
            match self {
                Self::Size => {
                    let Some(line) = take_line(come, LONGEST)? else { return Ok(Piece::Nothing) };
                    *self = match size(&line)? {
                        0 => Self::Trailers(0),
                        size => Self::Data(size),
                    };
                }
                Self::Data(left) => {
                    if come.is_empty() {
                        return Ok(Piece::Nothing);
                    }
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(come.len());
                    let data = come.split_to(length).freeze();
                    *left -= length as u64;
                    if *left == 0 {
                        *self = Self::Break;
                    }
                    return Ok(Piece::Data(data));
                }
                Self::Break => match take_line(come, 2)? {
                    Some(line) if line.is_empty() => *self = Self::Size,
                    Some(_) => return Err(Broken::Chunk),
                    None => return Ok(Piece::Nothing),
                },
                Self::Trailers(length) => {
                    let limit = LONGEST.saturating_sub(*length);
                    let Some(line) = take_line(come, limit)? else { return Ok(Piece::Nothing) };
                    match line.is_empty() {
                        true => *self = Self::End,
                        false => *length += line.len() + 2,
                    }
                }
                Self::End => return Ok(Piece::End),
            }
        }
    }
}

/// A line without its end, which is within `limit` bytes, once all of it has come.
fn take_line(come: &mut BytesMut, limit: usize) -> Result<Option<BytesMut>, Broken> {
    let Some(at) = memchr::memchr(b'\n', come) else {
        return if come.len() < limit { Ok(None) } else { Err(Broken::Chunk) };
    };
    let mut line = come.split_to(at);
    come.advance(1);
    match line.last() {
        Some(b'\r') if at < limit => {
            line.truncate(at - 1);
            Ok(Some(line))
        }
        Some(_) | None => Err(Broken::Chunk),
    }
}

fn size(line: &[u8]) -> Result<u64, Broken> {
    let extended = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at_checked(extended).ok_or(Broken::Chunk)?;
    // A space may stand before an extension (RFC 9112 §7.1.1), and some servers pad with them.
    let rest = rest.trim_ascii_start();
    if !(rest.is_empty() || rest.starts_with(b";")) || rest.contains(&b'\r') {
        return Err(Broken::Chunk);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Broken::Chunk)?;
    u64::from_str_radix(digits, 16).map_err(|_| Broken::Chunk)
}

//! HTTP/1.1 messages of a known length, read off a stream one after the other.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Largest head that is read, in bytes.
pub(crate) const HEAD_LIMIT: usize = 16 * 1024;
/// Least room for one read, in bytes.
const READ_SIZE: usize = 64 * 1024;

/// One message: its head without the empty line, and its body.
pub(crate) struct Message<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// Reads messages that carry a `Content-Length`; anything else is an error.
///
/// INVARIANT: one message at a time. Bytes behind a message that nobody has asked for yet mean that
/// the other end pipelines or answers twice, and are an error as well.
pub(crate) struct Reader<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Reader<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// The next message, or `None` when the other end closed in between two.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Message<'_>>> {
        self.buffer.clear();
        let head_end = loop {
            if !self.fill().await? {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(invalid("closed inside a head")),
                };
            }
            if let Some(at) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            if self.buffer.len() > HEAD_LIMIT {
                return Err(invalid("head too long"));
            }
        };
        let head = self.buffer.get(..head_end).unwrap_or_default();
        let length = content_length(head)
            .ok_or_else(|| invalid(&format!("no length: {}", String::from_utf8_lossy(head))))?;
        let body_start = head_end + 4;
        let end = body_start + length;
        self.buffer.reserve(end.saturating_sub(self.buffer.len()));
        while self.buffer.len() < end {
            if !self.fill().await? {
                return Err(invalid("closed inside a body"));
            }
        }
        match (self.buffer.get(..head_end), self.buffer.get(body_start..)) {
            (Some(head), Some(body)) if body.len() == length => Ok(Some(Message { head, body })),
            _ => Err(invalid("bytes behind the message")),
        }
    }

    /// The stream, of which nothing beyond the last message has been read.
    pub(crate) fn into_stream(self) -> S {
        self.stream
    }

    async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(READ_SIZE);
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        if !name.eq_ignore_ascii_case(b"content-length") {
            return None;
        }
        std::str::from_utf8(value.get(1..)?).ok()?.trim().parse().ok()
    })
}

pub(crate) fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

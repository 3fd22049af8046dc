//! What a process writes: messages on standard output, anything on standard error.
//!
//! Both are read as fast as they come, so that a process never waits for us. What can't be a message is told
//! to the operator and to nobody else.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, BufReader},
    process::{ChildStderr, ChildStdout},
};

use super::{
    connection::{Connection, End},
    message,
};
use crate::telemetry::Clock;

/// Longest message of a process in bytes.
const MAX_MESSAGE: usize = 16 << 20;
/// Longest line of other text that is logged, in bytes.
const MAX_LOGGED: usize = 2 << 10;
/// Lines that are logged at once, and how many a second may follow.
const BURST: f64 = 100.0;
const PER_SECOND: f64 = 10.0;

/// Delivers the messages of a process until it writes no more.
pub(super) async fn deliver(stdout: ChildStdout, connection: Arc<Connection>, server: Arc<str>) {
    let mut reader = BufReader::with_capacity(64 << 10, stdout);
    let mut pace = Pace::new();
    while let Ok(Some(line)) = next(&mut reader, MAX_MESSAGE).await {
        if line.bytes.trim_ascii().is_empty() {
            continue;
        }
        let begins_message = line.bytes.trim_ascii_start().starts_with(b"{");
        let reason = if line.whole {
            match message::read(line.bytes, connection.is_stateless()) {
                Ok(sent) => {
                    if let Some(answer) = connection.deliver(&sent) {
                        connection.try_write(answer);
                    }
                    continue;
                }
                Err(error) => error.to_string(),
            }
        } else {
            format!("a line is longer than {MAX_MESSAGE} bytes")
        };
        // Text that a program prints is a nuisance; what begins as a message may have been an answer.
        if begins_message {
            connection.fail_calls();
        }
        if let Some(unlogged) = pace.admit() {
            let upstream = &*server;
            tracing::warn!(upstream, reason, unlogged, "standard output is for messages only");
        }
    }
    connection.end(End::Broken);
}

/// Logs what a process writes on standard error.
pub(super) async fn log(stderr: ChildStderr, server: Arc<str>, pid: i32) {
    let mut reader = BufReader::new(stderr);
    let mut pace = Pace::new();
    while let Ok(Some(line)) = next(&mut reader, MAX_LOGGED).await {
        if let Some(unlogged) = pace.admit() {
            let text = printable(&line.bytes);
            tracing::info!(upstream = &*server, pid, unlogged, stderr = text, "process says");
        }
    }
}

/// A line without its end.
struct Line {
    bytes: Vec<u8>,
    /// It was not too long; otherwise this is its beginning.
    whole: bool,
}

/// The next line, of which at most `limit` bytes are kept; `None` at the end.
async fn next(reader: &mut (impl AsyncBufRead + Unpin), limit: usize) -> io::Result<Option<Line>> {
    let mut line = Line { bytes: Vec::new(), whole: true };
    let mut begun = false;
    loop {
        let read = reader.fill_buf().await?;
        if read.is_empty() {
            return Ok(begun.then_some(line));
        }
        begun = true;
        let end = memchr::memchr(b'\n', read);
        let content = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
        let room = limit - line.bytes.len();
        line.whole &= content.len() <= room;
        line.bytes.extend_from_slice(content.get(..room).unwrap_or(content));
        let taken = end.map_or(read.len(), |end| end + 1);
        reader.consume(taken);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

/// Text without what a terminal would act on.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end()
        .chars()
        .map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

/// Bounds how much is logged, whatever is written.
struct Pace {
    left: f64,
    seen: Instant,
    unlogged: u64,
}

impl Pace {
    fn new() -> Self {
        Self { left: BURST, seen: Clock.instant(), unlogged: 0 }
    }

    /// Whether one more line may be logged, and how many were not before it.
    fn admit(&mut self) -> Option<u64> {
        self.admit_at(Clock.instant())
    }

    fn admit_at(&mut self, now: Instant) -> Option<u64> {
        let passed: Duration = now.saturating_duration_since(self.seen);
        self.seen = now;
        self.left = (self.left + passed.as_secs_f64() * PER_SECOND).min(BURST);
        if self.left < 1.0 {
            self.unlogged += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], limit: usize) -> Vec<(String, bool)> {
        // So small that every line comes in several pieces.
        let mut reader = BufReader::with_capacity(3, text);
        let mut lines = Vec::new();
        while let Some(line) = next(&mut reader, limit).await.expect("read") {
            lines.push((String::from_utf8(line.bytes).expect("UTF-8"), line.whole));
        }
        lines
    }

    #[tokio::test]
    async fn a_line_is_kept_up_to_its_limit_and_the_next_one_is_whole() {
        let long = "x".repeat(9);
        for (text, limit, expected) in [
            ("", 8, vec![]),
            ("\n", 8, vec![("", true)]),
            ("a\n\nb", 8, vec![("a", true), ("", true), ("b", true)]),
            ("12345678\nb\n", 8, vec![("12345678", true), ("b", true)]),
            (&*format!("{long}\nb\n"), 8, vec![("xxxxxxxx", false), ("b", true)]),
            (&long, 8, vec![("xxxxxxxx", false)]),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(line, whole)| (line.to_owned(), whole)).collect();
            assert_eq!(lines(text.as_bytes(), limit).await, expected, "{text:?}");
        }
    }

    #[test]
    fn a_terminal_has_nothing_to_act_on() {
        assert_eq!(printable(b"a\tb \x1b[31m\xff\r"), "a\tb \u{fffd}[31m\u{fffd}");
    }

    #[test]
    fn the_pace_is_bounded_and_tells_what_was_left_out() {
        let mut pace = Pace::new();
        let start = pace.seen;
        let admitted = (0..1000).filter_map(|_| pace.admit_at(start)).count();
        assert_eq!(admitted, 100);
        assert_eq!(pace.admit_at(start + Duration::from_millis(50)), None);
        assert_eq!(pace.admit_at(start + Duration::from_millis(150)), Some(901));
        assert_eq!(pace.admit_at(start + Duration::from_secs(3600)), Some(0));
        assert_eq!(pace.left.round(), BURST - 1.0);
    }
}

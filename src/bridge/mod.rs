//! The bridge of `lictor stdio`: a client that speaks stdio only, in front of a server over Streamable HTTP.
//!
//! Every line of standard input is one JSON-RPC message and becomes one `POST`, in a task of its own, so
//! that a cancellation never waits behind what it cancels. Every message that comes back, in a document or
//! an event, becomes one line of standard output, written whole by one task. The bridge keeps what
//! the client can't know of: the session's id, the negotiated revision, the session's own stream, the event
//! to resume after.
//!
//! It judges nothing; that is done at the other end. Messages go on byte for byte, except that line breaks
//! between the tokens of a message that comes back become spaces.
//!
//! INVARIANT: every request that was read is answered exactly once unless the client cancelled it: by the
//! server, or by an error of the bridge for the request's id that says what went wrong.
//!
//! Sources: MCP 2025-11-25 `basic/transports`, 2026-07-28 `basic/transports`; the modern revisions are told by
//! `_meta` as in [`crate::protocol::mcp`].

mod answer;
mod failure;
mod link;
mod message;
mod mirrors;
mod output;
mod stream;
#[cfg(test)]
mod tests;

use std::{io, pin::pin, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use self::{link::Link, output::Output};
use crate::upstream::Unjudged;

/// Longest message in bytes, in both directions.
const LONGEST: usize = 64 << 20;

/// How long answers are waited for once the client has closed its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of the session may take, and the last lines of output.
const GOODBYE: Duration = Duration::from_secs(1);

/// Carries messages until `input` ends, nobody reads `output` any more, or `stop` is done.
///
/// # Errors
/// `input` or `output` failed.
pub async fn run(
    server: Unjudged,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (output, writer) = Output::start(output);
    let link = Arc::new(Link::new(server, output));
    let (line, mut lines) = mpsc::channel(1);
    let mut reading = JoinSet::new();
    reading.spawn(read(input, line, LONGEST));
    let mut tasks = JoinSet::new();
    let mut stop = pin!(stop);
    let ended = loop {
        tokio::select! { biased;
            () = &mut stop => break false,
            () = link.unheard() => break false,
            Some(_) = tasks.join_next() => {}
            line = next(&link, &mut lines) => match line {
                Some(line) => link.take(line, &mut tasks).await,
                None => break true,
            },
        }
    };
    if ended {
        let settled = async { while link.awaits() && tasks.join_next().await.is_some() {} };
        tokio::select! { biased;
            () = stop => {}
            () = link.unheard() => {}
            settled = timeout(PATIENCE, settled) => if settled.is_err() {
                tracing::warn!("some requests were not answered in time");
            },
        }
    }
    // Nobody waits for what is left.
    tasks.shutdown().await;
    if timeout(GOODBYE, link.end()).await.is_err() {
        tracing::debug!("the end of the session was not confirmed in time");
    }
    drop(link);
    let read = match ended {
        // The lines ended because reading did.
        true => reading.join_next().await.and_then(Result::ok).unwrap_or(Ok(())),
        false => Ok(()),
    };
    let written = match timeout(GOODBYE, writer).await {
        Ok(Ok(written)) => written,
        Ok(Err(_)) | Err(_) => Ok(()),
    };
    read.and(written)
}

/// The next line; not before the session is open, if it is being opened.
async fn next(link: &Link, lines: &mut mpsc::Receiver<Vec<u8>>) -> Option<Vec<u8>> {
    link.opened().await;
    lines.recv().await
}

/// Reads lines of at most `longest` bytes to the end of the input.
async fn read(
    input: impl AsyncRead + Unpin,
    lines: mpsc::Sender<Vec<u8>>,
    longest: usize,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut line = Vec::new();
    let mut skipping = false;
    loop {
        let part = input.fill_buf().await?;
        if part.is_empty() {
            break;
        }
        let end = memchr::memchr(b'\n', part);
        let (content, used) = match end {
            Some(end) => (part.get(..end).unwrap_or_default(), end + 1),
            None => (part, part.len()),
        };
        if !skipping {
            line.extend_from_slice(content);
        }
        input.consume(used);
        if line.len() > longest {
            tracing::warn!("a line of more than {longest} bytes was thrown away");
            line = Vec::new();
            skipping = true;
        }
        if end.is_some() && (std::mem::take(&mut skipping) || !send(&lines, &mut line).await) {
            line.clear();
        }
    }
    // A last line without its end counts.
    send(&lines, &mut line).await;
    Ok(())
}

/// Hands a line on unless it is blank; whether it could.
async fn send(lines: &mpsc::Sender<Vec<u8>>, line: &mut Vec<u8>) -> bool {
    let mut line = std::mem::take(line);
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return true;
    }
    lines.send(line).await.is_ok()
}

//! Reads entries back. Nothing here checks the chain; that is [`super::verify`]'s part.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    vec,
};

use serde::Deserialize;

use super::{
    chains::directories,
    check::split,
    segment::{Piece, Pieces, Segment, segments},
};

/// Which entries to list; what is `None` doesn't matter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// How the call's id starts.
    pub call_id: Option<String>,
    /// The caller, exactly as stored.
    pub peer: Option<String>,
    /// `permit`, `deny` or `none`.
    pub decision: Option<String>,
    /// The method, exactly as stored.
    pub method: Option<String>,
    /// Entries of this time or later: RFC 3339 in UTC, or the beginning of one (`2026-11-29`).
    pub since: Option<String>,
    /// Entries before this time.
    pub until: Option<String>,
    /// Of the entries that match, only so many of the newest.
    pub last: Option<usize>,
}

/// A stored entry. Which fields it has depends on its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[expect(
    missing_docs,
    reason = "the fields of the stored form; docs/ledger.md says what they mean"
)]
pub struct Row {
    pub seq: u64,
    pub ts: String,
    pub kind: String,
    pub chain: String,
    pub call_id: Option<String>,
    pub cause: Option<String>,
    pub peer: Option<String>,
    pub protocol: Option<String>,
    pub direction: Option<String>,
    pub listener: Option<String>,
    pub server: Option<String>,
    pub host: Option<String>,
    pub method: Option<String>,
    pub target: Option<String>,
    pub era: Option<String>,
    pub class: Option<String>,
    pub mode: Option<String>,
    pub decision: Option<String>,
    pub stage: Option<String>,
    pub status: Option<String>,
    #[serde(default)]
    pub policies: Vec<String>,
    #[serde(default)]
    pub limits: Vec<String>,
    pub policy_version: Option<String>,
    pub would_deny: Option<String>,
    pub http_status: Option<u16>,
    pub latency_us: Option<u64>,
    pub own_us: Option<u64>,
    pub req_sha256: Option<String>,
    pub resp_sha256: Option<String>,
    pub resp_bytes: Option<u64>,
    pub complete: Option<bool>,
    pub link: Option<String>,
    pub hop: Option<u64>,
    pub hop_peer: Option<String>,
    pub hops: Option<u64>,
    pub root: Option<String>,
    pub user: Option<String>,
    pub tenant: Option<String>,
    pub run: Option<String>,
    pub peer_call: Option<String>,
    pub peer_denied: Option<String>,
    pub revocation: Option<String>,
    pub subject: Option<String>,
    pub reason: Option<String>,
    pub by: Option<String>,
    pub until: Option<u64>,
    /// The stored JSON, byte for byte.
    #[serde(skip)]
    pub json: String,
}

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// A file can't be read.
    #[error("`{path}` can't be read")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line is no entry.
    #[error("`{path}`, byte {offset}: not an entry; run `lictor ledger verify`")]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where the line starts.
        offset: u64,
    },
}

/// Lists the entries of all chains of the ledger in `directory` that match, oldest first, with one segment
/// buffer in memory for each chain.
///
/// # Errors
/// If the directory can't be read.
pub fn list(directory: &Path, filter: Filter) -> Result<Rows, ListError> {
    let io = |source| ListError::Io { path: directory.to_owned(), source };
    let mut chains = Vec::new();
    for chain in directories(directory).map_err(io)? {
        let segments = segments(&chain).map_err(io)?.into_iter();
        chains.push(Chain { segments, open: None, next: None });
    }
    Ok(Rows { filter, chains, held: None, failed: false })
}

/// All entries of one call.
///
/// # Errors
/// If a file can't be read or holds something else than entries.
pub fn find(directory: &Path, call_id: &str) -> Result<Vec<Row>, ListError> {
    let filter = Filter { call_id: Some(call_id.to_owned()), ..Filter::default() };
    let rows = list(directory, filter)?;
    rows.filter(|row| row.as_ref().map_or(true, |row| row.call_id.as_deref() == Some(call_id)))
        .collect()
}

/// See [`list`]. Ends after the first error.
#[derive(Debug)]
pub struct Rows {
    filter: Filter,
    /// Those that have entries left.
    chains: Vec<Chain>,
    /// The newest that match, once all were seen, if only those are wanted.
    held: Option<VecDeque<Result<Row, ListError>>>,
    failed: bool,
}

#[derive(Debug)]
struct Chain {
    segments: vec::IntoIter<Segment>,
    open: Option<(PathBuf, Pieces)>,
    /// The next entry, once it was looked at.
    next: Option<Row>,
}

impl Iterator for Rows {
    type Item = Result<Row, ListError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(last) = self.filter.last else { return self.matching() };
        if self.held.is_none() {
            let mut held = VecDeque::new();
            while let Some(row) = self.matching() {
                held.push_back(row);
                // An error is the end, and comes on top.
                if held.len() > last && !self.failed {
                    held.pop_front();
                }
            }
            self.held = Some(held);
        }
        self.held.as_mut()?.pop_front()
    }
}

impl Rows {
    fn matching(&mut self) -> Option<Result<Row, ListError>> {
        while !self.failed {
            match self.read() {
                Ok(None) => return None,
                Ok(Some(row)) if self.filter.matches(&row) => return Some(Ok(row)),
                Ok(Some(_)) => {}
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// The oldest of the entries that come next in each chain: within one they are in order of time.
    fn read(&mut self) -> Result<Option<Row>, ListError> {
        for chain in &mut self.chains {
            if chain.next.is_none() {
                chain.next = chain.read()?;
            }
        }
        self.chains.retain(|chain| chain.next.is_some());
        let oldest = self.chains.iter_mut().min_by(|a, b| a.time().cmp(&b.time()));
        Ok(oldest.and_then(|chain| chain.next.take()))
    }
}

impl Chain {
    /// When the next entry was written.
    fn time(&self) -> Option<&str> {
        self.next.as_ref().map(|row| row.ts.as_str())
    }

    fn read(&mut self) -> Result<Option<Row>, ListError> {
        loop {
            let Some((path, pieces)) = &mut self.open else {
                let Some(segment) = self.segments.next() else { return Ok(None) };
                let pieces = Pieces::open(&segment.path)
                    .map_err(|source| ListError::Io { path: segment.path.clone(), source })?;
                self.open = Some((segment.path, pieces));
                continue;
            };
            let piece =
                pieces.read().map_err(|source| ListError::Io { path: path.clone(), source })?;
            match piece {
                Some(Piece::Whole) => {
                    let row = parse(&pieces.bytes);
                    let (path, offset) = (path.clone(), pieces.offset);
                    return row.map(Some).ok_or(ListError::Damaged { path, offset });
                }
                Some(Piece::TooLong) => {
                    let (path, offset) = (path.clone(), pieces.offset);
                    return Err(ListError::Damaged { path, offset });
                }
                // The half-written end of a file is a line that a writer has not finished.
                Some(Piece::Torn) | None => self.open = None,
            }
        }
    }
}

fn parse(line: &[u8]) -> Option<Row> {
    let (canonical, _) = split(line)?;
    let row: Row = serde_json::from_slice(canonical).ok()?;
    Some(Row { json: str::from_utf8(canonical).ok()?.to_owned(), ..row })
}

impl Filter {
    fn matches(&self, row: &Row) -> bool {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let calls = [&row.call_id, &row.cause, &row.peer_call];
        self.call_id.as_ref().is_none_or(|start| {
            calls.into_iter().flatten().any(|call| call.starts_with(start.as_str()))
        }) && is(&self.peer, &row.peer)
            && is(&self.decision, &row.decision)
            && is(&self.method, &row.method)
            && self.since.as_ref().is_none_or(|since| row.ts >= *since)
            && self.until.as_ref().is_none_or(|until| row.ts < *until)
    }
}

/// Makes a stored text safe for a terminal. The writer has escaped what callers can influence; a file
/// that somebody else wrote has not.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_graphic() || character == ' ' {
            out.push(character);
        } else {
            // Writing to a String can't fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        }
    }
    out
}

//! The files of a chain: `<first sequence number, 20 digits>.jsonl`, in one directory.
//!
//! INVARIANT: nothing is appended to a handle on which a write or a sync has failed. The kernel may have
//! dropped the dirty pages and report the next sync as good, so the file is opened anew, cut back to
//! what was durable, and the chain goes on in a new segment.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::line::MAX_LINE;

const SUFFIX: &str = ".jsonl";

/// Where batches go. The one implementation outside of tests is [`Segments`].
pub(super) trait Store: Send {
    /// Writes; not durable yet.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended durable.
    fn sync(&mut self) -> io::Result<()>;

    /// After a failure of the other two: forgets what was not durable and continues in a new segment,
    /// whose first entry will be `next`.
    fn resume(&mut self, next: u64) -> io::Result<()>;
}

/// The segment being written.
#[derive(Debug)]
pub(super) struct Segments {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    durable: u64,
    written: u64,
}

impl Segments {
    /// Opens the segment at `path`, creating it if need be; all that is in it counts as durable.
    pub(super) fn open(directory: &Path, path: PathBuf) -> io::Result<Self> {
        let file = open_segment(&path)?;
        file.sync_all()?;
        sync_directory(directory)?;
        let durable = file.metadata()?.len();
        Ok(Self { directory: directory.to_owned(), path, file, durable, written: durable })
    }
}

impl Store for Segments {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.durable = self.written;
        Ok(())
    }

    fn resume(&mut self, next: u64) -> io::Result<()> {
        let old = open_segment(&self.path)?;
        old.set_len(self.durable)?;
        old.sync_all()?;
        // An empty segment already has the name that the next entry asks for.
        *self = Self::open(&self.directory, self.directory.join(file_name(next)))?;
        Ok(())
    }
}

fn open_segment(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The name of the segment that starts with entry `first`.
pub(super) fn file_name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// A segment on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The entry that its name promises first.
    pub(super) first: u64,
    pub(super) path: PathBuf,
}

impl Segment {
    /// The file's name, for messages.
    pub(super) fn name(&self) -> String {
        file_name(self.first)
    }
}

/// The segments in a directory, in order.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let first = name.strip_suffix(SUFFIX).and_then(|first| first.parse().ok());
        if let Some(first) = first.filter(|first| file_name(*first) == name) {
            found.push(Segment { first, path });
        }
    }
    found.sort_by_key(|segment| segment.first);
    Ok(found)
}

/// One piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Ended by LF (not part of it).
    Whole,
    /// The end of the file without LF.
    Torn,
    /// Longer than any line may be.
    TooLong,
}

/// Reads a segment piece by piece, in bounded memory.
#[derive(Debug)]
pub(super) struct Pieces {
    reader: BufReader<File>,
    /// The last piece read.
    pub(super) bytes: Vec<u8>,
    /// Where it starts in the file.
    pub(super) offset: u64,
    next: u64,
}

impl Pieces {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let reader = BufReader::with_capacity(MAX_LINE, File::open(path)?);
        Ok(Self { reader, bytes: Vec::new(), offset: 0, next: 0 })
    }

    /// Reads the next piece into [`Self::bytes`]. `None` at the end of the file.
    pub(super) fn read(&mut self) -> io::Result<Option<Piece>> {
        self.bytes.clear();
        self.offset = self.next;
        let mut limited = (&mut self.reader).take(MAX_LINE as u64);
        let length = limited.read_until(b'\n', &mut self.bytes)?;
        self.next += length as u64;
        Ok(match self.bytes.last() {
            None => None,
            Some(b'\n') => {
                self.bytes.pop();
                Some(Piece::Whole)
            }
            Some(_) if length == MAX_LINE => Some(Piece::TooLong),
            Some(_) => Some(Piece::Torn),
        })
    }
}

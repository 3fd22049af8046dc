//! What was used that may be used once, for the next process.
//!
//! Two files beside the other one, each of a generation: a head, and one row of fixed length for each use. They are
//! written with one short system call each and never synced: what was written there outlives the process, however
//! that ends, and not the machine. So the head says under which boot it was written; after another one nothing of
//! it is believed, and what was used before isn't known. To wait for a disk would cost each call milliseconds.
//!
//! INVARIANT: a row that could not be written whole is overwritten by the next, and its use was not granted.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use uuid::Uuid;

use super::millis;
use crate::state::once::{Generation, Once};

/// The files' names.
const NAMES: [&str; 2] = ["once.0", "once.1"];

/// What a file begins with: this, the boot, and from when on what was used is known, in milliseconds since the Unix
/// epoch.
const MAGIC: [u8; 16] = *b"lictor, once: 1\n";

/// Where the rows begin.
const HEAD: usize = MAGIC.len() + 16 + 8;

/// Digest, and until when it could be used, in milliseconds since the Unix epoch.
const ROW: usize = 16 + 8;

/// Longest file that is read: what [`Once`] has in a generation, and some more.
const LONGEST: u64 = 64 << 20;

/// Where the kernel says which boot this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The files, one of which is written.
#[derive(Debug)]
pub(in crate::state) struct Log {
    files: [File; 2],
    head: [u8; HEAD],
    /// Whether the second one is written.
    second: bool,
    /// How long it is.
    written: u64,
}

/// What was in a file.
enum Left {
    Nothing,
    /// Rows of this boot.
    Known(Rows),
    /// Those of another, or of somebody else.
    Unknown,
}

/// What a file says.
#[derive(Default)]
struct Rows {
    since: Duration,
    used: Generation,
    /// Where the next row belongs.
    length: u64,
}

/// Opens the files of a folder. `begun` says that nothing was used before, since the folder is new.
pub(super) fn open(directory: &Path, begun: bool, now: Duration) -> io::Result<Once> {
    let boot = std::fs::read_to_string(BOOT).ok();
    // Without one nothing is ever believed.
    let boot = boot.and_then(|boot| Uuid::try_parse(boot.trim()).ok()).unwrap_or_else(Uuid::now_v7);
    open_under(directory, boot, begun, now)
}

fn open_under(directory: &Path, boot: Uuid, begun: bool, now: Duration) -> io::Result<Once> {
    let [first, second] = NAMES.map(|name| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(directory.join(name))
    });
    let files = [first?, second?];
    let [first, second] = &files;
    let left = match (read(first, boot, now)?, read(second, boot, now)?) {
        (Left::Known(one), Left::Nothing) => Some((Rows::default(), one, false)),
        (Left::Nothing, Left::Known(other)) => Some((Rows::default(), other, true)),
        (Left::Known(one), Left::Known(other)) if one.used.until > other.used.until => {
            Some((other, one, false))
        }
        (Left::Known(one), Left::Known(other)) => Some((one, other, true)),
        (Left::Nothing, Left::Nothing) | (Left::Unknown, _) | (_, Left::Unknown) => None,
    };
    if let Some((before, last, second)) = left {
        let since = before.since.max(last.since);
        let log = Log { files, head: head(boot, since), second, written: last.length };
        return Ok(Once::written(since, [before.used, last.used], log));
    }
    let since = if begun { Duration::ZERO } else { now };
    let mut log = Log { files, head: head(boot, since), second: false, written: 0 };
    // The one that is written then is the first.
    log.turn()?;
    log.turn()?;
    Ok(Once::written(since, Default::default(), log))
}

fn head(boot: Uuid, since: Duration) -> [u8; HEAD] {
    let parts = MAGIC.into_iter().chain(boot.into_bytes()).chain(millis(since).to_be_bytes());
    let mut head = [0; HEAD];
    head.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    head
}

fn read(file: &File, boot: Uuid, now: Duration) -> io::Result<Left> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Left::Nothing);
    }
    if length > LONGEST {
        return Ok(Left::Unknown);
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    let Some((found, rows)) = bytes.split_first_chunk::<HEAD>() else { return Ok(Left::Unknown) };
    let Some((_, since)) = found.split_last_chunk::<8>() else { return Ok(Left::Unknown) };
    let since = Duration::from_millis(u64::from_be_bytes(*since));
    if *found != head(boot, since) {
        return Ok(Left::Unknown);
    }
    let mut used = Generation::default();
    let (rows, cut) = rows.as_chunks::<ROW>();
    for row in rows {
        let (Some(digest), Some(until)) = (row.first_chunk(), row.last_chunk()) else { continue };
        let until = Duration::from_millis(u64::from_be_bytes(*until));
        if until > now {
            used.insert(u128::from_be_bytes(*digest), until);
        }
    }
    let written = length.saturating_sub(self::length(cut));
    Ok(Left::Known(Rows { since, used, length: written }))
}

impl Log {
    /// Writes down a use.
    pub(in crate::state) fn append(&mut self, digest: u128, until: Duration) -> io::Result<()> {
        let parts = digest.to_be_bytes().into_iter().chain(millis(until).to_be_bytes());
        let mut row = [0; ROW];
        row.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
        self.file(self.second).write_all_at(&row, self.written)?;
        self.written = self.written.saturating_add(length(&row));
        Ok(())
    }

    /// Goes on in the other file, in which nothing can be repeated any more.
    pub(in crate::state) fn turn(&mut self) -> io::Result<()> {
        let next = self.file(!self.second);
        next.set_len(0)?;
        next.write_all_at(&self.head, 0)?;
        self.second = !self.second;
        self.written = length(&self.head);
        Ok(())
    }

    fn file(&self, second: bool) -> &File {
        let [one, other] = &self.files;
        if second { other } else { one }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

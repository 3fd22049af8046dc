//! Puts a chain that can't go on aside, so that a new one can begin that names it.
//!
//! Done by an operator, on purpose, while nothing writes. Nothing is deleted: the files move into a
//! directory of their own, and what could be verified of them is carried into the new genesis, where it
//! is signed. Each step can be repeated after a crash.
//!
//! The newest chain of a ledger gives its place to a new one, whose genesis carries that. Of an older one,
//! which others follow, the newest says in an entry that it was put aside.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Previous, chains,
    check::Depth,
    line::Hash,
    recovery::{CHAIN_FILE, OpenError, lock, record_chain, write_new},
    segment::sync_directory,
    verify::{recorded_chain, walk},
};

const NOTE: &str = "previous.json";
const PREFIX: &str = "replaced-";

/// What was put aside, and where.
#[derive(Debug)]
pub struct Replaced {
    /// What the next genesis, or the newest chain, will say of it.
    pub previous: Previous,
    /// Whether it was the newest of its ledger, so that the next start begins another in its place.
    pub newest: bool,
    /// The directory that its files are in now.
    pub moved_to: PathBuf,
}

/// Why a chain can't be put aside.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The directory can't be locked.
    #[error(transparent)]
    Lock(#[from] OpenError),
    /// There is no chain.
    #[error("`{0}` holds no chain")]
    Nothing(PathBuf),
    /// The file system refused.
    #[error("ledger `{directory}` can't be changed")]
    Io {
        /// The ledger's directory.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Puts the chain in `directory` aside. The next [`super::Ledger::open`] begins a new one that names it, or, if
/// later chains of the ledger are there, goes on with the newest and records there what was put aside.
///
/// # Errors
/// If somebody writes there, there is no chain, or the file system refuses; it can be tried again.
pub fn replace(directory: &Path) -> Result<Replaced, ReplaceError> {
    let _lock = lock(directory)?;
    let io = |source| ReplaceError::Io { directory: directory.to_owned(), source };
    let previous = match noted(directory).map_err(io)? {
        Some(previous) => previous,
        None => {
            let report = walk(directory, Depth::Links).map_err(io)?;
            let recorded = recorded_chain(directory).map_err(io)?;
            let chain = report.chain.or(recorded);
            let chain = chain.ok_or_else(|| ReplaceError::Nothing(directory.to_owned()))?;
            let head = report.head.unwrap_or(Hash::default());
            let head = data_encoding::HEXLOWER.encode(&head);
            let previous = Previous { chain, entries: report.entries, head };
            let note = serde_json::to_vec(&previous).map_err(|error| io(error.into()))?;
            write_new(directory, NOTE, &note).map_err(io)?;
            previous
        }
    };
    let moved_to = directory.join(aside(&previous.chain));
    move_files(directory, &moved_to).map_err(io)?;
    // One that lost its name, or never got it.
    record_chain(&moved_to, &previous.chain).map_err(io)?;
    let newest = chains::is_newest(directory).map_err(io)?;
    Ok(Replaced { previous, newest, moved_to })
}

/// The ids of the chains that were put aside in a directory. A directory alone, which anybody can make for a
/// mistake, is none.
pub(super) fn put_aside(directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in fs::read_dir(directory)? {
        let file = file?;
        let named = file.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if named && file.path().is_dir() {
            found.extend(recorded_chain(&file.path())?);
        }
    }
    Ok(found)
}

/// What has to be said of a chain that was put aside, until it is said.
pub(super) fn noted(directory: &Path) -> io::Result<Option<Previous>> {
    match fs::read(directory.join(NOTE)) {
        Ok(note) => Ok(Some(serde_json::from_slice(&note)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Forgets the note: it is in the ledger, or the old chain turned out to be able to go on.
pub(super) fn forget(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(NOTE)) {
        Ok(()) => sync_directory(directory),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The name of the directory that a chain is put aside in.
fn aside(chain: &str) -> String {
    let id = chain.rsplit_once('#').map_or(chain, |(_, id)| id);
    let safe = |character: &char| character.is_ascii_alphanumeric() || *character == '-';
    format!("{PREFIX}{}", id.chars().filter(safe).collect::<String>())
}

/// Moves segments, set-aside pieces and last the chain's name: until that is gone, a directory without
/// segments is not taken for a new one.
fn move_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut names = Vec::new();
    for file in fs::read_dir(from)? {
        let name = file?.file_name();
        if name.to_str().is_some_and(|name| name.contains(".jsonl")) {
            names.push(name);
        }
    }
    names.sort();
    for name in names.iter().map(AsRef::<Path>::as_ref).chain([Path::new(CHAIN_FILE)]) {
        let (source, target) = (from.join(name), to.join(name));
        if !source.try_exists()? {
            continue;
        }
        if target.try_exists()? {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("`{}` is already there", target.display()),
            ));
        }
        fs::rename(source, target)?;
    }
    sync_directory(to)?;
    sync_directory(from)
}

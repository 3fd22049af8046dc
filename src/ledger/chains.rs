//! The chains of one ledger, each in a directory of its own that is complete in itself.
//!
//! The first is in the ledger's directory. A process that takes over from one that goes on writing for a
//! while begins another beside it, in `upgraded-0001`, `upgraded-0002` and so on, whose genesis names the
//! chain that it follows.
//!
//! INVARIANT: a directory of such a name holds a genesis. It is made under the name of a draft, and gets
//! its own when that is durable; what a crash leaves of a draft is no chain.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

const PREFIX: &str = "upgraded-";

/// The directories of all chains in the order in which they began; the first is the ledger's own.
pub(super) fn directories(ledger: &Path) -> io::Result<Vec<PathBuf>> {
    let mut later = Vec::new();
    for file in fs::read_dir(ledger)? {
        let path = file?.path();
        later.extend(number(&path).map(|number| (number, path)));
    }
    later.sort();
    Ok([ledger.to_owned()].into_iter().chain(later.into_iter().map(|(_, path)| path)).collect())
}

/// Where a chain that follows those in `directories` belongs, and where it is made ready before.
pub(super) fn place(ledger: &Path, directories: &[PathBuf]) -> (PathBuf, PathBuf) {
    let last = directories.iter().filter_map(|path| number(path)).max();
    let name = format!("{PREFIX}{:04}", last.unwrap_or(0).saturating_add(1));
    (ledger.join(&name), ledger.join(format!("{name}.new")))
}

/// Whether the next start goes on with the chain in this directory, or begins one there.
pub(super) fn is_newest(directory: &Path) -> io::Result<bool> {
    let directory = fs::canonicalize(directory)?;
    let number_here = number(&directory);
    let ledger = directory.parent().filter(|_| number_here.is_some()).unwrap_or(&directory);
    Ok(directories(ledger)?.last().and_then(|last| number(last)) == number_here)
}

fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}

//! How many files and sockets the process may have open.
//!
//! The limit that a process is started with is often 1,024, for the sake of programs that use `select`; a
//! proxy needs two for each stream that is open. Whoever wants less lowers the hard limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// No more than so many: commands that are started inherit it, and some of them look at each descriptor there
/// could be.
const MOST: u64 = 65_536;

/// Raises the limit as far as it goes.
pub(super) fn allow_many() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let wanted = maximum.unwrap_or(MOST).min(MOST);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit { current: Some(wanted), maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, wanted, "the limit of open files can't be raised");
    }
}

//! The command line of Lictor; everything else is in the library.

use std::{io, process::ExitCode};

/// A call makes some seventy small allocations; glibc's allocator takes twice the time for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lictor::cli::run(std::env::args_os(), &mut io::stdout(), &mut io::stderr())
}

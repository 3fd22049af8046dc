//! The command line: one file for each subcommand.
//!
//! Commands write to the handles that they are given and say how they went by an [`ExitCode`]; only
//! `main` ends the process.

pub mod check;
pub mod demo;
pub mod ledger;
pub mod policy;
pub mod revoke;
pub mod run;
pub mod stdio;

use std::{
    error::Error,
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::telemetry::Causes;

/// The command line or the configuration is at fault, and nothing was started (`EX_USAGE`).
const EXIT_USAGE: u8 = 64;
/// It could not be started (`EX_SOFTWARE`).
const EXIT_FAILED: u8 = 70;
/// Output could not be written (`EX_IOERR`).
const EXIT_OUTPUT: u8 = 74;

/// A policy-enforcing reverse proxy in front of AI agents and MCP servers.
#[derive(Debug, Parser)]
#[command(name = "lictor", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Demo(demo::Demo),
    Check(check::Check),
    Policy(policy::Options),
    Ledger(ledger::Ledger),
    Revoke(revoke::Revoke),
    Stdio(stdio::Stdio),
}

/// Runs the command that `arguments` name, the program's own name first.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> ExitCode {
    let done = match CommandLine::try_parse_from(arguments) {
        Ok(line) => match line.command {
            Command::Run(command) => command.run(out, err),
            Command::Demo(command) => command.run(out, err),
            Command::Check(command) => command.run(out, err),
            Command::Policy(command) => policy::run(&command, out, err),
            Command::Ledger(command) => command.run(out, err),
            Command::Revoke(command) => command.run(out, err),
            Command::Stdio(command) => command.run(err),
        },
        Err(error) => explain(&error, out, err),
    };
    match done.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => code,
        // Whoever read the output has gone; there is nobody to tell, and no success to claim.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(EXIT_OUTPUT),
        Err(error) => {
            // Where errors can't be told either, the exit code has to do.
            let _ = writeln!(err, "lictor: can't write: {error}");
            ExitCode::from(EXIT_OUTPUT)
        }
    }
}

/// Help and version were asked for; anything else is a fault.
fn explain(error: &clap::Error, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    if error.use_stderr() {
        write!(err, "{error}")?;
        Ok(ExitCode::from(EXIT_USAGE))
    } else {
        write!(out, "{error}")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Says what went wrong, with every cause.
fn complain(error: &dyn Error, err: &mut dyn Write) -> io::Result<()> {
    writeln!(err, "lictor: {}", Causes(error))
}

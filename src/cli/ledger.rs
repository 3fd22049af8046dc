//! `lictor ledger`: looks at the record of calls, offline, and puts a broken one aside.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table, presets};
use data_encoding::HEXLOWER;

use crate::{
    ledger::{self, Filter, ListError, Report, Row, SignedBy, printable},
    telemetry::Causes,
};

/// The chain, or a line of it, is not what was written.
const EXIT_DAMAGED: u8 = 1;
/// There are no entries, so nothing was proven.
const EXIT_EMPTY: u8 = 2;
/// The directory can't be read or used (`EX_NOINPUT`).
const EXIT_UNREADABLE: u8 = 66;

/// Look at the ledger.
#[derive(Debug, Args)]
pub struct Ledger {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay every chain and say how far it can be trusted.
    ///
    /// Exit code: 0 all entries verified, 1 damaged, 2 no entries, 66 not readable.
    Verify(Verify),
    /// List entries, oldest first.
    List(List),
    /// Put a chain that can't go on aside; the next start begins a new one that names it, or, if it isn't the
    /// newest, goes on with that and says there what was put aside.
    Replace(Replace),
}

#[derive(Debug, Args)]
struct Verify {
    /// The ledger's directory.
    directory: PathBuf,
}

#[derive(Debug, Args)]
struct Replace {
    /// The ledger's directory.
    directory: PathBuf,
}

#[derive(Debug, Args)]
struct List {
    /// The ledger's directory.
    directory: PathBuf,
    /// Call or decision id, or how it starts.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
    /// SPIFFE ID of the caller.
    #[arg(long)]
    peer: Option<String>,
    /// What policy said.
    #[arg(long, value_parser = ["permit", "deny", "none"])]
    decision: Option<String>,
    /// Method, such as `tools/call`.
    #[arg(long)]
    method: Option<String>,
    /// Entries from this time on: RFC 3339 in UTC, or its beginning (`2026-11-29T08`).
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<String>,
    /// Entries before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,
    /// Only so many of the newest.
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Print each entry as it is stored, one a line.
    #[arg(long)]
    json: bool,
}

/// A time, or the beginning of one, as it is stored.
fn time(text: &str) -> Result<String, &'static str> {
    const FORM: &[u8] = b"0000-00-00T00:00:00.000000Z";
    let fits = |(byte, form): (u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        _ => byte == *form,
    };
    let good = (1..=FORM.len()).contains(&text.len()) && text.bytes().zip(FORM).all(fits);
    good.then(|| text.to_owned()).ok_or("write it as 2026-11-29T08:30:00.000000Z, or the beginning")
}

impl Ledger {
    /// Runs the command.
    ///
    /// # Errors
    /// If output can't be written.
    pub fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        match self.command {
            Command::Verify(command) => command.run(out, err),
            Command::List(command) => command.run(out, err),
            Command::Replace(command) => command.run(out, err),
        }
    }
}

impl Verify {
    fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let reports = match ledger::verify_all(&self.directory) {
            Ok(reports) => reports,
            Err(error) => {
                writeln!(err, "lictor: `{}`: {error}", self.directory.display())?;
                return Ok(ExitCode::from(EXIT_UNREADABLE));
            }
        };
        for (index, (directory, report)) in reports.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            if reports.len() > 1 {
                writeln!(out, "directory {}", directory.display())?;
            }
            describe(report, out)?;
        }
        let damaged = reports.iter().any(|(_, report)| report.damage.is_some());
        let empty = reports.iter().all(|(_, report)| report.entries == 0);
        Ok(match (damaged, empty) {
            (true, _) => ExitCode::from(EXIT_DAMAGED),
            (false, true) => ExitCode::from(EXIT_EMPTY),
            (false, false) => ExitCode::SUCCESS,
        })
    }
}

pub(super) fn describe(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if let Some(damage) = &report.damage {
        writeln!(out, "DAMAGED at {}", printable(&damage.to_string()))?;
    }
    if let Some(chain) = &report.chain {
        writeln!(out, "chain     {}", printable(chain))?;
    }
    match report.signed_by {
        Some(SignedBy::Itself) => writeln!(out, "signed    by itself: proves no identity")?,
        Some(SignedBy::Svid) => {
            writeln!(out, "signed    by an SVID; not checked against a trust bundle")?;
        }
        None => {}
    }
    if let Some(previous) = &report.previous {
        let (chain, head) = (printable(&previous.chain), printable(&previous.head));
        writeln!(out, "follows   {chain}: {} entries, head {head}", previous.entries)?;
    }
    match (report.entries.checked_sub(1), &report.head) {
        (Some(last), Some(head)) => {
            writeln!(out, "head      {}", HEXLOWER.encode(head))?;
            writeln!(out, "complete up to entry {last}; nothing here proves what came after")?;
        }
        _ => writeln!(out, "no entries: nothing to verify, and nothing is proven")?,
    }
    for chain in &report.put_aside {
        writeln!(out, "put aside {}: not held against what is said of it here", printable(chain))?;
    }
    for gap in &report.gaps {
        writeln!(out, "gap       entry {}: {} entries lost", gap.seq, gap.count)?;
    }
    if let Some(torn) = &report.torn {
        let (segment, offset, bytes) = (&torn.segment, torn.offset, torn.bytes);
        writeln!(
            out,
            "torn      `{segment}`, byte {offset}: {bytes} bytes being written or cut off"
        )?;
    }
    for call_id in &report.dangling {
        writeln!(out, "open      {}: intent without an end", printable(call_id))?;
    }
    Ok(())
}

impl List {
    fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let filter = Filter {
            call_id: self.call_id,
            peer: self.peer,
            decision: self.decision,
            method: self.method,
            since: self.since,
            until: self.until,
            last: self.last,
        };
        match print_rows(&self.directory, filter, self.json, out)? {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                writeln!(err, "lictor: {}", printable(&Causes(&error).to_string()))?;
                Ok(ExitCode::from(match error {
                    ListError::Damaged { .. } => EXIT_DAMAGED,
                    ListError::Io { .. } => EXIT_UNREADABLE,
                }))
            }
        }
    }
}

/// What was read before an error is printed all the same.
fn print_rows(
    directory: &Path,
    filter: Filter,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<Result<(), ListError>> {
    let rows = match ledger::list(directory, filter) {
        Ok(rows) => rows,
        Err(error) => return Ok(Err(error)),
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "SEQ", "TIME", "KIND", "CALL", "PEER", "METHOD", "TARGET", "DECISION", "STATUS", "MS",
    ]);
    let mut outcome = Ok(());
    for row in rows {
        match row {
            Ok(row) if json => writeln!(out, "{}", row.json)?,
            Ok(row) => {
                table.add_row(cells(&row));
            }
            Err(error) => outcome = Err(error),
        }
    }
    if !json {
        for line in table.lines() {
            writeln!(out, "{}", line.trim())?;
        }
    }
    Ok(outcome)
}

fn cells(row: &Row) -> [String; 10] {
    let text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), printable);
    let micros = row.latency_us.map(|us| format!("{}.{:03}", us / 1000, us % 1000));
    [
        row.seq.to_string(),
        printable(&row.ts),
        printable(&row.kind),
        text(&row.call_id),
        text(&row.peer),
        text(&row.method),
        text(&row.target),
        text(&row.decision),
        text(&row.status),
        text(&micros),
    ]
}

impl Replace {
    fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        match ledger::replace(&self.directory) {
            Ok(replaced) => {
                let previous = &replaced.previous;
                let chain = printable(&previous.chain);
                writeln!(out, "chain     {chain}: {} entries verified", previous.entries)?;
                writeln!(out, "moved to  {}", replaced.moved_to.display())?;
                if replaced.newest {
                    writeln!(out, "the next start begins a new chain that names this one")?;
                } else {
                    writeln!(
                        out,
                        "the next start goes on with the newest chain, and says so there"
                    )?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                writeln!(err, "lictor: {}", printable(&Causes(&error).to_string()))?;
                Ok(ExitCode::from(EXIT_UNREADABLE))
            }
        }
    }
}

#[cfg(test)]
mod tests;

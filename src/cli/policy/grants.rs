//! `lictor policy grants`: what the documents of a policy directory say, as a table or as Cedar.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use comfy_table::Table;

use crate::policy::{LoadError, Policies, Settings, grants};

/// Shows who may do what, or the policies that the documents became.
pub(super) fn run(
    policies: &Policies,
    settings: &Settings,
    cedar: bool,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let shown = match grants::show(settings) {
        Ok(shown) => shown,
        Err(LoadError { faults }) => {
            // A file changed since the policies were loaded.
            for fault in faults {
                writeln!(out, "{fault}")?;
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    if cedar {
        write!(out, "{}", shown.cedar)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.set_header(["who", "may", "what", "says"]);
    for row in &shown.rows {
        table.add_row([&row.who, &row.may, &row.what, &row.place]);
    }
    writeln!(out, "{table}")?;
    for warning in policies.warnings() {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(ExitCode::SUCCESS)
}

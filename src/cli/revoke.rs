//! `lictor revoke`: asks a running Lictor to revoke something, to list what is revoked, or to lift it.

mod request;

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Deserialize;
use serde_json::json;

use self::request::{Admin, AskError};
use super::{EXIT_FAILED, EXIT_USAGE, complain};
use crate::ledger::printable;

/// The token can't be read (`EX_NOINPUT`).
const EXIT_UNREADABLE: u8 = 66;
/// Lictor can't be reached, or can't do it now (`EX_UNAVAILABLE`).
const EXIT_UNAVAILABLE: u8 = 69;
/// Lictor doesn't take the token (`EX_NOPERM`).
const EXIT_REFUSED: u8 = 77;

const EXAMPLES: &str = "\
Examples:
  lictor revoke spiffe spiffe://example.org/agents/reader --reason 'key leaked' --token-file token
  lictor revoke spiffe 'spiffe://example.org/agents/*' --reason drill --for 10m --token-file token
  lictor revoke tool files/delete --reason 'deletes too much' --token-file token
  lictor revoke list --token-file token
  lictor revoke lift 01993f0e-7b5a-7c3e-9a1d-0123456789ab --token-file token

Exit code: 0 done, 64 it makes no sense, 66 the token can't be read, 69 Lictor can't be reached or can't
do it now, 77 the token isn't taken.";

/// Revoke an identity, user, session, delegation, tool or tenant, everywhere within a second.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Revoke {
    /// The administration address of a running Lictor.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9440", global = true)]
    admin: String,
    /// File with the token of its `admin.tokenFile`.
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A workload by its SPIFFE ID, or all whose IDs begin like this: `spiffe://example.org/agents/*`.
    Spiffe(Subject),
    /// A user, as chains of delegation name them.
    User(Subject),
    /// A session by its `Mcp-Session-Id`; `-` reads it from standard input.
    Session(Subject),
    /// A delegation: the `jti` of a hop, the decision id of the call it was made for, or a run.
    Delegation(Subject),
    /// A tool, as `upstream/tool`.
    Tool(Subject),
    /// A tenant, as the path template names it.
    Tenant(Subject),
    /// Show what is revoked.
    List(List),
    /// Lift a revocation.
    Lift(Lift),
}

#[derive(Debug, Args)]
struct Subject {
    /// Which one.
    value: String,
    /// Why; for operators and the ledger.
    #[arg(long)]
    reason: String,
    /// How long it holds; until it is lifted, without this.
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<String>,
    /// Who does it; the name of the user who runs this, without this.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

#[derive(Debug, Args)]
struct List {
    /// Print what Lictor says, as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Lift {
    /// Its id, as `list` shows it.
    id: String,
}

/// What Lictor says of a revocation.
#[derive(Deserialize)]
struct Told {
    id: String,
    kind: String,
    value: String,
    reason: String,
    by: String,
    at: String,
    until: Option<String>,
    kept: Option<String>,
}

#[derive(Deserialize)]
struct All {
    known: bool,
    revocations: Vec<Told>,
}

impl Revoke {
    pub(super) fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let done = Admin::new(&self.admin, self.token_file.as_deref())
            .and_then(|admin| self.command.ask(&admin))
            .and_then(|done| Ok(done.tell(out, err)?));
        match done {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                complain(&error, err)?;
                Ok(ExitCode::from(match error {
                    AskError::Write(error) => return Err(error),
                    AskError::Url(_) | AskError::NoToken | AskError::Fault(_) => EXIT_USAGE,
                    AskError::Token { .. } => EXIT_UNREADABLE,
                    AskError::Connect { .. } | AskError::Busy(_) => EXIT_UNAVAILABLE,
                    AskError::Refused(_) => EXIT_REFUSED,
                    AskError::Read(_) | AskError::Answer => EXIT_FAILED,
                }))
            }
        }
    }
}

/// What came of it.
enum Done {
    Revoked(Told),
    Lifted(Told),
    Listed(All),
    Json(String),
}

impl Command {
    fn ask(self, admin: &Admin) -> Result<Done, AskError> {
        match self {
            Self::Spiffe(subject) => subject.revoke(admin, "spiffe"),
            Self::User(subject) => subject.revoke(admin, "user"),
            Self::Session(subject) => subject.revoke(admin, "session"),
            Self::Delegation(subject) => subject.revoke(admin, "delegation"),
            Self::Tool(subject) => subject.revoke(admin, "tool"),
            Self::Tenant(subject) => subject.revoke(admin, "tenant"),
            Self::List(List { json: true }) => admin.get("/revocations").map(Done::Json),
            Self::List(List { json: false }) => read(&admin.get("/revocations")?).map(Done::Listed),
            Self::Lift(Lift { id }) => {
                // What could be anything else in a path is no id, and is told as that.
                let id: String =
                    id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
                read(&admin.delete(&format!("/revocations/{id}"))?).map(Done::Lifted)
            }
        }
    }
}

impl Subject {
    fn revoke(self, admin: &Admin, kind: &str) -> Result<Done, AskError> {
        let value = match (kind, &*self.value) {
            ("session", "-") => {
                let mut text = String::new();
                io::stdin().take(4096).read_to_string(&mut text)?;
                text.trim_end().to_owned()
            }
            _ => self.value,
        };
        let user = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        let by = self.by.or_else(user).unwrap_or_else(|| "unknown".to_owned());
        let mut asked = json!({ "kind": kind, "value": value, "reason": self.reason, "by": by });
        if let (Some(lasts), Some(asked)) = (self.lasts, asked.as_object_mut()) {
            asked.insert("for".to_owned(), lasts.into());
        }
        read(&admin.post("/revocations", &asked.to_string())?).map(Done::Revoked)
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a str) -> Result<T, AskError> {
    serde_json::from_str(answer).map_err(|_| AskError::Answer)
}

impl Done {
    fn tell(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Revoked(told) => {
                writeln!(out, "revoked {}: {} {}", told.id, told.kind, printable(&told.value))?;
                match told.kept.as_deref() {
                    Some("not yet") => writeln!(
                        err,
                        "lictor: in force on this replica only, until its state store answers"
                    ),
                    Some("memory") => writeln!(
                        err,
                        "lictor: kept in memory, so it ends with the process; `state` keeps it"
                    ),
                    Some(_) | None => Ok(()),
                }
            }
            Self::Lifted(told) => {
                writeln!(out, "lifted {}: {} {}", told.id, told.kind, printable(&told.value))
            }
            Self::Json(text) => writeln!(out, "{text}"),
            Self::Listed(all) => {
                if !all.known {
                    writeln!(err, "lictor: what is revoked isn't known there yet")?;
                }
                let mut table = Table::new();
                table.load_style(presets::NOTHING);
                table.set_content_arrangement(ContentArrangement::Disabled);
                table.set_header(["ID", "KIND", "VALUE", "SINCE", "UNTIL", "BY", "REASON"]);
                for told in &all.revocations {
                    let until = told.until.as_deref().unwrap_or("-");
                    let texts = [&told.id, &told.kind, &told.value, &told.at, until, &told.by];
                    let cells = texts.into_iter().chain([&*told.reason]).map(printable);
                    table.add_row(cells.collect::<Vec<_>>());
                }
                for line in table.lines() {
                    writeln!(out, "{}", line.trim())?;
                }
                Ok(())
            }
        }
    }
}

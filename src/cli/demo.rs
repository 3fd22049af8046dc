//! `lictor demo`: everything at once, on this machine, with no outside service.
//!
//! Mints a development CA and SVIDs, starts the example MCP server and a real Lictor with mutual TLS in
//! front of it, calls it as two agents and shows what came of each call, then verifies the ledger. Nothing is
//! simulated: the second Lictor is this program, run as `lictor run -f`, and the callers speak MCP to it.

mod caller;
mod mint;
mod processes;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use comfy_table::{Table, presets};

use self::{
    caller::{Caller, Heard},
    processes::Child,
};
use super::EXIT_FAILED;
use crate::ledger::{self, Filter};

const TRUST_DOMAIN: &str = "demo.lictor.internal";
/// How long a started process may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// The policies, as they stand in `policies/`.
const POLICIES: [(&str, &str); 3] = [
    ("starter.cedar", include_str!("../../policies/starter.cedar")),
    ("asks.cedar", include_str!("../../policies/asks.cedar")),
    ("files.cedarschema", include_str!("../../policies/files.cedarschema")),
];

/// Show a governed MCP server on this machine: certificates, policies, calls, ledger.
#[derive(Debug, Args)]
pub struct Demo {
    /// End after the table instead of running on.
    #[arg(long)]
    once: bool,
    /// Where certificates, policies, configuration and ledger go; made anew at each start.
    #[arg(long, value_name = "DIR", default_value = "lictor-demo")]
    directory: PathBuf,
    /// The example MCP server; `make demo` builds it.
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,
}

/// Why the demo can't go on.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error(
        "the example server is missing at `{0}`; build it with `cargo build --example demo_mcp_server`, or name it with --server"
    )]
    NoServer(PathBuf),
    #[error("`{0}` isn't empty and isn't a demo's; name another folder with --directory")]
    Foreign(PathBuf),
    #[error("`{path}` can't be written")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("certificates can't be minted")]
    Mint(#[from] rcgen::Error),
    #[error("{name} did not start: {reason}")]
    Start { name: &'static str, reason: String },
    #[error("a call failed")]
    Call(#[from] caller::CallError),
    #[error("the ledger can't be read")]
    Ledger(#[from] ledger::ListError),
    #[error("the ledger is damaged")]
    Damage(#[source] ledger::Damage),
    #[error("output can't be written")]
    Output(#[from] io::Error),
}

/// One line of the table.
struct Shown {
    caller: &'static str,
    method: &'static str,
    target: Option<&'static str>,
    what: &'static str,
    heard: Heard,
}

impl Demo {
    pub(super) fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        match runtime.block_on(self.show(out)) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                super::complain(&error, err)?;
                Ok(ExitCode::from(EXIT_FAILED))
            }
        }
    }

    async fn show(self, out: &mut dyn Write) -> Result<(), DemoError> {
        let program = self.server.map_or_else(beside_this_program, Ok)?;
        let home = prepare(&self.directory)?;
        writeln!(out, "Minting a CA and SVIDs of {TRUST_DOMAIN} in {}", home.display())?;
        mint::all(&home)?;
        writeln!(out, "Starting the example MCP server, and Lictor with mutual TLS before it")?;
        let mut server = Child::example_server(&program, PATIENCE).await?;
        let config = write_config(&home, server.address())?;
        let mut lictor = Child::lictor(&config, PATIENCE).await?;
        let shown = calls(&home, &lictor).await?;
        lictor.settle().await;
        print(&home, &shown, out)?;
        writeln!(out, "\nThe ledger, replayed:")?;
        let report = ledger::verify(&home.join("ledger"))?;
        super::ledger::describe(&report, out)?;
        if let Some(damage) = report.damage {
            return Err(DemoError::Damage(damage));
        }
        if self.once {
            return Ok(());
        }
        let denied = shown.iter().find_map(|shown| shown.heard.decision.as_deref());
        hints(&home, lictor.address(), denied.unwrap_or_default(), out)?;
        out.flush()?;
        tokio::select! {
            // An error means that the signal can't be waited for; the demo ends then as well.
            _ = tokio::signal::ctrl_c() => {}
            ended = server.ended() => writeln!(out, "{ended}")?,
            ended = lictor.ended() => writeln!(out, "{ended}")?,
        }
        Ok(())
    }
}

/// An empty folder with a mark, so that only a demo's own folder is ever emptied.
fn prepare(directory: &Path) -> Result<PathBuf, DemoError> {
    const MARK: &str = ".lictor-demo";
    let fail = |source| DemoError::File { path: directory.to_owned(), source };
    let ours = directory.join(MARK).is_file();
    if directory.exists() && !ours {
        let empty = directory.read_dir().map_err(fail)?.next().is_none();
        if !empty {
            return Err(DemoError::Foreign(directory.to_owned()));
        }
    }
    if ours {
        std::fs::remove_dir_all(directory).map_err(fail)?;
    }
    std::fs::create_dir_all(directory.join("policies")).map_err(fail)?;
    std::fs::write(directory.join(MARK), "").map_err(fail)?;
    for (name, text) in POLICIES {
        std::fs::write(directory.join("policies").join(name), text).map_err(fail)?;
    }
    directory.canonicalize().map_err(fail)
}

fn beside_this_program() -> Result<PathBuf, DemoError> {
    let here = std::env::current_exe()?;
    let folder = here.parent().unwrap_or(Path::new("."));
    let program = folder.join("examples/demo_mcp_server");
    if program.is_file() { Ok(program) } else { Err(DemoError::NoServer(program)) }
}

fn write_config(home: &Path, server: &str) -> Result<PathBuf, DemoError> {
    let path = home.join("lictor.yaml");
    let text = format!(
        r"identity:
  spiffe:
    files:
      certificate: lictor.pem
      key: lictor.key
      bundles: {{ {TRUST_DOMAIN}: ca.pem }}
listeners:
  - name: inbound
    direction: inbound
    bind: 127.0.0.1:0
    tls: mutual
    routes: [{{ path: /mcp, protocol: mcp, upstream: files }}]
upstreams:
  - {{ name: files, url: 'http://{server}/mcp', trust: trusted }}
policy: {{ directory: policies }}
ledger: {{ directory: ledger, commitInterval: 20ms }}
admin: {{ bind: 127.0.0.1:0 }}
"
    );
    std::fs::write(&path, text).map_err(|source| DemoError::File { path: path.clone(), source })?;
    Ok(path)
}

/// What the two agents do.
async fn calls(home: &Path, lictor: &Child) -> Result<Vec<Shown>, DemoError> {
    let mut shown = Vec::new();
    for name in ["reader", "writer"] {
        let mut caller = Caller::connect(home, name, lictor.address()).await?;
        let mut add = |method, target, what, heard| {
            shown.push(Shown { caller: name, method, target, what, heard });
        };
        add("initialize", None, "open a session", caller.initialize().await?);
        add("tools/list", None, "list the tools", caller.list().await?);
        let read = caller.call("read_note", r#"{"name":"welcome"}"#).await?;
        add("tools/call", Some("read_note"), "read a note", read);
        let write = caller.call("write_note", r#"{"name":"todo","text":"buy milk"}"#).await?;
        add("tools/call", Some("write_note"), "write a note", write);
        let protected = r#"{"name":"protected/plan","text":"mine now"}"#;
        let protected = caller.call("write_note", protected).await?;
        add("tools/call", Some("write_note"), "write a protected note", protected);
        let count = caller.call("count", r#"{"to":3}"#).await?;
        add("tools/call", Some("count"), "count, streamed", count);
    }
    Ok(shown)
}

fn print(home: &Path, shown: &[Shown], out: &mut dyn Write) -> Result<(), DemoError> {
    let rows = ledger::list(&home.join("ledger"), Filter::default())?;
    let mut closed: Vec<ledger::Row> = Vec::new();
    for row in rows {
        let row = row?;
        if matches!(row.kind.as_str(), "outcome" | "denied") {
            closed.push(row);
        }
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["caller", "what", "answer", "decision"]);
    for shown in shown {
        let peer = format!("spiffe://{TRUST_DOMAIN}/agent/{}", shown.caller);
        let found = closed.iter().position(|row| {
            row.peer.as_deref() == Some(&peer)
                && row.method.as_deref() == Some(shown.method)
                && row.target.as_deref() == shown.target
        });
        let decision = found.and_then(|at| closed.remove(at).call_id).unwrap_or_default();
        table.add_row([shown.caller, shown.what, &shown.heard.text, &decision]);
    }
    writeln!(out, "\n{table}")?;
    Ok(())
}

/// What to try next, ready to paste.
fn hints(home: &Path, address: &str, decision: &str, out: &mut dyn Write) -> Result<(), DemoError> {
    let program = std::env::current_exe()?;
    let (program, home) = (program.display(), home.display());
    let call = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","#,
        r#""params":{"name":"delete_all","arguments":{}}}"#,
    );
    writeln!(
        out,
        "
Lictor runs on until Ctrl-C. Try, in another terminal:

a call that nothing permits:
  curl -s --cacert {home}/ca.pem --cert {home}/writer.pem --key {home}/writer.key \\
    -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \\
    https://{address}/mcp -d '{call}'

why the reader's write was refused:
  {program} policy explain -f {home}/lictor.yaml --decision {decision}

the ledger, replayed:
  {program} ledger verify {home}/ledger"
    )?;
    Ok(())
}

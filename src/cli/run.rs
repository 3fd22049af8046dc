//! `lictor run`: governs, until it is told to stop.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;

use super::{EXIT_FAILED, EXIT_USAGE};
use crate::{
    config::{self, Config, Faults, File, Governed},
    policy::Policies,
    server::{self, Commands, Start, StartError},
    telemetry::logs,
};

/// Says in the environment what `--allow-stdio` says on the command line.
const ALLOW_STDIO: &str = "LICTOR_ALLOW_STDIO";

const EXAMPLES: &str = "\
Examples:
  lictor run --file lictor.yaml
  lictor run --mcp http://127.0.0.1:9000/mcp
  lictor run -- npx -y some-server";

/// Govern the calls of agents, as a configuration file says, or in front of one MCP server.
///
/// Ends on SIGTERM or SIGINT when the calls in flight have finished; a second one ends them. Hands over to
/// `lictor run --upgrade` on SIGQUIT. Reloads the configuration and the policies when their files change, and on
/// SIGHUP.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["mcp", "command"])]
    file: Option<PathBuf>,
    /// Govern the MCP server at this URL, without a configuration file: a plain listener on loopback,
    /// a policy to start from, a ledger in the state directory.
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    mcp: Option<String>,
    /// Govern the MCP server that this command is, on its standard input and output, in the same way.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["file", "mcp"])]
    command: Vec<String>,
    /// A name in the environment that the command inherits, beside a few like `PATH`; as often as needed.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "mcp"])]
    env: Vec<String>,
    /// Where to listen without a file; a loopback address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", conflicts_with = "file")]
    bind: SocketAddr,
    /// Let the file's `command` keys start processes. `LICTOR_ALLOW_STDIO=1` in the environment does so too.
    #[arg(long)]
    allow_stdio: bool,
    /// Take over from the process that runs with the same ledger, once it gets SIGQUIT: its sockets, so that
    /// no caller is turned away. It ends when it has finished what it began.
    #[arg(long, conflicts_with = "validate_only")]
    upgrade: bool,
    /// Let an upgrade forget whose sessions are whose, where that is kept in memory: clients have to begin
    /// them anew. What was revoked is forgotten too, and a token that was used may be used once more.
    #[arg(long, requires = "upgrade")]
    unsafe_forget_state: bool,
    /// Check the configuration and the policies and start nothing.
    #[arg(long)]
    validate_only: bool,
}

impl Run {
    pub(super) fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let governed = match self.governed() {
            Ok(governed) => governed,
            Err(error) => {
                writeln!(err, "lictor: the working directory can't be told: {error}")?;
                return Ok(ExitCode::from(EXIT_USAGE));
            }
        };
        let (config, file) = match self.config(governed.as_ref()) {
            Ok(read) => read,
            Err(faults) => {
                for fault in faults.iter() {
                    writeln!(err, "lictor: {fault}")?;
                }
                return Ok(ExitCode::from(EXIT_USAGE));
            }
        };
        if self.validate_only {
            if let Err(error) = Policies::load(&config.policy) {
                writeln!(err, "lictor: {error}")?;
                return Ok(ExitCode::from(EXIT_USAGE));
            }
            writeln!(out, "no faults")?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(governed) = &governed {
            writeln!(out, "governing {governed} at http://{}/mcp", self.bind)?;
            writeln!(out, "  policies: {}", config.policy.directory.display())?;
            writeln!(out, "  ledger:   {}", config.ledger.directory.display())?;
            out.flush()?;
        }
        if let Err(error) = logs::init(config.telemetry) {
            super::complain(&error, err)?;
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        let commands = self.commands();
        let Err(error) = server::run(config, file.as_ref(), commands, self.start()) else {
            return Ok(ExitCode::SUCCESS);
        };
        super::complain(&error, err)?;
        let usage = matches!(error, StartError::Policies(_) | StartError::Command { .. });
        Ok(ExitCode::from(if usage { EXIT_USAGE } else { EXIT_FAILED }))
    }

    /// What is governed where there is no file.
    fn governed(&self) -> io::Result<Option<Governed>> {
        if let Some(url) = &self.mcp {
            return Ok(Some(Governed::Url(url.clone())));
        }
        if self.command.is_empty() {
            return Ok(None);
        }
        let directory = std::env::current_dir()?;
        let (words, env) = (self.command.clone(), self.env.clone());
        Ok(Some(Governed::Command { words, directory, env }))
    }

    fn config(&self, governed: Option<&Governed>) -> Result<(Config, Option<File>), Faults> {
        match (&self.file, governed) {
            (Some(path), _) => {
                let file = File::read(path)?;
                Ok((file.parse()?, Some(file)))
            }
            (None, Some(governed)) => {
                let config = config::drop_in(governed, self.bind, &config::state_directory())?;
                Ok((config, None))
            }
            // clap asks for one of them.
            (None, None) => Err(Faults::default()),
        }
    }

    fn start(&self) -> Start {
        if self.upgrade {
            Start::Upgrade { forget_state: self.unsafe_forget_state }
        } else {
            Start::Fresh
        }
    }

    /// A command on our own command line is permission enough; one in a file needs somebody's word who
    /// starts us, since whoever may write the file may not be allowed to run programs.
    fn commands(&self) -> Commands {
        let told = || std::env::var_os(ALLOW_STDIO).is_some_and(|value| value == "1");
        if self.allow_stdio || !self.command.is_empty() || told() {
            Commands::Allowed
        } else {
            Commands::Refused
        }
    }
}

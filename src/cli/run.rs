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
    config::{self, Config, Faults},
    policy::Policies,
    server::{self, StartError},
    telemetry::logs,
};

/// Govern the calls of agents, as a configuration file says, or in front of one MCP server.
///
/// Ends on SIGTERM or SIGINT when the calls in flight have finished. Reloads policies when their files
/// change, and on SIGHUP.
#[derive(Debug, Args)]
pub struct Run {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", required_unless_present = "mcp")]
    file: Option<PathBuf>,
    /// Govern the MCP server at this URL, without a configuration file: a plain listener on loopback,
    /// a policy to start from, a ledger in the state directory.
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    mcp: Option<String>,
    /// Where to listen with `--mcp`; a loopback address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", requires = "mcp")]
    bind: SocketAddr,
    /// Check the configuration and the policies and start nothing.
    #[arg(long)]
    validate_only: bool,
}

impl Run {
    pub(super) fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let config = match self.config() {
            Ok(config) => config,
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
        if let Some(url) = &self.mcp {
            writeln!(out, "governing {url} at http://{}/mcp", self.bind)?;
            writeln!(out, "  policies: {}", config.policy.directory.display())?;
            writeln!(out, "  ledger:   {}", config.ledger.directory.display())?;
            out.flush()?;
        }
        if let Err(error) = logs::init(config.telemetry) {
            super::complain(&error, err)?;
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        let Err(error) = server::run(config) else { return Ok(ExitCode::SUCCESS) };
        super::complain(&error, err)?;
        let usage = matches!(error, StartError::Policies(_));
        Ok(ExitCode::from(if usage { EXIT_USAGE } else { EXIT_FAILED }))
    }

    fn config(&self) -> Result<Config, Faults> {
        match (&self.file, &self.mcp) {
            (Some(file), _) => config::load(file),
            (None, Some(url)) => config::drop_in(url, self.bind, &config::state_directory()),
            // clap asks for one of the two.
            (None, None) => Err(Faults::default()),
        }
    }
}

//! The processes of the demo; each ends with its value.

use std::{path::Path, process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Command,
    time::{sleep, timeout},
};

use super::DemoError;

/// A started process that listens somewhere.
pub(super) struct Child {
    name: &'static str,
    address: String,
    process: tokio::process::Child,
}

/// The log line that tells where Lictor listens.
#[derive(Deserialize)]
struct Listening {
    message: String,
    address: Option<String>,
}

impl Child {
    /// Starts the example server and waits until it listens.
    pub(super) async fn example_server(
        program: &Path,
        patience: Duration,
    ) -> Result<Self, DemoError> {
        let mut command = Command::new(program);
        command.args(["--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        Self::start("the example server", command, patience, |line| {
            line.strip_prefix("listening on ").map(str::to_owned)
        })
        .await
    }

    /// Starts this very program as a proxy and waits until it listens.
    pub(super) async fn lictor(config: &Path, patience: Duration) -> Result<Self, DemoError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").arg("-f").arg(config).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env_remove("RUST_LOG");
        Self::start("Lictor", command, patience, |line| {
            let line: Listening = serde_json::from_str(line).ok()?;
            line.address.filter(|_| line.message == "listening")
        })
        .await
    }

    async fn start(
        name: &'static str,
        mut command: Command,
        patience: Duration,
        listening: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, DemoError> {
        let mut process = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        let output: Box<dyn AsyncRead + Unpin + Send> =
            match (process.stdout.take(), process.stderr.take()) {
                (Some(stdout), _) => Box::new(stdout),
                (None, Some(stderr)) => Box::new(stderr),
                (None, None) => Box::new(tokio::io::empty()),
            };
        let mut lines = BufReader::new(output).lines();
        let mut said = String::new();
        let found = timeout(patience, async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = listening(&line) {
                    return Some(address);
                }
                said = line;
            }
            None
        });
        let address = match found.await {
            Ok(Some(address)) => address,
            Ok(None) => return Err(DemoError::Start { name, reason: said }),
            Err(_) => {
                let reason = format!("not listening after {} s", patience.as_secs());
                return Err(DemoError::Start { name, reason });
            }
        };
        // Read on, so that the process never waits for a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { name, address, process })
    }

    /// `host:port`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Waits for a few commit intervals of the ledger, so that everything said so far is on disk.
    pub(super) async fn settle(&self) {
        sleep(Duration::from_millis(200)).await;
    }

    /// Whether the process still runs.
    pub(super) async fn ended(&mut self) -> String {
        match self.process.wait().await {
            Ok(status) => format!("{} ended: {status}", self.name),
            Err(error) => format!("{} can't be waited for: {error}", self.name),
        }
    }
}

//! What the tests start: MCP servers, and Lictor. All are bounded in time and end with the value that owns
//! them.

use std::{ffi::OsStr, fs, net::SocketAddr, path::Path, process::Stdio};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    time::timeout,
};

use crate::{
    chain::Wire,
    programs::{
        AbortOnDrop, START, Server, command, drain, interpreter, listening, script, tests_path,
    },
};

const EVERYTHING: &str = "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

/// Starts a fixture of `tests/fixtures` on a free port.
pub(crate) async fn fixture(name: &str, wire: Wire) -> Server {
    let mut program = script(&format!("fixtures/{name}"));
    program.args(["--port", "0", "--transport", wire.option()]);
    listening(program, "/mcp").await
}

/// The command of a fixture that serves its standard streams.
pub(crate) fn fixture_command(name: &str) -> [String; 4] {
    let file = tests_path("fixtures").join(name);
    let [program, file] = [interpreter(name), file].map(|path| path.display().to_string());
    [program, file, "--transport".to_owned(), "stdio".to_owned()]
}

/// The command of the everything server, serving its standard streams.
pub(crate) fn everything_command() -> [String; 3] {
    let [program, file] =
        [interpreter(EVERYTHING), tests_path(EVERYTHING)].map(|path| path.display().to_string());
    [program, file, "stdio".to_owned()]
}

/// Starts the everything server on a free port.
pub(crate) async fn everything(wire: Wire) -> Server {
    let (transport, path) = match wire {
        Wire::StreamableHttp => ("streamableHttp", "/mcp"),
        Wire::Sse => ("sse", "/sse"),
    };
    let mut program = command(interpreter(EVERYTHING));
    program.arg("--import").arg(tests_path("fixtures/announce.mjs"));
    program.arg(tests_path(EVERYTHING)).arg(transport).env("PORT", "0");
    listening(program, path).await
}

/// A running Lictor.
pub(crate) struct Lictor {
    /// Where its listener `chain` listens.
    pub(crate) address: SocketAddr,
    _child: Child,
    _log: AbortOnDrop,
}

/// Starts the binary under test with a configuration that has a listener `chain` on port 0.
pub(crate) async fn lictor(directory: &Path, config: &str) -> Lictor {
    let file = directory.join("lictor.yaml");
    fs::write(&file, config).expect("written");
    let mut child = command(env!("CARGO_BIN_EXE_lictor").into())
        .args([OsStr::new("run"), OsStr::new("--allow-stdio"), OsStr::new("-f"), file.as_os_str()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut log = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let mut seen = Vec::new();
    let address = timeout(START, async {
        while let Some(line) = log.next_line().await.expect("the log is text") {
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            if entry["message"] == "listening" && entry["listener"] == "chain" {
                return entry["address"].as_str()?.parse().ok();
            }
            seen.push(line);
        }
        None
    })
    .await;
    let Ok(Some(address)) = address else { panic!("Lictor doesn't listen: {}", seen.join("\n")) };
    Lictor { address, _child: child, _log: drain(log) }
}

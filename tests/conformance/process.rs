//! Child processes of the tests: fixture servers, and programs that run to their end. All are bounded in
//! time and end with the value that owns them.

use std::{
    ffi::OsStr,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader, Lines},
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::chain::Wire;

/// Time for a server to say where it listens.
const START: Duration = Duration::from_secs(40);
/// Time for a program to finish.
const RUN: Duration = Duration::from_secs(150);

const EVERYTHING: &str = "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

/// A path inside `tests/`.
pub(crate) fn tests_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// What runs a script of the tests: a Python with the fixtures' packages, or the Node that the
/// conformance suite needs, which is newer than many systems' own.
pub(crate) fn interpreter(script: &str) -> PathBuf {
    if script.ends_with(".py") {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python")
    } else {
        tests_path("node/node_modules/.bin/node")
    }
}

/// A running server.
pub(crate) struct Server {
    /// Its MCP endpoint.
    pub(crate) url: String,
    _child: Child,
    _output: AbortOnDrop,
}

/// Starts a fixture of `tests/fixtures` on a free port.
pub(crate) async fn fixture(script: &str, wire: Wire) -> Server {
    let mut program = command(interpreter(script));
    program.arg(tests_path("fixtures").join(script));
    program.args(["--port", "0", "--transport", wire.option()]);
    listening(program, "/mcp").await
}

/// The command of a fixture that serves its standard streams.
pub(crate) fn fixture_command(script: &str) -> [String; 4] {
    let file = tests_path("fixtures").join(script);
    let [program, file] = [interpreter(script), file].map(|path| path.display().to_string());
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

/// Starts a server that says `listening on ADDRESS`.
async fn listening(mut program: Command, path: &str) -> Server {
    let mut child = program
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?}: {error}; run `make setup`"));
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let url = timeout(START, async {
        while let Some(line) = lines.next_line().await.expect("output of the server is text") {
            if let Some(address) = line.strip_prefix("listening on ") {
                return format!("http://{address}{path}");
            }
        }
        panic!("{program:?} ended before it listened");
    })
    .await
    .unwrap_or_else(|_| panic!("{program:?} took more than {START:?} to start"));
    Server { url, _child: child, _output: drain(lines) }
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

/// Reads on: output that nobody reads stalls a process once the pipe is full, or ends it.
fn drain(mut lines: Lines<BufReader<impl AsyncRead + Unpin + Send + 'static>>) -> AbortOnDrop {
    AbortOnDrop(tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} }))
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a program to its end; its exit code is the caller's to judge.
pub(crate) async fn run(program: PathBuf, arguments: &[&OsStr]) -> Output {
    let child = command(program.clone())
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("`{}`: {error}; run `make setup`", program.display()));
    let output = timeout(RUN, child.wait_with_output())
        .await
        .unwrap_or_else(|_| panic!("`{}` took more than {RUN:?}", program.display()))
        .expect("output is readable");
    Output {
        succeeded: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

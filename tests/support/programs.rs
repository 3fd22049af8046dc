//! Other people's programs in the tests: fixtures that serve, and clients that run to their end. All are
//! bounded in time and end with the value that owns them.

use std::{ffi::OsStr, fs, path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader, Lines},
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};

/// Time for a server to say where it listens.
pub(crate) const START: Duration = Duration::from_secs(40);
/// Time for a program to finish.
const RUN: Duration = Duration::from_secs(150);

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

/// The version in which a package that a script uses is pinned.
pub(crate) fn pinned(script: &str, package: &str) -> String {
    if script.ends_with(".py") {
        let pins = fs::read_to_string(tests_path("fixtures/requirements.txt")).expect("pins");
        let pin = format!("{package}==");
        let version = pins.lines().find_map(|line| line.strip_prefix(&pin));
        return version.expect("a pinned version").to_owned();
    }
    let lock = fs::read(tests_path("node/package-lock.json")).expect("a lock file");
    let lock: Value = serde_json::from_slice(&lock).expect("a lock file is JSON");
    let package = &lock["packages"][format!("node_modules/{package}")];
    package["version"].as_str().expect("a locked version").to_owned()
}

/// A running server.
pub(crate) struct Server {
    /// Where it listens, with the path that was asked for.
    pub(crate) url: String,
    _child: Child,
    _output: AbortOnDrop,
}

/// Starts a server that says `listening on ADDRESS`; its URL ends with `path`.
pub(crate) async fn listening(mut program: Command, path: &str) -> Server {
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

/// A script of the tests with what runs it: `fixtures/mcp_server.py`.
pub(crate) fn script(name: &str) -> Command {
    let mut command = command(interpreter(name));
    command.arg(tests_path(name));
    command
}

/// A program that is killed with its value, and whose output is read.
pub(crate) fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// Reads on: output that nobody reads stalls a process once the pipe is full, or ends it.
pub(crate) fn drain(
    mut lines: Lines<BufReader<impl AsyncRead + Unpin + Send + 'static>>,
) -> AbortOnDrop {
    AbortOnDrop(tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} }))
}

/// A task that ends with this value.
pub(crate) struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

//! The binary as somebody else would start it, with its log lines as they come.

use std::{
    net::SocketAddr,
    path::Path,
    process::{ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::watch,
};

use crate::http::within;

/// A running process; it is killed with this value.
pub(crate) struct Process {
    child: Child,
    lines: watch::Receiver<Vec<String>>,
    stdout: Arc<Mutex<String>>,
}

impl Process {
    /// Starts it in a directory, with nothing of our environment that could lead it elsewhere.
    pub(crate) fn start(directory: &Path, arguments: &[&str], home: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lictor"))
            .args(arguments)
            .current_dir(directory)
            .env_remove("RUST_LOG")
            .env("HOME", home)
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary runs");
        let (added, lines) = watch::channel(Vec::new());
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = stderr.next_line().await {
                added.send_modify(|lines: &mut Vec<String>| lines.push(line));
            }
        });
        let stdout = Arc::new(Mutex::new(String::new()));
        let told = Arc::clone(&stdout);
        let mut lines_out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines_out.next_line().await {
                let mut told = told.lock().expect("the lock");
                told.push_str(&line);
                told.push('\n');
            }
        });
        Self { child, lines, stdout }
    }

    /// Waits until the log tells something, and takes it from there.
    pub(crate) async fn told<T>(&mut self, find: impl Fn(&[String]) -> Option<T>) -> T {
        let mut found = None;
        let waiting = self.lines.wait_for(|lines| {
            found = find(lines);
            found.is_some()
        });
        let told = within("a log line", waiting).await.is_ok();
        found.unwrap_or_else(|| panic!("never told ({told}): {:#?}", self.lines.borrow()))
    }

    /// Where it listens, if it was started without a file.
    pub(crate) async fn address(&mut self) -> SocketAddr {
        self.told(|lines| {
            let line = lines.iter().find(|line| line.contains("listener=\"local\""))?;
            line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
        })
        .await
    }

    /// What it printed so far.
    pub(crate) fn printed(&self) -> String {
        self.stdout.lock().expect("the lock").clone()
    }

    /// Sends SIGTERM and waits for its end.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(within("a signal", sent).await.expect("`kill` runs").success());
        within("the end", self.child.wait()).await.expect("a status")
    }
}

/// Runs a command in a directory that is the home as well.
pub(crate) async fn lictor_says(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.args(arguments).current_dir(directory).env("HOME", directory);
    command.env_remove("XDG_STATE_HOME").stdin(Stdio::null()).kill_on_drop(true);
    within("a command", command.output()).await.expect("the binary runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

//! A `redis-server` of a test's own, that can be killed, frozen and made to answer with errors.

use std::{net::TcpListener, process::Stdio, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::{sleep, timeout},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A running server; it is killed with this value. Nothing that it knows outlives its process.
pub(crate) struct RedisServer {
    child: Child,
    directory: TempDir,
    options: Vec<String>,
    pub(crate) port: u16,
}

impl RedisServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With more options: `["--requirepass", "secret"]`.
    pub(crate) async fn start_with(options: &[&str]) -> Self {
        let directory = TempDir::new().expect("a directory");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        // The port is free until somebody else takes it.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = launch(port, &options, &directory).await {
                return Self { child, directory, options, port };
            }
        }
        panic!("no Redis can be started");
    }

    /// As if its machine had lost power.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Another process in its place, which knows nothing.
    pub(crate) async fn revive(&mut self) {
        let child = launch(self.port, &self.options, &self.directory).await;
        self.child = child.expect("the port is still free");
    }

    /// It stands still, with its connections open.
    pub(crate) async fn freeze(&self) {
        self.signal("STOP").await;
    }

    /// It goes on.
    pub(crate) async fn thaw(&self) {
        self.signal("CONT").await;
    }

    /// What it says to one command, in its own notation: `+OK`, `$5`, `:1`, `-ERR …`. Of a text, the text.
    pub(crate) async fn say(&self, command: &str) -> String {
        timeout(PATIENCE, ask(self.port, command)).await.expect("in time").expect("an answer")
    }

    async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().await;
        assert!(sent.expect("`kill` runs").success());
    }
}

async fn launch(port: u16, options: &[String], directory: &TempDir) -> Option<Child> {
    let mut child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory.path())
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("redis-server is installed");
    let up = async {
        loop {
            if child.try_wait().expect("a status").is_some() {
                return false;
            }
            // Whatever it says: it may want a password.
            if ask(port, "PING").await.is_some() {
                return true;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let up = timeout(PATIENCE, up).await.expect("in time");
    up.then_some(child)
}

async fn ask(port: u16, command: &str) -> Option<String> {
    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.ok()?);
    stream.write_all(format!("{command}\r\n").as_bytes()).await.ok()?;
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    if line.starts_with('$') && !line.starts_with("$-1") {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
    }
    Some(line.trim_end().to_owned())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

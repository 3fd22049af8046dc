//! One process: its start, its three pipes, its end.
//!
//! It leads a process group of its own, so that whatever it started goes with it. Its end is always the
//! same: standard input is closed, which asks a well-behaved server to go; then the group gets SIGTERM, then
//! SIGKILL.
//!
//! INVARIANT: a group is signalled only while its leader has not been reaped, so that its number can't have
//! become somebody else's. SIGKILL is sent to the group in every case, also when the leader went by itself:
//! what it leaves behind is nobody's.

use std::{
    ffi::OsString,
    io,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStdin, Command},
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::{
    connection::{Connection, End},
    lines,
};
use crate::upstream::settings;

/// How long a process may take to go once its standard input is closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);
/// How long what a process wrote before its end may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A process that runs.
pub(super) struct Process {
    // Dropped first, while the leader can't have been reaped.
    group: Group,
    child: Child,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

/// How a process came to its end.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: Option<ExitStatus>,
    /// Nobody had asked it to go.
    pub(super) crashed: bool,
}

/// A process group; killed when dropped.
struct Group {
    leader: Pid,
    reaped: bool,
}

impl Process {
    /// Starts a process for a connection.
    pub(super) fn start(
        server: &Arc<str>,
        command: &settings::Command,
        environment: &[(OsString, OsString)],
        connection: &Arc<Connection>,
        unread: mpsc::Receiver<Vec<u8>>,
    ) -> io::Result<Self> {
        let mut starting = Command::new(&command.program);
        starting
            .args(&command.arguments)
            .current_dir(&command.directory)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = starting.spawn()?;
        let gone = || io::Error::other("the process went at once");
        let leader =
            child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).ok_or_else(gone)?;
        let group = Group { leader, reaped: false };
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        let pid = leader.as_raw_nonzero().get();
        tracing::info!(upstream = &**server, pid, "process started");
        tokio::spawn(lines::log(stderr, Arc::clone(server), pid));
        let reader =
            tokio::spawn(lines::deliver(stdout, Arc::clone(connection), Arc::clone(server)));
        let writer = tokio::spawn(write(stdin, unread, Arc::clone(connection)));
        Ok(Self { group, child, reader, writer })
    }

    /// Waits until the process has gone: by itself, or because its connection is to end or was unused for
    /// too long.
    pub(super) async fn run(mut self, connection: &Connection, unused: Duration) -> Ended {
        tokio::select! {
            () = self.group.gone() => connection.end(End::Broken),
            () = connection.ending() => {}
            () = connection.unused(unused) => connection.end(End::Asked),
        }
        // With it goes the only other end of standard input.
        self.writer.abort();
        self.group.see_off().await;
        if timeout(LAST_WORDS, &mut self.reader).await.is_err() {
            self.reader.abort();
        }
        let status = self.child.wait().await.ok();
        self.group.reaped = true;
        Ended { status, crashed: connection.finish() == End::Broken }
    }
}

impl Group {
    /// Waits until its leader has gone. It isn't reaped.
    async fn gone(&self) {
        let Ok(mut children) = signal(SignalKind::child()) else { return };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Ok(None) = waitid(WaitId::Pid(self.leader), look) {
            // Never `None`: the runtime keeps the sender.
            let _ = children.recv().await;
        }
    }

    /// Gives the leader time to go, in two steps, and kills what is left.
    async fn see_off(&self) {
        if timeout(GRACE, self.gone()).await.is_err() {
            self.kill(Signal::TERM);
            // What comes next doesn't depend on whether it went.
            let _ = timeout(GRACE, self.gone()).await;
        }
        self.kill(Signal::KILL);
    }

    fn kill(&self, signal: Signal) {
        // An error says that nobody is left.
        let _ = kill_process_group(self.leader, signal);
    }
}

impl Drop for Group {
    /// For a task that is dropped, because the runtime ends before the process.
    fn drop(&mut self) {
        if !self.reaped {
            self.kill(Signal::KILL);
        }
    }
}

/// Passes on what callers send, until the connection is to end. A process that doesn't read stops nothing
/// but this.
async fn write(
    mut stdin: ChildStdin,
    mut unread: mpsc::Receiver<Vec<u8>>,
    connection: Arc<Connection>,
) {
    while let Some(line) = unread.recv().await {
        if stdin.write_all(&line).await.is_err() {
            // It has closed its standard input, so it takes no calls any more.
            connection.end(End::Broken);
            return;
        }
    }
}

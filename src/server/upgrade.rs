//! An upgrade: a new process takes the sockets over from the old one, and no caller is turned away.
//!
//! ```text
//! operator       old process                            new process (lictor run --upgrade)
//!    │                                                   reads its files, waits for the old one
//!    ├─ SIGQUIT ──▶ opens upgrade.sock
//!    │                        ◀──────────── hello ──────
//!    │             ── sockets, head of the ledger ──────▶ identity, ledger, listeners
//!    │                        ◀──────────── ready ────── serves
//!    │             drains and ends
//! ```
//!
//! The socket is in the ledger's directory, which both have to share and nobody else can look into, and is
//! there only while an operator wants an upgrade. Either may be first; each waits a minute for the other.
//! Until the new process is ready the old one serves, and goes on if the new one ends; from then on it only
//! finishes what it has begun. What comes in between waits in the sockets' queues, which both have.
//!
//! INVARIANT: nothing is handed over before everything was looked at that speaks against it, and only to a
//! process of the same user.
//!
//! Refuses: to forget whose sessions are whose, unless told to, and to leave a file with them to two
//! processes; a second upgrade before the first has ended.

mod wire;

use std::{
    fs, io,
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    net::{UnixListener, UnixStream},
    signal::unix::Signal,
    time::{sleep, timeout},
};

use self::wire::Link;
use super::sockets::{Socket, Sockets};
use crate::{
    ledger::{self, Ledger, Previous},
    state,
};

/// The Unix socket's name in the ledger's directory.
const SOCKET: &str = "upgrade.sock";

/// How long either side waits for the other to come.
const WAIT: Duration = Duration::from_secs(60);

/// How long the other side may take for a message that needs no work.
const ANSWER: Duration = Duration::from_secs(10);

/// How often a new process looks for the old one.
const LOOK: Duration = Duration::from_millis(50);

/// How often a new process looks whether the old one has ended.
const SETTLE: Duration = Duration::from_secs(1);

/// What both sides have to agree on.
const VERSION: u32 = 1;

/// Why there is no upgrade.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The other side didn't come.
    #[error("nobody came to `{0}` within a minute")]
    Alone(PathBuf),
    /// The socket between the two can't be used.
    #[error("`{path}` can't be used")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The link between the two broke, or carried something else.
    #[error("the other process can't be understood")]
    Link(#[source] io::Error),
    /// The other process is of somebody else.
    #[error("the other process is of another user")]
    Stranger,
    /// One of the two objects.
    #[error("{0}")]
    Refused(String),
    /// The new process would refuse what the old one serves.
    #[error("what is revoked can't be read, and the old process knows it")]
    Unknowing,
    /// The new process ended before it could serve.
    #[error("the new process ended before it was ready")]
    Ended,
}

/// The first word of the new process.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: u32,
    forget_state: bool,
}

/// What the old one says to it.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Refused(String),
    /// The sockets come along, in this order.
    Offer {
        previous: Previous,
        sockets: Vec<Label>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Label {
    name: String,
    bind: std::net::SocketAddr,
}

/// The new process can serve.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {}

/// What speaks against an upgrade with such a state, if anything does.
fn objection(state: &state::Settings, forget_state: bool) -> Option<&'static str> {
    match state {
        state::Settings::Redis(_) => None,
        state::Settings::Memory if forget_state => None,
        state::Settings::Memory => Some(
            "whose sessions are whose, and what was revoked, is kept in memory and would be forgotten: keep it \
             in `state.redis`, or say `--unsafe-forget-state`",
        ),
        state::Settings::Directory(_) => Some(
            "`state.directory` is of one process at a time: keep the state in `state.redis`, or stop one \
             before the other starts",
        ),
    }
}

/// The old process: hands over when it is told to.
pub(super) struct Predecessor {
    quit: Signal,
    socket: PathBuf,
    ledger: Ledger,
    state: state::Settings,
    sockets: Sockets,
}

impl Predecessor {
    /// With everything that there is to hand over; the Unix socket will be in the ledger's `directory`.
    pub(super) fn new(
        quit: Signal,
        directory: &Path,
        ledger: Ledger,
        state: state::Settings,
        sockets: Sockets,
    ) -> Self {
        Self { quit, socket: directory.join(SOCKET), ledger, state, sockets }
    }

    /// Returns when another process serves on the same sockets.
    pub(super) async fn handed_over(&mut self) {
        while self.quit.recv().await.is_some() {
            tracing::info!(socket = %self.socket.display(), "told to hand over");
            match self.hand_over().await {
                Ok(()) => return,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "not handed over; this process goes on serving");
                }
            }
        }
        std::future::pending().await
    }

    async fn hand_over(&self) -> Result<(), UpgradeError> {
        let mut link = self.accept().await?;
        let hello: Hello = link.receive_within(ANSWER).await?;
        if let Some(reason) = self.objection(&hello) {
            link.send(&Answer::Refused(reason.clone()), &[]).await?;
            return Err(UpgradeError::Refused(reason));
        }
        self.ledger.flush().await;
        let sockets = self.sockets.open();
        let label = |socket: &Socket| Label { name: socket.name.clone(), bind: socket.bind };
        let offer = Answer::Offer {
            previous: self.ledger.tip(),
            sockets: sockets.iter().map(label).collect(),
        };
        let descriptors: Vec<_> = sockets.iter().map(|socket| socket.listener.as_fd()).collect();
        link.send(&offer, &descriptors).await?;
        tracing::info!("sockets handed over; serving until the new process is ready");
        // However long it takes to be ready: until then this process serves, and if the other one ends, so
        // does the link.
        let Ready {} = link.receive().await.map_err(|_| UpgradeError::Ended)?;
        Ok(())
    }

    async fn accept(&self) -> Result<Link, UpgradeError> {
        let fail = |source| UpgradeError::Socket { path: self.socket.clone(), source };
        let door = Door::open(&self.socket).map_err(fail)?;
        let accepted = timeout(WAIT, door.listener.accept()).await;
        let (stream, _) =
            accepted.map_err(|_| UpgradeError::Alone(self.socket.clone()))?.map_err(fail)?;
        link_to(stream)
    }

    fn objection(&self, hello: &Hello) -> Option<String> {
        if hello.version != VERSION {
            let other = hello.version;
            return Some(format!("versions {VERSION} and {other} of the hand-over don't match"));
        }
        if !self.ledger.is_settled() {
            return Some(
                "the process before this one has not ended yet; try again then".to_owned(),
            );
        }
        objection(&self.state, hello.forget_state).map(str::to_owned)
    }
}

/// The Unix socket, as long as it is open.
struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    fn open(path: &Path) -> io::Result<Self> {
        // Whoever has the ledger is alone here, so that one which is there is left from a crash.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        let door = Self { listener, path: path.to_owned() };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(door)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // If it stays, the next one removes it.
        let _ = fs::remove_file(&self.path);
    }
}

fn link_to(stream: UnixStream) -> Result<Link, UpgradeError> {
    let peer = stream.peer_cred().map_err(UpgradeError::Link)?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(UpgradeError::Stranger);
    }
    Ok(Link::new(stream))
}

/// The new process: what it has been given, until it says that it is ready.
pub(super) struct Successor {
    link: Link,
    /// The chain that the new one follows.
    pub(super) previous: Previous,
}

impl Successor {
    /// Asks the process that writes in the ledger's `directory` for its sockets.
    pub(super) async fn ask(
        directory: &Path,
        state: &state::Settings,
        forget_state: bool,
    ) -> Result<(Self, Sockets), UpgradeError> {
        if let Some(reason) = objection(state, forget_state) {
            return Err(UpgradeError::Refused(reason.to_owned()));
        }
        let path = directory.join(SOCKET);
        tracing::info!(socket = %path.display(), "waits for the old process; send it SIGQUIT");
        let connected = timeout(WAIT, connect(&path)).await;
        let stream = connected.map_err(|_| UpgradeError::Alone(path.clone()))?;
        let mut link = link_to(stream.map_err(|source| UpgradeError::Socket { path, source })?)?;
        link.send(&Hello { version: VERSION, forget_state }, &[]).await?;
        let (previous, labels) = match link.receive_within(ANSWER).await? {
            Answer::Refused(reason) => return Err(UpgradeError::Refused(reason)),
            Answer::Offer { previous, sockets } => (previous, sockets),
        };
        let given = link.take_sockets();
        if given.len() != labels.len() {
            let problem =
                format!("{} sockets came where {} were announced", given.len(), labels.len());
            return Err(UpgradeError::Link(io::Error::other(problem)));
        }
        let socket = |(Label { name, bind }, descriptor)| Socket {
            name,
            bind,
            listener: std::net::TcpListener::from(descriptor),
        };
        let sockets = Sockets::inherited(labels.into_iter().zip(given).map(socket).collect());
        Ok((Self { link, previous }, sockets))
    }

    /// Tells the old process that it may go. If it has ended meanwhile, there is nobody to tell.
    pub(super) async fn ready(mut self) {
        if let Err(error) = self.link.send(&Ready {}, &[]).await {
            tracing::warn!(%error, "the old process has ended by itself");
        }
    }
}

/// Waits until the process before this one has ended, and records how its chain of the ledger did.
pub(super) async fn settle(ledger: Ledger) {
    while !ledger.is_settled() {
        sleep(SETTLE).await;
        let look = ledger.clone();
        match tokio::task::spawn_blocking(move || look.settle()).await {
            Ok(Ok(())) => tracing::info!("the process before this one has ended"),
            Ok(Err(ledger::OpenError::InUse(_))) => {}
            Ok(Err(error)) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "the chain of the process before can't be closed");
                return;
            }
            Err(error) => {
                tracing::error!(%error, "the chain of the process before can't be looked at");
                return;
            }
        }
    }
}

/// Connects as soon as somebody listens.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                sleep(LOOK).await;
            }
            connected => return connected,
        }
    }
}

#[cfg(test)]
mod tests;

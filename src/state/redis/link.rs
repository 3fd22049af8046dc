//! The connection to Redis, and who makes it anew.

use std::{sync::Arc, time::Duration};

use redis::aio::MultiplexedConnection;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::dial::{Closed, DialError, Dialer};
use crate::telemetry::{Causes, Clock};

/// Longest time for a new connection, and for it to show that it is of use.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// How often an idle link is looked at, so that one that was closed meanwhile is found before it is needed.
const LOOK: Duration = Duration::from_secs(5);

/// Answers with the time that stands there; if there is none, with the one that it is given and writes down.
const BEGUN: &str = "\
local begun = redis.call('GET', KEYS[1])
if not begun then begun = ARGV[1] redis.call('SET', KEYS[1], begun) end
return tonumber(begun)";

/// A connection that has been seen to take writes.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    /// When it was made, since the Unix epoch.
    pub(super) since: Duration,
    /// When somebody first found nothing there, since the Unix epoch: what was written before then is lost.
    pub(super) begun: Duration,
    number: u64,
}

impl Link {
    /// Whether it was made after another one.
    pub(super) fn follows(&self, other: &Self) -> bool {
        self.number > other.number
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Takes a link away, unless there is another one by now.
pub(super) fn cut(links: &watch::Sender<Option<Link>>, link: &Link) -> bool {
    links.send_if_modified(|current| {
        let same = current.as_ref().is_some_and(|current| current.number == link.number);
        if same {
            *current = None;
        }
        same
    })
}

/// Makes the first link, if it can.
pub(super) async fn first(dialer: &Dialer, links: &watch::Sender<Option<Link>>) -> Option<Closed> {
    make(dialer, links, 1).await.inspect_err(warn).ok()
}

/// Makes links, one after the other, for as long as it lives. `closed` is of the one that there is already.
pub(super) async fn keep(
    dialer: Dialer,
    links: Arc<watch::Sender<Option<Link>>>,
    mut closed: Option<Closed>,
) {
    let mut number = 1;
    let mut missed = closed.is_none();
    loop {
        if let Some(closed) = closed.take() {
            watch_over(&links, closed).await;
        }
        number += 1;
        match make(&dialer, &links, number).await {
            Ok(made) => {
                tracing::info!("Redis answers");
                closed = Some(made);
                missed = false;
            }
            Err(error) => {
                links.send_if_modified(|current| current.take().is_some());
                if !missed {
                    warn(&error);
                }
                missed = true;
                sleep(PAUSE).await;
            }
        }
    }
}

/// Waits until there is no link any more, or one that the server has closed. That is heard at once: it may be back
/// with nothing, and has to be told again. Until that is known, calls that find the closed one wait for the next.
async fn watch_over(links: &watch::Sender<Option<Link>>, mut closed: Closed) {
    let mut changes = links.subscribe();
    loop {
        let Some(link) = changes.borrow_and_update().clone() else { return };
        tokio::select! {
            // The sender is `links`.
            _ = changes.changed() => {}
            // Nothing is ever sent.
            _ = &mut closed => return,
            () = sleep(LOOK) => {
                if let Err(error) = look(&link).await {
                    let reason = Causes(&error).to_string();
                    tracing::debug!(reason, "the link to Redis is broken");
                    cut(links, &link);
                }
            }
        }
    }
}

async fn make(
    dialer: &Dialer,
    links: &watch::Sender<Option<Link>>,
    number: u64,
) -> Result<Closed, DialError> {
    let dialed = timeout(PATIENCE, dialer.dial()).await.map_err(|_| DialError::TimeOut)?;
    let (connection, closed) = dialed?;
    let mut link = Link { connection, since: Clock.unix(), begun: Duration::ZERO, number };
    // Calls may be waiting: both on one way there and back.
    let ((), begun) = tokio::try_join!(look(&link), begun(&link))?;
    link.begun = begun;
    links.send_replace(Some(link));
    Ok(closed)
}

/// When what is there began, by the clock of whoever noticed that there was nothing.
async fn begun(link: &Link) -> Result<Duration, DialError> {
    let now = u64::try_from(link.since.as_millis()).unwrap_or(u64::MAX);
    let mut ask = redis::cmd("EVAL");
    ask.arg(BEGUN).arg(1).arg("lictor:{begun}").arg(now);
    let mut connection = link.connection.clone();
    let told = timeout(PATIENCE, ask.query_async::<u64>(&mut connection)).await;
    let told = told.map_err(|_| DialError::TimeOut)?.map_err(DialError::Redis)?;
    Ok(Duration::from_millis(told))
}

/// Whether it takes writes: a replica, or a server that is still loading, answers a `PING` too.
async fn look(link: &Link) -> Result<(), DialError> {
    let mut write = redis::cmd("SET");
    write.arg("lictor:{probe}").arg("").arg("PX").arg(1000);
    let mut connection = link.connection.clone();
    timeout(PATIENCE, write.query_async::<()>(&mut connection))
        .await
        .map_err(|_| DialError::TimeOut)?
        .map_err(DialError::Redis)
}

fn warn(error: &DialError) {
    let reason = Causes(error).to_string();
    tracing::warn!(reason, "Redis can't be used; what isn't in memory is refused");
}

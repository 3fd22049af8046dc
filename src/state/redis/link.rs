//! The connection to Redis, and who makes it anew.

use std::{sync::Arc, time::Duration};

use redis::aio::MultiplexedConnection;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::dial::{DialError, Dialer};
use crate::telemetry::Clock;

/// Longest time for a new connection, and for it to show that it is of use.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// How often an idle link is looked at, so that one that was closed meanwhile is found before it is needed.
const LOOK: Duration = Duration::from_secs(5);

/// A connection that has been seen to take writes.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    /// When it was made, since the Unix epoch.
    pub(super) since: Duration,
    number: u64,
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

/// Makes the first link, and says whether it could.
pub(super) async fn first(dialer: &Dialer, links: &watch::Sender<Option<Link>>) -> bool {
    make(dialer, links, 1).await.inspect_err(warn).is_ok()
}

/// Makes links, one after the other, for as long as it lives. `made` says whether there is one already.
pub(super) async fn keep(dialer: Dialer, links: Arc<watch::Sender<Option<Link>>>, mut told: bool) {
    let mut number = 1;
    loop {
        watch_over(&links).await;
        number += 1;
        match make(&dialer, &links, number).await {
            Ok(()) => {
                tracing::info!("Redis answers");
                told = true;
            }
            Err(error) => {
                if told {
                    warn(&error);
                }
                told = false;
                sleep(PAUSE).await;
            }
        }
    }
}

/// Waits until there is no link any more.
async fn watch_over(links: &watch::Sender<Option<Link>>) {
    let mut changes = links.subscribe();
    loop {
        let Some(link) = changes.borrow_and_update().clone() else { return };
        tokio::select! {
            // The sender is `links`.
            _ = changes.changed() => {}
            () = sleep(LOOK) => {
                if let Err(error) = look(&link).await {
                    tracing::debug!(%error, "the link to Redis is broken");
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
) -> Result<(), DialError> {
    let connection = timeout(PATIENCE, dialer.dial()).await.map_err(|_| DialError::TimeOut)??;
    let link = Link { connection, since: Clock.unix(), number };
    look(&link).await?;
    links.send_replace(Some(link));
    Ok(())
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
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%error, cause, "Redis can't be used; what isn't in memory is refused");
}

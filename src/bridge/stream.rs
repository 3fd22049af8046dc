//! Event streams: of a call, resumed where they break, and the session's own.
//!
//! A server may end a stream early and say by `retry` when to come back (MCP 2025-11-25 `basic/transports`);
//! `Last-Event-ID` makes it go on where it ended.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::time::sleep;

use super::{
    LONGEST,
    answer::{self, Awaited},
    failure::Failure,
    link::Link,
};
use crate::{
    protocol::sse::{Event, Splitter},
    upstream::Body,
};

/// How long to wait where the server doesn't say.
const WAIT: Duration = Duration::from_secs(1);
/// Shortest wait, whatever the server says.
const LEAST_WAIT: Duration = Duration::from_millis(10);
/// Longest wait.
const MOST_WAIT: Duration = Duration::from_secs(30);
/// How often in a row a stream may fail to be resumed before its request is given up.
const FAILURES: u32 = 10;

/// Where a stream stands.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The last event with an id.
    pub(super) last: Option<HeaderValue>,
    wait: Duration,
    failures: u32,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { last: None, wait: WAIT, failures: 0 }
    }
}

impl Cursor {
    fn follow(&mut self, event: &Event) {
        if let Some(id) = event.id() {
            self.last = HeaderValue::from_bytes(id).ok().filter(|id| !id.is_empty());
        }
        if let Some(wait) = event.retry() {
            self.wait = Duration::from_millis(wait).clamp(LEAST_WAIT, MOST_WAIT);
        }
        self.failures = 0;
    }

    /// Waits before the next attempt, longer after each that failed.
    async fn rest(&self) {
        let factor = 2_u32.saturating_pow(self.failures.min(16));
        sleep(self.wait.saturating_mul(factor).min(MOST_WAIT)).await;
    }
}

impl Link {
    /// Passes on what comes on a stream, up to the answer that is waited for; whether that came.
    pub(super) async fn events(
        &self,
        mut body: Body,
        cursor: &mut Cursor,
        awaited: Option<Awaited<'_>>,
    ) -> Result<bool, Failure> {
        let mut splitter = Splitter::new(LONGEST);
        let mut events = Vec::new();
        let mut answered = false;
        while let Some(part) = body.frame().await {
            let whole = splitter.feed(part?, &mut events);
            for event in events.drain(..) {
                cursor.follow(&event);
                // The first event of a stream has an id and no data, to be resumed after.
                if let Some(data) = event.data().filter(|data| !data.is_empty()) {
                    answered |= self.deliver(&data, awaited).await;
                }
            }
            whole.map_err(|_| Failure::Unreadable)?;
            if answered {
                answer::finish(body).await;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes on with a stream that broke, until its answer has come.
    pub(super) async fn resume(
        &self,
        mut cursor: Cursor,
        awaited: Awaited<'_>,
    ) -> Result<(), Failure> {
        while cursor.last.is_some() && cursor.failures < FAILURES {
            cursor.rest().await;
            cursor.failures += 1;
            let Ok(answer) = self.get(cursor.last.as_ref()).await else { continue };
            let (head, body) = answer.into_parts();
            if head.status.is_server_error() {
                continue;
            }
            if !head.status.is_success() || !answer::is(&head.headers, "text/event-stream") {
                return Err(Failure::Ended);
            }
            match self.events(body, &mut cursor, Some(awaited)).await {
                Ok(true) => return Ok(()),
                Ok(false) | Err(Failure::Upstream(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Ended)
    }

    /// Reads the session's own stream as long as the server offers one.
    pub(super) async fn listen(&self) {
        let mut cursor = Cursor::default();
        loop {
            match self.get(cursor.last.as_ref()).await {
                Err(error) => tracing::warn!(error = %Failure::from(error), "no session stream"),
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    let streams = answer::is(&head.headers, "text/event-stream");
                    match head.status {
                        status if status.is_success() && streams => {
                            if let Err(failure) = self.events(body, &mut cursor, None).await {
                                tracing::debug!(%failure, "the session stream broke off");
                            }
                        }
                        // It offers none.
                        StatusCode::METHOD_NOT_ALLOWED => return,
                        status if status.is_server_error() => {
                            tracing::warn!(%status, "no session stream");
                        }
                        status => {
                            tracing::warn!(%status, "the server gives no session stream");
                            return;
                        }
                    }
                }
            }
            cursor.rest().await;
            cursor.failures += 1;
        }
    }
}

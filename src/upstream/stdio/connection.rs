//! [`Connection`]: the traffic of one process, and who gets what of it.
//!
//! INVARIANT: a message of a process goes to one caller at most. Answers and progress go to the call whose
//! number they name. What names no call goes to the session that owns the process. Without a session nobody
//! gets it, but for a line of the log while its process has one call only; and a question is answered with an
//! error: never broadcast, never guessed.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{
    calls::{Listening, State, Waiting},
    message::{self, Sent, Sort},
    outbox::{Inbox, Outbox, Part, outbox},
};
use crate::{protocol::Id, telemetry::Clock};

/// Messages that may wait for a process to read them.
const UNREAD: usize = 8;
/// Whom a process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// One legacy session.
    Session,
    /// The stateless calls of one caller.
    Caller,
    /// The stateless calls of everybody.
    Everybody,
}

/// Whether a process has to end, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It doesn't.
    No,
    /// We want it to.
    Asked,
    /// It has gone, or takes or gives nothing any more.
    Broken,
}

/// A process as its callers see it.
#[derive(Debug)]
pub(super) struct Connection {
    manner: Manner,
    stdin: mpsc::Sender<Vec<u8>>,
    next: AtomicU64,
    state: Mutex<State>,
    up: watch::Sender<bool>,
    end: watch::Sender<End>,
}

/// A call at a process, until this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    connection: Arc<Connection>,
    number: u64,
    cancels: bool,
}

/// The process has ended, or is about to.
#[derive(Debug, thiserror::Error)]
#[error("the process has ended")]
pub(super) struct Over;

/// There is a stream already.
#[derive(Debug)]
pub(super) struct Taken;

impl Connection {
    /// A connection, and where what callers send comes out.
    pub(super) fn new(manner: Manner) -> (Arc<Self>, mpsc::Receiver<Vec<u8>>) {
        let (stdin, unread) = mpsc::channel(UNREAD);
        let connection = Self {
            manner,
            stdin,
            next: AtomicU64::new(1),
            state: Mutex::new(State::new(Clock.instant())),
            up: watch::Sender::new(false),
            end: watch::Sender::new(End::No),
        };
        (Arc::new(connection), unread)
    }

    /// Whether its process speaks a stateless revision.
    pub(super) fn is_stateless(&self) -> bool {
        match self.manner {
            Manner::Session => false,
            Manner::Caller | Manner::Everybody => true,
        }
    }

    /// Sends a request, whose answer comes into the inbox. With `cancels`, the process is told when the
    /// ticket is dropped before.
    pub(super) async fn request(
        self: &Arc<Self>,
        id: Id,
        body: &[u8],
        kind: Listening,
        cancels: bool,
    ) -> Result<(Ticket, Inbox), Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let message::Numbered { line, token } = message::number(body, number)?;
        let (outbox, inbox) = outbox();
        {
            let mut state = self.lock();
            if state.over {
                return Err(Over.into());
            }
            if kind == Listening::Everything {
                state.empty_backlog(&outbox);
            }
            state.calls.insert(number, Waiting { id, token, outbox, kind });
        }
        let ticket = Ticket { connection: Arc::clone(self), number, cancels };
        self.write(line).await?;
        Ok((ticket, inbox))
    }

    /// Sends a message that has no answer.
    pub(super) async fn notify(&self, body: &[u8]) -> Result<(), Over> {
        self.write(message::plain(body)).await
    }

    /// Passes a cancellation on, if what it is about still runs, and ends the call: no answer is expected any
    /// more (MCP 2025-11-25 `basic/utilities/cancellation`), and few servers send one. Only the session itself
    /// names its ids.
    pub(super) async fn cancel(&self, body: &[u8]) -> Result<(), Over> {
        let number = message::cancelled(body).and_then(|id| {
            let state = self.lock();
            let mut calls = state.calls.iter();
            calls.find(|(_, call)| *call.id.as_json() == *id).map(|(number, _)| *number)
        });
        let line = number.and_then(|number| message::number_cancelled(body, number));
        let (Some(number), Some(line)) = (number, line) else { return Ok(()) };
        self.write(line).await?;
        if let Some(call) = self.lock().calls.remove(&number) {
            // Whoever has gone needs no end.
            let _ = call.outbox.put(Part::End);
        }
        Ok(())
    }

    /// Opens the session's stream of server messages.
    pub(super) fn stream(&self) -> Result<Inbox, Taken> {
        let mut state = self.lock();
        if state.stream.as_ref().is_some_and(Outbox::is_taken) {
            return Err(Taken);
        }
        let (outbox, inbox) = outbox();
        state.used = Clock.instant();
        if !state.over {
            state.empty_backlog(&outbox);
            state.stream = Some(outbox);
        }
        Ok(inbox)
    }

    /// Takes a message of the process. What it gives back is for the process.
    pub(super) fn deliver(&self, sent: &Sent) -> Option<Vec<u8>> {
        self.up.send_if_modified(|up| !std::mem::replace(up, true));
        let mut state = self.lock();
        match &sent.kind {
            Sort::Answer { number, error } => {
                let call = number.and_then(|number| state.calls.remove(&number));
                state.used = Clock.instant();
                if let Some(call) = call {
                    let answer = sent.for_caller(&call.id, call.token.as_deref());
                    // Whoever has gone meanwhile gets nothing.
                    let _ = call.outbox.put(Part::Answer(answer.into(), *error));
                } else {
                    tracing::debug!("an answer that nobody waits for is dropped");
                }
                None
            }
            Sort::About(number) => {
                state.tell(*number, sent);
                None
            }
            Sort::Stray => {
                tracing::debug!("progress of no call is dropped");
                None
            }
            Sort::Log | Sort::Notice => {
                let given = match self.manner {
                    Manner::Session => state.pass_on(sent),
                    Manner::Caller => sent.kind == Sort::Log && state.tell_only_call(sent),
                    Manner::Everybody => false,
                };
                if !given {
                    tracing::debug!("a notification that nobody can be given is dropped");
                }
                None
            }
            Sort::Question { id, method } => {
                let asked = self.manner == Manner::Session && state.pass_on(sent);
                match (asked, &**method) {
                    (true, _) => None,
                    (false, "ping") => Some(message::pong(id)),
                    (false, _) => {
                        tracing::warn!(method, "a question of a process that nobody can be asked");
                        Some(message::refuse(id, "there is nobody who could be asked this"))
                    }
                }
            }
        }
    }

    /// What a process sent can't be read: whoever waits may have waited for that.
    pub(super) fn fail_calls(&self) {
        for (_, call) in std::mem::take(&mut self.lock().calls) {
            let _ = call.outbox.put(Part::Unreadable);
        }
    }

    /// Whether the process has said anything yet; the wait for that.
    pub(super) async fn up(&self) {
        // The sender lives in `self`, so the wait can't fail.
        let _ = self.up.subscribe().wait_for(|up| *up).await;
    }

    pub(super) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// Has the process end. The first reason is the one that counts.
    pub(super) fn end(&self, why: End) {
        self.lock().over = true;
        self.end.send_if_modified(|end| {
            let first = *end == End::No;
            if first {
                *end = why;
            }
            first
        });
    }

    /// Waits until the process has to end.
    pub(super) async fn ending(&self) {
        // The sender lives in `self`, so the wait can't fail.
        let _ = self.end.subscribe().wait_for(|end| *end != End::No).await;
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Nothing comes any more, for the reason given back. Calls in flight see their inboxes end.
    pub(super) fn finish(&self) -> End {
        let why = *self.end.borrow();
        self.lock().finish(why == End::Asked);
        why
    }

    /// Waits until nobody has used the process for so long, and lets nobody use it from then on.
    pub(super) async fn unused(&self, limit: Duration) {
        loop {
            let left = self.lock().unused(limit, Clock.instant());
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    /// Ends the process if nobody has a call at it.
    pub(super) fn end_if_unused(&self) -> bool {
        let unused = self.lock().end_if_unused();
        if unused {
            self.end(End::Asked);
        }
        unused
    }

    /// When it was last used.
    pub(super) fn used(&self) -> Instant {
        self.lock().used
    }

    async fn write(&self, line: Vec<u8>) -> Result<(), Over> {
        {
            let mut state = self.lock();
            if state.over {
                return Err(Over);
            }
            state.used = Clock.instant();
        }
        self.stdin.send(line).await.map_err(|_| Over)
    }

    /// For what isn't worth waiting for a process that doesn't read.
    pub(super) fn try_write(&self, line: Vec<u8>) {
        if self.stdin.try_send(line).is_err() {
            tracing::debug!("a process takes no more");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        let unanswered = state.calls.remove(&self.number).is_some();
        state.used = Clock.instant();
        drop(state);
        if unanswered && self.cancels {
            self.connection.try_write(message::cancel(self.number));
        }
    }
}

/// Why a request can't be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Over(#[from] Over),
    #[error(transparent)]
    Unreadable(#[from] message::Unreadable),
}

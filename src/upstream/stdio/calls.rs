//! Who waits for what at one process.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    message::Sent,
    outbox::{Outbox, Part, Refused},
};
use crate::protocol::Id;

/// Messages without a call that may wait for their session to open a stream, and their bytes.
const BACKLOG: usize = 256;
const BACKLOG_BYTES: usize = 1 << 20;

/// The calls and the stream at one process.
#[derive(Debug)]
pub(super) struct State {
    /// By their numbers, so that the oldest comes first.
    pub(super) calls: BTreeMap<u64, Waiting>,
    /// The session's stream of server messages.
    pub(super) stream: Option<Outbox>,
    backlog: VecDeque<Bytes>,
    backlog_bytes: usize,
    /// Nothing is taken any more.
    pub(super) over: bool,
    /// When it was last used; from there on it may be unused.
    pub(super) used: Instant,
}

/// A call that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: Id,
    pub(super) token: Option<Box<str>>,
    pub(super) outbox: Outbox,
    pub(super) kind: Listening,
}

/// What a call takes beside its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    /// Nothing: its caller takes one document.
    Answer,
    /// What names it.
    Own,
    /// That, and what names no call.
    Everything,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            calls: BTreeMap::new(),
            stream: None,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            over: false,
            used: now,
        }
    }

    /// How long it takes until nobody has used the process for so long, if nobody does; zero ends it.
    pub(super) fn unused(&mut self, limit: Duration, now: Instant) -> Duration {
        let listened = self.stream.as_ref().is_some_and(Outbox::is_taken);
        if listened || !self.calls.is_empty() {
            self.used = now;
        }
        let left = limit.saturating_sub(now.saturating_duration_since(self.used));
        self.over |= left.is_zero();
        left
    }

    /// Lets nobody use the process any more, if nobody does.
    pub(super) fn end_if_unused(&mut self) -> bool {
        let listened = self.stream.as_ref().is_some_and(Outbox::is_taken);
        let unused = !self.over && !listened && self.calls.is_empty();
        self.over |= unused;
        unused
    }

    /// Nothing comes any more; calls in flight see their inboxes end, and so does the stream, in good order
    /// if that was wanted.
    pub(super) fn finish(&mut self, wanted: bool) {
        self.over = true;
        self.calls.clear();
        self.backlog.clear();
        if let Some(stream) = self.stream.take().filter(|_| wanted) {
            // Whoever has gone needs no end.
            let _ = stream.put(Part::End);
        }
    }

    /// Gives a call what names it. One who takes nothing any more loses its place, and with it the answer.
    pub(super) fn tell(&mut self, number: u64, sent: &Sent) {
        let Some(call) = self.calls.get(&number) else { return };
        if call.kind == Listening::Answer {
            return;
        }
        let message = sent.for_caller(&call.id, call.token.as_deref());
        if call.outbox.put(Part::Event(message.into())) == Err(Refused::Full) {
            self.calls.remove(&number);
        }
    }

    /// Gives what names no call to the session: on its stream, or on that of its oldest call, or later.
    pub(super) fn pass_on(&mut self, sent: &Sent) -> bool {
        let message = || Part::Event(sent.as_it_came().into());
        if let Some(stream) = &self.stream {
            match stream.put(message()) {
                Ok(()) => return true,
                Err(Refused::Gone | Refused::Full) => self.stream = None,
            }
        }
        let carrier = self.calls.values().find(|call| call.kind == Listening::Everything);
        let carried = carrier.is_some_and(|call| call.outbox.put(message()).is_ok());
        carried || self.keep(sent.as_it_came().into())
    }

    /// Gives a line of a log to the call that it must be about, because there is no other.
    pub(super) fn tell_only_call(&self, sent: &Sent) -> bool {
        let mut calls = self.calls.values().filter(|call| call.kind != Listening::Own);
        let (Some(call), None) = (calls.next(), calls.next()) else { return false };
        call.kind == Listening::Everything
            && call.outbox.put(Part::Event(sent.as_it_came().into())).is_ok()
    }

    fn keep(&mut self, message: Bytes) -> bool {
        let fits =
            self.backlog.len() < BACKLOG && self.backlog_bytes + message.len() <= BACKLOG_BYTES;
        if fits {
            self.backlog_bytes += message.len();
            self.backlog.push_back(message);
        }
        fits
    }

    pub(super) fn empty_backlog(&mut self, outbox: &Outbox) {
        self.backlog_bytes = 0;
        for message in self.backlog.drain(..) {
            // It is new, and has room for all of it.
            let _ = outbox.put(Part::Event(message));
        }
    }
}

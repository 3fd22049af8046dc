//! The events of one stream, each looked at before it goes on.
//!
//! Only whole events go on, in a form that all readers read alike, and an event that asks for nothing goes on
//! as it came, after a look at its keys. One that can't go on is left out, or has an error for whoever waits
//! in its place; the stream lives on. What is left of a piece at the stream's end is no event (WHATWG HTML,
//! "Server-sent events") and goes nowhere. A call's stream that ends without its answer has failed.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    asked::{Back, Passage},
    refusal,
    sse_endpoint::Open,
};
use crate::{
    denial::{Denial, Row},
    exchange::{Asking, End},
    protocol::{
        Era, Id,
        mcp::server::{self, Glance},
        sse::{Event, Splitter},
    },
    response::{ListFilter, OwnTasks, Unreadable},
};

/// The look at one stream.
pub(super) struct Events<'a> {
    back: Back<'a>,
    /// Where lists may be among them.
    lists: Option<ListFilter<'a>>,
    splitter: Splitter,
    /// Why the caller got an error in place of the answer to its call.
    refused: Option<Row>,
    /// Whether it is the stream of a call, which has one answer.
    owes: bool,
    /// Whether the caller can come back for the rest.
    resumable: bool,
}

impl<'a> Events<'a> {
    /// For events of at most `limit` bytes each. `owes` says whether an answer has to be among them.
    pub(super) fn new(
        back: Back<'a>,
        lists: Option<ListFilter<'a>>,
        limit: usize,
        owes: bool,
    ) -> Self {
        let splitter = Splitter::new(limit);
        Self { back, lists, splitter, refused: None, owes, resumable: false }
    }

    /// Where the server takes answers to its requests, on a stream of the HTTP+SSE transport.
    pub(super) fn answer_at(&mut self, open: Option<Arc<Open>>) {
        self.back.open = open;
    }

    /// Takes the next part of the stream; the events that it completes, each with one reading.
    pub(super) fn split(&mut self, part: Bytes) -> Result<Vec<Event>, Denial> {
        let mut events = Vec::new();
        self.splitter.feed(part, &mut events).map_err(|_| Denial::UpstreamUnreadable)?;
        events.retain_mut(|event| {
            if event.clear().is_err() {
                self.back.withhold("unreadable");
                return false;
            }
            self.resumable |= self.owes
                && self.back.call.era == Era::Legacy
                && event.id().is_some_and(|id| !id.is_empty());
            !event.raw().is_empty()
        });
        Ok(events)
    }

    /// Bytes of the event that isn't whole yet.
    pub(super) fn held(&self) -> usize {
        self.splitter.held()
    }

    /// How a stream ended that came to its own end.
    pub(super) fn end(&self) -> End {
        self.refused.map_or(End::Answered, End::Broken)
    }

    /// Whether the stream may not end yet: its caller would wait for the answer, some of them for ever.
    pub(super) fn owes_answer(&self) -> bool {
        self.owes
            && !self.resumable
            && self.refused.is_none()
            && !self.back.has_replied()
            && !self.back.is_cancelled()
    }

    /// What goes on of an event for which nothing has to be looked up, and about which nothing has to be asked:
    /// most hold a plain answer.
    pub(super) fn plain(&mut self, event: &Event) -> Option<Bytes> {
        if let Some(data) = event.data() {
            match server::glance(&data) {
                Glance::Asks => return None,
                Glance::Answers | Glance::Nothing
                    if self.lists.is_some() && !ListFilter::tasks(&data).is_empty() =>
                {
                    return None;
                }
                // A call's stream brings nobody else's.
                Glance::Answers => self.back.note_answer(),
                Glance::Nothing => {}
            }
        }
        Some(self.listed(event, &OwnTasks::new()))
    }

    /// What goes on of any other, and what it asks. An error means that the stream has to end.
    pub(super) async fn judged(&mut self, event: &Event) -> Result<(Bytes, Vec<Asking>), Denial> {
        let data = event.data().unwrap_or_default();
        let passage = match server::glance(&data) {
            Glance::Asks => self.back.judge(&data).await?,
            Glance::Answers => {
                self.back.note_answer();
                Passage::Goes(Vec::new())
            }
            Glance::Nothing => Passage::Goes(Vec::new()),
        };
        Ok(match passage {
            Passage::Goes(askings) => {
                let own = match self.lists {
                    Some(_) => self.back.own_tasks(&data).await,
                    None => OwnTasks::new(),
                };
                (self.listed(event, &own), askings)
            }
            Passage::Withheld => (Bytes::new(), Vec::new()),
            Passage::Refused(None, _) => {
                self.back.withhold("unreadable");
                (Bytes::new(), Vec::new())
            }
            Passage::Refused(Some(id), denial) => (self.refuse(event, &id, &denial), Vec::new()),
        })
    }

    fn listed(&mut self, event: &Event, own: &OwnTasks) -> Bytes {
        let Some(lists) = &self.lists else { return event.raw().clone() };
        match lists.event(event, own) {
            Ok(bytes) => bytes,
            Err(Unreadable) => match self.back.call.id().cloned() {
                Some(id) => self.refuse(event, &id, &Denial::UpstreamUnreadable),
                None => {
                    self.back.withhold("unreadable");
                    Bytes::new()
                }
            },
        }
    }

    /// The event with an error in place of what it held.
    fn refuse(&mut self, event: &Event, id: &Id, denial: &Denial) -> Bytes {
        self.back.withhold("refused");
        if self.back.call.id() == Some(id) {
            self.refused = Some(denial.row(self.back.call.era));
        }
        let cause = self.back.occasion.cause;
        event.with_data(&refusal::error_of(denial, id, self.back.call.era, cause))
    }
}

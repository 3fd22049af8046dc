//! The events of one stream, each looked at before it goes on.
//!
//! Only whole events go on, in a form that all readers read alike, and an event that asks for nothing goes on
//! as it came, after a look at its keys. One that can't go on is left out, or has an error for whoever waits
//! in its place; the stream lives on. What is left of a piece at the stream's end is no event (WHATWG HTML,
//! "Server-sent events") and goes nowhere.

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
        Id,
        mcp::server,
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
}

impl<'a> Events<'a> {
    /// For events of at most `limit` bytes each.
    pub(super) fn new(back: Back<'a>, lists: Option<ListFilter<'a>>, limit: usize) -> Self {
        Self { back, lists, splitter: Splitter::new(limit), refused: None }
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

    /// Whether nothing has to be looked up for an event, or asked about it: it holds a plain answer.
    pub(super) fn is_plain(&self, event: &Event) -> bool {
        let Some(data) = event.data() else { return true };
        !server::may_ask(&data) && (self.lists.is_none() || ListFilter::tasks(&data).is_empty())
    }

    /// What goes on of a plain event.
    pub(super) fn plain(&mut self, event: &Event) -> Bytes {
        // Without a method it is an answer, and a call's stream brings no other's. Without data it is none.
        if event.data().is_some_and(|data| !data.is_empty()) {
            self.back.note_answer();
        }
        self.listed(event, &OwnTasks::new())
    }

    /// What goes on of any other, and what it asks. An error means that the stream has to end.
    pub(super) async fn judged(&mut self, event: &Event) -> Result<(Bytes, Vec<Asking>), Denial> {
        let data = event.data().unwrap_or_default();
        let passage = match server::may_ask(&data) {
            true => self.back.judge(&data).await?,
            false => Passage::Goes(Vec::new()),
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

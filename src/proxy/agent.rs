//! What agents answer (A2A): documents, and streams of what becomes of a task.
//!
//! Every message of an agent is read before it goes on. Tasks and conversations that it hands out are bound to the
//! caller first, lists are cut down to the caller's own tasks, and what it says of where it can be reached, its
//! card, is turned into where Lictor is. The rest goes on as it came.
//!
//! Refuses: an answer that can't be read strictly, and one that hands out what is somebody else's.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use pingora::protocols::http::ServerSession;

use super::{Halt, Proxy, Read, Served, answer::Coming, card, collect::Collected};
use crate::{
    delegation::link::{Inbound, LINGER},
    denial::Denial,
    exchange::{End, Exchange},
    identity::Principal,
    protocol::{
        Call, Kind,
        a2a::answer::{self, Given, Listed},
        sse::{Event, Splitter},
    },
    response::{
        self,
        agent_card::{self, Settings},
    },
    state,
};

/// Most tasks of a list that are looked up; those beyond are left out.
const MAX_TASKS: usize = 1024;

/// An agent's answer, on its way to the caller.
struct Delivery<'a> {
    proxy: &'a Proxy,
    served: &'a Served,
    call: &'a Call,
    owner: Arc<str>,
    live: Option<&'a Inbound>,
    /// What this answer has handed over already.
    handed: HashSet<(state::Kind, Box<str>)>,
}

impl Proxy {
    /// Passes a document of an agent on. It is always held: nobody can act on a part of one.
    pub(super) async fn agent_document(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &Read,
        mut coming: Coming,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal)) = (&exchange.call, &exchange.principal) else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        let limit = served.terms.limits.answer;
        let parties = (call, principal, &exchange.behalf);
        let whole = match self.collect(session, parties, read, &mut coming, limit).await? {
            Collected::Whole(whole) => whole,
            Collected::Begun(denial) => return Err(denial.into()),
        };
        let mut delivery = self.delivery(call, principal, served, read.live.as_ref());
        let edited = match delivery.document(&whole).await {
            Ok(edited) => edited,
            // An error page says enough by its status.
            Err(Denial::UpstreamUnreadable) if !coming.head.status.is_success() => {
                Some(Bytes::new())
            }
            Err(denial) => return Err(denial.into()),
        };
        let headers = self.headers_for_caller(session, call, &coming.head, edited.is_some());
        let body = edited.unwrap_or(whole);
        let head = (coming.head.status, headers);
        let sent = self.deliver(session, exchange, served, head, body).await;
        exchange.end = Some(End::Answered);
        sent
    }

    fn delivery<'a>(
        &'a self,
        call: &'a Call,
        principal: &Principal,
        served: &'a Served,
        live: Option<&'a Inbound>,
    ) -> Delivery<'a> {
        let owner = principal.id.shared();
        Delivery { proxy: self, served, call, owner, live, handed: HashSet::new() }
    }

    /// The look at a stream of an agent's events.
    pub(super) fn agent_events<'a>(
        &'a self,
        call: &'a Call,
        principal: &Principal,
        served: &'a Served,
        live: Option<&'a Inbound>,
    ) -> AgentEvents<'a> {
        let splitter = Splitter::new(served.terms.limits.answer);
        AgentEvents { delivery: self.delivery(call, principal, served, live), splitter }
    }
}

impl Delivery<'_> {
    /// What goes on in place of a document; `None` if it goes on as it is.
    async fn document(&mut self, whole: &[u8]) -> Result<Option<Bytes>, Denial> {
        if whole.is_empty() {
            return Ok(None);
        }
        if response::may_be_wide(whole) {
            return Err(Denial::UpstreamUnreadable);
        }
        let given = match answer::read(self.call, whole) {
            Ok(given) => given,
            Err(unreadable) => {
                let (upstream, reason) = (&*self.served.server, &*unreadable.detail);
                tracing::warn!(upstream, reason, "an agent's answer can't be read");
                return Err(Denial::UpstreamUnreadable);
            }
        };
        if self.served.route.shadow {
            // Denials are only recorded, and what is the caller's is remembered for later.
            let _ = self.hand_over(&given).await;
            return Ok(None);
        }
        self.hand_over(&given).await?;
        if let (true, Some(publisher)) = (card::brings_card(self.call), &self.served.card) {
            return self.card(whole, publisher.settings());
        }
        Ok(match &given.listed {
            Some(listed) => Some(self.own(whole, listed).await),
            None => None,
        })
    }

    /// Gives what an answer hands out to the caller, before the caller hears of it.
    async fn hand_over(&mut self, given: &Given) -> Result<(), Denial> {
        if let (Some(live), Some(runs)) = (self.live, given.runs) {
            // What the agent calls for a task that goes on after this answer is on this caller's behalf, too.
            let now = self.proxy.shared.record.clock.unix();
            live.linger(runs.then(|| now + LINGER));
        }
        let tasks = given.tasks.iter().map(|id| (state::Kind::Task, id));
        let contexts = given.contexts.iter().map(|id| (state::Kind::Context, id));
        for (kind, id) in tasks.chain(contexts) {
            let named = (kind, id.clone());
            if self.handed.contains(&named) {
                continue;
            }
            let shared = &self.proxy.shared;
            let (server, now) = (&self.served.server, shared.record.clock.unix());
            let bound = shared.owners.bind(kind, server, id, &self.owner, now).await;
            bound.map_err(Proxy::undeliverable)?;
            if let Some(live) = self.live {
                live.name(id);
            }
            self.handed.insert(named);
        }
        Ok(())
    }

    /// A card that comes with an answer, as what leads through us.
    fn card(&self, whole: &[u8], settings: &Settings) -> Result<Option<Bytes>, Denial> {
        let whole = Bytes::copy_from_slice(whole);
        let rewritten = match self.call.kind {
            Kind::Operation => agent_card::rewrite(&whole, settings),
            Kind::Request(_)
            | Kind::Notification
            | Kind::Response(_)
            | Kind::Stream
            | Kind::End => agent_card::rewrite_result(&whole, settings),
        };
        rewritten.map(Some).map_err(|error| {
            tracing::warn!(upstream = &*self.served.server, %error, "an agent card isn't shown");
            Denial::UpstreamUnreadable
        })
    }

    /// A list without the tasks of others. What can't be looked up isn't shown.
    async fn own(&self, whole: &[u8], listed: &Listed) -> Bytes {
        let shared = &self.proxy.shared;
        let now = shared.record.clock.unix();
        let mut own = HashSet::new();
        for (id, _) in listed.tasks.iter().take(MAX_TASKS) {
            let owner = shared.owners.owner(state::Kind::Task, &self.served.server, id, now).await;
            if matches!(owner, Ok(Some(owner)) if owner == self.owner) {
                own.insert(&**id);
            }
        }
        listed.only(whole, |id| own.contains(id))
    }
}

/// The events of one stream of an agent, each read before it goes on.
pub(super) struct AgentEvents<'a> {
    delivery: Delivery<'a>,
    splitter: Splitter,
}

impl AgentEvents<'_> {
    /// Takes the next part of the stream; the events that it completes.
    pub(super) fn split(&mut self, part: Bytes) -> Result<Vec<Event>, Denial> {
        let mut events = Vec::new();
        match self.splitter.feed(part, &mut events) {
            Ok(()) => Ok(events),
            Err(_) => Err(Denial::UpstreamUnreadable),
        }
    }

    /// Bytes of the event that isn't whole yet.
    pub(super) fn held(&self) -> usize {
        self.splitter.held()
    }

    /// What goes on of an event. An error means that the stream has to end.
    pub(super) async fn seen(&mut self, event: &mut Event) -> Result<Bytes, Denial> {
        event.clear().map_err(|_| Denial::UpstreamUnreadable)?;
        let Some(data) = event.data().filter(|data| !data.is_empty()) else {
            return Ok(event.raw().clone());
        };
        Ok(match self.delivery.document(&data).await? {
            Some(edited) => event.with_data(&edited),
            None => event.raw().clone(),
        })
    }
}

//! The other direction: what a server asks of its caller while it answers.
//!
//! Every message of a server that could be more than a plain answer comes through here. Requests are judged
//! by the same chain as calls; so are those within a result. What is permitted goes on with the bytes that
//! were judged, after its intent is on record where it may change something. What isn't is withheld, and
//! whoever waits is told: the server of its own request, or the caller of its call. Tasks and continuations
//! that a server hands out are bound to the caller before they go on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::{Proxy, Served, sse_endpoint::Open};
use crate::{
    delegation::Behalf,
    denial::Denial,
    exchange::{Asking, Occasion},
    governance::{Facts, Owned, Permit, Request},
    identity::Principal,
    ledger::Event,
    protocol::{
        Call, DecodeError, Era, Fault, Id, ProgressToken,
        mcp::server::{self, Asked, Notice, Outcome, ServerMessage, Undecodable, Waits},
        method::Governs,
    },
    response::{ListFilter, OwnTasks},
    state,
    upstream::OnBehalf,
};

/// What becomes of a message of a server.
#[derive(Debug)]
pub(super) enum Passage {
    /// It goes on; with it goes what it asks.
    Goes(Vec<Asking>),
    /// It goes nowhere.
    Withheld,
    /// The caller gets this in its place, as the answer to its request with this id.
    Refused(Option<Id>, Denial),
}

/// One exchange, as the server's messages in its answer see it.
pub(super) struct Back<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) served: &'a Served,
    pub(super) call: &'a Call,
    pub(super) principal: &'a Principal,
    pub(super) behalf: &'a Behalf,
    pub(super) owned: &'a Owned,
    pub(super) permit: &'a Permit,
    /// For whom the call went out, and with it what is sent beside it.
    pub(super) on_behalf: &'a OnBehalf,
    pub(super) occasion: Occasion,
    /// The legacy session that the answer belongs to.
    pub(super) session: Option<Box<str>>,
    /// The stream of the HTTP+SSE transport that the answer is, once it is open.
    pub(super) open: Option<Arc<Open>>,
    /// Whether the answer to the call went on, and no task with it.
    pub(super) answered: AtomicBool,
    /// Whether it went on, be it with a task.
    pub(super) replied: AtomicBool,
    /// Places for refusals on their way to the server.
    pub(super) replies: Arc<Semaphore>,
}

impl Back<'_> {
    /// Judges an event that [`server::glance`] has found to ask. An error means that the stream has to end.
    pub(super) async fn judge(&self, data: &[u8]) -> Result<Passage, Denial> {
        let digest = Sha256::digest(data).into();
        let message = server::decode(data, self.call.era);
        self.admit(&message)?;
        Ok(match message {
            Ok(ServerMessage::Request { id, asked }) => self.request(&id, &asked, digest).await,
            Ok(ServerMessage::Notification(notice)) => self.notice(&notice, digest).await,
            Ok(ServerMessage::Answer { id, outcome }) => self.answer(id, outcome, digest).await,
            Err(undecodable) => self.undecodable(undecodable, data, digest),
        })
    }

    /// Judges a document of which [`server::may_ask`] said yes. Only an answer comes as one.
    pub(super) async fn judge_document(&self, data: &[u8]) -> Result<Vec<Asking>, Denial> {
        let message = server::decode(data, self.call.era);
        self.admit(&message)?;
        match message {
            Ok(ServerMessage::Answer { outcome, .. }) => {
                self.outcome(outcome, Sha256::digest(data).into()).await
            }
            Ok(ServerMessage::Request { .. } | ServerMessage::Notification(_)) | Err(_) => {
                Err(Denial::UpstreamUnreadable)
            }
        }
    }

    /// A refusal is written down without waiting, so a server could fill the memory with what it asks: what
    /// needs entries is looked at only while the ledger takes some.
    fn admit(&self, message: &Result<ServerMessage, Undecodable>) -> Result<(), Denial> {
        let needs_entries = match message {
            Ok(ServerMessage::Request { .. }) => true,
            Ok(ServerMessage::Notification(notice)) => !notice.requests.is_empty(),
            Ok(ServerMessage::Answer { outcome, .. }) => match outcome {
                Outcome::InputRequired { .. } => true,
                Outcome::Complete | Outcome::Task { .. } | Outcome::Error => false,
            },
            Err(undecodable) => matches!(undecodable.waits, Waits::Server(_)),
        };
        if !needs_entries {
            return Ok(());
        }
        self.proxy.shared.record.ledger.admits(false).map_err(|_| Denial::LedgerUnavailable)
    }

    async fn answer(&self, id: Option<Id>, outcome: Outcome, digest: [u8; 32]) -> Passage {
        // The progress of a task goes on after the answer that made it (MCP 2025-11-25
        // `basic/utilities/tasks`).
        match outcome {
            Outcome::Task { .. } => self.replied.store(true, Ordering::Relaxed),
            Outcome::Complete | Outcome::InputRequired { .. } | Outcome::Error => {
                self.note_answer();
            }
        }
        match self.outcome(outcome, digest).await {
            Ok(askings) => Passage::Goes(askings),
            Err(denial) => Passage::Refused(id.or_else(|| self.call.id().cloned()), denial),
        }
    }

    async fn request(&self, id: &Id, asked: &Asked, digest: [u8; 32]) -> Passage {
        let (mut asking, verdict) = self.ask(asked, digest);
        let verdict = match verdict {
            Ok(()) => self.write_intent(&asking).await,
            Err(denial) => Err(denial),
        };
        match verdict {
            Ok(()) => {
                self.proxy.shared.answered.forget(&self.address(id));
                Passage::Goes(vec![asking])
            }
            Err(denial) => {
                asking.refuse(&denial);
                self.reply(asking, id, &denial);
                Passage::Withheld
            }
        }
    }

    async fn notice(&self, notice: &Notice, digest: [u8; 32]) -> Passage {
        // Strict clients give up their connection over a token that they don't know, or no more.
        if notice.method.name() == "notifications/progress" {
            if self.is_answered() {
                return self.withhold("late");
            }
            if !self.may_tell(notice.progress_token.as_ref()) {
                return self.withhold("progress");
            }
        }
        if let Some(task) = &notice.task
            && !self.is_own(state::Kind::Task, task).await
        {
            return self.withhold("task");
        }
        match self.requests(&notice.requests, digest).await {
            Ok(askings) => Passage::Goes(askings),
            Err(_) => self.withhold("request"),
        }
    }

    async fn outcome(&self, outcome: Outcome, digest: [u8; 32]) -> Result<Vec<Asking>, Denial> {
        match outcome {
            Outcome::Complete | Outcome::Error => Ok(Vec::new()),
            Outcome::InputRequired { requests, state } => {
                let askings = self.requests(&requests, digest).await?;
                if let Some(state) = state {
                    let continuation = self.call.continuation_with(&state);
                    let (kind, owner) = (state::Kind::Continuation, &self.occasion.caller);
                    self.bind(kind, &Proxy::continuation_of(owner, continuation.as_str())).await?;
                }
                Ok(askings)
            }
            Outcome::Task { id } => {
                self.bind(state::Kind::Task, &id).await?;
                Ok(Vec::new())
            }
        }
    }

    /// Judges what is asked within one message: all of it has to be permitted.
    async fn requests(
        &self,
        requests: &[(Box<str>, Asked)],
        digest: [u8; 32],
    ) -> Result<Vec<Asking>, Denial> {
        let mut refused = false;
        let mut askings = Vec::with_capacity(requests.len());
        for (_, asked) in requests {
            let (mut asking, verdict) = self.ask(asked, digest);
            if let Err(denial) = verdict {
                refused = true;
                asking.refuse(&denial);
            }
            askings.push(asking);
        }
        let mut denial = refused.then_some(Denial::ServerRequest);
        for asking in &askings {
            if denial.is_none() {
                denial = self.write_intent(asking).await.err();
            }
        }
        let Some(denial) = denial else { return Ok(askings) };
        for asking in &mut askings {
            // Those that were permitted don't go on without the others.
            asking.refuse(&denial);
        }
        Err(denial)
    }

    /// Puts one request to the chain.
    fn ask(&self, asked: &Asked, digest: [u8; 32]) -> (Asking, Result<(), Denial>) {
        let method = Some(asked.method.clone());
        let mut asking = Asking::begin(self.occasion.clone(), method, digest);
        let policies = self.proxy.shared.policies.load_full();
        let version = Arc::clone(policies.version());
        let revocations = self.proxy.shared.revocations.current();
        let owned = self.owned.clone();
        let facts = Facts { policies, owned, push_refused: None, revocations };
        let request = Request {
            principal: self.principal,
            call: self.call,
            asked: Some(asked),
            server: &self.served.server,
            callee: self.served.upstream.settings().identity(),
            listener: &self.proxy.name,
            behalf: self.behalf,
            shadow: self.served.route.shadow,
        };
        let verdict = asking.judged(&version, self.served.terms.chain.evaluate(&request, &facts));
        if let Err(denial) = &verdict {
            tracing::info!(
                decision = %asking.id,
                cause = %self.occasion.cause,
                upstream = &*self.served.server,
                method = asking.method(),
                kind = denial.row(self.call.era).kind,
                "refused a request of the server"
            );
        }
        (asking, verdict)
    }

    /// No entry, no forward: the same for this direction.
    async fn write_intent(&self, asking: &Asking) -> Result<(), Denial> {
        let ledger = &self.proxy.shared.record.ledger;
        let changes = asking.may_change_state();
        ledger.admits(changes).map_err(|_| Denial::LedgerUnavailable)?;
        if ledger.needs_intent(changes) {
            let intent = asking.entry(Event::Intent);
            ledger.intent(intent).await.map_err(|_| Denial::LedgerUnavailable)?;
        }
        Ok(())
    }

    /// A message that can't be judged doesn't go on; whoever can be told is told.
    fn undecodable(&self, fault: Undecodable, data: &[u8], digest: [u8; 32]) -> Passage {
        tracing::warn!(
            cause = %self.occasion.cause,
            upstream = &*self.served.server,
            reason = &*fault.detail,
            "withheld a message of the server"
        );
        match fault.waits {
            Waits::Server(id) => {
                let denial = Denial::Undecodable(DecodeError {
                    fault: Fault::Invalid,
                    id: None,
                    notification: false,
                    era: self.call.era,
                    detail: fault.detail,
                    requested: None,
                    rest: false,
                });
                let mut asking = Asking::begin(self.occasion.clone(), None, digest);
                asking.refuse(&denial);
                self.reply(asking, &id, &denial);
                Passage::Withheld
            }
            Waits::Client(id) => Passage::Refused(Some(id), Denial::UpstreamUnreadable),
            // Without a method it was meant for an answer, and nobody else's comes on this way.
            Waits::Nobody if memchr::memmem::find(data, b"\"method\"").is_none() => {
                match self.call.id() {
                    Some(id) => Passage::Refused(Some(id.clone()), Denial::UpstreamUnreadable),
                    None => self.withhold("unreadable"),
                }
            }
            Waits::Nobody => self.withhold("unreadable"),
        }
    }

    pub(super) fn withhold(&self, reason: &'static str) -> Passage {
        self.occasion.record.metrics.withheld(&self.served.server, reason);
        Passage::Withheld
    }

    /// Gives something that the server hands out to the caller, before the caller hears of it.
    async fn bind(&self, kind: state::Kind, id: &str) -> Result<(), Denial> {
        let now = self.occasion.record.clock.unix();
        let owners = &self.proxy.shared.owners;
        let bound = owners.bind(kind, &self.served.server, id, &self.occasion.caller, now).await;
        bound.map_err(Proxy::undeliverable)
    }

    /// Those of the tasks in a list that are the caller's. What can't be looked up isn't shown.
    pub(super) async fn own_tasks(&self, message: &[u8]) -> OwnTasks {
        let mut own = OwnTasks::new();
        for task in ListFilter::tasks(message) {
            if self.is_own(state::Kind::Task, &task).await {
                own.insert(task);
            }
        }
        own
    }

    async fn is_own(&self, kind: state::Kind, id: &str) -> bool {
        let now = self.occasion.record.clock.unix();
        let owner = self.proxy.shared.owners.owner(kind, &self.served.server, id, now).await;
        matches!(owner, Ok(Some(owner)) if owner == self.occasion.caller)
    }

    /// The answer to the call goes on.
    pub(super) fn note_answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
        self.replied.store(true, Ordering::Relaxed);
    }

    /// Whether the answer to the call went on, or an error in its place.
    pub(super) fn has_replied(&self) -> bool {
        self.replied.load(Ordering::Relaxed)
    }

    /// Whether the caller expects no answer any more (MCP 2025-11-25 `basic/utilities/cancellation`).
    pub(super) fn is_cancelled(&self) -> bool {
        let Some(id) = self.call.id() else { return false };
        let (cancelled, call) = (&self.proxy.shared.cancelled, self.address(id));
        let is_cancelled = cancelled.contains(&call);
        if is_cancelled {
            cancelled.forget(&call);
        }
        is_cancelled
    }

    /// A stream that listens, or answers the calls of others, is never done.
    fn is_answered(&self) -> bool {
        self.call.id().is_some() && self.answered.load(Ordering::Relaxed)
    }

    /// Whether progress of this token may come on this stream: on that of a call, the call's own. Who asks for a
    /// task hears of the call that made it, and who listens, of any.
    fn may_tell(&self, token: Option<&ProgressToken>) -> bool {
        let governs = self.call.method.rule().map(|rule| rule.governs);
        let of_others = matches!(governs, Some(Governs::Task | Governs::Subscriptions));
        if self.call.id().is_none() || of_others {
            return true;
        }
        token.is_some() && token == self.call.progress_token.as_ref()
    }

    /// Whether the server can be answered at all: modern revisions have no way for that.
    pub(super) fn has_return(&self) -> bool {
        self.call.era == Era::Legacy
    }
}

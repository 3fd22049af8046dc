//! The state of one exchange: a message of a caller and what became of it.
//!
//! One typed field for each thing learned, in the order in which it is learned. Nothing is looked up in
//! here and nothing decided; the exchange loop fills it, the ledger and the metrics read it.
//!
//! INVARIANT: every exchange has exactly one closing ledger entry, written by [`Exchange`]'s `Drop`, so
//! that no early return, disconnect, cancelled task or shutdown can lose it.

mod asking;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tracing::{Span, field};
use uuid::Uuid;

use crate::{
    delegation::{Behalf, Hop, Objection, link::Rung},
    denial::{Denial, Row},
    governance::{Permit, Refusal},
    identity::Principal,
    ledger::{self, Decision, Entry, Event, Ledger, Mode},
    limits::Limited,
    policy,
    protocol::{Call, Protocol},
    telemetry::{
        Clock, Metrics,
        metrics::{Calls, Finished, Verdict},
    },
};

pub use asking::{Asking, Occasion};

/// Where closed exchanges are written down.
#[derive(Clone, Debug)]
pub struct Record {
    /// The ledger.
    pub ledger: Ledger,
    /// The metrics.
    pub metrics: Metrics,
    /// Those of messages whose route is not known.
    pub unrouted: Calls,
    /// The clock.
    pub clock: Clock,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The whole answer was delivered.
    Answered,
    /// Refused, or failed with a refusal's status and code; nothing of an upstream's answer was delivered.
    Refused(Row),
    /// An answer had begun and was ended in band, or cut, for this reason.
    Broken(Row),
    /// The caller went away.
    CallerGone,
    /// The caller did not read for too long.
    CallerStalled,
    /// The process ended before the exchange did.
    Cut,
}

impl End {
    /// The label in ledger and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "ok",
            Self::Refused(row) | Self::Broken(row) => row.kind,
            Self::CallerGone => "client_gone",
            Self::CallerStalled => "client_stalled",
            Self::Cut => "shutdown",
        }
    }
}

/// The route an exchange took.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Name of the upstream.
    pub server: Arc<str>,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// Host of the web API, on a route of plain HTTP.
    pub host: Option<Arc<str>>,
    /// Whether refusals are only recorded.
    pub shadow: bool,
    /// The metrics of its calls.
    pub calls: Calls,
}

/// One exchange; see the module's documentation.
#[derive(Debug)]
pub struct Exchange {
    record: Arc<Record>,
    listener: Arc<str>,
    direction: &'static str,
    started: Instant,
    read_at: Option<Instant>,
    forwarded_at: Option<Instant>,
    /// The call's span, for logs.
    pub span: Span,
    /// Unique and sortable by time (UUIDv7, RFC 9562); also the decision id that callers are told.
    pub id: Uuid,
    /// Who is calling.
    pub principal: Option<Principal>,
    /// Where it goes.
    pub taken: Option<Taken>,
    /// SHA-256 of the request's body.
    pub request_digest: Option<[u8; 32]>,
    /// The decoded message.
    pub call: Option<Call>,
    /// By whose authority it is made.
    pub behalf: Behalf,
    /// Who of those objects to it.
    pub objection: Option<Objection>,
    /// Version of the policies that judged it.
    pub policy_version: Option<Arc<str>>,
    /// What the policies said where the call was refused.
    pub refused_decisions: Vec<policy::Decision>,
    /// The stage that refused it, before there was an intent.
    pub stage: Option<&'static str>,
    /// The limits that it is over, whether that refuses it or is only recorded.
    pub over: Option<Arc<Limited>>,
    /// How limits were held without the store that counts them.
    pub limits_mode: Option<&'static str>,
    /// The proof that it may go on.
    pub permit: Option<Permit>,
    /// How long the ledger took to make the intent durable.
    pub intent_wait: Duration,
    /// How long a token service took.
    pub token_wait: Duration,
    /// Lictor's own time: from the whole message being read to its being forwarded, without those waits.
    pub own_time: Duration,
    /// Label of the denial with which the proxy at the other end refused it.
    pub peer_denied: Option<Arc<str>>,
    /// The revocation that ended it.
    pub revocation: Option<Uuid>,
    /// HTTP status of the answer.
    pub status: Option<u16>,
    /// What was delivered of the answer's body.
    pub delivered: Delivered,
    /// How it ended; `None` while it is going on.
    pub end: Option<End>,
}

/// What a caller received.
#[derive(Debug, Default)]
pub struct Delivered {
    digest: Sha256,
    bytes: u64,
    complete: bool,
}

impl Delivered {
    /// Counts bytes as they are handed to the connection of the caller.
    pub fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// SHA-256 of what was delivered; none where nothing was.
    fn digest(&self) -> Option<[u8; 32]> {
        (self.bytes > 0).then(|| self.digest.clone().finalize().into())
    }

    /// The answer's end was written as well.
    pub fn finish(&mut self) {
        self.complete = true;
    }

    /// Whether the answer's end was written.
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}

impl Exchange {
    /// Begins an exchange; from here on it will be closed in the ledger.
    pub fn begin(record: &Arc<Record>, listener: &Arc<str>, direction: &'static str) -> Self {
        let id = Uuid::now_v7();
        Self {
            span: tracing::debug_span!(
                "call",
                decision = %id,
                enduser.id = field::Empty,
                mcp.method.name = field::Empty,
                gen_ai.tool.name = field::Empty,
                http.response.status_code = field::Empty,
                outcome = field::Empty,
            ),
            id,
            started: record.clock.instant(),
            read_at: None,
            forwarded_at: None,
            record: Arc::clone(record),
            listener: Arc::clone(listener),
            direction,
            principal: None,
            taken: None,
            request_digest: None,
            call: None,
            behalf: Behalf::default(),
            objection: None,
            policy_version: None,
            refused_decisions: Vec::new(),
            stage: None,
            over: None,
            limits_mode: None,
            permit: None,
            intent_wait: Duration::ZERO,
            token_wait: Duration::ZERO,
            own_time: Duration::ZERO,
            peer_denied: None,
            revocation: None,
            status: None,
            delivered: Delivered::default(),
            end: None,
        }
    }

    /// The whole message has arrived; from here on the time is Lictor's own.
    pub fn fully_read(&mut self) {
        self.read_at = Some(self.record.clock.instant());
    }

    /// The call is handed to the upstream now; its bytes are no longer needed here.
    pub fn forward(&mut self) -> Bytes {
        let now = self.record.clock.instant();
        self.forwarded_at = Some(now);
        let own = self.read_at.map(|read| now.saturating_duration_since(read));
        let waited = self.intent_wait + self.token_wait;
        self.own_time = own.unwrap_or_default().saturating_sub(waited);
        self.call.as_mut().map(|call| std::mem::take(&mut call.body)).unwrap_or_default()
    }

    /// Takes note of who refused it, and of what the policies said, whatever was said of it before.
    pub fn refused(&mut self, refusal: Refusal) -> Denial {
        self.permit = None;
        self.stage = Some(refusal.stage);
        if let Denial::DelegationDenied(objection) = &refusal.denial {
            self.objection = Some(objection.clone());
        }
        self.refused_decisions = refusal.decisions;
        refusal.denial
    }

    /// When that was.
    pub fn forwarded(&self) -> Option<Instant> {
        self.forwarded_at
    }

    /// The caller's SPIFFE ID, for logs.
    pub fn peer(&self) -> &str {
        match &self.principal {
            Some(principal) => principal.id.as_str(),
            None => Entry::UNAUTHENTICATED,
        }
    }

    /// The ledger entry as far as the exchange is known.
    pub fn entry(&self, event: Event) -> Entry {
        let call = self.call.as_ref();
        let decisions = match &self.permit {
            Some(permit) => permit.decisions(),
            None => &self.refused_decisions,
        };
        let policies = decisions.iter().flat_map(|decision| decision.policies.iter());
        let class = decisions.iter().map(|decision| decision.class).max();
        let taken = self.taken.as_ref();
        let target = call.and_then(|call| match &call.web {
            Some(facts) => Some(&*facts.traits.path),
            None => call.targets.iter().find_map(|target| target.name()),
        });
        let peer = match &self.principal {
            Some(principal) => principal.id.shared(),
            None => Entry::UNAUTHENTICATED.into(),
        };
        let mut entry = Entry::new(event, self.id, peer, Arc::clone(&self.listener));
        entry.direction = self.direction;
        if let Some(taken) = taken {
            entry.protocol = taken.protocol.as_str();
            entry.server = Some(Arc::clone(&taken.server));
            entry.host.clone_from(&taken.host);
        }
        entry.method = call.map(|call| call.method.name().into());
        entry.target = target.map(Into::into);
        entry.era = call.map(|call| call.era.as_str());
        entry.class = class.map(|class| class.as_str());
        entry.mode =
            if taken.is_some_and(|taken| taken.shadow) { Mode::Shadow } else { Mode::Enforce };
        entry.decision = self.decision();
        entry.stage = self.stage;
        entry.policies = policies.map(Arc::clone).collect();
        entry.policy_version.clone_from(&self.policy_version);
        entry.would_deny = self.would_deny();
        let over = self.over.iter().flat_map(|over| over.exceeded());
        entry.limits = over.map(|one| Arc::clone(&one.limit)).collect();
        entry.limits_mode = self.limits_mode;
        entry.req_sha256 = self.request_digest;
        entry.behalf = self.written_behalf().map(Box::new);
        if event == Event::Intent {
            return entry;
        }
        entry.peer_denied.clone_from(&self.peer_denied);
        entry.revocation = self.revocation;
        entry.status = Some(self.status_label());
        entry.http_status = self.status;
        entry.latency_us = Some(micros(self.elapsed()));
        entry.own_us = Some(micros(self.own_time));
        entry.resp_sha256 = self.delivered.digest();
        entry.resp_bytes = Some(self.delivered.bytes);
        let broken = matches!(self.end, Some(End::Broken(_)));
        entry.complete = Some(self.delivered.complete && !broken);
        entry
    }

    /// By whose authority it is made, as it is written down. Of several chains it is the first.
    fn written_behalf(&self) -> Option<ledger::Behalf> {
        let chain = self.behalf.chains().first();
        if chain.is_none() && self.behalf.rung().is_none() {
            return None;
        }
        let last = chain.and_then(|chain| chain.hops().last());
        let inbound = self.behalf.rung().is_none();
        Some(ledger::Behalf {
            link: self.behalf.rung().map(Rung::as_str),
            hops: chain.map(|chain| chain.depth() as u64),
            root: last.map(|hop| hop.root().shared()),
            user: last.and_then(Hop::user).map(Into::into),
            tenant: last.and_then(Hop::tenant).map(Into::into),
            run: last.map(Hop::run),
            peer_call: last.filter(|_| inbound).and_then(Hop::call),
            objection: self
                .objection
                .as_ref()
                .map(|objection| (objection.hop as u64, objection.id.shared())),
        })
    }

    fn decision(&self) -> Decision {
        match (&self.permit, self.stage) {
            (Some(_), None) => Decision::Permit,
            (_, Some(_)) => Decision::Deny,
            (None, None) => Decision::None,
        }
    }

    fn status_label(&self) -> &'static str {
        // Without an end, the task was dropped in the middle: by a shutdown that could not wait, or by
        // a panic.
        self.end.map_or("abandoned", End::as_str)
    }

    fn would_deny(&self) -> Option<&'static str> {
        let call = self.call.as_ref()?;
        let limited = || self.over.clone().filter(|_| self.stage.is_none()).map(Denial::Limited);
        let judged = self.permit.as_ref()?.would_deny();
        let denial = judged.map(|(_, denial)| denial.clone()).or_else(limited)?;
        Some(denial.row(call.era).kind)
    }

    fn tool(&self) -> Option<&str> {
        self.call.as_ref()?.tool()
    }

    fn elapsed(&self) -> Duration {
        self.record.clock.instant().saturating_duration_since(self.started)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A preflight is answered without anybody being asked.
        let answered = self.end == Some(End::Answered);
        let passed = self.stage.is_none() && (self.permit.is_some() || answered);
        let event = if passed { Event::Outcome } else { Event::Denied };
        let entry = self.entry(event);
        let verdict = match (entry.decision, entry.would_deny) {
            (Decision::Permit, Some(_)) => Verdict::Shadow,
            (Decision::Permit, None) => Verdict::Permit,
            (Decision::None, _) if passed => Verdict::None,
            (Decision::Deny | Decision::None, _) => Verdict::Deny,
        };
        let calls = self.taken.as_ref().map_or(&self.record.unrouted, |taken| &taken.calls);
        calls.observe(&Finished {
            protocol: entry.protocol,
            method: self.call.as_ref().and_then(|call| call.method.rule()).map(|rule| rule.name),
            verdict,
            outcome: self.status_label(),
            total: self.elapsed(),
            own: self.own_time,
        });
        if !self.span.is_disabled() {
            self.span.record("enduser.id", &*entry.peer);
            self.span.record("mcp.method.name", entry.method.as_deref());
            self.span.record("gen_ai.tool.name", self.tool());
            self.span.record("http.response.status_code", entry.http_status);
            self.span.record("outcome", entry.status);
        }
        if let (Some(kind), Some(server)) = (entry.would_deny, &entry.server) {
            self.record.metrics.shadow_denial(server, kind);
        }
        self.record.ledger.record(entry);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

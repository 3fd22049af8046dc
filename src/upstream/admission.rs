//! [`Gate`] and [`Ticket`]: a call needs a place at its server, and the word of the server's breaker.
//!
//! A ticket goes into [`super::Upstream::open`] and comes back with the answer's body, so a place is held
//! until the answer has ended or was dropped, and what becomes of a call is told to the breaker in here, by
//! what [`super::Upstream`] sees itself.
//!
//! What tells of the server: that it can't be reached, breaks off, is too late or says 5xx counts as failed,
//! any other answer as life. An error in JSON-RPC and a tool's `isError` are answers. What doesn't: that the
//! caller left, that we have no identity, and an answer that breaks off while it is a stream, which is how
//! middle boxes end those that are silent.
//!
//! INVARIANT: every way out of a ticket is its `Drop`: it gives back the place and the pass, and tells what
//! is known, which may be nothing.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use http::{StatusCode, header::CONTENT_TYPE, response::Parts};

use super::{
    Error,
    breaker::{self, Breaker, Pass, Phase, Verdict},
    bulkhead::{Bulkhead, Full, Kind, Place},
    settings,
};
use crate::{
    protocol::{self, Call, Class},
    telemetry::{
        Clock, Metrics,
        metrics::{Admissions, Held},
    },
};

/// Most tools of a server that have a breaker of their own; failures of others count against the server.
const MAX_TOOLS: usize = 256;

/// Longest name, in bytes, that is remembered of a tool.
const LONGEST_NAME: usize = 256;

/// When to try again where there is no place.
const SHORTLY: Duration = Duration::from_secs(1);

/// With which a verified Lictor at the other end says that it was itself that refused a call.
const DENIAL: &str = "lictor-denial";

/// Why a call isn't let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is in the way.
    pub reason: Reason,
    /// When it may be gone.
    pub retry_after: Duration,
}

/// What keeps a call from being let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server, or the tool, has failed too often.
    BreakerOpen,
    /// The caller has as many calls or streams at the server as one caller may have.
    CallerFull,
    /// The server has as many as it may have.
    Full,
    /// The same, also after a wait.
    Waited,
}

impl Reason {
    /// The label in metrics.
    fn as_str(self) -> &'static str {
        match self {
            Self::BreakerOpen => "breaker_open",
            Self::CallerFull => "caller_full",
            Self::Full => "full",
            Self::Waited => "waited",
        }
    }
}

/// What is told of a breaker and the places beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The breaker; `None` where it is switched off.
    pub breaker: Option<BreakerReading>,
    /// Places of calls: taken, and all.
    pub calls: (usize, usize),
    /// Places of event streams: taken, and all.
    pub streams: (usize, usize),
}

/// What is told of a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerReading {
    /// The state that a call would meet.
    pub phase: Phase,
    /// How long it stays open, if it is.
    pub opens_for: Option<Duration>,
    /// Failures since the last success.
    pub failures_in_a_row: u32,
    /// How often it has opened since the start.
    pub openings: u64,
    /// Tools whose own breakers aren't closed.
    pub tools: Vec<(Box<str>, Phase)>,
}

/// What a call has to pass.
#[derive(Debug)]
pub(super) struct Gate {
    server: Box<str>,
    /// `None` where it is switched off.
    breakers: Option<Mutex<Breakers>>,
    bulkhead: Bulkhead,
    metrics: Admissions,
}

/// The breaker of a server, and those of its tools.
#[derive(Debug)]
struct Breakers {
    settings: settings::Breaker,
    server: Breaker,
    /// Tools that have failed.
    tools: HashMap<Box<str>, Breaker>,
}

/// The right to send one permitted call. Only [`super::Upstream::admit`] gives one.
///
/// ```compile_fail,E0451
/// let forged = lictor::upstream::Ticket { gate: todo!(), pass: None, verdict: None, place: None };
/// ```
#[derive(Debug)]
#[must_use = "a place is held as long as it lives"]
pub struct Ticket {
    gate: Arc<Gate>,
    /// To be settled.
    pass: Option<Passed>,
    /// What is known of the call so far.
    verdict: Option<Verdict>,
    place: Option<(Place, Held)>,
}

/// What let a call through.
#[derive(Debug)]
struct Passed {
    server: Pass,
    /// Where tools have breakers of their own: its name, and its pass if it has one.
    tool: Option<(Box<str>, Option<Pass>)>,
}

impl Gate {
    pub(super) fn new(settings: &settings::Settings, metrics: &Metrics) -> Arc<Self> {
        let admissions = metrics.admissions(&settings.name);
        admissions.set_breaker(Phase::Closed.as_str());
        Arc::new(Self {
            server: settings.name.as_str().into(),
            breakers: settings.breaker.map(|it| Mutex::new(Breakers::new(it, Clock.instant()))),
            bulkhead: Bulkhead::new(&settings.bulkhead),
            metrics: admissions,
        })
    }

    /// A ticket for a call of this class. Waits only where there is a queue.
    pub(super) async fn admit(
        self: &Arc<Self>,
        class: Class,
        caller: Arc<str>,
        call: &Call,
    ) -> Result<Ticket, Refused> {
        let mut ticket = self.overrule();
        if let Some(kind) = kind(call) {
            match self.bulkhead.enter(kind, caller).await {
                Ok(place) => ticket.place = Some((place, self.hold(kind))),
                Err(full) => return Err(self.refuse(full.into(), SHORTLY)),
            }
        }
        ticket.pass = self.pass(class, call.tool())?;
        Ok(ticket)
    }

    /// A ticket for a message that goes with a call and holds no place of its own.
    pub(super) fn admit_beside(self: &Arc<Self>) -> Result<Ticket, Refused> {
        let mut ticket = self.overrule();
        ticket.pass = self.pass(Class::Write, None)?;
        Ok(ticket)
    }

    /// A ticket for a call that goes out whatever is in the way.
    pub(super) fn overrule(self: &Arc<Self>) -> Ticket {
        Ticket { gate: Arc::clone(self), pass: None, verdict: None, place: None }
    }

    pub(super) fn reading(&self) -> Reading {
        let now = Clock.instant();
        let breaker = self.breakers.as_ref().map(|breakers| lock(breakers).reading(now));
        Reading {
            breaker,
            calls: self.bulkhead.taken(Kind::Call),
            streams: self.bulkhead.taken(Kind::Stream),
        }
    }

    pub(super) fn reset(&self) {
        self.with_breakers(|breakers, now| {
            breakers.tools.clear();
            breakers.server.reset(now);
        });
    }

    fn hold(&self, kind: Kind) -> Held {
        match kind {
            Kind::Call => self.metrics.hold_call(),
            Kind::Stream => self.metrics.hold_stream(),
        }
    }

    fn pass(&self, class: Class, tool: Option<&str>) -> Result<Option<Passed>, Refused> {
        let passed = self.with_breakers(|breakers, now| breakers.admit(class, tool, now));
        let passed = passed.transpose();
        passed.map_err(|retry_after| self.refuse(Reason::BreakerOpen, retry_after))
    }

    fn refuse(&self, reason: Reason, retry_after: Duration) -> Refused {
        self.metrics.refuse(reason.as_str());
        Refused { reason, retry_after }
    }

    /// Tells what has become of the server's breaker meanwhile.
    fn with_breakers<T>(&self, act: impl FnOnce(&mut Breakers, Instant) -> T) -> Option<T> {
        let mut breakers = lock(self.breakers.as_ref()?);
        let now = Clock.instant();
        let before = breakers.server.entry();
        let done = act(&mut breakers, now);
        let server = &breakers.server;
        if server.entry() != before {
            let (upstream, state) = (&*self.server, server.phase(now).as_str());
            self.metrics.set_breaker(state);
            match server.opens_for(now) {
                Some(time) => {
                    let seconds = time.as_secs_f64();
                    tracing::warn!(upstream, seconds, "it fails too often, and is spared calls");
                }
                None => tracing::info!(upstream, state, "the breaker has changed"),
            }
        }
        Some(done)
    }
}

impl Breakers {
    fn new(settings: settings::Breaker, now: Instant) -> Self {
        Self { settings, server: new_breaker(settings, now), tools: HashMap::new() }
    }

    fn admit(
        &mut self,
        class: Class,
        tool: Option<&str>,
        now: Instant,
    ) -> Result<Passed, Duration> {
        let server = self.server.admit(class, now)?;
        let known = tool.filter(|name| self.settings.per_tool && name.len() <= LONGEST_NAME);
        let Some(name) = known else {
            return Ok(Passed { server, tool: None });
        };
        match self.tools.get_mut(name).map(|tool| tool.admit(class, now)).transpose() {
            Ok(pass) => Ok(Passed { server, tool: Some((name.into(), pass)) }),
            Err(retry_after) => {
                self.server.settle(&server, None, now);
                Err(retry_after)
            }
        }
    }

    fn settle(&mut self, passed: Passed, verdict: Option<Verdict>, now: Instant) {
        let Passed { server, tool } = passed;
        let Some((name, pass)) = tool else {
            return self.server.settle(&server, verdict, now);
        };
        // What a tool doesn't do is no fault of the others, but nobody reaches any behind a closed door.
        let (of_server, of_tool) = match verdict {
            Some(Verdict::Failed) if self.has_room(&name) => (None, verdict),
            Some(Verdict::Failed | Verdict::Unreachable) => (verdict, None),
            Some(Verdict::Succeeded | Verdict::Alive) | None => (verdict, verdict),
        };
        self.server.settle(&server, of_server, now);
        match (pass, of_tool) {
            (Some(pass), _) => {
                if let Some(tool) = self.tools.get_mut(&name) {
                    tool.settle(&pass, of_tool, now);
                }
            }
            (None, Some(Verdict::Failed)) => {
                let settings = self.settings;
                let tool = self.tools.entry(name).or_insert_with(|| new_breaker(settings, now));
                if let Ok(pass) = tool.admit(Class::Execute, now) {
                    tool.settle(&pass, of_tool, now);
                }
            }
            (None, _) => {}
        }
    }

    /// Whether there is a breaker for a tool, or can be one. Tools that work again make room.
    fn has_room(&mut self, name: &str) -> bool {
        if self.tools.len() >= MAX_TOOLS && !self.tools.contains_key(name) {
            self.tools.retain(|_, tool| tool.failures_in_a_row() != Some(0));
        }
        self.tools.len() < MAX_TOOLS || self.tools.contains_key(name)
    }

    fn reading(&self, now: Instant) -> BreakerReading {
        let tools = self.tools.iter().map(|(name, tool)| (name.clone(), tool.phase(now)));
        BreakerReading {
            phase: self.server.phase(now),
            opens_for: self.server.opens_for(now),
            failures_in_a_row: self.server.failures_in_a_row().unwrap_or_default(),
            openings: self.server.openings(),
            tools: tools.filter(|(_, phase)| *phase != Phase::Closed).collect(),
        }
    }
}

impl Ticket {
    /// Takes note of the head of an answer, and whether a stream begins with it.
    pub(super) fn answered(&mut self, head: &Parts, is_lictor: bool) {
        let events = head.status.is_success() && is_event_stream(head);
        let refused_there = is_lictor && head.headers.contains_key(DENIAL);
        self.verdict = Some(match head.status {
            // These say something of the call.
            StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => Verdict::Alive,
            status if status.is_server_error() && !refused_there => Verdict::Failed,
            status if status.is_success() => Verdict::Succeeded,
            _ => Verdict::Alive,
        });
        if events {
            // Nobody wants to wait for its end to know, and how it ends tells nothing.
            self.settle();
            self.become_stream();
        }
    }

    /// Takes note of why there is no answer, or no more of it.
    pub(super) fn failed(&mut self, error: &Error) {
        match error {
            Error::NoIdentity | Error::Full | Error::SessionGone => {}
            Error::Unreachable(_) => self.verdict = Some(Verdict::Unreachable),
            Error::Silent | Error::Late | Error::Failed(_) => self.verdict = Some(Verdict::Failed),
        }
    }

    fn become_stream(&mut self) {
        if let Some((place, held)) = &mut self.place
            && self.gate.bulkhead.become_stream(place)
        {
            *held = self.gate.hold(Kind::Stream);
        }
    }

    fn settle(&mut self) {
        if let Some(pass) = self.pass.take() {
            let verdict = self.verdict;
            self.gate.with_breakers(|breakers, now| breakers.settle(pass, verdict, now));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle();
    }
}

impl From<Full> for Reason {
    fn from(full: Full) -> Self {
        match full {
            Full::Caller => Self::CallerFull,
            Full::Places => Self::Full,
            Full::Waited => Self::Waited,
        }
    }
}

/// The kind of place that a call needs. What others wait for needs none: if a caller's answer to a question
/// of the server, or its word that it is done, had to wait for a place, the call that has it might wait for
/// that.
fn kind(call: &Call) -> Option<Kind> {
    match call.kind {
        protocol::Kind::Response(_) | protocol::Kind::Notification | protocol::Kind::End => None,
        protocol::Kind::Stream => Some(Kind::Stream),
        protocol::Kind::Request(_) | protocol::Kind::Operation => match call.follows() {
            true => Some(Kind::Stream),
            false => Some(Kind::Call),
        },
    }
}

fn is_event_stream(head: &Parts) -> bool {
    let value = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).map(str::trim);
    essence.is_some_and(|it| it.eq_ignore_ascii_case("text/event-stream"))
}

fn new_breaker(settings: settings::Breaker, now: Instant) -> Breaker {
    Breaker::new(settings, breaker::seed(), now)
}

fn lock(breakers: &Mutex<Breakers>) -> MutexGuard<'_, Breakers> {
    // Nothing panics half-way while it is held.
    breakers.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The way back: an upstream's answer, passed on as it comes.
//!
//! Each part is written as soon as it is there. While a stream is silent the relay still listens: to the
//! caller's leaving, to the process being told to stop, to what is revoked, to the end of the caller's identity, to
//! the clock.
//! A write that the caller doesn't read is raced as well, so that nobody can hold a call by not reading.
//!
//! A stream that breaks ends in band: the caller gets an error event for its own request id, then the end.
//! A broken document is cut, which its framing shows, and so is a stream that passes as it is: nothing of ours
//! is ever in it, since it may stand anywhere within an event.

use std::{
    future::pending,
    pin::pin,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::ServerSession;
use tokio::{
    sync::watch,
    time::{interval, sleep},
};
use uuid::Uuid;

use super::{
    agent::AgentEvents,
    body::Reservation,
    drain::Phase,
    events::Events,
    listening::Standing,
    patience::{Next, Patience, Shape},
    ready::Ready,
    recall::Recall,
    refusal, respond,
    sse_endpoint::{Desk, Open},
};
use crate::{
    denial::Denial,
    exchange::{Delivered, End},
    protocol::{Call, Era},
    response::Look,
    telemetry::Clock,
    upstream::Body,
};

/// How often it is looked at whether an answer may go on. A stream ends this long after the expiry or
/// withdrawal of its caller's identity or, if it only listens, of its permission at the latest.
const LOOK: Duration = Duration::from_secs(5);

/// How long a caller may take for what is being written when its answer has to end, before it is cut.
const GRACE: Duration = Duration::from_secs(1);

/// What is seen of an answer's body on its way.
pub(super) enum Sight<'a> {
    /// A document, as far as the look follows it; not at all where denials are only recorded.
    Document(Option<Look>),
    /// Events, each of which is looked at.
    Events(Box<Events<'a>>),
    /// Events of an agent, each of which is read.
    Agent(Box<AgentEvents<'a>>),
    /// Events that nobody looks at.
    Flow,
}

impl Sight<'_> {
    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Document(_) => Shape::Document,
            Self::Events(_) | Self::Agent(_) => Shape::Events,
            Self::Flow => Shape::Flow,
        }
    }

    /// Whether the body may not end yet.
    fn owes_answer(&self) -> bool {
        match self {
            Self::Events(events) => events.owes_answer(),
            // How an agent's stream ends is for its task to say.
            Self::Document(_) | Self::Agent(_) | Self::Flow => false,
        }
    }
}

/// One answer on its way to the caller, whose head has been written.
pub(super) struct Relay<'a> {
    pub(super) session: &'a mut ServerSession,
    pub(super) body: Body,
    /// Of a stream of the HTTP+SSE transport.
    pub(super) desk: Option<Desk<'a>>,
    /// What was read of the body before.
    pub(super) begun: Bytes,
    /// For what desk and sight hold.
    pub(super) reservation: Reservation,
    /// Bytes that the caller still waits for, where it was told how many there are.
    pub(super) left: Option<usize>,
    pub(super) patience: Patience,
    pub(super) phase: watch::Receiver<Phase>,
    /// The phase in which this answer may not go on.
    pub(super) ends_in: Phase,
    /// Ends it as soon as something that it has to do with is revoked.
    pub(super) recall: Recall<'a>,
    /// The revocation that ended it.
    pub(super) revocation: &'a mut Option<Uuid>,
    /// Whether the answer may still go on, and what its caller has to be told; asked every [`LOOK`].
    pub(super) standing: &'a mut (dyn FnMut() -> Standing + Send),
    /// Whether the caller has heard anything of the upstream.
    pub(super) opened: bool,
    pub(super) call: &'a Call,
    pub(super) decision_id: Uuid,
    pub(super) delivered: &'a mut Delivered,
    /// When the caller last heard something.
    pub(super) spoke: Instant,
    /// When the upstream was last heard.
    pub(super) heard: Instant,
}

/// Why a relay ends before its time.
enum Stop {
    /// It has ended.
    End(End),
    /// It has to.
    Break(Denial),
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

impl From<Denial> for Stop {
    fn from(denial: Denial) -> Self {
        Self::Break(denial)
    }
}

/// What the relay goes on with.
enum Turn {
    Upstream(Next),
    /// What the caller is told by us.
    Told(Bytes),
    Broken(Denial),
}

impl Relay<'_> {
    /// Passes the body on until it ends, and says how it ended.
    pub(super) async fn run(mut self, mut sight: Sight<'_>) -> End {
        let shape = sight.shape();
        let begun = std::mem::take(&mut self.begun);
        if let Err(end) = self.write(begun, false).await {
            return end;
        }
        let mut watching = true;
        let mut looks = interval(LOOK);
        looks.reset();
        let mut owed = BytesMut::new();
        loop {
            // Whoever has everything may leave or go on to the next message, while the upstream has yet
            // to say that this was all.
            watching &= self.left != Some(0);
            // Looking at the identity must not start the wait anew, nor the clocks in it.
            let open = self.desk.as_ref().and_then(Desk::open);
            let takes_ours = self.takes_ours();
            let turn = {
                let (session, body) = (&mut *self.session, &mut self.body);
                let mut next =
                    pin!(self.patience.next(session, body, shape, self.heard, &mut watching));
                loop {
                    // What ends the answer comes first: a stream that is always ready would win for ever.
                    tokio::select! { biased;
                        _ = self.phase.wait_for(|phase| ends(*phase, self.ends_in, open.as_deref())) => {
                            break Turn::Broken(Denial::Draining);
                        }
                        denial = self.recall.recalled() => break Turn::Broken(denial),
                        _ = looks.tick() => {
                            let Standing { tell, verdict } = (self.standing)();
                            owed.extend_from_slice(&tell);
                            match verdict {
                                // Calls that were posted for it end where they began.
                                Err(Denial::RouteChanged)
                                    if open.as_deref().is_some_and(Open::is_awaited) => {}
                                Err(denial) => break Turn::Broken(denial),
                                Ok(()) if takes_ours && !owed.is_empty() => {
                                    break Turn::Told(owed.split().freeze());
                                }
                                Ok(()) => {}
                            }
                        },
                        event = told(&mut self.desk) => break Turn::Told(event),
                        next = &mut next => break Turn::Upstream(next),
                    }
                }
            };
            let step = match turn {
                Turn::Upstream(Next::Part(bytes)) => {
                    self.heard = Clock.instant();
                    self.part(&mut sight, bytes).await
                }
                Turn::Told(event) => self.write(event, false).await.map_err(Stop::End),
                Turn::Upstream(Next::Silence) => self.keep_alive().await,
                Turn::Upstream(Next::Finished) if sight.owes_answer() => {
                    Err(Stop::Break(Denial::UpstreamFailed))
                }
                Turn::Upstream(Next::Finished) => {
                    // Whoever hears of the end finds nothing left of the stream.
                    self.desk = None;
                    let written = self.write(Bytes::new(), true).await;
                    let end = match &sight {
                        Sight::Document(_) | Sight::Agent(_) | Sight::Flow => End::Answered,
                        Sight::Events(events) => events.end(),
                    };
                    return written.err().unwrap_or(end);
                }
                Turn::Upstream(Next::Gone) => return End::CallerGone,
                Turn::Broken(denial) | Turn::Upstream(Next::Broken(denial)) if takes_ours => {
                    let told = self.write(owed.split().freeze(), false).await;
                    Err(told.err().map_or(Stop::Break(denial), Stop::End))
                }
                Turn::Broken(denial) | Turn::Upstream(Next::Broken(denial)) => {
                    Err(Stop::Break(denial))
                }
            };
            match step {
                Ok(()) => {}
                Err(Stop::End(end)) => return end,
                Err(Stop::Break(denial)) => return self.end_early(shape, &denial).await,
            }
        }
    }

    /// Whether something of ours may stand between two events now: whoever opens a stream waits for a certain
    /// first one of the upstream, if it is of a transport or a revision that has such.
    fn takes_ours(&self) -> bool {
        match &self.desk {
            Some(desk) => desk.open().is_some(),
            None => self.call.era == Era::Legacy || self.opened,
        }
    }

    async fn part(&mut self, sight: &mut Sight<'_>, part: Bytes) -> Result<(), Stop> {
        match sight {
            Sight::Document(look) => {
                if let Some(look) = look {
                    look.at(&part).map_err(|_| Denial::UpstreamUnreadable)?;
                }
                Ok(self.write(part, false).await?)
            }
            Sight::Events(events) => self.events(events, part).await,
            Sight::Agent(events) => self.agent_events(events, part).await,
            Sight::Flow => Ok(self.write(part, false).await?),
        }
    }

    async fn agent_events(
        &mut self,
        events: &mut AgentEvents<'_>,
        part: Bytes,
    ) -> Result<(), Stop> {
        let whole = events.split(part)?;
        self.reservation.resize(events.held())?;
        let mut ready = Ready::default();
        for mut event in whole {
            match events.seen(&mut event).await {
                Ok(bytes) => ready.add(bytes),
                Err(denial) => {
                    // What came before it was fine.
                    self.write(ready.take(), false).await?;
                    return Err(denial.into());
                }
            }
        }
        Ok(self.write(ready.take(), false).await?)
    }

    /// Passes whole events on. One that has to be judged holds up what follows, not what came before.
    async fn events(&mut self, events: &mut Events<'_>, part: Bytes) -> Result<(), Stop> {
        let mut part = part;
        let mut held = 0;
        if let Some(desk) = &mut self.desk {
            part = desk.push(part)?;
            held = desk.held();
            events.answer_at(desk.open());
        }
        let whole = events.split(part)?;
        self.reservation.resize(held + events.held())?;
        let mut ready = Ready::default();
        for event in whole {
            if let Some(bytes) = events.plain(&event) {
                ready.add(bytes);
                continue;
            }
            self.pass_on(ready.take()).await?;
            let (bytes, askings) = events.judged(&event).await?;
            let written = self.pass_on(bytes).await;
            for asking in askings {
                asking.close(written.err().unwrap_or(End::Answered));
            }
            written?;
        }
        self.pass_on(ready.take()).await?;
        // What the upstream says may all be held or withheld here, and the caller hears nothing of it.
        let silence = Clock.instant().saturating_duration_since(self.spoke);
        if silence >= self.patience.keep_alive { self.keep_alive().await } else { Ok(()) }
    }

    /// Writes what comes from the upstream.
    async fn pass_on(&mut self, events: Bytes) -> Result<(), End> {
        self.opened |= !events.is_empty();
        self.write(events, false).await
    }

    async fn keep_alive(&mut self) -> Result<(), Stop> {
        Ok(self.write(Bytes::from_static(b": keep-alive\n\n"), false).await?)
    }

    async fn write(&mut self, bytes: Bytes, last: bool) -> Result<(), End> {
        if bytes.is_empty() && !last {
            return Ok(());
        }
        self.spoke = Clock.instant();
        self.left = self.left.map(|left| left.saturating_sub(bytes.len()));
        let (session, delivered) = (&mut *self.session, &mut *self.delivered);
        let write = respond::write_body(session, delivered, bytes, last, self.patience.stall);
        let open = self.desk.as_ref().and_then(Desk::open);
        let over = async {
            // The sender lives as long as the process.
            let ends = |phase: &Phase| ends(*phase, self.ends_in, open.as_deref());
            let mut recall = self.recall.clone();
            let denial = tokio::select! { biased;
                _ = self.phase.wait_for(ends) => Denial::Draining,
                denial = recall.recalled() => denial,
            };
            sleep(GRACE).await;
            denial
        };
        tokio::select! { biased;
            written = write => written,
            // Who doesn't read can't be told anything in band either.
            denial = over => {
                *self.revocation = denial.revocation();
                Err(End::Broken(denial.row(self.call.era)))
            }
        }
    }

    /// Ends the answer before the upstream did. Dropping the body closes the upstream's stream at once.
    async fn end_early(mut self, shape: Shape, denial: &Denial) -> End {
        *self.revocation = denial.revocation();
        let broken = End::Broken(denial.row(self.call.era));
        self.desk = None;
        match shape {
            Shape::Document | Shape::Flow => broken,
            Shape::Events => {
                let last = refusal::last_event(denial, self.call, self.decision_id);
                match self.write(last, true).await {
                    Ok(()) => broken,
                    Err(end) => end,
                }
            }
        }
    }
}

/// Whether an answer has to end in a phase. A stream of the HTTP+SSE transport stays while it owes answers.
fn ends(phase: Phase, ends_in: Phase, open: Option<&Open>) -> bool {
    phase >= if open.is_some_and(Open::is_awaited) { Phase::Ending } else { ends_in }
}

/// The next event of ours, where the stream has a desk.
async fn told(desk: &mut Option<Desk<'_>>) -> Bytes {
    match desk {
        Some(desk) => desk.told().await,
        None => pending().await,
    }
}

//! The way back: an upstream's answer, passed on as it comes.
//!
//! Each part is written as soon as it is there. While a stream is silent the relay still listens: to the
//! caller's leaving, to the process being told to stop, to the end of the caller's identity, to the clock.
//! A write that the caller doesn't read is raced as well, so that nobody can hold a call by not reading.
//!
//! A stream that breaks ends in band: the caller gets an error event for its own request id, then the end.
//! A broken document is cut, which its framing shows.

use std::{future::pending, pin::pin, time::Duration};

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::ServerSession;
use tokio::{
    sync::watch,
    time::{interval, sleep, timeout},
};
use uuid::Uuid;

use super::{
    Halt,
    body::Reservation,
    caller,
    drain::Phase,
    refusal,
    sse_endpoint::{Desk, Open},
};
use crate::{
    denial::Denial,
    exchange::{Delivered, End},
    protocol::{Call, sse},
    response::EventFilter,
    upstream::Body,
};

/// How often it is looked at whether an answer may go on. A stream ends this long after the expiry or
/// withdrawal of its caller's identity or, if it only listens, of its permission at the latest.
const LOOK: Duration = Duration::from_secs(5);

/// How long a caller may take for one write when its answer has to end, before it is cut.
const GRACE: Duration = Duration::from_secs(1);

/// The shape of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Anything that is not an event stream.
    Document,
    /// `text/event-stream`.
    Events,
}

/// Time limits of a relay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Longest silence of the upstream inside a document.
    pub(super) idle: Duration,
    /// Silence of an event stream after which a comment keeps it alive.
    pub(super) keep_alive: Duration,
    /// Longest time for one write to the caller.
    pub(super) stall: Duration,
}

/// One answer on its way to the caller, whose head has been written.
pub(super) struct Relay<'a> {
    pub(super) session: &'a mut ServerSession,
    pub(super) body: Body,
    pub(super) shape: Shape,
    /// Of a stream of the HTTP+SSE transport.
    pub(super) desk: Option<Desk<'a>>,
    pub(super) filter: Option<EventFilter<'a>>,
    /// For what desk and filter hold.
    pub(super) reservation: Reservation,
    /// Bytes that the caller still waits for, where it was told how many there are.
    pub(super) left: Option<usize>,
    pub(super) patience: Patience,
    pub(super) phase: watch::Receiver<Phase>,
    /// The phase in which this answer may not go on.
    pub(super) ends_in: Phase,
    /// Whether the answer may still go on; asked every [`LOOK`].
    pub(super) standing: &'a (dyn Fn() -> Result<(), Denial> + Sync),
    pub(super) call: &'a Call,
    pub(super) decision_id: Uuid,
    pub(super) delivered: &'a mut Delivered,
}

/// What the relay was waiting for.
enum Next {
    Part(Bytes),
    Told(Bytes),
    KeepAlive,
    Finished,
    Gone,
    Broken(Denial),
}

impl Relay<'_> {
    /// Passes the body on until it ends, and says how it ended.
    pub(super) async fn run(mut self) -> End {
        let mut boundary = sse::Boundary::default();
        let mut watching = true;
        let mut looks = interval(LOOK);
        looks.reset();
        loop {
            // Whoever has everything may leave or go on to the next message, while the upstream has yet
            // to say that this was all.
            watching &= self.left != Some(0);
            // Looking at the identity must not start the wait anew, nor the clocks in it.
            let open = self.desk.as_ref().and_then(Desk::open);
            let next = {
                let mut next = pin!(next(
                    self.session,
                    &mut self.body,
                    self.shape,
                    self.patience,
                    &mut watching,
                    boundary.is_between(),
                ));
                loop {
                    // What ends the answer comes first: a stream that is always ready would win for ever.
                    tokio::select! { biased;
                        _ = self.phase.wait_for(|phase| ends(*phase, self.ends_in, open.as_deref())) => {
                            break Next::Broken(Denial::Draining);
                        }
                        _ = looks.tick() => if let Err(denial) = (self.standing)() {
                            break Next::Broken(denial);
                        },
                        event = told(&mut self.desk) => break Next::Told(event),
                        next = &mut next => break next,
                    }
                }
            };
            let step = match next {
                Next::Part(bytes) => match self.edit(bytes) {
                    Ok(edited) => {
                        boundary.observe(&edited);
                        self.write(edited, false).await
                    }
                    Err(denial) => return self.end_early(&denial, boundary).await,
                },
                Next::Told(event) => self.write(event, false).await,
                Next::KeepAlive => self.write(Bytes::from_static(b": keep-alive\n\n"), false).await,
                Next::Finished => {
                    // Whoever hears of the end finds nothing left of the stream.
                    self.desk = None;
                    let written = self.write(Bytes::new(), true).await;
                    return written.err().unwrap_or(End::Answered);
                }
                Next::Gone => Err(End::CallerGone),
                Next::Broken(denial) => return self.end_early(&denial, boundary).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    fn edit(&mut self, mut bytes: Bytes) -> Result<Bytes, Denial> {
        if self.desk.is_none() && self.filter.is_none() {
            return Ok(bytes);
        }
        let mut held = 0;
        if let Some(desk) = &mut self.desk {
            bytes = desk.push(bytes)?;
            held += desk.held();
        }
        if let Some(filter) = &mut self.filter {
            bytes = filter.push(bytes).map_err(|_| Denial::UpstreamUnreadable)?;
            held += filter.held();
        }
        self.reservation.resize(held)?;
        Ok(bytes)
    }

    async fn write(&mut self, bytes: Bytes, last: bool) -> Result<(), End> {
        if bytes.is_empty() && !last {
            return Ok(());
        }
        self.delivered.add(&bytes);
        self.left = self.left.map(|left| left.saturating_sub(bytes.len()));
        let write = timeout(self.patience.stall, self.session.write_response_body(bytes, last));
        let open = self.desk.as_ref().and_then(Desk::open);
        let over = async {
            // The sender lives as long as the process.
            let ends = |phase: &Phase| ends(*phase, self.ends_in, open.as_deref());
            let _ = self.phase.wait_for(ends).await;
            sleep(GRACE).await;
        };
        tokio::select! { biased;
            written = write => match written {
                Ok(Ok(())) => {
                    if last {
                        self.delivered.finish();
                    }
                    Ok(())
                }
                Ok(Err(_)) => Err(End::CallerGone),
                Err(_) => Err(End::CallerStalled),
            },
            // Who doesn't read can't be told anything in band either.
            () = over => Err(End::Broken(Denial::Draining.row(self.call.era))),
        }
    }

    /// Ends the answer before the upstream did. Dropping the body closes the upstream's stream at once.
    async fn end_early(mut self, denial: &Denial, boundary: sse::Boundary) -> End {
        let broken = End::Broken(denial.row(self.call.era));
        self.desk = None;
        match self.shape {
            Shape::Document => broken,
            Shape::Events => {
                let mut last = Vec::new();
                if !boundary.is_between() {
                    last.extend_from_slice(b"\n\n");
                }
                if self.call.id().is_some() {
                    let message = refusal::message(denial, self.call, self.decision_id);
                    last.extend_from_slice(&refusal::event(&message));
                }
                match self.write(last.into(), true).await {
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

async fn next(
    session: &mut ServerSession,
    body: &mut Body,
    shape: Shape,
    patience: Patience,
    watching: &mut bool,
    between_events: bool,
) -> Next {
    let silence = match shape {
        Shape::Document => patience.idle,
        Shape::Events => patience.keep_alive,
    };
    loop {
        tokio::select! { biased;
            part = body.frame() => return match part {
                Some(Ok(bytes)) => Next::Part(bytes),
                Some(Err(_)) => Next::Broken(Denial::UpstreamFailed),
                None => Next::Finished,
            },
            gone = caller::gone(session, watching) => if gone { return Next::Gone },
            () = sleep(silence) => match shape {
                Shape::Document => return Next::Broken(Denial::UpstreamTimeout),
                Shape::Events if between_events => return Next::KeepAlive,
                Shape::Events => {}
            },
        }
    }
}

/// Reads a whole document of at most `limit` bytes, which is within `reservation`, before any of it goes on.
pub(super) async fn collect(
    session: &mut ServerSession,
    mut body: Body,
    patience: Patience,
    mut phase: watch::Receiver<Phase>,
    limit: usize,
    reservation: &mut Reservation,
) -> Result<Bytes, Halt> {
    let mut watching = true;
    let mut whole = BytesMut::new();
    loop {
        let next = tokio::select! { biased;
            _ = phase.wait_for(|phase| *phase == Phase::Ending) => Next::Broken(Denial::Draining),
            next = next(session, &mut body, Shape::Document, patience, &mut watching, false) => next,
        };
        match next {
            Next::Part(part) if whole.len() + part.len() > limit => {
                return Err(Denial::UpstreamUnreadable.into());
            }
            Next::Part(part) => {
                reservation.resize(whole.len() + part.len())?;
                whole.extend_from_slice(&part);
            }
            Next::Finished => return Ok(whole.freeze()),
            Next::Gone => return Err(Halt::Caller(End::CallerGone)),
            Next::Broken(denial) => return Err(denial.into()),
            Next::Told(_) | Next::KeepAlive => {}
        }
    }
}

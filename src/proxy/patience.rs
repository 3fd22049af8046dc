//! Waiting for an upstream in the middle of its answer, and how long.
//!
//! A document has to go on and to come to its end in time. A stream may be silent for as long as its settings
//! say, and its caller is to hear that it still stands.

use std::{
    future::ready,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pingora::protocols::http::ServerSession;
use tokio::time::sleep;

use super::caller;
use crate::{denial::Denial, telemetry::Clock, upstream::Body};

/// The shape of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Anything that is not an event stream.
    Document,
    /// `text/event-stream`.
    Events,
    /// `text/event-stream` that passes as it is, byte by byte.
    Flow,
}

/// Time limits of an answer on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Longest silence of the upstream inside a document.
    pub(super) idle: Duration,
    /// When a document has to have come to its end.
    pub(super) until: Option<Instant>,
    /// Longest silence of the upstream inside an event stream, if there is a limit.
    pub(super) stream_idle: Option<Duration>,
    /// Silence of an event stream after which a comment keeps it alive.
    pub(super) keep_alive: Duration,
    /// Longest time that the caller may take for one part of what is written.
    pub(super) stall: Duration,
}

/// What a wait for the upstream came to.
pub(super) enum Next {
    /// It has said this.
    Part(Bytes),
    /// It is silent, and its caller is due a sign of life.
    Silence,
    /// It has said all.
    Finished,
    /// The caller has left.
    Gone,
    /// It fails, or takes too long.
    Broken(Denial),
}

impl Patience {
    /// Waits for the next part of `body`; the part before it, or the head, came at `heard`. As long as `watching`
    /// says so, it is noticed when the caller leaves.
    pub(super) async fn next(
        &self,
        session: &mut ServerSession,
        body: &mut Body,
        shape: Shape,
        heard: Instant,
        watching: &mut bool,
    ) -> Next {
        let (silence, over) = self.at(shape, heard, Clock.instant());
        loop {
            tokio::select! { biased;
                // An upstream that always has more would win for ever.
                () = ready(()), if silence.is_zero() => {}
                part = body.frame() => return match part {
                    Some(Ok(bytes)) => Next::Part(bytes),
                    Some(Err(_)) => Next::Broken(Denial::UpstreamFailed),
                    None => Next::Finished,
                },
                gone = caller::gone(session, watching) => match gone {
                    true => return Next::Gone,
                    false => continue,
                },
                () = sleep(silence) => {}
            }
            if !over {
                return Next::Silence;
            }
            body.give_up();
            return Next::Broken(Denial::UpstreamTimeout);
        }
    }

    /// How long the upstream may be silent at `now`, and whether the answer is over then; a sign of life is due
    /// otherwise.
    fn at(&self, shape: Shape, heard: Instant, now: Instant) -> (Duration, bool) {
        match shape {
            Shape::Document => {
                let left = self.until.map(|until| until.saturating_duration_since(now));
                (left.map_or(self.idle, |left| left.min(self.idle)), true)
            }
            Shape::Events => {
                let silent = now.saturating_duration_since(heard);
                let left = self.stream_idle.map(|longest| longest.saturating_sub(silent));
                match left {
                    Some(left) if left <= self.keep_alive => (left, true),
                    Some(_) | None => (self.keep_alive, false),
                }
            }
            Shape::Flow => {
                let silent = now.saturating_duration_since(heard);
                let left = self.stream_idle.map(|longest| longest.saturating_sub(silent));
                (left.unwrap_or(Duration::MAX), true)
            }
        }
    }
}

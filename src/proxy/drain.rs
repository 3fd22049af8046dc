//! The end of a process: what still runs, and what has to stop when.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

/// How long what ends in band may take for that.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long whoever has just connected may take for the first message.
const FIRST_WORDS: Duration = Duration::from_secs(1);

/// How far the process is on its way out; later phases compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Business as usual.
    Running,
    /// Told to stop: nothing new is accepted, streams that only listen end, calls in flight go on.
    Draining,
    /// The time for calls in flight is over; they end in band.
    Ending,
}

/// Counts what is in flight and tells it to stop.
#[derive(Debug)]
pub struct Drain {
    phase: watch::Sender<Phase>,
    in_flight: AtomicUsize,
    empty: Notify,
}

impl Drain {
    /// Nothing in flight, nothing told.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            phase: watch::Sender::new(Phase::Running),
            in_flight: AtomicUsize::new(0),
            empty: Notify::new(),
        })
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Follows the phase.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Moves on to a later phase.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Counts one exchange in, until the ticket is dropped.
    pub fn enter(self: &Arc<Self>) -> Ticket {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ticket(Arc::clone(self))
    }

    /// Waits for a phase, or a later one.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives in `self`, so the wait can't fail.
        let _ = self.watch().wait_for(|now| *now >= phase).await;
    }

    /// Waits until even the time to end in band is over, and an exchange has to be cut.
    pub async fn over(&self) {
        self.reached(Phase::Ending).await;
        sleep(LAST_WORDS).await;
    }

    /// Waits until a connection on which nothing happens has to end: at once when the process is told to stop, and
    /// a moment later if it has carried no message yet, since that may be on its way.
    pub async fn idle_over(&self, warm: bool) {
        self.reached(Phase::Draining).await;
        if !warm {
            sleep(FIRST_WORDS).await;
        }
    }

    /// Waits until nothing is in flight.
    pub async fn finished(&self) {
        loop {
            let mut empty = pin!(self.empty.notified());
            // Registered before the look, so that no last ticket falls in between.
            empty.as_mut().enable();
            if self.in_flight.load(Ordering::Acquire) == 0 {
                return;
            }
            empty.await;
        }
    }
}

/// One exchange in flight.
#[derive(Debug)]
pub struct Ticket(Arc<Drain>);

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_what_is_in_flight_and_never_goes_back() {
        let drain = Drain::new();
        let ticket = drain.enter();
        drain.advance(Phase::Ending);
        drain.advance(Phase::Draining);
        assert_eq!(drain.phase(), Phase::Ending);
        let mut finished = std::pin::pin!(drain.finished());
        assert!(futures_poll(finished.as_mut()).await.is_none());
        drop(ticket);
        finished.await;
    }

    async fn futures_poll<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::select! { biased; done = future => Some(done), () = std::future::ready(()) => None }
    }
}

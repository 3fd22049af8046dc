//! What waits to be written, and the rules of who is let in and when the writer wakes.
//!
//! Callers on any thread push under a short lock; the writer takes everything at once. It is woken for
//! the first entry after an idle time and for the first caller that waits, not for each entry.
//!
//! A disk that hangs says nothing, so the writer can't tell: whoever asks looks how long the commit under way has
//! taken. One that takes too long counts as one that fails, until it has ended.
//!
//! INVARIANT: [`Queue::push`] of a closing entry is lost only while the disk refuses or hangs and the backlog is
//! full, or after the ledger was closed; each loss is counted, and the count is written when writing
//! works again.

use std::{
    collections::VecDeque,
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    Status, Unavailable,
    line::{Body, Tip},
    settings::{OnFailure, Settings},
    stamp::Stamp,
};
use crate::telemetry::Clock;

/// Entries in one commit, unless writing has just been failing.
const BATCH: usize = 4096;

/// What is told of a disk that hangs.
const TOO_LONG: &str = "the commit under way takes too long";

/// Numbers that only tests want otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Entries that may wait before new calls are refused.
    pub(super) backlog: usize,
    /// Time between attempts while the disk refuses.
    pub(super) retry: Duration,
    /// Longest time for a commit, after which the disk counts as one that refuses; and for a wait. A busy disk
    /// takes tenths of a second, a journal of its file system that is full a few seconds, and callers give up after
    /// tens of them.
    pub(super) patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { backlog: 65_536, retry: Duration::from_secs(1), patience: Duration::from_secs(5) }
    }
}

/// An entry on its way, and who waits for it.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) at: Stamp,
    pub(super) body: Body,
    ack: Option<oneshot::Sender<Result<(), Unavailable>>>,
}

/// Entries that could not be written since `first`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) count: u64,
    pub(super) first: Stamp,
}

/// What is committed together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) entries: VecDeque<Pending>,
    pub(super) loss: Option<Loss>,
    flushes: Vec<oneshot::Sender<()>>,
    last: bool,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    ended: Condvar,
    commit_interval: Duration,
    limits: Limits,
    read_intent: bool,
    on_failure: OnFailure,
}

#[derive(Debug)]
struct State {
    pending: VecDeque<Pending>,
    /// How many of `pending` somebody waits for.
    waiting: usize,
    flushes: Vec<oneshot::Sender<()>>,
    /// When the oldest of `pending` came.
    since: Option<Instant>,
    in_flight: usize,
    /// When the commit under way began.
    begun: Option<Instant>,
    /// Whether it was told that it takes too long.
    told: bool,
    writer: Writer,
    closing: bool,
    failure: Option<Failure>,
    loss: Option<Loss>,
    lost: u64,
    durable: Tip,
    commits: u64,
    last_commit: Duration,
}

#[derive(Debug)]
struct Failure {
    text: String,
    retry_at: Instant,
}

/// What the writer does, as far as waking it is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// Looks at the queue before it sleeps again.
    Awake,
    /// Sleeps until something comes.
    Idle,
    /// Sleeps until the batch is due.
    Gathering,
    /// Sleeps until the next attempt.
    Failing,
    /// Gone for good.
    Stopped,
}

impl Queue {
    /// An empty queue in front of a chain that stands at `tip`.
    pub(super) fn new(settings: &Settings, tip: Tip, limits: Limits) -> Self {
        let state = State {
            pending: VecDeque::new(),
            waiting: 0,
            flushes: Vec::new(),
            since: None,
            in_flight: 0,
            begun: None,
            told: false,
            writer: Writer::Awake,
            closing: false,
            failure: None,
            loss: None,
            lost: 0,
            durable: tip,
            commits: 0,
            last_commit: Duration::ZERO,
        };
        Self {
            state: Mutex::new(state),
            wake: Condvar::new(),
            ended: Condvar::new(),
            commit_interval: settings.commit_interval,
            limits,
            read_intent: settings.read_intent,
            on_failure: settings.on_failure,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way; a poisoned one is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call needs an intent before it is forwarded.
    pub(super) fn needs_intent(&self, may_change_state: bool) -> bool {
        may_change_state || self.read_intent
    }

    /// See [`super::Ledger::admits`].
    pub(super) fn admits(&self, may_change_state: bool) -> Result<(), Unavailable> {
        let mut state = self.lock();
        if state.closed() {
            return Err(Unavailable::Closed);
        }
        match (state.failing(self.limits.patience), self.on_failure) {
            (false, _) if state.backlog() >= self.limits.backlog => Err(Unavailable::Backlog),
            (false, _) => Ok(()),
            (true, OnFailure::DenyAll) => Err(Unavailable::Failing),
            (true, OnFailure::DenyWrites) if self.needs_intent(may_change_state) => {
                Err(Unavailable::Failing)
            }
            (true, OnFailure::DenyWrites) => Ok(()),
        }
    }

    /// How long anybody waits for an entry.
    pub(super) fn patience(&self) -> Duration {
        self.limits.patience
    }

    /// Queues an entry that the caller waits for.
    pub(super) fn push_awaited(
        &self,
        body: Body,
    ) -> Result<oneshot::Receiver<Result<(), Unavailable>>, Unavailable> {
        let mut state = self.lock();
        if state.closed() {
            return Err(Unavailable::Closed);
        }
        if state.failing(self.limits.patience) {
            return Err(Unavailable::Failing);
        }
        let (ack, acked) = oneshot::channel();
        state.waiting += 1;
        state.push(body, Some(ack));
        self.rouse(state, true);
        Ok(acked)
    }

    /// Queues an entry that nobody waits for.
    pub(super) fn push(&self, body: Body) {
        let mut state = self.lock();
        if state.writer == Writer::Stopped {
            state.lost += 1;
            drop(state);
            tracing::error!("an entry came after the ledger was closed and is lost");
            return;
        }
        if state.backlog() >= self.limits.backlog && state.failing(self.limits.patience) {
            state.lose(1);
            return;
        }
        state.push(body, None);
        let urgent = state.pending.len() >= BATCH;
        self.rouse(state, urgent);
    }

    /// Asks for a commit of everything queued so far. The answer comes after the attempt, and at once while
    /// writing fails.
    pub(super) fn push_flush(&self) -> oneshot::Receiver<()> {
        let (done, flushed) = oneshot::channel();
        let mut state = self.lock();
        if state.writer != Writer::Stopped && !state.failing(self.limits.patience) {
            state.flushes.push(done);
            self.rouse(state, true);
        }
        flushed
    }

    /// Lets the writer commit what is there and end.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    /// Waits until the writer has ended, as long as no commit takes too long. Whether it has.
    pub(super) fn has_ended(&self) -> bool {
        let patience = self.limits.patience;
        let mut state = self.lock();
        while state.writer != Writer::Stopped {
            let left = state.begun.map_or(patience, |begun| patience.saturating_sub(since(begun)));
            if left.is_zero() {
                return false;
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn rouse(&self, mut state: MutexGuard<'_, State>, urgent: bool) {
        let asleep = match state.writer {
            Writer::Idle => true,
            Writer::Gathering => urgent,
            Writer::Awake | Writer::Failing | Writer::Stopped => false,
        };
        if asleep {
            state.writer = Writer::Awake;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Waits until there is something to commit; `None` when the ledger is closed and nothing is left.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            let (sleep, wait) = match state.due(self.commit_interval) {
                Due::Now => break,
                Due::Never => return None,
                Due::Idle => (Writer::Idle, None),
                Due::In(wait) => (Writer::Gathering, Some(wait)),
                Due::RetryIn(wait) => (Writer::Failing, Some(wait)),
            };
            state.writer = sleep;
            state = match wait {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.writer = Writer::Awake;
        }
        Some(state.take())
    }

    /// Notes how the commit of a batch went, and tells those who wait. The chain stands at `tip`.
    /// Whether the writer goes on.
    pub(super) fn finish(&self, batch: Batch, outcome: Result<Duration, String>, tip: Tip) -> bool {
        let mut state = self.lock();
        state.in_flight = 0;
        state.begun = None;
        let told = mem::take(&mut state.told);
        let (answer, acks) = match outcome {
            Ok(took) => {
                state.commits += 1;
                state.last_commit = took;
                state.durable = tip;
                if state.failure.take().is_some() || told {
                    tracing::info!("the ledger writes again");
                }
                let acks: Vec<_> =
                    batch.entries.into_iter().filter_map(|entry| entry.ack).collect();
                (Ok(()), acks)
            }
            Err(text) => {
                if state.failure.is_none() {
                    tracing::error!(error = %text, "the ledger can't write");
                }
                let acks = state.put_back(batch.entries, batch.loss);
                // Nobody is kept waiting for the next attempt.
                state.flushes.clear();
                state.failure =
                    Some(Failure { text, retry_at: Clock.instant() + self.limits.retry });
                (Err(Unavailable::Failing), acks)
            }
        };
        let flushes = batch.flushes;
        let go_on = !(batch.last && answer.is_err());
        drop(state);
        // Whoever gave up waiting has dropped its end.
        for ack in acks {
            let _ = ack.send(answer);
        }
        for done in flushes {
            let _ = done.send(());
        }
        go_on
    }

    /// The writer is gone; whatever is still queued is lost.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.writer = Writer::Stopped;
        let left = mem::take(&mut state.pending);
        state.lost += left.iter().filter(|entry| entry.ack.is_none()).count() as u64;
        state.flushes.clear();
        let lost = state.lost;
        drop(state);
        self.ended.notify_all();
        if lost > 0 {
            tracing::error!(lost, "the ledger ends with entries that were never written");
        }
    }

    /// Where the chain stands, as far as it is durable.
    pub(super) fn tip(&self) -> Tip {
        self.lock().durable
    }

    pub(super) fn status(&self) -> Status {
        let mut state = self.lock();
        let failure = match (state.failing(self.limits.patience), &state.failure) {
            (_, Some(failure)) => Some(failure.text.clone()),
            (true, None) => Some(TOO_LONG.to_owned()),
            (false, None) => None,
        };
        Status {
            durable: state.durable.next,
            backlog: state.backlog(),
            commits: state.commits,
            last_commit: state.last_commit,
            lost: state.lost,
            failure,
        }
    }
}

fn since(begun: Instant) -> Duration {
    Clock.instant().saturating_duration_since(begun)
}

enum Due {
    Now,
    In(Duration),
    RetryIn(Duration),
    Idle,
    Never,
}

impl State {
    fn closed(&self) -> bool {
        self.closing || self.writer == Writer::Stopped
    }

    /// Whether the disk refuses, or takes longer than `patience` for the commit under way.
    fn failing(&mut self, patience: Duration) -> bool {
        let hangs = self.begun.is_some_and(|begun| since(begun) >= patience);
        if hangs && !mem::replace(&mut self.told, true) {
            tracing::error!(error = TOO_LONG, "the ledger can't write");
        }
        hangs || self.failure.is_some()
    }

    fn backlog(&self) -> usize {
        self.pending.len() + self.in_flight
    }

    fn push(&mut self, body: Body, ack: Option<oneshot::Sender<Result<(), Unavailable>>>) {
        self.since.get_or_insert_with(|| Clock.instant());
        self.pending.push_back(Pending { at: Stamp::now(), body, ack });
    }

    fn lose(&mut self, count: u64) {
        self.lost += count;
        let first = Stamp::now();
        self.loss.get_or_insert(Loss { count: 0, first }).count += count;
    }

    fn due(&self, commit_interval: Duration) -> Due {
        if self.closing {
            let work = !self.pending.is_empty() || !self.flushes.is_empty() || self.loss.is_some();
            return if work { Due::Now } else { Due::Never };
        }
        let now = Clock.instant();
        let wait =
            |until: Instant| until.checked_duration_since(now).filter(|wait| !wait.is_zero());
        if let Some(failure) = &self.failure {
            return wait(failure.retry_at).map_or(Due::Now, Due::RetryIn);
        }
        if self.waiting > 0 || !self.flushes.is_empty() || self.pending.len() >= BATCH {
            return Due::Now;
        }
        match self.since {
            _ if self.loss.is_some() => Due::Now,
            None => Due::Idle,
            Some(since) => wait(since + commit_interval).map_or(Due::Now, Due::In),
        }
    }

    fn take(&mut self) -> Batch {
        // After a failure everything goes at once, so that the gap that follows comes after it.
        let all = self.failure.is_some() || self.closing || self.pending.len() <= BATCH;
        let entries = if all {
            self.since = None;
            mem::take(&mut self.pending)
        } else {
            self.pending.drain(..BATCH).collect()
        };
        self.waiting -= entries.iter().filter(|entry| entry.ack.is_some()).count();
        self.in_flight = entries.len();
        self.begun = Some(Clock.instant());
        Batch {
            entries,
            loss: if all { self.loss.take() } else { None },
            flushes: if all { mem::take(&mut self.flushes) } else { Vec::new() },
            last: self.closing,
        }
    }

    /// Keeps what nobody waits for, and gives back those who wait: they are told no, and what they wanted
    /// to do will not happen, so their entries are dropped.
    fn put_back(
        &mut self,
        entries: VecDeque<Pending>,
        loss: Option<Loss>,
    ) -> Vec<oneshot::Sender<Result<(), Unavailable>>> {
        let mut acks = Vec::new();
        let mut kept = VecDeque::with_capacity(entries.len());
        for mut entry in entries {
            match entry.ack.take() {
                Some(ack) => acks.push(ack),
                None => kept.push_back(entry),
            }
        }
        // Those who came to wait meanwhile are told now as well.
        for mut entry in mem::take(&mut self.pending) {
            match entry.ack.take() {
                Some(ack) => acks.push(ack),
                None => kept.push_back(entry),
            }
        }
        self.waiting = 0;
        self.pending = kept;
        // The failure itself is recorded, even if nothing is lost by it.
        let begun = loss.unwrap_or(Loss { count: 0, first: Stamp::now() });
        let more = self.loss.map_or(0, |loss| loss.count);
        self.loss = Some(Loss { count: begun.count + more, first: begun.first });
        acks
    }
}

//! [`Breaker`]: spares a server that doesn't answer the calls that would find that out one by one.
//!
//! Closed, it counts. So many failures in a row, or such a share of the calls of half a minute, open it:
//! calls are refused without a word to the server, for a time that doubles with each opening. After that
//! it is half-open: a few calls at once go out as probes, and so many that succeed close it; one that
//! fails opens it again.
//!
//! It is a pure state machine. Time and randomness are passed in, and every call that is let through is
//! settled exactly once, by whoever holds its [`Pass`].
//!
//! INVARIANT: the time that it is open is counted from the opening. Nothing that happens later, late
//! failures of calls from before included, makes it longer: a pass is good for the state that gave it.
//!
//! INVARIANT: half-open ends. A probe whose end nobody knows gives its place back, and one that hangs
//! loses it after [`PATIENCE`]. Calls that may change something are no good as probes, since a failed one
//! may have run; but where nobody reads, one of them at a time has to do.

#[cfg(test)]
mod tests;
mod window;

use std::{
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

use super::settings;
use crate::protocol::Class;
use window::Window;

/// Probes that are under way at once.
const PROBES: usize = 3;

/// Probes that have to succeed before it closes.
const SUCCESSES: u32 = 3;

/// How long a probe keeps its place from others.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Having been closed for so long, it opens for the shortest time again.
const CALM: Duration = Duration::from_secs(30);

/// When to try again where all probes are under way.
const SHORTLY: Duration = Duration::from_secs(1);

/// What became of a call, as far as it tells of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was answered well.
    Succeeded,
    /// The server lives, but what it said is no sign that it works: a refusal of the call.
    Alive,
    /// It breaks off, is too late or says that it fails.
    Failed,
    /// It can't be reached.
    Unreachable,
}

/// The state as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Calls go out.
    Closed,
    /// Calls are refused.
    Open,
    /// Some calls go out as probes.
    HalfOpen,
}

impl Phase {
    /// The label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Lets one call through; to be settled.
#[derive(Debug)]
#[must_use = "a probe that is never settled keeps its place from others"]
pub(super) struct Pass {
    /// The state that gave it.
    entry: u64,
    /// Which probe it is.
    probe: Option<u64>,
}

/// The breaker of one server, or of one tool.
#[derive(Debug)]
pub(super) struct Breaker {
    settings: settings::Breaker,
    state: State,
    /// How often a state was entered.
    entry: u64,
    /// How often the time that it is open has doubled.
    doublings: u32,
    openings: u64,
    noise: u64,
}

#[derive(Debug)]
enum State {
    Closed(Closed),
    Open { until: Instant },
    HalfOpen(HalfOpen),
}

#[derive(Debug)]
struct Closed {
    /// When it closed, if it had been open before.
    since: Option<Instant>,
    in_a_row: u32,
    window: Window,
}

#[derive(Debug)]
struct HalfOpen {
    /// Until then, only calls that read are probes.
    reads_until: Instant,
    /// Those under way: number and beginning.
    probes: Vec<(u64, Instant)>,
    next: u64,
    successes: u32,
}

/// One as it is without a word in the configuration.
pub(super) fn with_defaults(now: Instant) -> Breaker {
    Breaker::new(settings::Breaker::default(), seed(), now)
}

/// Another one each time.
pub(super) fn seed() -> u64 {
    RandomState::new().hash_one(())
}

impl Breaker {
    /// A closed one. `seed` spreads the times at which several try again.
    pub(super) fn new(settings: settings::Breaker, seed: u64, now: Instant) -> Self {
        Self {
            settings,
            state: State::Closed(Closed::new(None, now)),
            entry: 0,
            doublings: 0,
            openings: 0,
            noise: seed,
        }
    }

    /// Lets a call of this class through, or tells when to try again.
    pub(super) fn admit(&mut self, class: Class, now: Instant) -> Result<Pass, Duration> {
        if let State::Open { until } = self.state {
            let left = until.saturating_duration_since(now);
            if !left.is_zero() {
                return Err(left);
            }
            let reads_until = until + self.settings.open;
            self.enter(State::HalfOpen(HalfOpen::new(reads_until)));
        }
        let probe = match &mut self.state {
            State::Closed(_) | State::Open { .. } => None,
            State::HalfOpen(half) => Some(half.admit(class, now)?),
        };
        Ok(Pass { entry: self.entry, probe })
    }

    /// Takes note of what became of a call; `None` if that tells nothing.
    pub(super) fn settle(&mut self, pass: &Pass, verdict: Option<Verdict>, now: Instant) {
        if pass.entry != self.entry {
            return;
        }
        match &mut self.state {
            State::Closed(closed) => {
                let Some(verdict) = verdict else { return };
                if closed.count(verdict, &self.settings, now) {
                    let calm = closed.since.is_none_or(|since| now >= since + CALM);
                    self.doublings = if calm { 0 } else { self.doublings + 1 };
                    self.open(now);
                }
            }
            State::HalfOpen(half) => {
                half.probes.retain(|(number, _)| Some(*number) != pass.probe);
                match verdict {
                    None => {}
                    Some(Verdict::Failed | Verdict::Unreachable) => {
                        self.doublings += 1;
                        self.open(now);
                    }
                    Some(Verdict::Succeeded | Verdict::Alive) => {
                        half.successes += 1;
                        if half.successes >= SUCCESSES {
                            self.enter(State::Closed(Closed::new(Some(now), now)));
                        }
                    }
                }
            }
            // It gives no passes.
            State::Open { .. } => {}
        }
    }

    /// Closes it, as if nothing had happened.
    pub(super) fn reset(&mut self, now: Instant) {
        self.doublings = 0;
        self.enter(State::Closed(Closed::new(None, now)));
    }

    /// The state that a call would meet.
    pub(super) fn phase(&self, now: Instant) -> Phase {
        match &self.state {
            State::Closed(_) => Phase::Closed,
            State::Open { until } if now < *until => Phase::Open,
            State::Open { .. } | State::HalfOpen(_) => Phase::HalfOpen,
        }
    }

    /// How long it stays open; nothing unless it is.
    pub(super) fn opens_for(&self, now: Instant) -> Option<Duration> {
        match &self.state {
            State::Open { until } => Some(until.saturating_duration_since(now)),
            State::Closed(_) | State::HalfOpen(_) => None,
        }
    }

    /// Failures since the last success, while it is closed.
    pub(super) fn failures_in_a_row(&self) -> Option<u32> {
        match &self.state {
            State::Closed(closed) => Some(closed.in_a_row),
            State::Open { .. } | State::HalfOpen(_) => None,
        }
    }

    /// How often a state was entered: whether it has changed.
    pub(super) fn entry(&self) -> u64 {
        self.entry
    }

    /// How often it has opened.
    pub(super) fn openings(&self) -> u64 {
        self.openings
    }

    fn open(&mut self, now: Instant) {
        let settings::Breaker { open, max_open, .. } = self.settings;
        let longest = open.saturating_mul(1 << self.doublings.min(16)).min(max_open);
        // Shorter by up to a fifth, so that replicas don't try again all at once.
        let part = u32::try_from(self.random() % 1024).unwrap_or_default();
        let time = longest - longest / 5 * part / 1024;
        self.openings += 1;
        self.enter(State::Open { until: now + time });
    }

    fn enter(&mut self, state: State) {
        self.entry += 1;
        self.state = state;
    }

    /// SplitMix64 (Steele, Lea and Flood 2014).
    fn random(&mut self) -> u64 {
        self.noise = self.noise.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.noise;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

impl Closed {
    fn new(since: Option<Instant>, now: Instant) -> Self {
        Self { since, in_a_row: 0, window: Window::new(now) }
    }

    /// Counts a call; whether that was one failure too many.
    fn count(&mut self, verdict: Verdict, settings: &settings::Breaker, now: Instant) -> bool {
        let failed = match verdict {
            Verdict::Succeeded => {
                self.in_a_row = 0;
                false
            }
            // It may fail in between what it refuses.
            Verdict::Alive => false,
            Verdict::Failed | Verdict::Unreachable => {
                self.in_a_row += 1;
                true
            }
        };
        self.window.count(failed, now);
        failed
            && (self.in_a_row >= settings.failures
                || self.window.is_failing(settings.failure_percent))
    }
}

impl HalfOpen {
    fn new(reads_until: Instant) -> Self {
        Self { reads_until, probes: Vec::with_capacity(PROBES), next: 0, successes: 0 }
    }

    fn admit(&mut self, class: Class, now: Instant) -> Result<u64, Duration> {
        self.probes.retain(|(_, since)| now.saturating_duration_since(*since) < PATIENCE);
        match class {
            Class::Control | Class::List | Class::Read if self.probes.len() < PROBES => {}
            Class::Write | Class::Execute if now < self.reads_until => {
                return Err(self.reads_until.saturating_duration_since(now));
            }
            Class::Write | Class::Execute if self.probes.is_empty() => {}
            Class::Control | Class::List | Class::Read | Class::Write | Class::Execute => {
                return Err(SHORTLY);
            }
        }
        self.next += 1;
        self.probes.push((self.next, now));
        Ok(self.next)
    }
}

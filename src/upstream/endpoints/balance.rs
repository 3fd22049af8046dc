//! [`Balance`]: which of several endpoints a call goes to. Pure; time is passed in.
//!
//! The one with the fewest calls under way is taken, in turn where several have as few. One that has failed
//! several calls in a row is left out for a while, longer each time; one whose probes fail is left out until
//! one succeeds. Whoever comes back has to answer one call before it gets more: it has the fewest under way
//! and would otherwise be given everything at once.
//!
//! INVARIANT: there is always somebody to be taken. Of those that fail calls at most half are left out, and if
//! all are out, the least bad ones are in.

use std::time::{Duration, Instant};

/// Calls in a row that an endpoint has to fail to be left out.
const FAILURES: u32 = 3;

/// Probes in a row that it has to fail: one says nothing, a connection can break.
const PROBES: u32 = 2;

/// How long it is left out the first time; it doubles with each further one.
const FIRST_ABSENCE: Duration = Duration::from_secs(5);
const LONGEST_ABSENCE: Duration = Duration::from_secs(300);

/// How long an endpoint that is out has to have failed until its sessions are given up.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// Most endpoints of one upstream, as a set of them is a number; so says the configuration too.
const MOST: usize = 32;

/// The state of all endpoints of an upstream.
#[derive(Debug)]
pub(super) struct Balance {
    members: Box<[Member]>,
    /// Where the search for the next one begins.
    next: usize,
}

#[derive(Debug, Default)]
struct Member {
    /// Calls under way, streams among them.
    outstanding: usize,
    /// Calls that failed since one was answered, and when the first of them did.
    failures: u32,
    failing_since: Option<Instant>,
    /// The last time that it was left out.
    absence: Option<Absence>,
    /// How often it was, without having stood for as long since.
    absences: u32,
    /// Whether it has to prove itself when it comes back, and does.
    trial: Trial,
    /// Probes that failed since one succeeded, and when the first of them did.
    failed_probes: u32,
    down_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    from: Instant,
    until: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trial {
    #[default]
    None,
    Wanted,
    Running,
}

/// A call that an endpoint was taken for; to be given back to [`Balance::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Whose call it is.
    pub(super) index: usize,
    /// When it was taken.
    pub(super) at: Instant,
    is_trial: bool,
}

/// A set of endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(u32);

/// What became of a call, as far as the endpoint is to be praised or blamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was answered, whatever the answer.
    Answered,
    /// No connection, no answer, or one that says that nobody is there.
    Failed,
}

/// What there is to tell of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is left out for so long.
    Ejected(Duration),
    /// It has answered a call after it had been left out.
    Returned,
    /// Its probes fail.
    Down,
    /// They succeed again.
    Up,
}

impl Set {
    pub(super) fn insert(&mut self, index: usize) {
        self.0 |= bit(index);
    }

    fn contains(self, index: usize) -> bool {
        self.0 & bit(index) != 0
    }
}

fn bit(index: usize) -> u32 {
    u32::try_from(index).ok().and_then(|index| 1_u32.checked_shl(index)).unwrap_or_default()
}

impl Balance {
    /// `count` endpoints of which nothing is known; at most [`MOST`].
    pub(super) fn new(count: usize) -> Self {
        let members = std::iter::repeat_with(Member::default).take(count.min(MOST)).collect();
        Self { members, next: 0 }
    }

    /// Takes the best endpoint for a call, none of `tried`. `None` if all were tried.
    pub(super) fn pick(&mut self, tried: Set, now: Instant) -> Option<Taken> {
        let count = self.members.len();
        let (before, after) = self.members.split_at(self.next.min(count));
        let from = before.len();
        let in_turn = (from..).zip(after).chain((0..).zip(before));
        let index = in_turn
            .filter(|(index, _)| !tried.contains(*index))
            // The first of those that are equal.
            .min_by_key(|(_, member)| (member.blame(now), member.load()))
            .map(|(index, _)| index)?;
        self.next = (index + 1) % count;
        self.take(index, now)
    }

    /// Takes this endpoint, whatever is known of it: what a session is about is nowhere else.
    pub(super) fn take(&mut self, index: usize, now: Instant) -> Option<Taken> {
        let member = self.members.get_mut(index)?;
        member.outstanding += 1;
        let is_trial = member.trial == Trial::Wanted && !member.is_ejected(now);
        if is_trial {
            member.trial = Trial::Running;
        }
        Some(Taken { index, at: now, is_trial })
    }

    /// Whether an endpoint has been out for so long that its sessions needn't be waited for.
    pub(super) fn is_given_up(&self, index: usize, now: Instant) -> bool {
        let long = |since: Option<Instant>| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= GIVEN_UP)
        };
        self.members.get(index).is_some_and(|member| {
            (member.is_ejected(now) && long(member.failing_since))
                || (member.is_down() && long(member.down_since))
        })
    }

    /// Takes note of what became of a call. Once for each call is enough; a stream that breaks after it has
    /// begun is one that was answered and failed.
    pub(super) fn report(
        &mut self,
        call: &Taken,
        outcome: Outcome,
        now: Instant,
    ) -> Option<Change> {
        let most_out = self.members.len() / 2;
        let out = self.members.iter().filter(|other| other.is_out(now)).count();
        let member = self.members.get_mut(call.index)?;
        // What began before it was left out is why it was.
        if member.absence.is_some_and(|absence| call.at < absence.from) {
            return None;
        }
        match outcome {
            Outcome::Answered => member.answered(now),
            Outcome::Failed => {
                member.failures = member.failures.saturating_add(1);
                member.failing_since.get_or_insert(now);
                let proves = member.trial == Trial::Running && call.is_trial;
                if proves {
                    member.trial = Trial::Wanted;
                }
                let enough = member.failures >= FAILURES;
                let room = out < most_out || member.is_down();
                (enough && room && !member.is_ejected(now)).then(|| member.eject(now))
            }
        }
    }

    /// The call is over. One that was to prove something and of which nothing was heard has proven nothing.
    pub(super) fn finish(&mut self, call: &Taken) {
        if let Some(member) = self.members.get_mut(call.index) {
            member.outstanding = member.outstanding.saturating_sub(1);
            if call.is_trial && member.trial == Trial::Running {
                member.trial = Trial::Wanted;
            }
        }
    }

    /// Takes note of a probe.
    pub(super) fn probed(&mut self, index: usize, alive: bool, now: Instant) -> Option<Change> {
        let member = self.members.get_mut(index)?;
        let was_down = member.is_down();
        if alive {
            (member.failed_probes, member.down_since) = (0, None);
            if was_down && let Some(absence) = &mut member.absence {
                // It was away, and is back: what calls failed for is over. It still has to prove itself.
                absence.until = absence.until.min(now);
            }
            return was_down.then_some(Change::Up);
        }
        member.failed_probes = member.failed_probes.saturating_add(1);
        member.down_since.get_or_insert(now);
        (member.is_down() && !was_down).then_some(Change::Down)
    }

    /// Whether an endpoint is neither left out nor has to prove itself.
    pub(super) fn serves(&self, index: usize) -> bool {
        let serves = |member: &Member| !member.is_down() && member.trial == Trial::None;
        self.members.get(index).is_some_and(serves)
    }
}

impl Member {
    fn answered(&mut self, now: Instant) -> Option<Change> {
        (self.failures, self.failing_since) = (0, None);
        let absence = self.absence?;
        let stood = now.saturating_duration_since(absence.until);
        if stood >= absence.until.saturating_duration_since(absence.from) {
            (self.absence, self.absences) = (None, 0);
        }
        let returns = self.trial != Trial::None;
        self.trial = Trial::None;
        if let Some(absence) = &mut self.absence {
            // It was asked though it was out, and is back before its time.
            absence.until = absence.until.min(now);
        }
        returns.then_some(Change::Returned)
    }

    fn eject(&mut self, now: Instant) -> Change {
        let doublings = self.absences.min(16);
        let length = FIRST_ABSENCE.saturating_mul(1 << doublings).min(LONGEST_ABSENCE);
        self.absence = Some(Absence { from: now, until: now + length });
        self.absences = self.absences.saturating_add(1);
        self.trial = Trial::Wanted;
        Change::Ejected(length)
    }

    fn is_ejected(&self, now: Instant) -> bool {
        self.absence.is_some_and(|absence| now < absence.until)
    }

    fn is_down(&self) -> bool {
        self.failed_probes >= PROBES
    }

    fn is_out(&self, now: Instant) -> bool {
        self.is_down() || self.is_ejected(now)
    }

    /// What else it has to do. Who has to prove itself is given the chance, however many old streams it has.
    fn load(&self) -> usize {
        if self.trial == Trial::Wanted { 0 } else { self.outstanding }
    }

    /// How little it is wanted. Probes that fail weigh more than calls that did: they are of now.
    fn blame(&self, now: Instant) -> u8 {
        let trying = u8::from(self.trial == Trial::Running);
        let ejected = u8::from(self.is_ejected(now)) * 2;
        let down = u8::from(self.is_down()) * 4;
        down + ejected.max(trying)
    }
}

#[cfg(test)]
mod tests;

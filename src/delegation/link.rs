//! Which inbound call an outbound call comes from.
//!
//! Agents don't pass on what they don't know, so the cause of an outbound call is found by a ladder, from what is
//! exact to what can only narrow. The rung that was reached is on record with the call.
//!
//! | rung | the outbound call … | judged by |
//! |---|---|---|
//! | `handle` | carries the handle that the inbound one was given | that one |
//! | `trace` | has the trace id of live inbound calls | all of those |
//! | `context` | names a conversation, task or session of live inbound calls | all of those |
//! | `single` | carries nothing, and one inbound call is live | that one |
//! | `ambient` | carries nothing, and several are live | all of them |
//! | `root` | carries nothing, and none is live | the agent's own right to begin |
//!
//! INVARIANT: a call is never linked to an inbound call that has ended, nor to one that this process did not
//! receive; what can't be told apart is judged by all that it could be. What a workload mixes up itself can't be
//! told apart here: whoever needs that runs an instance for each principal.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use data_encoding::HEXLOWER;
use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Uuid;

use super::Behalf;
use crate::identity::SpiffeId;

#[cfg(test)]
mod tests;

/// The member of `tracestate` and `baggage` that carries a handle.
pub const MEMBER: &str = "lictor";

/// How long a task that goes on without its caller keeps the call alive that made it.
pub const LINGER: Duration = Duration::from_secs(600);

/// Most calls that are kept alive by their tasks; the oldest makes room.
const MOST_LINGERING: usize = 10_000;

/// How the cause of an outbound call was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// By an unguessable handle of the inbound call.
    Handle,
    /// By a trace id that live inbound calls have.
    Trace,
    /// By a conversation, task or session.
    Context,
    /// There is one live inbound call.
    Single,
    /// There are several, and all of them count.
    Ambient,
    /// There is none.
    Root,
}

impl Rung {
    /// The name in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handle => "handle",
            Self::Trace => "trace",
            Self::Context => "context",
            Self::Single => "single",
            Self::Ambient => "ambient",
            Self::Root => "root",
        }
    }
}

/// An inbound call that outbound ones may come from.
#[derive(Debug)]
pub struct Cause {
    /// Its decision id.
    pub call_id: Uuid,
    /// Who called.
    pub caller: SpiffeId,
    /// By whose authority.
    pub behalf: Behalf,
}

/// What a message carries of the trace that it belongs to, and the conversations that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    handles: Vec<Box<str>>,
    traces: Vec<Box<str>>,
    names: Vec<Box<str>>,
}

impl Marks {
    /// Takes a `traceparent` (W3C Trace Context §3.2): the trace id of version 00 and of what later versions
    /// have in common with it. Anything else is no trace.
    pub fn trace_parent(&mut self, value: &str) {
        let mut fields = value.trim().split('-');
        let (Some(version), Some(trace)) = (fields.next(), fields.next()) else { return };
        let hex = |text: &str, length| {
            text.len() == length
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if hex(version, 2)
            && version != "ff"
            && hex(trace, 32)
            && trace.bytes().any(|byte| byte != b'0')
        {
            self.traces.push(trace.into());
        }
    }

    /// Takes the list members of a `tracestate` or of `baggage`; ours are handles.
    pub fn members(&mut self, value: &str) {
        for member in value.split(',') {
            let Some((key, value)) = member.split_once('=') else { continue };
            // Baggage may have properties after its value.
            let value = value.split(';').next().unwrap_or_default().trim();
            if key.trim() == MEMBER && !value.is_empty() {
                self.handles.push(value.into());
            }
        }
    }

    /// Takes the id of a conversation, task or session.
    pub fn name(&mut self, id: &str) {
        self.names.push(id.into());
    }
}

/// The inbound calls that are live.
#[derive(Default)]
pub struct Links {
    live: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    calls: HashMap<u64, Live>,
    lingering: usize,
}

struct Live {
    cause: Arc<Cause>,
    handle: Box<str>,
    traces: Vec<Box<str>>,
    names: HashSet<Box<str>>,
    /// When it ends at the latest if what it began goes on without it; time since the Unix epoch.
    linger: Option<Duration>,
    /// Its answer has ended.
    answered: bool,
}

/// Where an outbound call comes from.
#[derive(Debug)]
pub struct Linked {
    /// How that was found.
    pub rung: Rung,
    /// By whose authority it is judged: all of these; none at [`Rung::Root`].
    pub causes: Vec<Arc<Cause>>,
}

/// A live inbound call; dropping it ends that, or begins its time to linger.
#[derive(Debug)]
pub struct Inbound {
    links: Arc<Links>,
    key: u64,
    handle: Box<str>,
}

impl Links {
    /// Begins an inbound call.
    ///
    /// # Errors
    /// When there is no randomness for its handle.
    pub fn enter(
        self: &Arc<Self>,
        cause: Cause,
        marks: Marks,
    ) -> Result<Inbound, ring::error::Unspecified> {
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random)?;
        let handle: Box<str> = HEXLOWER.encode(&random).into();
        let live = Live {
            cause: Arc::new(cause),
            handle: handle.clone(),
            traces: marks.traces,
            names: marks.names.into_iter().collect(),
            linger: None,
            answered: false,
        };
        let mut table = self.table();
        let key = table.next;
        table.next += 1;
        table.calls.insert(key, live);
        Ok(Inbound { links: Arc::clone(self), key, handle })
    }

    /// Where an outbound call with these marks comes from, at `now` (since the Unix epoch).
    pub fn trace_back(&self, marks: &Marks, now: Duration) -> Linked {
        let mut table = self.table();
        table.reap(now);
        let by = |rung, test: &dyn Fn(&Live) -> bool| {
            let causes: Vec<Arc<Cause>> = table.causes(test);
            (!causes.is_empty()).then_some(Linked { rung, causes })
        };
        by(Rung::Handle, &|live| marks.handles.contains(&live.handle))
            .or_else(|| {
                by(Rung::Trace, &|live| live.traces.iter().any(|it| marks.traces.contains(it)))
            })
            .or_else(|| {
                by(Rung::Context, &|live| marks.names.iter().any(|it| live.names.contains(it)))
            })
            .unwrap_or_else(|| {
                let causes = table.causes(&|_| true);
                let rung = match causes.len() {
                    0 => Rung::Root,
                    1 => Rung::Single,
                    _ => Rung::Ambient,
                };
                Linked { rung, causes }
            })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here leaves the table half changed.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("live", &self.table().calls.len()).finish()
    }
}

impl Table {
    /// In the order in which they began.
    fn causes(&self, test: &dyn Fn(&Live) -> bool) -> Vec<Arc<Cause>> {
        let mut found: Vec<_> = self.calls.iter().filter(|(_, live)| test(live)).collect();
        found.sort_by_key(|(key, _)| **key);
        found.into_iter().map(|(_, live)| Arc::clone(&live.cause)).collect()
    }

    fn reap(&mut self, now: Duration) {
        if self.lingering > 0 {
            let ended = |live: &Live| live.answered && live.linger.is_none_or(|end| end <= now);
            self.calls.retain(|_, live| !ended(live));
            self.lingering = self.calls.values().filter(|live| live.answered).count();
        }
    }

    /// A call's answer has ended.
    fn end(&mut self, key: u64) {
        let Some(live) = self.calls.get_mut(&key) else { return };
        if live.linger.is_none() {
            self.calls.remove(&key);
            return;
        }
        live.answered = true;
        self.lingering += 1;
        if self.lingering > MOST_LINGERING {
            let lingering =
                self.calls.iter().filter(|(_, live)| live.answered).map(|(key, _)| *key);
            if let Some(oldest) = lingering.min() {
                self.calls.remove(&oldest);
                self.lingering -= 1;
            }
        }
    }
}

impl Inbound {
    /// What tells an outbound call of it exactly: 32 hexadecimal digits.
    pub fn handle(&self) -> &str {
        &self.handle
    }

    /// The call has to do with this conversation, task or session, too.
    pub fn name(&self, id: &str) {
        if let Some(live) = self.links.table().calls.get_mut(&self.key) {
            live.names.insert(id.into());
        }
    }

    /// What was begun goes on after the answer, until this time at the latest (since the Unix epoch); `None`:
    /// it has ended.
    pub fn linger(&self, until: Option<Duration>) {
        if let Some(live) = self.links.table().calls.get_mut(&self.key) {
            live.linger = until;
        }
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.links.table().end(self.key);
    }
}

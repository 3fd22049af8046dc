//! Whether calls can be served now.

use std::sync::atomic::{AtomicBool, Ordering};

/// What has to be in order before calls are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A valid SVID of Lictor's own, where one is needed.
    Identity,
    /// Policies are in force.
    Policy,
    /// The ledger can be written.
    Ledger,
    /// It is known what was revoked.
    Revocations,
    /// Every listener is bound.
    Listeners,
}

/// The state of each [`Part`], and whether Lictor is shutting down. Nothing is in order at first.
///
/// The store of who owns what is no part: without it the calls that need it are refused, one by one, and the
/// others are served. Replicas share it, so that taking one out for it would take out all of them. The same goes for
/// policies on disk that can't be put in force: the old ones are.
#[derive(Debug, Default)]
pub struct Readiness {
    identity: AtomicBool,
    policy: AtomicBool,
    ledger: AtomicBool,
    revocations: AtomicBool,
    listeners: AtomicBool,
    stateless: AtomicBool,
    outdated: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    const PARTS: [Part; 5] =
        [Part::Identity, Part::Policy, Part::Ledger, Part::Revocations, Part::Listeners];

    /// Tells whether a part is in order.
    pub fn set(&self, part: Part, in_order: bool) {
        self.flag(part).store(in_order, Ordering::Relaxed);
    }

    /// Tells whether the store of who owns what can be used.
    pub fn set_state(&self, usable: bool) {
        self.stateless.store(!usable, Ordering::Relaxed);
    }

    /// Tells whether the policies in force are those on disk.
    pub fn set_policies_current(&self, current: bool) {
        self.outdated.store(!current, Ordering::Relaxed);
    }

    /// Tells that Lictor is shutting down; there is no way back.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Why calls aren't served; empty when they are.
    pub fn reasons(&self) -> Vec<&'static str> {
        let draining = self.draining.load(Ordering::Relaxed).then_some("shutting down");
        let missing =
            Self::PARTS.into_iter().filter(|part| !self.flag(*part).load(Ordering::Relaxed));
        draining.into_iter().chain(missing.map(Part::reason)).collect()
    }

    /// What is wrong while calls are served.
    pub fn degraded(&self) -> Vec<&'static str> {
        let stateless = (&self.stateless, "the state store can't be used");
        let outdated = (&self.outdated, "the policies on disk aren't in force");
        let wrong = [stateless, outdated].into_iter().filter(|(it, _)| it.load(Ordering::Relaxed));
        wrong.map(|(_, told)| told).collect()
    }

    fn flag(&self, part: Part) -> &AtomicBool {
        match part {
            Part::Identity => &self.identity,
            Part::Policy => &self.policy,
            Part::Ledger => &self.ledger,
            Part::Revocations => &self.revocations,
            Part::Listeners => &self.listeners,
        }
    }
}

impl Part {
    fn reason(self) -> &'static str {
        match self {
            Self::Identity => "no valid identity of Lictor's own",
            Self::Policy => "no policies in force",
            Self::Ledger => "the ledger can't be written",
            Self::Revocations => "what was revoked isn't known yet",
            Self::Listeners => "not every listener is bound",
        }
    }
}

//! [`Stage`], [`Chain`] and [`Permit`].

use std::{fmt::Debug, sync::Arc};

use crate::{
    delegation::Behalf,
    denial::Denial,
    identity::{Principal, SpiffeId},
    policy::{Decision, Delegation, Policies, Question},
    protocol::{Call, Class, Method, Target, mcp::server::Asked},
    revocation::Revocations,
};

/// A call in the place where it is judged, or what its server asks of the caller meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The authenticated caller.
    pub principal: &'a Principal,
    /// The decoded message of the caller.
    pub call: &'a Call,
    /// What the server asks, in the answer to that; `None` while the call itself is judged.
    pub asked: Option<&'a Asked>,
    /// Name of the upstream that its route leads to.
    pub server: &'a str,
    /// Who that has to prove to be, where it proves an identity.
    pub callee: Option<&'a SpiffeId>,
    /// Name of the listener it came in on.
    pub listener: &'a str,
    /// By whose authority it is made.
    pub behalf: &'a Behalf,
    /// Whether denials are only recorded (`mode: shadow` of the route).
    pub shadow: bool,
}

impl<'a> Request<'a> {
    /// What is judged: the call's method and targets, or those of what the server asks.
    pub(super) fn touches(&self) -> (&'a Method, &'a [Target]) {
        match self.asked {
            None => (&self.call.method, &self.call.targets),
            Some(asked) => (&asked.method, &[Target::Caller]),
        }
    }

    /// What the policies are asked about one target, with `principal` for the caller.
    pub(super) fn question<'b>(
        &self,
        principal: &'b Principal,
        method: &'b Method,
        target: &'b Target,
        delegation: Option<Delegation<'b>>,
    ) -> Question<'b>
    where
        'a: 'b,
    {
        Question {
            principal,
            server: self.server,
            listener: self.listener,
            method,
            target,
            arguments: self.call.arguments_value().filter(|_| self.asked.is_none()),
            asks: self.asked.map(|asked| &asked.asks),
            a2a: self
                .call
                .a2a
                .as_deref()
                .map(|facts| &facts.traits)
                .filter(|_| self.asked.is_none()),
            web: self
                .call
                .web
                .as_deref()
                .map(|facts| &facts.traits)
                .filter(|_| self.asked.is_none()),
            era: self.call.era,
            delegation,
        }
    }
}

/// What has to be looked up before a call can be judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs<'a> {
    /// Whose session this is.
    pub session: Option<&'a str>,
    /// Whose tasks these are.
    pub tasks: Vec<&'a str>,
    /// Whose continuation this is.
    pub continuation: Option<&'a str>,
    /// Whose conversations with an agent these are.
    pub contexts: Vec<&'a str>,
    /// Whether an agent may be told to push to these addresses.
    pub push_urls: Vec<&'a str>,
}

/// A snapshot of everything outside the call that the stages look at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The policies in force.
    pub policies: Arc<Policies>,
    /// Who owns what the call names.
    pub owned: Owned,
    /// Why the agent must not be told to push to an address that the call names.
    pub push_refused: Option<&'static str>,
    /// What was revoked.
    pub revocations: Arc<Revocations>,
}

/// The owners of what [`Needs`] named. Nobody owns anything until it was looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Of the session.
    pub session: Owner,
    /// Of the tasks, in the same order.
    pub tasks: Vec<Owner>,
    /// Of the continuation.
    pub continuation: Owner,
    /// Of the conversations, in the same order.
    pub contexts: Vec<Owner>,
}

/// Whose something is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// There is no such thing.
    #[default]
    Nobody,
    /// This principal's, by SPIFFE ID.
    Is(Arc<str>),
    /// It can't be looked up at the moment.
    Unavailable,
}

/// What a stage says. There is no `Allow`: a stage can only let the next one judge, or end it.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing to object.
    Continue,
    /// Refused.
    Deny(Denial),
}

/// One check.
pub trait Stage: Debug + Send + Sync {
    /// A short, stable name for ledger and metrics.
    fn name(&self) -> &'static str;

    /// Whether its denials end a call where those of other stages are only recorded.
    fn is_enforced_in_shadow(&self) -> bool {
        false
    }

    /// Adds what this stage wants to know to `needs`.
    fn needs<'a>(&self, _call: &'a Call, _needs: &mut Needs<'a>) {}

    /// Judges a call. What it learned for the record goes into `findings`.
    fn judge(&self, request: &Request<'_>, facts: &Facts, findings: &mut Findings) -> Verdict;
}

/// What the stages learned on the way, for the permit and the ledger.
#[derive(Debug, Default)]
pub struct Findings {
    /// The policy decisions, one for each target that was judged.
    pub decisions: Vec<Decision>,
}

/// A refusal, and the stage that gave it.
#[derive(Debug)]
pub struct Refusal {
    /// Why.
    pub denial: Denial,
    /// [`Stage::name`] of the stage.
    pub stage: &'static str,
    /// The policy decisions up to there.
    pub decisions: Vec<Decision>,
}

/// The proof that every stage was passed. Only [`Chain::evaluate`] can make one, and an upstream can't be
/// asked for without one.
///
/// ```compile_fail,E0451
/// let forged = lictor::governance::Permit { decisions: Vec::new(), would_deny: None };
/// ```
#[derive(Debug)]
pub struct Permit {
    decisions: Vec<Decision>,
    would_deny: Option<(&'static str, Denial)>,
}

impl Permit {
    /// The widest class among what was permitted; decides whether the ledger needs an intent first.
    pub fn class(&self) -> Class {
        self.decisions.iter().map(|decision| decision.class).max().unwrap_or(Class::Execute)
    }

    /// The policy decisions behind it.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// In shadow mode, what would have refused the call: stage and reason.
    pub fn would_deny(&self) -> Option<(&'static str, &Denial)> {
        self.would_deny.as_ref().map(|(stage, denial)| (*stage, denial))
    }
}

/// The stages, in the order in which they are asked.
#[derive(Debug)]
pub struct Chain {
    stages: Vec<Box<dyn Stage>>,
}

impl Chain {
    /// A chain of the given stages.
    pub fn new(stages: Vec<Box<dyn Stage>>) -> Self {
        Self { stages }
    }

    /// Names the facts that [`Self::evaluate`] needs for this call.
    pub fn needs<'a>(&self, call: &'a Call) -> Needs<'a> {
        let mut needs = Needs::default();
        for stage in &self.stages {
            stage.needs(call, &mut needs);
        }
        needs
    }

    /// Asks every stage in turn. The first denial ends it, except in shadow mode, where it is kept in the
    /// permit and the rest is still asked, unless the stage is enforced there as well.
    pub fn evaluate(&self, request: &Request<'_>, facts: &Facts) -> Result<Permit, Refusal> {
        let mut findings = Findings::default();
        let mut would_deny = None;
        for stage in &self.stages {
            match stage.judge(request, facts, &mut findings) {
                Verdict::Continue => {}
                Verdict::Deny(denial) if request.shadow && !stage.is_enforced_in_shadow() => {
                    would_deny.get_or_insert((stage.name(), denial));
                }
                Verdict::Deny(denial) => {
                    let decisions = findings.decisions;
                    return Err(Refusal { denial, stage: stage.name(), decisions });
                }
            }
        }
        Ok(Permit { decisions: findings.decisions, would_deny })
    }
}

//! The delegation stage: what is done on somebody's behalf has to be permitted to everybody in the chain.
//!
//! The effective right is a conjunction at the time of the call and is never worked out beforehand: for each
//! hop the call has to be within its mode and its capabilities, and the policies are asked with the hop's
//! issuer for principal. So a hop more can only narrow, whatever the policies say.
//!
//! A call without a chain is a chain of none: its caller is its root. Where it is configured who may begin
//! chains, nobody else may call like that. That rule is what makes the others count: a proxy whose key was
//! taken could drop the chain that it was given and act by itself. What only makes two sides known to each other
//! ([`Method::introduces`]) is done for nobody and needs no chain.
//!
//! What a server asks of a caller meanwhile is put to the policies in the same way. Modes and capabilities
//! say nothing of it: they are about what is done to servers.
//!
//! INVARIANT: the class that a mode is held against is that of the policies' decision, which comes from our
//! own configuration; what a server says of its tools has no part in it.

use super::chain::{Facts, Findings, Request, Stage, Verdict};
use crate::{
    delegation::{Behalf, Capabilities, Chain, Limit, Mode, Objection, Settings, link::Rung},
    denial::Denial,
    identity::Principal,
    policy::{
        Decision, Delegation, Policies, Question,
        grants::{Delegation as Terms, DelegationMode},
    },
    protocol::{Class, Method, Target, method::Governs},
};

/// Asks everybody on whose behalf a call is made.
#[derive(Debug)]
pub struct DelegationStage {
    /// Who may begin a chain. `None`: everybody may call by themselves.
    settings: Option<Settings>,
}

impl DelegationStage {
    /// A stage under these settings; without any, it judges calls with a chain only.
    pub fn new(settings: Option<Settings>) -> Self {
        Self { settings }
    }

    /// A workload's call that doesn't say which of several callers it is for, where it has to.
    fn is_vague(&self, request: &Request<'_>) -> bool {
        let may_be = self.settings.as_ref().is_none_or(|settings| settings.ambient);
        let vague = request.behalf.rung() == Some(Rung::Ambient);
        vague && !may_be && request.asked.is_none() && !request.call.method.introduces()
    }
}

impl Stage for DelegationStage {
    fn name(&self) -> &'static str {
        "delegation"
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, findings: &mut Findings) -> Verdict {
        let (method, targets) = request.touches();
        let questions =
            targets.iter().map(|target| request.question(request.principal, method, target, None));
        if request.behalf.is_own() {
            let (settings, own) = (self.settings.as_ref(), request.behalf.own());
            if let Err(denial) = judge_root(settings, own, &facts.policies, questions.clone()) {
                return Verdict::Deny(denial);
            }
        }
        if self.is_vague(request) {
            return Verdict::Deny(Denial::DelegationAmbiguous);
        }
        for chain in request.behalf.chains() {
            let judged = judge_members(members(chain), &facts.policies, questions.clone());
            if let Err(Refused { objection, decision }) = judged {
                // The policies behind a refusal are recorded; those that permit are the caller's.
                findings.decisions.extend(decision);
                return Verdict::Deny(Denial::DelegationDenied(objection));
            }
        }
        Verdict::Continue
    }
}

/// One of those on whose behalf a call is made: who, where in the chain, and what it lets pass.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Who delegates.
    pub principal: &'a Principal,
    /// How far its hop lets calls go.
    pub mode: Mode,
    /// What its hop restricts them to.
    pub capabilities: &'a Capabilities,
    /// Where it stands.
    pub place: Delegation<'a>,
}

/// Somebody of a chain objects.
#[derive(Debug)]
pub struct Refused {
    /// Who, and to what.
    pub objection: Objection,
    /// The decision of the policies that stands behind it, where one does.
    pub decision: Option<Decision>,
}

/// Everybody in a chain, from its root to whoever calls.
pub fn members(chain: &Chain) -> impl Iterator<Item = Member<'_>> {
    chain.hops().enumerate().map(|(at, hop)| Member {
        principal: hop.principal(),
        mode: hop.mode(),
        capabilities: hop.capabilities(),
        place: Delegation {
            depth: chain.depth(),
            hop: at,
            mode: hop.mode().as_str(),
            root: hop.root(),
            user: hop.user(),
            tenant: hop.tenant(),
        },
    })
}

/// Where the caller stands: it made the last hop. With several chains, policies are told of the first.
pub fn of_caller(behalf: &Behalf) -> Option<Delegation<'_>> {
    members(behalf.chains().first()?).last().map(|member| member.place)
}

/// Asks everybody in a chain. `questions` is what is asked, one for each target; each member takes the place of its
/// principal.
///
/// # Errors
/// The first who objects.
pub fn judge_members<'a>(
    members: impl Iterator<Item = Member<'a>>,
    policies: &Policies,
    questions: impl Iterator<Item = Question<'a>> + Clone,
) -> Result<(), Refused> {
    for member in members {
        for question in questions.clone() {
            judge_member(&member, policies, question).map_err(|(to, decision)| Refused {
                objection: Objection { hop: member.place.hop, id: member.principal.id.clone(), to },
                decision,
            })?;
        }
    }
    Ok(())
}

/// Asks of a caller that acts by itself, or of a workload that does so for callers who do, whether it may; `own` is how
/// far these let it reach. Without settings everybody may.
///
/// # Errors
/// [`Denial::DelegationRequired`].
pub fn judge_root<'a>(
    settings: Option<&Settings>,
    own: Option<Mode>,
    policies: &Policies,
    questions: impl Iterator<Item = Question<'a>>,
) -> Result<(), Denial> {
    let Some(settings) = settings else { return Ok(()) };
    for question in questions {
        if is_asked(&question) || question.method.introduces() {
            continue;
        }
        let mode = settings.origin(&question.principal.id).ok_or(Denial::DelegationRequired)?;
        let mode = own.map_or(mode, |own| mode.min(own));
        if !reaches(mode, question.method, policies.decide(&question).class) {
            return Err(Denial::DelegationRequired);
        }
    }
    Ok(())
}

/// A mode of grants as one of chains.
pub fn mode(granted: DelegationMode) -> Mode {
    match granted {
        DelegationMode::ReadOnly => Mode::ReadOnly,
        DelegationMode::ReadWrite => Mode::ReadWrite,
        DelegationMode::Full => Mode::Full,
    }
}

/// Whether a mode lets a call pass. To call another agent isn't held against it: the mode goes with the message,
/// and binds what that agent does.
fn reaches(mode: Mode, method: &Method, class: Class) -> bool {
    let message = method.rule().is_some_and(|rule| rule.governs == Governs::Message);
    message || mode.permits(class)
}

/// Whether it is a server that asks, and the caller that is asked.
fn is_asked(question: &Question<'_>) -> bool {
    *question.target == Target::Caller
}

fn judge_member(
    member: &Member<'_>,
    policies: &Policies,
    question: Question<'_>,
) -> Result<(), (Limit, Option<Decision>)> {
    let Member { principal, mode: own, capabilities, place } = *member;
    let question = Question { principal, delegation: Some(place), ..question };
    let decision = policies.decide(&question);
    let class = decision.class;
    if !decision.permit {
        return Err((Limit::Policies, Some(decision)));
    }
    if is_asked(&question) {
        return Ok(());
    }
    let Question { server, method, target, .. } = question;
    let exceeds = |terms: Terms| {
        let too_deep = place.depth > usize::from(terms.max_depth);
        too_deep || !reaches(mode(terms.mode), method, class)
    };
    if policies.delegation_for(principal, server, target).is_some_and(exceeds) {
        return Err((Limit::Grants, None));
    }
    if !reaches(own, method, class) {
        return Err((Limit::Mode, None));
    }
    let name = target.name().unwrap_or_default();
    if !capabilities.permit(class, server, method.name(), name) {
        return Err((Limit::Capabilities, None));
    }
    Ok(())
}

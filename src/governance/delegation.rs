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
    delegation::{Behalf, Chain, Hop, Limit, Mode, Objection, Settings, link::Rung},
    denial::Denial,
    policy::{
        Delegation,
        grants::{Delegation as Terms, DelegationMode},
    },
    protocol::{Class, Method, method::Governs},
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

    /// A caller that acts by itself, or a workload that does so for callers who do.
    fn judge_root(&self, request: &Request<'_>, facts: &Facts) -> Result<(), Denial> {
        let (Some(settings), None) = (&self.settings, request.asked) else { return Ok(()) };
        if request.call.method.introduces() {
            return Ok(());
        }
        let mode = settings.origin(&request.principal.id).ok_or(Denial::DelegationRequired)?;
        let mode = request.behalf.own().map_or(mode, |own| mode.min(own));
        let (method, targets) = request.touches();
        for target in targets {
            let question = request.question(request.principal, method, target, None);
            if !reaches(mode, method, facts.policies.decide(&question).class) {
                return Err(Denial::DelegationRequired);
            }
        }
        Ok(())
    }
}

impl Stage for DelegationStage {
    fn name(&self) -> &'static str {
        "delegation"
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, findings: &mut Findings) -> Verdict {
        if request.behalf.is_own()
            && let Err(denial) = self.judge_root(request, facts)
        {
            return Verdict::Deny(denial);
        }
        if self.is_vague(request) {
            return Verdict::Deny(Denial::DelegationAmbiguous);
        }
        for chain in request.behalf.chains() {
            for (at, hop) in chain.hops().enumerate() {
                if let Err(to) = judge_hop(request, facts, findings, &place(chain, at, hop), hop) {
                    let id = hop.principal().id.clone();
                    return Verdict::Deny(Denial::DelegationDenied(Objection { hop: at, id, to }));
                }
            }
        }
        Verdict::Continue
    }
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

/// Where the caller stands: it made the last hop. With several chains, policies are told of the first.
pub fn of_caller(behalf: &Behalf) -> Option<Delegation<'_>> {
    let chain = behalf.chains().first()?;
    let (at, hop) = chain.hops().enumerate().last()?;
    Some(place(chain, at, hop))
}

fn place<'a>(chain: &Chain, at: usize, hop: &'a Hop) -> Delegation<'a> {
    Delegation {
        depth: chain.depth(),
        hop: at,
        mode: hop.mode().as_str(),
        root: hop.root(),
        user: hop.user(),
        tenant: hop.tenant(),
    }
}

fn judge_hop(
    request: &Request<'_>,
    facts: &Facts,
    findings: &mut Findings,
    place: &Delegation<'_>,
    hop: &Hop,
) -> Result<(), Limit> {
    let (method, targets) = request.touches();
    for target in targets {
        let question = request.question(hop.principal(), method, target, Some(*place));
        let decision = facts.policies.decide(&question);
        let class = decision.class;
        if !decision.permit {
            // The policies behind a refusal are recorded; those that permit are the caller's.
            findings.decisions.push(decision);
            return Err(Limit::Policies);
        }
        if request.asked.is_none() {
            let terms = facts.policies.delegation_for(hop.principal(), request.server, target);
            let exceeds = |terms: Terms| {
                let too_deep = place.depth > usize::from(terms.max_depth);
                too_deep || !reaches(mode(terms.mode), method, class)
            };
            if terms.is_some_and(exceeds) {
                return Err(Limit::Grants);
            }
            let name = target.name().unwrap_or_default();
            if !reaches(hop.mode(), method, class) {
                return Err(Limit::Mode);
            }
            if !hop.capabilities().permit(class, request.server, method.name(), name) {
                return Err(Limit::Capabilities);
            }
        }
    }
    Ok(())
}

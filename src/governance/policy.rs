//! The policy stage: every target of the call, or what the server asks of the caller, is put to the
//! policies, and all have to be permitted.

use std::sync::Arc;

use super::{
    chain::{Facts, Findings, Request, Stage, Verdict},
    delegation,
};
use crate::{
    denial::Denial,
    identity::Principal,
    policy::{Delegation, Policies, Question},
    protocol::{Era, Method, Target, method::ListOf},
    revocation::Revocations,
};

/// Asks the policies.
#[derive(Debug)]
pub struct PolicyStage;

impl Stage for PolicyStage {
    fn name(&self) -> &'static str {
        "policy"
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, findings: &mut Findings) -> Verdict {
        let policies = &facts.policies;
        let (method, targets) = request.touches();
        let known = match request.asked {
            None => policies.knows(method),
            Some(_) => policies.knows_asked(method),
        };
        if !known {
            return Verdict::Deny(Denial::UnknownMethod);
        }
        for target in targets {
            let delegation = delegation::of_caller(request.behalf);
            let question = request.question(request.principal, method, target, delegation);
            let decision = policies.decide(&question);
            let denial =
                (!decision.permit).then(|| Denial::Policy { reason: decision.reason.clone() });
            findings.decisions.push(decision);
            if let Some(denial) = denial {
                return Verdict::Deny(denial);
            }
        }
        Verdict::Continue
    }
}

/// What a caller may see of a list: whatever some call of theirs could be permitted.
///
/// The same policies judge the calls, so a filtered list is a courtesy and never the control.
#[derive(Debug)]
pub struct Visibility<'a> {
    /// The policies in force when the answer began.
    pub policies: Arc<Policies>,
    /// The caller.
    pub principal: &'a Principal,
    /// Name of the upstream.
    pub server: &'a str,
    /// Name of the listener.
    pub listener: &'a str,
    /// Era of the call.
    pub era: Era,
    /// Where the caller stands in a chain of delegation, if the call came with one.
    pub delegation: Option<Delegation<'a>>,
    /// What is revoked is not shown either.
    pub revocations: Arc<Revocations>,
}

impl Visibility<'_> {
    /// Whether an item of such a list may be shown.
    pub fn shows(&self, list: ListOf, item: &str) -> bool {
        if list == ListOf::Tools && self.revocations.tool(self.server, item).is_some() {
            return false;
        }
        let (method, target) = match list {
            ListOf::Tools => ("tools/list", Target::Tool(item.into())),
            ListOf::Prompts => ("prompts/list", Target::Prompt(item.into())),
            ListOf::Resources => ("resources/list", Target::Resource(item.into())),
            ListOf::Templates => ("resources/templates/list", Target::Template(item.into())),
        };
        self.policies.may_list(&Question {
            principal: self.principal,
            server: self.server,
            listener: self.listener,
            method: &Method::parse(method),
            target: &target,
            arguments: None,
            asks: None,
            a2a: None,
            web: None,
            era: self.era,
            delegation: self.delegation,
        })
    }
}

//! The policy stage: every target of the call, or what the server asks of the caller, is put to the
//! policies, and all have to be permitted.

use std::sync::Arc;

use super::chain::{Facts, Findings, Request, Stage, Verdict};
use crate::{
    denial::Denial,
    identity::Principal,
    policy::{Policies, Question},
    protocol::{Era, Method, Target, method::ListOf},
};

/// Asks the policies.
#[derive(Debug)]
pub struct PolicyStage;

impl Stage for PolicyStage {
    fn name(&self) -> &'static str {
        "policy"
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, findings: &mut Findings) -> Verdict {
        let call = request.call;
        let policies = &facts.policies;
        let (method, targets, known) = match request.asked {
            None => (&call.method, call.targets.as_slice(), policies.knows(&call.method)),
            Some(asked) => {
                (&asked.method, &[Target::Caller][..], policies.knows_asked(&asked.method))
            }
        };
        if !known {
            return Verdict::Deny(Denial::UnknownMethod);
        }
        for target in targets {
            let decision = policies.decide(&Question {
                principal: request.principal,
                server: request.server,
                listener: request.listener,
                method,
                target,
                arguments: call.arguments_value().filter(|_| request.asked.is_none()),
                asks: request.asked.map(|asked| &asked.asks),
                a2a: call.a2a.as_deref().map(|facts| &facts.traits),
                era: call.era,
            });
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
}

impl Visibility<'_> {
    /// Whether an item of such a list may be shown.
    pub fn shows(&self, list: ListOf, item: &str) -> bool {
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
            era: self.era,
        })
    }
}

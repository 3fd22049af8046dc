//! The decision on a call.
//!
//! What a decision costs is kept off the hot path by remembering. For one principal, method, target,
//! listener and era nothing but the arguments can change the answer, so everything else is worked out
//! once and kept in a `Prepared`: the entities, the slice, and the outcome of all policies that don't
//! look at arguments. Where no policy in the slice looks at them, that is the whole answer.
//!
//! INVARIANT: a `Key` holds, in full, every input of a decision but the arguments; the snapshot never
//! changes, so what was worked out once stays true. What a server asks is in no key, so nothing of it is
//! remembered: such questions are rare, and each differs. All caches live in the snapshot and go with it.
//! They are bounded, and names too long to be worth keeping (a caller chooses them) are never kept.

use std::sync::Arc;

use cedar_policy::{Effect, EvaluationError, PolicySet, Request};

use super::{
    Decision, Question,
    input::{self, Unfit},
    key::KeyRef,
    scene::{Refusal, Scene},
    store::Policies,
    varying::Varying,
};
use crate::protocol::{Class, Target};

impl Policies {
    /// Judges one call on one target, or one request of a server to a caller.
    pub fn decide(&self, question: &Question<'_>) -> Decision {
        let key = KeyRef::of(question);
        if let Some(prepared) = self.prepared.get(&key) {
            return self.conclude(&prepared, question);
        }
        let prepared = match self.prepare(question) {
            Ok(prepared) => Arc::new(prepared),
            Err(refusal) => return refusal.into_decision(question),
        };
        if key.worth_keeping() {
            self.prepared.insert(key.to_owned(), prepared.clone());
        }
        self.conclude(&prepared, question)
    }

    fn prepare(&self, question: &Question<'_>) -> Result<Prepared, Refusal> {
        if let Target::Template(_) = question.target {
            return Err(Refusal("a resource template is listed, never called".to_owned()));
        }
        let place = self.place(question, &self.calls)?;
        let mut fixed = Outcome::default();
        for (position, effect) in &place.slice.holding {
            fixed.add(*position, *effect);
        }
        if place.slice.is_settled() {
            // Also what a stranger asks for, mostly: no policy speaks of it.
            return Ok(Prepared::Settled(self.decision(fixed, place.action.class)));
        }
        let (scene, slice) = self.stage(question, place)?;
        let request = scene.request(None)?;
        if !slice.fixed.is_empty() {
            self.evaluate(&scene, &request, &slice.fixed, &mut fixed);
        }
        let otherwise = self.decision(fixed.clone(), scene.action.class);
        Ok(match &slice.varying {
            Some(varying) if fixed.forbids.is_empty() && fixed.errors.is_empty() => {
                let facts = varying.facts.iter().map(|fact| self.fact(&scene, &request, fact));
                let (facts, varying) = (facts.collect(), Arc::clone(varying));
                Prepared::Open(Box::new(Open { scene, varying, facts, fixed, otherwise }))
            }
            Some(_) | None => Prepared::Settled(otherwise),
        })
    }

    fn conclude(&self, prepared: &Prepared, question: &Question<'_>) -> Decision {
        let Open { scene, varying, facts, fixed, otherwise } = match prepared {
            Prepared::Settled(decision) => return decision.clone(),
            Prepared::Open(open) => &**open,
        };
        let lifted = match &scene.action.input {
            Some(_) if question.web.is_some_and(|traits| traits.opaque) => Err(Unfit::opaque()),
            Some(shape) => input::lift(question.arguments, &varying.wanted, shape).map(Some),
            None => Ok(None),
        };
        let mut outcome = fixed.clone();
        let input = match lifted {
            Ok(input) => input,
            Err(unfit) => {
                outcome.errors.push((None, unfit.to_string()));
                return self.decision(outcome, scene.action.class);
            }
        };
        let left = match varying.holding(input.as_ref(), facts) {
            Some(holding) if holding.is_empty() && varying.rest.is_empty() => {
                return otherwise.clone();
            }
            Some(holding) => {
                holding.into_iter().for_each(|(position, effect)| outcome.add(position, effect));
                &varying.rest
            }
            None => &varying.all,
        };
        if !left.is_empty() {
            match scene.request_for(varying, input) {
                Ok(request) => self.evaluate(scene, &request, left, &mut outcome),
                Err(Refusal(error)) => outcome.errors.push((None, error)),
            }
        }
        self.decision(outcome, scene.action.class)
    }

    /// Whether what doesn't hang on arguments is so; `None` where it can't be told.
    fn fact(&self, scene: &Scene, request: &Request, fact: &PolicySet) -> Option<bool> {
        let response = self.authorizer.is_authorized(request, fact, &scene.entities);
        let diagnostics = response.diagnostics();
        let failed = diagnostics.errors().next().is_some();
        (!failed).then(|| diagnostics.reason().next().is_some())
    }

    pub(super) fn evaluate(
        &self,
        scene: &Scene,
        request: &Request,
        set: &PolicySet,
        outcome: &mut Outcome,
    ) {
        let response = self.authorizer.is_authorized(request, set, &scene.entities);
        let satisfied = match response.decision() {
            cedar_policy::Decision::Allow => &mut outcome.permits,
            // Without a satisfied forbid there is no reason to tell.
            cedar_policy::Decision::Deny => &mut outcome.forbids,
        };
        let diagnostics = response.diagnostics();
        satisfied.extend(diagnostics.reason().filter_map(|id| self.positions.get(id).copied()));
        for cedar_policy::AuthorizationError::PolicyEvaluationError(error) in diagnostics.errors() {
            let position = self.positions.get(error.policy_id()).copied();
            let id = error.policy_id();
            outcome.errors.push((position, format!("policy `{id}`: {}", kind(error.inner()))));
        }
    }

    fn decision(&self, outcome: Outcome, class: Class) -> Decision {
        let Outcome { permits, mut forbids, errors } = outcome;
        forbids.sort_unstable();
        let failed = errors.iter().filter_map(|(position, _)| *position);
        let determining: Vec<usize> = if !forbids.is_empty() {
            forbids.clone()
        } else if !errors.is_empty() {
            failed.collect()
        } else {
            let mut permits = permits;
            permits.sort_unstable();
            permits
        };
        let permit = forbids.is_empty() && errors.is_empty() && !determining.is_empty();
        let origin = |position: &usize| self.origins.get(*position);
        Decision {
            permit,
            reason: forbids.iter().filter_map(origin).find_map(|origin| origin.reason.clone()),
            policies: determining.iter().filter_map(origin).map(|at| at.id.clone()).collect(),
            errors: errors.into_iter().map(|(_, text)| text).collect(),
            class,
        }
    }
}

/// Everything about a kind of call that doesn't depend on its arguments.
#[derive(Debug)]
pub(super) enum Prepared {
    /// The arguments make no difference.
    Settled(Decision),
    /// Some policies look at the arguments.
    Open(Box<Open>),
}

/// What the arguments can still change.
#[derive(Debug)]
pub(super) struct Open {
    scene: Scene,
    varying: Arc<Varying>,
    /// The answers to [`Varying::facts`].
    facts: Vec<Option<bool>>,
    /// What came of the policies that don't look at arguments.
    fixed: Outcome,
    /// The decision if none of the others holds or fails.
    otherwise: Decision,
}

/// Satisfied policies, by position, and what failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) permits: Vec<usize>,
    pub(super) forbids: Vec<usize>,
    pub(super) errors: Vec<(Option<usize>, String)>,
}

impl Outcome {
    pub(super) fn add(&mut self, position: usize, effect: Effect) {
        match effect {
            Effect::Permit => self.permits.push(position),
            Effect::Forbid => self.forbids.push(position),
        }
    }
}

/// What an error tells without quoting a value.
pub(super) fn kind(error: &EvaluationError) -> String {
    match error {
        EvaluationError::EntityDoesNotExist(_)
        | EvaluationError::EntityAttrDoesNotExist(_)
        | EvaluationError::RecordAttrDoesNotExist(_)
        | EvaluationError::RecursionLimit(_) => error.to_string(),
        EvaluationError::IntegerOverflow(_) => "integer overflow".to_owned(),
        EvaluationError::TypeError(_) => "type error".to_owned(),
        EvaluationError::FailedExtensionFunctionExecution(_) => {
            "an extension function failed".to_owned()
        }
        EvaluationError::FailedExtensionFunctionLookup(_)
        | EvaluationError::WrongNumArguments(_)
        | EvaluationError::UnlinkedSlot(_)
        | EvaluationError::NonValue(_) => "can't be evaluated".to_owned(),
    }
}

//! Why a decision came out as it did, for the operator: which policies, which attributes, and for a
//! denial what the nearest permits lacked.
//!
//! Works on the policies as written, one conjunct at a time, so it costs milliseconds and is never asked
//! while a call waits. Names attributes and quotes policies; no value of an argument is ever in it.

use std::{collections::BTreeSet, fmt, sync::Arc};

use cedar_policy::{
    Effect, PolicySet, RestrictedExpression,
    pst::{self, ActionConstraint, Clause, PrincipalConstraint, ResourceConstraint},
};

use super::{
    Decision, Question, agents,
    analysis::{self, conjuncts, expr_of},
    asked,
    decision::{Outcome, kind},
    entities::Triple,
    index::Scope,
    input::{self, Wanted},
    load::Origin,
    scene::Scene,
    store::Policies,
    web,
};
use crate::protocol::{Protocol, Target, json};

/// How many permits that almost held are told.
const NEAREST: usize = 3;
/// How far away a permit is whose principal, action or resource doesn't fit; an unmet condition counts 1.
/// Whoever is refused asks first who may do this, then where, and only then what else could be done.
const SCOPE_WEIGHTS: [usize; 3] = [2, 4, 3];
/// How many permits with a fitting scope are looked at more closely.
const CANDIDATES: usize = 64;

/// A decision, explained.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The decision.
    pub decision: Decision,
    /// The request in the terms of policies: principal, action, resource.
    pub request: Option<[String; 3]>,
    /// The policies that determined it.
    pub determining: Vec<Origin>,
    /// Permits that held but were overruled by a forbid or an error.
    pub overruled: Vec<Origin>,
    /// Attributes that the policies in reach look at; names only.
    pub attributes: BTreeSet<String>,
    /// For a denial without a permit: the permits that lacked least, nearest first.
    pub nearest: Vec<NearMiss>,
    /// Set where the explanation is less than certain, with the reason.
    pub caveats: Vec<String>,
}

/// A permit that didn't hold.
#[derive(Clone, Debug)]
pub struct NearMiss {
    /// The permit.
    pub origin: Origin,
    /// What it lacked: parts of its scope, or conjuncts of its condition.
    pub lacking: Vec<String>,
}

/// What a ledger entry tells of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// Version of the policies that decided.
    pub version: &'a str,
    /// Whether the call was permitted.
    pub permit: bool,
    /// Ids of the policies that determined the decision.
    pub policies: &'a [String],
}

impl Policies {
    /// Explains what [`Policies::decide`] answers to a question.
    pub fn explain(&self, question: &Question<'_>) -> Explanation {
        let mut explanation = self.explain_decision(question, self.decide(question));
        if question.arguments.is_none() && self.reads_arguments(question) {
            explanation.caveats.push("no arguments were given; they count as `{}`".to_owned());
        }
        explanation
    }

    /// Explains a decision of the past from its record. The record has no arguments, so conjuncts that
    /// look at them are told as open.
    pub fn explain_recorded(
        &self,
        question: &Question<'_>,
        recorded: &Recorded<'_>,
    ) -> Explanation {
        let decision = Decision {
            permit: recorded.permit,
            policies: recorded.policies.iter().map(|id| id.as_str().into()).collect(),
            reason: self.reason(recorded),
            errors: vec![],
            class: self.decide(question).class,
        };
        let mut explanation = self.explain_decision(question, decision);
        if recorded.version != &**self.version() {
            explanation.caveats.push(format!(
                "decided under policies `{}`, explained under `{}`",
                recorded.version,
                self.version()
            ));
        }
        let origins = self.origins();
        for id in recorded.policies {
            if !origins.iter().any(|origin| *origin.id == **id) {
                explanation.caveats.push(format!("policy `{id}` doesn't exist any more"));
            }
        }
        if self.reads_arguments(question) {
            explanation.caveats.push("arguments are not recorded".to_owned());
        }
        if *question.target == Target::Caller {
            explanation.caveats.push("what the server asked for is not recorded".to_owned());
        }
        match question.era.protocol() {
            Protocol::Mcp => {}
            Protocol::A2a => {
                explanation.caveats.push("what the message told is not recorded".to_owned());
            }
            Protocol::Http => {
                explanation.caveats.push("query and body are not recorded".to_owned());
            }
        }
        explanation
    }

    fn reason(&self, recorded: &Recorded<'_>) -> Option<Arc<str>> {
        let cited = |origin: &&Origin| recorded.policies.iter().any(|id| **id == *origin.id);
        let reasons = self.origins().iter().filter(cited).find_map(|origin| origin.reason.clone());
        reasons.filter(|_| !recorded.permit)
    }

    fn reads_arguments(&self, question: &Question<'_>) -> bool {
        self.scene(question, &self.calls).is_ok_and(|(_, slice)| slice.varying.is_some())
    }

    fn explain_decision(&self, question: &Question<'_>, decision: Decision) -> Explanation {
        let cited = decision.policies.iter();
        let determining: Vec<Origin> = cited
            .filter_map(|id| self.origins().iter().find(|origin| origin.id == *id))
            .cloned()
            .collect();
        let mut explanation = Explanation {
            decision,
            request: None,
            determining,
            overruled: vec![],
            attributes: BTreeSet::new(),
            nearest: vec![],
            caveats: vec![],
        };
        let Ok((scene, slice)) = self.scene(question, &self.calls) else { return explanation };
        let triple = &scene.triple;
        explanation.request = Some(
            [&triple.principal, &triple.action, &triple.resource].map(|node| node.uid.to_string()),
        );
        let mut outcome = Outcome::default();
        for (position, effect) in &slice.holding {
            outcome.add(*position, *effect);
        }
        let input = |wanted: &Wanted| {
            let shape = scene.action.input.as_ref()?;
            input::lift(question.arguments, wanted, shape).ok()?.into_expression().ok()
        };
        // A set that can't be evaluated has told so in the decision.
        if let Ok(request) = scene.request(None) {
            self.evaluate(&scene, &request, &permits_of(&slice.fixed), &mut outcome);
        }
        let varying = slice.varying.as_ref();
        if let Some(varying) = varying
            && let Ok(request) = scene.request(input(&varying.wanted))
        {
            self.evaluate(&scene, &request, &permits_of(&varying.all), &mut outcome);
        }
        let in_reach =
            slice.fixed.policies().chain(varying.iter().flat_map(|varying| varying.all.policies()));
        for policy in in_reach {
            if let Ok(tree) = policy.to_pst() {
                let clauses = tree.body().clauses().iter().map(expr_of);
                explanation.attributes.extend(clauses.flat_map(analysis::attributes));
            }
        }
        if explanation.decision.permit {
            return explanation;
        }
        let origin = |position: &usize| self.origins().get(*position).cloned();
        explanation.overruled = outcome.permits.iter().filter_map(origin).collect();
        if outcome.permits.is_empty() {
            explanation.nearest = self.nearest(&scene, question.arguments);
        }
        explanation
    }

    fn nearest(&self, scene: &Scene, arguments: Option<json::Value<'_>>) -> Vec<NearMiss> {
        let permits = self.calls.entries().filter(|(_, entry)| entry.effect == Effect::Permit);
        let mut candidates: Vec<_> = permits
            .filter_map(|(position, entry)| {
                let fit = self.calls.fit(position, &scene.triple)?;
                let misses = fit.iter().zip(SCOPE_WEIGHTS).filter(|(fits, _)| !**fits);
                Some((misses.map(|(_, weight)| weight).sum::<usize>(), position, entry, fit))
            })
            .collect();
        candidates.sort_by_key(|(distance, position, ..)| (*distance, *position));
        let mut nearest: Vec<(usize, NearMiss)> = candidates
            .into_iter()
            .take(CANDIDATES)
            .filter_map(|(distance, position, entry, fit)| {
                let mut lacking = unfit_parts(&entry.scope, fit, scene);
                let unmet = match &entry.policy {
                    Some(policy) => self.unmet(scene, policy.to_pst().ok()?.body(), arguments),
                    None => vec![],
                };
                let distance = distance + unmet.len();
                lacking.extend(unmet);
                let origin = self.origins().get(position)?.clone();
                Some((distance, NearMiss { origin, lacking }))
            })
            .collect();
        nearest.sort_by_key(|(distance, _)| *distance);
        nearest.into_iter().take(NEAREST).map(|(_, miss)| miss).collect()
    }

    /// Conjuncts that don't hold, up to the first that can't be evaluated after one of them failed.
    fn unmet(
        &self,
        scene: &Scene,
        body: &pst::Template,
        arguments: Option<json::Value<'_>>,
    ) -> Vec<String> {
        let mut unmet = vec![];
        for clause in conjuncts(body.clauses()) {
            match self.holds(scene, &clause, arguments) {
                Holds::Yes => {}
                Holds::No => unmet.push(clause.to_string()),
                // What stood before it was its guard.
                Holds::Fails(_) if !unmet.is_empty() => break,
                Holds::Fails(why) => unmet.push(format!("{clause}: {why}")),
            }
        }
        unmet
    }

    fn holds(&self, scene: &Scene, clause: &Clause, arguments: Option<json::Value<'_>>) -> Holds {
        let paths = analysis::input_paths(expr_of(clause));
        if scene.told.is_none() {
            let looked_at = analysis::attributes(expr_of(clause));
            let looks_at = |names: &[&str]| looked_at.iter().any(|name| is_of(name, names));
            if scene.triple.principal.is(&self.world.types.server) && looks_at(&asked::NAMES) {
                return Holds::Fails("depends on what the server asked for".to_owned());
            }
            if scene.protocol() == Protocol::A2a && looks_at(&[agents::NAME]) {
                return Holds::Fails("depends on what the message told".to_owned());
            }
            if scene.protocol() == Protocol::Http && looks_at(&[web::NAME]) {
                return Holds::Fails("depends on the request".to_owned());
            }
        }
        let mut wanted = Wanted::default();
        paths.iter().for_each(|path| wanted.add(path));
        let input: Option<RestrictedExpression> = match &scene.action.input {
            Some(_) if !paths.is_empty() && arguments.is_none() => {
                return Holds::Fails("depends on arguments".to_owned());
            }
            Some(shape) if !paths.is_empty() => match input::lift(arguments, &wanted, shape) {
                Ok(input) => input.into_expression().ok(),
                Err(unfit) => return Holds::Fails(unfit.to_string()),
            },
            Some(_) | None => None,
        };
        let mut set = PolicySet::new();
        let alone = pst::Template::new(
            "conjunct",
            pst::Effect::Permit,
            PrincipalConstraint::Any,
            ActionConstraint::Any,
            ResourceConstraint::Any,
        );
        let policy = alone.try_with_clauses([clause.clone()]).and_then(analysis::to_policy);
        let added = policy.ok().is_some_and(|policy| set.add(policy).is_ok());
        let (true, Ok(request)) = (added, scene.request(input)) else {
            return Holds::Fails("can't be evaluated".to_owned());
        };
        let response = self.authorizer.is_authorized(&request, &set, &scene.entities);
        let failed = response.diagnostics().errors().next().map(|error| {
            let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
            kind(error.inner())
        });
        match (failed, response.decision()) {
            (Some(why), _) => Holds::Fails(why),
            (None, cedar_policy::Decision::Allow) => Holds::Yes,
            (None, cedar_policy::Decision::Deny) => Holds::No,
        }
    }
}

/// Cedar doesn't tell the permits that hold beside a forbid; asked alone, they tell.
fn permits_of(set: &PolicySet) -> PolicySet {
    let permits = set.policies().filter(|policy| policy.effect() == Effect::Permit);
    // A set without what stood in a set can't clash; an empty one tells nothing.
    PolicySet::from_policies(permits.cloned()).unwrap_or_default()
}

/// Whether an attribute is part of one of these in the context.
fn is_of(attribute: &str, names: &[&str]) -> bool {
    names.iter().any(|name| {
        let rest = attribute.strip_prefix("context.").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

enum Holds {
    Yes,
    No,
    Fails(String),
}

fn unfit_parts(scope: &Scope, fit: [bool; 3], scene: &Scene) -> Vec<String> {
    let Triple { principal, action, resource } = &scene.triple;
    let parts = scope.parts().into_iter().zip([principal, action, resource]);
    let unfit = parts.zip(fit).filter(|(_, fits)| !fits);
    unfit.map(|((part, node), _)| format!("{part} (it is {})", node.uid)).collect()
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { permit, errors, class, .. } = &self.decision;
        writeln!(f, "{}", if *permit { "permitted" } else { "denied" })?;
        if let Some([principal, action, resource]) = &self.request {
            writeln!(f, "  principal  {principal}")?;
            writeln!(f, "  action     {action} (class {})", class.as_str())?;
            writeln!(f, "  resource   {resource}")?;
        }
        let list = |f: &mut fmt::Formatter<'_>, title: &str, origins: &[Origin]| {
            if origins.is_empty() {
                return Ok(());
            }
            writeln!(f, "{title}:")?;
            origins.iter().try_for_each(|origin| writeln!(f, "  {origin}"))
        };
        list(f, "determined by", &self.determining)?;
        list(f, "overruled", &self.overruled)?;
        for error in errors {
            writeln!(f, "error: {error}")?;
        }
        if !permit && self.determining.is_empty() && errors.is_empty() {
            writeln!(f, "no permit holds")?;
        }
        if !self.attributes.is_empty() {
            let names: Vec<&str> = self.attributes.iter().map(String::as_str).collect();
            writeln!(f, "looked at: {}", names.join(", "))?;
        }
        if !self.nearest.is_empty() {
            writeln!(f, "nearest permits:")?;
        }
        for NearMiss { origin, lacking } in &self.nearest {
            writeln!(f, "  {origin}")?;
            for what in lacking {
                writeln!(f, "    lacks: {what}")?;
            }
        }
        for caveat in &self.caveats {
            writeln!(f, "note: {caveat}")?;
        }
        Ok(())
    }
}

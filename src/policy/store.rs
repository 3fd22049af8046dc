//! The decision point: one immutable snapshot of policies, asked about calls and lists.
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

use std::{collections::HashMap, sync::Arc};

use cedar_policy::{
    Authorizer, Context, Effect, Entities, EvaluationError, PolicyId, PolicySet, Request,
    RestrictedExpression,
};
use quick_cache::sync::Cache;

use super::{
    Decision, Delegation, Question, Settings, agents, asked,
    entities::{Triple, World},
    grants,
    index::{Index, Slice},
    input::{self, Lifted},
    key::{Key, KeyRef},
    load::{self, Origin},
    source::{Fault, LoadError},
    varying::Varying,
    vocabulary::{Action, Vocabulary},
};
use crate::identity::{Principal, SpiffeId};
use crate::limits::Limit;
use crate::protocol::{
    Class, Era, Method, Protocol, Target, json,
    method::{Governs, ListOf, METHODS, Rule},
};

/// Calls that are kept prepared.
const PREPARED_CALLS: usize = 4_096;
/// Answers to lists that are remembered; each is little more than its key.
const REMEMBERED_LISTS: usize = 32_768;

/// One immutable, validated policy set, sliced by scope.
#[derive(Debug)]
pub struct Policies {
    pub(super) world: World,
    pub(super) vocabulary: Vocabulary,
    pub(super) calls: Index,
    lists: Index,
    templates: Index,
    /// Where a policy that Cedar evaluates stands among the entries of `calls`.
    positions: HashMap<PolicyId, usize>,
    /// Parallel to the entries of `calls`.
    pub(super) origins: Vec<Origin>,
    version: Arc<str>,
    warnings: Vec<Fault>,
    delegation: grants::Terms,
    limits: Vec<Limit>,
    pub(super) authorizer: Authorizer,
    prepared: Cache<Key, Arc<Prepared>>,
    listed: Cache<Key, bool>,
}

impl Policies {
    /// Loads and checks everything that the settings name.
    ///
    /// # Errors
    /// All faults that could be found in one go; then nothing is loaded.
    pub fn load(settings: &Settings) -> Result<Self, LoadError> {
        let world = World::new(settings);
        let loaded = load::load(settings);
        let (world, loaded) = match (world, loaded) {
            (Ok(world), Ok(loaded)) => (world, loaded),
            (world, loaded) => {
                let mut faults = world.err().unwrap_or_default();
                faults.extend(loaded.err().into_iter().flat_map(|error| error.faults));
                return Err(LoadError { faults });
            }
        };
        let evaluated = loaded.calls.iter().enumerate();
        let evaluated = evaluated.filter_map(|(at, entry)| Some((entry.policy.as_ref()?, at)));
        Ok(Self {
            positions: evaluated.map(|(policy, at)| (policy.id().clone(), at)).collect(),
            world,
            vocabulary: loaded.vocabulary,
            calls: Index::new(loaded.calls),
            lists: Index::new(loaded.lists),
            templates: Index::new(loaded.templates),
            origins: loaded.origins,
            version: loaded.version.into(),
            warnings: loaded.warnings,
            delegation: loaded.delegation,
            limits: loaded.limits,
            authorizer: Authorizer::new(),
            prepared: Cache::new(PREPARED_CALLS),
            listed: Cache::new(REMEMBERED_LISTS),
        })
    }

    /// Names this very set: the first 16 hex digits of the SHA-256 over its sources and settings.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// What the author of the policies should look at, though it doesn't keep them from loading.
    pub fn warnings(&self) -> &[Fault] {
        &self.warnings
    }

    /// The policies, in the order of their files.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Whether the schema has an action for this method, so that policies can speak of it.
    pub fn knows(&self, method: &Method) -> bool {
        self.vocabulary.knows(method)
    }

    /// Whether a server may send this method at all: MCP has it for servers, or a fragment declares it.
    pub fn knows_asked(&self, method: &Method) -> bool {
        self.vocabulary.knows_asked(method)
    }

    /// Whether the path template names tenants.
    pub fn knows_tenants(&self) -> bool {
        self.world.knows_tenants()
    }

    /// The tenant of a workload, as the path template tells it; `None` where it names none.
    pub fn tenant<'a>(&'a self, id: &'a SpiffeId) -> Option<&'a str> {
        self.world.tenant(id)
    }

    /// How far a call of this principal on this target may be passed on: the narrowest of what documents
    /// of grants say of its tenant and of the tools; `None` where none says anything. It is for the judge
    /// of a chain of delegation; no policy looks at it.
    pub fn delegation_for(
        &self,
        principal: &Principal,
        server: &str,
        target: &Target,
    ) -> Option<grants::Delegation> {
        let id = &principal.id;
        self.delegation.of(id.as_str(), self.world.tenant(id), server, target)
    }

    /// The limits that documents of grants set. Names are unique, and each has a slash in it.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Judges one call on one target, or one request of a server to a caller.
    pub fn decide(&self, question: &Question<'_>) -> Decision {
        let key = KeyRef::of(question);
        if let Some(prepared) = self.prepared.get(&key) {
            return self.conclude(&prepared, question.arguments);
        }
        let prepared = match self.prepare(question) {
            Ok(prepared) => Arc::new(prepared),
            Err(refusal) => return refusal.into_decision(question),
        };
        if key.worth_keeping() {
            self.prepared.insert(key.to_owned(), prepared.clone());
        }
        self.conclude(&prepared, question.arguments)
    }

    /// Whether some call on this target could be permitted; what a list may show.
    ///
    /// Takes the question as it stands: the method is the list that is answered (`tools/list`), or the
    /// call to ask about; the target is one item of the list. Arguments are not looked at.
    pub fn may_list(&self, question: &Question<'_>) -> bool {
        let key = KeyRef::of(question);
        if let Some(known) = self.listed.get(&key) {
            return known;
        }
        let possible = match question.method.list() {
            Some(list) => calls_on(list, question.era).any(|rule| {
                self.is_possible(&Question { method: &Method::Known(rule), ..*question })
            }),
            None => self.is_possible(question),
        };
        if key.worth_keeping() {
            self.listed.insert(key.to_owned(), possible);
        }
        possible
    }

    /// Whether some arguments (and, for a template, some resource of the server) would be permitted.
    fn is_possible(&self, question: &Question<'_>) -> bool {
        let index = match question.target {
            Target::Template(_) => &self.templates,
            Target::Server
            | Target::Tool(_)
            | Target::Prompt(_)
            | Target::Resource(_)
            | Target::Task(_)
            | Target::Caller => &self.lists,
        };
        let Ok(place) = self.place(question, index) else { return false };
        let holds = |effect| place.slice.holding.iter().any(|(_, held)| *held == effect);
        let (permitted, forbidden) = (holds(Effect::Permit), holds(Effect::Forbid));
        if forbidden || !place.slice.permits {
            return false;
        }
        if place.slice.is_settled() {
            return permitted;
        }
        let Ok((scene, slice)) = self.stage(question, place) else { return false };
        let Ok(request) = scene.request(None) else { return false };
        let response = self.authorizer.is_authorized(&request, &slice.fixed, &scene.entities);
        // A forbid that fails here fails on every call, and refuses it. A permit that fails is unmet.
        let failed_forbid = response.diagnostics().errors().any(|error| {
            let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
            slice.fixed.policy(error.policy_id()).is_none_or(|at| at.effect() == Effect::Forbid)
        });
        let permitted = match response.decision() {
            cedar_policy::Decision::Allow => true,
            // No forbid holds if no policy does.
            cedar_policy::Decision::Deny => {
                permitted && response.diagnostics().reason().next().is_none()
            }
        };
        permitted && !failed_forbid
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

    fn conclude(&self, prepared: &Prepared, arguments: Option<json::Value<'_>>) -> Decision {
        let Open { scene, varying, facts, fixed, otherwise } = match prepared {
            Prepared::Settled(decision) => return decision.clone(),
            Prepared::Open(open) => &**open,
        };
        let lifted = match &scene.action.input {
            Some(shape) => input::lift(arguments, &varying.wanted, shape).map(Some),
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

    /// A question in Cedar's terms, and the policies whose scope fits it.
    pub(super) fn scene(
        &self,
        question: &Question<'_>,
        index: &Index,
    ) -> Result<(Scene, Arc<Slice>), Refusal> {
        let place = self.place(question, index)?;
        self.stage(question, place)
    }

    fn place(&self, question: &Question<'_>, index: &Index) -> Result<Place, Refusal> {
        let &Question { principal, server, method, target, .. } = question;
        if server.contains('/') {
            // Ids are `server/name`; a slash in the first part would make two pairs one.
            return Err(Refusal(format!("the name of server `{server}` has a slash")));
        }
        let class = match target {
            Target::Tool(tool) => self.world.tool_class(server, tool),
            Target::Server
            | Target::Prompt(_)
            | Target::Resource(_)
            | Target::Template(_)
            | Target::Task(_)
            | Target::Caller => Class::Execute,
        };
        let action = self
            .vocabulary
            .action(method, server, target, class)
            .filter(|action| action.applies_to(self.world.types.of(target)))
            .ok_or_else(|| Refusal("the schema has no such method on such a target".to_owned()))?;
        let triple = self.world.triple(principal, action, server, target);
        let slice = index.slice(&triple).map_err(|error| Refusal(format!("slice: {error}")))?;
        Ok(Place { action: action.clone(), triple, slice })
    }

    fn stage(&self, question: &Question<'_>, place: Place) -> Result<(Scene, Arc<Slice>), Refusal> {
        let &Question { principal, server, listener, method, target, era, delegation, .. } =
            question;
        let Place { action, triple, slice } = place;
        let entities = self
            .world
            .entities(principal, &action, server, target, &triple)
            .map_err(|error| Refusal(format!("entities: {error}")))?;
        let (method, listener) = (method.name().into(), listener.into());
        let told = match question.asks {
            Some(asks) => asked::attribute(asks),
            None => question.a2a.and_then(agents::attribute),
        };
        let delegation = delegation.and_then(delegated);
        Ok((Scene { action, triple, entities, method, listener, era, told, delegation }, slice))
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

/// Every call that could touch an item of a list, by the method table.
fn calls_on(list: ListOf, era: Era) -> impl Iterator<Item = &'static Rule> {
    let touches = move |governs: Governs| match list {
        ListOf::Tools => governs == Governs::Tool,
        ListOf::Prompts => matches!(governs, Governs::Prompt | Governs::Reference),
        ListOf::Resources | ListOf::Templates => {
            matches!(governs, Governs::Resource | Governs::Reference | Governs::Subscriptions)
        }
    };
    METHODS.iter().filter(move |rule| touches(rule.governs) && rule.exists_in(era))
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

/// Everything about a kind of call that doesn't depend on its arguments.
#[derive(Debug)]
enum Prepared {
    /// The arguments make no difference.
    Settled(Decision),
    /// Some policies look at the arguments.
    Open(Box<Open>),
}

/// What the arguments can still change.
#[derive(Debug)]
struct Open {
    scene: Scene,
    varying: Arc<Varying>,
    /// The answers to [`Varying::facts`].
    facts: Vec<Option<bool>>,
    /// What came of the policies that don't look at arguments.
    fixed: Outcome,
    /// The decision if none of the others holds or fails.
    otherwise: Decision,
}

/// Where a question stands among the policies.
struct Place {
    action: Arc<Action>,
    triple: Triple,
    slice: Arc<Slice>,
}

/// A question in Cedar's terms, without the arguments.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) action: Arc<Action>,
    pub(super) triple: Triple,
    pub(super) entities: Entities,
    method: Box<str>,
    listener: Box<str>,
    era: Era,
    /// What only a question of this kind has in its context.
    pub(super) told: Option<asked::Attribute>,
    delegation: Option<RestrictedExpression>,
}

impl Scene {
    pub(super) fn protocol(&self) -> Protocol {
        self.era.protocol()
    }

    pub(super) fn request(&self, input: Option<RestrictedExpression>) -> Result<Request, Refusal> {
        let text = |value: &str| Some(RestrictedExpression::new_string(value.to_owned()));
        let (name, told) = self.told.clone().unzip();
        self.request_with([
            ("method", text(&self.method)),
            ("era", text(self.era.as_str())),
            ("listener", text(&self.listener)),
            ("input", input),
            ("delegation", self.delegation.clone()),
            (name.unwrap_or_default(), told),
        ])
    }

    fn request_for(
        &self,
        varying: &Varying,
        input: Option<Lifted<'_>>,
    ) -> Result<Request, Refusal> {
        let input = input.map(Lifted::into_expression).transpose();
        let input = input.map_err(|error| Refusal(format!("context: {error}")))?;
        if varying.past_input { self.request(input) } else { self.request_with([("input", input)]) }
    }

    fn request_with<const N: usize>(
        &self,
        pairs: [(&str, Option<RestrictedExpression>); N],
    ) -> Result<Request, Refusal> {
        let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let context =
            Context::from_pairs(pairs).map_err(|error| Refusal(format!("context: {error}")))?;
        let Triple { principal, action, resource } = &self.triple;
        let (principal, action, resource) =
            (principal.uid.clone(), action.uid.clone(), resource.uid.clone());
        // The schema is not consulted again: tests hold every request and entity made here against it.
        Request::new(principal, action, resource, context, None)
            .map_err(|error| Refusal(format!("request: {error}")))
    }
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

/// `context.delegation`. Making it can't fail; if it did, policies would miss it, which denies those that
/// look at it.
fn delegated(delegation: Delegation<'_>) -> Option<RestrictedExpression> {
    let Delegation { depth, hop, mode, root, user, tenant } = delegation;
    let number = |number| RestrictedExpression::new_long(i64::try_from(number).unwrap_or(i64::MAX));
    let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
    let pairs = [
        ("depth", number(depth)),
        ("hop", number(hop)),
        ("mode", text(mode)),
        ("root", text(root.as_str())),
    ];
    let told = [("user", user), ("tenant", tenant)];
    let told = told.into_iter().filter_map(|(name, value)| Some((name, text(value?))));
    let members = pairs.into_iter().chain(told).map(|(name, value)| (name.to_owned(), value));
    RestrictedExpression::new_record(members).ok()
}

/// Why a question can't even be put to the policies; the answer is no.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

impl Refusal {
    fn into_decision(self, question: &Question<'_>) -> Decision {
        Decision {
            permit: false,
            policies: vec![],
            reason: None,
            errors: vec![self.0],
            class: question.method.rule().map_or(Class::Execute, |rule| rule.class),
        }
    }
}

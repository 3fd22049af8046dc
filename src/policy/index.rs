//! Slices: of all policies, those whose scope fits a request.
//!
//! Cedar looks at every policy of a set on every request, about a microsecond each. Each policy is put
//! into the bucket of one of its scope constraints here, the one that fewest policies share. A request
//! looks up the buckets of its principal, action and resource and of everything that these are in, then
//! drops what doesn't fit in its other constraints.
//!
//! INVARIANT: what is left out has a scope that is false, what isn't has one that is true, and a scope can't
//! fail. So a slice gives the same satisfied policies and the same errors as the whole set, and of a policy
//! that is nothing but a scope nothing else is kept.

use std::{collections::HashMap, sync::Arc};

use cedar_policy::{
    ActionConstraint, Effect, EntityTypeName, EntityUid, Policy, PolicyId, PolicySet,
    PolicySetError, PrincipalConstraint, ResourceConstraint,
};
use quick_cache::{Weighter, sync::Cache};

use super::{analysis::InputPath, entities::Triple, varying::Varying};

/// How many policies all cached slices hold together, counted as often as they are in one.
const CACHED_POLICIES: u64 = 50_000;

/// One policy of an index. Most policies stand in several indices as they are, so a copy shares all
/// that takes memory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// `None` for one that is nothing but a scope: where that fits, it holds. Most are, and as an object of
    /// Cedar each would take some KiB.
    pub(crate) policy: Option<Arc<Policy>>,
    pub(crate) effect: Effect,
    pub(crate) scope: Arc<Scope>,
    /// Where it looks at arguments; empty if it doesn't.
    pub(crate) inputs: Vec<InputPath>,
    /// Whether it looks at more of the context than the arguments.
    pub(crate) past_input: bool,
}

/// A scope, taken apart once.
#[derive(Debug)]
pub(crate) struct Scope {
    principal: PrincipalConstraint,
    action: ActionConstraint,
    pub(crate) resource: ResourceConstraint,
}

/// Policies whose scope fits one kind of request.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Positions of those that are nothing but a scope, and so hold.
    pub(crate) holding: Vec<(usize, Effect)>,
    /// Those with conditions that don't look at arguments.
    pub(crate) fixed: PolicySet,
    /// Those that do; `None` if there are none.
    pub(crate) varying: Option<Arc<Varying>>,
    /// Whether a permit is among them.
    pub(crate) permits: bool,
}

impl Slice {
    /// Whether there is nothing to ask Cedar about.
    pub(crate) fn is_settled(&self) -> bool {
        self.fixed.is_empty() && self.varying.is_none()
    }
}

#[derive(Clone, Copy, Debug)]
struct ByPolicies;

impl Weighter<Box<[u32]>, Arc<Slice>> for ByPolicies {
    fn weight(&self, positions: &Box<[u32]>, _: &Arc<Slice>) -> u64 {
        u64::try_from(positions.len()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// Policies, found by scope.
#[derive(Debug)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    by_entity: HashMap<EntityUid, Vec<u32>>,
    by_type: HashMap<EntityTypeName, Vec<u32>>,
    unscoped: Vec<u32>,
    slices: Cache<Box<[u32]>, Arc<Slice>, ByPolicies>,
}

/// What a scope constraint can be looked up by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Handle {
    Entity(EntityUid),
    Type(EntityTypeName),
}

impl Entry {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            scope: Arc::new(Scope::of(&policy)),
            effect: policy.effect(),
            policy: policy.has_non_scope_constraint().then(|| Arc::new(policy)),
            inputs: vec![],
            past_input: false,
        }
    }
}

impl Entry {
    /// The same under another id.
    pub(crate) fn with_id(self, id: PolicyId) -> Self {
        Self { policy: self.policy.map(|policy| Arc::new(policy.new_id(id))), ..self }
    }
}

impl Index {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let choices: Vec<Vec<Vec<Handle>>> =
            entries.iter().map(|entry| entry.scope.handles()).collect();
        let mut shared: HashMap<&Handle, usize> = HashMap::new();
        for handle in choices.iter().flatten().flatten() {
            *shared.entry(handle).or_default() += 1;
        }
        let mut by_entity: HashMap<EntityUid, Vec<u32>> = HashMap::new();
        let mut by_type: HashMap<EntityTypeName, Vec<u32>> = HashMap::new();
        let mut unscoped = vec![];
        for (position, choice) in (0u32..).zip(&choices) {
            let cost = |handles: &&Vec<Handle>| -> usize {
                handles.iter().filter_map(|handle| shared.get(handle)).sum()
            };
            let Some(handles) = choice.iter().min_by_key(cost) else {
                unscoped.push(position);
                continue;
            };
            for handle in handles {
                match handle {
                    Handle::Entity(uid) => by_entity.entry(uid.clone()).or_default(),
                    Handle::Type(name) => by_type.entry(name.clone()).or_default(),
                }
                .push(position);
            }
        }
        Self {
            entries,
            by_entity,
            by_type,
            unscoped,
            slices: Cache::with_weighter(1_024, CACHED_POLICIES, ByPolicies),
        }
    }

    /// The policies, by position.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate()
    }

    /// Which parts of a policy's scope fit: principal, action, resource.
    pub(crate) fn fit(&self, position: usize, request: &Triple) -> Option<[bool; 3]> {
        let scope = &self.entries.get(position)?.scope;
        Some([
            scope.principal_fits(request),
            scope.action_fits(request),
            scope.resource_fits(request),
        ])
    }

    /// The slice for a request; made once for each set of policies.
    pub(crate) fn slice(&self, request: &Triple) -> Result<Arc<Slice>, Box<PolicySetError>> {
        let positions = self.fitting(request);
        if let Some(slice) = self.slices.get(positions.as_slice()) {
            return Ok(slice);
        }
        let slice = Arc::new(self.merge(&positions)?);
        self.slices.insert(positions.into(), slice.clone());
        Ok(slice)
    }

    /// Positions of all policies whose scope fits, in order.
    fn fitting(&self, request: &Triple) -> Vec<u32> {
        let nodes = [&request.resource, &request.principal, &request.action];
        let entities = nodes
            .into_iter()
            .flat_map(|node| std::iter::once(&node.uid).chain(&node.ancestors))
            .filter_map(|uid| self.by_entity.get(uid));
        let types = [&request.resource, &request.principal]
            .into_iter()
            .filter_map(|node| self.by_type.get(node.uid.type_name()));
        let mut positions: Vec<u32> = entities
            .chain(types)
            .chain([&self.unscoped])
            .flatten()
            .copied()
            .filter(|position| {
                let entry = usize::try_from(*position).ok().and_then(|at| self.entries.get(at));
                entry.is_some_and(|entry| entry.scope.fits(request))
            })
            .collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    fn merge(&self, positions: &[u32]) -> Result<Slice, Box<PolicySetError>> {
        let at = |position: &u32| {
            let at = usize::try_from(*position).ok()?;
            Some((at, self.entries.get(at)?))
        };
        let entries: Vec<(usize, &Entry)> = positions.iter().filter_map(at).collect();
        let mut holding = vec![];
        let mut fixed = PolicySet::new();
        let mut varying = vec![];
        for (position, entry) in entries.iter().copied() {
            match &entry.policy {
                None => holding.push((position, entry.effect)),
                Some(policy) if entry.inputs.is_empty() => fixed.add(Policy::clone(policy))?,
                Some(policy) => varying.push((position, &**policy, &*entry.inputs)),
            }
        }
        let past_input = entries.iter().any(|(_, entry)| entry.past_input);
        let varying = if varying.is_empty() {
            None
        } else {
            Some(Arc::new(Varying::new(&varying, past_input)?))
        };
        let permits = entries.iter().any(|(_, entry)| entry.effect == Effect::Permit);
        Ok(Slice { holding, fixed, varying, permits })
    }
}

impl Scope {
    fn of(policy: &Policy) -> Self {
        Self {
            principal: policy.principal_constraint(),
            action: policy.action_constraint(),
            resource: policy.resource_constraint(),
        }
    }

    /// Principal, action and resource as they are written.
    pub(crate) fn parts(&self) -> [String; 3] {
        let Self { principal, action, resource } = self;
        let principal = match principal {
            PrincipalConstraint::Any => "principal".to_owned(),
            PrincipalConstraint::Eq(uid) => format!("principal == {uid}"),
            PrincipalConstraint::In(uid) => format!("principal in {uid}"),
            PrincipalConstraint::Is(name) => format!("principal is {name}"),
            PrincipalConstraint::IsIn(name, uid) => format!("principal is {name} in {uid}"),
        };
        let action = match action {
            ActionConstraint::Any => "action".to_owned(),
            ActionConstraint::Eq(uid) => format!("action == {uid}"),
            ActionConstraint::In(uids) => match &**uids {
                [uid] => format!("action in {uid}"),
                uids => {
                    let uids: Vec<String> = uids.iter().map(ToString::to_string).collect();
                    format!("action in [{}]", uids.join(", "))
                }
            },
        };
        let resource = match resource {
            ResourceConstraint::Any => "resource".to_owned(),
            ResourceConstraint::Eq(uid) => format!("resource == {uid}"),
            ResourceConstraint::In(uid) => format!("resource in {uid}"),
            ResourceConstraint::Is(name) => format!("resource is {name}"),
            ResourceConstraint::IsIn(name, uid) => format!("resource is {name} in {uid}"),
        };
        [principal, action, resource]
    }

    /// The ways to find this policy; where a way has several handles, each of them leads to it.
    fn handles(&self) -> Vec<Vec<Handle>> {
        let mut ways = vec![];
        match &self.resource {
            ResourceConstraint::Any => {}
            ResourceConstraint::Eq(uid)
            | ResourceConstraint::In(uid)
            | ResourceConstraint::IsIn(_, uid) => ways.push(vec![Handle::Entity(uid.clone())]),
            ResourceConstraint::Is(name) => ways.push(vec![Handle::Type(name.clone())]),
        }
        match &self.principal {
            PrincipalConstraint::Any => {}
            PrincipalConstraint::Eq(uid)
            | PrincipalConstraint::In(uid)
            | PrincipalConstraint::IsIn(_, uid) => ways.push(vec![Handle::Entity(uid.clone())]),
            PrincipalConstraint::Is(name) => ways.push(vec![Handle::Type(name.clone())]),
        }
        match &self.action {
            ActionConstraint::Any => {}
            ActionConstraint::Eq(uid) => ways.push(vec![Handle::Entity(uid.clone())]),
            ActionConstraint::In(uids) => {
                ways.push(uids.iter().cloned().map(Handle::Entity).collect());
            }
        }
        ways
    }

    fn fits(&self, request: &Triple) -> bool {
        self.principal_fits(request) && self.resource_fits(request) && self.action_fits(request)
    }

    fn principal_fits(&self, Triple { principal, .. }: &Triple) -> bool {
        match &self.principal {
            PrincipalConstraint::Any => true,
            PrincipalConstraint::Eq(uid) => principal.uid == *uid,
            PrincipalConstraint::In(uid) => principal.is_in(uid),
            PrincipalConstraint::Is(name) => principal.is(name),
            PrincipalConstraint::IsIn(name, uid) => principal.is(name) && principal.is_in(uid),
        }
    }

    fn resource_fits(&self, Triple { resource, .. }: &Triple) -> bool {
        match &self.resource {
            ResourceConstraint::Any => true,
            ResourceConstraint::Eq(uid) => resource.uid == *uid,
            ResourceConstraint::In(uid) => resource.is_in(uid),
            ResourceConstraint::Is(name) => resource.is(name),
            ResourceConstraint::IsIn(name, uid) => resource.is(name) && resource.is_in(uid),
        }
    }

    fn action_fits(&self, Triple { action, .. }: &Triple) -> bool {
        match &self.action {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(uid) => action.uid == *uid,
            ActionConstraint::In(uids) => uids.iter().any(|uid| action.is_in(uid)),
        }
    }
}

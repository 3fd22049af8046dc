//! Slices: of all policies, those whose scope fits a request.
//!
//! Cedar looks at every policy of a set on every request, about a microsecond each. Each policy is put
//! into the bucket of one of its scope constraints here, the one that fewest policies share. A request
//! looks up the buckets of its principal, action and resource and of everything that these are in, then
//! drops what doesn't fit in its other constraints.
//!
//! INVARIANT: what is left out has a scope that is false, and a scope can't fail. So a slice gives the
//! same satisfied policies and the same errors as the whole set.

use std::{collections::HashMap, sync::Arc};

use cedar_policy::{
    ActionConstraint, Effect, EntityTypeName, EntityUid, Policy, PolicySet, PolicySetError,
    PrincipalConstraint, ResourceConstraint,
};
use quick_cache::{Weighter, sync::Cache};

use super::{analysis::InputPath, entities::Triple, varying::Varying};

/// How many policies all cached slices hold together, counted as often as they are in one.
const CACHED_POLICIES: u64 = 50_000;

/// One policy of an index. Most policies stand in several indices as they are, so a copy shares all
/// that takes memory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) policy: Arc<Policy>,
    scope: Arc<Scope>,
    /// Where it looks at arguments; empty if it doesn't.
    pub(crate) inputs: Vec<InputPath>,
    /// Whether it looks at more of the context than the arguments.
    pub(crate) past_input: bool,
}

/// A scope, taken apart once.
#[derive(Debug)]
struct Scope {
    principal: PrincipalConstraint,
    action: ActionConstraint,
    resource: ResourceConstraint,
}

/// Policies whose scope fits one kind of request.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Those that don't look at arguments.
    pub(crate) fixed: PolicySet,
    /// Those that do; `None` if there are none.
    pub(crate) varying: Option<Arc<Varying>>,
    /// Whether a permit is among them.
    pub(crate) permits: bool,
}

impl Slice {
    pub(crate) fn is_empty(&self) -> bool {
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
        let scope = Arc::new(Scope::of(&policy));
        Self { policy: Arc::new(policy), scope, inputs: vec![], past_input: false }
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
    pub(crate) fn policies(&self) -> impl Iterator<Item = (usize, &Policy)> {
        self.entries.iter().map(|entry| &*entry.policy).enumerate()
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
        let mut fixed = PolicySet::new();
        for (_, entry) in entries.iter().filter(|(_, entry)| entry.inputs.is_empty()) {
            fixed.add(Policy::clone(&entry.policy))?;
        }
        let varying: Vec<_> =
            entries.iter().filter(|(_, entry)| !entry.inputs.is_empty()).copied().collect();
        let varying =
            if varying.is_empty() { None } else { Some(Arc::new(Varying::new(&varying)?)) };
        let permits = entries.iter().any(|(_, entry)| entry.policy.effect() == Effect::Permit);
        Ok(Slice { fixed, varying, permits })
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

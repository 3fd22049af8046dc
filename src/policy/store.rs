//! One snapshot of policies: what was loaded, how it was sliced, and what is remembered of it.
//!
//! INVARIANT: a snapshot never changes. A reload makes another, with caches of its own.

use std::{collections::HashMap, sync::Arc};

use cedar_policy::{Authorizer, PolicyId};
use quick_cache::sync::Cache;

use super::{
    Settings,
    decision::Prepared,
    entities::World,
    grants,
    index::Index,
    key::Key,
    load::{self, Origin},
    source::{Fault, LoadError},
    vocabulary::Vocabulary,
};
use crate::{
    identity::{Principal, SpiffeId},
    limits::Limit,
    protocol::{Method, Target},
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
    pub(super) lists: Index,
    pub(super) templates: Index,
    /// Where a policy that Cedar evaluates stands among the entries of `calls`.
    pub(super) positions: HashMap<PolicyId, usize>,
    /// Parallel to the entries of `calls`.
    pub(super) origins: Vec<Origin>,
    version: Arc<str>,
    warnings: Vec<Fault>,
    delegation: grants::Terms,
    limits: Vec<Limit>,
    pub(super) authorizer: Authorizer,
    pub(super) prepared: Cache<Key, Arc<Prepared>>,
    pub(super) listed: Cache<Key, bool>,
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
}

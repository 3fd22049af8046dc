//! How far calls may be passed on: what documents say of it, for the stage that judges chains.

use std::collections::BTreeMap;

use super::{
    shape::{self, Mode},
    tools::Tools,
    who::Who,
};
use crate::protocol::Target;

/// What may be done for somebody else, from narrow to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DelegationMode {
    /// Calls of the classes up to `read`.
    ReadOnly,
    /// Calls of the classes up to `write`.
    ReadWrite,
    /// Every call.
    Full,
}

/// How far calls may be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// Most hops between the first caller and the server.
    pub max_depth: u8,
    /// What may be done at the end of them.
    pub mode: DelegationMode,
}

impl Delegation {
    /// The narrower of each.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { max_depth: self.max_depth.min(other.max_depth), mode: self.mode.min(other.mode) }
    }
}

/// Everything that the documents say.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    pub(super) tenants: BTreeMap<String, Delegation>,
    pub(super) grants: Vec<(Who, Tools, Delegation)>,
}

impl Terms {
    /// What holds for a call: the narrowest of the tenant's word and of each grant that covers the call,
    /// if there is any.
    pub(crate) fn of(
        &self,
        id: &str,
        tenant: Option<&str>,
        server: &str,
        target: &Target,
    ) -> Option<Delegation> {
        let tenant = tenant.and_then(|tenant| self.tenants.get(tenant)).copied();
        let grants = self.grants.iter().filter(|(who, tools, _)| {
            matches!(target, Target::Tool(tool) if who.holds(id) && tools.hold(server, tool))
        });
        let narrower = tenant.into_iter().chain(grants.map(|(_, _, terms)| *terms));
        narrower.reduce(Delegation::and)
    }
}

impl From<shape::Delegation> for Delegation {
    fn from(it: shape::Delegation) -> Self {
        Self { max_depth: it.max_depth, mode: it.mode.into() }
    }
}

impl From<Mode> for DelegationMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Full => Self::Full,
            Mode::ReadWrite => Self::ReadWrite,
            Mode::ReadOnly => Self::ReadOnly,
        }
    }
}

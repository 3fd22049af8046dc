//! [`Revocations`]: what is revoked at a moment, in the shape in which requests ask for it.
//!
//! Nothing in here knows the time: what is over is left out when the next snapshot is made. With nothing revoked,
//! which is nearly always, a request pays for one look at a flag.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use uuid::Uuid;

use super::{Revocation, Subject, What, subject::digest};

/// What is revoked. Questions are answered by the id of a revocation that says so.
#[derive(Debug, Default)]
pub struct Revocations {
    /// Whether it was ever read.
    known: bool,
    entries: BTreeMap<Uuid, Arc<Revocation>>,
    workloads: HashMap<Box<str>, Uuid>,
    workloads_below: HashMap<Box<str>, Uuid>,
    users: HashMap<Box<str>, Uuid>,
    sessions: HashMap<[u8; 32], Uuid>,
    delegations: HashMap<Uuid, Uuid>,
    tools: HashMap<Box<str>, HashMap<Box<str>, Uuid>>,
    tenants: HashMap<Box<str>, Uuid>,
}

impl Revocations {
    /// Before anything was read.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// These, and no others where everything that is kept is `known`.
    pub fn of(known: bool, entries: impl IntoIterator<Item = Arc<Revocation>>) -> Self {
        let mut made = Self { known, ..Self::default() };
        for entry in entries {
            made.index(&entry.subject, entry.id);
            made.entries.insert(entry.id, entry);
        }
        made
    }

    fn index(&mut self, subject: &Subject, id: Uuid) {
        match subject {
            Subject::Spiffe(one) => drop(self.workloads.insert(one.clone(), id)),
            Subject::SpiffeBelow(prefix) => drop(self.workloads_below.insert(prefix.clone(), id)),
            Subject::User(user) => drop(self.users.insert(user.clone(), id)),
            Subject::Session(digest) => drop(self.sessions.insert(*digest, id)),
            Subject::Delegation(hop) => drop(self.delegations.insert(*hop, id)),
            Subject::Tool { server, tool } => {
                let tools = self.tools.entry(server.clone()).or_default();
                tools.insert(tool.clone(), id);
            }
            Subject::Tenant(tenant) => drop(self.tenants.insert(tenant.clone(), id)),
        }
    }

    /// Whether it says anything at all. If not, whatever is asked may be revoked.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Whether nothing is revoked.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All of them, the oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Arc<Revocation>> {
        self.entries.values()
    }

    /// The one with this id.
    pub fn entry(&self, id: Uuid) -> Option<&Arc<Revocation>> {
        self.entries.get(&id)
    }

    /// How many of a kind there are.
    pub fn count(&self, what: What) -> usize {
        self.entries.values().filter(|entry| entry.subject.what() == what).count()
    }

    /// Whether a workload is, by its SPIFFE ID.
    pub fn workload(&self, id: &str) -> Option<Uuid> {
        if let Some(revocation) = self.workloads.get(id) {
            return Some(*revocation);
        }
        if self.workloads_below.is_empty() {
            return None;
        }
        let prefixes = id.match_indices('/').filter_map(|(at, _)| id.get(..=at));
        prefixes.filter_map(|prefix| self.workloads_below.get(prefix)).next().copied()
    }

    /// Whether a user is.
    pub fn user(&self, user: &str) -> Option<Uuid> {
        self.users.get(user).copied()
    }

    /// Whether a session is, by its id.
    pub fn session(&self, session: &str) -> Option<Uuid> {
        if self.sessions.is_empty() {
            return None;
        }
        self.sessions.get(&digest(session)).copied()
    }

    /// Whether a hop is, or a run.
    pub fn delegation(&self, id: Uuid) -> Option<Uuid> {
        self.delegations.get(&id).copied()
    }

    /// Whether a tool of a server is.
    pub fn tool(&self, server: &str, tool: &str) -> Option<Uuid> {
        self.tools.get(server)?.get(tool).copied()
    }

    /// Whether a tenant is.
    pub fn tenant(&self, tenant: &str) -> Option<Uuid> {
        self.tenants.get(tenant).copied()
    }
}

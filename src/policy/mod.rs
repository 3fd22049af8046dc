//! The policy decision point: Cedar, in process, over slices of one validated policy set.
//!
//! | module | does |
//! |---|---|
//! | `source`, `load`, `validation` | files → statements → policies, every fault with its place |
//! | `nesting` | how deep a statement nests, before Cedar reads it |
//! | `fragments`, `vocabulary` | the schema, and the action of each call |
//! | [`grants`] | documents that say who may do what → policies |
//! | `entities` | principals and targets as Cedar sees them |
//! | `analysis` | what a policy looks at, and what is left of it for lists |
//! | `index` | finds the policies whose scope fits |
//! | `input` | arguments → `context.input` |
//! | `asked` | what a server asks → `context.sampling`, `context.elicitation` |
//! | `agents` | what an agent sends to another → `context.a2a` |
//! | `web`, `operations` | what a call of plain HTTP tells → `context.http`, and which operation it is |
//! | `condition`, `varying` | policies that look at arguments, mostly evaluated without Cedar |
//! | [`store`] | one snapshot of all that |
//! | `scene` | a question in Cedar's terms |
//! | `decision`, `listing`, `key` | decide and remember |
//! | `explain` | tells why |
//!
//! One set of policies serves calls and lists alike. Absent, undeclared or unreadable input never
//! widens a decision: no permit means deny, an evaluation error means deny, a value that Cedar can't
//! represent means deny for every policy that would have looked at it.

mod agents;
mod analysis;
mod asked;
mod condition;
mod decision;
mod entities;
mod explain;
mod fragments;
pub mod grants;
mod index;
mod input;
mod key;
mod listing;
mod load;
mod nesting;
mod operations;
mod scene;
pub mod settings;
mod source;
pub mod store;
mod validation;
mod varying;
mod vocabulary;
mod web;

use std::sync::Arc;

use crate::{
    identity::{Principal, SpiffeId},
    protocol::{self, Class, Era, Method, Target, a2a, json, mcp::server::Asks},
};

pub use explain::{Explanation, NearMiss, Recorded};
pub use load::{Origin, version_on_disk};
pub use settings::Settings;
pub use source::{Fault, Glance, LoadError};
pub use store::Policies;
pub use vocabulary::SCHEMA;

/// What is asked of the policies: may this principal do this to that? Or, where the target is
/// [`Target::Caller`]: may this server do this to that caller?
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The authenticated caller; if a server asks, it is the one that is asked.
    pub principal: &'a Principal,
    /// Name of the upstream (the MCP server) that the call is for, or that asks.
    pub server: &'a str,
    /// Name of the listener that the call came in on, or the call whose answer asks.
    pub listener: &'a str,
    /// What the caller (or the server) wants to do.
    pub method: &'a Method,
    /// What it touches.
    pub target: &'a Target,
    /// The arguments, strictly decoded; `None` where there are none.
    pub arguments: Option<json::Value<'a>>,
    /// What a server asks; `None` for calls. Without it, policies that look at it fail, which denies.
    pub asks: Option<&'a Asks>,
    /// What a call of A2A tells; `None` for others. Without it, policies that look at it fail, which denies.
    pub a2a: Option<&'a a2a::Traits>,
    /// What a call of plain HTTP tells; the same.
    pub web: Option<&'a protocol::web::Traits>,
    /// Era of the message.
    pub era: Era,
    /// Where in a chain of delegation the principal stands; `None` if the call comes without one.
    pub delegation: Option<Delegation<'a>>,
}

/// A principal's place in a chain of delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delegation<'a> {
    /// Number of hops.
    pub depth: usize,
    /// Which of them it is, the root's being 0.
    pub hop: usize,
    /// Name of the hop's mode.
    pub mode: &'static str,
    /// Who began the chain.
    pub root: &'a SpiffeId,
    /// For which user, opaque.
    pub user: Option<&'a str>,
    /// For which tenant.
    pub tenant: Option<&'a str>,
}

/// The answer of the policies, with what is needed to explain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may go on.
    pub permit: bool,
    /// Ids (`@id`) of the policies that determined the answer: the forbids that hold, else the policies
    /// that failed, else the permits that hold. Empty when nothing permitted.
    pub policies: Vec<Arc<str>>,
    /// `@reason` of the first determining `forbid` that has one.
    pub reason: Option<Arc<str>>,
    /// What went wrong in the evaluation; any entry makes the answer a denial.
    pub errors: Vec<String>,
    /// How far this call can reach: the tool's own class where it is known, the method's otherwise.
    pub class: Class,
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

//! State that outlives a call: what belongs to whom, and what everybody has to know.
//!
//! A server hands out ids that are of use to whoever knows them: sessions, tasks, states of a call that goes on.
//! [`Owners`] remembers to whom each of them was given, so that nobody else can use it. [`Records`] are texts that
//! every replica knows all of; what they say is for those who keep them. What replicas have to count together, they
//! count in the same store: things that may be used once, and tokens of limits.
//!
//! Imports nothing else of the crate but telemetry; identities are plain SPIFFE ID strings here.

mod embedded;
mod key;
mod memory;
mod once;
mod owners;
mod records;
mod redis;
mod settings;
mod store;
mod tokens;

pub use memory::Limits;
pub use once::Use;
pub use owners::{BindError, Health, Owners, Unavailable};
pub use records::{Keeping, Kept, Mark, Record, Records};
pub use settings::{Password, RedisSettings, Settings, Transport};
pub use store::OpenError;
pub use tokens::{Allowance, Block};

/// What can belong to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A legacy session (`Mcp-Session-Id`).
    Session,
    /// A task, by its id.
    Task,
    /// The state of a call that waits for more input (`requestState`), by the digest that
    /// `protocol::Continuation` makes of it.
    Continuation,
    /// A conversation with an agent, by its `contextId` (A2A).
    Context,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Session, Self::Task, Self::Continuation, Self::Context];

    /// The name used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Task => "task",
            Self::Continuation => "continuation",
            Self::Context => "context",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

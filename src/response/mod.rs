//! What an answer owes to the policies before the caller gets it.

pub mod agent_card;
mod list_filter;
mod listed;
mod look;

pub use list_filter::{ListFilter, OwnTasks};
pub use listed::Listed;
pub use look::{Look, is_foreign, may_be_wide};

#[cfg(test)]
mod tests;

/// An answer that can't be read, is longer than what can be held, or says what it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer can't be read")]
pub struct Unreadable;

//! What an answer owes to the policies before the caller gets it.

mod list_filter;

pub use list_filter::{EventFilter, ListFilter, Unreadable};

#[cfg(test)]
mod tests;

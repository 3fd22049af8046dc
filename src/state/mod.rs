//! State that outlives a call, behind small interfaces of its own.
//!
//! Imports nothing else of the crate; identities are plain SPIFFE ID strings here.

pub mod sessions;

pub use sessions::Sessions;

//! The chain of checks that a call has to pass, and the [`Permit`] that only its end can make.
//!
//! Governance is sans-io: [`Chain::needs`] names the facts a call has to be judged on, the exchange loop
//! fetches them, [`Chain::evaluate`] is a pure function. A stage can only narrow: there is no verdict
//! that permits, so a forgotten or reordered stage can't grant access.

pub mod chain;
pub mod delegation;
pub mod ownership;
pub mod policy;
pub mod push_url;
pub mod revocation;

pub use chain::{
    Chain, Facts, Findings, Needs, Owned, Owner, Permit, Refusal, Request, Stage, Verdict,
};
pub use delegation::DelegationStage;
pub use ownership::OwnershipStage;
pub use policy::{PolicyStage, Visibility};
pub use push_url::PushUrlStage;
pub use revocation::RevocationStage;

#[cfg(test)]
mod tests;

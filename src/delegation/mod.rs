//! On whose behalf a call is made, proven hop by hop.
//!
//! A chain is a list of tokens in the header `Agent-Delegation`, one for each hop, joined by `~`. Each is
//! signed with the SVID key of the proxy beside the one that delegates, names the next one, and commits to
//! the bytes of the hop before. The last one commits to the request it came with, too. Nothing but the
//! trust bundles is needed to verify one; there is no service to ask, and no new key.
//!
//! | module | does |
//! |---|---|
//! | [`mode`], [`capability`] | how far a hop lets those after it go |
//! | [`token`] | one hop as it is written |
//! | `rules` | what has to hold between hops, and at the last one |
//! | [`chain`] | header → [`Presented`], by all rules but one |
//! | `shown` | [`Presented`] → [`Chain`]: the last hop is shown once |
//! | [`link`] | which inbound call an outbound one comes from |
//! | `behalf` | by whose authority a call is made |
//! | [`mint`] | the next hop, or the first |
//! | [`settings`] | what the operator allows |
//!
//! INVARIANT: a chain can only narrow. A hop that asks for more than the one before gave is refused, not
//! cut down to size, and whoever judges a call asks for every hop. Any fault in a chain refuses the call:
//! a chain is never ignored.
//!
//! The header is hop by hop: it is taken off on the way in, and what goes out is made here.

mod behalf;
pub mod capability;
pub mod chain;
pub mod link;
pub mod mint;
pub mod mode;
mod rules;
pub mod settings;
mod shown;
pub mod token;

pub use behalf::{Ambiguous, Behalf};
pub use capability::{Capabilities, CapabilityError};
pub use chain::{Arrival, Chain, ChainError, Hop, Limit, Objection, Site, Verifier};
pub use mint::{MintError, Next, extend, opaque, originate};
pub use mode::Mode;
pub use rules::{Rule, Step, check_steps};
pub use settings::{Origin, Settings, Who};
pub use shown::{Presented, Shown};
pub use token::{TokenError, WriteError};

/// Name of the header.
pub const HEADER: &str = "agent-delegation";

/// Longest value of the header, in bytes.
pub const LONGEST: usize = 16 * 1024;

/// What stands between two hops.
const SEPARATOR: char = '~';

/// How much two clocks may differ, in seconds.
pub const SKEW: u64 = 5;

/// How long after it was made the last hop can be shown, in seconds.
const FRESH: u64 = 60;

#[cfg(test)]
pub(crate) mod tests;

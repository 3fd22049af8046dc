//! Who is calling, and how that was proven.
//!
//! A [`Principal`] is made from a verified X.509-SVID or, on a loopback listener without TLS, from the
//! configuration; never from anything a caller writes into a message.
//!
//! [`Source`] holds Lictor's own SVID and the trust bundles, and is the one place that says whether a
//! certificate chain is believed: [`Source::verify_peer`] when a connection begins, [`Source::recheck`] for
//! each request on it.

#[cfg(test)]
#[path = "../../tests/support/ca.rs"]
pub(crate) mod ca;
mod files;
mod keeper;
pub mod peer;
pub mod settings;
pub mod signing;
pub mod source;
pub mod spiffe_id;
pub mod svid;
pub mod tls;
pub mod trust_bundle;
mod workload_api;

pub use peer::{Peer, PeerError};
pub use settings::{Files, Settings};
pub use signing::{Algorithm, SignError, SignatureError, Signer};
pub use source::{Snapshot, Source, StartError, State, Status, Svid};
pub use spiffe_id::{SpiffeId, SpiffeIdError};
pub use svid::SvidError;
pub use trust_bundle::{BundleError, Role, TrustBundles};

/// How an identity was proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// An X.509-SVID, verified against the bundle of its own trust domain.
    Svid,
    /// Fixed in the configuration of a plain loopback listener.
    Configured,
    /// Lictor's own SVID, for the workload that it stands beside.
    Own,
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The SPIFFE ID; compared byte for byte.
    pub id: SpiffeId,
    /// How it was proven.
    pub proof: Proof,
}

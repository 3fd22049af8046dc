//! Where Lictor's own SVID and the trust bundles come from.

use std::{collections::BTreeMap, path::PathBuf};

/// The source of identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settings {
    /// The SPIFFE Workload API of a local agent.
    WorkloadApi {
        /// `unix:///…` or `tcp://127.0.0.1:…`.
        endpoint: String,
    },
    /// PEM files, watched.
    Files(Files),
}

/// PEM files that hold an SVID and the bundles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The SVID and its intermediates, leaf first.
    pub certificate: PathBuf,
    /// Its private key (PKCS#8, SEC1 or PKCS#1).
    pub key: PathBuf,
    /// Trust domain → PEM file with the roots of that domain, and of no other.
    pub bundles: BTreeMap<String, PathBuf>,
}

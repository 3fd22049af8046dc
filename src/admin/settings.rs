//! What the administration listeners are configured with.

use std::{net::SocketAddr, path::PathBuf};

/// Where operators and kubelets look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `/healthz` and `/readyz`, reachable from outside the pod.
    pub health: Option<SocketAddr>,
    /// `/metrics` and the administration API; loopback unless configured otherwise.
    pub admin: SocketAddr,
    /// Where the token is that operators show; `None`: the API is off.
    pub token_file: Option<PathBuf>,
}

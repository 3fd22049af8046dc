//! What the administration listeners are configured with.

use std::net::SocketAddr;

/// Where operators and kubelets look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `/healthz` and `/readyz`, reachable from outside the pod.
    pub health: Option<SocketAddr>,
    /// `/metrics` and the administration API; loopback unless configured otherwise.
    pub admin: SocketAddr,
}

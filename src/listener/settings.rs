//! What a listener is configured with.

use std::{net::SocketAddr, time::Duration};

use crate::identity::SpiffeId;

/// Which way the calls of a listener go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Towards the workload that Lictor stands beside.
    #[default]
    Inbound,
    /// Away from it.
    Outbound,
}

impl Direction {
    /// The name in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }

    /// The other way.
    pub fn back(self) -> Self {
        match self {
            Self::Inbound => Self::Outbound,
            Self::Outbound => Self::Inbound,
        }
    }
}

/// How callers of a listener are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// Mutual TLS with X.509-SVIDs.
    MutualTls,
    /// Plain HTTP on a loopback address; every caller is this principal.
    PlainLoopback(SpiffeId),
    /// Plain HTTP on a loopback address; every caller is the workload that Lictor stands beside, which is who
    /// Lictor's own SVID says.
    Workload,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Unique name, used in policies, metrics and the ledger.
    pub name: String,
    /// Which way its calls go.
    pub direction: Direction,
    /// Address to bind; port 0 lets the system choose.
    pub bind: SocketAddr,
    /// TLS and identity.
    pub door: Door,
    /// Accepted `Host` values, lower case, with or without a port; empty accepts what a loopback bind
    /// or the certificate check already limits: `localhost`, `127.0.0.1` and `[::1]` on a plain
    /// loopback listener, anything behind mutual TLS.
    pub hosts: Vec<String>,
    /// Accepted `Origin` values, lower case (`https://app.example.org`). Empty accepts origins at the
    /// names that `hosts` accepts on a plain loopback listener, none behind mutual TLS; requests
    /// without `Origin` are always fine. Allowed origins also get CORS answers.
    pub origins: Vec<String>,
    /// Most connections at once; further ones are closed when their handshake is complete.
    pub max_connections: usize,
    /// Time for a request's head to arrive.
    pub head_timeout: Duration,
    /// Time for a request's body to arrive.
    pub body_timeout: Duration,
    /// How long one write to a caller may stall before the connection is cut.
    pub stall_timeout: Duration,
    /// How long a connection may idle between requests.
    pub idle_timeout: Duration,
    /// How long an event stream may be silent before a comment line keeps it alive.
    pub keep_alive: Duration,
}

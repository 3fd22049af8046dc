//! What a listener is configured with.

use std::{net::SocketAddr, time::Duration};

use url::Url;

use super::shield;
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
    /// How callers reach it: scheme, host, and the path in front of those of the routes.
    pub public_url: Option<Url>,
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
    /// What one address may take of them.
    pub shield: shield::Settings,
    /// Time for a new connection's first byte to arrive, and for a request's head from its first byte on.
    pub head_timeout: Duration,
    /// Time for a request's body to arrive.
    pub body_timeout: Duration,
    /// How long a caller may take for the next 64 KiB of an answer before the connection is cut.
    pub stall_timeout: Duration,
    /// How long a connection may idle between requests.
    pub idle_timeout: Duration,
    /// How long an event stream may be silent before a comment line keeps it alive.
    pub keep_alive: Duration,
}

impl Settings {
    /// How callers reach a route of this path; `None` if it isn't known how they reach the listener.
    pub fn url_of(&self, path: &str) -> Option<Url> {
        let mut url = self.public_url.clone()?;
        let path = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(path.trim_end_matches('/'));
        Some(url)
    }
}

#[cfg(test)]
impl Settings {
    /// Some settings, for tests that say what matters to them.
    pub(crate) fn sample() -> Self {
        Self {
            name: "in".into(),
            direction: Direction::Inbound,
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            door: Door::MutualTls,
            public_url: None,
            hosts: vec![],
            origins: vec![],
            max_connections: 1,
            shield: shield::Settings {
                connections: 1,
                new_per_second: std::num::NonZeroU32::MIN,
                loopback: false,
            },
            head_timeout: Duration::ZERO,
            body_timeout: Duration::ZERO,
            stall_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            keep_alive: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_reached_below_the_public_url() {
        for (public, path, url) in [
            ("https://side.example.org", "/a2a", "https://side.example.org/a2a"),
            ("https://side.example.org/", "/a2a", "https://side.example.org/a2a"),
            ("https://side.example.org/out", "/a2a", "https://side.example.org/out/a2a"),
            ("https://side.example.org/out", "/", "https://side.example.org/out"),
            ("https://side.example.org:8443", "/", "https://side.example.org:8443/"),
        ] {
            let public_url = Some(public.parse().unwrap());
            let settings = Settings { public_url, ..Settings::sample() };
            assert_eq!(settings.url_of(path).unwrap().as_str(), url);
            assert_eq!(Settings { public_url: None, ..settings }.url_of(path), None);
        }
    }
}

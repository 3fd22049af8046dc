//! What an upstream is configured with.

use std::{path::PathBuf, time::Duration};

use url::Url;

use crate::identity::SpiffeId;

/// How an upstream proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Plain HTTP; the configuration allows it for loopback addresses only.
    Loopback,
    /// Mutual TLS; the upstream's SVID must carry exactly this ID.
    Spiffe(SpiffeId),
    /// TLS with the host name checked against public roots (`None`) or the roots in a PEM file.
    WebPki {
        /// PEM file with the accepted roots.
        roots: Option<PathBuf>,
    },
}

/// How messages and answers travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP, of MCP 2025-03-26 and later: each message is answered where it was posted.
    #[default]
    StreamableHttp,
    /// HTTP+SSE, of MCP 2024-11-05: one stream a client, on which all answers come, and a place to post
    /// that the stream announces.
    Sse,
}

/// One upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Unique name of `[a-z0-9-]`, 1 to 63 characters; the server's name in policies.
    pub name: String,
    /// Endpoint with path and query, exactly as requests go out.
    pub url: Url,
    /// How messages and answers travel; with [`Transport::Sse`], `url` is that of the stream.
    pub transport: Transport,
    /// How it is verified.
    pub verification: Verification,
    /// `Host` sent to it, where it differs from the URL's authority.
    pub host: Option<String>,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Time from the last byte sent to the head of the answer.
    pub first_byte_timeout: Duration,
    /// Longest silence inside a JSON answer. Event streams may be silent for longer.
    pub idle_timeout: Duration,
    /// How long an unused connection is kept; has to be below the server's own time.
    pub pool_idle_timeout: Duration,
}

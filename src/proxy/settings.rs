//! What the exchange loop is configured with.

use http::HeaderName;

use crate::{delegation::Mode, protocol::Protocol};

/// How refusals by policy are shown to callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusals {
    /// HTTP 200 with a JSON-RPC error, which is what every MCP SDK turns into an error of that call.
    #[default]
    JsonRpc,
    /// The matching HTTP status (403, 404 …) with the same body, for callers that look only at those.
    HttpStatus,
}

/// One path of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Exact path, or with A2A and plain HTTP that of everything below it; a trailing slash more or less is the same path.
    pub path: String,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// Whether this A2A agent's card is also found at the root of the listener.
    pub at_root: bool,
    /// Whether messages to this A2A agent that have a form have to be of a known one.
    pub message_forms: bool,
    /// Further headers of requests that pass on this route of plain HTTP; each was checked by [`may_be_named`].
    pub headers: Vec<HeaderName>,
    /// Query parameters that may be there again on this route of plain HTTP.
    pub repeatable: Vec<String>,
    /// How far those may go whom the workload calls on this route, on behalf of whoever called it; as far as it may
    /// itself, if it isn't said. For outbound routes.
    pub delegate: Option<Mode>,
    /// Name of the upstream.
    pub upstream: String,
    /// Record and count what would be refused, and refuse only what can't be decoded or identified.
    pub shadow: bool,
    /// How refusals by policy look.
    pub refusals: Refusals,
}

impl Route {
    /// Whether a query parameter of this name may be there again.
    pub(super) fn repeats(&self, name: &str) -> bool {
        self.repeatable.iter().any(|known| known == name)
    }
}

/// Bounds on what is held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of one message in bytes.
    pub body: usize,
    /// Bytes of all bodies that are being read or judged, and answers that are held for that, at once.
    pub bodies_in_flight: usize,
    /// Largest answer, or single event, that is held to be judged or cut down, in bytes.
    pub answer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body: 4 << 20, bodies_in_flight: 256 << 20, answer: 16 << 20 }
    }
}

/// What no route can let pass, whatever it names: what is between two hops, what credentials stand in that aren't for
/// the upstream, what says where a request came from or went to, and what makes another request of it.
const NEVER: &[&str] = &[
    "agent-delegation",
    "authorization",
    "cf-connecting-ip",
    "connection",
    "content-length",
    "cookie",
    "cookie2",
    "expect",
    "forwarded",
    "front-end-https",
    "host",
    "http2-settings",
    "keep-alive",
    "origin",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
    "x-rewrite-url",
];

/// The same, by how they begin.
const NEVER_BEGIN: &[&str] = &[
    "access-control-",
    "lictor-",
    "mcp-session",
    "proxy-",
    "sec-",
    "ssl-",
    "x-envoy-",
    "x-forwarded-",
    "x-original-",
    "x-spiffe",
    "x-ssl-",
];

/// Whether a route of plain HTTP may name this header, so that it passes. An underscore is a hyphen to some servers.
pub fn may_be_named(name: &HeaderName) -> bool {
    let name = name.as_str();
    NEVER.binary_search(&name).is_err()
        && !NEVER_BEGIN.iter().any(|beginning| name.starts_with(beginning))
        && !name.contains('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_something_between_two_hops_is_never_named() {
        assert!(NEVER.is_sorted());
        for (name, fine) in [
            ("x-github-api-version", true),
            ("x-api-key", true),
            ("anthropic-version", true),
            ("last-event-id", true),
            ("Authorization", false),
            ("cookie", false),
            ("X-Forwarded-For", false),
            ("x-forwarded-client-cert", false),
            ("x_forwarded_for", false),
            ("x_api_key", false),
            ("agent-delegation", false),
            ("lictor-user", false),
            ("host", false),
            ("Transfer-Encoding", false),
            ("te", false),
            ("proxy-authorization", false),
            ("x-http-method-override", false),
            ("x-original-url", false),
        ] {
            let name: HeaderName = name.parse().unwrap();
            assert_eq!(may_be_named(&name), fine, "{name}");
        }
    }
}

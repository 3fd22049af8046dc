//! What the exchange loop is configured with.

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
    /// Exact path, or with A2A that of everything below it; a trailing slash more or less is the same path.
    pub path: String,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// Whether this A2A agent's card is also found at the root of the listener.
    pub at_root: bool,
    /// Whether messages to this A2A agent that have a form have to be of a known one.
    pub message_forms: bool,
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

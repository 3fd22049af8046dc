//! [`Probe`]: asks an endpoint, now and then, whether it is there.
//!
//! It asks as clients do: a `GET` on an MCP endpoint is something that servers need not have, and says nothing of
//! them. The question is `server/discover`, which changes nothing. Servers of older revisions don't know it, and
//! some open a session for whatever comes without one; the session that the probe names is nobody's, so that
//! they answer that there is no such session, and open none. An A2A agent is asked for its card, and a web API for
//! the head of whatever is at its base.
//!
//! Any answer will do, except the three statuses by which a gateway says that nobody is there: whoever refuses
//! is alive.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, request::Parts};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{Outcome, outcome};
use crate::{
    identity::Source,
    upstream::{
        Error, SetupError, Unjudged,
        card::well_known,
        settings::{Asked, Health, Http},
    },
};

/// The question for MCP servers (MCP 2026-07-28 `server/discover`).
const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":"lictor-probe","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"lictor-probe","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// Headers of it.
const HEADERS: [(&str, &str); 6] = [
    ("accept", "application/json, text/event-stream"),
    ("content-type", "application/json"),
    ("mcp-method", "server/discover"),
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-session-id", "lictor-probe"),
    ("user-agent", "lictor-probe"),
];

/// What watches one endpoint.
pub(super) struct Probe {
    endpoint: Unjudged,
    health: Health,
}

impl Probe {
    /// Sets up the way to the endpoint; connections of calls aren't used for it.
    pub(super) fn new(
        health: &Health,
        mut endpoint: Http,
        source: Option<Arc<Source>>,
    ) -> Result<Self, SetupError> {
        if health.asked == Asked::Card {
            let url = &mut endpoint.url;
            match &endpoint.agent.card {
                Some(card) => url.set_path(card.path()),
                None => url.set_path(well_known(url.path()).first().map_or("/", String::as_str)),
            }
        }
        let endpoint = Unjudged::new(endpoint, source)?;
        Ok(Self { endpoint, health: health.clone() })
    }

    /// Asks for ever, and tells each time whether somebody is there. Nothing ends it: who is gone may return.
    pub(super) async fn run(self, told: impl Fn(bool)) {
        loop {
            sleep(spread(self.health.interval)).await;
            match timeout(self.health.timeout, self.ask()).await {
                Ok(Some(alive)) => told(alive),
                // Nothing was learned of the endpoint.
                Ok(None) => {}
                Err(_elapsed) => told(false),
            }
        }
    }

    async fn ask(&self) -> Option<bool> {
        let (head, body) = self.question();
        match self.endpoint.send(head, body).await {
            Ok(answer) => Some(outcome(answer.status()) == Outcome::Answered),
            Err(Error::NoIdentity) => None,
            Err(error) => {
                tracing::debug!(%error, "a probe fails");
                Some(false)
            }
        }
    }

    fn question(&self) -> (Parts, Bytes) {
        let (mut head, ()) = http::Request::new(()).into_parts();
        match self.health.asked {
            Asked::Discover => {
                let headers = HEADERS.map(|(name, value)| {
                    (http::HeaderName::from_static(name), HeaderValue::from_static(value))
                });
                (head.method, head.headers) = (Method::POST, HeaderMap::from_iter(headers));
                (head, Bytes::from_static(DISCOVER.as_bytes()))
            }
            Asked::Card => {
                head.method = Method::GET;
                (head, Bytes::new())
            }
            Asked::Base => {
                head.method = Method::HEAD;
                (head, Bytes::new())
            }
        }
    }
}

/// From 0.9 to 1.1 times as long, so that replicas don't ask all at once.
fn spread(interval: Duration) -> Duration {
    let [.., chance] = Uuid::now_v7().into_bytes();
    interval.mul_f32(0.9 + f32::from(chance) / f32::from(u8::MAX) * 0.2)
}

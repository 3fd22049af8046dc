//! [`Unjudged`]: the way to a server for callers of their own, who have nobody's calls to judge.
//!
//! INVARIANT: whatever is forwarded for somebody else goes through [`super::Upstream::open`] and its permit. This
//! type is named nowhere in the proxy, which `tests/architecture.rs` watches.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;

use super::{Answer, Arriving, Body, Error, SetupError, client, settings::Http};
use crate::identity::Source;

/// One server, for messages of our own.
#[derive(Debug)]
pub struct Unjudged(Arc<client::Upstream>);

impl Unjudged {
    /// Sets up the way to a server; connects to nothing yet.
    pub fn new(settings: Http, source: Option<Arc<Source>>) -> Result<Self, SetupError> {
        client::Upstream::new(settings, source).map(Self)
    }

    /// Sends a message, at most once, and waits for the head of the answer. Of `head`, method and headers
    /// are used; framing and `Host` are set here. Dropping the future drops the call.
    pub async fn send(&self, head: Parts, body: Bytes) -> Result<Answer, Error> {
        let answer = self.0.send(None, head, body).await?;
        Ok(answer.map(|body| Body { arriving: Arriving::Http(body.into()), ticket: None }))
    }
}

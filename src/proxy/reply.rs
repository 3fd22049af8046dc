//! What a server is told of its refused request: a JSON-RPC error for its id, as the caller would have sent
//! it, into the same session.
//!
//! It goes out beside the stream, which doesn't wait for it, and with the permit of the exchange that
//! carries the stream. Every attempt is bounded in time and each exchange in how many it has on their way;
//! what could not be told is logged, counted and on record in the request's closing entry.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, header};
use tokio::time::timeout;

use super::{
    asked::Back,
    headers::{SESSION_HEADER, VERSION_HEADER},
    refusal,
    settled::Address,
};
use crate::{denial::Denial, exchange::Asking, protocol::Id};

/// How many refusals of one exchange may be on their way at once.
pub(super) const AT_ONCE: usize = 16;

/// How long a server may take to take one.
const PATIENCE: Duration = Duration::from_secs(10);

impl Back<'_> {
    /// Answers a request of the server with an error, in the background.
    pub(super) fn reply(&self, mut asking: Asking, id: &Id, denial: &Denial) {
        let server = Arc::clone(&self.served.server);
        let record = Arc::clone(&self.occasion.record);
        let untold = move |asking: &Asking, outcome: &'static str| {
            tracing::warn!(decision = %asking.id, upstream = &*server, outcome, "the server was not told");
            record.metrics.server_reply(&server, outcome);
        };
        if !self.has_return() {
            return untold(&asking, "impossible");
        }
        self.proxy.shared.answered.note(self.address(id));
        let Ok(place) = Arc::clone(&self.replies).try_acquire_owned() else {
            return untold(&asking, "too_many");
        };
        let body = refusal::error_of(denial, id, self.call.era, asking.id);
        let mut head = http::Request::new(()).into_parts().0;
        head.method = Method::POST;
        head.headers = self.headers();
        let caller = Arc::clone(&self.occasion.caller);
        let head = self.on_behalf.head(head);
        let at = self.open.as_ref().map(|open| open.endpoint.clone());
        let sending = self.served.upstream.open_beside(self.permit, caller, at, head, body);
        let Ok(sending) = sending else { return untold(&asking, "breaker_open") };
        let ticket = self.proxy.shared.drain.enter();
        let record = Arc::clone(&self.occasion.record);
        let server = Arc::clone(&self.served.server);
        tokio::spawn(async move {
            match timeout(PATIENCE, sending).await {
                Ok(Ok(answer)) => {
                    asking.told(answer.status().as_u16());
                    match answer.status().is_success() {
                        true => record.metrics.server_reply(&server, "delivered"),
                        false => untold(&asking, "rejected"),
                    }
                }
                Ok(Err(_)) => untold(&asking, "failed"),
                Err(_) => untold(&asking, "timeout"),
            }
            // The entry is written before the process may think that nothing is in flight.
            drop(asking);
            drop((place, ticket));
        });
    }

    /// Where answers to a request with this id come from.
    pub(super) fn address(&self, id: &Id) -> Address {
        Address::new(
            &self.served.server,
            self.session.as_deref(),
            &self.occasion.caller,
            id.as_json(),
        )
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, accept);
        for (name, value) in [(SESSION_HEADER, &self.session), (VERSION_HEADER, &self.call.version)]
        {
            let value = value.as_deref().and_then(|value| HeaderValue::from_str(value).ok());
            headers.extend(value.map(|value| (http::HeaderName::from_static(name), value)));
        }
        headers
    }
}

//! To the upstream: open, and wait for the head of the answer.

use std::pin::pin;

use pingora::protocols::http::ServerSession;

use super::{Halt, Proxy, Read, behalf, drain::Phase, headers, listening::listens};
use crate::{
    denial::Denial,
    exchange::Exchange,
    protocol::Protocol,
    telemetry::Causes,
    upstream::{self, Answer},
};

impl Proxy {
    /// Sends the judged bytes and waits for the head of the answer. The wait ends when the caller leaves
    /// or the time is over; either drops the upstream's connection or stream with it. Servers may keep a stream
    /// that only listens waiting for its head until there is something to hear.
    pub(super) async fn forward(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &mut Read,
    ) -> Result<Answer, Halt> {
        let body = exchange.forward();
        let (Some(call), Some(principal), Some(ticket)) =
            (&exchange.call, &exchange.principal, read.ticket.take())
        else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        let on_behalf = read.on_behalf.as_ref().ok_or(Denial::TokenUnavailable)?;
        let request = session.req_header();
        let mut parts = http::Request::new(()).into_parts().0;
        parts.method = request.method.clone();
        parts.headers = match served.route.protocol {
            Protocol::Mcp | Protocol::A2a => {
                headers::for_upstream(&request.headers, call.session.is_some())
            }
            Protocol::Http => headers::for_web(&request.headers, &served.route.headers),
        };
        if served.terms.delegation.is_some() {
            behalf::send_along(&mut parts.headers, read.live.as_ref(), read.hop.take());
        }
        let rest = match call.rest() {
            Some(rest) => Some(served.upstream.beneath(rest).ok_or(Denial::NoRoute)?),
            None => None,
        };
        let at = rest.as_ref().or_else(|| read.leg.endpoint());
        let head = match self.own_credentials(served, &request.headers) {
            Some(own) => on_behalf.head_with(parts, own),
            None => on_behalf.head(parts),
        };
        let opening = pin!(served.upstream.open(ticket, principal, call, at, head, body));
        let mut recall = self.recall((call, principal, &exchange.behalf), served);
        let answer = tokio::select! { biased;
            // First of all: what was revoked since it was judged is never sent.
            denial = recall.recalled() => return Err(denial.into()),
            () = self.shared.drain.reached(Phase::Draining), if listens(call) => {
                return Err(Denial::Draining.into());
            }
            answer = self.while_wanted(session, opening) => answer?,
        };
        read.reservation = None;
        Ok(answer.map_err(|error| {
            // The caller is told the kind only; addresses and reasons are the operator's.
            let (upstream, reason) = (&*served.server, Causes(&error).to_string());
            tracing::warn!(decision = %exchange.id, upstream, reason, "no answer");
            match error {
                upstream::Error::NoIdentity => Denial::NotReady,
                upstream::Error::Unreachable(_) => Denial::UpstreamUnreachable,
                upstream::Error::SessionGone => Denial::UnknownSession,
                upstream::Error::Full => Denial::TooManySessions,
                upstream::Error::Silent | upstream::Error::Late => Denial::UpstreamTimeout,
                upstream::Error::Failed(_) => Denial::UpstreamFailed,
            }
        })?)
    }
}

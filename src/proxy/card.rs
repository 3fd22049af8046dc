//! Agents' cards: fetched from the agent, and shown as what leads through Lictor.
//!
//! Everybody whom the policies permit gets the same card. The one for known callers (`GetExtendedAgentCard`) comes
//! with an answer and is rewritten there, by the same rules.

use std::pin::pin;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use pingora::protocols::http::ServerSession;

use super::{Halt, Proxy, Read, respond};
use crate::{
    denial::Denial,
    exchange::{End, Exchange},
    protocol::{Call, method::operation},
    response::agent_card::cache_control,
    upstream::CardError,
};

/// Whether the agent's public card is asked for.
pub(super) fn is_card(call: &Call) -> bool {
    call.method.rule().is_some_and(|rule| rule.action == operation::CARD.action)
}

/// Whether the answer is a card.
pub(super) fn brings_card(call: &Call) -> bool {
    call.method.rule().is_some_and(|rule| rule.action == operation::EXTENDED_CARD.action)
}

impl Proxy {
    /// Answers with the card of the agent behind the route.
    pub(super) async fn card(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &mut Read,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal)) = (&exchange.call, &exchange.principal) else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        let publisher = served.card.as_ref().ok_or(Denial::NoRoute)?;
        let upstream = &*served.server;
        let card = match (read.card.take(), read.ticket.take()) {
            (Some(card), _) => Ok(card),
            (None, Some(ticket)) => {
                let fetching = pin!(served.upstream.card(ticket));
                let mut recall = self.recall((call, principal, &exchange.behalf), served);
                tokio::select! { biased;
                    denial = recall.recalled() => return Err(denial.into()),
                    fetched = self.while_wanted(session, fetching) => fetched?,
                }
            }
            (None, None) => return Err(Denial::NoRoute.into()),
        };
        let card = card.map_err(|error| {
            tracing::warn!(decision = %exchange.id, upstream, %error, "no agent card");
            match error {
                CardError::Missing | CardError::NoAgent => Denial::NoRoute,
                CardError::Unreachable(_) => Denial::UpstreamUnreachable,
                CardError::Late => Denial::UpstreamTimeout,
                CardError::Redirect
                | CardError::Status(_)
                | CardError::TooLong
                | CardError::Encoded => Denial::UpstreamUnreadable,
            }
        })?;
        let published = publisher.publish(&card.bytes).map_err(|error| {
            tracing::warn!(decision = %exchange.id, upstream, %error, "an agent card isn't shown");
            Denial::UpstreamUnreadable
        })?;
        self.still_believed(read.peer.as_deref())?;
        self.recall((call, principal, &exchange.behalf), &read.served).check()?;
        let request = session.req_header();
        let known = published.is_known_by(&request.headers);
        let head_only = request.method == Method::HEAD;
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::ETAG, published.etag.clone());
        headers.insert(header::CACHE_CONTROL, cache_control(card.fresh_for));
        if let Some(origin) = self.inside.load().doorplate.allowed_origin(&request.headers) {
            super::origin::expose(&mut headers, origin);
        }
        exchange.end = Some(End::Answered);
        if !known {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        if !known && !head_only {
            let bytes = published.bytes.clone();
            return self.send(session, exchange, StatusCode::OK, headers, bytes).await;
        }
        let status = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        if head_only {
            headers.insert(header::CONTENT_LENGTH, published.bytes.len().into());
        }
        self.send_head(session, exchange, status, headers).await
    }

    /// Writes an answer that has no body, whatever its head says of one.
    pub(super) async fn send_head(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        status: StatusCode,
        headers: HeaderMap,
    ) -> Result<(), Halt> {
        self.announce_end(session);
        exchange.status = Some(status.as_u16());
        let (head, stall) = (respond::response_head(status, headers), self.settings.stall_timeout);
        respond::write_head(session, head, stall).await?;
        let none = bytes::Bytes::new();
        Ok(respond::write_body(session, &mut exchange.delivered, none, true, stall).await?)
    }
}

//! The head of an answer, and which way its body takes: straight on, or through the list filter.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;

use super::{
    Halt, Proxy, Read,
    drain::Phase,
    headers, origin,
    relay::{self, Patience, Relay, Shape},
    respond,
    sse_endpoint::Leg,
};
use crate::{
    denial::Denial,
    exchange::{End, Exchange},
    governance::Visibility,
    protocol::{Call, Era, Kind, SessionId},
    response::{EventFilter, ListFilter},
    state,
    upstream::Answer,
};

const SESSION_HEADER: &str = "mcp-session-id";

impl Proxy {
    /// Passes the answer on: head first, then the body part by part. A list in one document is read to
    /// its end before, since it can turn out to be unreadable.
    pub(super) async fn answer(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &Read,
        answer: Answer,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal), Some(served)) =
            (&exchange.call, &exchange.principal, self.routes.get(read.route))
        else {
            return Err(Denial::NoRoute.into());
        };
        let (head, body) = answer.into_parts();
        if head.status.is_informational() || head.status.is_redirection() {
            return Err(Denial::UpstreamUnreadable.into());
        }
        if matches!(read.leg, Leg::Message(_)) && head.status.is_success() {
            return self.accept(session, exchange, body).await;
        }
        read.leg.settle(call);
        self.follow_session(
            call,
            &served.server,
            principal.id.as_str(),
            head.status,
            &head.headers,
        )
        .await?;
        let shape = shape(&head.headers);
        let owner = principal.id.shared();
        let desk = self.desk(read, &owner).filter(|_| head.status.is_success());
        if desk.is_some() && (shape != Shape::Events || !is_plain(&head.headers)) {
            return Err(Denial::UpstreamUnreadable.into());
        }
        let patience = Patience {
            idle: served.upstream.settings().idle_timeout,
            keep_alive: self.settings.keep_alive,
            stall: self.settings.stall_timeout,
        };
        let phase = self.shared.drain.watch();
        let limit = self.shared.limits.list;
        let mut reservation = self.shared.budget.reserve();
        let filtered = may_hold_list(call) && !served.route.shadow;
        let events = match shape {
            _ if !filtered => None,
            _ if !is_plain(&head.headers) => return Err(Denial::UpstreamUnreadable.into()),
            shape => {
                let visibility = Visibility {
                    policies: self.shared.policies.load_full(),
                    principal,
                    server: &served.server,
                    listener: &self.name,
                    era: call.era,
                };
                let filter = ListFilter { visibility };
                if shape == Shape::Document {
                    let collecting =
                        relay::collect(session, body, patience, phase, limit, &mut reservation);
                    let whole = collecting.await?;
                    let seen = visible(&filter, &head, whole)?;
                    let headers = self.headers_for_caller(session, call, &head, true);
                    self.send(session, exchange, head.status, headers, seen).await?;
                    exchange.end = Some(End::Answered);
                    return Ok(());
                }
                Some(EventFilter::new(filter, limit))
            }
        };
        let mut headers = self.headers_for_caller(session, call, &head, events.is_some());
        if shape == Shape::Events {
            // It can grow on its way: signs of life, an error at its end.
            headers.remove(header::CONTENT_LENGTH);
        }
        frame(session, head.status, &mut headers);
        let left = announced(head.status, &headers);
        self.announce_end(session);
        exchange.status = Some(head.status.as_u16());
        let response = respond::response_head(head.status, headers);
        let writing = session.write_response_header(Box::new(response));
        match timeout(patience.stall, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Halt::Caller(End::CallerGone)),
            Err(_) => return Err(Halt::Caller(End::CallerStalled)),
        }
        let _open = (shape == Shape::Events).then(|| self.shared.record.metrics.open_stream());
        let judged_by = exchange.policy_version.as_deref().unwrap_or_default();
        let standing = || {
            self.still_believed(read.peer.as_deref())?;
            if listens(call) {
                self.still_permitted(call, principal, served, &read.owned, judged_by)?;
            }
            Ok(())
        };
        let relay = Relay {
            session,
            body,
            shape,
            desk,
            filter: events,
            reservation,
            left,
            patience,
            phase,
            ends_in: if listens(call) { Phase::Draining } else { Phase::Ending },
            standing: &standing,
            call,
            decision_id: exchange.id,
            delivered: &mut exchange.delivered,
        };
        exchange.end = Some(relay.run().await);
        Ok(())
    }

    /// Keeps what is known of sessions in step with what the upstream says.
    async fn follow_session(
        &self,
        call: &Call,
        server: &str,
        owner: &str,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<(), Denial> {
        let owners = &self.shared.owners;
        if let Some(session) = call.session.as_ref().filter(|_| call.era == Era::Legacy) {
            let ended = matches!(call.kind, Kind::End) && status.is_success();
            if ended || status == StatusCode::NOT_FOUND {
                owners.end(state::Kind::Session, server, session.expose(), owner).await;
            }
        }
        if !opens_session(call, status) || !headers.contains_key(SESSION_HEADER) {
            return Ok(());
        }
        let session = session_id(headers).and_then(SessionId::parse);
        let session = session.ok_or(Denial::UpstreamUnreadable)?;
        let now = self.shared.record.clock.unix();
        let bound =
            owners.bind(state::Kind::Session, server, session.expose(), &owner.into(), now).await;
        bound.map_err(Self::unbound)
    }

    /// The upstream's headers without what was between the two of us.
    fn headers_for_caller(
        &self,
        session: &ServerSession,
        call: &Call,
        answer: &http::response::Parts,
        edited: bool,
    ) -> HeaderMap {
        let mut headers = headers::for_caller(&answer.headers);
        if edited {
            headers::forget_body(&mut headers);
        } else if let Some(length) = announced_length(&answer.headers) {
            headers.insert(header::CONTENT_LENGTH, length.clone());
        }
        // A session id is news on the answer that opens the session and an echo everywhere else.
        let echo = match (&call.session, session_id(&headers)) {
            (Some(own), Some(id)) => own.expose() == id,
            (None, _) | (_, None) => false,
        };
        if !opens_session(call, answer.status) && !echo {
            headers.remove(SESSION_HEADER);
        }
        if let Some(origin) = self.doorplate.allowed_origin(&session.req_header().headers) {
            origin::expose(&mut headers, origin);
        }
        headers
    }
}

/// Whether an answer may bring a session id that is new to the caller.
fn opens_session(call: &Call, status: StatusCode) -> bool {
    call.opens_session() && status.is_success()
}

/// The session id of an answer that has exactly one.
fn session_id(headers: &HeaderMap) -> Option<&str> {
    let mut ids = headers.get_all(SESSION_HEADER).iter();
    let (Some(id), None) = (ids.next(), ids.next()) else { return None };
    id.to_str().ok()
}

/// The length of an answer's body, where its framing goes by it: beside a transfer coding a length says
/// nothing (RFC 9112 §6.3).
fn announced_length(headers: &HeaderMap) -> Option<&HeaderValue> {
    let coded = headers.contains_key(header::TRANSFER_ENCODING);
    headers.get(header::CONTENT_LENGTH).filter(|_| !coded)
}

/// A list document as the caller may see it. An error page is no list, but can't be read to make sure.
fn visible(
    filter: &ListFilter<'_>,
    head: &http::response::Parts,
    whole: Bytes,
) -> Result<Bytes, Denial> {
    let json = essence_is(&head.headers, "application/json");
    if whole.is_empty() || (!json && !head.status.is_success()) {
        return Ok(Bytes::new());
    }
    filter.document(whole).map_err(|_| Denial::UpstreamUnreadable)
}

/// HTTP/1.1 needs a framing where the length isn't known; pingora takes it from the headers.
fn frame(session: &ServerSession, status: StatusCode, headers: &mut HeaderMap) {
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if status == StatusCode::NO_CONTENT {
        // Not even a length of zero (RFC 9110 §8.6).
        headers.remove(header::CONTENT_LENGTH);
    }
    let http11 = session.req_header().version == Version::HTTP_11 && !session.is_http2();
    if http11 && !bodiless && !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// The length of the body that the caller waits for, where its head tells.
fn announced(status: StatusCode, headers: &HeaderMap) -> Option<usize> {
    match status {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Some(0),
        _ => headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok(),
    }
}

/// What an answer's content type says of its shape.
fn shape(headers: &HeaderMap) -> Shape {
    if essence_is(headers, "text/event-stream") { Shape::Events } else { Shape::Document }
}

fn essence_is(headers: &HeaderMap, essence: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let named = value.and_then(|value| value.split(';').next()).map(str::trim);
    named.is_some_and(|named| named.eq_ignore_ascii_case(essence))
}

/// Whether a body can be read in one way only: it isn't encoded, and its type is said once.
fn is_plain(headers: &HeaderMap) -> bool {
    let types = headers.get_all(header::CONTENT_TYPE).iter().count();
    types <= 1 && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Whether a list may come in the answer. A session's own stream can replay any earlier answer.
fn may_hold_list(call: &Call) -> bool {
    matches!(call.kind, Kind::Stream) || call.method.list().is_some()
}

/// Streams that answer no call but only listen; they end as soon as the process is told to stop, and when
/// the policies permit them no longer.
fn listens(call: &Call) -> bool {
    matches!(call.kind, Kind::Stream) || call.method.name() == "subscriptions/listen"
}

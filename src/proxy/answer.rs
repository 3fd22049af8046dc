//! The head of an answer, and which way its body takes.

use std::sync::{Arc, atomic::AtomicBool};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header, response::Parts};
use pingora::protocols::http::ServerSession;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    Halt, Proxy, Read, Served,
    asked::Back,
    body::Reservation,
    drain::Phase,
    events::Events,
    headers::{self, SESSION_HEADER},
    listening::{Listening, listens},
    origin,
    patience::{Patience, Shape},
    relay::{Relay, Sight},
    reply, respond,
    sse_endpoint::Leg,
};
use crate::{
    delegation::{Behalf, ChainError, Rule},
    denial::Denial,
    exchange::{Exchange, Occasion},
    governance::{Permit, Visibility, delegation},
    identity::Principal,
    protocol::{Call, Era, Kind, Protocol, SessionId},
    response::{ListFilter, Look},
    state,
    upstream::{Answer, Body},
};

/// A charset in which other bytes end a line than in UTF-8.
const LATIN_1: &str = "iso-8859-1";

/// An answer whose head has come.
pub(super) struct Coming {
    pub(super) head: Parts,
    pub(super) patience: Patience,
    /// What was read of the body.
    pub(super) begun: Bytes,
    /// For what is held of it.
    pub(super) reservation: Reservation,
    /// The rest of it.
    pub(super) body: Body,
}

/// What passes on its way without being held.
pub(super) enum Passing {
    /// A document; without a look where denials are only recorded.
    Document(Option<Look>),
    /// Events.
    Events,
}

impl Proxy {
    /// Passes the answer on, as a document or as a stream of events.
    pub(super) async fn answer(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &Read,
        answer: Answer,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal)) = (&exchange.call, &exchange.principal) else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        let (head, body) = answer.into_parts();
        if let (StatusCode::UNAUTHORIZED, Some(user)) = (head.status, &read.on_behalf) {
            served.upstream.doubt(user);
        }
        if served.upstream.settings().identity().is_some() {
            exchange.peer_denied = peer_denied(&head.headers);
        }
        if served.route.protocol == Protocol::Http {
            return self.web_answer(session, exchange, read, (head, body)).await;
        }
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
        // What comes on a session's own stream, some clients read as events whatever it is called.
        let own_stream = matches!(call.kind, Kind::Stream) && head.status.is_success();
        if !is_plain(&head.headers) || (own_stream && shape != Shape::Events) {
            return Err(Denial::UpstreamUnreadable.into());
        }
        let coming = self.coming(exchange, served, (head, body));
        match (shape, served.route.protocol) {
            (Shape::Document, Protocol::Mcp) => {
                self.document(session, exchange, read, coming).await
            }
            (Shape::Document, Protocol::A2a) => {
                self.agent_document(session, exchange, read, coming).await
            }
            (Shape::Document, Protocol::Http) | (Shape::Events | Shape::Flow, _) => {
                self.pass(session, exchange, read, coming, Passing::Events).await
            }
        }
    }

    /// An answer of which nothing but the head has been read.
    pub(super) fn coming(
        &self,
        exchange: &Exchange,
        served: &Served,
        (head, body): (Parts, Body),
    ) -> Coming {
        let timeouts = served.upstream.settings().timeouts;
        let patience = Patience {
            idle: timeouts.idle,
            until: exchange.forwarded().and_then(|at| at.checked_add(timeouts.call)),
            stream_idle: timeouts.stream_idle,
            keep_alive: self.settings.keep_alive,
            stall: self.settings.stall_timeout,
        };
        let reservation = self.shared.budget.reserve();
        Coming { head, patience, begun: Bytes::new(), reservation, body }
    }

    /// Passes an answer on as it comes: head first, then the body part by part.
    pub(super) async fn pass(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &Read,
        coming: Coming,
        passing: Passing,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal), Some(permit)) =
            (&exchange.call, &exchange.principal, &exchange.permit)
        else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        let Coming { head, patience, begun, reservation, body } = coming;
        let edited = may_hold_list(call) && !served.route.shadow;
        let sight = match (passing, served.route.protocol) {
            (Passing::Document(look), _) => Sight::Document(look),
            (Passing::Events, Protocol::Http) => Sight::Flow,
            (Passing::Events, Protocol::A2a) => Sight::Agent(Box::new(self.agent_events(
                call,
                principal,
                served,
                read.live.as_ref(),
            ))),
            (Passing::Events, Protocol::Mcp) => {
                let back = self.back(
                    (call, principal, &exchange.behalf, permit),
                    exchange.id,
                    read,
                    &head.headers,
                );
                let back = back.ok_or(Denial::NoRoute)?;
                let owes = head.status.is_success() && call.id().is_some() && !listens(call);
                let lists = edited.then(|| ListFilter {
                    visibility: self.visibility(call, principal, &exchange.behalf, served),
                    listed: &self.shared.listed,
                });
                Sight::Events(Box::new(Events::new(back, lists, served.terms.limits.answer, owes)))
            }
        };
        let mut headers = self.headers_for_caller(session, call, &head, edited);
        match sight.shape() {
            Shape::Document => {}
            Shape::Events => {
                // It can grow on its way: signs of life, an error at its end.
                headers.remove(header::CONTENT_LENGTH);
                say_utf8(&mut headers);
                headers::detach(&mut headers);
            }
            Shape::Flow => headers::detach(&mut headers),
        }
        frame(session, head.status, &mut headers);
        let left = announced(head.status, &headers);
        self.announce_end(session);
        exchange.status = Some(head.status.as_u16());
        let response = respond::response_head(head.status, headers);
        respond::write_head(session, response, patience.stall).await?;
        let owner = principal.id.shared();
        let desk = self.desk(read, &owner).filter(|_| head.status.is_success());
        // Its values are slices of the buffer that it was read into.
        drop(head);
        let streams = sight.shape() != Shape::Document;
        let _open = streams.then(|| self.shared.record.metrics.open_stream());
        let judged_by = exchange.policy_version.clone().unwrap_or_default();
        let behalf = &exchange.behalf;
        let mut listening =
            listens(call).then(|| Listening::new(self, (call, principal, behalf), read, judged_by));
        let still_good = || {
            self.still_believed(read.peer.as_deref())?;
            let now = self.shared.record.clock.unix().as_secs();
            if behalf.expires().is_some_and(|end| end <= now) {
                let hop = behalf.chains().first().map_or(0, |chain| chain.depth());
                return Err(ChainError::Hop { hop, rule: Rule::Expired }.into());
            }
            Ok(())
        };
        let mut standing = || match (still_good(), &mut listening) {
            (Ok(()), Some(listening)) => listening.look(),
            (verdict, _) => verdict.into(),
        };
        let relay = Relay {
            session,
            body,
            desk,
            begun,
            reservation,
            left,
            patience,
            phase: self.shared.drain.watch(),
            recall: self.recall((call, principal, behalf), served),
            revocation: &mut exchange.revocation,
            ends_in: if listens(call) { Phase::Draining } else { Phase::Ending },
            standing: &mut standing,
            opened: false,
            call,
            decision_id: exchange.id,
            delivered: &mut exchange.delivered,
            spoke: self.shared.record.clock.instant(),
            heard: self.shared.record.clock.instant(),
        };
        exchange.end = Some(relay.run(sight).await);
        Ok(())
    }

    /// The exchange, as messages of the server in an answer with these headers see it.
    pub(super) fn back<'a>(
        &'a self,
        parties: (&'a Call, &'a Principal, &'a Behalf, &'a Permit),
        cause: Uuid,
        read: &'a Read,
        headers: &HeaderMap,
    ) -> Option<Back<'a>> {
        let (call, principal, behalf, permit) = parties;
        let served = &read.served;
        let occasion = Occasion {
            record: Arc::clone(&self.shared.record),
            listener: Arc::clone(&self.name),
            direction: self.settings.direction.back().as_str(),
            cause,
            caller: principal.id.shared(),
            server: Arc::clone(&served.server),
            era: call.era,
            shadow: served.route.shadow,
        };
        let own = call.session.as_ref().filter(|_| call.era == Era::Legacy);
        let session = match own {
            Some(session) => Some(session.expose()),
            None => session_id(headers).filter(|_| call.opens_session()),
        };
        Some(Back {
            proxy: self,
            served,
            call,
            principal,
            behalf,
            owned: &read.owned,
            permit,
            on_behalf: read.on_behalf.as_ref()?,
            occasion,
            session: session.map(Into::into),
            open: None,
            answered: AtomicBool::new(false),
            replied: AtomicBool::new(false),
            replies: Arc::new(Semaphore::new(reply::AT_ONCE)),
        })
    }

    /// What the caller may see of lists.
    pub(super) fn visibility<'a>(
        &'a self,
        call: &Call,
        principal: &'a Principal,
        behalf: &'a Behalf,
        served: &'a Served,
    ) -> Visibility<'a> {
        Visibility {
            delegation: delegation::of_caller(behalf),
            policies: self.shared.policies.load_full(),
            revocations: self.shared.revocations.current(),
            principal,
            server: &served.server,
            listener: &self.name,
            era: call.era,
        }
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
    pub(super) fn headers_for_caller(
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
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        // A session id is news on the answer that opens the session and an echo everywhere else.
        let echo = match (&call.session, session_id(&headers)) {
            (Some(own), Some(id)) => own.expose() == id,
            (None, _) | (_, None) => false,
        };
        if !opens_session(call, answer.status) && !echo {
            headers.remove(SESSION_HEADER);
        }
        if call.web.is_some() {
            // It leads through us by now; see `web`.
            let location = answer.headers.get(header::LOCATION);
            headers.extend(location.map(|it| (header::LOCATION, it.clone())));
        }
        if let Some(origin) =
            self.inside.load().doorplate.allowed_origin(&session.req_header().headers)
        {
            origin::expose(&mut headers, origin);
        }
        headers
    }
}

/// What the proxy at the other end says it refused a call as.
fn peer_denied(headers: &HeaderMap) -> Option<Arc<str>> {
    headers.get(headers::DENIAL)?.to_str().ok().map(Into::into)
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
/// nothing (RFC 9112 §6.3). Some servers repeat it, in another line or in a list; whoever reads that may go by
/// any of them, so that all have to be the same (RFC 9110 §8.6).
fn announced_length(headers: &HeaderMap) -> Option<usize> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    let mut lengths = headers
        .get_all(header::CONTENT_LENGTH)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|length| {
            let length = std::str::from_utf8(length.trim_ascii()).ok()?;
            let digits = length.bytes().all(|byte| byte.is_ascii_digit());
            length.parse().ok().filter(|_| digits)
        });
    let length: usize = lengths.next()??;
    lengths.all(|other| other == Some(length)).then_some(length)
}

/// HTTP/1.1 needs a framing where the length isn't known; pingora takes it from the headers.
fn frame(session: &ServerSession, status: StatusCode, headers: &mut HeaderMap) {
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if bodiless {
        // With 204 not even a length of zero (RFC 9110 §8.6). With 304 it may be that of what isn't sent, but
        // pingora ends an answer of HTTP/2 by an empty frame, and clients that count reset the stream then.
        headers.remove(header::CONTENT_LENGTH);
    }
    let http11 = session.req_header().version == Version::HTTP_11 && !session.is_http2();
    if http11 && !bodiless && !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// The length of the body, where its head tells.
pub(super) fn announced(status: StatusCode, headers: &HeaderMap) -> Option<usize> {
    match status {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Some(0),
        _ => announced_length(headers),
    }
}

/// What an answer's content type says of its shape.
pub(super) fn shape(headers: &HeaderMap) -> Shape {
    if essence_is(headers, "text/event-stream") { Shape::Events } else { Shape::Document }
}

pub(super) fn essence_is(headers: &HeaderMap, essence: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let named = value.and_then(|value| value.split(';').next()).map(str::trim);
    named.is_some_and(|named| named.eq_ignore_ascii_case(essence))
}

/// Whether a body can be read in one way only: it isn't encoded, its type is said once and clearly, and its
/// characters, where that is said, are written as ASCII writes them.
fn is_plain(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let clear = first.is_none_or(|value| value.to_str().is_ok_and(is_clear_type));
    second.is_none() && clear && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Some clients look for a type at the start of the value, or anywhere in it.
fn is_clear_type(value: &str) -> bool {
    const EVENTS: &str = "event-stream";
    let value = value.to_ascii_lowercase();
    let (essence, parameters) = value.split_once(';').unwrap_or((&value, ""));
    let events = essence.contains(EVENTS);
    let other = parameters.contains(EVENTS) || (events && parameters.contains("json"));
    (!events || essence.trim() == "text/event-stream")
        && !other
        && parameters.split(';').all(is_plain_parameter)
}

/// Some readers put names in other spellings, or in parts, together (RFC 2231: `charset*0`), or take quotes
/// off them.
fn is_plain_parameter(parameter: &str) -> bool {
    const CHARSETS: [&str; 5] = ["utf-8", "utf8", "us-ascii", LATIN_1, "windows-1252"];
    let Some((name, value)) = parameter.split_once('=') else { return true };
    let (name, value) = (name.trim(), value.trim().trim_matches('"'));
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let other = !name.eq_ignore_ascii_case("charset");
    plain && (other || CHARSETS.iter().any(|known| value.eq_ignore_ascii_case(known)))
}

/// Event streams are UTF-8 (WHATWG HTML, "Server-sent events"). Whoever goes by a type that says otherwise
/// finds the end of a line (U+0085) where nobody else does.
fn say_utf8(headers: &mut HeaderMap) {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if value.is_some_and(|value| value.to_ascii_lowercase().contains(LATIN_1)) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    }
}

/// Whether a list may come in the answer. A session's own stream can replay any earlier answer.
fn may_hold_list(call: &Call) -> bool {
    matches!(call.kind, Kind::Stream) || lists(call)
}

/// Whether the answer is a list that has to be cut down.
pub(super) fn lists(call: &Call) -> bool {
    call.method.list().is_some() || call.method.name() == "tasks/list"
}

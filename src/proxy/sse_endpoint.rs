//! The HTTP+SSE transport of MCP 2024-11-05, in front of upstreams that still speak it.
//!
//! A client opens one stream with `GET` and is told on it, by an `endpoint` event, where to post. Lictor
//! tells it a place of its own instead, `<route>/message/<token>`, and keeps the upstream's to itself. What
//! is posted there is decoded, judged and recorded like any other message, and goes to the place that the
//! upstream announced; answers come on the stream, where lists are cut down as on every stream.
//!
//! A refusal comes on the stream too, as the error of its request, beside a 202 for the post: clients of
//! this transport read nothing from the answer to a post, and some give up their session over a status that
//! is none of 2xx.
//!
//! INVARIANT: a message goes to an announced place only through [`Streams::find`], which knows it by an
//! unguessable token, for the principal that opened the stream, on routes to the same upstream, and as
//! long as the stream is open.
//!
//! Refused: a place of another origin (the stream ends), a second announcement (withheld), messages at the
//! path of the stream (405, after which clients of both transports try `GET`), revisions without this
//! transport.

mod streams;

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use pingora::protocols::http::ServerSession;
use tokio::{sync::mpsc, time::timeout};

use self::streams::Entry;
pub(super) use self::streams::Open;
pub use self::streams::Streams;
use super::{Halt, Proxy, Read, Served, refusal, route::Way, settings::Refusals};
use crate::{
    denial::Denial,
    exchange::{End, Exchange},
    protocol::{
        Call, Kind, Protocol, json,
        sse::{Event, Splitter},
    },
    upstream::{Body, Endpoint, Transport},
};

/// What is between a route's path and a token.
const BELOW: &str = "/message/";

/// Refusals that may wait for one stream; beyond them, a post is answered by its status.
const WAITING: usize = 64;

/// Longest body, in bytes, of the answer to a post, and how long it is waited for: nobody reads it, but a
/// connection that it was read from can be used again.
const UNREAD: (usize, Duration) = (4 << 10, Duration::from_secs(1));

/// What a request is to the transport of its route.
#[derive(Debug)]
pub(super) enum Leg {
    /// Streamable HTTP: everything is answered where it was sent.
    Whole,
    /// HTTP+SSE: the stream of a client.
    Stream,
    /// HTTP+SSE: a message of the client whose stream this is.
    Message(Arc<Open>),
}

impl Leg {
    /// Where it goes, if not to the place in the upstream's settings.
    pub(super) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Whole | Self::Stream => None,
            Self::Message(open) => Some(&open.endpoint),
        }
    }

    /// Takes note that the upstream has not taken a message.
    pub(super) fn settle(&self, call: &Call) {
        if let (Self::Message(open), Some(id)) = (self, call.id()) {
            open.settle(id.as_json());
        }
    }

    /// Takes note of what will be answered on the stream, so that a shutdown waits for it.
    pub(super) fn expect(&self, call: &Call) {
        let Self::Message(open) = self else { return };
        match &call.kind {
            Kind::Request(id) => open.expect(id.as_json()),
            Kind::Notification => cancelled(call).into_iter().for_each(|id| open.settle(&id)),
            Kind::Response(_) | Kind::Stream | Kind::End | Kind::Operation => {}
        }
    }
}

impl Served {
    /// The token in a path below this route, where an upstream with such tokens is behind it.
    pub(super) fn token<'a>(&self, path: &'a str) -> Option<&'a str> {
        let route = self.route.path.strip_suffix('/').unwrap_or(&self.route.path);
        match self.upstream.settings().transport() {
            Transport::StreamableHttp => None,
            Transport::Sse => path.strip_prefix(route)?.strip_prefix(BELOW),
        }
    }

    /// The one method that is served at a path of this route, where the transport has one only.
    pub(super) fn only(&self, path: &str) -> Option<Method> {
        match (self.upstream.settings().transport(), self.token(path)) {
            (Transport::StreamableHttp, _) => None,
            (Transport::Sse, None) => Some(Method::GET),
            (Transport::Sse, Some(_)) => Some(Method::POST),
        }
    }
}

impl Proxy {
    /// What a request at this path of a route is to its transport. `owner` is the caller.
    pub(super) fn leg(
        &self,
        served: &Served,
        path: &str,
        method: &Method,
        owner: &str,
    ) -> Result<Leg, Denial> {
        let fits = match (served.route.protocol, served.only(path)) {
            // Which operation it is, and by which methods, is for the decoder to say.
            (Protocol::A2a | Protocol::Http, _) => true,
            (Protocol::Mcp, Some(only)) => *method == only,
            (Protocol::Mcp, None) => matches!(*method, Method::POST | Method::GET | Method::DELETE),
        };
        if !fits {
            return Err(Denial::HttpMethod);
        }
        let streams = &self.shared.streams;
        match (served.upstream.settings().transport(), served.token(path)) {
            (Transport::StreamableHttp, _) => Ok(Leg::Whole),
            (Transport::Sse, None) if streams.admits(owner) => Ok(Leg::Stream),
            (Transport::Sse, None) => Err(Denial::TooManySessions),
            (Transport::Sse, Some(token)) => {
                let open = streams.find(token, &served.upstream, owner);
                open.map(Leg::Message).ok_or(Denial::UnknownSession)
            }
        }
    }

    /// Answers a post that the upstream has taken; the rest comes on the stream.
    pub(super) async fn accept(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        mut body: Body,
    ) -> Result<(), Halt> {
        self.send(session, exchange, StatusCode::ACCEPTED, HeaderMap::new(), Bytes::new()).await?;
        exchange.end = Some(End::Answered);
        let (most, patience) = UNREAD;
        let reading = async {
            let mut read = 0;
            while let Some(Ok(part)) = body.frame().await {
                read += part.len();
                if read > most {
                    return;
                }
            }
        };
        // Whatever became of it, the upstream has the message.
        let _ = timeout(patience, reading).await;
        Ok(())
    }

    /// Tells a refusal on the caller's stream, and whether that could be done: not where the stream or the
    /// request's id isn't known, the connection has to end, or the operator wants statuses.
    pub(super) async fn refuse_on_stream(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        way: Option<&Way>,
        denial: &Denial,
    ) -> bool {
        let Some(open) = way.and_then(|way| self.stream_of(way, exchange)) else { return false };
        let Some(told) = refusal::told(denial, exchange.call.as_ref(), exchange.id) else {
            return false;
        };
        if !told.event.is_empty() && open.tell.try_send(told.event).is_err() {
            return false;
        }
        exchange.end = Some(End::Refused(told.row));
        tracing::info!(
            decision = %exchange.id,
            kind = told.row.kind,
            peer = exchange.peer(),
            "refused"
        );
        let (status, headers) = (StatusCode::ACCEPTED, HeaderMap::new());
        // A refusal that nobody waits for is still a refusal, and is on record as one.
        let _ = self.send(session, exchange, status, headers, Bytes::new()).await;
        true
    }

    fn stream_of(&self, way: &Way, exchange: &Exchange) -> Option<Arc<Open>> {
        let served = &way.served;
        let token = served.token(&way.path)?;
        let owner = exchange.principal.as_ref()?.id.as_str();
        let open = self.shared.streams.find(token, &served.upstream, owner)?;
        if let Some(id) = exchange.call.as_ref().and_then(Call::id) {
            open.settle(id.as_json());
        }
        (served.route.refusals != Refusals::HttpStatus).then_some(open)
    }

    /// The desk of a stream that begins, if it is one of this transport.
    pub(super) fn desk<'a>(&'a self, read: &'a Read, owner: &'a Arc<str>) -> Option<Desk<'a>> {
        let served = &read.served;
        match read.leg {
            Leg::Whole | Leg::Message(_) => None,
            Leg::Stream => {
                let splitter = Splitter::new(served.terms.limits.answer);
                let (tell, told) = mpsc::channel(WAITING);
                let streams = &self.shared.streams;
                Some(Desk { served, owner, streams, splitter, entry: None, tell, told })
            }
        }
    }
}

/// Where an open stream gets its announcement, and the refusals of what was posted.
pub(super) struct Desk<'a> {
    served: &'a Served,
    owner: &'a Arc<str>,
    streams: &'a Streams,
    splitter: Splitter,
    /// Holds the token; none before the announcement.
    entry: Option<Entry<'a>>,
    tell: mpsc::Sender<Bytes>,
    told: mpsc::Receiver<Bytes>,
}

impl Desk<'_> {
    /// Takes the next part of the upstream's stream and gives back whole events, with our announcement in
    /// place of the upstream's.
    pub(super) fn push(&mut self, part: Bytes) -> Result<Bytes, Denial> {
        let mut events = Vec::new();
        self.splitter.feed(part, &mut events).map_err(|_| Denial::UpstreamUnreadable)?;
        let mut edited = BytesMut::new();
        for mut event in events {
            if event.clear().is_err() {
                let upstream = &*self.served.server;
                tracing::warn!(
                    upstream,
                    "an event that readers could read differently was withheld"
                );
                continue;
            }
            if event.is_named(b"endpoint") {
                edited.extend_from_slice(&self.announce(&event)?);
                continue;
            }
            if let Some(entry) = self.entry.as_ref().filter(|entry| entry.open.is_awaited())
                && let Some(id) = event.data().and_then(|data| member(&data, &["id"]))
            {
                entry.open.settle(&id);
            }
            edited.extend_from_slice(event.raw());
        }
        Ok(edited.freeze())
    }

    /// The stream, once its announcement has passed.
    pub(super) fn open(&self) -> Option<Arc<Open>> {
        self.entry.as_ref().map(|entry| Arc::clone(&entry.open))
    }

    /// Bytes of the event that isn't whole yet.
    pub(super) fn held(&self) -> usize {
        self.splitter.held()
    }

    /// The next event of ours; to be written between two of the upstream.
    pub(super) async fn told(&mut self) -> Bytes {
        match self.told.recv().await {
            Some(event) => event,
            // Not while this value holds a sender.
            None => pending().await,
        }
    }

    fn announce(&mut self, event: &Event) -> Result<Bytes, Denial> {
        let upstream = &*self.served.server;
        if self.entry.is_some() {
            tracing::warn!(upstream, "a second `endpoint` event was withheld");
            return Ok(Bytes::new());
        }
        let announced = event.data().unwrap_or_default();
        let Some(endpoint) = self.served.upstream.endpoint(&announced) else {
            tracing::warn!(upstream, "its `endpoint` event names no place of its own");
            return Err(Denial::UpstreamUnreadable);
        };
        let open = Open {
            upstream: Arc::clone(&self.served.upstream),
            owner: Arc::clone(self.owner),
            endpoint,
            tell: self.tell.clone(),
            awaited: Mutex::default(),
        };
        let entry = self.streams.open(open).ok_or(Denial::TooManySessions)?;
        let path = self.served.route.path.strip_suffix('/').unwrap_or(&self.served.route.path);
        let place = format!("{path}{BELOW}{}", entry.token());
        self.entry = Some(entry);
        Ok(event.with_data(place.as_bytes()))
    }
}

/// The id, in JSON, of the call that is cancelled by this message.
pub(super) fn cancelled(call: &Call) -> Option<String> {
    let cancels =
        matches!(call.kind, Kind::Notification) && call.method.name() == "notifications/cancelled";
    cancels.then(|| member(&call.body, &["params", "requestId"]))?
}

/// The raw JSON at a place of a message that isn't a request with an id of its own.
fn member(message: &[u8], path: &[&str]) -> Option<String> {
    let document = json::scan(message, json::Limits::default()).ok()?;
    let root = document.root();
    let asks = root.member("method").is_some() && root.member("id").is_some();
    let found = path.iter().try_fold(root, |value, key| value.member(key))?;
    let raw = std::str::from_utf8(found.raw()).ok()?;
    (!asks).then(|| raw.to_owned())
}

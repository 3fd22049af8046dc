//! What a caller gets to see of a process's messages: the answers of a Streamable HTTP server.
//!
//! Sources: MCP 2025-11-25 `basic/transports`, MCP 2026-07-28 `basic/transports/streamable-http`.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{
    connection::{Over, Ticket},
    outbox::{Inbox, Part},
};
use crate::{
    protocol::{Call, Era, Id},
    upstream::Error,
};

/// Errors that the stateless revisions have as HTTP statuses too.
const NOT_FOUND: i64 = -32601;
const PARSE: i64 = -32700;
const INVALID: i64 = -32600;
const HEADER_MISMATCH: i64 = -32020;
const MISSING_CAPABILITY: i64 = -32021;
const UNSUPPORTED_VERSION: i64 = -32022;

pub(super) type Answer = Response<Body>;

/// The body of an answer.
#[derive(Debug)]
pub(in crate::upstream) enum Body {
    /// All of it, until it is taken.
    Document(Option<Bytes>),
    /// Messages as they come.
    Events(Events),
}

/// Messages as server-sent events.
#[derive(Debug)]
pub(in crate::upstream) struct Events {
    first: Option<Part>,
    inbox: Inbox,
    /// The call that they belong to; none for a session's own stream.
    _ticket: Option<Ticket>,
    over: bool,
}

impl Body {
    /// The next piece of the body; `None` at its end. Cancel-safe.
    pub(in crate::upstream) async fn frame(&mut self) -> Option<Result<Bytes, Error>> {
        match self {
            Self::Document(bytes) => bytes.take().map(Ok),
            Self::Events(events) => events.next().await,
        }
    }
}

impl Events {
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        if self.over {
            return None;
        }
        let part = match self.first.take() {
            Some(part) => Some(part),
            None => self.inbox.take().await,
        };
        self.over = !matches!(part, Some(Part::Event(_)));
        match part {
            Some(Part::Event(message) | Part::Answer(message, _)) => Some(Ok(event(&message))),
            Some(Part::End) => None,
            Some(Part::Unreadable) => Some(Err(unreadable())),
            None => Some(Err(Error::Failed(Over.into()))),
        }
    }
}

/// A stream of messages, of which one may be there already.
pub(super) fn events(first: Option<Part>, inbox: Inbox, ticket: Option<Ticket>) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    let events = Events { first, inbox, _ticket: ticket, over: false };
    head(StatusCode::OK, headers, Body::Events(events))
}

/// One message of a process.
pub(super) fn document(status: StatusCode, message: Bytes) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, message.len().into());
    head(status, headers, Body::Document(Some(message)))
}

/// An answer without a body.
pub(super) fn bare(status: StatusCode) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, 0_u64.into());
    head(status, headers, Body::Document(None))
}

/// An error of ours; `error` is its JSON.
pub(super) fn fault(status: StatusCode, id: Option<&Id>, error: &str) -> Answer {
    let id = id.map_or("null", Id::as_json);
    document(status, format!(r#"{{"jsonrpc":"2.0","error":{error},"id":{id}}}"#).into())
}

/// The status that belongs to an answer whose error has this code.
pub(super) fn status(call: &Call, error: Option<i64>) -> StatusCode {
    match (call.era, error) {
        (Era::Legacy | Era::V03 | Era::V10 | Era::Http, _) | (Era::Modern, None) => StatusCode::OK,
        // Callers that ask which revisions a server knows take a 400 that names none for a server of
        // sessions.
        (Era::Modern, Some(_)) if call.method.name() == "server/discover" => {
            StatusCode::BAD_REQUEST
        }
        (Era::Modern, Some(NOT_FOUND)) => StatusCode::NOT_FOUND,
        (
            Era::Modern,
            Some(PARSE | INVALID | HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION),
        ) => StatusCode::BAD_REQUEST,
        (Era::Modern, Some(_)) => StatusCode::OK,
    }
}

pub(super) fn unreadable() -> Error {
    Error::Failed("a message of the process can't be read".into())
}

fn head(status: StatusCode, headers: HeaderMap, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

/// A message has no line ends, so one `data` line holds it.
fn event(message: &[u8]) -> Bytes {
    const HEAD: &[u8] = b"event: message\ndata: ";
    [HEAD, message, b"\n\n"].concat().into()
}

//! Messages on their way through the bridge: which number of ours stands where, and what is put in its
//! place.
//!
//! A process serves several callers, or several connections of one, and all of them may use the same ids and
//! progress tokens. Each request therefore gets a number that is new to its process, in place of its id and
//! of its progress token; where the process speaks of that number, the caller's own literal is put back.
//!
//! INVARIANT: a message is never written anew. Only the bytes of an id or a token are exchanged, and raw line
//! ends, which strict JSON has between tokens only, become spaces: a message is one line here.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::protocol::{
    Id,
    json::{self, Document, Kind, Value},
};

/// Servers may nest deeper than callers.
const LIMITS: json::Limits = json::Limits { depth: 256 };

/// Where the stateless revisions name the request that a message of a subscription belongs to
/// (MCP 2026-07-28 `basic/patterns/subscriptions`).
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A message of a process is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// No strict JSON.
    #[error("a line is no JSON that can be read")]
    Json(#[source] json::ScanError),
    /// JSON, but not one message.
    #[error("a line is no JSON-RPC message")]
    Message,
}

/// A caller's request as its process gets it.
#[derive(Debug)]
pub(super) struct Numbered {
    /// The message and the end of its line.
    pub(super) line: Vec<u8>,
    /// The caller's progress token, as it stood there.
    pub(super) token: Option<Box<str>>,
}

/// Puts `number` in place of the id and the progress token of a request.
pub(super) fn number(body: &[u8], number: u64) -> Result<Numbered, Unreadable> {
    let document = scan(body)?;
    let root = document.root();
    let id = root.member("id").ok_or(Unreadable::Message)?;
    let token = meta(root, "params").and_then(|meta| meta.member("progressToken"));
    let token = token.filter(|token| matches!(token.kind(), Kind::String | Kind::Number));
    let text = number.to_string();
    let places = [Some(id), token];
    let edits = places.iter().flatten().map(|place| (place.span(), text.as_str()));
    Ok(Numbered { line: line(body, edits.collect()), token: token.and_then(literal) })
}

/// A message without a number of ours, for a process.
pub(super) fn plain(body: &[u8]) -> Vec<u8> {
    line(body, Vec::new())
}

/// The id of the request that a caller's `notifications/cancelled` is about, as it stands there.
pub(super) fn cancelled(body: &[u8]) -> Option<Box<str>> {
    let document = scan(body).ok()?;
    literal(document.root().member("params")?.member("requestId")?)
}

/// The caller's `notifications/cancelled` about the request that its process knows by this number.
pub(super) fn number_cancelled(body: &[u8], number: u64) -> Option<Vec<u8>> {
    let document = scan(body).ok()?;
    let place = document.root().member("params")?.member("requestId")?;
    Some(line(body, vec![(place.span(), &number.to_string())]))
}

/// Tells a process that nobody waits for this answer any more.
pub(super) fn cancel(number: u64) -> Vec<u8> {
    let method = r#""method":"notifications/cancelled""#;
    format!("{{\"jsonrpc\":\"2.0\",{method},\"params\":{{\"requestId\":{number}}}}}\n").into()
}

/// The answer to a question of a process that nobody can be asked.
pub(super) fn refuse(id: &str, reason: &str) -> Vec<u8> {
    let error = format!(r#"{{"code":-32601,"message":"{reason}"}}"#);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n").into()
}

/// The answer to `ping`.
pub(super) fn pong(id: &str) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n").into()
}

/// What a process sent.
#[derive(Debug)]
pub(super) struct Sent {
    line: Vec<u8>,
    pub(super) kind: Sort,
    /// Where a number of ours stands, and what for.
    places: Vec<(Range<usize>, Place)>,
}

/// The kinds of message of a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// The answer to the request with this number, and the code of the error if it is one.
    Answer {
        /// The number.
        number: Option<u64>,
        /// `error.code`.
        error: Option<i64>,
    },
    /// A request, with the literal of its id.
    Question {
        /// The id.
        id: Box<str>,
        /// The method.
        method: Box<str>,
    },
    /// A notification about the request with this number.
    About(u64),
    /// Progress of a token that is none of ours.
    Stray,
    /// A line of a log.
    Log,
    /// Any other notification.
    Notice,
}

/// What a number of ours stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Id,
    Token,
}

/// Reads a line of a process. `stateless` says whether its revision lets it speak of requests in ways that
/// the others don't know.
pub(super) fn read(line: Vec<u8>, stateless: bool) -> Result<Sent, Unreadable> {
    let document = scan(&line)?;
    let root = document.root();
    if root.kind() != Kind::Object {
        return Err(Unreadable::Message);
    }
    let id = root.member("id");
    let mut places = Vec::new();
    let kind = match root.member("method").map(Value::as_str) {
        Some(None) => return Err(Unreadable::Message),
        Some(Some(method)) => match id {
            Some(id) => {
                let id = literal(id).ok_or(Unreadable::Message)?;
                Sort::Question { id, method: method.into() }
            }
            None => notification(root, &method, stateless, &mut places),
        },
        None => {
            let error = root.member("error");
            if root.member("result").is_none() && error.is_none() {
                return Err(Unreadable::Message);
            }
            let number = id.and_then(ours);
            places.extend(id.map(|id| (id.span(), Place::Id)));
            let subscribed = subscription(root, "result").filter(|_| stateless);
            let subscribed = subscribed.filter(|id| number_in(*id) == number);
            places.extend(subscribed.map(|id| (id.span(), Place::Id)));
            let code = error.and_then(|error| error.member("code"));
            let error = error.map(|_| code.and_then(Value::as_number));
            let error = error.map(|code| code.and_then(|code| code.parse().ok()).unwrap_or(0));
            Sort::Answer { number, error }
        }
    };
    drop(document);
    Ok(Sent { line, kind, places })
}

fn notification(
    root: Value<'_>,
    method: &str,
    stateless: bool,
    places: &mut Vec<(Range<usize>, Place)>,
) -> Sort {
    let params = root.member("params");
    let member = |name| params.and_then(|params| params.member(name));
    let (place, what) = match method {
        "notifications/progress" => (member("progressToken"), Place::Token),
        "notifications/cancelled" if stateless => (member("requestId"), Place::Id),
        _ => (None, Place::Id),
    };
    let subscribed = subscription(root, "params").filter(|_| stateless);
    let number = place.and_then(ours).or_else(|| subscribed.and_then(number_in));
    let Some(number) = number else {
        return match method {
            "notifications/progress" => Sort::Stray,
            "notifications/message" => Sort::Log,
            _ => Sort::Notice,
        };
    };
    places.extend(place.filter(|place| ours(*place) == Some(number)).map(|it| (it.span(), what)));
    let subscribed = subscribed.filter(|id| number_in(*id) == Some(number));
    places.extend(subscribed.map(|it| (it.span(), Place::Id)));
    Sort::About(number)
}

impl Sent {
    /// The message as its caller gets it: with its own id and token.
    pub(super) fn for_caller(&self, id: &Id, token: Option<&str>) -> Vec<u8> {
        let edits = self.places.iter().filter_map(|(span, place)| match place {
            Place::Id => Some((span.clone(), id.as_json())),
            Place::Token => token.map(|token| (span.clone(), token)),
        });
        let mut message = line(&self.line, edits.collect());
        message.pop();
        message
    }

    /// The message as it came.
    pub(super) fn as_it_came(&self) -> Vec<u8> {
        let mut message = line(&self.line, Vec::new());
        message.pop();
        message
    }
}

fn scan(text: &[u8]) -> Result<Document<'_>, Unreadable> {
    json::scan(text, LIMITS).map_err(Unreadable::Json)
}

fn meta<'a>(root: Value<'a>, of: &str) -> Option<Value<'a>> {
    root.member(of)?.member("_meta")
}

fn subscription<'a>(root: Value<'a>, of: &str) -> Option<Value<'a>> {
    meta(root, of)?.member(SUBSCRIPTION).filter(|id| number_in(*id).is_some())
}

/// The number of ours that an id or a token is. Text that looks like one isn't: ids keep their type.
fn ours(value: Value<'_>) -> Option<u64> {
    value.as_number()?.parse().ok()
}

/// The same for subscriptions, whose ids some servers make text of.
fn number_in(value: Value<'_>) -> Option<u64> {
    ours(value).or_else(|| value.as_str()?.parse().ok())
}

/// A string or a number, as it stands there.
fn literal(value: Value<'_>) -> Option<Box<str>> {
    let plain = matches!(value.kind(), Kind::String | Kind::Number);
    std::str::from_utf8(value.raw()).ok().filter(|_| plain).map(Into::into)
}

/// A message with other text in some places, on one line.
fn line(message: &[u8], mut edits: Vec<(Range<usize>, &str)>) -> Vec<u8> {
    edits.sort_by_key(|(span, _)| span.start);
    let mut line = Vec::with_capacity(message.len() + 64);
    let mut at = 0;
    for (span, text) in edits {
        line.extend(message.get(at..span.start).unwrap_or_default().iter().map(flat));
        line.extend_from_slice(text.as_bytes());
        at = span.end;
    }
    line.extend(message.get(at..).unwrap_or_default().iter().map(flat));
    line.push(b'\n');
    line
}

fn flat(byte: &u8) -> u8 {
    if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }
}

//! How a refusal looks on the wire.
//!
//! The table in [`crate::denial`] decides status and code; here they become bytes. Every refusal is JSON
//! with a content type, carries the request's own id with its JSON type, never a session id, and names the
//! decision so that an operator can look it up.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    headers::{DECISION, DENIAL},
    settings::Refusals,
};
use crate::{
    denial::{Denial, Row},
    protocol::{Call, Era, Id, Kind, Protocol, mcp},
};

mod agent;
mod limited;
mod web;

/// Has data of its own by MCP 2026-07-28 `basic/versioning`.
const UNSUPPORTED_VERSION: i32 = -32022;

/// By how much the waits of those who are refused until the same instant may differ: a tenth, and this at most.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);

/// How whoever is refused reads an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Binding {
    /// JSON-RPC, as MCP's SDKs read it.
    #[default]
    Mcp,
    /// JSON-RPC, as A2A's SDKs read it.
    Agent,
    /// A2A over plain HTTP.
    AgentRest,
    /// Plain HTTP.
    Web,
}

/// A rendered refusal.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) row: Row,
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

#[derive(Serialize)]
struct Message<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: i32,
    message: &'a str,
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    kind: &'static str,
    decision_id: &'a Uuid,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supported: Option<&'static [&'static str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested: Option<&'a str>,
}

/// Renders the answer to a refused message. `call` is there once it was decoded.
pub(super) fn render(
    denial: &Denial,
    call: Option<&Call>,
    binding: Binding,
    refusals: Refusals,
    decision_id: Uuid,
) -> Rendered {
    let era = match (call, denial, binding) {
        (Some(call), ..) => call.era,
        (None, Denial::Undecodable(error), _) => error.era,
        (None, _, Binding::Mcp) => Era::Legacy,
        (None, _, Binding::Agent | Binding::AgentRest) => Era::V10,
        (None, _, Binding::Web) => Era::Http,
    };
    let row = denial.row(era);
    let mut headers = HeaderMap::with_capacity(10);
    let content_type = match binding {
        Binding::Mcp | Binding::Agent | Binding::AgentRest => "application/json",
        Binding::Web => web::CONTENT_TYPE,
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(DENIAL, HeaderValue::from_static(row.kind));
    if let Ok(decision) = HeaderValue::try_from(decision_id.to_string()) {
        headers.insert(DECISION, decision);
    }
    let status = match binding {
        Binding::Mcp | Binding::Agent => status(row, call, refusals),
        Binding::AgentRest | Binding::Web => rest_status(row),
    };
    match status {
        401 => {
            // Without `error`, since there was no token (RFC 6750 §3.1). `Bearer` for nothing else: it makes
            // clients start an OAuth flow.
            let bearer = matches!(denial, Denial::UserTokenRequired);
            let challenge = if bearer { "Bearer realm=\"lictor\"" } else { "MutualTLS" };
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        405 => {
            let allow = match (binding, era) {
                (Binding::Mcp, Era::Legacy) => "POST, GET, DELETE",
                (Binding::AgentRest, _) => "GET, POST, DELETE",
                (Binding::Web, _) => web::ALLOW,
                (Binding::Mcp | Binding::Agent, _) => "POST",
            };
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        _ => {}
    }
    if let Denial::Limited(limited) = denial {
        limited::add_headers(limited, &mut headers);
    }
    if let Some(seconds) = retry_after(denial, decision_id, status) {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    let body = match binding {
        Binding::Mcp => body(denial, row, answer_id(denial, call), decision_id),
        Binding::Agent => agent::json_rpc(denial, row, answer_id(denial, call), decision_id),
        Binding::AgentRest => agent::rest(denial, row, status, decision_id),
        Binding::Web => web::body(denial, row, status, decision_id),
    };
    Rendered { row, status, headers, body }
}

/// A refusal that is told on a stream; `event` is empty where nobody waits for one.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) row: Row,
    pub(super) event: Bytes,
}

/// Renders a refusal for the stream of a client whose posts are answered there. `None` if only the answer
/// to the post itself can tell it: the message's id isn't known, or the connection has to end.
pub(super) fn told(denial: &Denial, call: Option<&Call>, decision_id: Uuid) -> Option<Told> {
    let row = denial.row(Era::Legacy);
    let message = match (call, denial) {
        _ if row.close => return None,
        (Some(call), _) => call.id().map(|id| error_of(denial, id, call.era, decision_id)),
        (None, Denial::Undecodable(error)) if error.notification => None,
        (None, Denial::Undecodable(error)) if error.id.is_some() => {
            Some(body(denial, row, answer_id(denial, None), decision_id))
        }
        (None, _) => return None,
    };
    Some(Told { row, event: message.map(|message| event(&message)).unwrap_or_default() })
}

/// An event with a JSON-RPC message, which is one line.
pub(super) fn event(message: &[u8]) -> Bytes {
    [b"event: message\ndata: ", message, b"\n\n"].concat().into()
}

/// The JSON-RPC error message that answers a request of this id, whoever sent it.
pub(super) fn error_of(denial: &Denial, id: &Id, era: Era, decision_id: Uuid) -> Bytes {
    let (row, id) = (denial.row(era), serde_json::from_str(id.as_json()).ok());
    match era.protocol() {
        Protocol::Mcp | Protocol::Http => body(denial, row, id, decision_id),
        Protocol::A2a => agent::json_rpc(denial, row, id, decision_id),
    }
}

/// The last event of a stream that answers `call` and can't go on; empty where nobody waits for one.
pub(super) fn last_event(denial: &Denial, call: &Call, decision_id: Uuid) -> Bytes {
    match (&call.kind, call.id()) {
        (Kind::Operation, _) => {
            let row = denial.row(call.era);
            let body = agent::rest(denial, row, rest_status(row), decision_id);
            [b"event: error\ndata: ", &*body, b"\n\n"].concat().into()
        }
        (_, Some(id)) => event(&error_of(denial, id, call.era, decision_id)),
        (_, None) => Bytes::new(),
    }
}

/// `Retry-After`, in whole seconds (RFC 9110 §10.2.3), and soon where nothing is known.
fn retry_after(denial: &Denial, decision_id: Uuid, status: u16) -> Option<u64> {
    match retry_after_ms(denial, decision_id) {
        Some(wait) => Some(wait.div_ceil(1000)),
        None => (status == 503).then_some(1),
    }
}

/// The same in the message, since SDKs don't show headers, in milliseconds.
///
/// Many may be refused until the same instant, when a budget begins anew or a breaker opens, so each is told to wait
/// a little longer, by what is random in the decision's id. Never less than it takes.
fn retry_after_ms(denial: &Denial, decision_id: Uuid) -> Option<u64> {
    let wait = denial.retry_after()?;
    let [.., high, low] = decision_id.into_bytes();
    let part = u32::from(u16::from_be_bytes([high, low]));
    let more = (wait / 10).min(LONGEST_SPREAD) * part / (1 << 16);
    let wait = wait.saturating_add(more).as_nanos().div_ceil(1_000_000);
    Some(u64::try_from(wait).unwrap_or(u64::MAX))
}

/// What is told in words, since some clients show nothing else.
fn text(denial: &Denial, decision_id: Uuid) -> String {
    let message = denial.message();
    match retry_after_ms(denial, decision_id) {
        Some(wait) => {
            let seconds = wait.div_ceil(1000);
            format!("{message}; try again in {seconds} s (decision {decision_id})")
        }
        None => format!("{message} (decision {decision_id})"),
    }
}

/// The status by which a REST client knows a refusal: there is nothing else that it reads it by.
fn rest_status(row: Row) -> u16 {
    match (row.status, row.code) {
        (200, ..=0) => 404,
        (200, code) => u16::try_from(code / 10).unwrap_or(403),
        (status, _) => status,
    }
}

fn status(row: Row, call: Option<&Call>, refusals: Refusals) -> u16 {
    // A JSON-RPC error on 200 needs a request to answer. A refused stream or end of session is 405, the
    // one status that clients take for "not offered" (MCP 2025-11-25 transports), unless it is later.
    let positive = u16::try_from(row.code / 10).ok();
    match (row.status, call.map(|call| &call.kind)) {
        (200, Some(Kind::Stream | Kind::End)) if row.retryable => positive.unwrap_or(503),
        (200, Some(Kind::Stream | Kind::End)) => 405,
        (200, Some(Kind::Notification | Kind::Response(_))) => positive.unwrap_or(404),
        (200, _) if refusals == Refusals::HttpStatus => positive.unwrap_or(404),
        (status, _) => status,
    }
}

/// The id to answer with: the request's own; `null` where a request's id could not be read; none where
/// nothing was asked.
fn answer_id<'a>(denial: &'a Denial, call: Option<&'a Call>) -> Option<&'a RawValue> {
    let id: Option<&Id> = match (call, denial) {
        (Some(call), _) => match call.id() {
            Some(id) => Some(id),
            None => return None,
        },
        (None, Denial::Undecodable(error)) if error.notification => return None,
        (None, Denial::Undecodable(error)) => error.id.as_ref(),
        (None, _) => None,
    };
    serde_json::from_str(id.map_or("null", Id::as_json)).ok()
}

fn body(denial: &Denial, row: Row, id: Option<&RawValue>, decision_id: Uuid) -> Bytes {
    let limit = if let Denial::TooLarge { limit } = denial { Some(*limit) } else { None };
    let limited = if let Denial::Limited(limited) = denial { Some(&**limited) } else { None };
    let unsupported = row.code == UNSUPPORTED_VERSION;
    let requested =
        if let Denial::Undecodable(error) = denial { error.requested.as_deref() } else { None };
    let message = text(denial, decision_id);
    let message = Message {
        jsonrpc: "2.0",
        id,
        error: Error {
            code: row.code,
            message: &message,
            data: Data {
                kind: row.kind,
                decision_id: &decision_id,
                retryable: row.retryable,
                retry_after_ms: retry_after_ms(denial, decision_id),
                limit,
                limits: limited.map(|it| it.exceeded().map(|one| &*one.limit).collect()),
                supported: unsupported.then_some(mcp::MODERN_VERSIONS),
                requested: requested.filter(|_| unsupported),
            },
        },
    };
    // Serialising plain strings and numbers into memory can't fail.
    serde_json::to_vec(&message).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_is_told_one_wait_and_not_all_the_same() {
        for (wait, most) in [(0, 0), (1, 2), (600, 660), (60_000, 66_000), (3_600_000, 3_630_000)] {
            let denial = Denial::BreakerOpen { retry_after: Duration::from_millis(wait) };
            let mut told = Vec::new();
            for number in 0..1000_u128 {
                // Half of a version 7 UUID or so is random; its end is.
                let id = Uuid::from_u128(0x0199_3f0e_7b5a_7c3e_9a1d_0000_0000_0000 + number * 65);
                let ms = retry_after_ms(&denial, id).expect("a wait");
                assert!((wait..=most).contains(&ms), "{ms} of {wait}");
                assert_eq!(retry_after(&denial, id, 200), Some(ms.div_ceil(1000)));
                let words = format!("try again in {} s (decision {id})", ms.div_ceil(1000));
                assert!(text(&denial, id).ends_with(&words));
                told.push(ms);
            }
            told.sort_unstable();
            told.dedup();
            assert!(told.len() as u64 > (most - wait).min(1000) / 2, "{} of {wait}", told.len());
        }
        // Where nothing is known there is nothing to spread.
        let id = Uuid::now_v7();
        assert_eq!(retry_after(&Denial::StateUnavailable, id, 503), Some(1));
        assert_eq!(retry_after_ms(&Denial::StateUnavailable, id), None);
        let told = text(&Denial::StateUnavailable, id);
        assert!(told.ends_with(&format!("try again shortly (decision {id})")), "{told}");
    }
}

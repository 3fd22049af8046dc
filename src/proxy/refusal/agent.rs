//! Refusals as A2A's SDKs read them.
//!
//! Over JSON-RPC, `error.data` is a list of typed details, of which SDKs read the first `ErrorInfo`; the REST
//! binding has the same in a `google.rpc.Status`. All values of an `ErrorInfo`'s metadata are strings. Sources:
//! A2A 1.0 "Error Handling", AIP-193.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{retry_after_ms, text};
use crate::denial::{Denial, Row};

/// `domain` of what A2A itself defines.
const A2A: &str = "a2a-protocol.org";
/// `domain` of what is Lictor's own.
const OWN: &str = "lictor";

#[derive(Serialize)]
struct Detail<'a> {
    #[serde(rename = "@type")]
    kind: &'static str,
    reason: &'a str,
    domain: &'static str,
    metadata: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct Message<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: i32,
    message: &'a str,
    data: [Detail<'a>; 1],
}

#[derive(Serialize)]
struct Refused<'a> {
    error: Status<'a>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    status: &'static str,
    message: &'a str,
    details: [Detail<'a>; 1],
}

/// The body that answers a request of the JSON-RPC binding.
pub(super) fn json_rpc(denial: &Denial, row: Row, id: Option<&RawValue>, decision: Uuid) -> Bytes {
    let message = text(denial, decision);
    let reason = reason(row);
    let error =
        Error { code: row.code, message: &message, data: [detail(denial, row, &reason, decision)] };
    // Serialising plain strings and numbers into memory can't fail.
    serde_json::to_vec(&Message { jsonrpc: "2.0", id, error }).unwrap_or_default().into()
}

/// The body that answers a request of the REST binding.
pub(super) fn rest(denial: &Denial, row: Row, status: u16, decision: Uuid) -> Bytes {
    let message = text(denial, decision);
    let reason = reason(row);
    let error = Status {
        code: status,
        status: canonical(status),
        message: &message,
        details: [detail(denial, row, &reason, decision)],
    };
    serde_json::to_vec(&Refused { error }).unwrap_or_default().into()
}

fn detail<'a>(denial: &Denial, row: Row, reason: &'a str, decision: Uuid) -> Detail<'a> {
    let mut metadata = BTreeMap::from([
        ("code", row.code.to_string()),
        ("decisionId", decision.to_string()),
        ("kind", row.kind.to_owned()),
        ("retryable", row.retryable.to_string()),
    ]);
    if let Denial::TooLarge { limit } = denial {
        metadata.insert("limit", limit.to_string());
    }
    if let Denial::Limited(limited) = denial {
        let names: Vec<_> = limited.exceeded().map(|one| &*one.limit).collect();
        metadata.insert("limits", names.join(","));
    }
    if let Some(time) = retry_after_ms(denial, decision) {
        metadata.insert("retryAfterMs", time.to_string());
    }
    let domain = if defined(row).is_some() { A2A } else { OWN };
    Detail { kind: "type.googleapis.com/google.rpc.ErrorInfo", reason, domain, metadata }
}

/// What A2A calls it, if it has a name for it.
fn defined(row: Row) -> Option<&'static str> {
    match row.code {
        -32001 => Some("TASK_NOT_FOUND"),
        -32009 => Some("VERSION_NOT_SUPPORTED"),
        _ => None,
    }
}

fn reason(row: Row) -> String {
    defined(row).map_or_else(|| row.kind.to_ascii_uppercase(), Into::into)
}

/// The name of the canonical code that goes with an HTTP status (`google/rpc/code.proto`).
fn canonical(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        405 => "UNIMPLEMENTED",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        502 | 503 => "UNAVAILABLE",
        508 => "FAILED_PRECONDITION",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

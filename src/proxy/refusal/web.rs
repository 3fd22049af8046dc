//! Refusals as callers of web APIs read them: problem details (RFC 9457).
//!
//! `code` says what a status means in one word, for callers that have a word for each; `kind` says exactly why.

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use super::retry_after_ms;
use crate::denial::{Denial, Row};

/// The media type of such a body.
pub(super) const CONTENT_TYPE: &str = "application/problem+json";

/// The methods that such a route serves.
pub(super) const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

#[derive(Serialize)]
struct Problem<'a> {
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    request_id: &'a Uuid,
    kind: &'static str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Vec<&'a str>>,
}

/// The body.
pub(super) fn body(denial: &Denial, row: Row, status: u16, decision: Uuid) -> Bytes {
    let detail = format!("{} (decision {decision})", denial.message());
    let (code, title) = named(status);
    let limit = if let Denial::TooLarge { limit } = denial { Some(*limit) } else { None };
    let limited = if let Denial::Limited(limited) = denial { Some(&**limited) } else { None };
    let problem = Problem {
        title,
        status,
        detail: &detail,
        code,
        request_id: &decision,
        kind: row.kind,
        retryable: row.retryable,
        retry_after_ms: retry_after_ms(denial, decision),
        limit,
        limits: limited.map(|it| it.exceeded().map(|one| &*one.limit).collect()),
    };
    // Serialising plain strings and numbers into memory can't fail.
    serde_json::to_vec(&problem).unwrap_or_default().into()
}

/// What a status is called, for programs and for people.
fn named(status: u16) -> (&'static str, &'static str) {
    match status {
        401 => ("unauthenticated", "Unauthorized"),
        403 => ("forbidden", "Forbidden"),
        404 => ("not_found", "Not Found"),
        405 => ("method_not_allowed", "Method Not Allowed"),
        408 => ("timeout", "Request Timeout"),
        409 => ("conflict", "Conflict"),
        413 => ("request_too_large", "Content Too Large"),
        415 => ("invalid_input", "Unsupported Media Type"),
        429 => ("rate_limited", "Too Many Requests"),
        502 => ("bad_gateway", "Bad Gateway"),
        503 => ("not_ready", "Service Unavailable"),
        504 => ("timeout", "Gateway Timeout"),
        508 => ("forbidden", "Loop Detected"),
        500.. => ("internal_error", "Internal Server Error"),
        _ => ("malformed_request", "Bad Request"),
    }
}

//! What a client is told when the server didn't answer.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::message::{Id, Look};
use crate::{telemetry::Causes, upstream};

/// Why a request has no answer of the server's.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Nothing was sent, or the connection broke.
    #[error("{}", Causes(.0))]
    Upstream(#[from] upstream::Error),
    /// A status without a message that answers.
    #[error("the server answered {0}{1}")]
    Status(StatusCode, String),
    /// The stream or the session ended first.
    #[error("the server ended the stream before its answer; whether the call ran is unknown")]
    Ended,
    /// The answer is no JSON-RPC.
    #[error("the server's answer can't be read")]
    Unreadable,
    /// It is no single JSON-RPC message.
    #[error("the line is no single JSON-RPC message")]
    NoMessage,
}

#[derive(Serialize)]
struct Message<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    error: Error<'a>,
}

#[derive(Deserialize, Serialize)]
struct Error<'a> {
    code: i64,
    #[serde(borrow)]
    message: std::borrow::Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
}

impl Failure {
    /// The JSON-RPC error for a request; the codes are those that a Lictor has for the same things.
    pub(super) fn answer(&self, id: Option<&Id>) -> Vec<u8> {
        let (code, kind, retryable) = match self {
            Self::Upstream(upstream::Error::NoIdentity) => (5032, "not_ready", true),
            Self::Upstream(upstream::Error::Unreachable(_)) => (5020, "upstream_unreachable", true),
            // Nothing here has the time limit of the second, and the others are of processes and of upstreams
            // with several endpoints, which nothing is sent to.
            Self::Upstream(
                upstream::Error::Failed(_)
                | upstream::Error::Late
                | upstream::Error::SessionGone
                | upstream::Error::Full
                | upstream::Error::Silent,
            )
            | Self::Ended => (5021, "upstream_failed", false),
            Self::Status(status, _) => (
                i64::from(status.as_u16()) * 10,
                "http_status",
                *status == StatusCode::SERVICE_UNAVAILABLE,
            ),
            Self::Unreadable => (5022, "upstream_unreadable", false),
            Self::NoMessage => (-32600, "invalid_request", false),
        };
        let data = format!(r#"{{"kind":"{kind}","retryable":{retryable}}}"#);
        let data = serde_json::from_str(&data).ok();
        let message = self.to_string().into();
        message_of(id, Error { code, message, data })
    }
}

/// A JSON-RPC error that came with a bad status, made an answer to the request that it is about: a server
/// that could not read the request's id answers without one.
pub(super) fn adopted(body: &[u8], id: &Id) -> Option<Vec<u8>> {
    let look = Look::read(body)?;
    if look.answers(id) {
        return Some(body.to_vec());
    }
    let error = serde_json::from_str(look.error?.get()).ok()?;
    look.id.is_none().then(|| message_of(Some(id), error))
}

fn message_of(id: Option<&Id>, error: Error<'_>) -> Vec<u8> {
    let id = id.and_then(|id| serde_json::from_str(id.as_json()).ok());
    // Serialising plain strings and numbers into memory can't fail.
    serde_json::to_vec(&Message { jsonrpc: "2.0", id, error }).unwrap_or_default()
}

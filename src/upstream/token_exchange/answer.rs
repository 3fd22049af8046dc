//! What a token service answers (RFC 8693 §2.2), read strictly: a token of another kind than was asked for,
//! or of a kind that can't be sent as `Bearer`, is none.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use super::{LONGEST_USE, MARGIN, Problem, is_bearer_token};
use crate::telemetry::Secret;

/// The one kind of token that is asked for and accepted (RFC 8693 §3).
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Longest issued token in bytes: what common servers take as one header line.
const LONGEST: usize = 8000;

/// A token that was issued.
pub(super) struct Issued {
    /// The value of `Authorization`.
    pub(super) token: Secret<HeaderValue>,
    /// Its validity, where the service tells it.
    expires_in: Option<Duration>,
}

impl Issued {
    /// For how long from its issue it may be used for further calls; `None` if it is for one only.
    pub(super) fn usable_for(&self) -> Option<Duration> {
        // Nobody knows how long a token is valid that doesn't say so.
        let usable = self.expires_in?.min(LONGEST_USE).saturating_sub(MARGIN);
        (!usable.is_zero()).then_some(usable)
    }
}

/// Why an answer is of no use. Says nothing of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it isn't the object of RFC 8693")]
    Document,
    #[error("`issued_token_type` is another than was asked for")]
    IssuedType,
    #[error("`token_type` is another than `Bearer`")]
    Type,
    #[error("`access_token` can't be sent as `Bearer`")]
    Token,
    #[error("`expires_in` says that it has expired")]
    Expired,
}

/// Other members are none of our business; a member that occurs twice is refused.
#[derive(Deserialize)]
struct Document {
    access_token: Box<str>,
    issued_token_type: Box<str>,
    token_type: Box<str>,
    expires_in: Option<u64>,
}

/// Reads the answer to a request that was granted.
pub(super) fn issued(document: &[u8]) -> Result<Issued, Unreadable> {
    // The error of `serde_json` could quote the document.
    let document: Document = serde_json::from_slice(document).map_err(|_| Unreadable::Document)?;
    if *document.issued_token_type != *ACCESS_TOKEN {
        return Err(Unreadable::IssuedType);
    }
    // Case doesn't matter (RFC 6749 §5.1). `N_A` is for tokens that aren't access tokens.
    if !document.token_type.eq_ignore_ascii_case("bearer") {
        return Err(Unreadable::Type);
    }
    if document.access_token.len() > LONGEST || !is_bearer_token(&document.access_token) {
        return Err(Unreadable::Token);
    }
    if document.expires_in == Some(0) {
        return Err(Unreadable::Expired);
    }
    let mut token = HeaderValue::try_from(format!("Bearer {}", document.access_token))
        .map_err(|_| Unreadable::Token)?;
    // Hides it from `Debug`, and from the tables of HPACK.
    token.set_sensitive(true);
    let expires_in = document.expires_in.map(Duration::from_secs);
    Ok(Issued { token: Secret::new(token), expires_in })
}

/// What a service says no with. The codes of RFC 6749 §5.2, RFC 8693 §2.2.2 and RFC 6750 §3.1; a code that
/// isn't in here is told as `other`, so that nothing of the service's own writing is logged.
const CODES: &[(&str, Fault)] = &[
    ("invalid_client", Fault::Ours),
    ("unauthorized_client", Fault::Ours),
    ("unsupported_grant_type", Fault::Ours),
    ("access_denied", Fault::Users),
    ("insufficient_scope", Fault::Users),
    ("invalid_grant", Fault::Users),
    ("invalid_request", Fault::Users),
    ("invalid_scope", Fault::Users),
    ("invalid_target", Fault::Users),
    ("invalid_token", Fault::Users),
];

/// Whom a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Lictor as a client: no user can do anything about it.
    Ours,
    /// The user, the token, or what was asked for.
    Users,
}

#[derive(Deserialize)]
struct Refusal {
    error: Box<str>,
}

/// Reads the answer to a request that was refused with 400, 401 or 403.
pub(super) fn refusal(status: StatusCode, document: &[u8]) -> Problem {
    let refusal = serde_json::from_slice::<Refusal>(document).ok();
    let known = refusal
        .as_ref()
        .and_then(|refusal| CODES.iter().find(|(code, _)| **code == *refusal.error));
    match known {
        Some((code, Fault::Ours)) => Problem::Client(code),
        Some((code, Fault::Users)) => Problem::Refused(code),
        // How a service says that it doesn't know who asks (RFC 6749 §5.2).
        None if status == StatusCode::UNAUTHORIZED => Problem::Client("other"),
        None if refusal.is_some() => Problem::Refused("other"),
        // Something that stands before the service.
        None => Problem::Status(status.as_u16()),
    }
}

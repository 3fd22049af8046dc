//! Every reason to refuse a message, and what the caller is told: one table.
//!
//! The status and code of each row were chosen so that the official SDKs raise an error for that call
//! with our code, message and data, and keep their session (see `docs/refusals.md`): a governed refusal is
//! an HTTP 200 with a JSON-RPC error of a positive code; what happens before a message is understood is a
//! plain HTTP status with the same body. There is no wildcard over [`Denial`] anywhere: a new reason has
//! to say what it answers.

use std::{borrow::Cow, sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    delegation::{ChainError, Objection},
    limits::{Limited, limited::Kind},
    protocol::{DecodeError, Era, Fault, Protocol},
    revocation::What,
};

/// A reason to refuse.
#[derive(Clone, Debug)]
pub enum Denial {
    /// The policies don't permit it; `reason` is the `@reason` of the forbidding policy.
    Policy {
        /// What the policy's author wants the caller to know.
        reason: Option<Arc<str>>,
    },
    /// It was revoked.
    Revoked {
        /// The revocation, for the operator.
        id: Uuid,
        /// What was revoked.
        what: What,
    },
    /// What is revoked isn't known yet.
    RevocationsUnknown,
    /// No method of the protocol, and no policy schema names it.
    UnknownMethod,
    /// The answer asks the caller for something that the policies don't permit.
    ServerRequest,
    /// An answer to a request of the server that the caller was never shown.
    NotAsked,
    /// The session doesn't exist, or belongs to somebody else.
    UnknownSession,
    /// The task doesn't exist, or belongs to somebody else.
    UnknownTask,
    /// The call may come from several callers, and no chain speaks for all of them.
    DelegationAmbiguous,
    /// What the call says it goes on with was never given to the caller for such a call.
    UnknownContinuation,
    /// An address for push notifications that the agent must not be told, and what is wrong with it.
    PushUrl(&'static str),
    /// The chain of delegation doesn't hold; why is for the operator.
    DelegationInvalid(Arc<ChainError>),
    /// The chain of delegation may have been shown to a process before this one, of which nothing is left.
    DelegationUnknown {
        /// When chains are made that can't.
        retry_after: Duration,
    },
    /// The chain of delegation comes back to somebody who is in it.
    DelegationLoop(Arc<ChainError>),
    /// Somebody in the chain of delegation may not do it, or doesn't let those after it.
    DelegationDenied(Objection),
    /// Whoever works for others only calls without saying for whom, or wider than it may by itself.
    DelegationRequired,
    /// It is over limits, which are told.
    Limited(Arc<Limited>),
    /// The message could not be decoded.
    Undecodable(DecodeError),
    /// No verified identity.
    Unauthenticated,
    /// The identity was valid when the connection began and isn't any more.
    IdentityExpired,
    /// The upstream needs a user's token, and the call brings none.
    UserTokenRequired,
    /// The token service doesn't give a token for this user and this upstream.
    TokenRefused,
    /// The token service can't be used at the moment.
    TokenUnavailable,
    /// No route serves this path.
    NoRoute,
    /// The request's framing, target or headers could be read in two ways.
    Framing(&'static str),
    /// `Host` names no host of this listener.
    Host,
    /// `Origin` is present and not allowed.
    Origin,
    /// An HTTP method that no route serves.
    HttpMethod,
    /// The body is longer than the limit, which is given in bytes.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The request did not arrive in time.
    RequestTimeout,
    /// Too many bytes of bodies are being judged at once.
    Overloaded,
    /// The caller, or all callers together, hold too many sessions.
    TooManySessions,
    /// Whose something is can't be looked up or written down.
    StateUnavailable,
    /// The ledger can't take the entry that has to come first.
    LedgerUnavailable,
    /// Lictor has no usable identity of its own.
    NotReady,
    /// Lictor is shutting down.
    Draining,
    /// The upstream has failed too often lately; nothing was sent.
    BreakerOpen {
        /// When it is tried again.
        retry_after: Duration,
    },
    /// The upstream, or the caller at this upstream, has as many calls as may be; nothing was sent.
    UpstreamBusy {
        /// When there may be room.
        retry_after: Duration,
    },
    /// What the stream was opened on leads elsewhere now, or in another manner.
    RouteChanged,
    /// The upstream could not be reached; no byte of the call was sent.
    UpstreamUnreachable,
    /// The upstream broke off after the call was sent; whether it ran is unknown.
    UpstreamFailed,
    /// The upstream did not answer in time; whether the call ran is unknown.
    UpstreamTimeout,
    /// The upstream's answer can't be read, so it can't be filtered.
    UpstreamUnreadable,
    /// The answer sends the caller to a place that no route leads to.
    Redirect,
    /// The answer gives the caller something that can't be recorded as the caller's; the call may have run.
    Undeliverable,
}

/// What a refusal looks like to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// HTTP status.
    pub status: u16,
    /// JSON-RPC error code.
    pub code: i32,
    /// Stable name in `error.data.kind`, the ledger and metrics.
    pub kind: &'static str,
    /// Whether the same call may succeed later without any change.
    pub retryable: bool,
    /// Whether the connection has to be closed after the answer.
    pub close: bool,
}

const fn row(status: u16, code: i32, kind: &'static str) -> Row {
    Row { status, code, kind, retryable: false, close: false }
}

const fn retryable(row: Row) -> Row {
    Row { retryable: true, ..row }
}

const fn closing(row: Row) -> Row {
    Row { close: true, ..row }
}

impl Denial {
    /// The row of the table, for a message of the given era.
    pub fn row(&self, era: Era) -> Row {
        match self {
            Self::Policy { .. } => row(200, 4030, "policy_denied"),
            Self::Revoked { .. } => row(200, 4030, "revoked"),
            Self::RevocationsUnknown => retryable(row(503, 5039, "revocations_unknown")),
            Self::UnknownMethod => unknown_method(era),
            Self::ServerRequest => row(200, 4036, "server_request_denied"),
            Self::NotAsked => row(409, 4090, "not_asked"),
            Self::UnknownSession => row(404, 4041, "unknown_session"),
            Self::UnknownTask => unknown_task(era),
            Self::DelegationAmbiguous => retryable(row(200, 4091, "delegation_ambiguous")),
            Self::UnknownContinuation => row(200, 4035, "unknown_continuation"),
            Self::PushUrl(_) => row(200, 4038, "push_url_refused"),
            Self::DelegationInvalid(_) => row(200, 4001, "delegation_invalid"),
            Self::DelegationUnknown { .. } => retryable(row(200, 5041, "delegation_unknown")),
            Self::DelegationDenied(_) => row(200, 4030, "delegation_denied"),
            Self::DelegationRequired => row(200, 4039, "delegation_required"),
            Self::DelegationLoop(_) => row(200, 5080, "delegation_loop"),
            Self::Limited(limited) => over(limited),
            Self::Undecodable(error) => undecodable(error),
            Self::Unauthenticated => closing(row(401, 4010, "unauthenticated")),
            Self::IdentityExpired => closing(row(401, 4011, "identity_expired")),
            Self::UserTokenRequired => row(401, 4012, "user_token_required"),
            Self::TokenRefused => row(403, 4037, "token_refused"),
            Self::TokenUnavailable => retryable(row(503, 5036, "token_unavailable")),
            Self::NoRoute => row(404, 4040, "no_route"),
            Self::Framing(_) => closing(row(400, -32600, "bad_request")),
            Self::Host => row(403, 4034, "host_not_allowed"),
            Self::Origin => row(403, 4033, "origin_not_allowed"),
            Self::HttpMethod => row(405, 4050, "method_not_allowed"),
            Self::TooLarge { .. } => closing(row(413, 4130, "request_too_large")),
            Self::RequestTimeout => closing(retryable(row(408, 4080, "request_timeout"))),
            Self::Overloaded => retryable(row(503, 5030, "overloaded")),
            Self::LedgerUnavailable => retryable(row(503, 5031, "ledger_unavailable")),
            Self::TooManySessions => retryable(row(503, 5034, "too_many_sessions")),
            Self::StateUnavailable => retryable(row(503, 5035, "state_unavailable")),
            Self::NotReady => retryable(row(503, 5032, "not_ready")),
            Self::Draining => closing(retryable(row(503, 5033, "draining"))),
            Self::BreakerOpen { .. } => retryable(row(200, 5037, "breaker_open")),
            Self::UpstreamBusy { .. } => retryable(row(200, 5038, "upstream_busy")),
            Self::RouteChanged => retryable(row(410, 4100, "route_changed")),
            Self::UpstreamUnreachable => retryable(row(502, 5020, "upstream_unreachable")),
            Self::UpstreamFailed => row(502, 5021, "upstream_failed"),
            Self::UpstreamUnreadable => row(502, 5022, "upstream_unreadable"),
            Self::Undeliverable => row(502, 5023, "answer_undeliverable"),
            Self::Redirect => row(502, 5024, "redirect_refused"),
            Self::UpstreamTimeout => row(504, 5040, "upstream_timeout"),
        }
    }

    /// When the same call may succeed, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::BreakerOpen { retry_after }
        | Self::UpstreamBusy { retry_after }
        | Self::DelegationUnknown { retry_after } = self
        {
            Some(*retry_after)
        } else if let Self::Limited(limited) = self {
            limited.retry_after()
        } else {
            None
        }
    }

    /// The revocation that is the reason.
    pub fn revocation(&self) -> Option<Uuid> {
        if let Self::Revoked { id, .. } = self { Some(*id) } else { None }
    }

    /// One sentence for the caller; says what to do where the caller can do something.
    pub fn message(&self) -> Cow<'_, str> {
        match self {
            Self::Policy { reason: Some(reason) } => Cow::Borrowed(reason),
            Self::Policy { reason: None } => "not permitted by policy".into(),
            Self::Revoked { what, .. } => {
                format!("{} is revoked; a call that was under way may have run", what.told()).into()
            }
            Self::RevocationsUnknown => "what is revoked isn't known yet; try again shortly".into(),
            Self::UnknownMethod => "method not found".into(),
            Self::ServerRequest => {
                "the server asked for something that is not permitted; the call may have run".into()
            }
            Self::NotAsked => "no open request of the server has this id".into(),
            Self::UnknownSession => "session not found; initialize again".into(),
            Self::UnknownTask => "task not found".into(),
            Self::DelegationAmbiguous => {
                "the call may come from several callers; say which, or try again shortly".into()
            }
            Self::UnknownContinuation => {
                "request state not found; call again without `requestState`".into()
            }
            Self::DelegationInvalid(_) => "the chain of delegation doesn't hold".into(),
            Self::DelegationUnknown { .. } => {
                "the proxy has just started, and can't know whether it was shown this chain before"
                    .into()
            }
            Self::DelegationDenied(_) => "not permitted to everybody it is done for".into(),
            Self::DelegationRequired => "such a call has to be made on somebody's behalf".into(),
            Self::DelegationLoop(_) => "the call comes back to somebody who made it".into(),
            Self::Limited(limited) => limited.to_string().into(),
            Self::Undecodable(error) => Cow::Borrowed(&error.detail),
            Self::Unauthenticated => "no verified identity; present an X.509-SVID".into(),
            Self::IdentityExpired => {
                "the identity of this connection has expired; reconnect".into()
            }
            Self::UserTokenRequired => {
                "this server needs a user's token; send `Authorization: Bearer`".into()
            }
            Self::TokenRefused => "no token for this user and this server".into(),
            Self::TokenUnavailable => {
                "no token can be had for this server now; try again shortly".into()
            }
            Self::NoRoute => "no such endpoint".into(),
            Self::Framing(detail) | Self::PushUrl(detail) => Cow::Borrowed(detail),
            Self::Host => "the Host header names no host of this endpoint".into(),
            Self::Origin => "this Origin is not allowed".into(),
            Self::HttpMethod => "this HTTP method is not served here".into(),
            Self::TooLarge { limit } => format!("the body is longer than {limit} bytes").into(),
            Self::RequestTimeout => "the request did not arrive in time".into(),
            Self::Overloaded => "too many bodies in flight; try again shortly".into(),
            Self::TooManySessions => "too many open sessions; end some first".into(),
            Self::StateUnavailable => {
                "the owner can't be looked up or recorded now; try again shortly".into()
            }
            Self::LedgerUnavailable => "the call can't be recorded now; try again shortly".into(),
            Self::NotReady => "the proxy has no valid identity yet; try again shortly".into(),
            Self::Draining => "the proxy is shutting down; connect again".into(),
            Self::BreakerOpen { .. } => {
                "the upstream has failed too often and is left alone; nothing was sent".into()
            }
            Self::UpstreamBusy { .. } => {
                "too many calls are under way at this upstream; nothing was sent".into()
            }
            Self::RouteChanged => "this route has changed; open the stream again".into(),
            Self::UpstreamUnreachable => "the upstream can't be reached; nothing was sent".into(),
            Self::UpstreamFailed => {
                "the upstream broke off; whether the call ran is unknown".into()
            }
            Self::UpstreamTimeout => {
                "the upstream did not answer in time; whether the call ran is unknown".into()
            }
            Self::UpstreamUnreadable => "the upstream's answer can't be read".into(),
            Self::Redirect => {
                "the upstream redirects to a place that isn't served here; the call may have run"
                    .into()
            }
            Self::Undeliverable => {
                "what the answer gives you can't be recorded as yours now; the call may have run"
                    .into()
            }
        }
    }
}

/// What holds the call up for longest is what it is told as. A limit that can't be looked up shares its code with
/// whatever else the state store is needed for.
fn over(limited: &Limited) -> Row {
    let row = match limited.worst.kind {
        Kind::Rate(_) => retryable(row(200, 4290, "rate_limited")),
        Kind::Budget(_) => retryable(row(200, 4291, "budget_exhausted")),
        Kind::Hours => retryable(row(200, 4292, "outside_hours")),
        Kind::Unknown => retryable(row(200, 5035, "limits_unavailable")),
    };
    Row { retryable: limited.retry_after().is_some(), ..row }
}

/// As servers of each protocol say it.
fn unknown_task(era: Era) -> Row {
    match era.protocol() {
        Protocol::Mcp => row(200, -32602, "unknown_task"),
        Protocol::A2a | Protocol::Http => row(200, -32001, "unknown_task"),
    }
}

impl From<ChainError> for Denial {
    /// What is no fault of the chain is told as what it is.
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::NotReady => Self::NotReady,
            ChainError::Loop { .. } => Self::DelegationLoop(Arc::new(error)),
            ChainError::TooLong
            | ChainError::Empty
            | ChainError::TooDeep { .. }
            | ChainError::Hop { .. }
            | ChainError::Replayed { .. } => Self::DelegationInvalid(Arc::new(error)),
        }
    }
}

fn unknown_method(era: Era) -> Row {
    match era {
        Era::Legacy | Era::V03 | Era::V10 | Era::Http => row(200, -32601, "unknown_method"),
        Era::Modern => row(404, -32601, "unknown_method"),
    }
}

/// Agents answer what they can't read with 200, as everything else over JSON-RPC; only a client that can't be
/// told by its request's id is told by the status.
fn undecodable(error: &DecodeError) -> Row {
    let row = undecoded(error);
    match (error.era.protocol(), &error.id, row.status) {
        (Protocol::A2a, Some(_), 400) => Row { status: 200, ..row },
        (Protocol::A2a | Protocol::Mcp | Protocol::Http, _, _) => row,
    }
}

fn undecoded(error: &DecodeError) -> Row {
    match error.fault {
        Fault::Parse => row(400, -32700, "parse_error"),
        Fault::Invalid => row(400, -32600, "invalid_request"),
        Fault::Params => row(400, -32602, "invalid_params"),
        Fault::HeaderMismatch => row(400, -32020, "header_mismatch"),
        Fault::Version => match error.era {
            Era::Legacy | Era::Http => row(400, -32600, "unsupported_version"),
            Era::Modern => row(400, -32022, "unsupported_version"),
            Era::V03 | Era::V10 => row(400, -32009, "unsupported_version"),
        },
        Fault::UnknownMethod => unknown_method(error.era),
        Fault::MediaType => row(415, 4150, "unsupported_media_type"),
        Fault::HttpMethod => row(405, 4050, "method_not_allowed"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    /// Kind → status codes, codes, whether it can be tried again, whether it closes.
    type Table = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>, bool, bool)>;

    fn coded() -> Table {
        let mut table = Table::new();
        for line in include_str!("denial.rs").lines() {
            let Some((before, after)) = line.split_once("row(") else { continue };
            let values: Vec<&str> = after.split(')').next().expect("text").split(", ").collect();
            let [status, code, kind] = values[..] else { continue };
            let Some(kind) = kind.strip_prefix('"').and_then(|kind| kind.strip_suffix('"')) else {
                continue;
            };
            let row = table.entry(kind.to_owned()).or_default();
            row.0.insert(status.to_owned());
            row.1.insert(code.to_owned());
            row.2 |= before.contains("retryable(");
            row.3 |= before.contains("closing(");
        }
        table
    }

    fn documented() -> Table {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/refusals.md"));
        let (_, all) = page.split_once("## All kinds").expect("the section");
        let numbers = |cell: &str| cell.replace('−', "-").split(", ").map(Into::into).collect();
        let rows = all.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let kind = cells[0].trim_end_matches('`').to_owned();
            let says = |cell: &str| cell == "yes";
            (kind, (numbers(cells[1]), numbers(cells[2]), says(cells[3]), says(cells[4])))
        })
        .collect()
    }

    #[test]
    fn the_page_on_refusals_tells_every_kind() {
        assert!(coded().len() > 20);
        assert_eq!(documented(), coded());
    }
}

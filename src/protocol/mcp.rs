//! MCP over Streamable HTTP: one HTTP request → one [`Call`].
//!
//! What a message means is read from its body; headers that repeat parts of the body (`Mcp-Method`,
//! `Mcp-Name`, `MCP-Protocol-Version`) are only ever compared with it. The era is picked anew for
//! each message: modern if `params._meta` names a protocol version or `MCP-Protocol-Version` names
//! one later than 2025-11-25, legacy otherwise; if the two disagree, the message is refused.
//!
//! Refused beside what [`super::json`] and [`super::json_rpc`] refuse: another media type than JSON
//! in UTF-8, an encoded body, a repeated header that decides something, a governed name in another
//! spelling that some server folds into it, a method of the other era, a notification with an id or
//! a request without one, and parameters that don't say what the call touches.
//!
//! `Mcp-Param-*` headers mirror arguments that only the tool's schema names. They are passed on for
//! the server to check, and nothing is ever decided from them. Numbers in `arguments` and `_meta`
//! are tokens and pass as they are.
//!
//! Sources: MCP 2026-07-28 `basic/transports/streamable-http`, `basic/versioning`; 2025-11-25
//! `basic/transports`; the tasks extension.

use bytes::Bytes;
use http::{HeaderMap, Method as HttpMethod};

use super::{
    Call, Continuation, DecodeError, Era, Fault, Id, Kind, Method, ProgressToken, SessionId,
    Target,
    json::{self, ScanError},
    json_rpc::{Message, NO_ID},
    method::{CLIENT_RESPONSE, Rule, SESSION_END, SESSION_STREAM},
};
use head::Head;
use params::Params;

mod head;
mod params;
pub mod server;
mod target;

#[cfg(test)]
mod tests;

/// The revisions up to 2025-11-25 (and a pre-release string that SDKs still offer).
pub const LEGACY_VERSIONS: &[&str] =
    &["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The stateless revisions.
pub const MODERN_VERSIONS: &[&str] = &["2026-07-28"];

/// Decodes a request on an MCP endpoint. `body` is the whole body without any transfer coding.
///
/// # Errors
/// Everything that isn't exactly one message of a known revision; see the module and [`Fault`].
pub fn decode(method: &HttpMethod, headers: &HeaderMap, body: Bytes) -> Result<Call, DecodeError> {
    let head = Head::read(headers)?;
    match *method {
        HttpMethod::POST => post(&head, body),
        HttpMethod::GET => bodiless(&head, &body, Kind::Stream, &SESSION_STREAM),
        HttpMethod::DELETE => bodiless(&head, &body, Kind::End, &SESSION_END),
        _ => Err(fault(Fault::HttpMethod, head.era, "an MCP endpoint serves POST, GET and DELETE")),
    }
}

/// Decodes a message that was posted to an endpoint of the HTTP+SSE transport (MCP 2024-11-05), where no
/// revision since 2026-07-28 is spoken.
///
/// # Errors
/// As [`decode`]. A message of a later revision is an unknown method, which makes clients that speak both
/// try again with `initialize`.
pub fn decode_posted(headers: &HeaderMap, body: Bytes) -> Result<Call, DecodeError> {
    let detail = "method not found; this endpoint speaks revisions up to 2025-11-25";
    let later = |id: Option<Id>, notification| DecodeError {
        id,
        notification,
        ..fault(Fault::UnknownMethod, Era::Legacy, detail)
    };
    match decode(&HttpMethod::POST, headers, body) {
        Ok(call) if call.era == Era::Modern => {
            Err(later(call.id().cloned(), call.kind == Kind::Notification))
        }
        Err(error) if error.era == Era::Modern => Err(later(error.id, error.notification)),
        decoded => decoded,
    }
}

fn fault(fault: Fault, era: Era, detail: &'static str) -> DecodeError {
    let detail = detail.into();
    DecodeError { fault, id: None, notification: false, era, detail, requested: None, rest: false }
}

/// `GET` and `DELETE`, which only legacy sessions have.
fn bodiless(
    head: &Head<'_>,
    body: &Bytes,
    kind: Kind,
    rule: &'static Rule,
) -> Result<Call, DecodeError> {
    if head.era == Era::Modern {
        let detail = "this protocol revision has only POST";
        return Err(fault(Fault::HttpMethod, head.era, detail));
    }
    head.check_legacy_version()?;
    if !body.is_empty() {
        return Err(fault(Fault::Invalid, head.era, "GET and DELETE have no body"));
    }
    let session = head.legacy_session()?;
    if kind == Kind::End && session.is_none() {
        return Err(fault(Fault::Invalid, head.era, "DELETE without `Mcp-Session-Id`"));
    }
    Ok(Call {
        era: Era::Legacy,
        kind,
        method: Method::Known(rule),
        targets: vec![Target::Server],
        version: head.version.map(Into::into),
        session,
        continuation: None,
        progress_token: None,
        body: Bytes::new(),
        a2a: None,
        web: None,
        arguments: None,
        index: json::Index::default(),
    })
}

fn post(head: &Head<'_>, body: Bytes) -> Result<Call, DecodeError> {
    head.check_media_type()?;
    let document = json::scan_and_digest(&body, json::Limits::default())
        .map_err(|error| unreadable(error, head.era))?;
    let message = Message::read(&document).map_err(|refused| DecodeError {
        id: refused.id,
        ..fault(refused.fault, head.era, refused.detail)
    })?;
    let read = match message {
        Message::Response { id, .. } => response(head, id)?,
        Message::Request { id, method, params } => {
            let kind = Kind::Request(id.clone());
            method_call(head, &method, &Params::read(params), kind)
                .map_err(|error| DecodeError { id: Some(id), ..error })?
        }
        Message::Notification { method, params } => {
            method_call(head, &method, &Params::read(params), Kind::Notification)
                .map_err(|error| DecodeError { notification: true, ..error })?
        }
    };
    let index = document.into_index();
    Ok(read.with(body, index))
}

fn unreadable(error: ScanError, era: Era) -> DecodeError {
    let kind = if error.is_malformed() { Fault::Parse } else { Fault::Invalid };
    DecodeError { detail: error.to_string().into(), ..fault(kind, era, "") }
}

/// A [`Call`] without the bytes, which are still borrowed while it is made.
struct Read {
    era: Era,
    kind: Kind,
    method: Method,
    targets: Vec<Target>,
    version: Option<Box<str>>,
    session: Option<SessionId>,
    continuation: Option<Continuation>,
    progress_token: Option<ProgressToken>,
    arguments: Option<usize>,
}

impl Read {
    fn with(self, body: Bytes, index: json::Index) -> Call {
        Call {
            era: self.era,
            kind: self.kind,
            method: self.method,
            targets: self.targets,
            version: self.version,
            session: self.session,
            continuation: self.continuation,
            progress_token: self.progress_token,
            body,
            a2a: None,
            web: None,
            arguments: self.arguments,
            index,
        }
    }
}

/// The caller's answer to a request of the server. The era is the header's: a response has no
/// `_meta`.
fn response(head: &Head<'_>, id: Option<Id>) -> Result<Read, DecodeError> {
    let Some(id) = id else { return Err(fault(Fault::Invalid, head.era, NO_ID)) };
    if head.era == Era::Modern {
        let detail = "clients don't send responses in this protocol revision";
        return Err(DecodeError { id: Some(id), ..fault(Fault::Invalid, head.era, detail) });
    }
    head.check_legacy_version()?;
    Ok(Read {
        era: Era::Legacy,
        kind: Kind::Response(id),
        method: Method::Known(&CLIENT_RESPONSE),
        targets: vec![Target::Server],
        version: head.version.map(Into::into),
        session: head.legacy_session()?,
        continuation: None,
        progress_token: None,
        arguments: None,
    })
}

/// A request or a notification. What comes first here is what the caller hears of when several
/// things are wrong; the order is that of the official conformance suite.
fn method_call(
    head: &Head<'_>,
    name: &str,
    params: &Params<'_>,
    kind: Kind,
) -> Result<Read, DecodeError> {
    let era = if params.meta.version.is_some() { Era::Modern } else { head.era };
    let refuse = |(kind, detail): (Fault, &'static str)| fault(kind, era, detail);
    let is_request = kind != Kind::Notification;
    let method = Method::parse(name);

    let session = match era {
        Era::Legacy => {
            head.check_legacy_version()?;
            head.legacy_session()?
        }
        Era::Modern | Era::V03 | Era::V10 | Era::Http => {
            check_modern_version(head, params)?;
            None
        }
    };
    params.check_spelling().map_err(refuse)?;
    if let Method::Known(rule) = method {
        check_rule(rule, era, is_request).map_err(refuse)?;
    }
    let mirrors_required = era == Era::Modern && is_request;
    head.check_method(name, mirrors_required).map_err(refuse)?;
    // Which names a vendor's methods mirror nobody says.
    let name_required = mirrors_required && method.rule().is_some();
    head.check_name(&params.mirrored_names(&method), name_required).map_err(refuse)?;
    if mirrors_required {
        params.check_required_meta().map_err(refuse)?;
    }
    let targets = target::all(&method, params).map_err(refuse)?;
    let arguments = params.typed_arguments(&method).map_err(refuse)?;
    let continuation = params
        .request_state(&method)
        .map_err(refuse)?
        .map(|state| Continuation::new(method.name(), targets.first(), &state));
    let version = head.version.map(Into::into);
    let progress_token = params.meta.progress_token.and_then(ProgressToken::from_value);
    Ok(Read {
        era,
        kind,
        method,
        targets,
        version,
        session,
        continuation,
        progress_token,
        arguments,
    })
}

/// The header and `_meta` have to name the same revision, and it has to be a modern one.
fn check_modern_version(head: &Head<'_>, params: &Params<'_>) -> Result<(), DecodeError> {
    let refuse = |kind, detail| Err(fault(kind, Era::Modern, detail));
    let Some(header) = head.version else {
        return refuse(Fault::HeaderMismatch, "`MCP-Protocol-Version` is missing");
    };
    if let Some(version) = params.meta.version {
        let Some(version) = version.as_str() else {
            return refuse(Fault::Params, "the protocol version in `_meta` is not a string");
        };
        if version != header {
            let detail = "`MCP-Protocol-Version` and the version in `_meta` differ";
            return refuse(Fault::HeaderMismatch, detail);
        }
    }
    if MODERN_VERSIONS.contains(&header) {
        return Ok(());
    }
    Err(head.unknown_version(Era::Modern))
}

fn check_rule(rule: &Rule, era: Era, is_request: bool) -> Result<(), (Fault, &'static str)> {
    match (rule.exists_in(era), rule.notification, is_request) {
        (false, _, _) => Err((Fault::UnknownMethod, "method not found in this protocol revision")),
        (true, true, true) => Err((Fault::Invalid, "a notification with an id")),
        (true, false, false) => Err((Fault::Invalid, "a request without an id")),
        (true, true, false) | (true, false, true) => Ok(()),
    }
}

//! A2A over JSON-RPC and over REST, versions 0.3 and 1.0: one HTTP request → one [`Call`].
//!
//! Which version a call is of follows from what runs it: the name of the method (`message/send` or
//! `SendMessage`), or the path (`/v1/message:send` or `/message:send`). `A2A-Version` is only ever
//! compared with it, and passed on as it came. An endpoint speaks both bindings: JSON-RPC at its own
//! address, REST below it.
//!
//! Refused beside what [`super::json`] and [`super::json_rpc`] refuse: a message without an id (agents
//! run it all the same), another media type than JSON in UTF-8, an encoded body, a repeated header
//! that decides something, a version that contradicts the call, a governed name in two spellings or in
//! another one, two answers to one question (task, tenant, form, content of a part), a push address of
//! which two readers could find two hosts; and in paths and queries whatever two servers could take
//! apart in two ways, and every parameter that the operation doesn't have.
//!
//! What version 0.3 calls otherwise over REST (`request`, `content`) is refused elsewhere, where one agent
//! would read it and the next one not.
//!
//! Sources: A2A 0.3 §7 and its `a2a.proto`; A2A 1.0 `a2a.proto`, §9 and §11; a2a-sdk 1.3.

use bytes::Bytes;
use http::{HeaderMap, Method as HttpMethod};

use super::{
    Call, DecodeError, Era, Fault, Kind, Method, Rest, Target,
    json::{self, ScanError},
    json_rpc::Message,
};
use head::Head;
use params::Gathered;
use query::Query;

pub mod answer;
mod facts;
mod fields;
mod form;
mod head;
mod params;
mod path;
mod query;

#[cfg(test)]
mod tests;

pub use facts::{Facts, Traits};
pub use form::{Form, check_form};

/// Decodes a request on an A2A endpoint.
///
/// `suffix` is what follows the path of the endpoint, as it was sent: empty or `/` for JSON-RPC,
/// anything else for REST and the card. `query` comes without its question mark, `body` without any
/// transfer coding.
///
/// # Errors
/// Everything that isn't exactly one call of a known version; see the module and [`Fault`].
pub fn decode(
    method: &HttpMethod,
    suffix: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Call, DecodeError> {
    match suffix {
        "" | "/" => rpc(method, query, headers, body),
        _ => rest(method, suffix, query, headers, body)
            .map_err(|error| DecodeError { rest: true, ..error }),
    }
}

/// What a refusal consists of, before it is known of which era it is.
type Refusal = (Fault, &'static str);

fn fault(fault: Fault, era: Era, detail: &'static str) -> DecodeError {
    let detail = detail.into();
    let (id, notification, requested) = (None, false, None);
    DecodeError { fault, id, notification, era, detail, requested, rest: false }
}

fn refuse(era: Era) -> impl Fn(Refusal) -> DecodeError {
    move |(kind, detail)| fault(kind, era, detail)
}

fn rpc(
    http_method: &HttpMethod,
    query: Option<&str>,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Call, DecodeError> {
    let query = Query::read(query, &[]).map_err(refuse(Era::V03))?;
    let head = Head::read(headers, query.version())?;
    if *http_method != HttpMethod::POST {
        let detail = "JSON-RPC has only POST";
        return Err(fault(Fault::HttpMethod, head.era(), detail));
    }
    head.check_media_type(&["application/json"], head.era())?;
    let document = json::scan_and_digest(&body, json::Limits::default())
        .map_err(|error| unreadable(error, head.era()))?;
    let message = Message::read(&document).map_err(|refused| DecodeError {
        id: refused.id,
        ..fault(refused.fault, head.era(), refused.detail)
    })?;
    let (id, name, params) = match message {
        Message::Request { id, method, params } => (id, method, params),
        Message::Notification { .. } => {
            return Err(fault(Fault::Invalid, head.era(), "a request without an id"));
        }
        Message::Response { id, .. } => {
            let detail = "a response where a request was expected";
            return Err(DecodeError { id, ..fault(Fault::Invalid, head.era(), detail) });
        }
    };
    let method = Method::of_agent(&name);
    let read = called(&head, &method, params)
        .map_err(|error| DecodeError { id: Some(id.clone()), ..error })?;
    let (era, targets, mut facts) = read;
    facts.rest = query.encoded().map(|query| Rest { path: "".into(), query: Some(query) });
    let index = document.into_index();
    let call = Parts { era, kind: Kind::Request(id), method, targets, facts };
    Ok(call.with(head.version, body, index))
}

/// Era, targets and facts of a method of JSON-RPC. What a vendor's method touches is not known.
fn called(
    head: &Head<'_>,
    method: &Method,
    params: Option<json::Value<'_>>,
) -> Result<(Era, Vec<Target>, Facts), DecodeError> {
    let Some(rule) = method.rule() else {
        let traits = Traits { extensions: head.extensions()?, ..Traits::default() };
        let facts = Facts { traits, ..Facts::default() };
        return Ok((head.era(), vec![Target::Server], facts));
    };
    let era = if rule.exists_in(Era::V03) { Era::V03 } else { Era::V10 };
    head.check_era(era)?;
    let mut gathered = Gathered::new(head.extensions()?);
    gathered.read(rule, era, params).map_err(refuse(era))?;
    let (targets, facts) = gathered.finish(rule);
    Ok((era, targets, facts))
}

fn rest(
    http_method: &HttpMethod,
    suffix: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Call, DecodeError> {
    let path = path::read(suffix).map_err(refuse(Era::V03))?;
    let era = path.era;
    let refuse = refuse(era.unwrap_or(Era::V03));
    let (rule, has_body) = path.rule(http_method).map_err(&refuse)?;
    let query = Query::read(query, path.parameters()).map_err(&refuse)?;
    let head = Head::read(headers, query.version())?;
    let era = era.unwrap_or(head.era());
    head.check_era(era)?;

    let mut gathered = Gathered::of_rest(head.extensions()?, era);
    gathered.task(path.task()).map_err(&refuse)?;
    gathered.tenant(path.tenant()).map_err(&refuse)?;
    gathered.tenant(query.value("tenant")).map_err(&refuse)?;
    query.value("contextId").into_iter().for_each(|id| gathered.context(id));
    let mut index = json::Index::default();
    if body.is_empty() {
        gathered.read(rule, era, None).map_err(&refuse)?;
    } else if has_body {
        head.check_media_type(&["application/a2a+json", "application/json"], era)?;
        let document = json::scan_and_digest(&body, json::Limits::default())
            .map_err(|error| unreadable(error, era))?;
        gathered.read(rule, era, Some(document.root())).map_err(&refuse)?;
        index = document.into_index();
    } else {
        return Err(fault(Fault::Invalid, era, "this operation has no body"));
    }
    let (targets, mut facts) = gathered.finish(rule);
    facts.rest = Some(Rest { path: path.encoded(), query: query.encoded() });
    let method = Method::Known(rule);
    let call = Parts { era, kind: Kind::Operation, method, targets, facts };
    Ok(call.with(head.version, body, index))
}

fn unreadable(error: ScanError, era: Era) -> DecodeError {
    let kind = if error.is_malformed() { Fault::Parse } else { Fault::Invalid };
    DecodeError { detail: error.to_string().into(), ..fault(kind, era, "") }
}

/// A [`Call`] without the bytes, which are still borrowed while it is made.
struct Parts {
    era: Era,
    kind: Kind,
    method: Method,
    targets: Vec<Target>,
    facts: Facts,
}

impl Parts {
    fn with(self, version: Option<Box<str>>, body: Bytes, index: json::Index) -> Call {
        let Self { era, kind, method, targets, facts } = self;
        Call {
            era,
            kind,
            method,
            targets,
            version,
            session: None,
            continuation: None,
            progress_token: None,
            body,
            a2a: Some(Box::new(facts)),
            web: None,
            arguments: None,
            index,
        }
    }
}

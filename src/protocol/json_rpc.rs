//! The JSON-RPC 2.0 envelope.
//!
//! Exactly one message, with exactly the members that the specification gives it. Batches are
//! refused whole: only one MCP revision had them, and a batch hides its parts from whoever looks
//! for a method. Because any unknown member is refused, so is every variant of a known one
//! (`Method`, `param\u017f`).

use std::borrow::Cow;

use super::{
    Fault,
    json::{Document, Kind, Member, Value},
};

#[cfg(test)]
mod tests;

/// The largest integer that every JSON reader represents exactly (RFC 8259 §6, RFC 7493 §2.2).
const MAX_SAFE: u64 = (1 << 53) - 1;

/// A request id, as the JSON literal in which it came: a string or an integer within ±(2^53 − 1).
///
/// The literal is echoed byte for byte, so an id can't change type or value on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// The literal, ready to stand in a JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Takes strings and integer literals only: `1.0`, `1e2`, `-0` and integers beyond 2^53 − 1 are
    /// read differently by different peers; null, booleans and containers are no ids.
    fn from_value(value: Value<'_>) -> Option<Self> {
        let literal = std::str::from_utf8(value.raw()).ok()?;
        let legal = match value.kind() {
            Kind::String => true,
            Kind::Number => is_safe_integer(literal),
            Kind::Null | Kind::Bool | Kind::Array | Kind::Object => false,
        };
        legal.then(|| Self(literal.into()))
    }
}

fn is_safe_integer(literal: &str) -> bool {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    literal != "-0" && digits.parse().is_ok_and(|value: u64| value <= MAX_SAFE)
}

/// One message.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// A method with an id.
    Request {
        /// The id.
        id: Id,
        /// The method, decoded.
        method: Cow<'a, str>,
        /// The parameters; an object where present.
        params: Option<Value<'a>>,
    },
    /// A method without an id.
    Notification {
        /// The method, decoded.
        method: Cow<'a, str>,
        /// The parameters; an object where present.
        params: Option<Value<'a>>,
    },
    /// A result or an error, with the id of the request that it answers.
    Response {
        /// The id; errors may lack it (or say `null`) when the request's own couldn't be read.
        id: Option<Id>,
        /// What was answered.
        answer: Answer<'a>,
    },
}

/// The two kinds of answer.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// `result`, of any kind.
    Result(Value<'a>),
    /// `error`, an object.
    Error(Value<'a>),
}

/// Why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// [`Fault::Invalid`] or [`Fault::Params`].
    pub fault: Fault,
    /// The id, when it could be read beyond doubt.
    pub id: Option<Id>,
    /// What was wrong.
    pub detail: &'static str,
}

impl<'a> Message<'a> {
    /// Reads the envelope of a scanned text.
    pub fn read(document: &'a Document<'_>) -> Result<Self, Refused> {
        let root = document.root();
        match root.kind() {
            Kind::Object => Envelope::collect(root)?.into_message(),
            Kind::Array => Err(anonymous("batches are not accepted; send one message a request")),
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {
                Err(anonymous("a JSON-RPC message is an object"))
            }
        }
    }
}

fn anonymous(detail: &'static str) -> Refused {
    Refused { fault: Fault::Invalid, id: None, detail }
}

/// The members of a message before they are looked at together.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<Value<'a>>,
    id: Option<Id>,
    null_id: bool,
    method: Option<Value<'a>>,
    params: Option<Value<'a>>,
    result: Option<Value<'a>>,
    error: Option<Value<'a>>,
    extra: bool,
}

impl<'a> Envelope<'a> {
    fn collect(root: Value<'a>) -> Result<Self, Refused> {
        let mut envelope = Self::default();
        for Member { name, value, .. } in root.members() {
            match &*name {
                "jsonrpc" => envelope.jsonrpc = Some(value),
                "id" if value.kind() == Kind::Null => envelope.null_id = true,
                "id" => envelope.id = Some(Id::from_value(value).ok_or(anonymous(BAD_ID))?),
                "method" => envelope.method = Some(value),
                "params" => envelope.params = Some(value),
                "result" => envelope.result = Some(value),
                "error" => envelope.error = Some(value),
                _ => envelope.extra = true,
            }
        }
        Ok(envelope)
    }

    fn into_message(self) -> Result<Message<'a>, Refused> {
        let refuse = |fault, detail| Err(Refused { fault, id: self.id.clone(), detail });
        if self.null_id && self.error.is_none() {
            return Err(anonymous(BAD_ID));
        }
        if self.extra {
            return refuse(Fault::Invalid, "unknown member beside `method` and `params`");
        }
        if self.jsonrpc.and_then(Value::as_str).as_deref() != Some("2.0") {
            return refuse(Fault::Invalid, "`jsonrpc` is not \"2.0\"");
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => {
                let Some(method) = method.as_str() else {
                    return refuse(Fault::Invalid, "`method` is not a string");
                };
                let params = self.params;
                if params.is_some_and(|params| params.kind() != Kind::Object) {
                    return refuse(Fault::Params, "`params` is not an object");
                }
                Ok(match self.id {
                    Some(id) => Message::Request { id, method, params },
                    None => Message::Notification { method, params },
                })
            }
            (None, Some(_), None) | (None, None, Some(_)) if self.params.is_some() => {
                refuse(Fault::Invalid, "`params` in a response")
            }
            (None, Some(_), None) if self.id.is_none() => Err(anonymous(NO_ID)),
            (None, Some(result), None) => {
                Ok(Message::Response { id: self.id, answer: Answer::Result(result) })
            }
            (None, None, Some(error)) if error.kind() != Kind::Object => {
                refuse(Fault::Invalid, "`error` is not an object")
            }
            (None, None, Some(error)) => {
                Ok(Message::Response { id: self.id, answer: Answer::Error(error) })
            }
            (None, None, None) => refuse(Fault::Invalid, "no `method`"),
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) | (None, Some(_), Some(_)) => {
                refuse(Fault::Invalid, "more than one of `method`, `result` and `error`")
            }
        }
    }
}

/// What a response lacks that can't be matched with its request.
pub(super) const NO_ID: &str = "a response without an id";
const BAD_ID: &str = "`id` is neither a string nor an integer literal within ±(2^53 − 1)";

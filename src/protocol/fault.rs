//! Why a message could not be decoded.

use std::borrow::Cow;

use super::{Era, Id};

/// The kinds of undecodable message; each maps to one status and code in `denial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Not JSON, not UTF-8, or nothing at all: −32700.
    Parse,
    /// JSON, but no single unambiguous JSON-RPC message: −32600.
    Invalid,
    /// A message whose `params` lack or garble what the method needs: −32602.
    Params,
    /// Mirrored headers and body disagree, or one of them is missing: −32020 (MCP 2026-07-28).
    HeaderMismatch,
    /// A protocol revision that this build doesn't know, or that contradicts the method: −32022
    /// (modern), 400 (legacy) or −32009 (A2A).
    Version,
    /// A method that doesn't exist in the message's era: −32601; over REST, a path: 404.
    UnknownMethod,
    /// `Content-Type` is not JSON in UTF-8, or the body is encoded: 415.
    MediaType,
    /// An HTTP method that the endpoint doesn't serve in this era: 405.
    HttpMethod,
}

/// An undecodable message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DecodeError {
    /// What kind of fault.
    pub fault: Fault,
    /// The request's id, when it could be read beyond doubt.
    pub id: Option<Id>,
    /// It is a notification beyond doubt, so that nobody waits for an answer with an id.
    pub notification: bool,
    /// The era that the message seems to belong to; legacy when nothing tells.
    pub era: Era,
    /// What exactly was wrong, for the caller; never quotes the message's content.
    pub detail: Cow<'static, str>,
    /// The revision that was asked for, with [`Fault::Version`]: what `error.data.requested` has to
    /// repeat (MCP 2026-07-28 `basic/versioning`). Visible ASCII.
    pub requested: Option<Box<str>>,
    /// It came over A2A's REST binding, whose errors are no JSON-RPC messages.
    pub rest: bool,
}

//! A decoded message of a caller, and the names of what it touches.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::{Id, Method, Rest, a2a, json, method::operation, web};

/// The protocols that are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Model Context Protocol, between an agent and a server of tools.
    Mcp,
    /// Agent2Agent, between agents.
    A2a,
    /// HTTP itself, to a web API.
    Http,
}

impl Protocol {
    /// The name in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::A2a => "a2a",
            Self::Http => "http",
        }
    }
}

/// The incompatible families of revisions: two of MCP ("legacy" and "modern" are the
/// specification's own words, MCP 2026-07-28 `basic/versioning`), two of A2A, which has its
/// numbers, and plain HTTP. So an era tells the protocol, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// MCP revisions up to 2025-11-25: `initialize`, sessions, GET streams.
    Legacy,
    /// MCP revision 2026-07-28 and later: stateless, mirrored headers, `server/discover`.
    Modern,
    /// A2A up to 0.3: methods such as `message/send`, REST paths below `/v1/`.
    V03,
    /// A2A 1.0 and later: methods such as `SendMessage`, ProtoJSON.
    V10,
    /// Plain HTTP, which has but one.
    Http,
}

impl Era {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Legacy, Self::Modern, Self::V03, Self::V10, Self::Http];

    /// The protocol that it is an era of.
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Legacy | Self::Modern => Protocol::Mcp,
            Self::V03 | Self::V10 => Protocol::A2a,
            Self::Http => Protocol::Http,
        }
    }

    /// The name used in policies, metrics and the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::V03 => "0.3",
            Self::V10 => "1.0",
            Self::Http => "http",
        }
    }
}

/// What kind of message a caller sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A JSON-RPC request; the answer carries this id.
    Request(Id),
    /// A JSON-RPC notification; it has no answer.
    Notification,
    /// The caller's answer to a request that the server sent on a stream (legacy only).
    Response(Id),
    /// `GET`: the caller opens the session's stream of server messages (legacy only).
    Stream,
    /// `DELETE`: the caller ends its session (legacy only).
    End,
    /// A request of A2A's REST binding or of plain HTTP; it is answered, but by no id.
    Operation,
}

/// What a call touches; each target is judged on its own and all have to be permitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The server itself (lists, control messages).
    Server,
    /// A tool, by name.
    Tool(Box<str>),
    /// A prompt, by name.
    Prompt(Box<str>),
    /// A resource, by URI (or by URI template where the method allows one).
    Resource(Box<str>),
    /// A resource template, by URI template; only ever listed, never called.
    Template(Box<str>),
    /// A task, by id.
    Task(Box<str>),
    /// The caller itself, of whom the server asks something.
    Caller,
}

impl Target {
    /// The bare name, URI or id; `None` for the server itself and for the caller.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Server | Self::Caller => None,
            Self::Tool(name)
            | Self::Prompt(name)
            | Self::Resource(name)
            | Self::Template(name)
            | Self::Task(name) => Some(name),
        }
    }

    /// The name, if it is a tool.
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::Tool(name) => Some(name),
            Self::Server
            | Self::Prompt(_)
            | Self::Resource(_)
            | Self::Template(_)
            | Self::Task(_)
            | Self::Caller => None,
        }
    }

    /// The id, if it is a task.
    pub fn task(&self) -> Option<&str> {
        match self {
            Self::Task(id) => Some(id),
            Self::Server
            | Self::Tool(_)
            | Self::Prompt(_)
            | Self::Resource(_)
            | Self::Template(_)
            | Self::Caller => None,
        }
    }
}

/// A legacy session id: 1 to 512 visible ASCII characters (MCP 2025-11-25 transports, "Session
/// Management"). It is a bearer secret of the upstream, so it has no `Display` and its `Debug`
/// hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Longest accepted id in bytes.
    pub const MAX_LEN: usize = 512;

    /// Checks length and alphabet (0x21 to 0x7E).
    pub fn parse(text: &str) -> Option<Self> {
        let legal = (1..=Self::MAX_LEN).contains(&text.len())
            && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        legal.then(|| Self(text.into()))
    }

    /// The id as the upstream made it; for table look-ups and for forwarding only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(..)")
    }
}

/// The state of a call that goes on once the caller has answered questions (MCP 2026-07-28
/// `basic/patterns/mrtr`): a digest over method, name and the server's `requestState`, in
/// hexadecimal. A state that was given for one call is another continuation with any other.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Continuation(Box<str>);

impl Continuation {
    pub(super) fn new(method: &str, target: Option<&Target>, state: &str) -> Self {
        let name = target.and_then(Target::name).unwrap_or_default();
        let mut hash = Sha256::new();
        for part in [method, name, state] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        Self(HEXLOWER.encode(&hash.finalize()).into())
    }

    /// The digest, 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a caller wants to recognise the progress of its call by (`params._meta.progressToken`, MCP
/// `basic/utilities/progress`). Compared by value: a server may write a text with other escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressToken {
    /// A text, decoded.
    Text(Box<str>),
    /// A number, as it was written.
    Number(Box<str>),
}

impl ProgressToken {
    /// `None` if it is neither text nor number.
    pub(super) fn from_value(value: json::Value<'_>) -> Option<Self> {
        match value.kind() {
            json::Kind::String => value.as_str().map(|text| Self::Text(text.into())),
            json::Kind::Number => {
                std::str::from_utf8(value.raw()).ok().map(|number| Self::Number(number.into()))
            }
            json::Kind::Null | json::Kind::Bool | json::Kind::Array | json::Kind::Object => None,
        }
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Continuation(..)")
    }
}

/// One decoded message, with the bytes it was decoded from.
///
/// INVARIANT: `body` is what was judged and is what is forwarded; no field is derived from anything
/// but `body` and the request's head.
#[derive(Clone)]
pub struct Call {
    /// The protocol era this one message belongs to; never carried over from another message.
    pub era: Era,
    /// Request, notification, response, stream or end of session.
    pub kind: Kind,
    /// The method, known or vendor-defined.
    pub method: Method,
    /// Everything the call touches; never empty.
    pub targets: Vec<Target>,
    /// The protocol revision that the message names (header or `_meta`), if any.
    pub version: Option<Box<str>>,
    /// The legacy session it claims to belong to.
    pub session: Option<SessionId>,
    /// What it goes on with, where it sends back a `requestState`.
    pub continuation: Option<Continuation>,
    /// What it recognises its progress by; without one, a server has none to tell.
    pub progress_token: Option<ProgressToken>,
    /// The message's bytes; empty for `GET` and `DELETE`.
    pub body: Bytes,
    /// What else a call of A2A tells; `None` for others.
    pub a2a: Option<Box<a2a::Facts>>,
    /// What else a call of plain HTTP tells; `None` for others.
    pub web: Option<Box<web::Facts>>,
    /// Where `params.arguments` starts in `body`, or a body of plain HTTP that is JSON.
    pub(super) arguments: Option<usize>,
    /// What scanning `body` learned.
    pub(super) index: json::Index,
}

impl Call {
    /// The raw JSON of `params.arguments`, where the method has typed arguments and they were sent, or the
    /// whole body of a call of plain HTTP, if it is JSON.
    pub fn arguments(&self) -> Option<&[u8]> {
        self.arguments_value().map(json::Value::raw)
    }

    /// The same as a cursor on `body`, to be read without another scan; always an object, but for plain HTTP.
    pub fn arguments_value(&self) -> Option<json::Value<'_>> {
        self.arguments.map(|start| self.index.value(&self.body, start))
    }

    /// The SHA-256 of `body`.
    pub fn digest(&self) -> [u8; 32] {
        self.index.digest().unwrap_or_else(|| Sha256::digest(&self.body).into())
    }

    /// A text in `params._meta`, where MCP carries what other protocols have headers for.
    pub fn meta(&self, name: &str) -> Option<Cow<'_, str>> {
        // A body of plain HTTP has no such place, and may be anything.
        let message = Some(&self.body).filter(|_| self.web.is_none())?;
        let start = message.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let root = self.index.value(&self.body, start);
        root.member("params")?.member("_meta")?.member(name)?.as_str()
    }

    /// The conversations with an agent that it names.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.a2a.iter().flat_map(|facts| facts.contexts.iter().map(|id| &**id))
    }

    /// The tasks that it names.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().filter_map(Target::task)
    }

    /// The conversations, tasks and the session that it belongs to.
    pub fn conversations(&self) -> impl Iterator<Item = &str> {
        let session = self.session.as_ref().map(SessionId::expose);
        self.contexts().chain(self.tasks()).chain(session)
    }

    /// Where it goes below the address of its upstream; `None` for that address itself.
    pub fn rest(&self) -> Option<&Rest> {
        let agent = self.a2a.as_ref().and_then(|facts| facts.rest.as_ref());
        agent.or(self.web.as_ref().map(|facts| &facts.rest))
    }

    /// Whether the answer may open a legacy session.
    pub fn opens_session(&self) -> bool {
        self.era == Era::Legacy && self.method.name() == "initialize"
    }

    /// The tool that it calls.
    pub fn tool(&self) -> Option<&str> {
        self.targets.iter().find_map(Target::tool)
    }

    /// Whether it only listens to what happens elsewhere, on a stream that may stay open for days.
    pub fn follows(&self) -> bool {
        let follows = [operation::SUBSCRIBE.action, "subscriptions/listen"];
        matches!(self.kind, Kind::Stream) || follows.contains(&self.method.action())
    }

    /// What the caller goes on with when a server answers this call with such a `requestState`.
    pub fn continuation_with(&self, state: &str) -> Continuation {
        Continuation::new(self.method.name(), self.targets.first(), state)
    }

    /// The id that an answer has to carry; `None` where no answer is expected.
    pub fn id(&self) -> Option<&Id> {
        match &self.kind {
            Kind::Request(id) => Some(id),
            Kind::Notification | Kind::Response(_) | Kind::Stream | Kind::End | Kind::Operation => {
                None
            }
        }
    }
}

impl fmt::Debug for Call {
    /// Everything but what is the caller's data and must not get into a log: the body, and what is
    /// repeated from it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("era", &self.era)
            .field("kind", &self.kind)
            .field("method", &self.method.name())
            .field("targets", &self.targets)
            .field("version", &self.version)
            .field("session", &self.session)
            .field("continuation", &self.continuation)
            .field("body", &format_args!("{} bytes", self.body.len()))
            .finish_non_exhaustive()
    }
}

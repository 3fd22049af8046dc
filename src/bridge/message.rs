//! As much of a message as carrying it needs.
//!
//! Read leniently: what can't be understood is the business of the two ends, and what is judged is judged
//! there.

use std::borrow::Cow;

use data_encoding::BASE64;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A message of either side.
#[derive(Debug, Deserialize)]
pub(super) struct Look<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "taskId")]
    task_id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
struct Opened<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    version: Cow<'a, str>,
}

/// What a message of the client is to its transport.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// The id as the client wrote it, of a request.
    pub(super) id: Option<Id>,
    /// None of an answer.
    pub(super) method: Option<Box<str>>,
    /// The revision that a message since 2026-07-28 names.
    pub(super) version: Option<HeaderValue>,
    /// The value of `Mcp-Name`.
    pub(super) name: Option<HeaderValue>,
    /// What `notifications/cancelled` is about.
    pub(super) cancels: Option<Id>,
}

/// A JSON-RPC id: equal ones are equal, however they are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(Box<str>);

impl Id {
    fn read(raw: &RawValue) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(raw.get()).ok()?;
        match value {
            // However it is escaped.
            serde_json::Value::String(_) => Some(Self(value.to_string().into())),
            // However long it is.
            serde_json::Value::Number(_) => Some(Self(raw.get().into())),
            _ => None,
        }
    }

    pub(super) fn as_json(&self) -> &str {
        &self.0
    }
}

impl Outgoing {
    /// Reads a line; `None` if it is no single message.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let look: Look<'_> = serde_json::from_slice(line).ok()?;
        let params = look.params.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let params: Params<'_> = params.unwrap_or_default();
        let method: Option<Box<str>> = look.method.map(Into::into);
        let id = look.id.filter(|_| method.is_some());
        let id = match id {
            Some(raw) => Some(Id::read(raw)?),
            None => None,
        };
        let version = params.meta.and_then(|meta| meta.version);
        let name = match method.as_deref() {
            Some("tools/call" | "prompts/get") => params.name,
            Some("resources/read") => params.uri,
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => params.task_id,
            Some(_) | None => None,
        };
        let cancels =
            params.request_id.filter(|_| method.as_deref() == Some("notifications/cancelled"));
        Some(Self {
            version: version.and_then(|version| HeaderValue::from_str(&version).ok()),
            name: name.and_then(|name| mirrored(&name)),
            cancels: cancels.and_then(Id::read),
            id,
            method,
        })
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

impl<'a> Look<'a> {
    /// Reads a message of the server.
    pub(super) fn read(message: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(message).ok()
    }

    /// Whether it answers the request with this id.
    pub(super) fn answers(&self, id: &Id) -> bool {
        self.answered().is_some_and(|own| own == *id)
    }

    /// The id of the request that it answers.
    pub(super) fn answered(&self) -> Option<Id> {
        self.id.filter(|_| self.method.is_none()).and_then(Id::read)
    }

    /// The revision that the answer to `initialize` names.
    pub(super) fn negotiated(&self) -> Option<HeaderValue> {
        let opened: Opened<'_> = serde_json::from_str(self.result?.get()).ok()?;
        HeaderValue::from_str(&opened.version).ok()
    }
}

/// A value for `Mcp-Name` (MCP 2026-07-28 `basic/transports/streamable-http`, "Standard Headers"): as it is where a
/// field can hold it unambiguously, in base64 where it can't.
pub(super) fn mirrored(value: &str) -> Option<HeaderValue> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    let value = match plain {
        true => Cow::Borrowed(value),
        false => format!("=?base64?{}?=", BASE64.encode(value.as_bytes())).into(),
    };
    HeaderValue::from_str(&value).ok()
}

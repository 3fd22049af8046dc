//! The headers that bear on what a message means.

use std::borrow::Cow;

use data_encoding::BASE64;
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, CONTENT_TYPE},
};

use super::{LEGACY_VERSIONS, fault};
use crate::protocol::{DecodeError, Era, Fault, SessionId, media};

const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// Headers in which each of the values that matter occurs once at most.
pub(super) struct Head<'a> {
    headers: &'a HeaderMap,
    /// `MCP-Protocol-Version`.
    pub(super) version: Option<&'a str>,
    /// The era as far as the headers tell.
    pub(super) era: Era,
}

impl<'a> Head<'a> {
    pub(super) fn read(headers: &'a HeaderMap) -> Result<Self, DecodeError> {
        let versions = headers.get_all(VERSION);
        let modern = versions.iter().any(|version| is_modern(trimmed(version)));
        let era = if modern { Era::Modern } else { Era::Legacy };
        for name in headers.keys() {
            let mirrored = name.as_str().starts_with("mcp-");
            let decides = mirrored || *name == AUTHORIZATION || *name == CONTENT_TYPE;
            if decides && headers.get_all(name).iter().nth(1).is_some() {
                let kind = if mirrored && modern { Fault::HeaderMismatch } else { Fault::Invalid };
                let detail = format!("repeated header `{name}`").into();
                return Err(DecodeError { detail, ..fault(kind, era, "") });
            }
        }
        let version = match headers.get(VERSION).map(trimmed).map(std::str::from_utf8) {
            None => None,
            Some(Ok(version)) if version.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Some(version)
            }
            Some(Ok(_) | Err(_)) => {
                let detail = "`MCP-Protocol-Version` is not visible ASCII";
                return Err(fault(Fault::Version, era, detail));
            }
        };
        Ok(Self { headers, version, era })
    }

    /// The revision that the header names has to be a legacy one; without a header it is one.
    pub(super) fn check_legacy_version(&self) -> Result<(), DecodeError> {
        match self.version {
            Some(version) if !LEGACY_VERSIONS.contains(&version) => {
                Err(self.unknown_version(Era::Legacy))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn unknown_version(&self, era: Era) -> DecodeError {
        let requested = self.version.map(Into::into);
        DecodeError { requested, ..fault(Fault::Version, era, "unsupported protocol version") }
    }

    /// The session, which only legacy messages have.
    pub(super) fn legacy_session(&self) -> Result<Option<SessionId>, DecodeError> {
        let Some(value) = self.headers.get(SESSION) else { return Ok(None) };
        let id = std::str::from_utf8(trimmed(value)).ok().and_then(SessionId::parse);
        let detail = "`Mcp-Session-Id` is not 1 to 512 visible ASCII characters";
        id.map(Some).ok_or_else(|| fault(Fault::Invalid, Era::Legacy, detail))
    }

    pub(super) fn check_media_type(&self) -> Result<(), DecodeError> {
        media::check_json(self.headers, &["application/json"])
            .map_err(|detail| fault(Fault::MediaType, self.era, detail))
    }

    /// Compares `Mcp-Method`, which is never encoded, with the body's method.
    pub(super) fn check_method(&self, method: &str, required: bool) -> Mirror {
        match self.headers.get(METHOD) {
            Some(value) if trimmed(value) == method.as_bytes() => Ok(()),
            Some(_) => Err((Fault::HeaderMismatch, "`Mcp-Method` and the body's method differ")),
            None if required => Err((Fault::HeaderMismatch, "`Mcp-Method` is missing")),
            None => Ok(()),
        }
    }

    /// Compares `Mcp-Name` with the names that the body gives; a header that names what the body
    /// lacks is a mismatch, too.
    pub(super) fn check_name(&self, names: &[Cow<'_, str>], required: bool) -> Mirror {
        let Some(value) = self.headers.get(NAME) else {
            return match names.is_empty() || !required {
                true => Ok(()),
                false => Err((Fault::HeaderMismatch, "`Mcp-Name` is missing")),
            };
        };
        let claimed = unwrapped(trimmed(value));
        let claimed = claimed.ok_or((Fault::HeaderMismatch, "`Mcp-Name` is not valid base64"))?;
        match names.iter().any(|name| name.as_bytes() == &*claimed) {
            true => Ok(()),
            false => Err((Fault::HeaderMismatch, "`Mcp-Name` and the body's name differ")),
        }
    }
}

type Mirror = Result<(), (Fault, &'static str)>;

/// A field value without the white space around it (RFC 9110 §5.5).
fn trimmed(value: &HeaderValue) -> &[u8] {
    value.as_bytes().trim_ascii()
}

/// Whether a version looks like a revision date later than the last legacy one. Revisions that
/// don't exist yet count, so that they are answered as modern clients understand it.
fn is_modern(version: &[u8]) -> bool {
    let dated = version.len() == 10
        && version.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    dated && LEGACY_VERSIONS.iter().all(|legacy| legacy.as_bytes() < version)
}

/// Undoes `=?base64?…?=` (MCP 2026-07-28 `basic/transports/streamable-http`); values that lack
/// either marker are literal.
fn unwrapped(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    match value.strip_prefix(b"=?base64?").and_then(|rest| rest.strip_suffix(b"?=")) {
        Some(encoded) => BASE64.decode(encoded).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(value)),
    }
}

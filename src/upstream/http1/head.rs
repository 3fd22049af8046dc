//! Heads of calls and answers, and where an answer ends (RFC 9112 §6.3).
//!
//! An answer whose end could be seen in two ways is refused: a transfer coding other than `chunked` or beside
//! HTTP/1.0, and lengths that differ or aren't plain digits. A length beside `chunked` says nothing, and the
//! connection isn't used again.

use bytes::{Buf, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
    request, response,
};

use super::Broken;

/// Longest head of an answer in bytes.
pub(super) const LONGEST: usize = 256 * 1024;
/// Most fields of a head.
const FIELDS: usize = 128;

/// The head of an answer.
pub(super) struct Head {
    pub(super) parts: response::Parts,
    pub(super) framing: Framing,
    /// Whether the server takes another call after this one.
    pub(super) keeps: bool,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// The head of a call. Nothing in it can hold a line break: the types of `http` see to that.
pub(super) fn write(target: &Uri, head: &request::Parts) -> Vec<u8> {
    let target = target.path_and_query().map_or("/", |target| target.as_str());
    let mut text = Vec::with_capacity(1024);
    for part in [head.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Takes the head of the answer to a call with this method, and tells its length in bytes; `None` as long
/// as it isn't whole.
pub(super) fn parse(come: &mut BytesMut, method: &Method) -> Result<Option<(Head, usize)>, Broken> {
    if come.is_empty() {
        return Ok(None);
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = parsed.parse(come)? else { return Ok(None) };
    let mut parts = http::Response::new(()).into_parts().0;
    parts.status = parsed
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or(httparse::Error::Status)?;
    parts.version = match parsed.version {
        Some(1) => Version::HTTP_11,
        Some(_) | None => Version::HTTP_10,
    };
    parts.headers.reserve(parsed.headers.len());
    for field in parsed.headers {
        // Copies, so that the buffer isn't held for as long as the head is.
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| httparse::Error::HeaderName)?;
        let value = HeaderValue::from_bytes(field.value);
        parts.headers.append(name, value.map_err(|_| httparse::Error::HeaderValue)?);
    }
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Broken::Upgrade);
    }
    let framing = framing(method, &parts)?;
    let keeps = keeps(&parts, framing);
    come.advance(length);
    Ok(Some((Head { parts, framing, keeps }, length)))
}

fn framing(method: &Method, parts: &response::Parts) -> Result<Framing, Broken> {
    let bodiless = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if bodiless || parts.status.is_informational() || *method == Method::HEAD {
        return Ok(Framing::Length(0));
    }
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(coding), None)
            if coding.as_bytes().eq_ignore_ascii_case(b"chunked")
                && parts.version == Version::HTTP_11 =>
        {
            return Ok(Framing::Chunked);
        }
        (Some(_), _) => return Err(Broken::Field(TRANSFER_ENCODING)),
    }
    let mut lengths = parts.headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(Framing::Close) };
    let digits = length.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .filter(|_| lengths.all(|other| other == length))
        .and_then(|digits| digits.parse().ok())
        .map(Framing::Length)
        .ok_or(Broken::Field(CONTENT_LENGTH))
}

fn keeps(parts: &response::Parts, framing: Framing) -> bool {
    let ends = match framing {
        Framing::Length(_) => false,
        Framing::Chunked => parts.headers.contains_key(CONTENT_LENGTH),
        Framing::Close => true,
    };
    parts.version == Version::HTTP_11 && !ends && !says_close(&parts.headers)
}

fn says_close(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

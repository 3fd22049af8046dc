//! What a request's head has to look like before anything else is read from it.
//!
//! pingora has parsed the head and refused what it can't frame. What is left to refuse here is what two
//! readers could understand differently: a length and a transfer coding at once, bare line feeds, a
//! target that a server behind us might normalise to another path, security headers nominated as
//! hop-by-hop. Sources: RFC 9112 §3.2, §6.1, §6.3; RFC 9110 §7.6.1.

use http::{HeaderMap, Method, Version, header};
use memchr::{memchr, memchr2};
use pingora::{http::RequestHeader, protocols::http::ServerSession};

use super::route::Target;
use crate::denial::Denial;

/// Most header lines in a request.
const MAX_HEADERS: usize = 100;
/// Most bytes in a request's head.
const MAX_HEAD: usize = 64 << 10;
/// Most names in `Connection`; the same bound as pingora's own proxy.
const MAX_NOMINATIONS: usize = 10;

/// Header names that decide something and so may not be nominated as hop-by-hop.
const END_TO_END: &[&str] = &[
    "a2a-extensions",
    "a2a-version",
    "accept",
    "agent-delegation",
    "authorization",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "origin",
    "transfer-encoding",
    "x-a2a-extensions",
];

/// The target of a request whose head is unambiguous.
pub(super) fn check(session: &ServerSession) -> Result<Target, Denial> {
    let request = session.req_header();
    if request.method == Method::CONNECT {
        return Err(Denial::HttpMethod);
    }
    if request.headers.len() > MAX_HEADERS {
        return Err(Denial::Framing("too many header lines"));
    }
    if let Some(http1) = session.as_http1() {
        check_raw(&http1.get_headers_raw_bytes())?;
        check_http1(&request.headers, request.version)?;
    }
    check_nominations(&request.headers)?;
    if request.headers.contains_key(header::UPGRADE) {
        return Err(Denial::Framing("upgrades are not served"));
    }
    if request.headers.get_all(header::EXPECT).iter().any(|value| !is_continue(value)) {
        return Err(Denial::Framing("the only known expectation is `100-continue`"));
    }
    target(session)
}

/// Whether the caller waits for `100 Continue`. Callers of HTTP/1.0 don't know it (RFC 9110 §10.1.1).
pub(super) fn expects_continue(request: &RequestHeader) -> bool {
    request.version != Version::HTTP_10
        && request.headers.get(header::EXPECT).is_some_and(is_continue)
}

fn is_continue(value: &http::HeaderValue) -> bool {
    value.as_bytes().eq_ignore_ascii_case(b"100-continue")
}

/// The head as it came: pingora drops `Content-Length` beside `Transfer-Encoding` and takes a bare LF
/// for a line end, both within the RFC's licence, neither within ours; it also cuts a fragment off the
/// target, which no target has (RFC 9112 §3.2).
fn check_raw(head: &[u8]) -> Result<(), Denial> {
    if head.len() > MAX_HEAD {
        return Err(Denial::Framing("the request head is too long"));
    }
    let target = memchr(b'\n', head).and_then(|end| head.get(..end)).unwrap_or(head);
    if memchr(b'#', target).is_some() {
        return Err(Denial::Framing("the request target has a fragment"));
    }
    if memchr(0, head).is_some() {
        return Err(Denial::Framing("a header line holds a control character"));
    }
    let mut coded = false;
    let mut lengths = 0_usize;
    let mut rest = head;
    while let Some(at) = memchr2(b'\r', b'\n', rest) {
        let (line, end) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        rest = match end {
            [b'\r', b'\n', rest @ ..] => rest,
            [b'\r', ..] => {
                return Err(Denial::Framing("a header line holds a control character"));
            }
            _ => return Err(Denial::Framing("header lines end with CR LF")),
        };
        coded |= is_field(line, b"transfer-encoding");
        lengths += usize::from(is_field(line, b"content-length"));
    }
    if !rest.is_empty() {
        return Err(Denial::Framing("header lines end with CR LF"));
    }
    if coded && lengths > 0 {
        return Err(Denial::Framing("both Content-Length and Transfer-Encoding"));
    }
    if lengths > 1 {
        return Err(Denial::Framing("more than one Content-Length"));
    }
    Ok(())
}

/// Whether a header line is of this name.
fn is_field(line: &[u8], name: &[u8]) -> bool {
    let (start, rest) = line.split_at_checked(name.len()).unwrap_or_default();
    rest.first() == Some(&b':') && start.eq_ignore_ascii_case(name)
}

fn check_http1(headers: &HeaderMap, version: Version) -> Result<(), Denial> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            if version != Version::HTTP_11 {
                return Err(Denial::Framing("a transfer coding needs HTTP/1.1"));
            }
        }
        (Some(_), _) => return Err(Denial::Framing("the only transfer coding is `chunked`")),
    }
    let digits = |value: &http::HeaderValue| {
        !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit)
    };
    if !headers.get_all(header::CONTENT_LENGTH).iter().all(digits) {
        return Err(Denial::Framing("Content-Length is not a plain number"));
    }
    if headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Denial::Framing("exactly one Host header is needed"));
    }
    Ok(())
}

fn check_nominations(headers: &HeaderMap) -> Result<(), Denial> {
    let mut count = 0;
    for value in headers.get_all(header::CONNECTION) {
        let text = value.to_str().map_err(|_| Denial::Framing("Connection is not ASCII"))?;
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            count += 1;
            let lower = name.to_ascii_lowercase();
            let governed = lower.starts_with("mcp-param-")
                || lower.starts_with("x-forwarded-")
                || lower.starts_with(':')
                || END_TO_END.contains(&lower.as_str());
            if governed {
                return Err(Denial::Framing("Connection names an end-to-end header"));
            }
        }
    }
    if count > MAX_NOMINATIONS {
        return Err(Denial::Framing("Connection names too many headers"));
    }
    Ok(())
}

/// The target, as it came but for an authority that `Host` names as well.
fn target(session: &ServerSession) -> Result<Target, Denial> {
    let request = session.req_header();
    if session.is_http2() {
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
        return Target::parse(target);
    }
    let raw = std::str::from_utf8(request.raw_path())
        .map_err(|_| Denial::Framing("the request target is not ASCII"))?;
    Target::parse(origin_form(raw, &request.headers)?)
}

/// Reduces an absolute-form target to its path, if it names the host that `Host` names.
fn origin_form<'a>(target: &'a str, headers: &HeaderMap) -> Result<&'a str, Denial> {
    if target.starts_with('/') {
        return Ok(target);
    }
    let rest = target
        .strip_prefix("http://")
        .or_else(|| target.strip_prefix("https://"))
        .ok_or(Denial::Framing("the request target is neither a path nor a URL"))?;
    let at = rest.find('/').ok_or(Denial::Framing("the request target has no path"))?;
    let (authority, path) = rest.split_at(at);
    let host = headers.get(header::HOST).map(http::HeaderValue::as_bytes).unwrap_or_default();
    if !authority.as_bytes().eq_ignore_ascii_case(host) {
        return Err(Denial::Framing("the request target and Host name different hosts"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_in_one_way_or_not_at_all() {
        for (lines, fine) in [
            ("Host: a\r\n", true),
            ("Content-Length: 1\r\n", true),
            ("Transfer-Encoding: chunked\r\nX-Content-Length: 1\r\n", true),
            ("X: content-length:\r\nContent-Length: 1\r\n", true),
            ("Content-Length: 1\r\ncontent-length: 1\r\n", false),
            ("content-length:1\r\nTRANSFER-ENCODING:chunked\r\n", false),
            ("Host: a\nX: b\r\n", false),
            ("Host: a\r\r\n", false),
            ("Host: a\rX: b\r\n", false),
            ("Host: a\0\r\n", false),
            ("Host: a\r\n\n", false),
        ] {
            let head = format!("POST /mcp HTTP/1.1\r\n{lines}\r\n");
            assert_eq!(check_raw(head.as_bytes()).is_ok(), fine, "{lines:?}");
        }
        for head in ["POST /mcp#a HTTP/1.1\r\n\r\n", "POST /mcp HTTP/1.1\r\nX", "GET / HTTP/1.1\r"]
        {
            assert!(check_raw(head.as_bytes()).is_err(), "{head:?}");
        }
        assert!(check_raw(&[b'a'; MAX_HEAD + 1]).is_err());
    }
}

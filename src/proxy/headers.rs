//! Which headers cross the proxy.
//!
//! Towards an upstream an allow-list decides: protocol headers and content negotiation go on, everything
//! else stays, and with it credentials, cookies, forwarding and identity claims in whatever spelling.
//! Towards a caller what is between two hops only (RFC 9110 §7.6.1), what could lead the caller round the
//! proxy or speaks for our host name, what a front of ours would act on, and what tells of the upstream's
//! software and addresses is removed.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Names the legacy session.
pub(super) const SESSION_HEADER: &str = "mcp-session-id";
/// Names the protocol revision.
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";

/// Names the kind of a refusal, for whoever looks at heads only.
pub(super) const DENIAL: &str = "lictor-denial";
/// Names the decision behind a refusal.
pub(super) const DECISION: &str = "lictor-decision";

const FORWARDED: &[&str] = &[
    "a2a-extensions",
    "a2a-version",
    "accept",
    "accept-language",
    "baggage",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-a2a-extensions",
];

/// What a web API gets to see, beside what its route names: what describes the body, what is asked for, and
/// under which conditions (RFC 9110 §8, §12 to §14).
const WEB: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "baggage",
    "cache-control",
    "content-digest",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "pragma",
    "prefer",
    "range",
    "repr-digest",
    "traceparent",
    "tracestate",
    "user-agent",
];

const WITHHELD: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-allow-private-network",
    "access-control-expose-headers",
    "access-control-max-age",
    "alt-svc",
    "clear-site-data",
    "connection",
    "content-length",
    "content-location",
    "date",
    "keep-alive",
    "location",
    "nel",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "server",
    "set-cookie",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-accel-redirect",
    "x-powered-by",
    "x-sendfile",
];

/// Whether an upstream that isn't a web API gets to see a header of this name.
pub(super) fn crosses(name: &str) -> bool {
    name.starts_with("mcp-param-") || FORWARDED.binary_search(&name).is_ok()
}

/// The headers of a caller's request that an upstream gets to see.
pub(super) fn for_upstream(request: &HeaderMap, in_session: bool) -> HeaderMap {
    let nominated = nominated(request);
    let mut headers = HeaderMap::with_capacity(12);
    for (name, value) in request {
        let text = name.as_str();
        // Outside of a session whose owner was checked, there is none to name and nothing to resume: an
        // event id alone could bring up what was meant for somebody else.
        let stray = !in_session && matches!(text, "mcp-session-id" | "last-event-id");
        if crosses(text) && !stray && !nominated.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// The headers of a caller's request that a web API gets to see. `named` are those of its route.
pub(super) fn for_web(request: &HeaderMap, named: &[HeaderName]) -> HeaderMap {
    let nominated = nominated(request);
    let mut headers = HeaderMap::with_capacity(12);
    for (name, value) in request {
        let passes = WEB.binary_search(&name.as_str()).is_ok() || named.contains(name);
        if passes && !nominated.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// The headers of an upstream's answer that the caller gets to see, without any framing.
pub(super) fn for_caller(answer: &HeaderMap) -> HeaderMap {
    let nominated = nominated(answer);
    let mut headers = HeaderMap::with_capacity(answer.len() + 2);
    for (name, value) in answer {
        if WITHHELD.binary_search(&name.as_str()).is_err() && !nominated.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Gives each value memory of its own. hyper's are slices of the buffer that the head was read into, 8 KiB,
/// which would stay for as long as the head is kept: for a stream, as long as it is open.
pub(super) fn detach(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        // It can't fail: the bytes are those of a value.
        if let Ok(copy) = HeaderValue::from_bytes(value.as_bytes()) {
            *value = copy;
        }
    }
}

/// What `Connection` says is for this hop only.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect()
}

/// Removes what described a body that has been edited since (RFC 9110 §8.4, §8.6, §8.8.3).
pub(super) fn forget_body(headers: &mut HeaderMap) {
    for name in
        [header::ETAG, header::LAST_MODIFIED, header::CONTENT_ENCODING, header::ACCEPT_RANGES]
    {
        headers.remove(name);
    }
    for name in ["content-digest", "content-md5", "digest", "repr-digest"] {
        headers.remove(name);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        assert!(FORWARDED.is_sorted());
        assert!(WEB.is_sorted());
        assert!(WITHHELD.is_sorted());
    }

    #[test]
    fn credentials_and_identity_claims_stay() {
        let mut request = HeaderMap::new();
        for name in [
            "authorization",
            "cookie",
            "proxy-authorization",
            "x-api-key",
            "x-forwarded-client-cert",
            "x_forwarded_client_cert",
            "x-forwarded-for",
            "forwarded",
            "x-spiffe-id",
            "agent-delegation",
            "x-http-method-override",
            "expect",
            "te",
            "host",
            "origin",
        ] {
            request.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        request.insert("mcp-param-region", HeaderValue::from_static("eu"));
        request.insert("mcp-session-id", HeaderValue::from_static("s-1"));
        request.insert("last-event-id", HeaderValue::from_static("7"));
        let inside = for_upstream(&request, true);
        assert_eq!(inside.len(), 3);
        let outside = for_upstream(&request, false);
        assert_eq!(
            outside.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["mcp-param-region"]
        );
    }

    #[test]
    fn nominated_headers_stop_here() {
        let mut answer = HeaderMap::new();
        answer.insert("connection", HeaderValue::from_static("close, X-Hop"));
        answer.insert("x-hop", HeaderValue::from_static("1"));
        answer.insert("set-cookie", HeaderValue::from_static("s=1"));
        answer.insert("mcp-session-id", HeaderValue::from_static("s-1"));
        let headers = for_caller(&answer);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["mcp-session-id"]);
    }

    #[test]
    fn detached_values_hold_no_buffer() {
        let buffer = bytes::Bytes::from(b"text/event-stream".repeat(100));
        let mut headers = HeaderMap::new();
        for (name, end) in [("content-type", 17), ("x-empty", 0)] {
            let value = HeaderValue::from_maybe_shared(buffer.slice(..end)).unwrap();
            headers.insert(name, value);
        }
        let before = headers.clone();
        detach(&mut headers);
        assert_eq!(headers, before);
        drop(before);
        assert!(buffer.is_unique());
    }
}

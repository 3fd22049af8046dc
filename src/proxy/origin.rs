//! `Host`, `Origin` and CORS: who may talk to this listener from a browser, and under which name.
//!
//! Checked before anything is rewritten for the upstream (DNS rebinding; MCP 2025-11-25 and 2026-07-28
//! transports, "Security Warning"). A request without `Origin` is no browser's and is fine.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::headers;
use crate::{denial::Denial, listener};

/// Names that protocols need on requests; a preflight is told of them whatever it asks for.
const ALLOWED_HEADERS: &str = "Accept, Authorization, Content-Type, Last-Event-ID, \
    MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, traceparent, tracestate";
const ALLOWED_METHODS: &str = "POST, GET, DELETE";
/// The same where there are web APIs.
const ALLOWED_METHODS_OF_WEBS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// What pages need on requests to those, beside the others.
const ALLOWED_HEADERS_OF_WEBS: &str = "Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, If-Unmodified-Since, Prefer, Range";
/// Names beyond those that one preflight is told of.
const MOST_ASKED: usize = 64;
const EXPOSED_HEADERS: &str = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, \
                               RateLimit, RateLimit-Policy";

/// Which names and origins a listener accepts.
#[derive(Debug)]
pub(super) struct Doorplate {
    hosts: Vec<String>,
    origins: Vec<String>,
    loopback_only: bool,
}

impl Doorplate {
    pub(super) fn new(settings: &listener::Settings) -> Self {
        let loopback_only = match settings.door {
            listener::Door::PlainLoopback(_) | listener::Door::Workload => true,
            listener::Door::MutualTls => false,
        };
        Self { hosts: settings.hosts.clone(), origins: settings.origins.clone(), loopback_only }
    }

    /// Refuses names that aren't ours. `authority` is HTTP/2's; HTTP/1 has `Host`.
    pub(super) fn check(&self, headers: &HeaderMap, authority: Option<&str>) -> Result<(), Denial> {
        let host = match (authority, headers.get(header::HOST)) {
            (Some(authority), _) => authority,
            (None, Some(host)) => host.to_str().map_err(|_| Denial::Host)?,
            (None, None) => return Err(Denial::Host),
        };
        if !self.names(&host.to_ascii_lowercase()) {
            return Err(Denial::Host);
        }
        if headers.contains_key(header::ORIGIN) && self.allowed_origin(headers).is_none() {
            return Err(Denial::Origin);
        }
        Ok(())
    }

    fn names(&self, host: &str) -> bool {
        let bare = bare_host(host);
        if !self.hosts.is_empty() {
            return self.hosts.iter().any(|known| known == host || known == bare);
        }
        !self.loopback_only || matches!(bare, "localhost" | "127.0.0.1" | "[::1]")
    }

    /// The request's only `Origin`, if it is one that this listener allows.
    pub(super) fn allowed_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else { return None };
        let text = origin.to_str().ok()?.to_ascii_lowercase();
        let own = self.loopback_only
            && self.origins.is_empty()
            && text.split_once("://").is_some_and(|(scheme, host)| {
                matches!(scheme, "http" | "https") && self.names(host)
            });
        (own || self.origins.contains(&text)).then_some(origin)
    }
}

/// Adds what a browser at an allowed origin needs to read the answer.
pub(super) fn expose(headers: &mut HeaderMap, origin: &HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers
        .insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

/// The answer to a preflight from an allowed origin; `webs` says whether there are web APIs on the listener.
pub(super) fn preflight(
    answer: &mut HeaderMap,
    request: &HeaderMap,
    origin: &HeaderValue,
    webs: bool,
) {
    expose(answer, origin);
    let methods = if webs { ALLOWED_METHODS_OF_WEBS } else { ALLOWED_METHODS };
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
    if webs {
        let more = HeaderValue::from_static(ALLOWED_HEADERS_OF_WEBS);
        answer.append(header::ACCESS_CONTROL_ALLOW_HEADERS, more);
    }
    let asked = request.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let asked = asked.filter_map(|names| names.to_str().ok()).flat_map(|names| names.split(','));
    let asked = asked.filter_map(|name| HeaderName::try_from(name.trim()).ok());
    // An upstream gets to see them.
    let more = asked.filter(|name| headers::crosses(name.as_str())).take(MOST_ASKED);
    let more = more.map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
    if let (false, Ok(more)) = (more.is_empty(), HeaderValue::try_from(more)) {
        answer.append(header::ACCESS_CONTROL_ALLOW_HEADERS, more);
    }
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
}

/// `host` without its port; an IPv6 literal keeps its brackets.
fn bare_host(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        Some(_) | None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{identity::SpiffeId, listener::Door};

    fn doorplate(door: Door, hosts: &[&str], origins: &[&str]) -> Doorplate {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Doorplate::new(&listener::Settings {
            door,
            hosts: owned(hosts),
            origins: owned(origins),
            ..listener::Settings::sample()
        })
    }

    fn headers(host: &str, origins: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        for origin in origins {
            headers.append(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        headers
    }

    #[test]
    fn host_and_origin_are_checked() {
        let plain = Door::PlainLoopback(SpiffeId::parse("spiffe://td/a").unwrap());
        let local = doorplate(plain, &[], &[]);
        let named = doorplate(Door::MutualTls, &["side.example.org"], &["https://app.example.org"]);
        for (plate, host, origins, fine) in [
            (&local, "127.0.0.1:8080", &[][..], true),
            (&local, "localhost", &[], true),
            (&local, "[::1]:9", &[], true),
            (&local, "rebind.example.net", &[], false),
            (&local, "localhost.example.net", &[], false),
            (&local, "localhost:8080", &["http://localhost:8080"], true),
            (&local, "localhost:8080", &["https://evil.example.net"], false),
            (&local, "localhost:8080", &["null"], false),
            (&named, "side.example.org", &[], true),
            (&named, "SIDE.example.org:8443", &[], true),
            (&named, "other.example.org", &[], false),
            (&named, "side.example.org", &["https://app.example.org"], true),
            (&named, "side.example.org", &["https://evil.example.net"], false),
            (&named, "side.example.org", &["https://app.example.org", "null"], false),
        ] {
            let verdict = plate.check(&headers(host, origins), None);
            assert_eq!(verdict.is_ok(), fine, "{host} {origins:?}");
        }
    }
}

//! [`Endpoint`]: where an upstream takes messages, if not at the address of the settings.
//!
//! A server of the HTTP+SSE transport announces on its stream where to post (MCP 2024-11-05 `basic/transports`,
//! "HTTP with SSE"), as a reference that is resolved against the stream's own URL.
//!
//! The HTTP+JSON binding of A2A has places below a base instead, one for each operation, and so has a web API.
//!
//! INVARIANT: an [`Endpoint`] is of the origin of the upstream that made it, or of another of that upstream's
//! own URLs, so that nobody can be sent elsewhere. Refused beside other origins: user information, fragments, and anything but visible ASCII.

use std::fmt;

use http::{Uri, uri::PathAndQuery};
use url::Url;

/// Longest reference in bytes.
const LONGEST: usize = 2048;

/// A place of one upstream that takes messages. Its query is the session's secret, so it has no `Display`,
/// and its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Uri);

impl Endpoint {
    /// Resolves what a server announced on the stream at `url`. `target` is where requests to it really go:
    /// its authority is accepted as well, since a server behind a `Host` of its own speaks of that.
    pub(super) fn resolve(announced: &[u8], url: &Url, target: &Uri) -> Option<Self> {
        let visible = announced.iter().all(u8::is_ascii_graphic);
        let announced = std::str::from_utf8(announced).ok()?;
        if !visible || announced.is_empty() || announced.len() > LONGEST {
            return None;
        }
        let place = url.join(announced).ok()?;
        let named = Url::parse(&target.to_string()).ok()?;
        let ours = place.origin() == url.origin() || place.origin() == named.origin();
        let bare = place.username().is_empty() && place.password().is_none();
        if !ours || !bare || place.fragment().is_some() {
            return None;
        }
        let path = match place.query() {
            Some(query) => format!("{}?{query}", place.path()),
            None => place.path().to_owned(),
        };
        let mut parts = target.clone().into_parts();
        parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
        Uri::from_parts(parts).ok().map(Self)
    }

    /// A place below `base`, of the origin of `target`. What could be read as another place, such as
    /// dot segments, encoded or not, is refused.
    pub(super) fn beneath(
        base: &str,
        suffix: &str,
        query: Option<&str>,
        target: &Uri,
    ) -> Option<Self> {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let dots = |segment: &str| matches!(&*segment.replace("%2e", "."), "." | "..");
        let lower = suffix.to_ascii_lowercase();
        let strange = lower.contains(['?', '#', '\\']) || lower.contains("//");
        let rooted = suffix.is_empty() || suffix.starts_with('/');
        if !rooted || strange || lower.split('/').any(dots) {
            return None;
        }
        if !plain(suffix) || !query.is_none_or(|query| plain(query) && !query.contains('#')) {
            return None;
        }
        let path = format!("{}{suffix}", base.trim_end_matches('/'));
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let path = query.map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut parts = target.clone().into_parts();
        parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
        Uri::from_parts(parts).ok().map(Self)
    }

    /// The same place at `target`, another URL of the same upstream.
    pub(super) fn moved_to(&self, target: &Uri) -> Result<Self, http::uri::InvalidUriParts> {
        let mut parts = target.clone().into_parts();
        parts.path_and_query = self.0.path_and_query().cloned();
        Uri::from_parts(parts).map(Self)
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(announced: &str) -> Option<String> {
        let url = Url::parse("https://files.internal:8443/svc/sse?key=1").unwrap();
        let target = Uri::from_static("https://files.example.org/svc/sse?key=1");
        let endpoint = Endpoint::resolve(announced.as_bytes(), &url, &target)?;
        Some(endpoint.uri().to_string())
    }

    #[test]
    fn references_are_resolved_against_the_stream() {
        for (announced, path) in [
            ("/messages?sessionId=a%20b&c", "/messages?sessionId=a%20b&c"),
            ("messages/?session_id=1", "/svc/messages/?session_id=1"),
            ("?sessionId=1", "/svc/sse?sessionId=1"),
            ("https://files.internal:8443/m?s=1", "/m?s=1"),
            ("https://files.example.org/m?s=1", "/m?s=1"),
            ("https://FILES.example.org:443/m", "/m"),
            ("//files.internal:8443/m", "/m"),
            ("../m", "/m"),
        ] {
            let whole = format!("https://files.example.org{path}");
            assert_eq!(resolved(announced), Some(whole), "{announced}");
        }
    }

    #[test]
    fn nobody_is_sent_elsewhere() {
        for announced in [
            "",
            "https://files.internal/m",
            "http://files.internal:8443/m",
            "https://evil.example.org/m",
            "//evil.example.org/m",
            "\\\\evil.example.org/m",
            "https://files.example.org.evil.example/m",
            "https://user@files.example.org/m",
            "https://files.example.org@evil.example/m",
            "/m#s",
            "/m m",
            "/m\n",
            "/ä",
            "data:text/plain,1",
            "javascript:1",
            "file:///m",
        ] {
            assert_eq!(resolved(announced), None, "{announced}");
        }
        assert_eq!(resolved(&"m".repeat(LONGEST + 1)), None);
    }

    #[test]
    fn places_beneath_a_base_stay_there() {
        let target = Uri::from_static("https://files.example.org/svc?key=1");
        let beneath = |base: &str, suffix: &str, query: Option<&str>| {
            Some(Endpoint::beneath(base, suffix, query, &target)?.uri().to_string())
        };
        for (base, suffix, query, path) in [
            ("/", "/tasks/a%2Fb", None, "/tasks/a%2Fb"),
            ("/rest/", "/v1/message:send", None, "/rest/v1/message:send"),
            ("/rest", "/tasks", Some("a=b&c=%20"), "/rest/tasks?a=b&c=%20"),
            ("/rest", "/tasks/a..b/...", None, "/rest/tasks/a..b/..."),
            ("/rest", "", None, "/rest"),
            ("/", "", Some("a"), "/?a"),
            ("/", "/", None, "/"),
            ("/rest/", "/a/", None, "/rest/a/"),
        ] {
            let whole = format!("https://files.example.org{path}");
            assert_eq!(beneath(base, suffix, query), Some(whole), "{suffix}");
        }
        for (suffix, query) in [
            ("tasks", None),
            ("@evil.example/", None),
            ("//evil.example/", None),
            ("/a//b", None),
            ("/..", None),
            ("/a/../b", None),
            ("/a/%2e%2E/b", None),
            ("/a/.%2e/b", None),
            ("/./a", None),
            ("/a\\b", None),
            ("/a?b", None),
            ("/a#b", None),
            ("/a b", None),
            ("/ä", None),
            ("/a\r\nHost: b", None),
            ("/a", Some("b#c")),
            ("/a", Some("b c")),
        ] {
            assert_eq!(beneath("/rest", suffix, query), None, "{suffix} {query:?}");
        }
    }

    #[test]
    fn the_session_is_not_shown() {
        let url = Url::parse("http://127.0.0.1:1/sse").unwrap();
        let target = Uri::from_static("http://127.0.0.1:1/sse");
        let endpoint = Endpoint::resolve(b"/m?sessionId=secret", &url, &target).unwrap();
        assert!(!format!("{endpoint:?}").contains("secret"));
    }
}

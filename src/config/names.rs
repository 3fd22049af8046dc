//! The small grammars of the file: paths, hosts, origins, templates, group members.

use url::Url;

use crate::identity::{SpiffeId, SpiffeIdError};

/// Whether a route's path can be read in one way only.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Err("has to start with `/`") };
    if rest.is_empty() {
        return Ok(());
    }
    if path.contains('%') {
        return Err("has to be written without percent-encoding");
    }
    if path.contains(['?', '#']) {
        return Err("is a path without query and fragment");
    }
    for segment in rest.split('/') {
        match segment {
            "" => return Err("has an empty segment or a trailing slash"),
            "." | ".." => return Err("has a dot segment"),
            _ if !segment.bytes().all(is_unreserved) => {
                return Err("may hold `A-Z`, `a-z`, `0-9`, `-`, `.`, `_`, `~` and `/` only");
            }
            _ => {}
        }
    }
    Ok(())
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A `Host` value in lower case.
pub(super) fn host(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let authority: http::uri::Authority = lower.parse().ok()?;
    let bare = !lower.contains(['@', '*']) && !authority.host().is_empty();
    let port = lower.strip_prefix(authority.host())?;
    let whole = port.is_empty() || authority.port_u16().is_some();
    (bare && whole).then_some(lower)
}

/// An `Origin` value in lower case, as browsers send it (RFC 6454 §6.1); desktop applications and
/// browser extensions have schemes of their own.
pub(super) fn origin(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let lower = text.to_ascii_lowercase();
    let sent = match url.origin() {
        origin if origin.is_tuple() => origin.ascii_serialization(),
        _ => format!("{}://{}", url.scheme(), url.host_str()?),
    };
    (sent == lower).then_some(lower)
}

/// A trust domain's name.
pub(super) fn check_trust_domain(name: &str) -> Result<(), SpiffeIdError> {
    match name.contains('/') {
        true => Err(SpiffeIdError::TrustDomain),
        false => SpiffeId::parse(&format!("spiffe://{name}/workload")).map(drop),
    }
}

/// A member of a group: a SPIFFE ID, or a prefix of IDs that ends in `/*`.
pub(super) fn check_member(member: &str) -> Result<(), SpiffeIdError> {
    match member.strip_suffix("/*") {
        Some(prefix) => SpiffeId::parse(&format!("{prefix}/any")).map(drop),
        None => SpiffeId::parse(member).map(drop),
    }
}

/// A template of SPIFFE paths: `/` and segments, of which those in braces have a name of their own.
pub(super) fn check_template(template: &str) -> Result<(), &'static str> {
    let Some(rest) = template.strip_prefix('/') else { return Err("has to start with `/`") };
    let mut names = Vec::new();
    for segment in rest.split('/') {
        match segment.strip_prefix('{').and_then(|open| open.strip_suffix('}')) {
            Some(name) if names.contains(&name) => return Err("names two segments alike"),
            Some("path" | "tags" | "trustDomain") => {
                return Err("uses a name that every caller has already");
            }
            Some(name) if is_name(name) => names.push(name),
            Some(_) => {
                return Err(
                    "has a name in braces that isn't letters and digits, a small one first",
                );
            }
            None if is_path_segment(segment) => {}
            None => return Err("has a segment that no SPIFFE path can have"),
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_path_segment(segment: &str) -> bool {
    !segment.contains('/') && SpiffeId::parse(&format!("spiffe://any/{segment}")).is_ok()
}

/// The scheme and place of the Workload API (SPIFFE Workload Endpoint §4).
pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), &'static str> {
    let socket = endpoint
        .strip_prefix("unix://")
        .is_some_and(|path| path.starts_with('/') && path.len() > 1 && !path.contains(['?', '#']));
    let address = endpoint
        .strip_prefix("tcp://")
        .and_then(|address| address.parse::<std::net::SocketAddr>().ok());
    match (socket, address) {
        (true, _) => Ok(()),
        (false, Some(address)) if address.port() > 0 => Ok(()),
        (false, _) => Err("has to be `unix:///path/of/socket` or `tcp://address:port`"),
    }
}

/// Whether traffic to this URL never leaves the host.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        // RFC 6761 §6.3: the name and everything below it is loopback; resolvers that disagree
        // exist for names below it.
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (text, host_in_lower_case) in [
            ("MCP.example.org", Some("mcp.example.org")),
            ("mcp.example.org:8443", Some("mcp.example.org:8443")),
            ("[::1]:80", Some("[::1]:80")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("", None),
            ("*", None),
            ("*.example.org", None),
            ("a:", None),
            ("a:99999", None),
            ("a:b", None),
            (":80", None),
            ("user@a", None),
            ("https://a", None),
            ("a/b", None),
            ("a b", None),
        ] {
            assert_eq!(host(text).as_deref(), host_in_lower_case, "{text}");
        }
    }

    #[test]
    fn origins() {
        for (text, in_lower_case) in [
            ("https://App.example.org", Some("https://app.example.org")),
            ("http://localhost:5173", Some("http://localhost:5173")),
            ("vscode-webview://0a1b", Some("vscode-webview://0a1b")),
            ("null", None),
            ("*", None),
            ("https://app.example.org/", None),
            ("https://app.example.org:443", None),
            ("https://user@app.example.org", None),
            ("app.example.org", None),
            ("file:///x", None),
        ] {
            assert_eq!(origin(text).as_deref(), in_lower_case, "{text}");
        }
    }

    #[test]
    fn paths() {
        for path in ["/", "/mcp", "/a/b-c/d.e_f~g", "/..a", "/a."] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        for path in ["", "mcp", "//", "/a//b", "/a/", "/.", "/a/..", "/%61", "/a b", "/ä", "/a;b"]
        {
            assert!(check_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn templates() {
        for template in ["/tenant/{tenant}/agent/{agent}", "/{a}", "/ns/{ns}/sa/{name2}", "/a"] {
            assert_eq!(check_template(template), Ok(()), "{template}");
        }
        for template in [
            "",
            "/",
            "{tenant}",
            "/{path}",
            "/{trustDomain}",
            "/{tags}",
            "/{Tenant}",
            "/{1}",
            "/a~b",
            "/{tenant}/",
            "/{tenant}/{tenant}",
            "/{tenant}/{}",
            "/{tenant}/{a.b}",
            "/{tenant}/x{a}",
            "/{tenant}/..",
        ] {
            assert!(check_template(template).is_err(), "{template}");
        }
    }

    #[test]
    fn endpoints() {
        for endpoint in ["unix:///run/spire/agent.sock", "tcp://127.0.0.1:8081", "tcp://[::1]:1"] {
            assert_eq!(check_endpoint(endpoint), Ok(()), "{endpoint}");
        }
        for endpoint in [
            "",
            "/run/a.sock",
            "unix://",
            "unix:///",
            "unix://run/a",
            "tcp://localhost:1",
            "tcp://127.0.0.1:0",
        ] {
            assert!(check_endpoint(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn members_and_domains() {
        for member in ["spiffe://td/a", "spiffe://td/*", "spiffe://td/a/*"] {
            assert_eq!(check_member(member), Ok(()), "{member}");
        }
        for member in ["*", "/*", "spiffe://*", "spiffe://*/a", "spiffe://td/a*", "spiffe://td/*/b"]
        {
            assert!(check_member(member).is_err(), "{member}");
        }
        assert_eq!(check_trust_domain("example.org"), Ok(()));
        for name in ["", "Example.org", "example.org/a", "spiffe://example.org", "a:1"] {
            assert!(check_trust_domain(name).is_err(), "{name}");
        }
    }

    #[test]
    fn loopback_is_told_from_what_looks_like_it() {
        for (url, loopback) in [
            ("http://127.0.0.1:9000/", true),
            ("http://127.9.9.9/", true),
            ("http://[::1]/", true),
            ("http://localhost/", true),
            ("http://LOCALHOST/", true),
            ("http://0x7f000001/", true),
            ("http://127.0.0.1.example.org/", false),
            ("http://localhost.example.org/", false),
            ("http://localhost./", false),
            ("http://0.0.0.0/", false),
            ("http://10.0.0.1/", false),
            ("http://[::ffff:10.0.0.1]/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).expect("a URL")), loopback, "{url}");
        }
    }
}

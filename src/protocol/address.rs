//! Addresses on the web that somebody else is to visit.

use url::Url;

/// An address of which every reader finds the same host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// `https` or `http`.
    pub(super) scheme: Box<str>,
    /// In lower case, without port; an IPv6 literal keeps its brackets.
    pub(super) host: Box<str>,
}

impl Address {
    /// `None` if two readers could find two hosts: browsers (WHATWG) take `\` for `/`, skip line
    /// breaks, and know many ways to write an IPv4 address; others follow RFC 3986. So there is
    /// neither user information, nor a final dot, nor anything but visible ASCII.
    pub(super) fn parse(address: &str) -> Option<Self> {
        let plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let url = Url::parse(address).ok().filter(|_| plain)?;
        let (scheme, rest) = address.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = url.host_str()?;
        let port =
            authority.len().checked_sub(host.len()).and_then(|_| authority.get(host.len()..));
        let same = authority.get(..host.len()).is_some_and(|text| text.eq_ignore_ascii_case(host))
            && port.is_some_and(is_port)
            && !host.ends_with('.')
            && matches!(scheme, "http" | "https");
        same.then(|| Self { scheme: scheme.into(), host: host.into() })
    }
}

/// What follows the host in an authority: nothing, or a colon and a number.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

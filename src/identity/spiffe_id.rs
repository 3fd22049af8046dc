//! SPIFFE IDs, parsed strictly (SPIFFE-ID.md §2, `spiffe/spiffe`).

use std::{fmt, sync::Arc};

/// A valid SPIFFE ID with a path: `spiffe://<trust domain>/<segment>(/<segment>)*`.
///
/// Two IDs are equal when their bytes are. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpiffeId {
    uri: Arc<str>,
    path_at: usize,
}

/// Why a text is no SPIFFE ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpiffeIdError {
    /// Not `spiffe://`, in lower case.
    #[error("a SPIFFE ID starts with `spiffe://`")]
    Scheme,
    /// Empty, longer than 255 bytes, or other characters than `a-z 0-9 . - _`.
    #[error("a trust domain is 1 to 255 characters of `a-z`, `0-9`, `.`, `-`, `_`")]
    TrustDomain,
    /// Missing, empty or dot segment, trailing slash, or other characters than `A-Za-z0-9.-_`.
    #[error("a workload path is one or more segments of `A-Z`, `a-z`, `0-9`, `.`, `-`, `_`")]
    Path,
    /// Longer than 2,048 bytes.
    #[error("a SPIFFE ID is at most 2048 bytes")]
    Length,
}

impl SpiffeId {
    const SCHEME: &str = "spiffe://";
    const MAX_LEN: usize = 2048;

    /// Parses a workload's ID; an ID without a path names no workload and is refused.
    pub fn parse(text: &str) -> Result<Self, SpiffeIdError> {
        let rest = text.strip_prefix(Self::SCHEME).ok_or(SpiffeIdError::Scheme)?;
        if text.len() > Self::MAX_LEN {
            return Err(SpiffeIdError::Length);
        }
        let (domain, path) = rest.split_once('/').ok_or(SpiffeIdError::Path)?;
        let domain_byte = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        if !(1..=255).contains(&domain.len()) || !domain.bytes().all(domain_byte) {
            return Err(SpiffeIdError::TrustDomain);
        }
        let segment = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && segment.bytes().all(|byte| byte.is_ascii_uppercase() || domain_byte(byte))
        };
        if !path.split('/').all(segment) {
            return Err(SpiffeIdError::Path);
        }
        let path_at = Self::SCHEME.len() + domain.len();
        Ok(Self { uri: text.into(), path_at })
    }

    /// The whole ID.
    pub fn as_str(&self) -> &str {
        &self.uri
    }

    /// The whole ID, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.uri)
    }

    /// The trust domain, without the scheme.
    pub fn trust_domain(&self) -> &str {
        self.uri.get(Self::SCHEME.len()..self.path_at).unwrap_or_default()
    }

    /// The path, with its leading slash.
    pub fn path(&self) -> &str {
        self.uri.get(self.path_at..).unwrap_or_default()
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

impl fmt::Debug for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_workload_ids() {
        for (text, domain, path) in [
            ("spiffe://td/agent", "td", "/agent"),
            (
                "spiffe://td-one.example.org/tenant/acme/Agent_1",
                "td-one.example.org",
                "/tenant/acme/Agent_1",
            ),
        ] {
            let id = SpiffeId::parse(text).expect("valid");
            assert_eq!((id.as_str(), id.trust_domain(), id.path()), (text, domain, path));
        }
    }

    #[test]
    fn refuses_everything_else() {
        use SpiffeIdError::{Length, Path, Scheme, TrustDomain};
        let long = format!("spiffe://td/{}", "a".repeat(2037));
        for (text, error) in [
            ("https://td/a", Scheme),
            ("SPIFFE://td/a", Scheme),
            ("", Scheme),
            ("spiffe://td", Path),
            ("spiffe://td/", Path),
            ("spiffe://td/a/", Path),
            ("spiffe://td//a", Path),
            ("spiffe://td/./a", Path),
            ("spiffe://td/../a", Path),
            ("spiffe://td/a%2e", Path),
            ("spiffe://td/a?q", Path),
            ("spiffe://td/a#f", Path),
            ("spiffe:///a", TrustDomain),
            ("spiffe://TD-ONE.example.org/a", TrustDomain),
            ("spiffe://td:8080/a", TrustDomain),
            ("spiffe://user@td/a", TrustDomain),
            (&long, Length),
        ] {
            assert_eq!(SpiffeId::parse(text), Err(error), "{text}");
        }
    }
}

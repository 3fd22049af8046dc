//! The headers of a refusal by limits.
//!
//! Sources: draft-ietf-httpapi-ratelimit-headers, whose items are structured
//! fields (RFC 9651): strings with integer parameters.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limits::{Exceeded, Limited, limited::Kind};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds which limits there are and how they stand. Hours are no quota, and stand only in the wait.
pub(super) fn add_headers(limited: &Limited, headers: &mut HeaderMap) {
    let (mut policies, mut standings) = (Vec::new(), Vec::new());
    for Exceeded { limit, kind, retry_after } in limited.exceeded() {
        let level = match kind {
            Kind::Rate(level) | Kind::Budget(level) => level,
            Kind::Hours | Kind::Unknown => continue,
        };
        // Names are letters, digits and dashes, so nothing is to be escaped.
        let window = level.period.map(|period| format!(";w={}", period.as_secs().max(1)));
        policies.push(format!("\"{limit}\";q={}{}", level.quota, window.unwrap_or_default()));
        let reset = retry_after.map(|wait| format!(";t={}", wait.as_millis().div_ceil(1_000)));
        standings.push(format!("\"{limit}\";r={}{}", level.remaining, reset.unwrap_or_default()));
    }
    for (name, items) in [(RATE_LIMIT_POLICY, policies), (RATE_LIMIT, standings)] {
        if let (false, Ok(value)) = (items.is_empty(), HeaderValue::try_from(items.join(", "))) {
            headers.insert(name, value);
        }
    }
}

//! [`Presented`]: a chain by all rules but one, that its last hop is shown once.
//!
//! What was shown before is known to whoever remembers it beyond a call, beyond this process and for several
//! replicas. This says what to ask there, and takes the answer: there is no other way to a [`Chain`].

use super::{Chain, ChainError, FRESH, SKEW};
use crate::identity::SpiffeId;

/// A chain whose last hop may have been shown before.
///
/// ```compile_fail,E0423
/// # fn shown(chain: lictor::delegation::Chain) {
/// let presented = lictor::delegation::Presented(chain);
/// # }
/// ```
#[derive(Debug)]
pub struct Presented(pub(super) Chain);

/// The last hop, for those who remember what was shown. Times are by our clock, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Who made it.
    pub issuer: &'a SpiffeId,
    /// Its `jti`.
    pub id: &'a str,
    /// From when on it could be shown: whoever made it may have a clock that is ahead.
    pub from: u64,
    /// From when on nobody would take it anyway.
    pub until: u64,
}

impl Presented {
    /// What to ask for; `None` of a chain without hops, which isn't made.
    pub fn shown(&self) -> Option<Shown<'_>> {
        let claims = self.0.last()?;
        Some(Shown {
            issuer: &claims.issuer,
            id: &claims.id,
            from: claims.issued.saturating_sub(SKEW),
            until: claims.issued.saturating_add(FRESH + SKEW),
        })
    }

    /// The chain, if this is the `first` time that its last hop is shown.
    pub fn taken(self, first: bool) -> Result<Chain, ChainError> {
        if first {
            return Ok(self.0);
        }
        Err(ChainError::Replayed { hop: self.0.depth().saturating_sub(1) })
    }
}

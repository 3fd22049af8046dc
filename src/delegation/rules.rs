//! What has to hold of a chain whose signatures do.
//!
//! Pure functions over what the hops say. Signatures are remembered, these rules never are: they are cheap,
//! and what they look at besides the hops (clock, settings) changes.

use sha2::{Digest, Sha256};

use super::{
    Arrival, Capabilities, ChainError, FRESH, Hop, Mode, SKEW, Settings, Site,
    token::{Claims, TokenError},
};
use crate::identity::{PeerError, SignatureError, SpiffeId};

/// The rule that a hop breaks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rule {
    /// It can't be read.
    #[error("{0}")]
    Token(#[from] TokenError),
    /// The SVID in its `x5c` isn't believed.
    #[error("its SVID isn't believed: {0}")]
    Svid(#[from] PeerError),
    /// The signature doesn't hold, or the algorithm isn't that of the leaf's key.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// `iss` isn't the ID of the leaf.
    #[error("it was signed by `{0}`, which isn't its `iss`")]
    Issuer(SpiffeId),
    /// `dep` isn't its place.
    #[error("its `dep` isn't its place")]
    Depth,
    /// `sub` of the first hop isn't its `iss`.
    #[error("its `sub` didn't begin the chain")]
    Root,
    /// `prv` isn't the digest of the hop before; or the first hop has one.
    #[error("its `prv` isn't the hop before")]
    Previous,
    /// `iss` isn't the `aud` of the hop before.
    #[error("the hop before wasn't made for its `iss`")]
    Link,
    /// `sub`, `usr`, `ten` or `run` changed on the way.
    #[error("its `{0}` isn't that of the first hop")]
    Changed(&'static str),
    /// `iat` is in the future.
    #[error("it was made in the future")]
    Future,
    /// `exp` is over.
    #[error("it has expired")]
    Expired,
    /// `exp` is after that of the hop before.
    #[error("it lasts longer than the hop before")]
    OutlivesParent,
    /// `exp` is after the end of the leaf's validity.
    #[error("it lasts longer than the SVID that signed it")]
    OutlivesSvid,
    /// `mode` is wider than that of the hop before.
    #[error("its mode is wider than that of the hop before")]
    WiderMode,
    /// `cap` isn't within that of the hops before.
    #[error("its capabilities aren't within those of the hops before")]
    WiderCapabilities,
    /// It goes to another trust domain, and the settings have no such pair.
    #[error("it goes to another trust domain, which isn't allowed")]
    Domain,
    /// The first hop's issuer may not begin a chain.
    #[error("its issuer may not begin a chain")]
    Origin,
    /// The first hop's mode is wider than its issuer may give.
    #[error("its mode is wider than its issuer may give")]
    OriginMode,
    /// The last hop's `iss` isn't who shows it.
    #[error("it wasn't made by who shows it")]
    Presenter,
    /// The last hop's `aud` isn't this proxy.
    #[error("it was made for somebody else")]
    Audience,
    /// The last hop is older than a minute.
    #[error("it is too old")]
    Stale,
    /// The last hop's `bh` isn't the digest of the body.
    #[error("it was made for another body")]
    Body,
    /// The last hop's `htm` isn't the HTTP method.
    #[error("it was made for another HTTP method")]
    HttpMethod,
    /// The last hop's `mth` isn't the message's method.
    #[error("it was made for another method")]
    Method,
}

/// What a hop says of who delegates, and of how far those after it may go.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Who delegates.
    pub id: &'a SpiffeId,
    /// How far those after it may go.
    pub mode: Mode,
    /// What they are restricted to.
    pub capabilities: &'a Capabilities,
}

/// Checks hops whose signatures hold, each with the digest of its text, by all rules but that of replay.
pub(super) fn check<'a>(
    hops: impl Iterator<Item = (&'a Hop, &'a [u8; 32])> + Clone,
    arrival: &Arrival<'_>,
    own: &'a SpiffeId,
    site: &Site<'_>,
) -> Result<(), ChainError> {
    let mut before: Option<(&Hop, &[u8; 32])> = None;
    let mut root = None;
    for (at, (hop, digest)) in hops.clone().enumerate() {
        let refused = |rule| ChainError::Hop { hop: at, rule };
        let claims = hop.claims();
        if u64::try_from(at) != Ok(claims.depth) {
            return Err(refused(Rule::Depth));
        }
        match before {
            None => first(claims).map_err(refused)?,
            Some((parent, digest)) => link(claims, parent.claims(), digest).map_err(refused)?,
        }
        same(claims, root.get_or_insert(claims)).map_err(refused)?;
        alone(hop, site.now).map_err(refused)?;
        before = Some((hop, digest));
    }
    let Some((last, _)) = before else { return Err(ChainError::Empty) };
    let at = hops.clone().count().saturating_sub(1);
    shown(last.claims(), arrival, own, site.now)
        .map_err(|rule| ChainError::Hop { hop: at, rule })?;
    // Whoever made a hop is the one that the hop before was made for, so that these are all the ways there are.
    check_steps(hops.map(|(hop, _)| hop.step()), Some(own), Some(site.settings))
}

/// Checks what can be told of hops without their tokens: that nobody begins who may not, nobody widens, and the way
/// to `next` is one that may be gone. Without `next` it ends at the last hop, and without settings only what no
/// settings allow is refused.
///
/// # Errors
/// The first hop that breaks a rule.
pub fn check_steps<'a>(
    steps: impl Iterator<Item = Step<'a>> + Clone,
    next: Option<&'a SpiffeId>,
    settings: Option<&Settings>,
) -> Result<(), ChainError> {
    let limit = settings.map_or(Settings::DEEPEST, Settings::deepest);
    if steps.clone().count() > limit {
        return Err(ChainError::TooDeep { limit });
    }
    let mut before: Option<Step<'_>> = None;
    let mut limit = &Capabilities::UNLIMITED;
    for (at, step) in steps.clone().enumerate() {
        let refused = |rule| ChainError::Hop { hop: at, rule };
        match (before, settings) {
            (None, Some(settings)) => origin(step.id, step.mode, settings).map_err(refused)?,
            (Some(before), _) if step.mode > before.mode => return Err(refused(Rule::WiderMode)),
            (Some(_), _) | (None, None) => {}
        }
        if step.capabilities.limit() {
            if !limit.covers(step.capabilities) {
                return Err(refused(Rule::WiderCapabilities));
            }
            limit = step.capabilities;
        }
        before = Some(step);
    }
    let Some(settings) = settings else { return Ok(()) };
    let issuers: Vec<_> = steps.map(|step| step.id).collect();
    for (hop, (from, to)) in ways(&issuers, next).enumerate() {
        domains(from, to, settings).map_err(|rule| ChainError::Hop { hop, rule })?;
    }
    match way_back(&issuers, next, settings) {
        Some((hop, id)) => Err(ChainError::Loop { hop, id: id.clone() }),
        None => Ok(()),
    }
}

/// Where the way through `issuers`, in this order, to `next` comes back to where it was before, other
/// than by a pair of the settings: the hop that leads there, and to whom.
pub(super) fn way_back<'a>(
    issuers: &[&'a SpiffeId],
    next: Option<&'a SpiffeId>,
    settings: &Settings,
) -> Option<(usize, &'a SpiffeId)> {
    ways(issuers, next).enumerate().find_map(|(hop, (from, to))| {
        let visited = issuers.iter().take(hop + 1).any(|issuer| *issuer == to);
        let allowed = from != to && settings.revisits.iter().any(|(a, b)| a == from && b == to);
        (visited && !allowed).then_some((hop, to))
    })
}

/// From whom to whom each hop goes.
fn ways<'a>(
    issuers: &[&'a SpiffeId],
    next: Option<&'a SpiffeId>,
) -> impl Iterator<Item = (&'a SpiffeId, &'a SpiffeId)> {
    let ends = issuers.iter().skip(1).copied().chain(next);
    issuers.iter().copied().zip(ends)
}

/// Whether a hop may go from one to the other as far as their trust domains go.
pub(super) fn domains(from: &SpiffeId, to: &SpiffeId, settings: &Settings) -> Result<(), Rule> {
    let (from, to) = (from.trust_domain(), to.trust_domain());
    let listed = settings.domains.iter().any(|(a, b)| **a == *from && **b == *to);
    if from == to || listed { Ok(()) } else { Err(Rule::Domain) }
}

/// Whether `id` may begin a chain of such a mode.
pub(super) fn origin(id: &SpiffeId, mode: Mode, settings: &Settings) -> Result<(), Rule> {
    match settings.origin(id) {
        None => Err(Rule::Origin),
        Some(widest) if mode > widest => Err(Rule::OriginMode),
        Some(_) => Ok(()),
    }
}

fn first(claims: &Claims) -> Result<(), Rule> {
    if claims.previous.is_some() {
        return Err(Rule::Previous);
    }
    if claims.root != claims.issuer {
        return Err(Rule::Root);
    }
    Ok(())
}

fn link(claims: &Claims, parent: &Claims, digest: &[u8; 32]) -> Result<(), Rule> {
    if claims.previous.as_ref() != Some(digest) {
        return Err(Rule::Previous);
    }
    if claims.issuer != parent.audience {
        return Err(Rule::Link);
    }
    if claims.expires > parent.expires {
        return Err(Rule::OutlivesParent);
    }
    Ok(())
}

fn same(claims: &Claims, first: &Claims) -> Result<(), Rule> {
    let Claims { root, user, tenant, run, .. } = first;
    if claims.root != *root {
        Err(Rule::Changed("sub"))
    } else if claims.user != *user {
        Err(Rule::Changed("usr"))
    } else if claims.tenant != *tenant {
        Err(Rule::Changed("ten"))
    } else if claims.run != *run {
        Err(Rule::Changed("run"))
    } else {
        Ok(())
    }
}

fn alone(hop: &Hop, now: u64) -> Result<(), Rule> {
    let claims = hop.claims();
    if claims.issued > now.saturating_add(SKEW) {
        return Err(Rule::Future);
    }
    if claims.expires <= now {
        return Err(Rule::Expired);
    }
    if claims.expires > hop.not_after() {
        return Err(Rule::OutlivesSvid);
    }
    Ok(())
}

fn shown(claims: &Claims, arrival: &Arrival<'_>, own: &SpiffeId, now: u64) -> Result<(), Rule> {
    if claims.issuer != *arrival.peer {
        return Err(Rule::Presenter);
    }
    if claims.audience != *own {
        return Err(Rule::Audience);
    }
    if claims.issued.saturating_add(FRESH) < now {
        return Err(Rule::Stale);
    }
    if *claims.http_method != *arrival.http_method {
        return Err(Rule::HttpMethod);
    }
    if *claims.method != *arrival.method {
        return Err(Rule::Method);
    }
    if claims.body != *Sha256::digest(arrival.body) {
        return Err(Rule::Body);
    }
    Ok(())
}

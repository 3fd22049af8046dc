//! The first hop of a chain, or the next one.
//!
//! What would be refused where it arrives isn't made: whoever asks for more than it was given is told here.

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    Capabilities, Chain, Hop, LONGEST, Mode, Rule, SEPARATOR, Settings, rules,
    token::{self, Claims, WriteError},
};
use crate::identity::{Algorithm, SpiffeId, Svid};

/// In the order in which they are tried. RSA keys sign in the form that needs no old padding.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa, Algorithm::Ps256];

/// The call that a hop is made for, and what the hop is to allow.
#[derive(Clone, Copy, Debug)]
pub struct Next<'a> {
    /// The id of the call, by which the neighbour's ledger finds it in ours.
    pub id: Uuid,
    /// The proxy that it goes to.
    pub to: &'a SpiffeId,
    /// How far those after it may go; as far as is possible, if it isn't said.
    pub mode: Option<Mode>,
    /// What those after it are restricted to, beside what they are already.
    pub capabilities: &'a Capabilities,
    /// The HTTP method.
    pub http_method: &'a str,
    /// The method of the message, as it is on the wire.
    pub method: &'a str,
    /// The body, to the byte.
    pub body: &'a [u8],
}

/// Why there is no hop.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The chain wasn't made for our SVID of now.
    #[error("the chain was made for `{0}`")]
    NotOurs(SpiffeId),
    /// It would be one hop too many.
    #[error("the chain has {0} hops already")]
    TooDeep(usize),
    /// The hop would be refused.
    #[error("no such hop can be made: {0}")]
    Rule(Rule),
    /// The chain would come back to somebody.
    #[error("`{0}` is in the chain already")]
    Loop(SpiffeId),
    /// The chain would be longer than a header may be.
    #[error("the chain would be longer than {LONGEST} bytes")]
    TooLong,
    /// The key is of a kind that doesn't sign tokens.
    #[error("our key is of a kind that signs no tokens")]
    Key,
    /// It can't be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Begins a chain: the value of the header. `user` is opaque to everybody else. `now` is in Unix seconds.
pub fn originate(
    svid: &Svid,
    settings: &Settings,
    run: Uuid,
    user: Option<&str>,
    next: &Next<'_>,
    now: u64,
) -> Result<String, MintError> {
    let widest = settings.origin(&svid.id).ok_or(MintError::Rule(Rule::Origin))?;
    let mode = next.mode.unwrap_or(widest);
    if mode > widest {
        return Err(MintError::Rule(Rule::OriginMode));
    }
    let given = Given {
        root: svid.id.clone(),
        user: user.map(Into::into),
        tenant: settings.tenant.clone(),
        run,
        depth: 0,
        previous: None,
        mode,
        expires: now.saturating_add(settings.lifetime.as_secs()),
    };
    mint(svid, given, &[], settings, next, now)
}

/// Adds a hop to a chain that was made for us: the value of the header. `now` is in Unix seconds.
pub fn extend(
    svid: &Svid,
    chain: &Chain,
    settings: &Settings,
    next: &Next<'_>,
    now: u64,
) -> Result<String, MintError> {
    let (Some(parent), depth) = (chain.last(), chain.depth()) else {
        return Err(MintError::TooDeep(0));
    };
    if parent.audience != svid.id {
        return Err(MintError::NotOurs(parent.audience.clone()));
    }
    if depth >= settings.deepest() {
        return Err(MintError::TooDeep(depth));
    }
    let mode = next.mode.unwrap_or(parent.mode);
    if mode > parent.mode {
        return Err(MintError::Rule(Rule::WiderMode));
    }
    let limit = chain.hops().map(Hop::capabilities).filter(|limit| limit.limit()).last();
    let covered = limit.is_none_or(|limit| limit.covers(next.capabilities));
    if next.capabilities.limit() && !covered {
        return Err(MintError::Rule(Rule::WiderCapabilities));
    }
    let last = chain.text().rsplit(SEPARATOR).next().unwrap_or_default();
    let given = Given {
        root: parent.root.clone(),
        user: parent.user.clone(),
        tenant: parent.tenant.clone(),
        run: parent.run,
        depth: parent.depth.saturating_add(1),
        previous: Some(token::digest(last)),
        mode,
        expires: parent.expires,
    };
    let before: Vec<_> = chain.hops().map(|hop| &hop.principal().id).collect();
    let hop = mint(svid, given, &before, settings, next, now)?;
    let header = format!("{}{SEPARATOR}{hop}", chain.text());
    if header.len() > LONGEST { Err(MintError::TooLong) } else { Ok(header) }
}

/// What a user is called in chains that begin in this trust domain: nobody outside of it can tell who that is
/// without having the name already, and two domains can't tell that theirs is the same.
pub fn opaque(user: &str, svid: &Svid) -> String {
    let mut hash = Sha256::new();
    for part in ["lictor-user", svid.id.trust_domain(), user] {
        hash.update(part);
        hash.update([0]);
    }
    let digest: [u8; 32] = hash.finalize().into();
    BASE64URL_NOPAD.encode(digest.first_chunk::<16>().unwrap_or(&[0; 16]))
}

/// What comes from the chain and not from the call.
struct Given {
    root: SpiffeId,
    user: Option<Box<str>>,
    tenant: Option<Box<str>>,
    run: Uuid,
    depth: u64,
    previous: Option<[u8; 32]>,
    mode: Mode,
    expires: u64,
}

fn mint(
    svid: &Svid,
    given: Given,
    before: &[&SpiffeId],
    settings: &Settings,
    next: &Next<'_>,
    now: u64,
) -> Result<String, MintError> {
    let expires = given.expires.min(svid.not_after);
    if expires <= now {
        return Err(MintError::Rule(Rule::Expired));
    }
    rules::domains(&svid.id, next.to, settings).map_err(MintError::Rule)?;
    let issuers: Vec<_> = before.iter().copied().chain([&svid.id]).collect();
    if let Some((_, id)) = rules::way_back(&issuers, Some(next.to), settings) {
        return Err(MintError::Loop(id.clone()));
    }
    let algorithm = svid.choose(&ALGORITHMS).ok_or(MintError::Key)?;
    let Given { root, user, tenant, run, depth, previous, mode, expires: _ } = given;
    let claims = Claims {
        issuer: svid.id.clone(),
        audience: next.to.clone(),
        root,
        user,
        tenant,
        run,
        depth,
        previous,
        mode,
        capabilities: next.capabilities.clone(),
        issued: now,
        expires,
        id: BASE64URL_NOPAD.encode(next.id.as_bytes()).into(),
        body: Sha256::digest(next.body).into(),
        http_method: next.http_method.into(),
        method: next.method.into(),
    };
    let hop = claims.sign(svid, algorithm)?;
    if hop.len() > LONGEST { Err(MintError::TooLong) } else { Ok(hop) }
}

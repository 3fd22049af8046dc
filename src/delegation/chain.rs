//! [`Chain`]: a header that holds by all rules, and [`Verifier`], which alone makes one, less that it may have been
//! shown before.
//!
//! Whose signature it is costs two checks of a signature a hop: the hop's own and that of its certificate.
//! Both are remembered, the certificates of everybody who signed and the hops that others build on; the last
//! hop is of one call, so it never is. What is remembered is that a text was signed by whom, under one
//! generation of the bundles and until the first certificate ends. Everything else is checked each time.
//!
//! INVARIANT: a hop is remembered only once the chain that it came in holds as a whole, so what fills that
//! cache was signed for us by somebody who is believed.

use std::{fmt, sync::Arc};

use quick_cache::sync::Cache;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use super::{
    Capabilities, LONGEST, Mode, Presented, Rule, SEPARATOR, Settings,
    rules::{self, Step},
    token::{self, Claims, Token},
};
use crate::identity::{Principal, Proof, Signer, Snapshot, SpiffeId};

/// Hops that are remembered; each has at most the length of a header.
const KNOWN_HOPS: usize = 1024;

/// SVIDs that are remembered.
const KNOWN_SIGNERS: usize = 1024;

/// Verifies chains, and remembers whose signatures held.
#[derive(Debug)]
pub struct Verifier {
    hops: Cache<[u8; 32], Known<Hop>>,
    signers: Cache<[u8; 32], Known<Signer>>,
}

/// What came with a call, and where from.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The value of the one `Agent-Delegation` header.
    pub header: &'a str,
    /// Who shows it: the SPIFFE ID of the connection.
    pub peer: &'a SpiffeId,
    /// The HTTP method.
    pub http_method: &'a str,
    /// The method of the message, as it is on the wire.
    pub method: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// What a chain is verified against.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Our own SVID and the trust bundles.
    pub snapshot: &'a Snapshot,
    /// The operator's rules.
    pub settings: &'a Settings,
    /// Unix seconds.
    pub now: u64,
}

/// Delegation from a root to this proxy, proven.
///
/// Only [`Verifier::verify`] and [`Presented::taken`] make one. It is of one call and has no meaning for another.
///
/// ```compile_fail,E0451
/// let forged = lictor::delegation::Chain { hops: Vec::new(), text: "".into() };
/// ```
#[derive(Debug)]
pub struct Chain {
    /// Never empty.
    hops: Vec<Arc<Hop>>,
    text: Box<str>,
}

/// One hop of a chain.
#[derive(Debug)]
pub struct Hop {
    claims: Claims,
    principal: Principal,
    not_after: u64,
}

/// Who of a chain objects to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Which hop, the root's being 0.
    pub hop: usize,
    /// Whose.
    pub id: SpiffeId,
    /// To what.
    pub to: Limit,
}

/// What a call goes beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The hop's mode.
    Mode,
    /// The hop's capabilities.
    Capabilities,
    /// What grants say of how far calls of the hop's issuer may be passed on.
    Grants,
    /// The policies, asked with the hop's issuer for principal.
    Policies,
}

/// Why a header is no chain. Hops are counted from 0, the root's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChainError {
    /// We have no valid SVID, so nothing can be made for us.
    #[error("no valid SVID of our own")]
    NotReady,
    /// Longer than [`LONGEST`].
    #[error("the chain is longer than {LONGEST} bytes")]
    TooLong,
    /// No hop at all.
    #[error("the chain is empty")]
    Empty,
    /// More hops than the settings allow.
    #[error("hop {limit} is one too many")]
    TooDeep {
        /// How many there may be.
        limit: usize,
    },
    /// A hop breaks a rule.
    #[error("hop {hop}: {rule}")]
    Hop {
        /// Which.
        hop: usize,
        /// The rule.
        rule: Rule,
    },
    /// The chain comes back to somebody.
    #[error("hop {hop} goes back to `{id}`")]
    Loop {
        /// The hop that leads back.
        hop: usize,
        /// To whom.
        id: SpiffeId,
    },
    /// The last hop was shown before.
    #[error("hop {hop} was shown before")]
    Replayed {
        /// Which.
        hop: usize,
    },
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hop, id, to } = self;
        let limit = match to {
            Limit::Mode => "its mode",
            Limit::Capabilities => "its capabilities",
            Limit::Grants => "the grants to it",
            Limit::Policies => "the policies for it",
        };
        write!(f, "hop {hop}, `{id}`: {limit}")
    }
}

impl Verifier {
    /// A verifier that remembers nothing yet.
    pub fn new() -> Self {
        Self { hops: Cache::new(KNOWN_HOPS), signers: Cache::new(KNOWN_SIGNERS) }
    }

    /// Verifies what came with a call, by all rules but that its last hop is shown once.
    pub fn verify(&self, arrival: &Arrival<'_>, site: &Site<'_>) -> Result<Presented, ChainError> {
        let own = &site.snapshot.usable(site.now).map_err(|_| ChainError::NotReady)?.id;
        let texts = split(arrival.header, site.settings.deepest())?;
        let mut hops = Vec::with_capacity(texts.len());
        for (at, text) in texts.iter().enumerate() {
            let digest = token::digest(text);
            let hop = self.hop(text, &digest, site);
            let hop = hop.map_err(|rule| ChainError::Hop { hop: at, rule })?;
            hops.push((digest, hop));
        }
        let hop = hops.iter().map(|(digest, known)| (&*known.value, digest));
        rules::check(hop, arrival, own, site)?;
        let at = hops.len().saturating_sub(1);
        for (digest, known) in hops.iter().take(at) {
            self.hops.insert(*digest, known.clone());
        }
        let hops = hops.into_iter().map(|(_, known)| known.value).collect();
        Ok(Presented(Chain { hops, text: arrival.header.into() }))
    }

    /// A hop whose signature holds.
    fn hop(&self, text: &str, digest: &[u8; 32], site: &Site<'_>) -> Result<Known<Hop>, Rule> {
        if let Some(known) = self.hops.get(digest).filter(|known| known.holds(site)) {
            return Ok(known);
        }
        let token = Token::read(text)?;
        let Known { value: signer, until, generation } = self.signer(&token.certificates, site)?;
        signer.check(token.algorithm, token.signed.as_bytes(), &token.signature)?;
        if *signer.id() != token.claims.issuer {
            return Err(Rule::Issuer(signer.id().clone()));
        }
        let principal = Principal { id: token.claims.issuer.clone(), proof: Proof::Svid };
        let hop = Hop { claims: token.claims, principal, not_after: signer.not_after() };
        Ok(Known { value: Arc::new(hop), until, generation })
    }

    fn signer(
        &self,
        certificates: &[CertificateDer<'_>],
        site: &Site<'_>,
    ) -> Result<Known<Signer>, Rule> {
        let digest = digest(certificates);
        if let Some(known) = self.signers.get(&digest).filter(|known| known.holds(site)) {
            return Ok(known);
        }
        let signer = site.snapshot.verify_signer(certificates, site.now)?;
        let known = Known {
            generation: site.snapshot.generation(),
            until: signer.valid_until(),
            value: Arc::new(signer),
        };
        self.signers.insert(digest, known.clone());
        Ok(known)
    }
}

impl Default for Verifier {
    fn default() -> Self {
        Self::new()
    }
}

/// Something that was verified, and for how long that holds.
#[derive(Debug)]
struct Known<T> {
    value: Arc<T>,
    /// The generation of the bundles.
    generation: u64,
    /// End of the first certificate behind it, Unix seconds.
    until: u64,
}

impl<T> Known<T> {
    fn holds(&self, site: &Site<'_>) -> bool {
        self.generation == site.snapshot.generation() && site.now < self.until
    }
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), ..*self }
    }
}

impl Chain {
    /// The hops, from the root's to the caller's.
    pub fn hops(&self) -> impl ExactSizeIterator<Item = &Hop> + Clone {
        self.hops.iter().map(|hop| &**hop)
    }

    /// Number of hops.
    pub fn depth(&self) -> usize {
        self.hops.len()
    }

    /// When the first of the hops expires, Unix seconds: since none outlives the one before, the last.
    pub fn expires(&self) -> u64 {
        self.hops().map(Hop::expires).min().unwrap_or_default()
    }

    /// The header it was verified from.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn last(&self) -> Option<&Claims> {
        self.hops.last().map(|hop| &hop.claims)
    }
}

impl Hop {
    /// Who delegates.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The root of its chain.
    pub fn root(&self) -> &SpiffeId {
        &self.claims.root
    }

    /// Its id, by which it can be revoked.
    pub fn id(&self) -> &str {
        &self.claims.id
    }

    /// The call that it was made for, in the ledger of whoever made it; `None` if it isn't told by its id.
    pub fn call(&self) -> Option<uuid::Uuid> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(self.claims.id.as_bytes()).ok()?;
        uuid::Uuid::from_slice(&bytes).ok()
    }

    /// The run it belongs to.
    pub fn run(&self) -> uuid::Uuid {
        self.claims.run
    }

    /// The user on whose behalf it was made, as the root names them.
    pub fn user(&self) -> Option<&str> {
        self.claims.user.as_deref()
    }

    /// The tenant that it was made for, as the operator of the root names it.
    pub fn tenant(&self) -> Option<&str> {
        self.claims.tenant.as_deref()
    }

    /// How far it lets those after it go.
    pub fn mode(&self) -> Mode {
        self.claims.mode
    }

    /// What it restricts those after it to.
    pub fn capabilities(&self) -> &Capabilities {
        &self.claims.capabilities
    }

    /// When it expires, Unix seconds.
    pub fn expires(&self) -> u64 {
        self.claims.expires
    }

    /// What it says of itself and those after it.
    pub(super) fn step(&self) -> Step<'_> {
        let Claims { issuer, mode, capabilities, .. } = &self.claims;
        Step { id: issuer, mode: *mode, capabilities }
    }

    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// End of the validity of the SVID that signed it, Unix seconds.
    pub(super) fn not_after(&self) -> u64 {
        self.not_after
    }
}

fn split(header: &str, limit: usize) -> Result<Vec<&str>, ChainError> {
    if header.len() > LONGEST {
        return Err(ChainError::TooLong);
    }
    if header.is_empty() {
        return Err(ChainError::Empty);
    }
    let texts: Vec<_> = header.split(SEPARATOR).take(limit.saturating_add(1)).collect();
    if texts.len() > limit { Err(ChainError::TooDeep { limit }) } else { Ok(texts) }
}

fn digest(certificates: &[CertificateDer<'_>]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for der in certificates {
        hash.update(der.len().to_be_bytes());
        hash.update(der);
    }
    hash.finalize().into()
}

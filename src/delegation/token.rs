//! One hop of a chain as it is written: a compact JWS (RFC 7515 §7.1).
//!
//! Reading is strict, so that two readers can't take a token for two things: three parts of canonical
//! base64url, JSON without duplicate keys, the members named here and no others. There is no `crit`, no
//! `jku`, no `jwk` and no `kid`: the key is that of the leaf in `x5c` and of nothing else.
//!
//! Reading proves nothing: [`super::chain`] checks the signature and what stands behind it.

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Capabilities, CapabilityError, Mode};
use crate::{
    identity::{Algorithm, SignError, SpiffeId, SpiffeIdError, Svid},
    protocol::json::{self, Kind, ScanError, Value},
};

/// The `typ` of a hop: no other token of the same key can be taken for one.
const TYPE: &str = "agent-delegation+jwt";

/// Objects and arrays within each other: the claims and `cap`.
const LIMITS: json::Limits = json::Limits { depth: 2 };

/// Longest `usr`, `ten` and `mth`, in bytes.
pub const LONGEST_TEXT: usize = 256;

/// Longest `htm`, in bytes.
const LONGEST_HTTP_METHOD: usize = 32;

const MEMBERS: [&str; 3] = ["alg", "typ", "x5c"];

const CLAIMS: [&str; 16] = [
    "aud", "bh", "cap", "dep", "exp", "htm", "iat", "iss", "jti", "mode", "mth", "prv", "run",
    "sub", "ten", "usr",
];

/// What a hop says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claims {
    /// `iss`: who delegates.
    pub(super) issuer: SpiffeId,
    /// `aud`: to whom.
    pub(super) audience: SpiffeId,
    /// `sub`: who began the chain.
    pub(super) root: SpiffeId,
    /// `usr`: for which user, as the root names them.
    pub(super) user: Option<Box<str>>,
    /// `ten`: for which tenant, as the root's operator names them.
    pub(super) tenant: Option<Box<str>>,
    /// `run`: the run that all calls of the chain belong to.
    pub(super) run: Uuid,
    /// `dep`: how many hops are before this one.
    pub(super) depth: u64,
    /// `prv`: digest of the hop before.
    pub(super) previous: Option<[u8; 32]>,
    pub(super) mode: Mode,
    /// `cap`
    pub(super) capabilities: Capabilities,
    /// `iat`, Unix seconds.
    pub(super) issued: u64,
    /// `exp`, Unix seconds; at this second it is over.
    pub(super) expires: u64,
    /// `jti`: 128 random bits in base64url.
    pub(super) id: Box<str>,
    /// `bh`: SHA-256 of the request's body.
    pub(super) body: [u8; 32],
    /// `htm`: the request's HTTP method.
    pub(super) http_method: Box<str>,
    /// `mth`: the method that the request's message names.
    pub(super) method: Box<str>,
}

/// A hop that was read, and nothing more.
#[derive(Debug)]
pub(super) struct Token<'a> {
    pub(super) algorithm: Algorithm,
    /// `x5c`, leaf first; never empty.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) claims: Claims,
    /// What the signature is over.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

/// Why a text is no hop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not three parts between dots.
    #[error("a token has three parts")]
    Parts,
    /// A part isn't base64url without padding, in its one canonical form.
    #[error("the {0} isn't canonical base64url")]
    Base64(&'static str),
    /// A part isn't strict JSON.
    #[error("the {0} isn't strict JSON: {1}")]
    Json(&'static str, ScanError),
    /// The header or the claims aren't an object.
    #[error("the {0} is no object")]
    Object(&'static str),
    /// A member that has no meaning here. `crit` is one.
    #[error("the {0} has a member that isn't known")]
    Unknown(&'static str),
    /// A member that has to be there.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A member of another type, form or length.
    #[error("`{0}` isn't of its form")]
    Form(&'static str),
    /// A member that should be a SPIFFE ID.
    #[error("`{0}` is no SPIFFE ID: {1}")]
    Id(&'static str, SpiffeIdError),
    /// `cap`
    #[error("`cap` isn't of its form: {0}")]
    Capabilities(#[from] CapabilityError),
}

/// Whether a text has the form of a hop, whoever signed it and whatever it says.
///
/// # Errors
/// The first fault in its form.
pub fn check_form(compact: &str) -> Result<(), TokenError> {
    Token::read(compact).map(drop)
}

impl<'a> Token<'a> {
    /// Reads a compact JWS.
    pub(super) fn read(compact: &'a str) -> Result<Self, TokenError> {
        let (signed, signature) = compact.rsplit_once('.').ok_or(TokenError::Parts)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Parts)?;
        if claims.contains('.') {
            return Err(TokenError::Parts);
        }
        let (algorithm, certificates) = read_header(&decode("header", header)?)?;
        let claims = Claims::read(&decode("payload", claims)?)?;
        let signature = decode("signature", signature)?;
        Ok(Self { algorithm, certificates, claims, signed, signature })
    }
}

impl Claims {
    fn read(bytes: &[u8]) -> Result<Self, TokenError> {
        let document =
            json::scan(bytes, LIMITS).map_err(|error| TokenError::Json("payload", error))?;
        let claims = Members::new("payload", document.root(), &CLAIMS)?;
        Ok(Self {
            issuer: claims.id("iss")?,
            audience: claims.id("aud")?,
            root: claims.id("sub")?,
            user: match claims.optional("usr") {
                Some(_) => Some(claims.bounded("usr", LONGEST_TEXT)?),
                None => None,
            },
            tenant: match claims.optional("ten") {
                Some(_) => Some(claims.bounded("ten", LONGEST_TEXT)?),
                None => None,
            },
            run: run(&claims.text("run")?).ok_or(TokenError::Form("run"))?,
            depth: claims.number("dep")?,
            previous: match claims.optional("prv") {
                Some(_) => Some(claims.bytes("prv")?),
                None => None,
            },
            mode: Mode::parse(&claims.text("mode")?).ok_or(TokenError::Form("mode"))?,
            capabilities: match claims.optional("cap") {
                Some(list) => Capabilities::parse(&texts("cap", list)?)?,
                None => Capabilities::UNLIMITED,
            },
            issued: claims.number("iat")?,
            expires: claims.number("exp")?,
            id: claims.bytes::<16>("jti").and(claims.text("jti"))?.into(),
            body: claims.bytes("bh")?,
            http_method: claims.bounded("htm", LONGEST_HTTP_METHOD)?,
            method: claims.bounded("mth", LONGEST_TEXT)?,
        })
    }

    /// Writes the claims and signs them.
    pub(super) fn sign(&self, svid: &Svid, algorithm: Algorithm) -> Result<String, WriteError> {
        bounded("mth", &self.method, LONGEST_TEXT)?;
        bounded("htm", &self.http_method, LONGEST_HTTP_METHOD)?;
        for (name, text) in [("usr", &self.user), ("ten", &self.tenant)] {
            if let Some(text) = text {
                bounded(name, text, LONGEST_TEXT)?;
            }
        }
        if self.run.get_version_num() != 7 {
            return Err(TokenError::Form("run").into());
        }
        let x5c = svid.certificates().iter().map(|der| BASE64.encode(der)).collect();
        let header = encode(&Header { alg: algorithm.as_str(), typ: TYPE, x5c })?;
        let claims = encode(&Written {
            iss: self.issuer.as_str(),
            aud: self.audience.as_str(),
            sub: self.root.as_str(),
            usr: self.user.as_deref(),
            ten: self.tenant.as_deref(),
            run: self.run,
            dep: self.depth,
            prv: self.previous.map(|digest| BASE64URL_NOPAD.encode(&digest)),
            mode: self.mode.as_str(),
            cap: self.capabilities.to_texts(),
            iat: self.issued,
            exp: self.expires,
            jti: &self.id,
            bh: BASE64URL_NOPAD.encode(&self.body),
            htm: &self.http_method,
            mth: &self.method,
        })?;
        let mut token = format!("{header}.{claims}");
        let signature = svid.sign(algorithm, token.as_bytes())?;
        token.push('.');
        BASE64URL_NOPAD.encode_append(&signature, &mut token);
        Ok(token)
    }
}

/// Why a hop can't be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Something that no receiver would read.
    #[error(transparent)]
    Form(#[from] TokenError),
    /// It can't be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// It can't be put into JSON.
    #[error("the claims can't be written")]
    Json(#[from] serde_json::Error),
}

/// What the next hop commits to.
pub(super) fn digest(compact: &str) -> [u8; 32] {
    Sha256::digest(compact).into()
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'a str,
    typ: &'a str,
    x5c: Vec<String>,
}

#[derive(Serialize)]
struct Written<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usr: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ten: Option<&'a str>,
    run: Uuid,
    dep: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prv: Option<String>,
    mode: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<Vec<String>>,
    iat: u64,
    exp: u64,
    jti: &'a str,
    bh: String,
    htm: &'a str,
    mth: &'a str,
}

fn encode(part: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(BASE64URL_NOPAD.encode(&serde_json::to_vec(part)?))
}

fn decode(what: &'static str, text: &str) -> Result<Vec<u8>, TokenError> {
    BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| TokenError::Base64(what))
}

fn read_header(bytes: &[u8]) -> Result<(Algorithm, Vec<CertificateDer<'static>>), TokenError> {
    let document = json::scan(bytes, LIMITS).map_err(|error| TokenError::Json("header", error))?;
    let header = Members::new("header", document.root(), &MEMBERS)?;
    if header.text("typ")? != TYPE {
        return Err(TokenError::Form("typ"));
    }
    let algorithm = Algorithm::parse(&header.text("alg")?).ok_or(TokenError::Form("alg"))?;
    let certificates = texts("x5c", header.required("x5c")?)?;
    let der = |text: &Cow<'_, str>| Some(BASE64.decode(text.as_bytes()).ok()?.into());
    let certificates: Option<Vec<_>> = certificates.iter().map(der).collect();
    match certificates {
        Some(certificates) if !certificates.is_empty() => Ok((algorithm, certificates)),
        Some(_) | None => Err(TokenError::Form("x5c")),
    }
}

/// The members of an object that has no others.
struct Members<'a>(Value<'a>);

impl<'a> Members<'a> {
    fn new(what: &'static str, root: Value<'a>, known: &[&str]) -> Result<Self, TokenError> {
        if root.kind() != Kind::Object {
            return Err(TokenError::Object(what));
        }
        if root.members().all(|member| known.contains(&&*member.name)) {
            Ok(Self(root))
        } else {
            Err(TokenError::Unknown(what))
        }
    }

    fn optional(&self, name: &'static str) -> Option<Value<'a>> {
        self.0.member(name)
    }

    fn required(&self, name: &'static str) -> Result<Value<'a>, TokenError> {
        self.optional(name).ok_or(TokenError::Missing(name))
    }

    fn text(&self, name: &'static str) -> Result<Cow<'a, str>, TokenError> {
        self.required(name)?.as_str().ok_or(TokenError::Form(name))
    }

    fn bounded(&self, name: &'static str, longest: usize) -> Result<Box<str>, TokenError> {
        let text = self.text(name)?;
        bounded(name, &text, longest)?;
        Ok(text.into())
    }

    fn id(&self, name: &'static str) -> Result<SpiffeId, TokenError> {
        SpiffeId::parse(&self.text(name)?).map_err(|error| TokenError::Id(name, error))
    }

    /// A whole number without sign, fraction or exponent.
    fn number(&self, name: &'static str) -> Result<u64, TokenError> {
        let token = self.required(name)?.as_number();
        token.and_then(|token| token.parse().ok()).ok_or(TokenError::Form(name))
    }

    /// So many bytes in base64url.
    fn bytes<const N: usize>(&self, name: &'static str) -> Result<[u8; N], TokenError> {
        let decoded = BASE64URL_NOPAD.decode(self.text(name)?.as_bytes()).ok();
        decoded.and_then(|bytes| bytes.try_into().ok()).ok_or(TokenError::Form(name))
    }
}

fn texts<'a>(name: &'static str, list: Value<'a>) -> Result<Vec<Cow<'a, str>>, TokenError> {
    if list.kind() != Kind::Array {
        return Err(TokenError::Form(name));
    }
    list.elements().map(|text| text.as_str().ok_or(TokenError::Form(name))).collect()
}

fn bounded(name: &'static str, text: &str, longest: usize) -> Result<(), TokenError> {
    let fine = (1..=longest).contains(&text.len()) && !text.chars().any(char::is_control);
    if fine { Ok(()) } else { Err(TokenError::Form(name)) }
}

/// A UUIDv7 in the one form that RFC 9562 §4 writes.
fn run(text: &str) -> Option<Uuid> {
    let run = Uuid::try_parse(text).ok()?;
    let canonical = run.hyphenated().to_string() == text && run.get_version_num() == 7;
    canonical.then_some(run)
}

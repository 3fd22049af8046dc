//! The rules for the certificates of an X.509-SVID (X509-SVID.md §2 to §5, `spiffe/spiffe`).
//!
//! `webpki` checks signatures, validity, name constraints and CA flags along the path. What makes a
//! certificate an SVID is checked here, with `x509-parser`, and by nobody else: exactly one URI name that
//! is a SPIFFE ID, and key usages that can't sign certificates.
//!
//! Refuses whatever it can't read: a name or extension that doesn't parse counts as a fault, never as
//! absent.

use rustls::pki_types::CertificateDer;
use x509_parser::{
    oid_registry,
    prelude::{FromDer, GeneralName, X509Certificate},
};

use super::{SpiffeId, SpiffeIdError};

/// What a leaf says about its holder. Reading it proves nothing: the path to a root is checked by
/// [`super::TrustBundles`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The one SPIFFE ID.
    pub id: SpiffeId,
    /// Start of validity, seconds since the Unix epoch.
    pub not_before: u64,
    /// End of validity, seconds since the Unix epoch; at this second it is invalid.
    pub not_after: u64,
}

/// Why a certificate is no part of an SVID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SvidError {
    /// Not one DER certificate, or an extension or name in it doesn't parse or comes twice.
    #[error("the certificate can't be read")]
    Unreadable,
    /// No URI name, or more than one (X509-SVID.md §2).
    #[error("the leaf has {0} URI names, not exactly one")]
    UriNames(usize),
    /// The URI name is no SPIFFE ID of a workload.
    #[error("the leaf's URI name is no SPIFFE ID")]
    Id(#[from] SpiffeIdError),
    /// The leaf is a CA (§4.1).
    #[error("the leaf is a CA")]
    LeafIsCa,
    /// Key usage is absent or not critical, lacks `digitalSignature`, or allows signing certificates or
    /// revocation lists (§4.3).
    #[error("the leaf's key usage is not that of an SVID")]
    KeyUsage,
    /// Extended key usage is present without both `serverAuth` and `clientAuth` (§4.4).
    #[error("the leaf's extended key usage lacks serverAuth or clientAuth")]
    ExtendedKeyUsage,
    /// An intermediate isn't a CA or must not sign certificates (§4.1, §4.3).
    #[error("an intermediate may not sign certificates")]
    Intermediate,
    /// The leaf's key is of a kind whose signatures can't be checked here.
    #[error("the leaf's key is of a kind that isn't known here")]
    Key,
}

/// The kinds of key whose signatures can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    P256,
    P384,
    Ed25519,
    Rsa,
}

/// Checks a leaf by every rule that doesn't need a bundle or a clock.
pub fn parse_leaf(der: &CertificateDer<'_>) -> Result<Leaf, SvidError> {
    let certificate = parse(der)?;
    let id = spiffe_id(&certificate)?;
    if is_ca(&certificate)? {
        return Err(SvidError::LeafIsCa);
    }
    let key_usage = certificate.key_usage().map_err(unreadable)?.ok_or(SvidError::KeyUsage)?;
    let flags = key_usage.value;
    let signs_only_itself =
        flags.digital_signature() && !flags.key_cert_sign() && !flags.crl_sign();
    if !key_usage.critical || !signs_only_itself {
        return Err(SvidError::KeyUsage);
    }
    let extended = certificate.extended_key_usage().map_err(unreadable)?;
    if extended.is_some_and(|usage| !usage.value.server_auth || !usage.value.client_auth) {
        return Err(SvidError::ExtendedKeyUsage);
    }
    let (not_before, not_after) = validity(&certificate)?;
    Ok(Leaf { id, not_before, not_after })
}

/// Checks what `webpki` doesn't: that an intermediate's key usage allows it to sign certificates.
pub(super) fn check_intermediate(der: &CertificateDer<'_>) -> Result<(), SvidError> {
    let certificate = parse(der)?;
    let key_usage = certificate.key_usage().map_err(unreadable)?;
    let signs = key_usage.is_some_and(|usage| usage.value.key_cert_sign());
    if is_ca(&certificate)? && signs { Ok(()) } else { Err(SvidError::Intermediate) }
}

/// Checks that a certificate can be a root, and tells when it expires: `webpki` takes any certificate for
/// an anchor and doesn't look at an anchor's validity.
pub(super) fn parse_root(der: &CertificateDer<'_>) -> Result<u64, SvidError> {
    let certificate = parse(der)?;
    if !is_ca(&certificate)? {
        return Err(SvidError::Intermediate);
    }
    validity(&certificate).map(|(_, not_after)| not_after)
}

/// Until when a path through certificates of a chain stays one that was found at `now`, in Unix seconds: the end of
/// the first that hadn't ended by then. Those that had are on no path; in its last second, `webpki` takes one still.
pub fn valid_until(chain: &[CertificateDer<'_>], now: u64) -> Result<u64, SvidError> {
    let mut until = u64::MAX;
    for certificate in chain {
        let (_, end) = validity(&parse(certificate)?)?;
        if now <= end {
            until = until.min(end);
        }
    }
    Ok(until)
}

/// The public key of a leaf in the form that signatures are checked with: a point for elliptic curves,
/// an `RSAPublicKey` for RSA.
pub(super) fn public_key(der: &CertificateDer<'_>) -> Result<(KeyKind, Box<[u8]>), SvidError> {
    let certificate = parse(der)?;
    let key = certificate.public_key();
    let algorithm = &key.algorithm.algorithm;
    let kind = if *algorithm == oid_registry::OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
        match curve.ok_or(SvidError::Key)? {
            curve if curve == oid_registry::OID_EC_P256 => KeyKind::P256,
            curve if curve == oid_registry::OID_NIST_EC_P384 => KeyKind::P384,
            _ => return Err(SvidError::Key),
        }
    } else if *algorithm == oid_registry::OID_SIG_ED25519 {
        KeyKind::Ed25519
    } else if *algorithm == oid_registry::OID_PKCS1_RSAENCRYPTION {
        KeyKind::Rsa
    } else {
        return Err(SvidError::Key);
    };
    Ok((kind, key.subject_public_key.data.as_ref().into()))
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, SvidError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) | Err(_) => Err(SvidError::Unreadable),
    }
}

fn spiffe_id(certificate: &X509Certificate<'_>) -> Result<SpiffeId, SvidError> {
    let names = certificate.subject_alternative_name().map_err(unreadable)?;
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let mut uris = vec![];
    for name in names {
        match name {
            GeneralName::URI(uri) => uris.push(*uri),
            // Might be a URI in a form that another parser would read.
            GeneralName::Invalid(..) => return Err(SvidError::Unreadable),
            GeneralName::OtherName(..)
            | GeneralName::RFC822Name(_)
            | GeneralName::DNSName(_)
            | GeneralName::X400Address(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::EDIPartyName(_)
            | GeneralName::IPAddress(_)
            | GeneralName::RegisteredID(_) => {}
        }
    }
    match uris.as_slice() {
        [uri] => Ok(SpiffeId::parse(uri)?),
        others => Err(SvidError::UriNames(others.len())),
    }
}

fn is_ca(certificate: &X509Certificate<'_>) -> Result<bool, SvidError> {
    let constraints = certificate.basic_constraints().map_err(unreadable)?;
    Ok(constraints.is_some_and(|constraints| constraints.value.ca))
}

fn validity(certificate: &X509Certificate<'_>) -> Result<(u64, u64), SvidError> {
    let seconds = |time: i64| u64::try_from(time).map_err(|_| SvidError::Unreadable);
    let validity = certificate.validity();
    Ok((seconds(validity.not_before.timestamp())?, seconds(validity.not_after.timestamp())?))
}

fn unreadable(_: x509_parser::error::X509Error) -> SvidError {
    SvidError::Unreadable
}

//! Whose ledger it is: the genesis entry, signed with the SVID's key.
//!
//! rustls keys sign TLS messages; for ECDSA that is an ASN.1 `SEQUENCE { r, s }` (RFC 3279 §2.2.3), where a
//! JWS wants `r ‖ s` in fixed width (RFC 7518 §3.4).

use std::{error::Error, sync::Arc};

use rustls::{SignatureScheme, sign::CertifiedKey};
use x509_parser::der_parser::asn1_rs::{FromDer, Integer, Sequence};

use crate::{
    identity::Source,
    ledger::{Genesis, Signer},
};

/// The JWS algorithms, in the order in which they are tried, with the width of `r` and `s` in bytes.
const ALGORITHMS: [(SignatureScheme, &str, Option<usize>); 3] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, "ES256", Some(32)),
    (SignatureScheme::ECDSA_NISTP384_SHA384, "ES384", Some(48)),
    (SignatureScheme::RSA_PKCS1_SHA256, "RS256", None),
];

/// The genesis for the identity of this moment; self-signed without one.
pub(super) fn of(source: Option<&Source>, now: u64) -> Genesis {
    let Some(source) = source else { return Genesis::default() };
    let snapshot = source.snapshot();
    let Ok(svid) = snapshot.usable(now) else { return Genesis::default() };
    Genesis {
        spiffe_id: Some(svid.id.as_str().to_owned()),
        signer: signer(Arc::clone(svid.certified_key())),
    }
}

fn signer(key: Arc<CertifiedKey>) -> Option<Signer> {
    let (scheme, algorithm, width) =
        ALGORITHMS.into_iter().find(|(scheme, ..)| key.key.choose_scheme(&[*scheme]).is_some())?;
    let certificates = key.cert.iter().map(|der| der.to_vec()).collect();
    let sign = move |input: &[u8]| {
        let signer = key.key.choose_scheme(&[scheme]).ok_or("the key can't sign")?;
        let signature = signer.sign(input)?;
        match width {
            Some(width) => fixed(&signature, width),
            None => Ok(signature),
        }
    };
    Some(Signer { algorithm, certificates, sign: Box::new(sign) })
}

/// `r ‖ s`, each padded to `width` bytes.
fn fixed(der: &[u8], width: usize) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let (_, pair) = Sequence::from_der(der).map_err(|_| "no ECDSA signature")?;
    let (rest, r) = Integer::from_der(&pair.content).map_err(|_| "no ECDSA signature")?;
    let (_, s) = Integer::from_der(rest).map_err(|_| "no ECDSA signature")?;
    let mut joined = Vec::with_capacity(2 * width);
    for number in [r, s] {
        let bytes = number.as_ref();
        let digits = match bytes {
            [0, digits @ ..] => digits,
            digits => digits,
        };
        let padding = width.checked_sub(digits.len()).ok_or("an ECDSA signature out of range")?;
        joined.resize(joined.len() + padding, 0);
        joined.extend_from_slice(digits);
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::fixed;

    #[test]
    fn ecdsa_signatures_become_fixed_width() {
        let mut expected = vec![0; 64];
        expected[31] = 0x80;
        expected[63] = 1;
        assert_eq!(fixed(&[0x30, 7, 2, 2, 0, 0x80, 2, 1, 1], 32).unwrap(), expected);
        assert!(fixed(&[0x30, 7, 2, 2, 0, 0x80, 2, 1, 1], 0).is_err());
        assert!(fixed(&[2, 1, 1], 32).is_err());
    }
}

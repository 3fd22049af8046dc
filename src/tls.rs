//! TLS as all of Lictor does it: one provider of cryptography, and whom to believe about a host.
//!
//! Who a workload is, by its SVID, is the business of [`identity`](crate::identity), which imports this. Here is
//! what doesn't depend on that, so that whoever dials a host checks it in the same way.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{self, CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
};

/// Why hosts can't be checked.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file of roots can't be used.
    #[error("the roots in `{path}` can't be used: {reason}")]
    Roots {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// rustls refuses the settings.
    #[error("TLS can't be set up")]
    Tls(#[source] Error),
}

/// The one provider of cryptography in this process.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(ring::default_provider()));
    Arc::clone(&PROVIDER)
}

/// TLS towards hosts whose names are checked against the roots in a PEM file, or against those that browsers
/// trust. We show no certificate.
///
/// # Errors
/// The file can't be read, or holds no certificate, or one that is none.
pub fn towards_hosts(roots: Option<&Path>) -> Result<ClientConfig, SetupError> {
    let roots = match roots {
        Some(path) => read_roots(path)?,
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn read_roots(path: &Path) -> Result<RootCertStore, SetupError> {
    let failed = |reason: String| SetupError::Roots { path: path.display().to_string(), reason };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| failed(e.to_string()))? {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        store.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(failed("it holds no certificate".to_owned()));
    }
    Ok(store)
}

/// Whether the other end of a handshake of TLS 1.2 has the key of its certificate.
pub(crate) fn verify_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = provider().signature_verification_algorithms;
    crypto::verify_tls12_signature(message, certificate, signed, &algorithms)
}

/// The same of TLS 1.3.
pub(crate) fn verify_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = provider().signature_verification_algorithms;
    crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
}

/// The signatures that either of them takes.
pub(crate) fn signature_schemes() -> Vec<SignatureScheme> {
    provider().signature_verification_algorithms.supported_schemes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::ca::Ca;

    #[test]
    fn only_a_file_of_certificates_tells_whom_to_believe() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("roots.pem");
        let root = Ca::new("one.test").root_pem();
        let damaged = root.replacen("MII", "MIA", 1);
        for (text, reason) in [
            (root.clone(), None),
            (format!("a comment\n{root}{root}"), None),
            (String::new(), Some("it holds no certificate")),
            ("no PEM".to_owned(), Some("it holds no certificate")),
            (root.replace("CERTIFICATE", "PUBLIC KEY"), Some("it holds no certificate")),
            (format!("{root}{damaged}"), Some("invalid peer certificate")),
        ] {
            std::fs::write(&path, &text).unwrap();
            match (towards_hosts(Some(&path)), reason) {
                (Ok(_), None) => {}
                (Err(SetupError::Roots { reason, .. }), Some(expected)) => {
                    assert!(reason.contains(expected), "{reason}: {text}");
                }
                (outcome, _) => panic!("{outcome:?}: {text}"),
            }
        }
        std::fs::remove_file(&path).unwrap();
        let missing = towards_hosts(Some(&path)).unwrap_err().to_string();
        assert!(missing.starts_with(&format!("the roots in `{}`", path.display())), "{missing}");
        assert!(towards_hosts(None).is_ok());
    }
}

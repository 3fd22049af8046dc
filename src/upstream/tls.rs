//! Upstream TLS: which server is believed.
//!
//! Resumption is off in both ways: rustls doesn't verify a certificate again when a session is resumed.

use std::{io, path::Path, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::SetupError;
use crate::{
    identity::{PeerError, Role, Source, SpiffeId, svid, tls::CertificateResolver},
    telemetry::Causes,
    tls,
};

/// Mutual TLS with exactly one workload: its SVID is verified against the bundle of its trust domain, its
/// ID has to be `expected`, and names of hosts don't matter.
/// For peers that are no upstreams, such as the callers of the demo; an [`Upstream`](super::Upstream) makes its own.
pub fn spiffe(source: &Arc<Source>, expected: SpiffeId) -> Result<ClientConfig, SetupError> {
    let verifier = ExactId { source: Arc::clone(source), expected };
    let mut config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(tls::SetupError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(CertificateResolver::new(Arc::clone(source))));
    finish(&mut config);
    Ok(config)
}

/// TLS with the host name checked against the roots in a PEM file, or against those that browsers trust.
pub(super) fn web_pki(roots: Option<&Path>) -> Result<ClientConfig, SetupError> {
    let mut config = tls::towards_hosts(roots)?;
    finish(&mut config);
    Ok(config)
}

/// Until when (Unix seconds) the SVID that the other end has shown by `now` needs no other look: it ends then, or a
/// certificate above it does. `None` if it showed none.
pub(super) fn svid_expiry(connection: &rustls::ClientConnection, now: u64) -> Option<u64> {
    let chain = connection.peer_certificates()?;
    let leaf = svid::parse_leaf(chain.first()?).ok()?;
    let above = svid::valid_until(chain, now).ok()?;
    // It may have ended since it was verified.
    Some(above.min(leaf.not_after))
}

/// Why a handshake failed. rustls shows errors of a verifier in their `Debug` form only.
pub(super) fn explain(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(Error::InvalidCertificate(CertificateError::Other(OtherError(ours)))) = inner else {
        return error.to_string();
    };
    Causes(ours).to_string()
}

fn finish(config: &mut ClientConfig) {
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
}

#[derive(Debug)]
struct ExactId {
    source: Arc<Source>,
    expected: SpiffeId,
}

impl ExactId {
    fn verify(&self, chain: &[CertificateDer<'_>], now: u64) -> Result<(), PeerError> {
        let snapshot = self.source.snapshot();
        snapshot.usable(now)?;
        let leaf = snapshot.bundles().verify(chain, Role::Server, now)?;
        if leaf.id == self.expected {
            return Ok(());
        }
        Err(PeerError::WrongId { expected: self.expected.clone(), shown: leaf.id })
    }
}

impl ServerCertVerifier for ExactId {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<_> = [leaf].into_iter().chain(intermediates).cloned().collect();
        match self.verify(&chain, now.as_secs()) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            // Whole, for our own log: `explain` takes it out again.
            Err(error) => Err(CertificateError::Other(OtherError(Arc::new(error))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls::verify_tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls::verify_tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        tls::signature_schemes()
    }
}

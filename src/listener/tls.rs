//! Downstream TLS: every caller shows an X.509-SVID.
//!
//! The verifier takes part in full handshakes only. A resumed TLS session skips it, and pingora gives no
//! way to turn rustls' session cache off (256 sessions a listener, in memory). So the whole check runs
//! again when a handshake is complete, resumed or not, and what it proves is what [`super::peer`] finds.
//! The callback can't refuse a connection.
//!
//! INVARIANT: a connection without a [`Peer`](crate::identity::Peer) has no identity; the exchange loop has to refuse all its
//! requests.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use pingora::{
    listeners::{TlsAccept, tls::TlsSettings},
    protocols::tls::TlsRef,
};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use super::{
    peer::Connection,
    refusals::{OnRefusal, Refusals},
};
use crate::{
    identity::{Source, tls::CertificateResolver},
    telemetry::Clock,
    tls,
};

/// TLS settings of a listener with [`super::Door::MutualTls`]: TLS 1.2 and 1.3, a client certificate is
/// mandatory, HTTP/2 and HTTP/1.1 by ALPN. Our own SVID and the bundles are those of the moment of each
/// handshake; nothing has to be restarted when they change.
pub fn settings(source: &Arc<Source>, on_refusal: OnRefusal) -> pingora::Result<TlsSettings> {
    let check = PeerCheck { source: Arc::clone(source) };
    let mut settings = TlsSettings::with_callbacks(Box::new(check))?;
    let verifier = SvidVerifier { source: Arc::clone(source), refusals: Refusals::new(on_refusal) };
    settings.set_client_cert_verifier(Arc::new(verifier));
    settings.set_cert_resolver(Arc::new(CertificateResolver::new(Arc::clone(source))));
    settings.enable_h2();
    Ok(settings)
}

/// Refuses, during the handshake, whoever isn't believed.
#[derive(Debug)]
struct SvidVerifier {
    source: Arc<Source>,
    refusals: Refusals,
}

impl ClientCertVerifier for SvidVerifier {
    /// None: the list would tell strangers which roots are trusted, and would have to change with them.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain: Vec<_> = [leaf].into_iter().chain(intermediates).cloned().collect();
        match self.source.verify_peer(&chain, now.as_secs()) {
            Ok(_peer) => Ok(ClientCertVerified::assertion()),
            Err(error) => {
                self.refusals.log(&error, Duration::from_secs(now.as_secs()));
                Err(error.into())
            }
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

/// Proves the identity of every completed handshake anew.
struct PeerCheck {
    source: Arc<Source>,
}

#[async_trait]
impl TlsAccept for PeerCheck {
    async fn handshake_complete_callback(
        &self,
        tls: &TlsRef,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let chain = tls.peer_cert_chain_der().unwrap_or_default();
        match self.source.verify_peer(chain, Clock.unix().as_secs()) {
            Ok(peer) => Some(Arc::new(Connection::new(Some(peer)))),
            Err(error) => {
                tracing::info!(%error, "a resumed TLS session proves no identity any more");
                Some(Arc::new(Connection::new(None)))
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! What both sides of mutual TLS share: the certificate to show, and errors as rustls wants them.

use std::sync::Arc;

use rustls::{
    CertificateError, OtherError, SignatureScheme,
    client::ResolvesClientCert,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{PeerError, Source};
use crate::telemetry::Clock;

/// Shows our SVID of the moment, and none when it isn't valid: the handshake then fails.
#[derive(Debug)]
pub struct CertificateResolver(Arc<Source>);

impl CertificateResolver {
    /// Shows the SVID of `source`.
    pub fn new(source: Arc<Source>) -> Self {
        Self(source)
    }

    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.0.snapshot();
        let svid = snapshot.usable(Clock.unix().as_secs()).ok()?;
        Some(Arc::clone(svid.certified_key()))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certified_key()
    }
}

impl ResolvesClientCert for CertificateResolver {
    fn resolve(&self, _roots: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.certified_key()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl From<PeerError> for rustls::Error {
    /// Chooses the alert: the peer may learn that its issuer isn't known or that its SVID isn't valid now,
    /// and otherwise only that its certificate isn't acceptable.
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Expired => CertificateError::Expired.into(),
            PeerError::Chain(Self::InvalidCertificate(
                timing @ (CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }),
            )) => timing.into(),
            PeerError::UntrustedDomain(_) | PeerError::Chain(_) => {
                CertificateError::UnknownIssuer.into()
            }
            PeerError::NoCertificate => Self::NoCertificatesPresented,
            PeerError::NotReady
            | PeerError::ChainLength
            | PeerError::Svid(_)
            | PeerError::WrongId { .. } => {
                CertificateError::Other(OtherError(Arc::new(error))).into()
            }
        }
    }
}

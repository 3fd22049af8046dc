use proptest::{prelude::*, sample::Index};
use rustls::pki_types::CertificateDer;

use crate::{
    identity::{PeerError, ca::Ca, svid},
    telemetry::Causes,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// pingora parses the leaf again, with an older x509-parser, and panics if it can't. That must not be
    /// in anybody's reach: what our check lets through, pingora can read.
    #[test]
    fn a_leaf_that_passes_does_not_panic_in_pingora(
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.1, any::<Index>()),
    ) {
        thread_local! {
            static LEAF: Vec<u8> =
                Ca::new("one.test").svid("/agent").chain[0].to_vec();
        }
        let mut der = LEAF.with(Vec::clone);
        for (index, byte) in changes {
            let at = index.index(der.len());
            der[at] = byte;
        }
        if let Some(cut) = cut {
            let length = cut.index(der.len());
            der.truncate(length);
        }
        if svid::parse_leaf(&CertificateDer::from(der.as_slice())).is_ok() {
            let parsed = pingora::utils::tls::get_organization_serial_bytes(&der);
            prop_assert!(parsed.is_ok());
        }
    }
}

#[test]
fn the_reason_of_a_refusal_names_its_cause() {
    let chain = PeerError::Chain(rustls::Error::NoCertificatesPresented);
    assert_eq!(
        Causes(&chain).to_string(),
        "no path to a root of the trust domain: peer sent no certificates"
    );
    assert_eq!(Causes(&PeerError::Expired).to_string(), "the SVID has expired");
}

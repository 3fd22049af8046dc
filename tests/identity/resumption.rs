//! Resumed TLS sessions skip the verifier; the check after the handshake must not be skipped with it.

use rustls::{
    HandshakeKind, SupportedProtocolVersion,
    version::{TLS12, TLS13},
};

use super::{
    ca::Ca,
    site::{Call, Site, caller_with, from_files, until},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_session_is_believed_only_while_its_svid_is() {
    for version in [&TLS12, &TLS13] {
        resume(version).await;
    }
}

async fn resume(version: &'static SupportedProtocolVersion) {
    let (one, two) = (Ca::new("one.test"), Ca::new("two.test"));
    let own = one.svid("/lictor");
    let (source, directory) = from_files(&own, &[&one, &two]);
    let site = Site::start(&source);
    let config = caller_with(Some(&two.svid("/agent")), &[version]);

    let mut call = Call::connect(&site, &config).await.expect("connected");
    assert_eq!(call.kind, Some(HandshakeKind::Full));
    assert_eq!(call.ask().await.expect("served").0, 200);
    let mut resumed = Call::connect(&site, &config).await.expect("connected");
    assert_eq!(resumed.kind, Some(HandshakeKind::Resumed));
    assert_eq!(resumed.ask().await, Ok((200, "spiffe://two.test/agent".to_owned())));

    let generation = source.snapshot().generation();
    // The same file of the other domain, with another root.
    own.write(directory.path(), &[&one, &Ca::new("two.test")]);
    until(&source, |status| status.generation > generation).await;

    let mut after = Call::connect(&site, &config).await.expect("the handshake itself succeeds");
    assert_eq!(after.kind, Some(HandshakeKind::Resumed), "or this test shows nothing");
    assert_eq!(after.ask().await, Ok((401, "nobody".to_owned())));
    // And the warm connections from before.
    assert_eq!(resumed.ask().await.expect("answered").0, 401);
}

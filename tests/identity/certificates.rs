//! Which certificates are believed, on the way in.

use std::{sync::Arc, time::Duration};

use lictor::identity::Role;

use super::{
    ca::Ca,
    site::{DEADLINE, Site, ask, ask_h2, caller, from_files, now},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_certificate_is_refused_in_the_handshake() {
    let (one, two) = (Ca::new("one.test"), Ca::new("two.test"));
    let (source, _files) = from_files(&one.svid("/lictor"), &[&one, &two]);
    let site = Site::start(&source);
    for (what, reason, bad) in one.bad(&two) {
        for role in [Role::Client, Role::Server] {
            let verdict = source.snapshot().bundles().verify(&bad.chain, role, now());
            let error = verdict.expect_err(what).to_string();
            assert!(error.contains(reason), "{what} as {role:?}: {error}");
        }
        let answer = ask(&site, &caller(Some(&bad))).await;
        let error = answer.expect_err(what);
        let alert = match reason {
            "expired" => "CertificateExpired",
            "no path" if what == "not yet valid" => "CertificateExpired",
            "no path" | "no bundle" => "UnknownCA",
            _ => "CertificateUnknown",
        };
        assert!(error.contains(alert), "{what}: {error}");
    }
    let error = ask(&site, &caller(None)).await.expect_err("no certificate");
    assert!(error.contains("CertificateRequired"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_svids_are_believed_over_both_versions_of_http() {
    let (one, two) = (Ca::new("one.test"), Ca::new("two.test"));
    let (source, _files) = from_files(&one.svid("/lictor"), &[&one, &two]);
    let site = Site::start(&source);
    for (credential, id) in [
        (one.svid("/agent/Alice_1"), "spiffe://one.test/agent/Alice_1"),
        (two.svid("/agent"), "spiffe://two.test/agent"),
        (one.svid_via("/agent", |_| {}), "spiffe://one.test/agent"),
        (
            one.leaf("/agent", |params| params.extended_key_usages.clear()),
            "spiffe://one.test/agent",
        ),
        (
            one.leaf("/agent", |params| {
                let name = rcgen::SanType::DnsName("agent.one.test".try_into().expect("name"));
                params.subject_alt_names.push(name);
            }),
            "spiffe://one.test/agent",
        ),
    ] {
        let config = caller(Some(&credential));
        assert_eq!(ask(&site, &config).await, Ok((200, id.to_owned())));
        assert_eq!(ask_h2(&site, &config).await, Ok((200, id.to_owned())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_above_the_limit_are_closed() {
    let ca = Ca::new("one.test");
    let (source, _files) = from_files(&ca.svid("/lictor"), &[&ca]);
    let site = Site::start_limited(&source, 1);
    let config = caller(Some(&ca.svid("/agent")));
    let mut first = super::site::Call::connect(&site, &config).await.expect("connected");
    assert_eq!(first.ask().await.expect("served").0, 200);
    ask(&site, &config).await.expect_err("one too many");
    assert_eq!(first.ask().await.expect("still served").0, 200);
    assert_eq!(site.connections.open(), 1);
    drop(first);
    // The place is free as soon as the server has seen the close.
    let served = async {
        while ask(&site, &config).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, served).await.expect("the place is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recheck_of_a_warm_connection_costs_nothing_noticeable() {
    let ca = Ca::new("one.test");
    let (source, _files) = from_files(&ca.svid("/lictor"), &[&ca]);
    let peer = source.verify_peer(&ca.svid("/agent").chain, now()).expect("believed");
    let (peer, now) = (Arc::new(peer), now());
    let clock = lictor::telemetry::Clock;
    let start = clock.instant();
    for _ in 0..100_000 {
        std::hint::black_box(source.recheck(&peer, std::hint::black_box(now))).expect("believed");
    }
    let each = start.elapsed() / 100_000;
    println!("recheck: {each:?}");
    // A path validation takes over 50 µs; unoptimised builds on a busy machine get some slack.
    assert!(each < Duration::from_micros(20), "{each:?}");
}

//! Which upstreams are believed, and who we are to them.

use std::{path::PathBuf, time::Duration};

use http::Version;
use rcgen::SanType;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{
    Error, Upstream, Verification,
    ca::{Ca, Credential},
    chain, post, rotated,
    server::Server,
    settings, source, spiffe,
};
use crate::{
    identity::{self as own, Source},
    tls,
    upstream::SetupError,
};

const BOTH: &[&str] = &["h2", "http/1.1"];

#[tokio::test]
async fn a_workload_with_the_expected_id_is_believed_and_sees_ours() {
    let (one, two) = (Ca::new("one.test"), Ca::new("two.test"));
    let (source, _files) = source(&one.svid("/lictor"), &[&one, &two]);
    for (alpn, version) in [(BOTH, Version::HTTP_2), (&BOTH[1..], Version::HTTP_11)] {
        let server = Server::tls(&two.svid("/server"), Some(&one), alpn).await;
        let settings = settings(&server.url("https"), spiffe("spiffe://two.test/server"));
        let upstream = Upstream::new(settings, Some(source.clone())).expect("set up");
        for _ in 0..3 {
            assert_eq!(post(&upstream).await.expect("answered"), "200 done");
        }
        for seen in server.seen() {
            assert_eq!((seen.version, seen.connection), (version, 1));
            let (id, _) = seen.client.expect("our SVID");
            assert_eq!(id, "spiffe://one.test/lictor");
        }
        assert_eq!(server.seen().len(), 3);
    }
}

#[tokio::test]
async fn anybody_else_is_refused_before_a_byte_of_the_call_is_sent() {
    let (one, two) = (Ca::new("one.test"), Ca::new("two.test"));
    let (source, _files) = source(&one.svid("/lictor"), &[&one, &two]);
    let mut cases = vec![
        ("another workload", "not of `spiffe://one.test/bad`", one.svid("/server")),
        ("a longer path", "not of `spiffe://one.test/bad`", one.svid("/bad/too")),
        ("another case", "not of `spiffe://one.test/bad`", one.svid("/Bad")),
        ("another domain", "not of `spiffe://one.test/bad`", two.svid("/bad")),
    ];
    cases.extend(one.bad(&two));
    for (what, reason, credential) in cases {
        let server = Server::tls(&credential, None, BOTH).await;
        let settings = settings(&server.url("https"), spiffe("spiffe://one.test/bad"));
        let upstream = Upstream::new(settings, Some(source.clone())).expect("set up");
        let error = post(&upstream).await.expect_err(what);
        assert!(matches!(error, Error::Unreachable(_)), "{what}: {error:?}");
        assert!(chain(&error).contains(reason), "{what}: {}", chain(&error));
        assert!(server.seen().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn host_names_are_checked_against_the_configured_roots() {
    let ca = Ca::new("one.test");
    let directory = TempDir::new().expect("directory");
    let (good, other) = (directory.path().join("good.pem"), directory.path().join("other.pem"));
    std::fs::write(&good, ca.root_pem()).expect("written");
    std::fs::write(&other, Ca::new("one.test").root_pem()).expect("written");
    let named = |name: &str| -> Credential {
        ca.leaf("/x", |params| {
            params.subject_alt_names = vec![SanType::DnsName(name.try_into().expect("name"))];
        })
    };
    let pki = |roots: Option<&PathBuf>| Verification::WebPki { roots: roots.cloned() };
    for (what, credential, roots, believed) in [
        ("right name and root", named("localhost"), Some(&good), true),
        ("another name", named("elsewhere.test"), Some(&good), false),
        ("another root", named("localhost"), Some(&other), false),
        ("not a public root", named("localhost"), None, false),
        ("an SVID instead of a name", ca.svid("/localhost"), Some(&good), false),
    ] {
        let server = Server::tls(&credential, None, BOTH).await;
        let settings = settings(&server.url("https"), pki(roots));
        let upstream = Upstream::new(settings, None).expect("set up");
        let result = post(&upstream).await;
        assert_eq!(result.is_ok(), believed, "{what}: {result:?}");
        assert_eq!(server.seen().len(), usize::from(believed), "{what}");
    }
}

#[tokio::test]
async fn plain_http_goes_to_loopback_addresses_only() {
    let upstream = Upstream::new(settings("http://192.0.2.1:9/mcp", Verification::Loopback), None);
    let error = post(&upstream.expect("set up")).await.expect_err("not loopback");
    assert!(matches!(error, Error::Unreachable(_)));
    assert!(chain(&error).contains("isn't a loopback address"), "{}", chain(&error));
}

#[tokio::test]
async fn what_cannot_be_verified_cannot_be_set_up() {
    let id = || spiffe("spiffe://one.test/server");
    let pki = || Verification::WebPki { roots: None };
    for (url, verification) in [
        ("https://localhost/", Verification::Loopback),
        ("http://localhost/", id()),
        ("http://localhost/", pki()),
        ("ftp://localhost/", pki()),
        ("data:text/plain,x", pki()),
    ] {
        let result = Upstream::new(settings(url, verification), None);
        assert!(matches!(result, Err(SetupError::Url(_))), "{url}: {result:?}");
    }
    let without = Upstream::new(settings("https://localhost/", id()), None);
    assert!(matches!(without, Err(SetupError::NoSource)));
    let roots = Some("/nonexistent/roots.pem".into());
    let missing = settings("https://localhost/", Verification::WebPki { roots });
    assert!(matches!(
        Upstream::new(missing, None),
        Err(SetupError::Tls(tls::SetupError::Roots { .. }))
    ));
}

#[tokio::test]
async fn identities_never_share_a_connection_and_rotation_ends_it() {
    let ca = Ca::new("one.test");
    let server = Server::tls(&ca.svid("/server"), Some(&ca), BOTH).await;
    let connect = |source: &std::sync::Arc<Source>| {
        let settings = settings(&server.url("https"), spiffe("spiffe://one.test/server"));
        Upstream::new(settings, Some(source.clone())).expect("set up")
    };
    let (a, files_of_a) = source(&ca.svid("/a"), &[&ca]);
    let (b, _files) = source(&ca.svid("/b"), &[&ca]);
    let (upstream_a, upstream_b) = (connect(&a), connect(&b));
    for upstream in [&upstream_a, &upstream_b, &upstream_a, &upstream_b] {
        post(upstream).await.expect("answered");
    }
    let ids: Vec<_> = server.seen().into_iter().map(|seen| seen.client.expect("SVID").0).collect();
    let (id_a, id_b) = ("spiffe://one.test/a", "spiffe://one.test/b");
    assert_eq!(ids, [id_a, id_b, id_a, id_b]);

    let next = ca.svid("/a");
    next.write(files_of_a.path(), &[&ca]);
    rotated(&a, 2).await;
    for upstream in [&upstream_a, &upstream_b] {
        post(upstream).await.expect("answered");
    }
    let after = server.seen().split_off(4);
    let (_, shown) = after[0].client.clone().expect("SVID");
    assert!(next.chain[0].ends_with(&shown), "the new SVID");
    let connections: Vec<_> = after.iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [3, 2], "a new connection for the one, the old for the other");
}

#[tokio::test]
async fn a_connection_is_not_used_beyond_the_expiry_of_the_upstreams_svid() {
    let ca = Ca::new("one.test");
    let (source, _files) = source(&ca.svid("/lictor"), &[&ca]);
    let server = Server::tls(&ca.svid_for("/server", 2), Some(&ca), BOTH).await;
    let settings = settings(&server.url("https"), spiffe("spiffe://one.test/server"));
    let upstream = Upstream::new(settings, Some(source)).expect("set up");
    post(&upstream).await.expect("still valid");
    let refused = async {
        loop {
            match post(&upstream).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => break error,
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(5), refused).await.expect("in time");
    assert!(chain(&error).contains("expired"), "{}", chain(&error));
}

#[tokio::test]
async fn without_an_identity_nothing_is_dialled() {
    let files = own::Files {
        certificate: "/nonexistent/svid.pem".into(),
        key: "/nonexistent/key.pem".into(),
        bundles: [("one.test".to_owned(), "/nonexistent/one.pem".into())].into(),
    };
    let runtime = tokio::runtime::Handle::current();
    let source = Source::start(own::Settings::Files(files), &runtime).expect("started");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("https://{}/", listener.local_addr().expect("address"));
    let upstream = Upstream::new(settings(&url, spiffe("spiffe://one.test/server")), Some(source));
    let error = post(&upstream.expect("set up")).await.expect_err("no identity");
    assert!(matches!(error, Error::NoIdentity));
    let dialled = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(dialled.is_err(), "nobody connected");
}

#[tokio::test]
async fn connecting_has_a_time_limit_tls_included() {
    let ca = Ca::new("one.test");
    let (source, _files) = source(&ca.svid("/lictor"), &[&ca]);
    // Accepts in the kernel and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("https://{}/", silent.local_addr().expect("address"));
    let mut settings = settings(&url, spiffe("spiffe://one.test/server"));
    settings.connect_timeout = Duration::from_millis(100);
    let upstream = Upstream::new(settings, Some(source)).expect("set up");
    let error = post(&upstream).await.expect_err("silence");
    assert!(matches!(error, Error::Unreachable(_)));
    assert!(chain(&error).contains("no connection within"), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_our_svid_rotates() {
    let ca = Ca::new("one.test");
    let (source, files) = source(&ca.svid("/lictor"), &[&ca]);
    for alpn in [BOTH, &BOTH[1..]] {
        let server = Server::tls(&ca.svid("/server"), Some(&ca), alpn).await;
        let settings = settings(&server.url("https"), spiffe("spiffe://one.test/server"));
        let upstream = Upstream::new(settings, Some(source.clone())).expect("set up");
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let callers: Vec<_> = std::iter::repeat_with(|| {
            let (upstream, stopped) = (upstream.clone(), stopped.clone());
            tokio::spawn(async move {
                while !*stopped.borrow() {
                    post(&upstream).await.expect("answered");
                }
            })
        })
        .take(4)
        .collect();
        for _ in 0..2 {
            let generation = source.snapshot().generation();
            ca.svid("/lictor").write(files.path(), &[&ca]);
            rotated(&source, generation + 1).await;
        }
        stop.send_replace(true);
        for caller in callers {
            caller.await.expect("no failure");
        }
    }
}

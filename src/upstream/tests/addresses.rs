//! What becomes of connections when their address is another one's, and when nobody needs them.

use std::net::SocketAddr;

use rcgen::SanType;

use super::{server::Server, *};
use crate::telemetry::Clock;

fn localhost(ca: &Ca) -> Credential {
    ca.leaf("/x", |params| {
        params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().expect("name"))];
    })
}

fn upstream(server: &Server, ca: &Ca, idle: Duration) -> (Arc<Upstream>, TempDir) {
    let directory = TempDir::new().expect("directory");
    let roots = directory.path().join("roots.pem");
    std::fs::write(&roots, ca.root_pem()).expect("written");
    let verification = Verification::WebPki { roots: Some(roots) };
    let settings = Http { pool_idle_timeout: idle, ..settings(&server.url("https"), verification) };
    (Upstream::new(settings, None).expect("set up"), directory)
}

#[tokio::test]
async fn connections_to_an_address_that_has_gone_are_used_no_more() {
    let ca = Ca::new("one.test");
    for alpn in ["h2", "http/1.1"] {
        let server = Server::tls(&localhost(&ca), None, &[alpn]).await;
        let (upstream, _roots) = upstream(&server, &ca, Duration::from_secs(2));
        post(&upstream).await.expect("answered");
        post(&upstream).await.expect("answered");
        let connections = || server.seen().iter().map(|seen| seen.connection).collect::<Vec<_>>();
        assert_eq!(connections(), [1, 1], "{alpn}");
        // Another address comes, and this one stays for some time.
        let resolver = upstream.resolver();
        let other = SocketAddr::from(([127, 0, 0, 2], server.address.port()));
        let now = Clock.instant();
        resolver.learn(vec![other], now);
        post(&upstream).await.expect("answered");
        assert_eq!(connections(), [1, 1, 1], "{alpn}");
        resolver.learn(vec![other], now + Duration::from_secs(60));
        // Nobody is at the other one. After that, the name is looked up again.
        let failed = post(&upstream).await;
        assert!(matches!(failed, Err(Error::Unreachable(_))), "{alpn}: {failed:?}");
        post(&upstream).await.expect("answered");
        assert_eq!(connections(), [1, 1, 1, 2], "{alpn}");
        drop(upstream);
    }
}

#[tokio::test]
async fn connections_that_nobody_needs_end() {
    let ca = Ca::new("one.test");
    for alpn in ["h2", "http/1.1"] {
        let server = Server::tls(&localhost(&ca), None, &[alpn]).await;
        let (upstream, _roots) = upstream(&server, &ca, Duration::from_millis(200));
        for _ in 0..3 {
            post(&upstream).await.expect("answered");
            server.has_open(1).await;
            server.has_open(0).await;
        }
    }
}

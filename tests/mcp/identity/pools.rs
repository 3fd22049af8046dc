//! Routes to one host and port by different identities: none of them is ever used for another.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lictor::tls::provider;
use rcgen::SanType;
use rustls::{
    RootCertStore, ServerConfig, pki_types::CertificateDer, server::WebPkiClientVerifier,
};
use tokio::{net::TcpListener, task::JoinHandle, time::sleep};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{http::whole, site::agent_a};

/// A server that takes callers with and without a certificate, and remembers for each request on which connection it
/// came, and what was shown there.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<Visit>>>,
    running: JoinHandle<()>,
}

#[derive(Debug)]
struct Visit {
    path: String,
    connection: usize,
    shown: Option<CertificateDer<'static>>,
}

impl Server {
    async fn start(protocol: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("bound"));
        // Both kinds of names, so that either way of looking at it is satisfied.
        let credential = TD_ONE.leaf("/files", |params| {
            params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        });
        let mut roots = RootCertStore::empty();
        roots.add(TD_ONE.root.clone()).expect("a root");
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
            .allow_unauthenticated()
            .build()
            .expect("a verifier");
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(credential.chain.clone(), credential.key())
            .expect("a credential");
        config.alpn_protocols = vec![protocol.into()];
        let tls = TlsAcceptor::from(Arc::new(config));
        let seen: Arc<Mutex<Vec<Visit>>> = Arc::default();
        let all = Arc::clone(&seen);
        let running = tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (tls, all) = (tls.clone(), Arc::clone(&all));
                tokio::spawn(async move {
                    // Who doesn't like what the server shows leaves here.
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let shown =
                        stream.get_ref().1.peer_certificates().map(|chain| chain[0].clone());
                    let answer = service_fn(move |request: Request<Incoming>| {
                        let path = request.uri().path().to_owned();
                        let visit = Visit { path, connection, shown: shown.clone() };
                        all.lock().expect("the lock").push(visit);
                        async {
                            request.into_body().collect().await.expect("a body");
                            let body = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
                            let answer = Response::new(Full::new(Bytes::from(body)));
                            let (mut head, body) = answer.into_parts();
                            let json = "application/json".parse().expect("a value");
                            head.headers.insert("content-type", json);
                            Ok::<_, Infallible>(Response::from_parts(head, body))
                        }
                    });
                    let io = TokioIo::new(stream);
                    // However it ends, requests were noted.
                    if protocol == "h2" {
                        let server = http2::Builder::new(TokioExecutor::new());
                        let _ = server.serve_connection(io, answer).await;
                    } else {
                        let _ = http1::Builder::new().serve_connection(io, answer).await;
                    }
                });
            }
        });
        Self { url, seen, running }
    }

    /// What has come since the last time, each on its path.
    fn take(&self) -> Vec<Visit> {
        std::mem::take(&mut self.seen.lock().expect("the lock"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Calls on each route, in turns; the statuses of the last turn.
async fn calls(caller: &mut Caller, turns: usize) -> [u16; 3] {
    let mut told = [0; 3];
    for _ in 0..turns {
        for (at, path) in ["/mcp", "/open", "/other"].into_iter().enumerate() {
            let request = caller.request_to("POST", path, whole(call("echo", "{}")));
            told[at] = caller.send(request).await.whole().await.status;
        }
    }
    told
}

#[tokio::test]
async fn an_upstream_sees_the_certificate_of_the_route_in_use() {
    for protocol in ["http/1.1", "h2"] {
        let server = Server::start(protocol).await;
        let at = |path: &str| format!("{}/{path}", server.url);
        // Another identity is asked for than the server has.
        let other = format!(
            "{}', breaker: {{ enabled: false }}, spiffeId: 'spiffe://td-one.example.org/other",
            at("other")
        );
        let site = Site::to(&at("mcp"))
            .upstream("spiffeId: 'spiffe://td-one.example.org/files'")
            .beside("open", &format!("{}', roots: 'roots.pem", at("open")))
            .beside("other", &other)
            .file("roots.pem", &TD_ONE.root_pem())
            .policies("@id(\"all\") permit (principal, action, resource);");
        let first = TD_ONE.svid("/lictor");
        first.write(site.path(), &[&TD_ONE]);
        let lictor = site.start().await;
        let mut caller = agent_a(&lictor).await;

        assert_eq!(calls(&mut caller, 5).await, [200, 200, 502], "{protocol}");
        let seen = server.take();
        check(&seen, &first, protocol);
        assert_eq!(seen.len(), 10, "{seen:?}");

        // Another certificate: the first call that shows it is the last that could have shown the one before.
        let second = TD_ONE.svid("/lictor");
        second.write(lictor.directory(), &[&TD_ONE]);
        let mut turns = 5;
        let rotated = async {
            loop {
                calls(&mut caller, 1).await;
                turns += 1;
                let visits = server.take();
                if visits[0].shown.as_ref() == Some(&second.chain[0]) {
                    return;
                }
                check(&visits, &first, protocol);
                sleep(PAUSE).await;
            }
        };
        within("another certificate", rotated).await;
        assert_eq!(calls(&mut caller, 5).await, [200, 200, 502], "{protocol}");
        check(&server.take(), &second, protocol);
        let entries = lictor.stop((turns + 5) * 3).await;
        let unreachable = entries.iter().filter(|it| it["status"] == "upstream_unreachable");
        assert_eq!(unreachable.count(), turns + 5);
    }
}

/// One route shows its certificate each time, the other none, and no connection is used by both.
fn check(visits: &[Visit], credential: &Credential, protocol: &str) {
    for visit in visits {
        let shown = match visit.path.as_str() {
            "/mcp" => Some(&credential.chain[0]),
            "/open" => None,
            path => panic!("{protocol}: a call on {path}"),
        };
        assert!(visit.shown.as_ref() == shown, "{protocol}: another one on {}", visit.path);
    }
    let of = |path: &str| -> BTreeSet<usize> {
        visits.iter().filter(|it| it.path == path).map(|it| it.connection).collect()
    };
    assert!(of("/mcp").is_disjoint(&of("/open")), "{protocol}");
    // They are kept, or this would say nothing of pools.
    assert!(of("/mcp").len() <= 1 && of("/open").len() <= 1, "{protocol}: {visits:?}");
}

//! A server that tells what reached it, over TLS or plain.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};
use tokio_rustls::TlsAcceptor;

use super::{
    DEADLINE,
    ca::{Ca, Credential},
};
use crate::{identity::svid, tls::provider};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Number of the connection, from 1.
    pub(super) connection: usize,
    /// SPIFFE ID of the client, and the last bytes of its certificate to tell two of one ID apart.
    pub(super) client: Option<(String, Vec<u8>)>,
    pub(super) version: Version,
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    /// The authority, from the `Host` header or from the target.
    pub(super) host: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A running server; ends when dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Connections that are open.
    open: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn plain() -> Self {
        Self::start(None).await
    }

    /// Speaks the given protocols. With `clients`, those have to show an SVID of that CA.
    pub(super) async fn tls(own: &Credential, clients: Option<&Ca>, alpn: &[&str]) -> Self {
        Self::start(Some(Arc::new(config(own, clients, alpn)))).await
    }

    async fn start(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let seen = Arc::new(Mutex::new(vec![]));
        let log = Arc::clone(&seen);
        let (count_open, open) = watch::channel(0);
        let task = tokio::spawn(async move {
            let count = AtomicUsize::new(0);
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                let (log, tls, count_open) = (Arc::clone(&log), tls.clone(), count_open.clone());
                count_open.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    let _closed = Closed(count_open);
                    match tls {
                        None => serve(stream, number, None, log).await,
                        Some(tls) => {
                            let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else {
                                return;
                            };
                            let client = stream.get_ref().1.peer_certificates().map(|chain| {
                                let leaf = svid::parse_leaf(&chain[0]).expect("an SVID");
                                let tail = chain[0][chain[0].len() - 8..].to_vec();
                                (leaf.id.to_string(), tail)
                            });
                            serve(stream, number, client, log).await;
                        }
                    }
                });
            }
        });
        Self { address, seen, open, task }
    }

    pub(super) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}/mcp", self.address.port())
    }

    /// Waits until so many connections are open.
    pub(super) async fn has_open(&self, count: usize) {
        let mut open = self.open.clone();
        let reached = timeout(DEADLINE, open.wait_for(|open| *open == count)).await;
        reached.expect("in time").expect("the server runs");
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("log").clone()
    }
}

/// Counts a connection as closed when it is dropped.
struct Closed(watch::Sender<usize>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// TLS settings of a server.
pub(super) fn config(own: &Credential, clients: Option<&Ca>, alpn: &[&str]) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(ca.root.clone()).expect("root");
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
            builder.with_client_cert_verifier(verifier.expect("verifier"))
        }
    };
    let mut config = builder.with_single_cert(own.chain.clone(), own.key()).expect("credential");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

async fn serve<S>(
    stream: S,
    connection: usize,
    client: Option<(String, Vec<u8>)>,
    log: Arc<Mutex<Vec<Seen>>>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (client, log) = (client.clone(), Arc::clone(&log));
        async move {
            let (head, body) = request.into_parts();
            let authority = head.uri.authority().map(ToString::to_string);
            let host = head.headers.get("host").and_then(|host| host.to_str().ok());
            let seen = Seen {
                connection,
                client,
                version: head.version,
                method: head.method,
                target: head.uri.path_and_query().expect("target").to_string(),
                host: authority.or(host.map(Into::into)).unwrap_or_default(),
                headers: head.headers,
                body: body.collect().await?.to_bytes(),
            };
            log.lock().expect("log").push(seen);
            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from_static(b"done"))))
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

//! A listener that tells each caller who it is, and a caller.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lictor::{
    identity::{Files, Settings, Source, Status},
    listener::{self, Application, Bound, Connections, Idle, Limited, Shield, shield},
    telemetry::Clock,
    telemetry::Metrics,
    tls::provider,
};
use pingora::{
    apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream},
    http::ResponseHeader,
    protocols::http::ServerSession,
    server::ShutdownWatch,
    services::Service,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, HandshakeKind, SignatureScheme, SupportedProtocolVersion,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tempfile::TempDir;
use tokio::{net::TcpStream, runtime::Handle, sync::watch, task::JoinHandle, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::ca::{Ca, Credential, Written};

/// Longest that anything here may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn now() -> u64 {
    Clock.unix().as_secs()
}

/// A source over files in a directory of its own.
pub(crate) fn from_files(credential: &Credential, trusted: &[&Ca]) -> (Arc<Source>, TempDir) {
    let directory = TempDir::new().expect("directory");
    let files = files(credential.write(directory.path(), trusted));
    (start(files), directory)
}

pub(crate) fn files(Written { certificate, key, bundles }: Written) -> Settings {
    Settings::Files(Files { certificate, key, bundles })
}

pub(crate) fn start(settings: Settings) -> Arc<Source> {
    Source::start(settings, &Handle::current()).expect("started")
}

/// Waits until the source's status is as wanted.
pub(crate) async fn until(source: &Source, wanted: impl FnMut(&Status) -> bool) -> Status {
    let mut changes = source.changed();
    let status = timeout(DEADLINE, changes.wait_for(wanted)).await;
    status.expect("in time").expect("source lives").clone()
}

/// A running listener.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Connections,
    _shutdown: watch::Sender<bool>,
}

impl Site {
    pub(crate) fn start(source: &Arc<Source>) -> Self {
        Self::start_limited(source, 100)
    }

    pub(crate) fn start_limited(source: &Arc<Source>, most: usize) -> Self {
        let bound = Bound::new(([127, 0, 0, 1], 0).into()).expect("bound");
        let address = bound.address();
        let tls = listener::tls::settings(source, Box::new(|_| ())).expect("settings");
        let connections = Connections::new(most);
        let app = Arc::new(Whoami { source: Arc::clone(source) });
        // Whatever comes here comes from loopback.
        let settings =
            shield::Settings { connections: 1, new_per_second: NonZeroU32::MIN, loopback: false };
        let metrics = Metrics::new();
        let shield = Shield::new(settings, metrics.clone(), "test");
        let patience = Duration::from_secs(60);
        let app = Limited::new(app, connections.clone(), shield.clone(), metrics, "test", patience);
        let (mut service, sockets) = bound.serve("whoami", app, Some(tls), shield);
        let (shutdown, watch) = watch::channel(false);
        tokio::spawn(async move { service.start_service(Some(sockets), watch, 1).await });
        Self { address, connections, _shutdown: shutdown }
    }
}

struct Whoami {
    source: Arc<Source>,
}

impl Whoami {
    fn answer(&self, session: &ServerSession) -> (u16, String) {
        let Some(peer) = listener::peer(session) else { return (401, "nobody".to_owned()) };
        match self.source.recheck(&peer, now()) {
            Ok(()) => (200, peer.id().to_string()),
            Err(error) => (401, error.to_string()),
        }
    }
}

#[async_trait]
impl HttpServerApp for Whoami {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.read_request().await.ok()? {
            return None;
        }
        let (status, text) = self.answer(&session);
        let mut head = ResponseHeader::build(status, None).ok()?;
        head.insert_header("content-length", text.len().to_string()).ok()?;
        session.write_response_header(Box::new(head)).await.ok()?;
        session.write_response_body(text.into(), true).await.ok()?;
        let settings = HttpPersistentSettings::for_session(&session);
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
    }
}

impl Application for Whoami {
    type Held = ();

    async fn arrival(&self, idle: &mut Idle) -> Option<(BytesMut, ())> {
        idle.first_bytes().await.map(|first| (first, ()))
    }
}

/// A caller's TLS settings, which keep sessions for resumption; it believes any server.
pub(crate) fn caller(credential: Option<&Credential>) -> Arc<ClientConfig> {
    caller_with(credential, rustls::DEFAULT_VERSIONS)
}

/// The same with these versions of TLS.
pub(crate) fn caller_with(
    credential: Option<&Credential>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(BelievesAnybody));
    Arc::new(match credential {
        Some(credential) => builder
            .with_client_auth_cert(credential.chain.clone(), credential.key())
            .expect("credential"),
        None => builder.with_no_client_auth(),
    })
}

/// An open connection of a caller.
pub(crate) struct Call {
    sender: http1::SendRequest<Empty<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
    pub(crate) kind: Option<HandshakeKind>,
    pub(crate) server: CertificateDer<'static>,
}

impl Call {
    /// Connects; a refusal of our certificate may show only in the first answer (TLS 1.3).
    pub(crate) async fn connect(site: &Site, config: &Arc<ClientConfig>) -> Result<Self, String> {
        let stream = tls(site, config).await?;
        let (_, connection) = stream.get_ref();
        let kind = connection.handshake_kind();
        let server = connection.peer_certificates().expect("certificate")[0].clone();
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
        let connection = tokio::spawn(connection);
        Ok(Self { sender, connection, kind, server })
    }

    /// One request: status and text.
    pub(crate) async fn ask(&mut self) -> Result<(u16, String), String> {
        let exchange = async {
            self.sender.ready().await?;
            let request = http::Request::get("/").header("host", "site").body(Empty::new());
            self.sender.send_request(request.expect("request")).await
        };
        match timeout(DEADLINE, exchange).await.expect("in time") {
            Ok(answer) => read(Ok(answer)).await,
            // The connection knows more of what went wrong than the request on it.
            Err(error) => match (&mut self.connection).await.expect("no panic") {
                Err(error) => Err(chain(&error)),
                Ok(()) => Err(chain(&error)),
            },
        }
    }
}

/// Connects and asks once.
pub(crate) async fn ask(site: &Site, config: &Arc<ClientConfig>) -> Result<(u16, String), String> {
    Call::connect(site, config).await?.ask().await
}

/// Connects with HTTP/2 and asks once.
pub(crate) async fn ask_h2(
    site: &Site,
    config: &Arc<ClientConfig>,
) -> Result<(u16, String), String> {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tls(site, &Arc::new(config)).await?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| chain(&error))?;
    tokio::spawn(connection);
    let request = http::Request::get("https://site/").body(Empty::<Bytes>::new());
    let answer = timeout(DEADLINE, sender.send_request(request.expect("request"))).await;
    read(answer.expect("in time")).await
}

async fn tls(site: &Site, config: &Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, String> {
    let stream = TcpStream::connect(site.address).await.expect("connected");
    let name = ServerName::try_from("site.test").expect("name");
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
    timeout(DEADLINE, handshake).await.expect("in time").map_err(|error| error.to_string())
}

async fn read(
    answer: hyper::Result<http::Response<hyper::body::Incoming>>,
) -> Result<(u16, String), String> {
    let answer = answer.map_err(|error| chain(&error))?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(|error| chain(&error))?;
    Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

#[derive(Debug)]
struct BelievesAnybody;

impl ServerCertVerifier for BelievesAnybody {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

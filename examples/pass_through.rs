//! The yardstick of `make bench`: what pingora's own `HttpProxy` costs when it does nothing at all.
//!
//! One worker thread, one upstream, no filter. With `--certificate`, `--key` and `--roots` the
//! listener asks for a client certificate of those roots, which is the least that mutual TLS costs.
//! It judges nothing and must not be used for anything but measurements.

use std::{
    error::Error,
    fs::File,
    io::BufReader,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use clap::Parser;
use pingora::{
    listeners::tls::TlsSettings,
    proxy::{ProxyHttp, Session, http_proxy_service},
    server::{Server, configuration::ServerConf},
    upstreams::peer::HttpPeer,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

#[derive(Parser)]
struct Arguments {
    /// Address to listen on.
    #[arg(long)]
    listen: SocketAddr,
    /// Address that everything is forwarded to, over plain HTTP.
    #[arg(long)]
    upstream: SocketAddr,
    /// PEM file with the listener's certificate; makes it a TLS listener.
    #[arg(long, requires_all = ["key", "roots"])]
    certificate: Option<PathBuf>,
    /// PEM file with the certificate's key.
    #[arg(long)]
    key: Option<PathBuf>,
    /// PEM file with the roots that client certificates have to come from.
    #[arg(long)]
    roots: Option<PathBuf>,
}

struct PassThrough {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for PassThrough {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        _ctx: &mut Self::CTX,
    ) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let settings = ServerConf {
        threads: 1,
        // Ends at once when told to.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, settings);
    server.bootstrap();

    let proxy = PassThrough { upstream: arguments.upstream };
    let mut service = http_proxy_service(&server.configuration, proxy);
    let listen = arguments.listen.to_string();
    match (arguments.certificate, arguments.key, arguments.roots) {
        (Some(certificate), Some(key), Some(roots)) => {
            let tls = mutual_tls(&certificate, &key, &roots)?;
            service.add_tls_with_settings(&listen, None, tls);
        }
        _ => service.add_tcp(&listen),
    }
    server.add_service(service);
    server.run_forever()
}

fn mutual_tls(certificate: &Path, key: &Path, roots: &Path) -> Result<TlsSettings, Box<dyn Error>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_reader_iter(BufReader::new(File::open(roots)?)) {
        store.add(root?)?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).build()?;
    let mut tls =
        TlsSettings::intermediate(&certificate.to_string_lossy(), &key.to_string_lossy())?;
    tls.set_client_cert_verifier(verifier);
    Ok(tls)
}

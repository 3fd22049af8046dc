//! `lictor stdio`: a server over HTTP for clients that speak stdio only.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use tokio::{
    runtime::{self, Handle},
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tracing::level_filters::LevelFilter;
use url::Url;

use super::{EXIT_FAILED, EXIT_OUTPUT, EXIT_USAGE};
use crate::{
    bridge,
    config::{check_endpoint, is_loopback},
    identity::{self, Files, Source, SpiffeId},
    telemetry::{self, logs},
    upstream::{Transport, Unjudged, Verification, settings::Http},
};

/// How long to wait for an SVID before messages are answered with errors.
const IDENTITY: Duration = Duration::from_secs(10);

/// Connect a client that speaks MCP over stdio only with a server over Streamable HTTP.
///
/// Standard input and output carry newline-delimited JSON-RPC; logs go to standard error. With an SVID, the
/// server is one that has to prove a SPIFFE ID, such as a Lictor with `tls: mutual`.
#[derive(Debug, Args)]
pub struct Stdio {
    /// The server's endpoint; `http` for loopback addresses only.
    #[arg(long, value_name = "URL")]
    url: Url,
    /// The SPIFFE ID that the server has to prove, exactly.
    #[arg(long, value_name = "ID", value_parser = SpiffeId::parse, conflicts_with = "roots")]
    spiffe_id: Option<SpiffeId>,
    /// PEM file with the roots that the server's certificate is checked against, in place of the public ones.
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    /// Our SVID and its intermediates, leaf first, in PEM.
    #[arg(long, value_name = "FILE", requires_all = ["key", "bundle", "spiffe_id"])]
    certificate: Option<PathBuf>,
    /// Its private key.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// The roots of a trust domain: `example.org=roots.pem`.
    #[arg(long, value_name = "DOMAIN=FILE", value_parser = bundle, requires = "certificate")]
    bundle: Vec<(String, PathBuf)>,
    /// SPIFFE Workload API to take SVID and bundles from: `unix:///run/spire/agent.sock`.
    #[arg(long, value_name = "ENDPOINT", value_parser = endpoint, requires = "spiffe_id",
        conflicts_with = "certificate")]
    workload_api: Option<String>,
}

fn bundle(text: &str) -> Result<(String, PathBuf), &'static str> {
    let (domain, file) = text.split_once('=').ok_or("has to be `DOMAIN=FILE`")?;
    Ok((domain.to_owned(), file.into()))
}

fn endpoint(text: &str) -> Result<String, &'static str> {
    check_endpoint(text).map(|()| text.to_owned())
}

impl Stdio {
    pub(super) fn run(self, err: &mut dyn Write) -> io::Result<ExitCode> {
        let settings = match self.settings() {
            Ok(settings) => settings,
            Err(problem) => {
                writeln!(err, "lictor: {problem}")?;
                return Ok(ExitCode::from(EXIT_USAGE));
            }
        };
        let logs = telemetry::Settings { logs: telemetry::Format::Text, level: LevelFilter::WARN };
        if let Err(error) = logs::init(logs) {
            super::complain(&error, err)?;
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let code = runtime.block_on(self.carry(settings, err));
        // A read of standard input can't be called back.
        runtime.shutdown_background();
        code
    }

    async fn carry(self, settings: Http, err: &mut dyn Write) -> io::Result<ExitCode> {
        let source = match self.identity() {
            None => None,
            Some(settings) => match Source::start(settings, &Handle::current()) {
                Ok(source) => Some(source),
                Err(error) => {
                    super::complain(&error, err)?;
                    return Ok(ExitCode::from(EXIT_USAGE));
                }
            },
        };
        let server = match Unjudged::new(settings, source.clone()) {
            Ok(server) => server,
            Err(error) => {
                super::complain(&error, err)?;
                return Ok(ExitCode::from(EXIT_FAILED));
            }
        };
        if let Some(source) = &source {
            first_identity(source).await;
        }
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        match bridge::run(server, tokio::io::stdin(), tokio::io::stdout(), stop).await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            // The client has gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(ExitCode::from(EXIT_OUTPUT))
            }
            Err(error) => Err(error),
        }
    }

    fn settings(&self) -> Result<Http, &'static str> {
        let verification = match (self.url.scheme(), &self.spiffe_id) {
            ("http", None) if self.roots.is_some() => {
                return Err("`--roots` needs an `https` URL");
            }
            ("http", None) if is_loopback(&self.url) => Verification::Loopback,
            ("http", None) => return Err("plain HTTP is for loopback addresses only"),
            ("http", Some(_)) => return Err("`--spiffe-id` needs an `https` URL"),
            ("https", Some(_)) if self.certificate.is_none() && self.workload_api.is_none() => {
                return Err("`--spiffe-id` needs an SVID: `--certificate` or `--workload-api`");
            }
            ("https", Some(id)) => Verification::Spiffe(id.clone()),
            ("https", None) => Verification::WebPki { roots: self.roots.clone() },
            _ => return Err("the URL has to start with `https://`, or `http://` on loopback"),
        };
        Ok(Http {
            url: self.url.clone(),
            others: Vec::new(),
            health: None,
            transport: Transport::StreamableHttp,
            verification,
            host: None,
            connect_timeout: Duration::from_secs(10),
            // Node's HTTP server and uvicorn close after 5 s.
            pool_idle_timeout: Duration::from_secs(4),
            agent: Box::default(),
        })
    }

    fn identity(&self) -> Option<identity::Settings> {
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            let bundles: BTreeMap<String, PathBuf> = self.bundle.iter().cloned().collect();
            let (certificate, key) = (certificate.clone(), key.clone());
            return Some(identity::Settings::Files(Files { certificate, key, bundles }));
        }
        let endpoint = self.workload_api.clone()?;
        Some(identity::Settings::WorkloadApi { endpoint })
    }
}

/// Waits for an SVID, but not so long that the client would take the silence for a fault.
async fn first_identity(source: &Arc<Source>) {
    let mut changed = source.changed();
    let serving = changed.wait_for(|status| status.state.serves());
    if timeout(IDENTITY, serving).await.is_err() {
        tracing::warn!("there is no valid SVID yet");
    }
}

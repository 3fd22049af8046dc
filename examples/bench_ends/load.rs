//! The load in front of the proxies: keeps connections busy, checks every answer, and reads the
//! proxy's CPU time over exactly the window in which it counts calls.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use lictor::telemetry::Clock;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsConnector;

use crate::{message::Reader, process::CpuTime, upstream::answer};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address to call.
    #[arg(long)]
    connect: SocketAddr,
    /// File with the body of every call.
    #[arg(long)]
    body: PathBuf,
    /// Connections, each with one call at a time.
    #[arg(long, default_value_t = 16)]
    connections: u32,
    /// Calls per second over all connections; without it, as many as the answers allow.
    #[arg(long)]
    rate: Option<u32>,
    /// Seconds of load before anything is counted.
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Seconds that count.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Processes whose CPU time is read; may be given more than once.
    #[arg(long)]
    process: Vec<u32>,
    #[command(flatten)]
    identity: Identity,
}

/// Who calls; nobody in particular if it is left out.
#[derive(clap::Args)]
pub(crate) struct Identity {
    /// PEM file with the client's certificate; makes it mutual TLS.
    #[arg(long, requires_all = ["key", "roots"])]
    certificate: Option<PathBuf>,
    /// PEM file with the certificate's key.
    #[arg(long)]
    key: Option<PathBuf>,
    /// PEM file with the roots of the server's certificate, which has to be for `localhost`.
    #[arg(long)]
    roots: Option<PathBuf>,
}

/// What is printed; times in microseconds.
#[derive(Serialize)]
struct Report {
    calls: usize,
    seconds: f64,
    cpu_us: f64,
    p50_us: u32,
    p99_us: u32,
}

/// Runs the load and prints the report; fails at the first wrong answer.
pub(crate) async fn run(arguments: Arguments) -> io::Result<()> {
    let body = fs::read(&arguments.body)?;
    let caller = Arc::new(Caller {
        request: request(arguments.connect, &body),
        answer: answer(body.len()),
        phase: Phase::default(),
        pace: arguments.rate.map(|rate| {
            Duration::from_secs_f64(f64::from(arguments.connections) / f64::from(rate))
        }),
    });
    let tls = arguments.identity.connector()?;

    let mut connections = JoinSet::new();
    for index in 0..arguments.connections {
        let offset = caller.pace.unwrap_or_default() * index / arguments.connections;
        let caller = Arc::clone(&caller);
        let stream = TcpStream::connect(arguments.connect).await?;
        stream.set_nodelay(true)?;
        match &tls {
            Some(tls) => {
                let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
                let stream = tls.connect(name, stream).await?;
                connections.spawn(async move { caller.call_on(stream, offset).await });
            }
            None => {
                connections.spawn(async move { caller.call_on(stream, offset).await });
            }
        }
    }

    wait(&mut connections, arguments.warm_up).await?;
    let (opened, before) = (Clock.instant(), CpuTime::of(&arguments.process)?);
    caller.phase.enter(Phase::COUNT);
    wait(&mut connections, arguments.seconds).await?;
    let (after, window) = (CpuTime::of(&arguments.process)?, opened.elapsed());
    caller.phase.enter(Phase::STOP);

    let mut latencies = Vec::new();
    while let Some(connection) = connections.join_next().await {
        latencies.append(&mut connection.map_err(io::Error::other)??);
    }
    latencies.sort_unstable();
    let percentile = |percent: usize| {
        let rank = latencies.len().saturating_sub(1) * percent / 100;
        latencies.get(rank).copied().unwrap_or_default()
    };
    let report = Report {
        calls: latencies.len(),
        seconds: window.as_secs_f64(),
        cpu_us: after.since(&before).as_secs_f64() * 1e6,
        p50_us: percentile(50),
        p99_us: percentile(99),
    };
    serde_json::to_writer(io::stdout(), &report)?;
    Ok(())
}

/// Lets the load run on; a connection that ends in the meantime has failed.
async fn wait(connections: &mut JoinSet<io::Result<Vec<u32>>>, seconds: f64) -> io::Result<()> {
    tokio::select! {
        () = sleep(Duration::from_secs_f64(seconds)) => Ok(()),
        Some(ended) = connections.join_next() => {
            ended.map_err(io::Error::other)??;
            Err(io::Error::other("a connection ended early"))
        }
    }
}

/// What all connections share.
struct Caller {
    request: Vec<u8>,
    answer: String,
    phase: Phase,
    /// Time between two calls on one connection; `None` for no pause.
    pace: Option<Duration>,
}

impl Caller {
    /// Calls until told to stop; returns the latencies of those calls that count, in microseconds.
    async fn call_on<S>(&self, stream: S, offset: Duration) -> io::Result<Vec<u32>>
    where
        S: AsyncRead + AsyncWrite,
    {
        let (read, mut write) = tokio::io::split(stream);
        let mut responses = Reader::new(read);
        let mut latencies = Vec::new();
        let mut due = Clock.instant() + offset;
        loop {
            let start = self.turn(&mut due).await;
            write.write_all(&self.request).await?;
            write.flush().await?;
            match responses.next().await? {
                Some(response)
                    if response.head.starts_with(b"HTTP/1.1 200")
                        && response.body == self.answer.as_bytes() => {}
                Some(response) => {
                    let head = String::from_utf8_lossy(response.head);
                    let body = String::from_utf8_lossy(response.body);
                    return Err(io::Error::other(format!("wrong answer: {head}\n\n{body}")));
                }
                None => return Err(io::Error::other("closed instead of answered")),
            }
            match self.phase.current() {
                Phase::COUNT => {
                    let micros = start.elapsed().as_micros();
                    latencies.push(u32::try_from(micros).unwrap_or(u32::MAX));
                }
                Phase::STOP => return Ok(latencies),
                _ => {}
            }
        }
    }

    /// Waits for the next call's turn and says when its latency starts: now, or when it was due if
    /// the call before it took too long (a slow proxy must not slow its own measurement down).
    async fn turn(&self, due: &mut Instant) -> Instant {
        let Some(pace) = self.pace else { return Clock.instant() };
        let scheduled = *due;
        *due += pace;
        let pause = scheduled.saturating_duration_since(Clock.instant());
        if pause.is_zero() {
            return scheduled;
        }
        sleep(pause).await;
        Clock.instant()
    }
}

/// Whether calls are counted.
#[derive(Default)]
struct Phase(AtomicU8);

impl Phase {
    const COUNT: u8 = 1;
    const STOP: u8 = 2;

    fn enter(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }

    fn current(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A call of `/mcp` with this body.
pub(crate) fn request(host: SocketAddr, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n\
         User-Agent: bench/1\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

impl Identity {
    /// How to do TLS, if it is to be done.
    pub(crate) fn connector(&self) -> io::Result<Option<TlsConnector>> {
        let (Some(certificate), Some(key), Some(roots)) =
            (&self.certificate, &self.key, &self.roots)
        else {
            return Ok(None);
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut store = RootCertStore::empty();
        for root in certificates(roots)? {
            store.add(root).map_err(io::Error::other)?;
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(store)
            .with_client_auth_cert(certificates(certificate)?, key)
            .map_err(io::Error::other)?;
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect())
        .map_err(io::Error::other)
}

//! Many event streams at once through one proxy: what each costs it in memory, how fast an event
//! passes while all are open, and whether each is ended well when the proxy is told to stop.

use std::{fs, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use lictor::telemetry::Clock;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::ServerName;
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    load::{Identity, request},
    message::{HEAD_LIMIT, invalid},
    process::resident_kib,
    upstream::event,
};

/// Streams that are being opened at the same time.
const OPENING: usize = 32;
/// Longest that any one step may take: opening all streams, and ending all of them.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address to call.
    #[arg(long)]
    connect: SocketAddr,
    /// File with the body of the call that opens a stream.
    #[arg(long)]
    body: PathBuf,
    /// Streams to open, each on a connection of its own.
    #[arg(long, default_value_t = 2000)]
    streams: u32,
    /// Seconds for which all are open and events are timed.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Process whose memory is read.
    #[arg(long)]
    process: i32,
    /// Tell that process to stop when the time is over, and wait for the end of each stream.
    #[arg(long)]
    stop: bool,
    #[command(flatten)]
    identity: Identity,
}

/// What is printed.
#[derive(Serialize)]
struct Report {
    streams: u32,
    /// What the process grew by for each stream.
    kib: f64,
    events: usize,
    p50_ms: f64,
    p99_ms: f64,
    /// Streams that ended well; 0 if the process was not told to stop.
    ended: u32,
}

/// What a stream tells while it goes on.
enum News {
    Open,
    /// The time that an event took.
    Event(Duration),
}

/// Runs the streams and prints the report; fails at the first that is wrong.
pub(crate) async fn run(arguments: Arguments) -> io::Result<()> {
    let body = fs::read(&arguments.body)?;
    let request: Arc<[u8]> = request(arguments.connect, &body).into();
    let tls = arguments.identity.connector()?;
    let before = resident_kib(arguments.process)?;

    let (news, mut heard) = mpsc::unbounded_channel();
    let (stop, stopping) = watch::channel(false);
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut streams = JoinSet::new();
    for _ in 0..arguments.streams {
        let (request, news, stopping) = (Arc::clone(&request), news.clone(), stopping.clone());
        let (tls, opening) = (tls.clone(), Arc::clone(&opening));
        streams.spawn(async move {
            let turn = opening.acquire_owned().await.map_err(io::Error::other)?;
            let stream = TcpStream::connect(arguments.connect).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
            let follow = Follow { request, news, stopping, opening: Some(turn) };
            match tls {
                Some(tls) => follow.on(tls.connect(name, stream).await?).await,
                None => follow.on(stream).await,
            }
        });
    }

    let mut opened = 0;
    let all_open = async {
        while opened < arguments.streams {
            tokio::select! {
                Some(said) = heard.recv() => opened += u32::from(matches!(said, News::Open)),
                Some(ended) = streams.join_next() => early(ended)?,
            }
        }
        Ok::<_, io::Error>(())
    };
    timeout(PATIENCE, all_open).await.map_err(|_| invalid("not all streams open"))??;

    while heard.try_recv().is_ok() {}
    tokio::select! {
        () = sleep(Duration::from_secs_f64(arguments.seconds)) => {}
        Some(ended) = streams.join_next() => early(ended)?,
    }
    let after = resident_kib(arguments.process)?;
    let mut times = Vec::new();
    while let Ok(said) = heard.try_recv() {
        if let News::Event(time) = said {
            times.push(time);
        }
    }

    let mut ended = 0;
    if arguments.stop {
        stop.send_replace(true);
        let process = Pid::from_raw(arguments.process).ok_or_else(|| invalid("no process"))?;
        kill_process(process, Signal::TERM)?;
        let all_ended = async {
            while let Some(end) = streams.join_next().await {
                end.map_err(io::Error::other)??;
                ended += 1;
            }
            Ok::<_, io::Error>(())
        };
        timeout(PATIENCE, all_ended).await.map_err(|_| invalid("not all streams end"))??;
    }

    times.sort_unstable();
    let percentile = |percent: usize| {
        let rank = times.len().saturating_sub(1) * percent / 100;
        times.get(rank).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    let report = Report {
        streams: arguments.streams,
        kib: after.saturating_sub(before) as f64 / f64::from(arguments.streams),
        events: times.len(),
        p50_ms: percentile(50),
        p99_ms: percentile(99),
        ended,
    };
    serde_json::to_writer(io::stdout(), &report)?;
    Ok(())
}

/// What to say of a stream that is over while it should go on.
fn early(ended: Result<io::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
    ended.map_err(io::Error::other)??;
    Err(invalid("a stream ended early"))
}

/// One stream.
struct Follow {
    request: Arc<[u8]>,
    news: mpsc::UnboundedSender<News>,
    stopping: watch::Receiver<bool>,
    opening: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Follow {
    /// Opens it, and reads it to its end. Every event has to be whole and the next of its stream;
    /// once the proxy has been told to stop, others may follow: what it has to say itself.
    async fn on<S: AsyncRead + AsyncWrite + Unpin>(mut self, mut stream: S) -> io::Result<()> {
        stream.write_all(&self.request).await?;
        stream.flush().await?;
        let mut events = Events::open(stream).await?;
        let mut count = 0;
        while let Some(received) = events.next().await? {
            let sent = sent(&received);
            if sent.is_none_or(|sent| received != event(count, sent).as_bytes()) {
                if *self.stopping.borrow() && is_message(&received) {
                    continue;
                }
                let received = String::from_utf8_lossy(&received);
                return Err(invalid(&format!("wrong event, {count} was due: {received}")));
            }
            if count == 0 {
                self.opening = None;
                self.news.send(News::Open).ok();
            } else if let Some(sent) = sent {
                let time = Clock.unix().saturating_sub(Duration::from_nanos(sent));
                self.news.send(News::Event(time)).ok();
            }
            count += 1;
        }
        Ok(())
    }
}

/// When the upstream says that it sent an event, in nanoseconds of Unix time.
fn sent(event: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(event).ok()?;
    let digits = text.split_once(r#""sent":"#)?.1;
    digits.split_once('}')?.0.parse().ok()
}

/// Whether an event carries a JSON-RPC message.
fn is_message(event: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(event) else { return false };
    let data: String = text.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    let message = serde_json::from_str::<serde_json::Value>(&data);
    message.is_ok_and(|message| message.get("jsonrpc").is_some_and(|version| version == "2.0"))
}

/// The events of a chunked answer, without comments.
struct Events<S> {
    stream: S,
    /// What has come and is still in chunks.
    chunked: Vec<u8>,
    /// What has come out of them and is no whole event yet.
    content: Vec<u8>,
    last_chunk: bool,
}

impl<S: AsyncRead + Unpin> Events<S> {
    async fn open(mut stream: S) -> io::Result<Self> {
        let mut chunked = Vec::with_capacity(1024);
        let head = loop {
            if let Some(at) = memchr::memmem::find(&chunked, b"\r\n\r\n") {
                break chunked.drain(..at + 4).collect::<Vec<u8>>();
            }
            if stream.read_buf(&mut chunked).await? == 0 || chunked.len() > HEAD_LIMIT {
                return Err(invalid("no head"));
            }
        };
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let expected =
            ["\r\ncontent-type: text/event-stream", "\r\ntransfer-encoding: chunked\r\n"];
        if !head.starts_with("http/1.1 200") || !expected.iter().all(|line| head.contains(line)) {
            return Err(invalid(&format!("no event stream: {head}")));
        }
        Ok(Self { stream, chunked, content: Vec::new(), last_chunk: false })
    }

    /// The next event with the empty line that ends it; `None` at the proper end of the stream.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            while let Some(at) = memchr::memmem::find(&self.content, b"\n\n") {
                let event: Vec<u8> = self.content.drain(..at + 2).collect();
                if !event.starts_with(b":") {
                    return Ok(Some(event));
                }
            }
            if self.last_chunk {
                return self.close().await.map(|()| None);
            }
            if !self.take_chunk()? && self.stream.read_buf(&mut self.chunked).await? == 0 {
                return Err(invalid("closed without a last chunk"));
            }
        }
    }

    /// Moves one whole chunk over, if it has come.
    fn take_chunk(&mut self) -> io::Result<bool> {
        let Some(at) = memchr::memmem::find(&self.chunked, b"\r\n") else { return Ok(false) };
        let size = self.chunked.get(..at).and_then(|line| std::str::from_utf8(line).ok());
        let size = size.and_then(|line| usize::from_str_radix(line, 16).ok());
        let size = size.ok_or_else(|| invalid("no size of a chunk"))?;
        let (start, end) = (at + 2, at + 2 + size);
        match self.chunked.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            Some(_) => return Err(invalid("a chunk of another size")),
        }
        self.content.extend(self.chunked.drain(..end + 2).take(end).skip(start));
        self.last_chunk = size == 0;
        Ok(true)
    }

    /// Behind the last chunk there is nothing but the end of the connection.
    async fn close(&mut self) -> io::Result<()> {
        if !self.content.is_empty() || !self.chunked.is_empty() {
            return Err(invalid("bytes behind the end of the stream"));
        }
        match self.stream.read_buf(&mut self.chunked).await? {
            0 => Ok(()),
            _ => Err(invalid("bytes behind the end of the stream")),
        }
    }
}

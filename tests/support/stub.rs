//! A scripted upstream on loopback. It counts connections and requests, keeps what it received, and
//! answers by a function of the request, or hands each request over to the test.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::http::{Head, Wire, within};

/// One request as the upstream saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: Head,
    /// Without any transfer coding.
    pub(crate) body: Bytes,
}

impl Seen {
    /// The id of the JSON-RPC request, as JSON.
    pub(crate) fn id(&self) -> String {
        let message: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        message.get("id").map(ToString::to_string).unwrap_or_default()
    }
}

/// A running upstream; it ends with this value.
pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    calls: Option<mpsc::UnboundedReceiver<Call>>,
    _tasks: JoinSet<()>,
}

struct Shared {
    script: Script,
    connections: AtomicUsize,
    requests: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
}

type Answering = dyn Fn(&Seen) -> Vec<u8> + Send + Sync;

enum Script {
    /// The bytes to answer with; the connection is kept if they say how long they are.
    Answer(Box<Answering>),
    /// The test answers, once the whole request, or only its head, is there.
    Test { calls: mpsc::UnboundedSender<Call>, heads_only: bool },
}

impl Stub {
    /// Answers each request with the bytes that `answer` makes of it.
    pub(crate) async fn answering(
        answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(listen(None), Script::Answer(Box::new(answer)), None, None)
    }

    /// Answers every request with an empty result in JSON.
    pub(crate) async fn json() -> Self {
        Self::answering(|seen| json(&result(seen, "{}"))).await
    }

    /// The same, where another one was.
    pub(crate) async fn json_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("the address is free again");
        let answer = Box::new(|seen: &Seen| json(&result(seen, "{}")));
        Self::serve(listener, Script::Answer(answer), None, None)
    }

    /// Hands every request over to the test; see [`Self::call`].
    pub(crate) async fn scripted() -> Self {
        Self::handing_over(listen(None), false, None)
    }

    /// As [`Self::scripted`], but before the body is read, and with a small receive buffer.
    pub(crate) async fn scripted_by_heads() -> Self {
        Self::handing_over(listen(Some(16 << 10)), true, None)
    }

    /// As [`Self::scripted`], over TLS.
    pub(crate) async fn scripted_tls(config: Arc<ServerConfig>) -> Self {
        Self::handing_over(listen(None), false, Some(config))
    }

    fn handing_over(
        listener: TcpListener,
        heads_only: bool,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let (calls, received) = mpsc::unbounded_channel();
        Self::serve(listener, Script::Test { calls, heads_only }, Some(received), tls)
    }

    fn serve(
        listener: TcpListener,
        script: Script,
        calls: Option<mpsc::UnboundedReceiver<Call>>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let address = listener.local_addr().expect("a bound address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            script,
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            seen: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, Arc::clone(&shared)));
        Self { address, scheme, shared, calls, _tasks: tasks }
    }

    /// Where its endpoint is.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}/mcp", self.scheme, self.address)
    }

    /// The next request, which the test has to answer.
    pub(crate) async fn call(&mut self) -> Call {
        let calls = self.calls.as_mut().expect("a scripted upstream");
        within("a request at the upstream", calls.recv()).await.expect("the upstream runs")
    }

    /// Connections that were accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Requests whose head arrived so far.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// The requests that arrived whole.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("the lock").clone()
    }

    /// The only request that arrived.
    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

async fn accept(listener: TcpListener, tls: Option<Arc<ServerConfig>>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(connection(stream, tls.clone(), Arc::clone(&shared)));
    }
}

async fn connection(stream: TcpStream, tls: Option<Arc<ServerConfig>>, shared: Arc<Shared>) {
    // Errors only mean that the other side is gone.
    let _ = stream.set_nodelay(true);
    let mut wire = match tls {
        None => Wire::new(stream),
        Some(config) => match TlsAcceptor::from(config).accept(stream).await {
            Ok(stream) => Wire::new(stream),
            Err(_) => return,
        },
    };
    while let Some(head) = wire.idle_head().await {
        shared.requests.fetch_add(1, Ordering::SeqCst);
        match &shared.script {
            Script::Answer(answer) => {
                let seen = receive(&mut wire, head, &shared).await;
                let answer = answer(&seen);
                let keep = keeps(&answer);
                if !wire.try_send(answer).await || !keep {
                    return;
                }
            }
            Script::Test { calls, heads_only } => {
                let seen = match heads_only {
                    true => Seen { head, body: Bytes::new() },
                    false => receive(&mut wire, head, &shared).await,
                };
                let (back, again) = oneshot::channel();
                if calls.send(Call { seen, wire, back }).is_err() {
                    return;
                }
                match again.await {
                    Ok(kept) => wire = kept,
                    Err(_) => return,
                }
            }
        }
    }
}

async fn receive(wire: &mut Wire, head: Head, shared: &Shared) -> Seen {
    let mut body = Vec::new();
    if let Some(length) = head.header("content-length") {
        body = wire.exactly(length.parse().expect("a length")).await;
    } else if head.header("transfer-encoding").is_some() {
        while let Some(chunk) = wire.chunk().await {
            body.extend_from_slice(&chunk);
        }
    }
    let seen = Seen { head, body: body.into() };
    shared.seen.lock().expect("the lock").push(seen.clone());
    seen
}

/// Whether an answer says by itself where it ends, and not that the connection ends with it.
fn keeps(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let framed = head.contains("content-length:") || head.contains("transfer-encoding:");
    (framed || head.contains(" 204 ") || head.contains(" 304 "))
        && !head.contains("connection: close")
}

/// One request in the hands of the test, with the connection it came on.
pub(crate) struct Call {
    pub(crate) seen: Seen,
    pub(crate) wire: Wire,
    back: oneshot::Sender<Wire>,
}

impl Call {
    /// Sends bytes as they are.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.send(bytes).await;
    }

    /// Begins a chunked event stream.
    pub(crate) async fn begin_events(&mut self) {
        self.send(EVENTS).await;
    }

    /// Sends one chunk.
    pub(crate) async fn chunk(&mut self, bytes: impl AsRef<[u8]>) {
        self.send(chunk(bytes.as_ref())).await;
    }

    /// Ends a chunked body, and lets the connection serve the next request.
    pub(crate) async fn end(mut self) {
        self.send("0\r\n\r\n").await;
        self.keep();
    }

    /// Answers with a result in JSON, and lets the connection serve the next request.
    pub(crate) async fn answer(mut self, result_json: &str) {
        let answer = json(&result(&self.seen, result_json));
        self.send(answer).await;
        self.keep();
    }

    /// Lets the connection serve the next request.
    pub(crate) fn keep(self) {
        // The stub may be gone already, and the connection with it.
        let _ = self.back.send(self.wire);
    }

    /// Waits until the proxy has closed the connection.
    pub(crate) async fn abandoned(&mut self) {
        self.wire.ends().await;
    }
}

/// The head of a chunked event stream.
pub(crate) const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Transfer-Encoding: chunked\r\n\r\n";

/// One chunk of a chunked body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// A 200 with a JSON body of known length.
pub(crate) fn json(body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The JSON-RPC message that answers a request.
pub(crate) fn result(seen: &Seen, result: &str) -> String {
    let id = seen.id();
    let id = if id.is_empty() { "null" } else { &id };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn listen(receive_buffer: Option<u32>) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    if let Some(size) = receive_buffer {
        socket.set_recv_buffer_size(size).expect("a buffer");
    }
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    socket.listen(1024).expect("listening")
}

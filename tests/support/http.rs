//! Callers: a bare connection on which a test says exactly what it wants, and hyper's clients for
//! everything else. Every wait has a deadline.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Longest that anything may take that isn't meant to take long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// The receive buffer of a connection with little room, and the length of its segments, both in bytes. By the latter the
/// sender's side keeps its own buffer; on loopback that would be megabytes.
const NARROW: (u32, u32) = (16 << 10, 1460);

/// What bytes go over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Waits for something that has to come.
pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}

/// One connection.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    pending: Vec<u8>,
}

/// A message's head as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The first line.
    pub(crate) start: String,
    pub(crate) headers: HeaderMap,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), pending: Vec::new() }
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::new(dial(address, false).await)
    }

    /// With little room for what nobody has read: some hundred KiB.
    pub(crate) async fn connect_narrow(address: SocketAddr) -> Self {
        Self::new(dial(address, true).await)
    }

    /// The same with this protocol by ALPN.
    pub(crate) async fn connect_narrow_tls(
        address: SocketAddr,
        config: &ClientConfig,
        protocol: &[u8],
    ) -> Self {
        let stream = dial(address, true).await;
        Self::new(tls_over(stream, address, config, protocol).await)
    }

    /// With HTTP/1.1 by ALPN.
    pub(crate) async fn connect_tls(address: SocketAddr, config: &ClientConfig) -> Self {
        Self::new(tls(address, config, b"http/1.1").await)
    }

    /// With HTTP/2 by ALPN.
    pub(crate) async fn connect_http2(address: SocketAddr, config: &ClientConfig) -> Self {
        Self::new(tls(address, config, b"h2").await)
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.try_send(bytes).await, "the connection takes no more");
    }

    /// Whether the other side still took it.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let writing = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        within("writing", writing).await.is_ok()
    }

    /// Says that nothing more will come.
    pub(crate) async fn finish(&mut self) {
        within("finishing", self.stream.shutdown()).await.expect("finished");
    }

    /// The next answer, whatever informational ones come first.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        self.answer_body(&head, false).await
    }

    /// The next answer, which is one to `HEAD`.
    pub(crate) async fn answer_to_head(&mut self) -> Answer {
        let head = self.head().await;
        self.answer_body(&head, true).await
    }

    /// The next head, however long it takes to come; for a server between requests.
    pub(crate) async fn idle_head(&mut self) -> Option<Head> {
        while self.pending.is_empty() {
            let mut more = [0; 16 << 10];
            let length = self.stream.read(&mut more).await.ok().filter(|length| *length > 0)?;
            self.pending.extend_from_slice(&more[..length]);
        }
        self.try_head().await
    }

    async fn answer_body(&mut self, head: &Head, bodiless: bool) -> Answer {
        let status = head.status();
        let body = match head.framing(bodiless) {
            Framing::Length(length) => self.exactly(length).await,
            Framing::Chunked => {
                let mut whole = Vec::new();
                while let Some(chunk) = self.chunk().await {
                    whole.extend_from_slice(&chunk);
                }
                whole
            }
            Framing::UntilClose => self.rest().await,
        };
        Answer { status, headers: head.headers.clone(), body }
    }

    /// The next head; there has to be one.
    pub(crate) async fn head(&mut self) -> Head {
        self.try_head().await.expect("a head, not the end of the connection")
    }

    /// The next head; `None` if the connection ends before one is whole.
    pub(crate) async fn try_head(&mut self) -> Option<Head> {
        let end = loop {
            if let Some(at) = find(&self.pending, b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill().await {
                return None;
            }
        };
        let head: Vec<u8> = self.pending.drain(..end).collect();
        Some(Head::parse(&head))
    }

    /// The next chunk of a chunked body; `None` at its well-formed end.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        self.try_chunk().await.expect("a body that isn't cut")
    }

    /// As [`Self::chunk`], or an error if the body is cut.
    pub(crate) async fn try_chunk(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default();
        let length = usize::from_str_radix(digits, 16).expect("a chunk's length");
        if length == 0 {
            while !self.line().await?.is_empty() {}
            return Ok(None);
        }
        while self.pending.len() < length + 2 {
            if !self.fill().await {
                return Err(Cut);
            }
        }
        let chunk: Vec<u8> = self.pending.drain(..length + 2).collect();
        assert!(chunk.ends_with(b"\r\n"), "a chunk ends with CR LF");
        Ok(Some(chunk[..length].to_vec()))
    }

    async fn line(&mut self) -> Result<String, Cut> {
        loop {
            if let Some(at) = find(&self.pending, b"\r\n") {
                let line: Vec<u8> = self.pending.drain(..at + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if !self.fill().await {
                return Err(Cut);
            }
        }
    }

    /// Exactly so many bytes.
    pub(crate) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        self.try_exactly(length).await.expect("a connection that doesn't end inside a message")
    }

    /// Exactly so many bytes, unless the connection ends before.
    pub(crate) async fn try_exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.pending.len() < length {
            if !self.fill().await {
                return None;
            }
        }
        Some(self.pending.drain(..length).collect())
    }

    /// Everything up to the end of the connection, orderly or not.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.pending)
    }

    /// Everything that came until the connection ended, or until it was silent for so long.
    pub(crate) async fn rest_for(&mut self, patience: Duration) -> Vec<u8> {
        while timeout(patience, self.fill()).await.is_ok_and(|more| more) {}
        std::mem::take(&mut self.pending)
    }

    /// The connection ends now, with nothing more on it.
    pub(crate) async fn ends(&mut self) {
        let rest = self.rest().await;
        assert!(rest.is_empty(), "more came: {}", String::from_utf8_lossy(&rest));
    }

    async fn fill(&mut self) -> bool {
        let mut more = [0; 16 << 10];
        match within("reading", self.stream.read(&mut more)).await {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.pending.extend_from_slice(&more[..length]);
                true
            }
        }
    }
}

/// A body ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut;

/// How a message's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Head {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.trim_end().split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':').expect("a header line");
            let name: HeaderName = name.parse().expect("a header name");
            headers.append(name, HeaderValue::from_str(value.trim()).expect("a header value"));
        }
        Self { start, headers }
    }

    pub(crate) fn status(&self) -> u16 {
        let status = self.start.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status line: `{}`", self.start))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    /// The framing of an answer with this head.
    pub(crate) fn framing(&self, bodiless: bool) -> Framing {
        let coded = self.header("transfer-encoding");
        let length = self.header("content-length");
        assert!(coded.is_none() || length.is_none(), "two framings: {:?}", self.headers);
        match (self.status(), coded, length) {
            (204 | 304 | 100..=199, _, _) => Framing::Length(0),
            _ if bodiless => Framing::Length(0),
            (_, Some(coding), _) => {
                assert_eq!(coding, "chunked");
                Framing::Chunked
            }
            (_, None, Some(length)) => Framing::Length(length.parse().expect("a length")),
            (_, None, None) => Framing::UntilClose,
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: `{}`", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `error.data.kind` of a refusal.
    pub(crate) fn kind(&self) -> String {
        let json = self.json();
        let kind = json.pointer("/error/data/kind").and_then(Value::as_str);
        kind.unwrap_or_else(|| panic!("no refusal: {json}")).to_owned()
    }
}

/// The only value of a header, as text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    assert!(values.next().is_none(), "`{name}` is there twice");
    Some(value.to_str().expect("ASCII"))
}

/// The first place of `needle`.
pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The three ways to reach a Lictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http1,
    Http1Tls,
    Http2Tls,
}

/// All of them.
pub(crate) const TRANSPORTS: [Transport; 3] =
    [Transport::Http1, Transport::Http1Tls, Transport::Http2Tls];

/// A body that a [`Caller`] sends.
pub(crate) type Outgoing = BoxBody<Bytes, Infallible>;

/// A body that is there as a whole.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Outgoing {
    Full::new(bytes.into()).boxed()
}

/// One connection of a well-behaved client. Dropping it closes the connection.
pub(crate) struct Caller {
    sender: Sender,
    authority: String,
    connection: JoinHandle<()>,
}

enum Sender {
    One(http1::SendRequest<Outgoing>),
    Two(http2::SendRequest<Outgoing>),
}

impl Caller {
    pub(crate) async fn plain(address: SocketAddr) -> Self {
        Self::http1(address, dial(address, false).await).await
    }

    /// Over TLS with the protocol that ALPN agrees on.
    pub(crate) async fn tls(address: SocketAddr, config: &ClientConfig, http2: bool) -> Self {
        if !http2 {
            return Self::http1(address, tls(address, config, b"http/1.1").await).await;
        }
        let stream = TokioIo::new(tls(address, config, b"h2").await);
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
        Self {
            sender: Sender::Two(sender),
            authority: address.to_string(),
            connection: tokio::spawn(async move {
                let _ = connection.await;
            }),
        }
    }

    async fn http1(address: SocketAddr, stream: impl Stream + 'static) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1");
        Self {
            sender: Sender::One(sender),
            authority: address.to_string(),
            connection: tokio::spawn(async move {
                let _ = connection.await;
            }),
        }
    }

    /// A request on this connection's protocol, with what every MCP client sends.
    pub(crate) fn request(&self, method: &str, body: Outgoing) -> Request<Outgoing> {
        self.request_to(method, "/mcp", body)
    }

    pub(crate) fn request_to(
        &self,
        method: &str,
        target: &str,
        body: Outgoing,
    ) -> Request<Outgoing> {
        let authority = &self.authority;
        let builder = Request::builder()
            .method(method)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream");
        let builder = match &self.sender {
            Sender::One(_) => builder.uri(target).header(header::HOST, authority),
            Sender::Two(_) => builder.uri(format!("https://{authority}{target}")),
        };
        builder.body(body).expect("a request")
    }

    pub(crate) async fn try_send(&mut self, request: Request<Outgoing>) -> hyper::Result<Reply> {
        within("the head of an answer", self.exchange(request)).await
    }

    /// The same without a deadline.
    pub(crate) async fn exchange(&mut self, request: Request<Outgoing>) -> hyper::Result<Reply> {
        let answer = match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }?;
        let (head, body) = answer.into_parts();
        Ok(Reply { status: head.status, headers: head.headers, body })
    }

    pub(crate) async fn send(&mut self, request: Request<Outgoing>) -> Reply {
        self.try_send(request).await.expect("an answer")
    }

    pub(crate) async fn post(&mut self, body: impl Into<Bytes>) -> Reply {
        let request = self.request("POST", whole(body));
        self.send(request).await
    }

    /// Waits until the other side has closed the connection.
    pub(crate) async fn closed(mut self) {
        within("the end of the connection", &mut self.connection).await.expect("no panic");
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// An answer whose body is still to come. Dropping it on HTTP/2 resets the stream.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    /// The next piece of the body; `None` at its well-formed end.
    pub(crate) async fn chunk(&mut self) -> Option<Bytes> {
        self.try_chunk().await.expect("a body that isn't cut")
    }

    pub(crate) async fn try_chunk(&mut self) -> hyper::Result<Option<Bytes>> {
        loop {
            let frame = within("more of a body", self.body.frame()).await;
            match frame.transpose()?.map(hyper::body::Frame::into_data) {
                None => return Ok(None),
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => return Ok(Some(data)),
                Some(Err(_trailers)) => {}
            }
        }
    }

    /// The answer with its whole body.
    pub(crate) async fn whole(self) -> Answer {
        let body = within("a whole body", self.body.collect()).await.expect("an uncut body");
        Answer {
            status: self.status.as_u16(),
            headers: self.headers,
            body: body.to_bytes().to_vec(),
        }
    }
}

async fn dial(address: SocketAddr, narrow: bool) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    if narrow {
        let (room, segment) = NARROW;
        socket.set_recv_buffer_size(room).expect("a buffer");
        SockRef::from(&socket).set_tcp_mss(segment).expect("short segments");
    }
    let stream = within("connecting", socket.connect(address)).await.expect("connected");
    stream.set_nodelay(true).expect("no delay");
    stream
}

async fn tls(address: SocketAddr, config: &ClientConfig, protocol: &[u8]) -> TlsStream<TcpStream> {
    tls_over(dial(address, false).await, address, config, protocol).await
}

async fn tls_over(
    stream: TcpStream,
    address: SocketAddr,
    config: &ClientConfig,
    protocol: &[u8],
) -> TlsStream<TcpStream> {
    let mut config = config.clone();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::from(address.ip());
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    within("a handshake", handshake).await.expect("a handshake")
}

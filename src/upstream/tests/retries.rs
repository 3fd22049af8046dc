//! A call reaches the upstream at most once, whatever goes wrong.
//!
//! HTTP is written by hand here, so that connections break exactly where a row of the table says.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Method;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    DEADLINE, Error, Upstream, Verification, ca::Ca, call, post, server, settings, source, spiffe,
};

/// What the server does once it has read a whole request.
#[derive(Clone, Copy)]
enum Then {
    /// Sends this and waits for the next request.
    Send(&'static str),
    /// Sends this and closes the connection.
    SendAndClose(&'static str),
}

/// An HTTP/1.1 server that counts whole requests, and does one thing after each in turn.
struct Scripted {
    address: std::net::SocketAddr,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    closed: watch::Receiver<usize>,
}

impl Scripted {
    async fn start(script: &'static [Then]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let (requests, connections) = (Arc::default(), Arc::default());
        let (close, closed) = watch::channel(0);
        let server = Self {
            address,
            requests: Arc::clone(&requests),
            connections: Arc::clone(&connections),
            closed,
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, close) = (Arc::clone(&requests), close.clone());
                tokio::spawn(async move {
                    act(stream, script, requests).await;
                    close.send_modify(|count| *count += 1);
                });
            }
        });
        server
    }

    fn upstream(&self) -> Arc<Upstream> {
        let url = format!("http://{}/mcp", self.address);
        Upstream::new(settings(&url, Verification::Loopback), None).expect("set up")
    }

    fn counts(&self) -> (usize, usize) {
        (self.requests.load(Ordering::SeqCst), self.connections.load(Ordering::SeqCst))
    }
}

async fn act(mut stream: TcpStream, script: &'static [Then], requests: Arc<AtomicUsize>) {
    while read_request(&mut stream).await.is_some() {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        match script.get(number).expect("no more requests than the script has") {
            Then::Send(bytes) => stream.write_all(bytes.as_bytes()).await.expect("written"),
            Then::SendAndClose(bytes) => {
                stream.write_all(bytes.as_bytes()).await.expect("written");
                return;
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<()> {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).await.ok().map(|_| ())
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn no_answer_of_http_1_makes_a_call_go_out_again() {
    use Then::{Send, SendAndClose};
    let rows: &[(&str, &'static [Then], &str)] = &[
        ("503", &[Send("HTTP/1.1 503 No\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n")], "503"),
        ("500", &[SendAndClose("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")], "500"),
        ("408", &[SendAndClose("HTTP/1.1 408 No\r\nconnection: close\r\n\r\n")], "408"),
        ("421", &[Send("HTTP/1.1 421 No\r\ncontent-length: 0\r\n\r\n")], "421"),
        ("error in the answer", &[Send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!")], "200"),
        ("closed without an answer", &[SendAndClose("")], "Failed"),
        ("closed in the head", &[SendAndClose("HTTP/1.1 200 OK\r\ncontent-")], "Failed"),
        (
            "closed in the body",
            &[SendAndClose("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")],
            "Failed",
        ),
        (
            "closed in a chunk",
            &[SendAndClose("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf")],
            "Failed",
        ),
        ("not HTTP", &[SendAndClose("220 mail ready\r\n\r\n")], "Failed"),
        (
            "an upgrade",
            &[Send("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")],
            "Failed",
        ),
    ];
    for (what, script, outcome) in rows {
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let server = Scripted::start(script).await;
            let result = call(&server.upstream(), method.clone(), "").await;
            let told = match &result {
                Ok(answer) => answer.as_str(),
                Err(Error::Failed(_)) => "Failed",
                Err(Error::Unreachable(_)) => "Unreachable",
                Err(Error::NoIdentity) => "NoIdentity",
                Err(Error::Full | Error::Silent | Error::Late | Error::SessionGone) => "of others",
            };
            assert!(told.starts_with(outcome), "{what}, {method}: {result:?}");
            assert_eq!(server.counts().0, 1, "{what}, {method}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced_and_the_call_goes_out_once() {
    let server = Scripted::start(&[Then::SendAndClose(OK), Then::Send(OK)]).await;
    let upstream = server.upstream();
    assert_eq!(post(&upstream).await.expect("first"), "200 ok");
    // Closed in the kernel; the pool may see it before this call, or only when this call is about to be
    // written.
    let mut closed = server.closed.clone();
    timeout(DEADLINE, closed.wait_for(|count| *count == 1)).await.expect("in time").expect("runs");
    assert_eq!(post(&upstream).await.expect("second"), "200 ok");
    assert_eq!(server.counts(), (2, 2));
}

#[tokio::test]
async fn a_reused_connection_that_breaks_after_the_call_was_sent_is_a_failure() {
    let server = Scripted::start(&[Then::Send(OK), Then::SendAndClose("")]).await;
    let upstream = server.upstream();
    assert_eq!(post(&upstream).await.expect("first"), "200 ok");
    let error = post(&upstream).await.expect_err("no answer");
    assert!(matches!(error, Error::Failed(_)), "{error:?}");
    assert_eq!(server.counts(), (2, 1));
}

#[tokio::test]
async fn a_refused_connection_is_known_to_have_sent_nothing() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = free.local_addr().expect("address");
    drop(free);
    let settings = settings(&format!("http://{address}/"), Verification::Loopback);
    let upstream = Upstream::new(settings, None).expect("set up");
    let error = post(&upstream).await.expect_err("refused");
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
}

/// Frames of HTTP/2 (RFC 9113 §6): type, flags, stream and payload.
fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    [&[0, 0, length, kind, 0, 0, 0, 0, stream], payload].concat()
}

const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// Reads requests over HTTP/2 to their end, and answers each with `frames`, then closes.
async fn break_off<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    frames: &[u8],
    requests: &AtomicUsize,
) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok()?;
    stream.write_all(&frame(SETTINGS, 0, &[])).await.ok()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.ok()?;
        // DATA with END_STREAM: the request is complete.
        if head[3] == 0 && head[4] & 1 == 1 {
            requests.fetch_add(1, Ordering::SeqCst);
            stream.write_all(frames).await.ok()?;
            stream.flush().await.ok()?;
            return stream.shutdown().await.ok();
        }
    }
}

#[tokio::test]
async fn no_answer_of_http_2_makes_a_call_go_out_again() {
    let ca = Ca::new("one.test");
    let (source, _files) = source(&ca.svid("/lictor"), &[&ca]);
    let (protocol_error, refused): ([u8; 4], [u8; 4]) = ([0, 0, 0, 1], [0, 0, 0, 7]);
    let goaway =
        |last: u8, code: [u8; 4]| frame(GOAWAY, 0, &[&[0, 0, 0, last], &code[..]].concat());
    for (what, frames) in [
        ("GOAWAY PROTOCOL_ERROR", goaway(1, protocol_error)),
        ("GOAWAY that says it wasn't read", goaway(0, [0; 4])),
        ("GOAWAY PROTOCOL_ERROR that says it wasn't read", goaway(0, protocol_error)),
        ("REFUSED_STREAM", frame(RST_STREAM, 1, &refused)),
        ("reset", frame(RST_STREAM, 1, &protocol_error)),
        ("closed", vec![]),
        ("no frame", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("https://{}/mcp", listener.local_addr().expect("address"));
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let tls = Arc::new(server::config(&ca.svid("/server"), Some(&ca), &["h2"]));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = TlsAcceptor::from(Arc::clone(&tls)).accept(stream).await;
                break_off(stream.expect("TLS"), &frames, &count).await;
            }
        });
        let settings = settings(&url, spiffe("spiffe://one.test/server"));
        let upstream = Upstream::new(settings, Some(source.clone())).expect("set up");
        let error = post(&upstream).await.expect_err(what);
        assert!(matches!(error, Error::Failed(_)), "{what}: {error:?}");
        assert_eq!(requests.load(Ordering::SeqCst), 1, "{what}");
        task.abort();
    }
}

//! Upstreams that speak HTTP/2: one that is well-behaved, and one written frame by frame.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    CALL, CHANGE,
    framing::http2::{END_STREAM, GOAWAY, SETTINGS, frame},
    http::{TRANSPORTS, Wire, whole, within},
    subject::{Lictor, Setup, upstream_tls},
};

const ACK: u8 = 1;

/// Reads one request to its end; the stream's number.
async fn request(wire: &mut Wire) -> u32 {
    loop {
        let head = wire.exactly(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        wire.exactly(length).await;
        // DATA or HEADERS with the end of the stream.
        if head[3] <= 1 && head[4] & END_STREAM != 0 {
            return stream;
        }
    }
}

#[tokio::test]
async fn a_call_that_an_http2_upstream_took_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let tls = TlsAcceptor::from(upstream_tls(b"h2"));
    let lictor = start(address).await;
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let upstream = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let Ok(stream) = tls.accept(stream).await else { continue };
            let mut wire = Wire::new(stream);
            wire.exactly(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()).await;
            wire.send(frame(SETTINGS, 0, 0, &[])).await;
            wire.send(frame(SETTINGS, ACK, 0, &[])).await;
            let stream = request(&mut wire).await;
            count.fetch_add(1, Ordering::SeqCst);
            // PROTOCOL_ERROR, with the call among what was processed.
            let goaway = [stream.to_be_bytes(), 1_u32.to_be_bytes()].concat();
            wire.try_send(frame(GOAWAY, 0, 0, &goaway)).await;
        }
    });
    for transport in TRANSPORTS {
        let answer = lictor.caller(transport).await.post(CHANGE).await.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (502, "upstream_failed"));
        assert_eq!(answer.json()["id"], 7);
    }
    assert_eq!(received.load(Ordering::SeqCst), TRANSPORTS.len());
    upstream.abort();
    for entry in lictor.stop(3).await {
        assert_eq!(entry["status"], "upstream_failed");
    }
}

async fn start(address: std::net::SocketAddr) -> Lictor {
    let setup = Setup::to(&format!("https://{address}/mcp"));
    setup.upstream("spiffeId: 'spiffe://one.test/server'").start().await
}

/// An upstream that answers lists by itself, and hands the bodies of other answers to the test.
struct Http2 {
    address: std::net::SocketAddr,
    connections: Arc<AtomicUsize>,
    calls: mpsc::UnboundedReceiver<mpsc::Sender<Result<Frame<Bytes>, Infallible>>>,
    _tasks: JoinSet<()>,
}

type Calls = mpsc::UnboundedSender<mpsc::Sender<Result<Frame<Bytes>, Infallible>>>;

impl Http2 {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let tls = TlsAcceptor::from(upstream_tls(b"h2"));
        let connections = Arc::new(AtomicUsize::new(0));
        let (handed, calls) = mpsc::unbounded_channel();
        let count = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let Ok(stream) = tls.accept(stream).await else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let handed = handed.clone();
                let answering = service_fn(move |request| answer(request, handed.clone()));
                let connection = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), answering);
                serving.spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Self { address, connections, calls, _tasks: tasks }
    }
}

async fn answer(
    request: Request<Incoming>,
    calls: Calls,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    assert_eq!(request.uri().path(), "/mcp");
    assert_eq!(request.headers().get("accept-encoding").expect("a header"), "identity");
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let builder = Response::builder().header("x-kept", "1").header("set-cookie", "s=1");
    if crate::http::find(&body, b"tools/list").is_some() {
        let list =
            r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"wipe"},{"name":"look"}]}}"#;
        let builder =
            builder.header("content-type", "application/json").header("content-length", list.len());
        return Ok(builder.body(whole(list)).expect("an answer"));
    }
    let (sender, body) = mpsc::channel(1);
    calls.send(sender).expect("the test runs");
    let body = StreamBody::new(ReceiverStream::new(body)).boxed();
    Ok(builder.header("content-type", "text/event-stream").body(body).expect("an answer"))
}

#[tokio::test]
async fn an_http2_upstream_is_served_like_any_other() {
    let mut upstream = Http2::start().await;
    let lictor = start(upstream.address).await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        // A list that is cut down has another length.
        let shown = caller.post(list).await.whole().await;
        let length = shown.body.len().to_string();
        assert_eq!(shown.header("content-length"), Some(length.as_str()));
        assert!(shown.text().contains("look") && !shown.text().contains("wipe"));
        // Events come one by one, trailers go nowhere.
        let (mut reply, body) = tokio::join!(caller.post(CALL), upstream.calls.recv());
        let body = body.expect("a call");
        assert_eq!((reply.header("x-kept"), reply.header("set-cookie")), (Some("1"), None));
        let last = "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n";
        for event in [": one\n\n", ": two\n\n", last] {
            body.send(Ok(Frame::data(event.into()))).await.expect("sent");
            assert_eq!(reply.chunk().await.as_deref(), Some(event.as_bytes()));
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-trailer", http::HeaderValue::from_static("1"));
        body.send(Ok(Frame::trailers(trailers))).await.expect("sent");
        drop(body);
        assert_eq!(reply.chunk().await, None);
        drop(reply);
        // A caller who leaves ends the stream, and the connection serves on.
        let (reply, body) = tokio::join!(caller.post(CALL), upstream.calls.recv());
        drop((reply, caller));
        within("the end of the stream", body.expect("a call").closed()).await;
    }
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 1);
    lictor.stop(9).await;
}

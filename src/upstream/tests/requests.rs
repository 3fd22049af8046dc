//! What an upstream sees of a call, and what comes back of its answer.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::StreamBody;
use hyper::{body::Frame, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

use super::{
    DEADLINE, Upstream, Verification, ca::Ca, head, server, server::Server, settings, source,
    spiffe,
};

#[tokio::test]
async fn target_host_and_framing_are_ours_and_the_rest_is_the_callers() {
    let server = Server::plain().await;
    let port = server.address.port();
    let base = format!("http://127.0.0.1:{port}");
    for (url, host, caller, target, sent_host) in [
        ("/mcp", None, "/other/path", "/mcp", format!("127.0.0.1:{port}")),
        ("/base/mcp?set=a,b", None, "/x?y=1", "/base/mcp?set=a,b", format!("127.0.0.1:{port}")),
        ("/mcp", None, "/x?y=1&z=%20", "/mcp", format!("127.0.0.1:{port}")),
        ("/mcp/", Some("files.test"), "/", "/mcp/", "files.test".to_owned()),
        ("", Some("files.test:81"), "https://evil.test/x", "/", "files.test:81".to_owned()),
    ] {
        let mut settings = settings(&format!("{base}{url}"), Verification::Loopback);
        settings.host = host.map(Into::into);
        let upstream = Upstream::new(settings, None).expect("set up");
        let request = http::Request::put(caller)
            .header("host", "caller.test")
            .header("content-length", "999")
            .header("transfer-encoding", "chunked")
            .header("x-other", "kept")
            .body(());
        let (head, ()) = request.expect("request").into_parts();
        upstream.send(None, head, Bytes::from_static(b"body")).await.expect("answered");
        let seen = server.seen().pop().expect("seen");
        assert_eq!((seen.target.as_str(), &seen.host), (target, &sent_host));
        assert_eq!((seen.method, &seen.body[..]), (Method::PUT, &b"body"[..]));
        let mut headers: Vec<_> =
            seen.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_unstable();
        let expected: [(_, &[u8]); 4] = [
            ("accept-encoding", b"identity"),
            ("content-length", b"4"),
            ("host", sent_host.as_bytes()),
            ("x-other", b"kept"),
        ];
        assert_eq!(headers, expected);
    }
}

#[tokio::test]
async fn an_empty_body_is_framed_as_its_method_wants() {
    let server = Server::plain().await;
    let upstream = Upstream::new(settings(&server.url("http"), Verification::Loopback), None);
    let upstream = upstream.expect("set up");
    for (method, length) in [(Method::GET, None), (Method::DELETE, None), (Method::POST, Some("0"))]
    {
        upstream.send(None, head(method.clone()), Bytes::new()).await.expect("answered");
        let seen = server.seen().pop().expect("seen");
        let sent = seen.headers.get("content-length").map(|value| value.to_str().expect("text"));
        assert_eq!((seen.method, sent), (method, length));
        assert!(!seen.headers.contains_key("transfer-encoding"));
    }
}

/// Sends frames as the test says, over TLS with HTTP/2 or plain with HTTP/1.1.
async fn streaming(
    tls: Option<rustls::ServerConfig>,
) -> (std::net::SocketAddr, mpsc::Sender<Result<Frame<Bytes>, Infallible>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("address");
    let (frames, body) = mpsc::channel(1);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accepted");
        let body = Mutex::new(Some(StreamBody::new(ReceiverStream::new(body))));
        let service = service_fn(move |_request| {
            let answer = Response::new(body.lock().expect("body").take().expect("one request"));
            async move { Ok::<_, Infallible>(answer) }
        });
        let server = auto::Builder::new(TokioExecutor::new());
        let _ = match tls {
            None => server.serve_connection(TokioIo::new(stream), service).await,
            Some(tls) => {
                let stream = TlsAcceptor::from(Arc::new(tls)).accept(stream).await.expect("TLS");
                server.serve_connection(TokioIo::new(stream), service).await
            }
        };
    });
    (address, frames)
}

#[tokio::test]
async fn pieces_arrive_as_they_come_and_dropping_the_body_tells_the_upstream() {
    let ca = Ca::new("one.test");
    let (source, _files) = source(&ca.svid("/lictor"), &[&ca]);
    for h2 in [false, true] {
        let config = server::config(&ca.svid("/server"), Some(&ca), &["h2"]);
        let (address, frames) = streaming(h2.then_some(config)).await;
        let (scheme, verification) = match h2 {
            true => ("https", spiffe("spiffe://one.test/server")),
            false => ("http", Verification::Loopback),
        };
        let settings = settings(&format!("{scheme}://{address}/"), verification);
        let upstream = Upstream::new(settings, Some(source.clone())).expect("set up");
        let answer = upstream.send(None, head(Method::GET), Bytes::new());
        let mut answer = timeout(DEADLINE, answer).await.expect("in time").expect("answered");

        frames.send(Ok(Frame::data(Bytes::from_static(b"one")))).await.expect("sent");
        let body = answer.body_mut();
        let piece = timeout(DEADLINE, body.frame()).await.expect("in time");
        assert_eq!(piece.expect("a piece").expect("good"), "one");
        // A read that is given up loses nothing.
        let given_up = timeout(std::time::Duration::from_millis(1), body.frame()).await;
        assert!(given_up.is_err());
        frames.send(Ok(Frame::data(Bytes::from_static(b"two")))).await.expect("sent");
        let piece = timeout(DEADLINE, body.frame()).await.expect("in time");
        assert_eq!(piece.expect("a piece").expect("good"), "two");

        drop(answer);
        timeout(DEADLINE, frames.closed()).await.expect("the upstream hears of it");
    }
}

#[tokio::test]
async fn trailers_are_dropped() {
    let (address, frames) = streaming(None).await;
    let settings = settings(&format!("http://{address}/"), Verification::Loopback);
    let upstream = Upstream::new(settings, None).expect("set up");
    let mut answer = upstream.send(None, head(Method::GET), Bytes::new()).await.expect("answered");
    frames.send(Ok(Frame::data(Bytes::from_static(b"one")))).await.expect("sent");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-forged", "1".parse().expect("value"));
    frames.send(Ok(Frame::trailers(trailers))).await.expect("sent");
    drop(frames);
    assert_eq!(answer.body_mut().frame().await.expect("a piece").expect("good"), "one");
    assert!(timeout(DEADLINE, answer.body_mut().frame()).await.expect("in time").is_none());
}

#[tokio::test]
async fn streams_that_stay_open_leave_room_for_calls_on_http_2() {
    let ca = Ca::new("one.test");
    let (source, _files) = source(&ca.svid("/lictor"), &[&ca]);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("https://{}/", listener.local_addr().expect("address"));
    let tls = Arc::new(server::config(&ca.svid("/server"), Some(&ca), &["h2"]));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = TlsAcceptor::from(Arc::clone(&tls)).accept(stream).await.expect("TLS");
            let service = service_fn(|_request| async {
                // Never ends.
                let (frames, body) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
                tokio::spawn(async move { frames.closed().await });
                Ok::<_, Infallible>(Response::new(StreamBody::new(ReceiverStream::new(body))))
            });
            tokio::spawn(async move {
                let mut server = auto::Builder::new(TokioExecutor::new());
                server.http2().max_concurrent_streams(100);
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let settings = settings(&url, spiffe("spiffe://one.test/server"));
    let upstream = Upstream::new(settings, Some(source)).expect("set up");
    let mut open = vec![];
    for number in 1..=250 {
        let answer = timeout(DEADLINE, upstream.send(None, head(Method::GET), Bytes::new())).await;
        let answer = answer.unwrap_or_else(|_| panic!("stream {number} waits for a place"));
        open.push(answer.expect("answered"));
    }
}

//! Where an API is, and what is spoken with it.

use std::{convert::Infallible, net::SocketAddr};

use http::{HeaderMap, Response};
use http_body_util::{BodyExt, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{http::within, subject::upstream_tls};

/// An API over HTTP/2 that tells what it heard.
async fn over_http2() -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let tls = TlsAcceptor::from(upstream_tls(b"h2"));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut serving = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let Ok(stream) = tls.accept(stream).await else { continue };
            let connection = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(told));
            serving.spawn(async move {
                let _ = connection.await;
            });
        }
    });
    (address, tasks)
}

async fn told(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<bytes::Bytes, Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let own = |headers: &HeaderMap| headers.contains_key("authorization");
    let text = format!("{} {} {} {}", head.method, head.uri, body.len(), own(&head.headers));
    let length = text.len();
    let body = if head.method == "HEAD" { String::new() } else { text };
    let builder = Response::builder().header("content-length", length).header("x-kept", "1");
    Ok(builder.body(whole(body)).expect("an answer"))
}

#[tokio::test]
async fn an_api_over_http2_is_called_like_any_other() {
    let (address, _serving) = over_http2().await;
    let url = format!("https://{address}/v1");
    let site = Setup::to(&url).upstream("spiffeId: spiffe://one.test/server").start().await;
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        let own = transport == Transport::Http1;
        for (method, body) in [("GET", ""), ("PUT", "abc"), ("DELETE", ""), ("POST", "")] {
            let headers = [("authorization", "Bearer a")];
            let answer = asked(&mut caller, method, "/api/x/?y=a+b", &headers, body).await;
            let length = body.len();
            let expected = format!("{method} https://{address}/v1/x/?y=a%20b {length} {own}");
            assert_eq!((answer.status, answer.text()), (200, expected));
            assert_eq!(answer.header("x-kept"), Some("1"));
        }
        let answer = asked(&mut caller, "HEAD", "/api/x", &[], "").await;
        assert_eq!((answer.status, answer.body.len()), (200, 0));
        assert!(answer.header("content-length").is_some_and(|length| length != "0"));
    }
    site.lictor.stop(15).await;
}

#[tokio::test]
async fn endpoints_of_an_api_stand_in_for_each_other() {
    let api = Stub::answering(|seen| reply("200 OK", "", line(seen))).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let nobody = gone.local_addr().expect("bound");
    drop(gone);
    let keys = format!(
        "urls: ['http://{nobody}/v1', '{}'], healthCheck: {{ interval: 100ms, timeout: 100ms }}",
        base(&api, "/v1"),
    );
    let site = Setup::at(&keys).start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    for _ in 0..6 {
        let answer = asked(&mut caller, "GET", "/api/a?b=c", &[], "").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "GET /v1/a?b=c"));
    }
    let probed = async {
        while !api.seen().iter().any(|seen| line(seen) == "HEAD /v1") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("a probe", probed).await;
    site.lictor.stop(6).await;
}

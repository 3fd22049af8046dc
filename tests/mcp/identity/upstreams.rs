//! Upstreams that have to prove who they are, over HTTP/2 where they speak it.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};

use lictor::tls::provider;
use rustls::ServerConfig;
use tokio::{net::TcpListener, sync::mpsc, time::sleep};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

use super::PAUSE;
use crate::{
    ca::{Ca, Credential, at},
    http::within,
    site::{Site, TD_ONE, agent_a, call, send, wire_a},
    stub::Stub,
};

/// How long Lictor has for a wrong conclusion.
const MISTAKE: Duration = Duration::from_millis(100);

/// TLS settings of a server that shows a credential.
pub(crate) fn server(credential: &Credential) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let config = builder
        .with_no_client_auth()
        .with_single_cert(credential.chain.clone(), credential.key())
        .expect("a credential");
    Arc::new(config)
}

#[tokio::test]
async fn an_upstream_that_is_somebody_else_gets_no_call() {
    let other = Ca::new("td-two.example.org");
    let mut impostors = vec![
        ("another ID", TD_ONE.svid("/files2")),
        ("another case", TD_ONE.svid("/Files")),
        ("below it", TD_ONE.svid("/files/a")),
        ("another domain", other.svid("/files")),
        ("another root", Ca::new("td-one.example.org").svid("/files")),
    ];
    let bad = TD_ONE.bad(&other).into_iter();
    impostors.extend(bad.map(|(name, _, credential)| (name, credential)));
    let identity = "spiffeId: 'spiffe://td-one.example.org/files'";
    let all = impostors.iter().map(|(name, credential)| (*name, credential, false));
    let right = TD_ONE.svid("/files");
    // One process each is what a configuration can say; a few of them tell.
    let told =
        ["another ID", "another domain", "another root", "expired", "two IDs", "only clientAuth"];
    for (name, credential, served) in
        all.filter(|(name, ..)| told.contains(name)).chain([("right", &right, true)])
    {
        let mut stub = Stub::scripted_tls(server(credential)).await;
        let lictor = Site::to(&stub.url()).upstream(identity).start().await;
        let mut caller = agent_a(&lictor).await;
        let asking = send(&mut caller, "POST", &[], call("echo", "{}"));
        if served {
            let (reply, ()) = tokio::join!(asking, async { stub.call().await.answer("{}").await });
            assert_eq!(reply.whole().await.status, 200, "{name}");
            lictor.stop(1).await;
            continue;
        }
        let answer = asking.await.whole().await;
        assert_eq!(
            (answer.status, answer.kind().as_str()),
            (502, "upstream_unreachable"),
            "{name}"
        );
        assert_eq!(stub.requests(), 0, "{name}");
        let closing = lictor.stop(1).await.remove(0);
        assert_eq!(closing["status"], "upstream_unreachable");
        assert_eq!(closing["kind"], "outcome");
    }
}

#[tokio::test]
async fn a_warm_connection_ends_with_the_upstreams_intermediate() {
    let brief = TD_ONE.svid_via("/files", |params| params.not_after = at(3));
    let mut stub = Stub::scripted_tls(server(&brief)).await;
    let identity = "spiffeId: 'spiffe://td-one.example.org/files'";
    let lictor = Site::to(&stub.url()).upstream(identity).start().await;
    let mut caller = agent_a(&lictor).await;
    let mut calls = 0;
    let served = async {
        loop {
            calls += 1;
            let mut asking = pin!(send(&mut caller, "POST", &[], call("echo", "{}")));
            let answer = loop {
                tokio::select! {
                    reply = &mut asking => break reply.whole().await,
                    call = stub.call() => call.answer("{}").await,
                }
            };
            if answer.status != 200 {
                return answer;
            }
            // In the last second, each call has a new one.
            assert!(calls > 2 || stub.connections() == 1, "it is warm");
            sleep(PAUSE).await;
        }
    };
    let refused = within("the end of the intermediate", served).await;
    assert_eq!((refused.status, refused.kind().as_str()), (502, "upstream_unreachable"));
    assert_eq!(stub.requests(), calls - 1);
    assert!(calls > 2, "it was warm");
    lictor.stop(calls).await;
}

#[tokio::test]
async fn a_caller_with_the_whole_answer_may_go_on_before_the_upstream_has_ended() {
    const BODY: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}/mcp", listener.local_addr().expect("bound"));
    let mut config = ServerConfig::clone(&server(&TD_ONE.svid("/files")));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(config));
    // The end of each answer is in the hands of the test.
    let (held, mut ends) = mpsc::unbounded_channel();
    let upstream = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let stream = tls.accept(stream).await.expect("a handshake");
        let service = service_fn(move |_: Request<Incoming>| {
            let (end, parts) = mpsc::channel(2);
            end.try_send(Ok::<_, Infallible>(Frame::data(Bytes::from_static(BODY.as_bytes()))))
                .expect("room");
            held.send(end).expect("the test goes on");
            let answer = Response::builder()
                .header("content-type", "application/json")
                .header("content-length", BODY.len())
                .body(StreamBody::new(ReceiverStream::new(parts)));
            async { answer }
        });
        // It ends with the test.
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    let identity = "spiffeId: 'spiffe://td-one.example.org/files'";
    let lictor = Site::to(&url).upstream(identity).start().await;
    let mut wire = wire_a(&lictor).await;
    let body = call("echo", "{}");
    let message = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..3 {
        wire.send(&message).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.text().as_str()), (200, BODY));
        // The next message is on its way before the end of this answer is.
        let end = within("an answer", ends.recv()).await.expect("the upstream runs");
        wire.send(&message).await;
        // Time to take it for something that it isn't.
        sleep(MISTAKE).await;
        drop(end);
        assert_eq!(wire.answer().await.text(), BODY);
        drop(ends.recv().await);
    }
    // Who leaves with the whole answer has been answered.
    wire.send(&message).await;
    assert_eq!(wire.answer().await.text(), BODY);
    drop(wire);
    sleep(MISTAKE).await;
    drop(ends.recv().await);
    for entry in lictor.stop(7).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"ok".into(), &true.into()));
    }
    upstream.abort();
}

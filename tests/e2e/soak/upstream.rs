//! An upstream that can die with everything that it has open, and come back at the same address.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;

type Body = BoxBody<Bytes, Infallible>;

pub(super) struct Upstream {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Upstream {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bound");
        let address = listener.local_addr().expect("an address");
        Self { address, serving: tokio::spawn(serve(listener)) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// All of its connections break.
    pub(super) fn die(&self) {
        self.serving.abort();
    }

    pub(super) async fn revive(&mut self) {
        let _ = (&mut self.serving).await;
        let listener = TcpListener::bind(self.address).await.expect("bound again");
        self.serving = tokio::spawn(serve(listener));
    }
}

async fn serve(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            // Errors mean that the other side has gone.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    if request.method() == Method::GET {
        return Ok(events(None));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let id = &message["id"];
    let tool = message["params"]["name"].as_str().unwrap_or_default();
    let result = match (message["method"].as_str().unwrap_or_default(), tool) {
        ("subscriptions/listen", _) => return Ok(events(None)),
        (_, "stream") => return Ok(events(Some(id.clone()))),
        ("tools/list", _) => json!({ "tools": [
            { "name": "look", "inputSchema": { "type": "object" } },
            { "name": "wipe", "inputSchema": { "type": "object" } },
        ] }),
        (_, "slow") => {
            sleep(Duration::from_secs(1)).await;
            json!({ "content": [] })
        }
        _ => json!({ "content": [] }),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    let builder = Response::builder().header("content-type", "application/json");
    Ok(builder.body(Full::new(answer.into()).boxed()).expect("an answer"))
}

/// An event now and then; with an id, three of them and then a result.
fn events(id: Option<Value>) -> Response<Body> {
    let (frames, body) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(4);
    tokio::spawn(async move {
        let message = |message: Value| Ok(Frame::data(format!("data: {message}\n\n").into()));
        let log = json!({ "jsonrpc": "2.0", "method": "notifications/message",
            "params": { "level": "info", "data": "x" } });
        let mut left = id.as_ref().map(|_| 3);
        while left != Some(0) {
            if frames.send(message(log.clone())).await.is_err() {
                return;
            }
            left = left.map(|left| left - 1);
            sleep(Duration::from_millis(if id.is_some() { 50 } else { 2000 })).await;
        }
        let result = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
        // Whoever wanted it may have gone.
        let _ = frames.send(message(result)).await;
    });
    let body = StreamBody::new(ReceiverStream::new(body)).boxed();
    let builder = Response::builder().header("content-type", "text/event-stream");
    builder.body(body).expect("an answer")
}

//! A SPIFFE Workload API over a Unix socket, acting by a script.
//!
//! Messages and framing are written out by hand (field numbers from `workload.proto` of `spiffe/spiffe`):
//! gRPC is HTTP/2 with five bytes before each message and the status in a trailer.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_stream::wrappers::ReceiverStream;

use super::ca::{Ca, Credential};

/// What the agent tells the workload.
#[derive(Clone)]
pub(crate) enum Script {
    /// It has this identity.
    Serve(X509SvidResponse),
    /// It has none: `PermissionDenied`.
    Deny,
}

/// A running agent. Dropping it closes every connection and removes the socket.
pub(crate) struct Agent {
    script: watch::Sender<Script>,
    socket: PathBuf,
    task: JoinHandle<()>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct X509SvidResponse {
    #[prost(message, repeated, tag = "1")]
    svids: Vec<X509Svid>,
    #[prost(map = "string, bytes", tag = "3")]
    federated_bundles: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct X509Svid {
    #[prost(string, tag = "1")]
    spiffe_id: String,
    #[prost(bytes = "vec", tag = "2")]
    x509_svid: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    x509_svid_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    bundle: Vec<u8>,
}

impl Script {
    /// An SVID of `ca` for the workload at `path`, and the bundles of partners.
    pub(crate) fn serve(ca: &Ca, path: &str, svid: &Credential, federated: &[&Ca]) -> Self {
        Self::Serve(X509SvidResponse {
            svids: vec![X509Svid {
                spiffe_id: format!("spiffe://{}{path}", ca.domain),
                x509_svid: svid.chain.iter().flat_map(|link| link.to_vec()).collect(),
                x509_svid_key: svid.key().secret_der().to_vec(),
                bundle: ca.root.to_vec(),
            }],
            federated_bundles: federated
                .iter()
                .map(|ca| (format!("spiffe://{}", ca.domain), ca.root.to_vec()))
                .collect(),
        })
    }
}

impl Agent {
    /// Starts an agent on a socket.
    pub(crate) fn start(socket: &Path, script: Script) -> Self {
        let listener = UnixListener::bind(socket).expect("socket");
        let (script, scripts) = watch::channel(script);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let scripts = scripts.clone();
                let service = hyper::service::service_fn(move |request| {
                    let answer = answer(&request, scripts.clone());
                    async move { Ok::<_, hyper::Error>(answer) }
                });
                connections.spawn(async move {
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { script, socket: socket.to_owned(), task }
    }

    /// Goes on by another script; open streams hear of it at once.
    pub(crate) fn play(&self, script: Script) {
        self.script.send_replace(script);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

type Body = StreamBody<ReceiverStream<Result<Frame<Bytes>, hyper::Error>>>;

fn answer(request: &Request<Incoming>, mut scripts: watch::Receiver<Script>) -> Response<Body> {
    const INVALID_ARGUMENT: u8 = 3;
    const PERMISSION_DENIED: u8 = 7;
    const UNIMPLEMENTED: u8 = 12;
    let (frames, body) = mpsc::channel(8);
    let guarded = request.headers().get("workload.spiffe.io").is_some_and(|value| value == "true");
    let known = request.uri().path() == "/SpiffeWorkloadAPI/FetchX509SVID";
    scripts.mark_changed();
    tokio::spawn(async move {
        if !guarded {
            return finish(&frames, INVALID_ARGUMENT).await;
        }
        if !known {
            return finish(&frames, UNIMPLEMENTED).await;
        }
        while scripts.changed().await.is_ok() {
            let script = scripts.borrow_and_update().clone();
            match script {
                Script::Deny => return finish(&frames, PERMISSION_DENIED).await,
                Script::Serve(response) => {
                    if frames.send(Ok(Frame::data(framed(&response)))).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    let mut response = Response::new(StreamBody::new(ReceiverStream::new(body)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

async fn finish(frames: &mpsc::Sender<Result<Frame<Bytes>, hyper::Error>>, status: u8) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    let _ = frames.send(Ok(Frame::trailers(trailers))).await;
}

fn framed(message: &X509SvidResponse) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).expect("small"));
    message.encode(&mut frame).expect("capacity");
    frame.freeze()
}

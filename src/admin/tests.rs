//! Real requests over real sockets.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use super::*;

mod api;

const DEADLINE: Duration = Duration::from_secs(5);

struct Running {
    operators: SocketAddr,
    strangers: SocketAddr,
    readiness: Arc<Readiness>,
    metrics: Metrics,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

fn bind(_: &'static str, address: SocketAddr) -> io::Result<std::net::TcpListener> {
    std::net::TcpListener::bind(address)
}

async fn running() -> Running {
    running_with(None, DeskPlace::default()).await
}

async fn running_with(token_file: Option<PathBuf>, desk: DeskPlace) -> Running {
    let any = "127.0.0.1:0".parse().expect("an address");
    let settings = Settings { health: Some(any), admin: any, token_file };
    let admin = Admin::bind(settings, bind).expect("bound");
    let (operators, strangers) = (admin.address(), admin.health_address().expect("bound"));
    let (readiness, metrics) = (Arc::new(Readiness::default()), Metrics::new());
    let (stop, stopped) = oneshot::channel();
    let shutdown = async { drop(stopped.await) };
    let open = watch::Sender::new(true).subscribe();
    let served = admin.serve(Arc::clone(&readiness), metrics.clone(), desk, open, shutdown);
    let served = tokio::spawn(served);
    Running { operators, strangers, readiness, metrics, stop, served }
}

/// Status and body of `GET path`.
async fn fetch(address: SocketAddr, path: &str) -> (u16, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
}

/// Status and body of the answer to a request.
async fn exchange(address: SocketAddr, request: &str) -> (u16, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    let answer = timeout(DEADLINE, exchange).await.expect("in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

#[tokio::test]
async fn readiness_tells_what_is_missing() {
    let it = running().await;
    let (status, body) = fetch(it.strangers, "/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&body).expect("JSON"),
        json!({ "ready": false, "reasons": [
            "no valid identity of Lictor's own",
            "no policies in force",
            "the ledger can't be written",
            "what was revoked isn't known yet",
            "not every listener is bound",
        ]})
    );
    for part in [Part::Identity, Part::Policy, Part::Ledger, Part::Revocations, Part::Listeners] {
        assert!(!it.readiness.reasons().is_empty());
        it.readiness.set(part, true);
    }
    for address in [it.strangers, it.operators] {
        let answer = fetch(address, "/readyz").await;
        assert_eq!(answer, (200, "{\"ready\":true,\"reasons\":[]}".to_owned()));
    }
    it.readiness.set_state(false);
    let degraded = r#"{"ready":true,"reasons":[],"degraded":["the state store can't be used"]}"#;
    assert_eq!(fetch(it.strangers, "/readyz").await, (200, degraded.to_owned()));
    it.readiness.set_policies_current(false);
    assert_eq!(it.readiness.degraded().len(), 2);
    it.readiness.set_state(true);
    assert_eq!(it.readiness.degraded(), ["the policies on disk aren't in force"]);
    it.readiness.set_policies_current(true);
    assert!(it.readiness.degraded().is_empty());
    it.readiness.set(Part::Ledger, false);
    assert_eq!(it.readiness.reasons(), ["the ledger can't be written"]);
    it.readiness.set(Part::Ledger, true);
    it.readiness.drain();
    let (status, body) = fetch(it.strangers, "/readyz").await;
    assert_eq!((status, body.contains("shutting down")), (503, true));
    assert_eq!(fetch(it.strangers, "/healthz").await, (200, "ok\n".to_owned()));
}

#[tokio::test]
async fn strangers_see_health_and_nothing_else() {
    let it = running().await;
    let _stream = it.metrics.open_stream();
    let (status, text) = fetch(it.operators, "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.lines().any(|line| line == "lictor_open_streams 1"), "{text}");
    assert_eq!(fetch(it.operators, "/healthz").await.0, 200);
    for path in ["/metrics", "/", "/readyz/", "/healthz/../metrics"] {
        assert_eq!(fetch(it.strangers, path).await.0, 404, "{path}");
    }
}

/// A scraper that holds its connection open can't keep the process alive.
#[tokio::test]
async fn serving_ends_when_told() {
    let it = running().await;
    let _idle = TcpStream::connect(it.strangers).await.expect("connected");
    let mut half = TcpStream::connect(it.operators).await.expect("connected");
    half.write_all(b"GET /metrics HT").await.expect("sent");
    assert_eq!(fetch(it.operators, "/healthz").await.0, 200);
    it.stop.send(()).expect("still served");
    timeout(DEADLINE, it.served).await.expect("in time").expect("no panic");
    assert!(TcpStream::connect(it.strangers).await.is_err());
}

#[tokio::test]
async fn connections_are_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let mut bounded = Bounded::new(listener, 1, watch::Sender::new(true).subscribe());
    let _callers = (
        TcpStream::connect(address).await.expect("connected"),
        TcpStream::connect(address).await.expect("connected"),
    );
    let first = axum::serve::Listener::accept(&mut bounded).await;
    let wait = Duration::from_millis(50);
    assert!(timeout(wait, axum::serve::Listener::accept(&mut bounded)).await.is_err());
    drop(first);
    timeout(DEADLINE, axum::serve::Listener::accept(&mut bounded)).await.expect("a place is free");
}

#[tokio::test]
async fn connections_wait_while_they_are_not_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let accepting = watch::Sender::new(false);
    let mut bounded = Bounded::new(listener, 8, accepting.subscribe());
    for _ in 0..2 {
        let _caller = TcpStream::connect(address).await.expect("connected");
        let wait = Duration::from_millis(50);
        assert!(timeout(wait, axum::serve::Listener::accept(&mut bounded)).await.is_err());
        accepting.send_replace(true);
        let accepted = timeout(DEADLINE, axum::serve::Listener::accept(&mut bounded)).await;
        accepted.expect("it is accepted now");
        accepting.send_replace(false);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_end_after_their_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let mut bounded = Bounded::new(listener, 1, watch::Sender::new(true).subscribe());
    let _silent = TcpStream::connect(address).await.expect("connected");
    let (mut connection, _) = axum::serve::Listener::accept(&mut bounded).await;
    let read = timeout(Duration::from_secs(3_600), connection.read(&mut [0; 8])).await;
    let error = read.expect("in its time").expect_err("time is over");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let admin = taken.local_addr().expect("an address");
    let settings = Settings { health: None, admin, token_file: None };
    let error = Admin::bind(settings, bind).expect_err("taken");
    assert_eq!(error.to_string(), format!("`{admin}` can't be bound"));
}

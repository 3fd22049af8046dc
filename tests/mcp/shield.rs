//! What one address may take of a listener before it has proven anything.

use std::net::{IpAddr, SocketAddr};

use lictor::telemetry::Clock;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::{
    http::{Wire, within},
    site::{Site, TLS_A, call, metrics, sample},
    stub::Stub,
    subject::Lictor,
};

/// A Lictor whose listener with mutual TLS has such a shield, and listens everywhere.
async fn shielded(url: &str, shield: &str) -> Lictor {
    let directory = Site::to(url).written();
    let path = directory.path().join("lictor.yaml");
    let yaml = std::fs::read_to_string(&path).expect("a configuration");
    let plain = format!("tls: none, shield: {{ {shield} }}");
    let mutual = format!("bind: '[::]:0', tls: mutual, shield: {{ {shield} }}");
    let yaml =
        yaml.replace("tls: none", &plain).replace("bind: '127.0.0.1:0', tls: mutual", &mutual);
    std::fs::write(&path, yaml).expect("a configuration");
    Lictor::run(directory, None).await
}

async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let from: IpAddr = from.parse().expect("an address");
    let socket = if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.expect("a socket");
    socket.bind((from, 0).into()).expect("an address of ours");
    within("connecting", socket.connect(to)).await.expect("connected")
}

/// What is said to a call that comes from there over mutual TLS; nothing if there is no handshake.
async fn call_tls(from: &str, port: u16) -> Option<(u16, Wire)> {
    let to: IpAddr =
        if from.contains(':') { [0, 0, 0, 0, 0, 0, 0, 1].into() } else { [127, 0, 0, 1].into() };
    let stream = connect(from, (to, port).into()).await;
    let connector = TlsConnector::from(std::sync::Arc::new(TLS_A.clone()));
    let handshake = connector.connect(ServerName::from(to), stream);
    let mut wire = Wire::new(within("a handshake", handshake).await.ok()?);
    wire.try_send(text("")).await;
    let head = wire.try_head().await?;
    Some((head.status(), wire))
}

/// The same over the plain listener, with one more header.
async fn call_plain(lictor: &Lictor, from: &str, header: &str) -> Option<(u16, Wire)> {
    let mut wire = Wire::new(connect(from, lictor.plain).await);
    wire.try_send(text(header)).await;
    let head = wire.try_head().await?;
    Some((head.status(), wire))
}

fn text(header: &str) -> String {
    let body = call("echo", "{}");
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{header}Content-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// How many connections were refused for this.
async fn refused(lictor: &Lictor, listener: &str, reason: &str) -> u64 {
    let labels = [format!("listener=\"{listener}\""), format!("reason=\"{reason}\"")];
    let labels = labels.each_ref().map(String::as_str);
    sample(&metrics(lictor).await, "lictor_connections_refused_total", &labels) as u64
}

#[tokio::test]
async fn an_address_has_its_share_of_connections_and_no_more() {
    let stub = Stub::json().await;
    let keys = "connections: 2, newPerSecond: 1000, loopback: true";
    let lictor = shielded(&stub.url(), keys).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let (status, wire) = call_plain(&lictor, "127.0.0.2", "").await.expect("an answer");
        assert_eq!(status, 200);
        held.push(wire);
    }
    for header in ["", "X-Forwarded-For: 192.0.2.7\r\n", "Forwarded: for=192.0.2.8\r\n"] {
        assert!(call_plain(&lictor, "127.0.0.2", header).await.is_none(), "{header}");
    }
    assert_eq!(refused(&lictor, "plain", "address_connections").await, 3);
    let other = call_plain(&lictor, "127.0.0.3", "").await.expect("an answer");
    assert_eq!(other.0, 200);
    // The other listener counts for itself.
    assert_eq!(call_tls("127.0.0.2", lictor.mutual.port()).await.expect("an answer").0, 200);
    held.pop();
    let again = async { while call_plain(&lictor, "127.0.0.2", "").await.is_none() {} };
    within("a free place", again).await;
    let served = stub.requests();
    assert_eq!(served, 5);
    lictor.stop(served).await;
}

#[tokio::test]
async fn handshakes_that_nobody_finishes_count_too() {
    let stub = Stub::json().await;
    let lictor = shielded(&stub.url(), "connections: 2, newPerSecond: 1000, loopback: true").await;
    let port = lictor.mutual.port();
    let to: SocketAddr = ([127, 0, 0, 1], port).into();
    let _silent = [connect("127.0.0.2", to).await, connect("127.0.0.2", to).await];
    // Closed before the handshake, by a bare listener; nothing is said.
    let mut third = Wire::new(connect("127.0.0.2", to).await);
    third.ends().await;
    assert_eq!(refused(&lictor, "mutual", "address_connections").await, 1);
    for from in ["127.0.0.3", "::1"] {
        // Handshakes that are complete are free again when their connections are closed.
        for _ in 0..5 {
            let called = async {
                loop {
                    if let Some((status, _)) = call_tls(from, port).await {
                        return status;
                    }
                }
            };
            assert_eq!(within("a free place", called).await, 200, "{from}");
        }
    }
    // Nobody else is in the way of those who are refused.
    assert!(call_tls("127.0.0.2", port).await.is_none());
    lictor.stop(10).await;
}

#[tokio::test]
async fn an_address_may_come_so_often_and_no_oftener() {
    let stub = Stub::json().await;
    let lictor = shielded(&stub.url(), "newPerSecond: 5, loopback: true").await;
    let began = Clock.instant();
    let mut served = 0;
    for _ in 0..30 {
        served += usize::from(call_plain(&lictor, "127.0.0.2", "").await.is_some());
    }
    let most = 6 + Clock.instant().duration_since(began).as_millis() as usize / 200;
    assert!((5..=most).contains(&served), "{served}, not {most}");
    let told = refused(&lictor, "plain", "address_rate").await;
    assert_eq!(told, 30 - served as u64);
    assert_eq!(call_plain(&lictor, "127.0.0.3", "").await.expect("an answer").0, 200);
    // With time it may come again.
    let again = async { while call_plain(&lictor, "127.0.0.2", "").await.is_none() {} };
    within("more", again).await;
    lictor.stop(served + 2).await;
}

#[tokio::test]
async fn a_sidecar_never_feels_it() {
    let stub = Stub::json().await;
    let lictor = shielded(&stub.url(), "connections: 1, newPerSecond: 1").await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.extend(call_plain(&lictor, "127.0.0.1", "").await);
        held.extend(call_tls("::1", lictor.mutual.port()).await);
        held.extend(call_tls("127.0.0.2", lictor.mutual.port()).await);
    }
    assert_eq!(held.len(), 60);
    assert!(held.iter().all(|(status, _)| *status == 200));
    lictor.stop(60).await;
}

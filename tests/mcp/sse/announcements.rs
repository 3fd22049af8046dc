//! What upstreams announce as the place to post to.

use super::{ACCEPTED, a, begin, event, lictor, taken};
use crate::{
    http::whole,
    reload::{APPLIED, edit, reloads},
    site::{Site, call, logged},
    stub::Stub,
};

/// What is announced, and where posts then go.
#[tokio::test]
async fn a_place_of_the_upstream_is_replaced_by_one_of_ours() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let own = format!("http://{}", stub.address);
    let cases = [
        (
            "event: endpoint\ndata: /messages?sessionId=abc\n\n".to_owned(),
            "/messages?sessionId=abc",
        ),
        ("event: endpoint\ndata: messages/?s=1\n\n".to_owned(), "/messages/?s=1"),
        ("event:endpoint\r\ndata:/m?a=%2F&b\r\n\r\n".to_owned(), "/m?a=%2F&b"),
        (format!(": hello\n\nid: 1\nevent: endpoint\ndata: {own}/m?s=2\n\n"), "/m?s=2"),
        (format!("data: {own}/svc-a/m\nevent: endpoint\nretry: 5\n\n"), "/svc-a/m"),
    ];
    let count = cases.len();
    for (announced, target) in cases {
        let mut caller = a(&lictor).await;
        let (mut reply, mut far) = begin(&mut caller, &mut stub).await;
        for byte in announced.bytes() {
            far.chunk([byte]).await;
        }
        let mut told = event(&mut reply).await;
        if !told.contains("endpoint") {
            told = event(&mut reply).await;
        }
        let data = told.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
        assert!(data.starts_with("/mcp/message/"), "{told}");
        assert!(!told.contains(target) && !told.contains(&own), "{told}");
        let lines = |text: &str| text.lines().filter(|line| !line.starts_with("data")).count();
        let hello = if announced.starts_with(':') { 2 } else { 0 };
        assert_eq!(lines(&told), lines(&announced) - hello, "{told}");
        let mut poster = a(&lictor).await;
        taken(&mut poster, &mut stub, data, &call("echo", "{}"), target).await;
        drop(reply);
    }
    lictor.stop(2 * count).await;
}

#[tokio::test]
async fn nobody_is_sent_elsewhere() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let port = stub.address.port();
    let cases = [
        "http://evil.example.org/m".to_owned(),
        "//evil.example.org/m".to_owned(),
        format!("https://127.0.0.1:{port}/m"),
        format!("http://localhost:{port}/m"),
        format!("http://user@127.0.0.1:{port}/m"),
        "http://127.0.0.1:1/m".to_owned(),
        "/m#fragment".to_owned(),
        String::new(),
    ];
    for announced in &cases {
        let mut caller = a(&lictor).await;
        let (mut reply, mut far) = begin(&mut caller, &mut stub).await;
        far.chunk(format!("event: endpoint\ndata: {announced}\n\n")).await;
        // It ends in order, with nothing on it.
        assert_eq!(reply.chunk().await, None, "{announced}");
        far.abandoned().await;
    }
    logged(&lictor, "names no place of its own").await;
    let closings = lictor.stop(cases.len()).await;
    assert!(closings.iter().all(|entry| entry["status"] == "upstream_unreadable"), "{closings:?}");
}

#[tokio::test]
async fn a_second_announcement_is_withheld() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let mut stream = super::open(a(&lictor).await, &mut stub, "s-1").await;
    let second = "event: message\nevent: endpoint\ndata: http://evil.example.org/m\n\n";
    stream.far.chunk(format!("{second}: alive\n\n")).await;
    assert_eq!(event(&mut stream.reply).await, ": alive\n\n");
    let mut caller = a(&lictor).await;
    taken(&mut caller, &mut stub, &stream.place, &call("echo", "{}"), super::AT).await;
    drop(stream);
    lictor.stop(2).await;
}

#[tokio::test]
async fn an_upstream_without_a_stream_is_told_apart() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    for (answer, status) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404),
        ("HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n", 405),
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 502),
        (ACCEPTED, 502),
    ] {
        let mut caller = a(&lictor).await;
        let asked = caller.request("GET", whole(""));
        let (reply, ()) = tokio::join!(caller.send(asked), async {
            let mut far = stub.call().await;
            far.send(answer).await;
        });
        assert_eq!(reply.whole().await.status, status);
    }
    lictor.stop(4).await;
}

#[tokio::test]
async fn a_stream_whose_upstream_moves_brings_what_it_owes_and_ends() {
    let (mut stub, next) = (Stub::scripted().await, Stub::json().await);
    let site = Site::to(&stub.url()).upstream("transport: sse");
    let lictor = site.listener("timeouts: { keepAlive: 2s }").start().await;
    let mut stream = super::open(a(&lictor).await, &mut stub, "s-1").await;
    let mut caller = a(&lictor).await;
    taken(&mut caller, &mut stub, &stream.place, &call("echo", "{}"), super::AT).await;
    edit(&lictor, "lictor.yaml", &stub.url(), &next.url());
    reloads(&lictor, APPLIED, 1.0).await;
    // It isn't a place of the new one.
    let posted = caller.request_to("POST", &stream.place, whole(call("lookup", "{}")));
    assert_eq!(caller.send(posted).await.whole().await.kind(), "unknown_session");
    assert_eq!(next.requests(), 0);
    // Longer than it takes until the stream has been looked at: signs of life come every 2 s.
    for _ in 0..4 {
        assert_eq!(event(&mut stream.reply).await, ": keep-alive\n\n");
    }
    let answer = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n";
    stream.far.chunk(answer).await;
    assert_eq!(event(&mut stream.reply).await, answer);
    while let Some(alive) = stream.reply.chunk().await {
        assert_eq!(alive, ": keep-alive\n\n");
    }
    stream.far.abandoned().await;
    let closings = lictor.stop(3).await;
    assert!(closings.iter().any(|entry| entry["status"] == "route_changed"), "{closings:?}");
}

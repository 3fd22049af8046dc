//! One request and two readers: what a server behind us might take for another request, another target
//! or another hop's business is refused, or has exactly one meaning.

use std::time::Duration;

use crate::{
    CALL,
    http::{Answer, Transport, Wire, whole},
    post, post_whole,
    stub::{Stub, chunk, result},
    subject::{Lictor, Setup},
};

mod connections;
pub(crate) mod http2;

/// How long a connection that ought to end is watched.
const SILENCE: Duration = Duration::from_secs(2);

/// A request of its own, for the places where something may be smuggled.
fn smuggled() -> String {
    post_whole("X-Smuggled: 1\r\n", CALL)
}

/// Sends every text on a connection of its own, plain and TLS, and wants one refusal of the given status
/// and kind, then the end of the connection. None of them reaches the upstream, and each is on record.
async fn all_refused(status: u16, kind: &str, texts: &[(&str, Vec<u8>)]) {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut accepted = Vec::new();
    for (name, text) in texts {
        for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
            wire.send(text).await;
            let told = String::from_utf8_lossy(&wire.rest_for(SILENCE).await).into_owned();
            let begins = told.starts_with(&format!("HTTP/1.1 {status} "));
            let typed =
                told.to_ascii_lowercase().contains("\r\ncontent-type: application/json\r\n");
            let named = told.contains(&format!(r#""kind":"{kind}""#));
            if !begins || !typed || !named || told.matches("HTTP/1.1").count() != 1 {
                accepted.push((*name, told));
            }
        }
    }
    assert!(accepted.is_empty(), "{accepted:#?}");
    assert_eq!((stub.connections(), stub.requests()), (0, 0));
    for entry in lictor.stop(2 * texts.len()).await {
        assert_eq!((&entry["status"], &entry["decision"]), (&kind.into(), &"none".into()));
    }
}

#[tokio::test]
async fn framings_with_two_meanings_are_refused() {
    let five = "hello";
    let chunked = "0\r\n\r\n";
    let rows = [
        ("length and coding", "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", chunked),
        ("coding and length", "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", chunked),
        ("the same length twice", "Content-Length: 5\r\nContent-Length: 5\r\n", five),
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n", five),
        ("two lengths in a list", "Content-Length: 5, 5\r\n", five),
        ("a signed length", "Content-Length: +5\r\n", five),
        ("a hexadecimal length", "Content-Length: 0x10\r\n", five),
        ("an exponent", "Content-Length: 1e3\r\n", five),
        ("a negative length", "Content-Length: -1\r\n", five),
        ("an empty length", "Content-Length:\r\n", five),
        ("a length with a space inside", "Content-Length: 5 5\r\n", five),
        ("a length beyond 64 bits", "Content-Length: 99999999999999999999999\r\n", five),
        ("an unknown coding", "Transfer-Encoding: xchunked\r\n", chunked),
        ("chunked, then identity", "Transfer-Encoding: chunked, identity\r\n", chunked),
        ("identity, then chunked", "Transfer-Encoding: identity, chunked\r\n", chunked),
        ("gzip, then chunked", "Transfer-Encoding: gzip, chunked\r\n", chunked),
        ("a coding with a parameter", "Transfer-Encoding: chunked;q=1\r\n", chunked),
        ("a quoted coding", "Transfer-Encoding: \"chunked\"\r\n", chunked),
        ("an empty coding", "Transfer-Encoding:\r\n", chunked),
        (
            "the coding twice",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            chunked,
        ),
        (
            "the coding and identity",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
            chunked,
        ),
        ("a space before the colon", "Transfer-Encoding : chunked\r\n", chunked),
        ("a space before the length's colon", "Content-Length : 5\r\n", five),
        ("a folded coding", "Transfer-Encoding:\r\n chunked\r\n", chunked),
        ("a folded header", "X-Folded: 1\r\n 2\r\nContent-Length: 5\r\n", five),
        ("a vertical tab", "Transfer-Encoding: \u{b}chunked\r\n", chunked),
        ("a bare LF", "X-Line: 1\nContent-Length: 5\r\n", five),
        ("a bare CR", "X-Line: 1\rContent-Length: 5\r\n", five),
        ("a NUL in a value", "X-Null: a\0b\r\nContent-Length: 5\r\n", five),
        ("a NUL in a name", "X-Nu\0ll: a\r\nContent-Length: 5\r\n", five),
        ("a line without a colon", "X-Line\r\nContent-Length: 5\r\n", five),
        ("a line without a name", ": 1\r\nContent-Length: 5\r\n", five),
    ];
    let texts: Vec<_> = rows
        .iter()
        .map(|(name, headers, body)| {
            (*name, format!("{}{}", post(headers, body), smuggled()).into_bytes())
        })
        .collect();
    all_refused(400, "bad_request", &texts).await;
}

#[tokio::test]
async fn heads_with_two_meanings_are_refused() {
    let length = CALL.len();
    let tail = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{CALL}");
    let head = |line: &str, headers: &str| format!("{line}\r\n{headers}{tail}").into_bytes();
    let host = "Host: 127.0.0.1\r\n";
    let plain = post_whole("", CALL);
    let texts = [
        ("no host", head("POST /mcp HTTP/1.1", "")),
        ("two hosts", head("POST /mcp HTTP/1.1", "Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n")),
        ("two different hosts", head("POST /mcp HTTP/1.1", "Host: 127.0.0.1\r\nHost: a\r\n")),
        ("line feeds only", plain.replace("\r\n", "\n").into_bytes()),
        (
            "coded in HTTP/1.0",
            post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n")
                .replace("HTTP/1.1", "HTTP/1.0")
                .into_bytes(),
        ),
        ("HTTP/1.2", head("POST /mcp HTTP/1.2", host)),
        ("HTTP/2.0", head("POST /mcp HTTP/2.0", host)),
        ("HTTP/0.9", b"GET /mcp\r\n\r\n".to_vec()),
        ("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec()),
        ("HTTP/2 without TLS", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec()),
        ("two spaces", head("POST  /mcp HTTP/1.1", host)),
        ("a tab", head("POST\t/mcp HTTP/1.1", host)),
        ("a space in the target", head("POST /m cp HTTP/1.1", host)),
        ("an upgrade", post_whole("Connection: Upgrade\r\nUpgrade: foo\r\n", CALL).into()),
        (
            "an upgrade to HTTP/2",
            post_whole(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
                CALL,
            )
            .into(),
        ),
        ("an unknown expectation", post_whole("Expect: 200-maybe\r\n", CALL).into()),
        (
            "too many header lines",
            post_whole(&"X-Many: 1\r\n".repeat(101), CALL).into(),
        ),
        (
            "a head of 65 KiB",
            post_whole(&format!("X-Long: {}\r\n", "a".repeat(65 << 10)), CALL).into(),
        ),
    ];
    all_refused(400, "bad_request", &texts).await;
}

#[tokio::test]
async fn targets_with_two_meanings_are_refused() {
    let targets = [
        "/mcp/../admin",
        "/mcp/..",
        "/mcp/.",
        "/./mcp",
        "/mcp/%2e%2e/admin",
        "/%6dcp",
        "/mcp%2fadmin",
        "/mcp%00",
        "//mcp",
        "/mcp//",
        "/mcp;x/../admin",
        "/mcp;a=1",
        "/mcp\\admin",
        "\\mcp",
        "/mcp?tool=wipe",
        "/mcp#fragment",
        "/m\u{e9}cp",
        "mcp",
        "*",
        "127.0.0.1:80",
        "http://other.example.org/mcp",
        "http://127.0.0.1:1/mcp",
        "http://user@127.0.0.1/mcp",
        "http://127.0.0.1/mcp/../admin",
        "http://127.0.0.1",
        "ftp://127.0.0.1/mcp",
        "file:///mcp",
    ];
    let texts: Vec<_> = targets
        .iter()
        .map(|target| {
            let text = post_whole("", CALL).replacen("/mcp", target, 1);
            (*target, text.into_bytes())
        })
        .collect();
    all_refused(400, "bad_request", &texts).await;
}

#[tokio::test]
async fn end_to_end_headers_named_in_connection_are_refused() {
    let names = [
        "Mcp-Session-Id",
        "mcp-protocol-version",
        "Mcp-Method",
        "Mcp-Name",
        "Mcp-Param-Region",
        "Authorization",
        "Host",
        "Content-Length",
        "Content-Type",
        "Transfer-Encoding",
        "Origin",
        "Cookie",
        "Last-Event-ID",
        "X-Forwarded-For",
        "close, Authorization",
        ":path",
    ];
    let mut texts: Vec<_> = names
        .iter()
        .map(|name| (*name, post_whole(&format!("Connection: {name}\r\n"), CALL).into_bytes()))
        .collect();
    let many = format!("Connection: {}\r\n", ["a"; 11].join(", "));
    texts.push(("eleven names", post_whole(&many, CALL).into()));
    all_refused(400, "bad_request", &texts).await;
}

/// The answer to `text` on a new plain connection, which is returned with it.
async fn ask(lictor: &Lictor, text: impl AsRef<[u8]>) -> (Answer, Wire) {
    let mut wire = lictor.wire().await;
    wire.send(text).await;
    (wire.answer().await, wire)
}

#[tokio::test]
async fn spellings_with_one_meaning_are_served() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let length = CALL.len();
    let texts = [
        post_whole("", CALL),
        post_whole("", CALL).replacen("/mcp", "/mcp/", 1),
        post_whole("", CALL).replacen("/mcp", "http://127.0.0.1/mcp", 1),
        post_whole("", CALL).replacen("/mcp", "/mcp?", 1),
        post(&format!("content-LENGTH:{length}\r\n"), CALL),
        post(&format!("Content-Length:  00{length} \r\n"), CALL),
        post("Transfer-Encoding: Chunked\r\n", &format!("{length:X}\r\n{CALL}\r\n0\r\n\r\n")),
        format!("\r\n{}", post_whole("", CALL)),
    ];
    for text in &texts {
        let (answer, mut wire) = ask(&lictor, text).await;
        assert_eq!((answer.status, answer.json()["id"].clone()), (200, 7.into()), "{text}");
        // The connection is as usable as before.
        wire.send(post_whole("", CALL)).await;
        assert_eq!(wire.answer().await.status, 200, "{text}");
    }
    let seen = stub.seen();
    assert_eq!(seen.len(), 2 * texts.len());
    for request in seen {
        assert_eq!(request.head.start, "POST /mcp HTTP/1.1");
        assert_eq!(request.head.header("content-length"), Some(length.to_string().as_str()));
        assert_eq!(request.body, CALL);
    }
    lictor.stop(2 * texts.len()).await;
}

#[tokio::test]
async fn chunked_bodies_arrive_as_one_message() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        // Extensions and trailers go no further, whatever they claim.
        let mut text =
            post("Transfer-Encoding: chunked\r\nTrailer: X-Spiffe-Id\r\n", "").into_bytes();
        for (at, byte) in CALL.bytes().enumerate() {
            let one = String::from_utf8(chunk(&[byte])).expect("ASCII");
            text.extend(match at {
                0 => one.replacen("\r\n", ";ext=\"1\"\r\n", 1).into_bytes(),
                _ => one.into_bytes(),
            });
        }
        text.extend(
            b"0\r\nX-T: 1\r\nX-Spiffe-Id: spiffe://one.test/admin\r\nX_Caller: admin\r\n\r\n",
        );
        // One write a byte, so that every boundary is met.
        for byte in &text {
            wire.send([*byte]).await;
        }
        assert_eq!(wire.answer().await.json()["id"], 7);
        wire.send(post_whole("", CALL)).await;
        assert_eq!(wire.answer().await.status, 200, "the connection stays usable");
    }
    let seen = stub.seen();
    assert_eq!(seen.len(), 4);
    for request in &seen {
        assert_eq!(request.body, CALL);
        for name in ["x-t", "x-spiffe-id", "x_caller", "trailer", "transfer-encoding"] {
            assert!(!request.head.headers.contains_key(name), "{name}");
        }
    }
    let closed = lictor.stop(4).await;
    assert!(closed.iter().all(|entry| entry["req_sha256"] == closed[0]["req_sha256"]));
}

#[tokio::test]
async fn bad_chunks_are_refused() {
    let size = format!("{:x}", CALL.len());
    let bodies = [
        ("not hexadecimal", format!("xyz\r\n{CALL}\r\n0\r\n\r\n")),
        ("signed", format!("+{size}\r\n{CALL}\r\n0\r\n\r\n")),
        ("with a prefix", format!("0x{size}\r\n{CALL}\r\n0\r\n\r\n")),
        ("beyond 64 bits", format!("fffffffffffffffff{size}\r\n{CALL}\r\n0\r\n\r\n")),
        ("longer than it says", format!("3\r\n{CALL}\r\n0\r\n\r\n")),
    ];
    let texts: Vec<_> = bodies
        .iter()
        .map(|(name, body)| {
            let text = post("Transfer-Encoding: chunked\r\n", body);
            (*name, format!("{text}{}", smuggled()).into_bytes())
        })
        .collect();
    all_refused(400, "bad_request", &texts).await;
}

#[tokio::test]
async fn a_body_that_is_cut_reaches_nobody() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    for text in [
        post("Content-Length: 5000\r\n", CALL),
        post("Transfer-Encoding: chunked\r\n", &format!("{:x}\r\n{CALL}\r\n", CALL.len())),
    ] {
        let mut wire = lictor.wire().await;
        wire.send(text).await;
        wire.finish().await;
        wire.ends().await;
    }
    assert_eq!(stub.connections(), 0);
    for entry in lictor.stop(2).await {
        assert_eq!(entry["status"], "client_gone");
    }
}

#[tokio::test]
async fn a_preflight_has_one_meaning_too() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let preflight = "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n";
    let rows = [
        ("\r\n", 204),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("X-Line: 1\n\r\n", 400),
        ("Content-Length: 5\r\n\r\nhello", 400),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ];
    for (rest, status) in rows {
        let mut wire = lictor.wire().await;
        wire.send(format!("{preflight}{rest}")).await;
        let head = wire.head().await;
        assert_eq!(head.status(), status, "{rest:?}");
    }
    let mut wire = lictor.wire().await;
    let elsewhere = preflight.replacen("Host: localhost", "Host: rebind.example.net", 1);
    wire.send(format!("{elsewhere}\r\n")).await;
    assert_eq!(wire.answer().await.kind(), "host_not_allowed");
    lictor.stop(rows.len() + 1).await;
}

#[tokio::test]
async fn other_methods_are_refused() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let methods =
        ["PUT", "PATCH", "TRACE", "OPTIONS", "PROPFIND", "post", "PRI", "QUERY", "CONNECT"];
    for method in methods {
        let text = post_whole("X-HTTP-Method-Override: POST\r\n", CALL);
        let (answer, _) = ask(&lictor, text.replacen("POST", method, 1)).await;
        assert_eq!(
            (answer.status, answer.kind().as_str()),
            (405, "method_not_allowed"),
            "{method}"
        );
        assert_eq!(answer.header("allow"), Some("POST, GET, DELETE"), "{method}");
    }
    let (answer, _) = ask(
        &lictor,
        "CONNECT other.example.org:443 HTTP/1.1\r\nHost: other.example.org:443\r\n\r\n",
    )
    .await;
    assert_eq!(answer.status, 405);
    // HEAD has no body, and isn't GET.
    let mut wire = lictor.wire().await;
    wire.send("HEAD /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    let answer = wire.answer_to_head().await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST, GET, DELETE")));
    wire.send(post_whole("", CALL)).await;
    assert_eq!(wire.answer().await.json()["id"], 7, "nothing of a body was left on the connection");
    // A method in a header is no method.
    let text = post_whole("X-HTTP-Method-Override: DELETE\r\nX-Method: GET\r\n", CALL);
    let (answer, _) = ask(&lictor, text).await;
    assert_eq!(answer.status, 200);
    assert!(stub.seen().iter().all(|seen| seen.head.start == "POST /mcp HTTP/1.1"));
    assert!(stub.seen().iter().all(|seen| !seen.head.headers.contains_key("x-method")));
    assert_eq!(stub.requests(), 2);
    lictor.stop(methods.len() + 4).await;
}

#[tokio::test]
async fn a_body_where_none_belongs_is_refused() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    for method in ["GET", "DELETE"] {
        let text = post_whole("Mcp-Session-Id: s-1\r\n", CALL).replacen("POST", method, 1);
        let (answer, mut wire) = ask(&lictor, text).await;
        assert_eq!((answer.status, answer.kind().as_str()), (400, "bad_request"), "{method}");
        wire.ends().await;
    }
    assert_eq!(stub.connections(), 0);
    lictor.stop(2).await;
}

#[tokio::test]
async fn lengths_that_lie_do_not_get_through_http2() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    for length in [1, CALL.len() + 1] {
        let mut caller = lictor.caller(Transport::Http2Tls).await;
        let mut request = caller.request("POST", whole(CALL));
        request.headers_mut().insert("content-length", length.into());
        let answered = caller.try_send(request).await;
        assert!(answered.is_err() || answered.is_ok_and(|reply| reply.status == 400));
    }
    assert_eq!(stub.connections(), 0);
}

#[tokio::test]
async fn a_chain_of_delegation_is_never_left_out() {
    let with = |lines: &str| post_whole(lines, CALL).into_bytes();
    let rows = [
        ("a chain", with("Agent-Delegation: a.b.c\r\n")),
        ("an empty one", with("agent-delegation:\r\n")),
        ("two", with("Agent-Delegation: a.b.c\r\nAgent-Delegation: a.b.c\r\n")),
        ("one for this hop only", with("Connection: agent-delegation\r\n")),
    ];
    all_refused(400, "bad_request", &rows).await;
}

//! Which headers cross, in both directions.

use std::collections::BTreeSet;

use crate::{
    CALL,
    http::{TRANSPORTS, Transport, whole},
    post_whole,
    stub::Stub,
    subject::{Lictor, Setup},
};

/// What a caller sends that means nothing to the upstream, or must not reach it.
const WITHHELD: &[(&str, &str)] = &[
    ("authorization", "Bearer t-a"),
    ("proxy-authorization", "Basic YTpi"),
    ("cookie", "s=1"),
    ("x-api-key", "k"),
    ("forwarded", "for=10.0.0.1;host=admin"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-forwarded-host", "admin"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-client-cert", "URI=spiffe://one.test/admin"),
    ("x_forwarded_client_cert", "URI=spiffe://one.test/admin"),
    ("x-spiffe-id", "spiffe://one.test/admin"),
    ("x_spiffe_id", "spiffe://one.test/admin"),
    ("x-caller", "admin"),
    ("x_caller", "admin"),
    ("x-real-ip", "10.0.0.1"),
    ("x-original-url", "/admin"),
    ("x-rewrite-url", "/admin"),
    ("x-http-method-override", "DELETE"),
    ("accept-encoding", "gzip, br, zstd"),
    ("origin", "http://127.0.0.1"),
    ("range", "bytes=0-1"),
    ("if-none-match", "\"a\""),
    ("x-anything", "1"),
];

/// What goes on.
const PASSED: &[(&str, &str)] = &[
    ("accept-language", "de"),
    ("mcp-protocol-version", "2025-11-25"),
    ("mcp-method", "tools/call"),
    ("mcp-name", "look"),
    ("mcp-param-region", "eu"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("tracestate", "a=b"),
    ("baggage", "a=b"),
    ("user-agent", "test/1"),
];

#[tokio::test]
async fn only_what_the_protocol_needs_reaches_the_upstream() {
    let stub = Stub::json().await;
    let setup = Setup::to(&stub.url()).listener("origins: ['http://127.0.0.1']");
    let lictor = setup.start().await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let mut request = caller.request("POST", whole(CALL));
        for (name, value) in WITHHELD.iter().chain(PASSED) {
            request.headers_mut().insert(*name, value.parse().expect("a value"));
        }
        assert_eq!(caller.send(request).await.whole().await.status, 200, "{transport:?}");
    }
    let seen = stub.seen();
    assert_eq!(seen.len(), 3);
    let added = ["accept", "accept-encoding", "content-length", "content-type", "host"];
    let expected: BTreeSet<&str> = PASSED.iter().map(|(name, _)| *name).chain(added).collect();
    for request in seen {
        let names: BTreeSet<&str> = request.head.headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(names, expected);
        assert_eq!(request.head.header("accept-encoding"), Some("identity"));
        assert_eq!(request.head.header("host"), Some(stub.address.to_string().as_str()));
        for (name, value) in PASSED {
            assert_eq!(request.head.header(name), Some(*value));
        }
    }
    lictor.stop(3).await;
}

#[tokio::test]
async fn what_is_for_one_hop_stops_there() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let hop = "Connection: keep-alive, X-Secret-Hop, User-Agent\r\nX-Secret-Hop: 1\r\n\
        Keep-Alive: timeout=5\r\nTE: trailers\r\nProxy-Connection: close\r\nUser-Agent: nominated\r\n";
    for mut wire in [lictor.wire().await, lictor.wire_tls().await] {
        wire.send(post_whole(hop, CALL)).await;
        assert_eq!(wire.answer().await.status, 200);
        // The caller's wish to close is about the caller's connection only.
        wire.send(post_whole("Connection: close\r\n", CALL)).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        wire.ends().await;
    }
    assert_eq!((stub.connections(), stub.requests()), (1, 4));
    for request in stub.seen() {
        for name in
            ["connection", "x-secret-hop", "keep-alive", "te", "proxy-connection", "user-agent"]
        {
            assert!(!request.head.headers.contains_key(name), "{name}");
        }
    }
    lictor.stop(4).await;
}

#[tokio::test]
async fn what_could_lead_round_the_proxy_does_not_reach_the_caller() {
    let stub = Stub::answering(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
          Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
          Set-Cookie: s=1\r\nSet-Cookie: t=2\r\nAlt-Svc: h2=\"other.example.org:443\"\r\n\
          Location: http://other.example.org/\r\nRefresh: 0;url=http://other.example.org/\r\n\
          Upgrade: h2c\r\nTrailer: X-T\r\nTE: trailers\r\nProxy-Authenticate: Basic\r\n\
          Proxy-Authentication-Info: a\r\nProxy-Connection: keep-alive\r\n\
          Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n\
          Access-Control-Allow-Private-Network: true\r\nContent-Location: http://10.0.0.1/\r\n\
          Server: internal/1.0\r\nVia: 1.1 internal\r\nX-Powered-By: internal\r\n\
          Strict-Transport-Security: max-age=1\r\nClear-Site-Data: \"*\"\r\n\
          X-Accel-Redirect: /internal/\r\nX-Sendfile: /etc/passwd\r\n\
          NEL: {}\r\nReport-To: {}\r\nReporting-Endpoints: a=\"http://10.0.0.1/\"\r\n\
          Mcp-Session-Id: planted\r\nX-Kept: 1\r\nWWW-Authenticate: Bearer\r\nETag: \"a\"\r\nRetry-After: 3\r\n\r\n{}"
            .to_vec()
    })
    .await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let reply = caller.post(CALL).await;
        let mut names: BTreeSet<String> =
            reply.headers.keys().map(|name| name.as_str().to_owned()).collect();
        if transport != Transport::Http2Tls {
            assert!(names.remove("connection"));
            assert_eq!(reply.header("connection"), Some("keep-alive"));
        }
        let expected = [
            "content-length",
            "content-type",
            "date",
            "etag",
            "retry-after",
            "www-authenticate",
            "x-kept",
        ];
        assert_eq!(names, expected.map(String::from).into(), "{transport:?}");
        assert_eq!(reply.whole().await.text(), "{}");
    }
    lictor.stop(3).await;
}

#[tokio::test]
async fn trailers_go_nowhere() {
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::Frame;
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut trailers = http::HeaderMap::new();
        for (name, value) in WITHHELD {
            trailers.insert(*name, value.parse().expect("a value"));
        }
        let frames = [Ok(Frame::data(CALL.into())), Ok(Frame::trailers(trailers))];
        let mut caller = lictor.caller(transport).await;
        let body = StreamBody::new(tokio_stream::iter(frames)).boxed();
        let request = caller.request("POST", body);
        assert_eq!(caller.send(request).await.whole().await.status, 200, "{transport:?}");
    }
    let seen = stub.seen();
    assert_eq!(seen.len(), 3);
    for request in seen {
        assert_eq!(request.body, CALL);
        for (name, value) in WITHHELD.iter().filter(|(name, _)| *name != "accept-encoding") {
            assert!(!request.head.headers.contains_key(*name), "{name}: {value}");
        }
    }
    lictor.stop(3).await;
}

#[tokio::test]
async fn the_configured_host_is_sent() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).upstream("host: 'localhost:9'").start().await;
    let answer = lictor.caller(Transport::Http2Tls).await.post(CALL).await.whole().await;
    assert_eq!(answer.status, 200);
    assert_eq!(stub.only().head.header("host"), Some("localhost:9"));
    lictor.stop(1).await;
}

#[tokio::test]
async fn a_list_that_was_cut_has_no_headers_of_the_whole_one() {
    const LIST: &str =
        r#"{"tools":[{"name":"look","inputSchema":{}},{"name":"wipe","inputSchema":{}}]}"#;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let stub = Stub::answering(|seen| {
        let body = crate::stub::result(seen, LIST);
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             ETag: \"a\"\r\nContent-Digest: sha-256=:a:\r\nLast-Modified: never\r\n\
             Cache-Control: public\r\n\r\n{body}"
        )
        .into_bytes()
    })
    .await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for _ in 0..2 {
            let answer = caller.post(list).await.whole().await;
            let tools = answer.json()["result"]["tools"].clone();
            assert_eq!(tools.as_array().map(Vec::len), Some(1), "{tools}");
            assert_eq!(tools[0]["name"], "look");
            let length = answer.body.len().to_string();
            assert_eq!(answer.header("content-length"), Some(length.as_str()));
            assert_eq!(answer.header("cache-control"), Some("private, no-store"));
            for name in ["etag", "content-digest", "last-modified", "content-encoding"] {
                assert_eq!(answer.header(name), None, "{name}");
            }
        }
    }
    lictor.stop(6).await;
}

#[tokio::test]
async fn a_list_that_may_be_seen_whole_is_not_touched() {
    const LIST: &str =
        r#"{ "tools" : [ {"name":"look","x":1e400,"inputSchema":{"a":9007199254740993}} ] }"#;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let stub = Stub::answering(|seen| crate::stub::json(&crate::stub::result(seen, LIST))).await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let answer = caller.post(list).await.whole().await;
        let whole = crate::stub::result(&stub.seen()[0], LIST);
        assert_eq!((answer.status, answer.text()), (200, whole), "{transport:?}");
    }
    lictor.stop(3).await;
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_not_shown() {
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let rows: &[(&str, &[u8])] = &[
        ("Content-Encoding: gzip\r\n", b"\x1f\x8b\x08\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0"),
        ("Content-Encoding: br\r\n", b"\x3b"),
        ("Content-Encoding: gzip, gzip\r\n", b"\x1f\x8b"),
        ("Content-Encoding: identity\r\n", b"{}"),
        (
            "Content-Type: text/event-stream\r\n",
            br#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"wipe"}]}}"#,
        ),
        ("", b"\x1f\x8b\x08\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0"),
        ("", br#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"wipe"}]}} trailing"#),
        ("", br#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"wipe"}],"tools":[]}}"#),
        ("", br#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"wipe","#),
    ];
    let answers: Vec<Vec<u8>> = rows
        .iter()
        .map(|(headers, body)| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
                body.len()
            );
            [head.as_bytes(), body].concat()
        })
        .collect();
    let stub = Stub::answering(move |seen| {
        let row: usize = seen.id().parse().expect("a row");
        answers[row].clone()
    })
    .await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for row in 0..rows.len() {
            let answer = caller.post(list.replace(":7", &format!(":{row}"))).await.whole().await;
            let told = (answer.status, answer.kind());
            assert_eq!(told, (502, "upstream_unreadable".to_owned()), "{transport:?} {row}");
            assert!(!answer.text().contains("wipe"));
        }
    }
    lictor.stop(3 * rows.len()).await;
}

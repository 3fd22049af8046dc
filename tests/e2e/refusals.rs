//! Every refusal as a client sees it: status, code, kind, the request's own id, and the headers that
//! clients act on.

use http::{HeaderMap, HeaderName, Request};
use serde_json::{Value, json};

use crate::{
    CALL,
    http::{Answer, Caller, Outgoing, TRANSPORTS, Transport, whole, within},
    post_whole,
    stub::Stub,
    subject::{Lictor, Setup},
};

mod identity;

/// What a refusal has to say.
#[derive(Clone, Debug)]
struct Expected {
    status: u16,
    code: i64,
    kind: &'static str,
    /// `None` where no id may be there at all.
    id: Option<Value>,
}

fn expected(status: u16, code: i64, kind: &'static str, id: impl Into<Value>) -> Expected {
    Expected { status, code, kind, id: Some(id.into()) }
}

/// Checks a refusal; its decision id.
fn check(answer: &Answer, expected: &Expected) -> String {
    let Expected { status, code, kind, id } = expected;
    let body = answer.json();
    let error = &body["error"];
    let told = (answer.status, error["code"].as_i64(), error["data"]["kind"].as_str());
    assert_eq!(told, (*status, Some(*code), Some(*kind)), "{body}");
    assert_eq!(body.get("id"), id.as_ref(), "{body}");
    assert_eq!(body["jsonrpc"], "2.0");
    assert!(error["data"]["retryable"].is_boolean(), "{body}");
    let decision = error["data"]["decisionId"].as_str().expect("a decision id").to_owned();
    assert!(error["message"].as_str().is_some_and(|text| text.contains(&decision)), "{body}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    for (name, wanted) in [
        ("www-authenticate", *status == 401),
        ("allow", *status == 405),
        ("retry-after", *status == 503),
        ("mcp-session-id", false),
        ("set-cookie", false),
        ("location", false),
    ] {
        assert_eq!(answer.header(name).is_some(), wanted, "{name} on {status}");
    }
    decision
}

/// A message with headers, and what becomes of it.
struct Row {
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: String,
    expected: Expected,
}

impl Row {
    fn post(body: impl Into<String>, expected: Expected) -> Self {
        Self { method: "POST", path: "/mcp", headers: &[], body: body.into(), expected }
    }

    fn with(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    fn request(&self, caller: &Caller) -> Request<Outgoing> {
        let body = whole(self.body.clone());
        let mut request = caller.request_to(self.method, self.path, body);
        set(request.headers_mut(), self.headers);
        request
    }
}

/// Sets headers; an empty value removes one.
fn set(headers: &mut HeaderMap, lines: &[(&'static str, &'static str)]) {
    for (name, value) in lines {
        let name = HeaderName::from_static(name);
        if value.is_empty() {
            headers.remove(name);
        } else {
            headers.insert(name, value.parse().expect("a value"));
        }
    }
}

/// Sends all rows over each transport, and checks them, the upstream's silence and the ledger.
async fn all_refused(lictor: Lictor, stub: &Stub, rows: &[Row]) {
    let mut decisions = Vec::new();
    for transport in TRANSPORTS {
        for row in rows {
            // Some refusals end an HTTP/1 connection.
            let mut caller = lictor.caller(transport).await;
            let answer = caller.send(row.request(&caller)).await.whole().await;
            decisions.push((check(&answer, &row.expected), row.expected.clone()));
        }
    }
    assert_eq!(stub.connections(), 0);
    let closed = lictor.stop(decisions.len()).await;
    for (decision, expected) in decisions {
        let entry = closed.iter().find(|entry| entry["call_id"] == decision.as_str());
        let entry = entry.expect("the decision is on record");
        assert_eq!(entry["kind"], "denied");
        assert_eq!(
            (&entry["status"], &entry["http_status"]),
            (&expected.kind.into(), &expected.status.into())
        );
        assert_eq!(entry["peer"], "spiffe://one.test/caller");
    }
}

const MODERN: &[(&str, &str)] =
    &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "look")];

fn modern(method: &str, name: &str) -> String {
    json!({
        "jsonrpc": "2.0",
        "id": 7,
        "method": method,
        "params": {
            "name": name,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    })
    .to_string()
}

#[tokio::test]
async fn every_kind_says_what_its_row_says() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let call = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}"}}"#);
    let rows = [
        Row::post(CALL.replace("look", "wipe"), expected(200, 4030, "policy_denied", 7)),
        Row::post(call("vendor/thing"), expected(200, -32601, "unknown_method", 7)),
        Row::post(call("server/discover"), expected(200, -32601, "unknown_method", 7)),
        Row::post(modern("vendor/thing", "look"), expected(404, -32601, "unknown_method", 7)).with(
            &[
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "vendor/thing"),
                ("mcp-name", "look"),
            ],
        ),
        Row::post(modern("tools/call", "wipe"), expected(200, 4030, "policy_denied", 7)).with(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "wipe"),
        ]),
        Row::post(CALL, expected(404, 4041, "unknown_session", 7))
            .with(&[("mcp-session-id", "nobody's")]),
        Row::post("{", expected(400, -32700, "parse_error", Value::Null)),
        Row::post("", expected(400, -32700, "parse_error", Value::Null)),
        Row::post(format!("[{CALL}]"), expected(400, -32600, "invalid_request", Value::Null)),
        Row::post("[".repeat(100_000), expected(400, -32600, "invalid_request", Value::Null)),
        Row::post(CALL.replace("2.0", "1.0"), expected(400, -32600, "invalid_request", 7)),
        Row::post(CALL.replace("\"look\"", "7"), expected(400, -32602, "invalid_params", 7)),
        Row::post(modern("tools/call", "change"), expected(400, -32020, "header_mismatch", 7))
            .with(MODERN),
        Row::post(CALL, expected(400, -32600, "unsupported_version", 7))
            .with(&[("mcp-protocol-version", "2020-01-01")]),
        Row::post(
            modern("tools/call", "look").replace("2026-07-28", "2027-01-01"),
            expected(400, -32022, "unsupported_version", 7),
        )
        .with(&[
            ("mcp-protocol-version", "2027-01-01"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "look"),
        ]),
        Row::post(CALL, expected(415, 4150, "unsupported_media_type", Value::Null))
            .with(&[("content-type", "text/plain")]),
        Row { path: "/other", ..Row::post(CALL, expected(404, 4040, "no_route", Value::Null)) },
        Row {
            method: "PUT",
            ..Row::post(CALL, expected(405, 4050, "method_not_allowed", Value::Null))
        },
        Row {
            method: "GET",
            ..Row::post("", expected(405, 4050, "method_not_allowed", Value::Null))
        }
        .with(&[("mcp-protocol-version", "2026-07-28")]),
        Row {
            method: "DELETE",
            ..Row::post("", expected(405, 4050, "method_not_allowed", Value::Null))
        }
        .with(&[("mcp-protocol-version", "2026-07-28"), ("mcp-session-id", "s-1")]),
        Row::post(CALL, expected(403, 4033, "origin_not_allowed", Value::Null))
            .with(&[("origin", "https://evil.example.net")]),
    ];
    all_refused(lictor, &stub, &rows).await;
}

#[tokio::test]
async fn refusals_name_reason_limit_and_versions() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut caller = lictor.caller(Transport::Http1).await;
    let answer = caller.post(CALL.replace("look", "wipe")).await.whole().await;
    let message = answer.json()["error"]["message"].as_str().expect("text").to_owned();
    assert!(message.starts_with("wiping is not permitted (decision "), "{message}");
    let body = modern("tools/call", "look").replace("2026-07-28", "2027-01-01");
    let row = Row::post(body, expected(400, -32022, "unsupported_version", 7)).with(&[
        ("mcp-protocol-version", "2027-01-01"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "look"),
    ]);
    let answer = caller.send(row.request(&caller)).await.whole().await;
    let data = answer.json()["error"]["data"].clone();
    assert_eq!(data["supported"], json!(["2026-07-28"]));
    assert_eq!(data["requested"], "2027-01-01");
    let row = Row { method: "GET", ..Row::post("", row.expected.clone()) }
        .with(&[("mcp-protocol-version", "2026-07-28")]);
    let answer = caller.send(row.request(&caller)).await.whole().await;
    assert_eq!(answer.header("allow"), Some("POST"));
    lictor.stop(3).await;
}

#[tokio::test]
async fn http_statuses_are_told_where_that_is_wanted() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).route("denials: httpStatus").start().await;
    let rows = [
        Row::post(CALL.replace("look", "wipe"), expected(403, 4030, "policy_denied", 7)),
        Row::post(
            r#"{"jsonrpc":"2.0","id":7,"method":"vendor/thing"}"#,
            expected(404, -32601, "unknown_method", 7),
        ),
        // The decoder's own.
        Row::post(
            r#"{"jsonrpc":"2.0","id":7,"method":"server/discover"}"#,
            expected(404, -32601, "unknown_method", 7),
        ),
    ];
    all_refused(lictor, &stub, &rows).await;
}

#[tokio::test]
async fn the_request_id_comes_back_as_it_was() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let good = [
        "1",
        "\"1\"",
        "0",
        "-1",
        "\"\"",
        "\"\u{e9}\"",
        "\"\\u00e9\"",
        "9007199254740991",
        "-9007199254740991",
        "\"9007199254740993\"",
        "\"a\\\"b\"",
    ];
    let bad = ["null", "true", "[1]", "{}", "1.0", "1e2", "-0", "9007199254740993"];
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for id in good {
            let body = CALL.replace("look", "wipe").replace(":7", &format!(":{id}"));
            let answer = caller.post(body).await.whole().await;
            // Byte for byte, since numbers and escapes have more than one reading.
            assert!(answer.text().contains(&format!("\"id\":{id},")), "{id}: {}", answer.text());
            assert_eq!(answer.kind(), "policy_denied");
        }
        for id in bad {
            let body = CALL.replace(":7", &format!(":{id}"));
            let answer = caller.post(body).await.whole().await;
            check(&answer, &expected(400, -32600, "invalid_request", Value::Null));
        }
    }
    assert_eq!(stub.connections(), 0);
    lictor.stop(3 * (good.len() + bad.len())).await;
}

#[tokio::test]
async fn notifications_are_accepted_or_refused_without_an_id() {
    let notification = |method: &str| format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
    let stub =
        Stub::answering(|_| b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
    let lictor = Lictor::start(&stub.url()).await;
    let accepted = [
        notification("notifications/initialized"),
        notification("notifications/cancelled"),
        r#"{"jsonrpc":"2.0","id":"srv-1","result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":"srv-1","error":{"code":-1,"message":"no"}}"#.to_owned(),
    ];
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for body in &accepted {
            let answer = caller.post(body.clone()).await.whole().await;
            assert_eq!((answer.status, answer.text().as_str()), (202, ""), "{body}");
        }
        for (method, status, code, kind) in [
            ("notifications/roots/list_changed", 403, 4030, "policy_denied"),
            ("notifications/nonesuch", 404, -32601, "unknown_method"),
        ] {
            let answer = caller.post(notification(method)).await.whole().await;
            check(&answer, &Expected { status, code, kind, id: None });
        }
        // Nothing was asked, so nothing may be refused by a JSON-RPC error on 200.
        let refused = Row { method: "GET", ..Row::post("", expected(404, 0, "", 0)) }
            .with(&[("mcp-session-id", "nobody's")]);
        let answer = caller.send(refused.request(&caller)).await.whole().await;
        check(&answer, &Expected { status: 404, code: 4041, kind: "unknown_session", id: None });
    }
    assert_eq!(stub.requests(), 12);
    lictor.stop(21).await;
}

#[tokio::test]
async fn media_types_are_read_as_they_are_meant() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let rows: &[(&[(&str, &str)], u16)] = &[
        (&[("accept", "*/*")], 200),
        (&[("accept", "application/*, text/event-stream;q=0.5")], 200),
        (&[("accept", "")], 200),
        (&[("content-type", "Application/JSON ; charset=\"UTF-8\"")], 200),
        (&[("content-type", "application/json; charset=utf-8")], 200),
        (&[("content-type", "application/json; charset=utf-16")], 415),
        (&[("content-type", "application/jsonp")], 415),
        (&[("content-type", "text/plain")], 415),
        (&[("content-type", "")], 415),
        (&[("content-encoding", "gzip")], 415),
    ];
    let mut passed = 0;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for (headers, status) in rows {
            let mut request = caller.request("POST", whole(CALL));
            set(request.headers_mut(), headers);
            let answer = caller.send(request).await.whole().await;
            assert_eq!(answer.status, *status, "{headers:?}");
            if *status == 200 {
                let seen = stub.seen();
                let head = &seen.last().expect("a request").head;
                for (name, value) in *headers {
                    assert_eq!(head.header(name).unwrap_or_default(), *value);
                }
                passed += 1;
            } else {
                check(&answer, &expected(415, 4150, "unsupported_media_type", Value::Null));
            }
        }
    }
    assert_eq!(stub.requests(), passed);
    lictor.stop(3 * rows.len()).await;
}

#[tokio::test]
async fn hosts_and_origins_are_checked() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut requests = 0;
    for (host, origins, status) in [
        ("127.0.0.1", &[][..], 200),
        ("localhost:9999", &[], 200),
        ("[::1]:1", &[], 200),
        ("rebind.example.net", &[], 403),
        ("localhost.example.net", &[], 403),
        ("127.0.0.1.example.net", &[], 403),
        ("localhost", &["http://localhost:3000"], 200),
        ("localhost", &["https://evil.example.net"], 403),
        ("localhost", &["null"], 403),
        ("localhost", &["http://localhost:3000", "http://localhost:3000"], 403),
        ("localhost", &["http://localhost.example.net"], 403),
    ] {
        let mut text = post_whole("", CALL).replacen("127.0.0.1", host, 1);
        for origin in origins {
            text = text.replacen("\r\nAccept:", &format!("\r\nOrigin: {origin}\r\nAccept:"), 1);
        }
        let mut wire = lictor.wire().await;
        wire.send(text).await;
        let answer = wire.answer().await;
        requests += 1;
        assert_eq!(answer.status, status, "{host} {origins:?}");
        if status == 403 {
            let code = if origins.is_empty() { 4034 } else { 4033 };
            assert_eq!(answer.json()["error"]["code"], code);
            assert_eq!(answer.header("access-control-allow-origin"), None);
        } else {
            assert_eq!(answer.header("access-control-allow-origin"), origins.first().copied());
        }
    }
    assert_eq!(stub.requests(), 4);
    // Behind mutual TLS the certificate says who it is; a host list holds there too.
    let named = Setup::to(&stub.url()).listener("hosts: [side.example.org]").start().await;
    let mut caller = named.caller(Transport::Http2Tls).await;
    let answer = caller.post(CALL).await.whole().await;
    check(&answer, &expected(403, 4034, "host_not_allowed", Value::Null));
    let mut request = caller.request("POST", whole(CALL));
    *request.uri_mut() = "https://side.example.org/mcp".parse().expect("a URI");
    assert_eq!(caller.send(request).await.whole().await.status, 200);
    named.stop(2).await;
    lictor.stop(requests).await;
}

#[tokio::test]
async fn browsers_of_allowed_origins_are_answered() {
    let stub = Stub::json().await;
    let setup = Setup::to(&stub.url()).listener("origins: ['https://app.example.org']");
    let lictor = setup.start().await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let preflight = |origin: &'static str| {
            let mut request = caller.request("OPTIONS", whole(""));
            set(
                request.headers_mut(),
                &[
                    ("origin", origin),
                    ("content-type", ""),
                    ("access-control-request-method", "POST"),
                    (
                        "access-control-request-headers",
                        "mcp-protocol-version, mcp-method, mcp-name, authorization, \
                         A2A-Version,a2a-extensions , Mcp-Param-Region, baggage, x-evil, a b",
                    ),
                ],
            );
            request
        };
        let (good, bad) =
            (preflight("https://app.example.org"), preflight("https://evil.example.net"));
        let answer = caller.send(good).await.whole().await;
        assert_eq!((answer.status, answer.text().as_str()), (204, ""), "{transport:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.org"));
        assert_eq!(answer.header("access-control-allow-methods"), Some("POST, GET, DELETE"));
        assert_eq!(answer.header("access-control-allow-credentials"), None);
        assert_eq!(answer.header("vary"), Some("Origin"));
        let allowed = answer.headers.get_all("access-control-allow-headers").iter();
        let allowed: Vec<_> = allowed.map(|names| names.to_str().expect("text")).collect();
        let allowed = allowed.join(", ").to_lowercase();
        for name in [
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "mcp-session-id",
            "authorization",
            "content-type",
            "last-event-id",
            "a2a-version",
            "a2a-extensions",
            "mcp-param-region",
            "baggage",
        ] {
            assert!(allowed.split(", ").any(|header| header == name), "{name}: {allowed}");
        }
        assert!(!allowed.contains("evil"), "{allowed}");
        let exposed = answer.header("access-control-expose-headers").expect("a list");
        assert!(exposed.contains("Mcp-Session-Id") && exposed.contains("WWW-Authenticate"));
        let answer = caller.send(bad).await.whole().await;
        assert!(answer.status >= 400, "{}", answer.status);
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")));
        // The call itself, and a refusal that the page has to be able to read.
        for (tool, status) in [("look", 200), ("wipe", 200)] {
            let mut request = caller.request("POST", whole(CALL.replace("look", tool)));
            set(request.headers_mut(), &[("origin", "https://app.example.org")]);
            let answer = caller.send(request).await.whole().await;
            assert_eq!(answer.status, status);
            assert_eq!(
                answer.header("access-control-allow-origin"),
                Some("https://app.example.org")
            );
        }
    }
    assert_eq!(stub.requests(), 3);
    // What was answered and asked nobody is no refusal, in the metrics or on record.
    let mut prober = Caller::plain(lictor.administration()).await;
    let asking = prober.request_to("GET", "/metrics", whole(""));
    let metrics = prober.send(asking).await.whole().await.text();
    let counted = r#"lictor_calls_total{decision="none",method="other",outcome="ok",protocol="mcp",upstream=""} 3"#;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    let closed = lictor.stop(12).await;
    let preflights: Vec<_> = closed.iter().filter(|entry| entry.get("method").is_none()).collect();
    let of = |status: &str| {
        let kinds = preflights.iter().filter(|entry| entry["status"] == status);
        kinds.map(|entry| (entry["kind"].clone(), entry["decision"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(of("ok"), vec![("outcome".into(), "none".into()); 3]);
    assert_eq!(of("origin_not_allowed"), vec![("denied".into(), "none".into()); 3]);
}

#[tokio::test]
async fn shadow_lets_pass_and_records_what_it_would_have_refused() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url()).route("mode: shadow").start().await;
    let mut caller = lictor.caller(Transport::Http2Tls).await;
    assert_eq!(caller.post(CALL.replace("look", "wipe")).await.whole().await.status, 200);
    // What can't be decoded is refused all the same.
    let answer = caller.post("{").await.whole().await;
    check(&answer, &expected(400, -32700, "parse_error", Value::Null));
    assert_eq!(stub.requests(), 1);
    let closed = lictor.stop(2).await;
    assert_eq!(
        (&closed[0]["mode"], &closed[0]["would_deny"]),
        (&"shadow".into(), &"policy_denied".into())
    );
}

#[tokio::test]
async fn nothing_is_forwarded_that_cannot_be_recorded() {
    let stub = Stub::json().await;
    // Files can't grow beyond this, as on a full disk.
    let lictor = Setup::to(&stub.url()).file_limit(48 << 10).start().await;
    let mut caller = lictor.caller(Transport::Http1).await;
    let change = CALL.replace("look", "change");
    let full = async {
        loop {
            let answer = caller.post(change.clone()).await.whole().await;
            if answer.status != 200 {
                return answer;
            }
        }
    };
    let answer = within("the end of the disk", full).await;
    check(&answer, &expected(503, 5031, "ledger_unavailable", 7));
    let reached = stub.requests();
    assert!(reached > 0);
    for text in [change.as_str(), CALL] {
        let answer = caller.post(text.to_owned()).await.whole().await;
        check(&answer, &expected(503, 5031, "ledger_unavailable", 7));
    }
    assert_eq!(stub.requests(), reached);
}

//! What an API hears, and what it doesn't.

use tokio::process::Command;

use super::*;
use crate::http::within;

#[tokio::test]
async fn calls_reach_the_same_place_below_the_base() {
    let api = Stub::answering(|_| reply("200 OK", "Content-Type: text/plain\r\n", "here")).await;
    let site = Setup::to(&base(&api, "/v3")).start().await;
    let rows = [
        ("GET", "/api", "", "GET /v3"),
        ("GET", "/api/", "", "GET /v3/"),
        (
            "GET",
            "/api/repos/acme/site?state=open&page=2",
            "",
            "GET /v3/repos/acme/site?state=open&page=2",
        ),
        ("GET", "/api/a%20b/%7Euser/x:y@z", "", "GET /v3/a%20b/~user/x:y@z"),
        ("HEAD", "/api/repos", "", "HEAD /v3/repos"),
        ("POST", "/api/issues", "{\"title\":\"x\"}", "POST /v3/issues"),
        ("PUT", "/api/issues/1", "{}", "PUT /v3/issues/1"),
        ("PATCH", "/api/issues/1", "[1]", "PATCH /v3/issues/1"),
        ("DELETE", "/api/issues/1", "", "DELETE /v3/issues/1"),
    ];
    let json = [("content-type", "application/json")];
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        for (method, target, body, _) in rows {
            let headers = if body.is_empty() { &[][..] } else { &json };
            let answer = asked(&mut caller, method, target, headers, body).await;
            assert_eq!(answer.status, 200, "{method} {target} {}", answer.text());
            let expected = if method == "HEAD" { "" } else { "here" };
            assert_eq!(answer.text(), expected, "{transport:?} {method}");
        }
    }
    let seen = api.seen();
    assert_eq!(seen.len(), rows.len() * TRANSPORTS.len());
    for (seen, (_, _, body, expected)) in seen.iter().zip(rows.iter().cycle()) {
        assert_eq!((line(seen), &*seen.body), (*expected, body.as_bytes()));
    }
    let closings = site.lictor.stop(seen.len()).await;
    let (first, write) = (&closings[2], &closings[5]);
    assert_eq!((&first["protocol"], &first["era"]), (&"http".into(), &"http".into()));
    assert_eq!((&first["method"], &first["class"]), (&"GET".into(), &"read".into()));
    assert_eq!((&first["server"], &first["target"]), (&"api".into(), &"/repos/acme/site".into()));
    assert_eq!(first["host"], api.address.to_string());
    assert_eq!((&first["direction"], &first["status"]), (&"outbound".into(), &"ok".into()));
    assert_eq!((&write["method"], &write["class"]), (&"POST".into(), &"write".into()));
    assert!(first["resp_sha256"].is_string() && first["complete"] == true);
}

#[tokio::test]
async fn a_refusal_is_told_by_its_status() {
    let api = Stub::answering(|_| reply("200 OK", "", "")).await;
    let site = Setup::to(&base(&api, "/")).start().await;
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        let answer = asked(&mut caller, "GET", "/api/secret/a", &[], "").await;
        let told = problem(&answer, 403, "policy_denied");
        assert_eq!((&told["code"], &told["retryable"]), (&"forbidden".into(), &false.into()));
        let detail = told["detail"].as_str().expect("text");
        assert!(detail.starts_with("secrets are not for agents"), "{detail}");
        let answer = asked(&mut caller, "HEAD", "/api/secret/a", &[], "").await;
        assert_eq!((answer.status, answer.body.len()), (403, 0));
        let answer = asked(&mut caller, "PURGE", "/api/a", &[], "").await;
        problem(&answer, 405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some("GET, HEAD, POST, PUT, PATCH, DELETE"));
    }
    assert_eq!(api.requests(), 0);
    let closings = site.lictor.stop(9).await;
    assert!(closings.iter().all(|entry| entry["kind"] == "denied"));
    assert_eq!(closings[0]["target"], "/secret/a");
}

#[tokio::test]
async fn headers_cross_by_list() {
    let api = Stub::answering(|_| {
        let headers = "ETag: \"1\"\r\nX-RateLimit-Remaining: 7\r\nSet-Cookie: s=1\r\n\
                       Lictor-Denial: policy_denied\r\nAlt-Svc: h3\r\nServer: x\r\n";
        reply("200 OK", headers, "{}")
    })
    .await;
    let site = Setup::to(&base(&api, "/")).route("headers: [X-Api-Version]").start().await;
    let sent = [
        ("accept", "text/html"),
        ("accept-encoding", "gzip"),
        ("authorization", "Bearer agents-own"),
        ("if-none-match", "\"1\""),
        ("range", "bytes=0-1"),
        ("idempotency-key", "k"),
        ("user-agent", "agent/1"),
        ("x-api-version", "2026"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("cookie", "s=1"),
        ("x-other", "1"),
        ("x-http-method-override", "DELETE"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-original-url", "/secret"),
        ("agent-delegation", "a.b.c"),
        ("lictor-user", "somebody"),
        ("mcp-session-id", "s"),
        ("proxy-authorization", "Basic eA=="),
        ("x-forwarded-client-cert", "x"),
        ("te", "trailers"),
    ];
    let passing = 9;
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        // HTTP/2 knows no other `te`, and inbound nobody takes chains here, which is told.
        let inbound = transport != Transport::Http1;
        let fits = |name: &str| !(inbound && name == "agent-delegation");
        let sent: Vec<_> = sent.into_iter().filter(|(name, _)| fits(name)).collect();
        let answer = asked(&mut caller, "GET", "/api/a", &sent, "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        for (name, passes) in [
            ("etag", true),
            ("x-ratelimit-remaining", true),
            ("set-cookie", false),
            ("lictor-denial", false),
            ("alt-svc", false),
            ("server", false),
        ] {
            assert_eq!(answer.headers.contains_key(name), passes, "{name}");
        }
    }
    for (seen, transport) in api.seen().iter().zip(TRANSPORTS) {
        for (at, (name, value)) in sent.iter().enumerate() {
            let own = *name == "authorization" && transport == Transport::Http1;
            let passes = at < passing && (*name != "authorization" || own);
            let expected = passes.then_some(*value);
            assert_eq!(seen.head.header(name), expected, "{name} {transport:?}");
        }
        assert_eq!(seen.head.header("host"), Some(&*api.address.to_string()));
    }
    site.lictor.stop(3).await;
}

const ISSUES: &str = r#"
action "api/POST /repos/{owner}/{repo}/issues" in ["write"] appliesTo {
  principal: Agent, resource: Server, context: { input: { title: String, private?: Bool } },
};
"#;

#[tokio::test]
async fn an_operation_is_judged_by_its_path_and_its_body() {
    let api = Stub::answering(|_| reply("201 Created", "", "{}")).await;
    let policies = r#"
        @id("own") permit (
          principal, action == Action::"api/POST /repos/{owner}/{repo}/issues", resource
        ) when { context.http.named.owner == "acme" };
        @id("public") forbid (
          principal, action == Action::"api/POST /repos/{owner}/{repo}/issues", resource
        ) when { context.input has private && context.input.private };
        @id("reads") permit (principal, action in Action::"GET", resource)
        when { ["page"].containsAll(context.http.parameters) };
    "#;
    let site = Setup::to(&base(&api, "/")).policies(policies).schema(ISSUES).start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    let issues = "/api/repos/acme/site/issues";
    let rows = [
        ("POST", issues, json, r#"{"title":"x"}"#, 201),
        ("POST", issues, json, r#"{"title":"x","private":false,"other":[1]}"#, 201),
        ("POST", issues, json, r#"{"title":"x","private":true}"#, 403),
        ("POST", issues, json, r#"{"title":"x","Private":true}"#, 403),
        ("POST", issues, json, r#"{"title":"x","private":1}"#, 403),
        ("POST", issues, json, r#"[{"private":true}]"#, 403),
        ("POST", issues, form, "title=x&private=true", 403),
        ("POST", issues, json, r#"{"title":"x","title":"y"}"#, 400),
        ("POST", "/api/repos/other/site/issues", json, r#"{"title":"x"}"#, 403),
        ("POST", "/api/repos/acme/site/Issues", json, r#"{"title":"x"}"#, 403),
        ("POST", "/api/repos/acme/site/issues/1", json, r#"{"title":"x"}"#, 403),
        ("PUT", issues, json, r#"{"title":"x"}"#, 403),
        ("GET", "/api/repos?page=2", "", "", 201),
        ("GET", "/api/repos?page=2&admin=1", "", "", 403),
    ];
    for (method, target, kind, body, status) in rows {
        let headers = [("content-type", kind)];
        let headers = if kind.is_empty() { &[][..] } else { &headers };
        let answer = asked(&mut caller, method, target, headers, body).await;
        assert_eq!(answer.status, status, "{method} {target} {body}: {}", answer.text());
    }
    let passed = rows.iter().filter(|(.., status)| *status == 201).count();
    assert_eq!(api.requests(), passed);
    site.lictor.stop(rows.len()).await;
}

#[tokio::test]
async fn limits_shadow_and_breakers_hold_here_too() {
    let api = Stub::answering(|seen| match line(seen) {
        "GET /fail" => reply("500 Internal Server Error", "", "sorry"),
        _ => reply("200 OK", "", "fine"),
    })
    .await;
    let setup = || {
        Setup::to(&base(&api, "/"))
            .upstream("breaker: { failures: 2, open: 60s }")
            .with("rateLimits: [{ name: writes, rate: 1/1h, when: { classes: [write] } }]")
    };
    let site = setup().route("mode: shadow").start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    for (method, target, status) in [
        ("GET", "/api/secret", 200),
        ("POST", "/api/a", 200),
        ("POST", "/api/a", 200),
        ("GET", "/api/fail", 500),
        ("GET", "/api/fail", 500),
        ("GET", "/api/a", 200),
    ] {
        let answer = asked(&mut caller, method, target, &[], "").await;
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
    }
    let closings = site.lictor.stop(6).await;
    let would: Vec<_> = closings.iter().map(|entry| entry["would_deny"].as_str()).collect();
    assert_eq!(would[..3], [Some("policy_denied"), None, Some("rate_limited")]);

    let site = setup().start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    assert_eq!(asked(&mut caller, "PUT", "/api/a", &[], "").await.status, 200);
    let answer = asked(&mut caller, "PUT", "/api/a", &[], "").await;
    let told = problem(&answer, 429, "rate_limited");
    assert_eq!((&told["code"], &told["limits"][0]), (&"rate_limited".into(), &"writes".into()));
    assert!(told["retry_after_ms"].is_u64() && answer.header("retry-after").is_some());
    for _ in 0..2 {
        let answer = asked(&mut caller, "GET", "/api/fail", &[], "").await;
        assert_eq!((answer.status, answer.text().as_str()), (500, "sorry"));
    }
    let answer = asked(&mut caller, "GET", "/api/a", &[], "").await;
    problem(&answer, 503, "breaker_open");
    site.lictor.stop(5).await;
}

#[tokio::test]
async fn lists_in_queries_are_named() {
    let api = Stub::answering(|_| reply("200 OK", "", "")).await;
    let site = Setup::to(&base(&api, "/")).route("repeatable: [labels]").start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    for (query, status) in [
        ("labels=a&labels=b&page=1", 200),
        ("ids[]=1&ids[]=2", 200),
        ("page=1&page=2", 400),
        ("Labels=a&Labels=b", 400),
    ] {
        let mut caller = site.lictor.caller(Transport::Http1).await;
        let answer = asked(&mut caller, "GET", &format!("/api/a?{query}"), &[], "").await;
        assert_eq!(answer.status, status, "{query}");
    }
    assert_eq!(line(&api.seen()[0]), "GET /a?labels=a&labels=b&page=1");
    let origin = [("origin", "http://localhost:1"), ("access-control-request-method", "PUT")];
    let answer = asked(&mut caller, "OPTIONS", "/api/a", &origin, "").await;
    let methods = answer.header("access-control-allow-methods");
    assert_eq!((answer.status, methods), (204, Some("GET, HEAD, POST, PUT, PATCH, DELETE")));
    site.lictor.stop(5).await;
}

#[tokio::test]
async fn a_refusal_can_be_explained_afterwards() {
    let api = Stub::answering(|_| reply("200 OK", "", "")).await;
    let policies = r#"
        @id("open") permit (principal, action in Action::"GET", resource)
        when { context.http.path like "/open/*" };
    "#;
    let site = Setup::to(&base(&api, "/")).policies(policies).start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    let answer = asked(&mut caller, "GET", "/api/closed/a?token=hidden", &[], "").await;
    let told = problem(&answer, 403, "policy_denied");
    let decision = told["request_id"].as_str().expect("an id");
    let mut lictor = site.lictor;
    lictor.terminate().await;
    assert!(lictor.ended().await.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.args(["policy", "explain", "-f", "lictor.yaml", "--decision", decision]);
    let output = within("a command", command.current_dir(lictor.directory()).output()).await;
    let text = String::from_utf8(output.expect("it runs").stdout).expect("UTF-8");
    for part in ["GET /closed/a", "GET.other", "open", "context.http.path", "query and body"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hidden"), "{text}");
    lictor.closings(1).await;
}

//! What would be another call to somebody behind us is none here.

use super::*;

/// Sends a request as it stands; the status of the answer.
async fn raw(lictor: &Lictor, head: &str, body: &str) -> u16 {
    let mut wire = lictor.wire().await;
    wire.send(format!("{head}\r\n\r\n{body}")).await;
    wire.answer().await.status
}

#[tokio::test]
async fn no_spelling_of_a_target_leads_elsewhere() {
    let api = Stub::answering(|_| reply("200 OK", "", "")).await;
    let site = Setup::to(&base(&api, "/base")).start().await;
    let targets = [
        "/api/../admin",
        "/api/a/../../admin",
        "/api/%2e%2e/admin",
        "/api/%2E%2e%2fadmin",
        "/api/..%2fadmin",
        "/api/..%5cadmin",
        "/api/%252e%252e/admin",
        "/api/..;/admin",
        "/api//admin",
        "/api/a//b",
        "/api/./secret",
        "/api/%00",
        "/api/%c0%ae%c0%ae/admin",
        "/api/%ef%bc%8e%ef%bc%8e/admin",
        "/api/http://evil.example/",
        "/api/a?x=1&x=2",
        "/api/a?_method=DELETE",
        "/api/a?x=%0d%0aHost:%20evil",
        "/api/a;b",
        "/api/%se",
    ];
    for target in targets {
        let head = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1");
        assert_eq!(raw(&site.lictor, &head, "").await, 400, "{target}");
    }
    // What policies forbid, in other spellings of the same.
    let forbidden = ["/api/secret", "/api/secret/", "/api/%73ecret", "/api/secre%74/a?b"];
    for target in forbidden {
        let head = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1");
        assert_eq!(raw(&site.lictor, &head, "").await, 403, "{target}");
    }
    let heads = [
        ("GET http://evil.example/api/a HTTP/1.1\r\nHost: 127.0.0.1", "", 400),
        ("GET /api/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2", "{}", 400),
        ("DELETE /api/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2", "{}", 400),
        (
            "POST /api/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\
             Transfer-Encoding: chunked",
            "0\r\n\r\n",
            400,
        ),
        ("GET /api/a HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket", "", 400),
        ("GET /api/a HTTP/1.1\r\nHost: evil.example", "", 403),
        ("TRACE /api/a HTTP/1.1\r\nHost: 127.0.0.1", "", 405),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: 127.0.0.1", "", 400),
        ("GET /apiary HTTP/1.1\r\nHost: 127.0.0.1", "", 404),
        ("GET /API/a HTTP/1.1\r\nHost: 127.0.0.1", "", 404),
    ];
    for (head, body, status) in heads {
        assert_eq!(raw(&site.lictor, head, body).await, status, "{head}");
    }
    assert_eq!(api.requests(), 0);
    site.lictor.stop(targets.len() + forbidden.len() + heads.len()).await;
}

#[tokio::test]
async fn absolute_targets_of_our_own_host_are_the_same_call() {
    let api = Stub::answering(|_| reply("200 OK", "", "")).await;
    let site = Setup::to(&base(&api, "/base/")).start().await;
    let head = "GET http://127.0.0.1/api/a?b HTTP/1.1\r\nHost: 127.0.0.1";
    assert_eq!(raw(&site.lictor, head, "").await, 200);
    assert_eq!(line(&api.only()), "GET /base/a?b");
    site.lictor.stop(1).await;
}

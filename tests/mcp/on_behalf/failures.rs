//! Token services that say no, are down, slow, or say what can't be read.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::{revocation::pull, site::AGENT_A};

type Answering = Box<dyn Fn(&Seen) -> Vec<u8> + Send + Sync>;

fn answers(status: &'static str, media: &'static str, body: impl Into<String>) -> Answering {
    let body = body.into();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    Box::new(move |_| answer.clone().into())
}

/// The whole of what such a failure has to leave behind.
async fn fails(name: &str, service: Answering, expected: (u16, &str), reason: &str) {
    let (upstream, service) = (Stub::json().await, Stub::answering(service).await);
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let bearer = format!("Bearer {USERS}");
    for round in 1..=2 {
        // `echo` may change something, so there would be an intent.
        let answer = call_with(&mut caller, &[("authorization", &bearer)]).await;
        assert_eq!((answer.status, &*answer.kind()), expected, "{name}");
        let retryable = expected.0 == 503;
        assert_eq!(answer.json()["error"]["data"]["retryable"], retryable, "{name}");
        assert_eq!(answer.header("retry-after"), retryable.then_some("1"), "{name}");
        // A failure isn't remembered.
        assert_eq!(service.requests(), round, "{name}");
    }
    logged(&lictor, reason).await;
    assert_silent(&lictor).await;
    assert_eq!(upstream.connections(), 0, "{name}");
    let entries = lictor.entries().await;
    assert!(entries.iter().all(|entry| entry["kind"] != "intent"), "{name}: {entries:?}");
    for entry in lictor.stop(2).await {
        assert_eq!(entry["status"], expected.1, "{name}");
    }
}

#[tokio::test]
async fn a_service_that_says_no_is_believed() {
    let error = |code: &str| format!(r#"{{"error":"{code}","error_description":"{USERS}"}}"#);
    let json = "application/json";
    for (status, code, expected, reason) in [
        ("400 Bad Request", "invalid_grant", (403, "token_refused"), "invalid_grant"),
        ("403 Forbidden", "invalid_target", (403, "token_refused"), "invalid_target"),
        (
            "401 Unauthorized",
            "invalid_client",
            (503, "token_unavailable"),
            "doesn't accept Lictor as its client",
        ),
    ] {
        fails(code, answers(status, json, error(code)), expected, reason).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_no_token() {
    let good = format!(
        r#"{{"access_token":"{ISSUED}","token_type":"Bearer","expires_in":60,
        "issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}}"#
    );
    let json = "application/json";
    let jwt = good.replace("access_token\"}", "jwt\"}");
    let long = good.replace('{', &format!("{{\"pad\":\"{}\",", "a".repeat(64 << 10)));
    let unavailable = (503, "token_unavailable");
    for (name, service, reason) in [
        ("garbage", answers("200 OK", json, "{]"), "isn't the object of RFC 8693"),
        ("another kind", answers("200 OK", json, jwt), "`issued_token_type`"),
        ("not JSON", answers("200 OK", "text/html", &good), "something else than JSON"),
        ("too long", answers("200 OK", json, long), "longer than 65536 bytes"),
        ("another success", answers("201 Created", json, &good), "answers 201"),
        ("an error of its own", answers("500 Internal Server Error", json, &good), "answers 500"),
        ("busy", answers("429 Too Many Requests", json, "{}"), "answers 429"),
        ("cut", Box::new(|_| b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()), "gives no answer"),
    ] {
        fails(name, service, unavailable, reason).await;
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let trap = Stub::json().await;
    let to = trap.url();
    let answer = move |_: &Seen| {
        format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
            .into_bytes()
    };
    fails("a redirect", Box::new(answer), (503, "token_unavailable"), "answers 307").await;
    assert_eq!(trap.connections(), 0);
}

#[tokio::test]
async fn a_service_that_is_down_or_slow_costs_five_seconds_at_most() {
    let upstream = Stub::json().await;
    let mut slow = Stub::scripted().await;
    let down = "http://127.0.0.1:1/token".to_owned();
    for url in [down, slow.url()] {
        let lictor = site(&upstream, &url, "").start().await;
        let mut caller = agent_a(&lictor).await;
        let asking = call_with(&mut caller, &[("authorization", "Bearer a")]);
        let answer = timeout(Duration::from_secs(8), asking).await.expect("in time");
        assert_eq!((answer.status, &*answer.kind()), (503, "token_unavailable"));
        logged(&lictor, "no token").await;
        lictor.stop(1).await;
    }
    // It was asked once, and is rid of us.
    slow.call().await.abandoned().await;
    assert_eq!((slow.requests(), upstream.connections()), (1, 0));
}

#[tokio::test]
async fn a_caller_who_leaves_meanwhile_leaves_nothing_behind() {
    let upstream = Stub::json().await;
    let mut service = Stub::scripted().await;
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut asked = {
        let mut caller = agent_a(&lictor).await;
        let bearer = [("authorization", "Bearer a")];
        tokio::select! {
            _ = call_with(&mut caller, &bearer) => panic!("nobody has answered"),
            asked = service.call() => asked,
        }
    };
    let left = ["outcome=\"client_gone\""];
    let noticing =
        async { while sample(&metrics(&lictor).await, "lictor_calls_total", &left) < 1.0 {} };
    within("the caller's leaving", noticing).await;
    // The exchange goes on without it, for whoever comes next with the same token.
    asked.send(issue(&asked.seen, 60)).await;
    asked.keep();
    let mut next = agent_a(&lictor).await;
    assert_eq!(call_with(&mut next, &[("authorization", "Bearer a")]).await.status, 200);
    assert_eq!((service.requests(), upstream.requests()), (1, 1));
    let closing = lictor.stop(2).await.remove(0);
    assert_eq!(closing["status"], "client_gone");
}

/// The wait is no way round a policy that came into force in it.
#[tokio::test]
async fn what_is_forbidden_meanwhile_does_not_go_out() {
    let upstream = Stub::json().await;
    let mut service = Stub::scripted().await;
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let asking = call_with(&mut caller, &[("authorization", "Bearer a")]);
    let (answer, ()) = tokio::join!(asking, async {
        let mut asked = service.call().await;
        let none = "@id(\"none\")\nforbid (principal, action, resource);\n";
        std::fs::write(lictor.directory().join("policies/all.cedar"), none).expect("written");
        logged(&lictor, "policies reloaded").await;
        asked.send(issue(&asked.seen, 60)).await;
        asked.keep();
    });
    assert_eq!((&*answer.kind(), upstream.connections()), ("policy_denied", 0));
    // The entry may wait for its commit.
    let versions = within("a record of the reload", async {
        loop {
            let entries = lictor.entries().await.into_iter();
            let configs = entries.filter(|entry| entry["kind"] == "config");
            let versions: Vec<_> = configs.map(|entry| entry["policy_version"].clone()).collect();
            if versions.len() > 1 {
                return versions;
            }
        }
    })
    .await;
    let entry = lictor.stop(1).await.remove(0);
    let told = ["kind", "decision", "stage", "status"].map(|key| entry[key].as_str());
    assert_eq!(told, ["denied", "deny", "policy", "policy_denied"].map(Some), "{entry}");
    // Those that refused it, and not those that permitted it before.
    assert_eq!((&entry["policies"], &entry["policy_version"]), (&["none"].into(), &versions[1]));
}

#[tokio::test]
async fn what_is_revoked_meanwhile_does_not_go_out() {
    let upstream = Stub::json().await;
    let mut service = Stub::scripted().await;
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let asking = call_with(&mut caller, &[("authorization", "Bearer a")]);
    let (answer, ()) = tokio::join!(asking, async {
        let asked = service.call().await;
        pull(&lictor, "spiffe", AGENT_A).await;
        asked.keep();
    });
    assert_eq!((&*answer.kind(), upstream.connections()), ("revoked", 0));
    let entry = lictor.stop(1).await.remove(0);
    let told = ["kind", "decision", "stage", "status"].map(|key| entry[key].as_str());
    assert_eq!(told, ["denied", "deny", "revocation", "revoked"].map(Some), "{entry}");
    assert!(entry["revocation"].is_string());
}

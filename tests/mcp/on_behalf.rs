//! Users' tokens: what becomes of them between a caller, the token service and the upstream.

mod agents;
mod failures;

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;
use url::form_urlencoded;

use crate::{
    ca::Ca,
    http::{Answer, Caller, within},
    site::{Site, agent_a, call, logged, metrics, request, sample, send},
    stub::{Seen, Stub, json, result},
    subject::Lictor,
};

/// What a user's token is recognised by, wherever it turns up.
const USERS: &str = "users-own-token";
/// The same of one that was issued.
const ISSUED: &str = "issued-for";
/// The same of the client secret.
const SECRET: &str = "hunter2-hunter2";

/// The answer of a service that issues a token for so many seconds.
fn issue(seen: &Seen, seconds: u64) -> Vec<u8> {
    let user = &form(seen)["subject_token"];
    json(&format!(
        r#"{{"access_token":"{ISSUED}-{user}","token_type":"Bearer","expires_in":{seconds},
        "issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}}"#,
        user = user.len()
    ))
}

fn form(seen: &Seen) -> BTreeMap<String, String> {
    form_urlencoded::parse(&seen.body).into_owned().collect()
}

async fn service() -> Stub {
    Stub::answering(|seen| issue(seen, 60)).await
}

/// A Lictor whose upstream needs tokens of a service.
fn site(upstream: &Stub, service: &str, more: &str) -> Site {
    let keys = format!(
        "tokenExchange: {{ url: '{service}', clientId: lictor, clientSecretFile: secret, \
         audience: crm{more} }}"
    );
    Site::to(&upstream.url()).upstream(&keys).file("secret", SECRET)
}

/// What an upstream was sent of credentials.
fn credentials(seen: &Seen) -> Vec<String> {
    let values = seen.head.headers.get_all("authorization").iter();
    values.map(|value| value.to_str().expect("text").to_owned()).collect()
}

async fn call_with(caller: &mut Caller, headers: &[(&str, &str)]) -> Answer {
    send(caller, "POST", headers, call("echo", "{}")).await.whole().await
}

/// None of the secrets is in what Lictor has written.
async fn assert_silent(lictor: &Lictor) {
    let (logs, metrics) = (lictor.logs(), metrics(lictor).await);
    let ledger = std::fs::read_dir(lictor.directory().join("ledger")).expect("a ledger");
    let ledger = ledger.map(|file| file.expect("a file").path()).filter(|path| path.is_file());
    let ledger = ledger.map(|path| std::fs::read(path).expect("a file"));
    let ledger: Vec<_> = ledger.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    assert!(!logs.is_empty() && !ledger.is_empty());
    for text in logs.iter().chain(&ledger).chain([&metrics]) {
        for secret in [USERS, ISSUED, SECRET] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[tokio::test]
async fn a_users_token_ends_here_and_another_goes_on() {
    let (upstream, service) = (Stub::json().await, service().await);
    let everything = "telemetry: { level: trace }";
    let lictor = site(&upstream, &service.url(), "").with(everything).start().await;
    let mut caller = agent_a(&lictor).await;
    let bearer = format!("Bearer {USERS}");
    let headers = [("authorization", &*bearer), ("cookie", USERS), ("x-user", USERS)];
    for _ in 0..3 {
        assert_eq!(call_with(&mut caller, &headers).await.status, 200);
    }
    // Once for all three calls.
    let asked = service.only();
    assert_eq!(asked.head.start, "POST /mcp HTTP/1.1");
    assert_eq!(credentials(&asked), ["Basic bGljdG9yOmh1bnRlcjItaHVudGVyMg=="]);
    assert_eq!((&*form(&asked)["subject_token"], &*form(&asked)["audience"]), (USERS, "crm"));
    for seen in upstream.seen() {
        assert_eq!(credentials(&seen), [format!("Bearer {ISSUED}-{}", USERS.len())]);
        let whole = format!("{:?} {:?}", seen.head, seen.body);
        assert!(!whole.contains(USERS) && !whole.contains(SECRET), "{whole}");
    }
    assert_eq!(upstream.requests(), 3);
    assert_silent(&lictor).await;
    let counted = sample(
        &metrics(&lictor).await,
        "lictor_token_exchanges_total",
        &["upstream=\"files\"", "outcome=\"issued\""],
    );
    assert!((counted - 1.0).abs() < 0.1, "{counted}");
    for entry in lictor.stop(3).await {
        assert_eq!(entry["status"], "ok");
    }
}

#[tokio::test]
async fn each_user_has_a_token_of_its_own() {
    let upstream = Stub::json().await;
    let service = service().await;
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    for (scheme, user) in [("Bearer", "a"), ("bearer", "bb"), ("BEARER", "a"), ("Bearer ", "bb")] {
        let bearer = format!("{scheme} {user}");
        assert_eq!(call_with(&mut caller, &[("authorization", &bearer)]).await.status, 200);
    }
    let sent: Vec<_> = upstream.seen().iter().flat_map(credentials).collect();
    let of = |length: usize| format!("Bearer {ISSUED}-{length}");
    assert_eq!(sent, [of(1), of(2), of(1), of(2)]);
    assert_eq!(service.requests(), 2);
    lictor.stop(4).await;
}

/// Fresh tokens are in use for 270 s at most, so one that is valid for 31 s has a second.
#[tokio::test]
async fn a_token_near_its_end_is_not_used() {
    let upstream = Stub::json().await;
    let service = Stub::answering(|seen| issue(seen, 31)).await;
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let calling = async {
        let mut calls = 0;
        while service.requests() < 3 {
            let answer = call_with(&mut caller, &[("authorization", "Bearer a")]).await;
            assert_eq!(answer.status, 200);
            calls += 1;
        }
        calls
    };
    let calls = within("two ends", calling).await;
    assert!(calls > 3, "none was used twice");
    lictor.stop(calls).await;
}

/// Every message needs the token, also those that no policy has anything to say of.
#[tokio::test]
async fn a_session_and_its_stream_need_a_token_too() {
    let open = |seen: &Seen| {
        let body = result(seen, "{}");
        let length = body.len();
        let get = seen.head.start.starts_with("GET");
        let media = if get { "text/event-stream" } else { "application/json" };
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nMcp-Session-Id: s-1\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    };
    let (upstream, service) = (Stub::answering(open).await, service().await);
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let initialize = request(
        "initialize",
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}"#,
    );
    let (bearer, session) = (("authorization", "Bearer a"), ("mcp-session-id", "s-1"));
    let accept = ("accept", "text/event-stream");
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned();
    for (method, headers, body) in [
        ("POST", &[][..], initialize),
        ("POST", &[session], notice),
        ("GET", &[session, accept], String::new()),
        ("DELETE", &[session], String::new()),
    ] {
        let before = upstream.requests();
        let answer = send(&mut caller, method, headers, body.clone()).await.whole().await;
        assert_eq!((answer.status, &*answer.kind()), (401, "user_token_required"), "{method}");
        assert_eq!(upstream.requests(), before, "{method}");
        let headers = [headers, &[bearer]].concat();
        let answer = send(&mut caller, method, &headers, body).await.whole().await;
        assert_eq!(answer.status, 200, "{method}");
        assert_eq!(credentials(&upstream.seen()[before]), [format!("Bearer {ISSUED}-1")]);
    }
    assert_eq!(service.requests(), 1);
    lictor.stop(8).await;
}

#[tokio::test]
async fn callers_at_once_share_an_exchange() {
    let upstream = Stub::json().await;
    let mut service = Stub::scripted().await;
    let lictor = Arc::new(site(&upstream, &service.url(), "").start().await);
    let mut callers = JoinSet::new();
    for _ in 0..64 {
        let lictor = Arc::clone(&lictor);
        callers.spawn(async move {
            let mut caller = agent_a(&lictor).await;
            call_with(&mut caller, &[("authorization", "Bearer a")]).await.status
        });
    }
    let mut asked = service.call().await;
    asked.send(issue(&asked.seen, 60)).await;
    asked.keep();
    assert_eq!(callers.join_all().await, [200; 64]);
    assert_eq!((service.requests(), upstream.requests()), (1, 64));
    Arc::into_inner(lictor).expect("nobody else has it").stop(64).await;
}

#[tokio::test]
async fn a_call_without_a_users_token_is_challenged() {
    let (upstream, service) = (Stub::json().await, service().await);
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    for headers in [&[][..], &[("authorization", "Basic YTpi")]] {
        let answer = call_with(&mut caller, headers).await;
        assert_eq!((answer.status, &*answer.kind()), (401, "user_token_required"));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"lictor\""));
    }
    // The connection lives on, for a call with one.
    let good = call_with(&mut caller, &[("authorization", "Bearer a")]).await;
    assert_eq!((good.status, upstream.requests()), (200, 1));
    let closings = lictor.stop(3).await;
    assert_eq!(closings[0]["status"], "user_token_required");
    assert_eq!(
        (&closings[0]["kind"], &closings[0]["decision"]),
        (&"outcome".into(), &"permit".into())
    );
}

#[tokio::test]
async fn where_none_is_required_a_call_goes_without() {
    let (upstream, service) = (Stub::json().await, service().await);
    let lictor = site(&upstream, &service.url(), ", required: false").start().await;
    let mut caller = agent_a(&lictor).await;
    for headers in [&[][..], &[("authorization", "Basic YTpi")]] {
        assert_eq!(call_with(&mut caller, headers).await.status, 200);
    }
    assert_eq!((service.requests(), upstream.requests()), (0, 2));
    assert!(upstream.seen().iter().all(|seen| credentials(seen).is_empty()));
    // One that is there has to be good all the same.
    assert_eq!(call_with(&mut caller, &[("authorization", "Bearer a")]).await.status, 200);
    assert_eq!(credentials(&upstream.seen()[2]), [format!("Bearer {ISSUED}-1")]);
    lictor.stop(3).await;
}

#[tokio::test]
async fn a_token_with_two_readings_is_refused() {
    let (upstream, service) = (Stub::json().await, service().await);
    let lictor = site(&upstream, &service.url(), ", required: false").start().await;
    let bearer = |token: &'static str| ("authorization", token);
    let bad = [
        &[bearer("Bearer a"), bearer("Bearer b")][..],
        &[bearer("Bearer a"), bearer("Basic YTpi")],
        &[bearer("Bearer a, Bearer b")],
        &[bearer("Bearer")],
    ];
    for headers in bad {
        let answer = call_with(&mut agent_a(&lictor).await, headers).await;
        // The decoder refuses two before this is looked at, whatever they are for.
        let kind = if headers.len() > 1 { "invalid_request" } else { "bad_request" };
        assert_eq!((answer.status, &*answer.kind()), (400, kind), "{headers:?}");
    }
    assert_eq!((service.requests(), upstream.requests()), (0, 0));
    lictor.stop(bad.len()).await;
}

#[tokio::test]
async fn the_service_hears_nothing_of_a_call_that_is_refused() {
    let (upstream, service) = (Stub::json().await, service().await);
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let bearer = [("authorization", "Bearer a")];
    let answer = send(&mut caller, "POST", &bearer, call("wipe", "{}")).await.whole().await;
    assert_eq!(answer.kind(), "policy_denied");
    assert_eq!((service.requests(), upstream.requests()), (0, 0));
    lictor.stop(1).await;
}

#[tokio::test]
async fn a_token_that_the_upstream_does_not_accept_is_not_used_again() {
    let unauthorized = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    let upstream =
        Stub::answering(move |seen| match seen.body.windows(6).any(|w| w == b"lookup") {
            true => unauthorized.into(),
            false => json(&result(seen, "{}")),
        })
        .await;
    let service = service().await;
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let bearer = [("authorization", "Bearer a")];
    for (tool, status, exchanges) in
        [("echo", 200, 1), ("lookup", 401, 1), ("echo", 200, 2), ("echo", 200, 2)]
    {
        let answer = send(&mut caller, "POST", &bearer, call(tool, "{}")).await.whole().await;
        assert_eq!((answer.status, service.requests()), (status, exchanges), "{tool}");
    }
    assert_eq!(upstream.requests(), 4);
    lictor.stop(4).await;
}

/// What Lictor itself says to a server on a call's behalf needs the token as well.
#[tokio::test]
async fn a_server_whose_question_is_refused_is_told_with_the_same_token() {
    let (mut upstream, service) = (Stub::scripted().await, service().await);
    let lictor = site(&upstream, &service.url(), "").start().await;
    let mut caller = agent_a(&lictor).await;
    let bearer = [("authorization", "Bearer a")];
    let asking = send(&mut caller, "POST", &bearer, call("echo", "{}"));
    let (reply, answered) = tokio::join!(asking, async {
        let mut open = upstream.call().await;
        open.begin_events().await;
        let question = request("roots/list", "{}");
        open.chunk(format!("data: {question}\n\n")).await;
        let told = upstream.call().await;
        let answered = (credentials(&open.seen), credentials(&told.seen));
        assert!(String::from_utf8_lossy(&told.seen.body).contains("policy_denied"));
        let mut told = told;
        told.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
        told.keep();
        open.chunk(format!("data: {}\n\n", result(&open.seen, "{}"))).await;
        open.end().await;
        answered
    });
    assert_eq!(reply.whole().await.status, 200);
    let issued = vec![format!("Bearer {ISSUED}-1")];
    assert_eq!(answered, (issued.clone(), issued));
    lictor.stop_with(|closings| closings >= 1).await;
}

#[tokio::test]
async fn a_service_over_tls_is_verified_by_its_roots() {
    let ca = Ca::new("sts.test");
    let credential = ca.leaf("/sts", |params| {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        params.subject_alt_names.push(rcgen::SanType::IpAddress(address));
    });
    let other = Ca::new("sts.test");
    for (roots, served) in [(&ca, true), (&other, false)] {
        let upstream = Stub::json().await;
        let mut service = Stub::scripted_tls(crate::identity::server(&credential)).await;
        let lictor = site(&upstream, &service.url(), ", roots: sts.pem")
            .file("sts.pem", &roots.root_pem())
            .start()
            .await;
        let mut caller = agent_a(&lictor).await;
        let bearer = [("authorization", "Bearer a")];
        let asking = call_with(&mut caller, &bearer);
        if served {
            let (answer, ()) = tokio::join!(asking, async {
                let mut asked = service.call().await;
                asked.send(issue(&asked.seen, 60)).await;
                asked.keep();
            });
            assert_eq!((answer.status, upstream.requests()), (200, 1));
        } else {
            let answer = asking.await;
            assert_eq!((answer.status, &*answer.kind()), (503, "token_unavailable"));
            assert_eq!((service.requests(), upstream.requests()), (0, 0));
            logged(&lictor, "no token").await;
        }
        lictor.stop(1).await;
    }
}

//! On whose behalf a workload calls a web API.

use super::*;
use crate::{
    delegation::{ORIGINS, proxy, revoked::revoke},
    stub::json,
};

/// `a` calls the service of `b` over plain HTTP, readonly, and that calls a web API.
#[tokio::test]
async fn a_readonly_chain_makes_a_put_impossible() {
    let mut service = Stub::scripted().await;
    let api = Stub::answering(|_| reply("200 OK", "", "done")).await;
    let b = proxy(
        "b",
        "- { name: out, direction: outbound, bind: '127.0.0.1:0', tls: none, \
         routes: [{ path: /api, protocol: http, upstream: api }] }\n\
         - { name: in, bind: '127.0.0.1:0', tls: mutual, \
         routes: [{ path: /own, protocol: http, upstream: own }] }\n",
        &format!(
            "- {{ name: own, url: '{}' }}\n- {{ name: api, url: '{}' }}\n",
            base(&service, "/"),
            base(&api, "/v1"),
        ),
        ORIGINS,
    )
    .await;
    let a = proxy(
        "a",
        "- { name: out, direction: outbound, bind: '127.0.0.1:0', tls: none, \
         routes: [{ path: /b, protocol: http, upstream: b, delegate: readonly }] }\n\
         - { name: in, bind: '127.0.0.1:0', tls: mutual, \
         routes: [{ path: /own, protocol: http, upstream: own }] }\n",
        &format!(
            "- {{ name: own, url: 'http://127.0.0.1:9/' }}\n\
             - {{ name: b, url: 'https://{}/own', spiffeId: 'spiffe://one.test/b' }}\n",
            b.mutual,
        ),
        ORIGINS,
    )
    .await;
    let mut workload = a.caller(Transport::Http1).await;
    let request = ask(&workload, "GET", "/b/work", &[], "");
    let (answer, answers) = tokio::join!(workload.send(request), async {
        let mut inbound = service.call().await;
        assert_eq!(line(&inbound.seen), "GET /work");
        let headers = &inbound.seen.head.headers;
        assert!(!headers.contains_key("agent-delegation"), "the workload sees no chain");
        let state = inbound.seen.head.header("tracestate").expect("a handle").to_owned();
        let mut agent = b.caller(Transport::Http1).await;
        let mut answers = Vec::new();
        for method in ["GET", "PUT", "POST", "DELETE", "HEAD"] {
            let headers = [("tracestate", state.as_str()), ("agent-delegation", "forged")];
            answers.push(asked(&mut agent, method, "/api/x", &headers, "").await);
        }
        inbound.send(reply("200 OK", "", "worked")).await;
        inbound.keep();
        answers
    });
    assert_eq!(answer.whole().await.text(), "worked");
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 403, 403, 403, 200]);
    problem(&answers[1], 403, "delegation_denied");
    let seen = api.seen();
    assert_eq!(seen.iter().map(line).collect::<Vec<_>>(), ["GET /v1/x", "HEAD /v1/x"]);
    for seen in &seen {
        // A host that is no Lictor gets no chain, and no handle of ours.
        assert!(!seen.head.headers.contains_key("agent-delegation"));
        assert!(!seen.head.headers.contains_key("tracestate"), "{:?}", seen.head.headers);
    }
    // A write under the chain never comes as far as the service.
    let answer = asked(&mut workload, "PUT", "/b/work", &[], "").await;
    problem(&answer, 403, "delegation_denied");

    let entries = b.stop(7).await;
    let out: Vec<_> = entries.iter().filter(|entry| entry["direction"] == "outbound").collect();
    assert_eq!(out.len(), 5);
    for entry in out {
        assert_eq!((&entry["protocol"], &entry["link"]), (&"http".into(), &"handle".into()));
        assert_eq!((&entry["root"], &entry["hops"]), (&"spiffe://one.test/a".into(), &1.into()));
        assert_eq!(entry["host"], api.address.to_string());
    }
    let calls = a.stop(2).await;
    assert_eq!(calls[1]["peer_denied"], "delegation_denied");
}

/// A user's token is the caller's to bring and the upstream's never to see.
#[tokio::test]
async fn a_users_token_is_exchanged_for_an_api_as_for_servers() {
    let api = Stub::answering(|_| reply("200 OK", "", "")).await;
    let service = Stub::answering(|_| {
        json(
            r#"{"access_token":"issued","token_type":"Bearer","expires_in":60,
            "issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}"#,
        )
    })
    .await;
    let keys = format!(
        "tokenExchange: {{ url: '{}', clientId: lictor, clientSecretFile: token, audience: api }}",
        service.url()
    );
    let site = Setup::to(&base(&api, "/")).upstream(&keys).start().await;
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        let own = [("authorization", "Bearer users-own")];
        assert_eq!(asked(&mut caller, "GET", "/api/a", &own, "").await.status, 200);
        let answer = asked(&mut caller, "GET", "/api/a", &[], "").await;
        problem(&answer, 401, "user_token_required");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"lictor\""));
    }
    let seen = api.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|it| it.head.header("authorization") == Some("Bearer issued")));
    site.lictor.stop(6).await;
}

/// A stream of an API that has begun ends when its caller is revoked.
#[tokio::test]
async fn a_revoked_callers_stream_is_cut() {
    let mut api = Stub::scripted().await;
    let site = Setup::to(&base(&api, "/")).start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    let request = ask(&caller, "GET", "/api/events", &[], "");
    let (mut reply, mut call) = tokio::join!(caller.send(request), async {
        let mut call = api.call().await;
        call.begin_events().await;
        call.chunk("data: a\n\n").await;
        call
    });
    assert!(reply.chunk().await.is_some());
    revoke(&site.lictor, "spiffe", "spiffe://one.test/workload").await;
    assert!(reply.try_chunk().await.is_err());
    call.abandoned().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    let answer = asked(&mut caller, "GET", "/api/a", &[], "").await;
    problem(&answer, 403, "revoked");
    let closings = site.lictor.stop(2).await;
    assert_eq!(
        (&closings[0]["status"], &closings[0]["complete"]),
        (&"revoked".into(), &false.into())
    );
}

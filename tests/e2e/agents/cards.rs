//! The card of an agent, wherever callers look for it.

use std::time::Duration;

use tokio::time::timeout;

use super::*;

const CARD: &str = r#"{"name":"planner","description":"plans","version":"1","skills":[],
"supportedInterfaces":[{"url":"http://URL","protocolBinding":"JSONRPC","protocolVersion":"1.0"},
{"url":"http://URL","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},
{"url":"http://127.0.0.1:50051","protocolBinding":"GRPC","protocolVersion":"1.0"}],
"provider":{"organization":"o","url":"https://example.org"},"capabilities":{},
"defaultInputModes":[],"defaultOutputModes":[]}"#;

/// An agent with its card below its endpoint, under the newer name only.
async fn agent() -> Stub {
    Stub::answering(|seen| {
        let host = seen.head.headers["host"].to_str().expect("a host");
        if seen.head.start.starts_with("GET /mcp/.well-known/agent-card.json ") {
            return stub::json(&CARD.replace("URL", &format!("{host}/mcp")));
        }
        let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        if body["method"] == "GetExtendedAgentCard" {
            let card: Value =
                serde_json::from_str(&CARD.replace("URL", &format!("{host}/mcp"))).expect("JSON");
            return stub::json(
                &json!({ "jsonrpc": "2.0", "id": id(seen), "result": card }).to_string(),
            );
        }
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()
    })
    .await
}

fn addresses(card: &Value) -> Vec<String> {
    let interfaces = card["supportedInterfaces"].as_array().expect("interfaces");
    interfaces.iter().map(|it| it["url"].as_str().expect("a URL").to_owned()).collect()
}

#[tokio::test]
async fn cards_lead_through_the_proxy_wherever_they_are_found() {
    let agent = agent().await;
    let lictor = Setup::to(&agent.url())
        .also("path: /agent, protocol: a2a")
        .listener("publicUrl: 'https://side.example.org/out', hosts: []")
        .start()
        .await;
    let mut caller = lictor.caller(Transport::Http1Tls).await;
    let mut count = 0;
    for path in [
        "/agent/.well-known/agent-card.json",
        "/agent/.well-known/agent.json",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
    ] {
        let request = caller.request_to("GET", path, whole(""));
        let answer = caller.send(request).await.whole().await;
        assert_eq!(answer.status, 200, "{path}");
        let card = answer.json();
        let ours = "https://side.example.org/out/agent";
        assert_eq!(addresses(&card), [ours, ours], "{path}: gRPC isn't carried");
        assert_eq!(card["provider"]["url"], "https://example.org");
        assert!(!String::from_utf8_lossy(&answer.body).contains("127.0.0.1"));
        let tag = answer.header("etag").expect("a tag").to_owned();
        assert!(answer.header("cache-control").is_some_and(|value| value.starts_with("private")));

        let mut request = caller.request_to("HEAD", path, whole(""));
        request.headers_mut().remove("content-type");
        let head = caller.send(request).await.whole().await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), Some(answer.body.len().to_string().as_str()));

        let mut request = caller.request_to("GET", path, whole(""));
        request.headers_mut().insert("if-none-match", tag.parse().expect("a value"));
        assert_eq!(caller.send(request).await.whole().await.status, 304);
        count += 3;
    }
    let extended = posted(&mut caller, &rpc(1, "GetExtendedAgentCard", json!({}))).await.json();
    assert_eq!(addresses(&extended["result"]), ["https://side.example.org/out/agent"; 2]);
    assert_eq!(agent.requests(), 2, "the public card is kept for a while");
    let closings = lictor.stop(count + 1).await;
    assert_eq!(closings[0]["method"], "GetAgentCard");
}

#[tokio::test]
async fn without_a_card_there_is_none() {
    let agent =
        Stub::answering(|_| b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
    let lictor = in_front_of(&agent).await;
    let mut caller = lictor.caller(Transport::Http1).await;
    let request = caller.request_to("GET", "/agent/.well-known/agent-card.json", whole(""));
    assert_eq!(caller.send(request).await.whole().await.status, 404);
    lictor.stop(1).await;
}

#[tokio::test]
async fn a_card_is_not_waited_for_when_its_caller_has_left() {
    let mut agent = Stub::scripted().await;
    let lictor = in_front_of(&agent).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let request = caller.request_to("GET", "/agent/.well-known/agent-card.json", whole(""));
        let mut call = tokio::select! {
            reply = caller.send(request) => panic!("an answer: {reply:?}"),
            call = agent.call() => call,
        };
        drop(caller);
        // Fetching it may take ten.
        let abandoned = timeout(Duration::from_secs(3), call.abandoned()).await;
        abandoned.unwrap_or_else(|_| panic!("{transport:?}: it goes on"));
    }
    for entry in lictor.stop(3).await {
        assert_eq!(entry["status"], "client_gone");
    }
}

#[tokio::test]
async fn agents_are_told_only_of_listed_places_to_push_to() {
    let agent = Stub::answering(|seen| task(seen, "t-1", "c-1")).await;
    let lictor = Setup::to(&agent.url())
        .also("path: /agent, protocol: a2a")
        .upstream("pushNotifications: { hosts: ['1.1.1.1', '10.0.0.1'] }")
        .start()
        .await;
    let mut caller = lictor.caller(Transport::Http1).await;
    posted(&mut caller, &rpc(0, "message/send", message(json!({})))).await;
    let before = agent.requests();
    let mut count = 1;
    let with = |url: &str| {
        let set = json!({ "taskId": "t-1", "pushNotificationConfig": { "url": url } });
        let mut send = message(json!({}));
        send["configuration"] = json!({ "pushNotificationConfig": { "url": url } });
        [rpc(1, "tasks/pushNotificationConfig/set", set), rpc(2, "message/send", send)]
    };
    for url in [
        "http://169.254.169.254/x",
        "http://[::1]:80/",
        "https://10.0.0.1/",
        "https://8.8.8.8/",
        "https://1.1.1.1:8443/",
        "http://1.1.1.1/",
    ] {
        for call in with(url) {
            let told = posted(&mut caller, &call).await.json();
            assert_eq!(told["error"]["code"], 4038, "{url}: {told}");
            count += 1;
        }
    }
    for url in ["http://2130706433/", "https://1.1.1.1@10.0.0.1/", "ftp://1.1.1.1/"] {
        for call in with(url) {
            assert!(posted(&mut caller, &call).await.json()["error"].is_object(), "{url}");
            count += 1;
        }
    }
    assert_eq!(agent.requests(), before);
    for call in with("https://1.1.1.1/hook") {
        assert!(posted(&mut caller, &call).await.json()["result"].is_object());
        count += 1;
    }
    lictor.stop(count).await;
}

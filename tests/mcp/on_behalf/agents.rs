//! Users' tokens on the way to an agent: both bindings, both versions, and the cards.

use serde_json::{Value, json};

use super::*;
use crate::{http::whole, stub};

const CARD: &str = r#"{"name":"planner","description":"plans","version":"1","skills":[],
"supportedInterfaces":[{"url":"http://HOST/mcp","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
"capabilities":{},"defaultInputModes":[],"defaultOutputModes":[]}"#;

/// Answers whatever an agent may be asked, its cards among it.
async fn agent() -> Stub {
    Stub::answering(|seen| {
        let host = seen.head.headers["host"].to_str().expect("a host");
        let card = CARD.replace("HOST", host);
        if seen.head.start.contains("/.well-known/") {
            return stub::json(&card);
        }
        let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        let task =
            json!({ "id": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_WORKING" } });
        let result = match body["method"].as_str() {
            None => return stub::json(&json!({ "task": task }).to_string()),
            Some("GetExtendedAgentCard") => serde_json::from_str(&card).expect("JSON"),
            Some("message/send") => json!({
                "kind": "task", "id": "t-1", "contextId": "c-1", "status": { "state": "working" },
            }),
            Some("SendStreamingMessage") => {
                let event =
                    json!({ "jsonrpc": "2.0", "id": body["id"], "result": { "task": task } });
                let text = format!("data: {event}\n\n");
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length:";
                return format!("{head} {}\r\n\r\n{text}", text.len()).into_bytes();
            }
            Some(_) => json!({ "task": task }),
        };
        stub::json(&json!({ "jsonrpc": "2.0", "id": body["id"], "result": result }).to_string())
    })
    .await
}

async fn in_front_of(agent: &Stub, service: &Stub) -> Lictor {
    site(agent, &service.url(), "")
        .route(" }, { path: /agent, protocol: a2a, upstream: files")
        .policies(r#"@id("all") permit (principal, action, resource);"#)
        .with("telemetry: { level: trace }")
        .start()
        .await
}

async fn ask(
    lictor: &Lictor,
    (method, below): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    // A refusal may end the connection.
    let mut caller = agent_a(lictor).await;
    let mut request = caller.request_to(method, &format!("/agent{below}"), whole(body.to_owned()));
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        request.headers_mut().insert(name, value.parse().expect("a value"));
    }
    caller.send(request).await.whole().await
}

/// The kind of a refusal, wherever the binding has it.
fn kind(answer: &Answer) -> String {
    fn find(json: &Value) -> Option<&str> {
        if json["decisionId"].is_string() {
            return json["kind"].as_str();
        }
        match json {
            Value::Array(items) => items.iter().find_map(find),
            Value::Object(members) => members.values().find_map(find),
            _ => None,
        }
    }
    let json = answer.json();
    find(&json).unwrap_or_else(|| panic!("no refusal: {json}")).to_owned()
}

fn rpc(method: &str, message: Value) -> String {
    let params = json!({ "message": message });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

#[tokio::test]
async fn a_users_token_ends_at_the_hop_to_an_agent_too() {
    let (agent, service) = (agent().await, service().await);
    let lictor = in_front_of(&agent, &service).await;
    let earlier = json!({ "kind": "message", "messageId": "m", "role": "user",
        "parts": [{ "kind": "text", "text": "hello" }] });
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hello" }] });
    let rest = json!({ "message": message }).to_string();
    let earlier_rest = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "hello" }] } });
    let task = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": "t-1" } });
    let task = task.to_string();
    let bearer = format!("Bearer {USERS}");
    let v10 = ("a2a-version", "1.0");
    let rows = [
        (("POST", ""), None, rpc("message/send", earlier)),
        (("POST", ""), Some(v10), rpc("SendMessage", message.clone())),
        (("POST", ""), Some(v10), rpc("SendStreamingMessage", message)),
        (("POST", ""), Some(v10), task),
        (("POST", "/message:send"), Some(v10), rest),
        (("POST", "/v1/message:send"), None, earlier_rest.to_string()),
        (("GET", "/tasks/t-1"), Some(v10), String::new()),
        (("GET", "/v1/tasks/t-1"), None, String::new()),
    ];
    for (round, (place, version, body)) in rows.iter().enumerate() {
        let version: Vec<_> = version.iter().copied().collect();
        let refused = ask(&lictor, *place, &version, body).await;
        assert_eq!((refused.status, &*kind(&refused)), (401, "user_token_required"), "{place:?}");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"lictor\""));
        assert_eq!(agent.requests(), round, "{place:?}");
        let more = [("authorization", &*bearer), ("cookie", USERS), ("x-user", USERS)];
        let answer = ask(&lictor, *place, &[&version, &more[..]].concat(), body).await;
        assert_eq!(answer.status, 200, "{place:?}: {}", answer.text());
        let seen = &agent.seen()[round];
        assert_eq!(credentials(seen), [format!("Bearer {ISSUED}-{}", USERS.len())], "{place:?}");
        let whole = format!("{:?} {:?}", seen.head, seen.body);
        assert!(!whole.contains(USERS) && !whole.contains(SECRET), "{whole}");
    }
    // Once for all of them.
    assert_eq!(service.requests(), 1);
    assert_silent(&lictor).await;
    lictor.stop(2 * rows.len()).await;
}

/// A caller learns from a card that a token is needed, so the card needs none.
#[tokio::test]
async fn a_public_card_is_shown_without_a_token() {
    let (agent, service) = (agent().await, service().await);
    let lictor = in_front_of(&agent, &service).await;
    let place = ("GET", "/.well-known/agent-card.json");
    let bearer = format!("Bearer {USERS}");
    for headers in [&[][..], &[("authorization", &*bearer)]] {
        let answer = ask(&lictor, place, headers, "").await;
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
    }
    assert_eq!((agent.requests(), service.requests()), (1, 0));
    assert!(credentials(&agent.only()).is_empty());
    // The other card is for known callers, and so for known users.
    let extended =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard" }).to_string();
    let v10 = ("a2a-version", "1.0");
    let answer = ask(&lictor, ("POST", ""), &[v10], &extended).await;
    assert_eq!((answer.status, &*kind(&answer)), (401, "user_token_required"));
    let answer = ask(&lictor, ("POST", ""), &[v10, ("authorization", &bearer)], &extended).await;
    assert_eq!((answer.status, service.requests()), (200, 1), "{}", answer.text());
    assert_eq!(credentials(&agent.seen()[1]), [format!("Bearer {ISSUED}-{}", USERS.len())]);
    lictor.stop(4).await;
}

#[tokio::test]
async fn a_service_that_refuses_is_told_in_the_words_of_each_binding() {
    let agent = agent().await;
    let refusal = r#"{"error":"invalid_grant"}"#;
    let service = Stub::answering(move |_| {
        let length = refusal.len();
        let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length:";
        format!("{head} {length}\r\n\r\n{refusal}").into_bytes()
    })
    .await;
    let lictor = in_front_of(&agent, &service).await;
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hello" }] });
    let rest = json!({ "message": message }).to_string();
    let headers = [("a2a-version", "1.0"), ("authorization", "Bearer a")];
    let answer = ask(&lictor, ("POST", ""), &headers, &rpc("SendMessage", message)).await;
    assert_eq!((answer.status, &*kind(&answer)), (403, "token_refused"));
    assert_eq!(answer.json()["jsonrpc"], "2.0");
    let answer = ask(&lictor, ("POST", "/message:send"), &headers, &rest).await;
    assert_eq!((answer.status, &*kind(&answer)), (403, "token_refused"), "{}", answer.text());
    assert!(answer.json()["jsonrpc"].is_null());
    assert_eq!(agent.connections(), 0);
    lictor.stop(2).await;
}

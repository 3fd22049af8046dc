//! An agent that is called too often.

use serde_json::json;

use super::{ask, message, posted, rpc, task};
use crate::{http::Caller, stub::Stub, subject::Setup};

#[tokio::test]
async fn a_message_over_a_limit_is_an_error_as_sdks_read_it() {
    let agent = Stub::answering(|seen| task(seen, "t-1", "c-1")).await;
    let limits = "rateLimits: [{ name: agents, budget: 1/1h, when: { methods: [SendMessage] } }]";
    let setup = Setup::to(&agent.url()).also("path: /agent, protocol: a2a").with(limits);
    let lictor = setup.start().await;
    let mut caller = Caller::plain(lictor.plain).await;
    let sent = posted(&mut caller, &rpc(1, "message/send", message(json!({})))).await;
    assert_eq!(sent.json()["result"]["id"], "t-1");
    // Over JSON-RPC, by the method's earlier name.
    let refused = posted(&mut caller, &rpc("two", "message/send", message(json!({})))).await;
    assert_eq!(refused.status, 200);
    assert!(refused.header("retry-after").is_some());
    let answer = refused.json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("two"), &json!(4291)));
    let text = answer["error"]["message"].as_str().expect("a text");
    assert!(text.starts_with("the budget `agents` is used up; try again in 3"), "{text}");
    let detail = &answer["error"]["data"][0];
    assert_eq!(detail["reason"], "BUDGET_EXHAUSTED");
    let metadata = &detail["metadata"];
    assert_eq!((&metadata["limits"], &metadata["retryable"]), (&json!("agents"), &json!("true")));
    let wait = metadata["retryAfterMs"].as_str().and_then(|text| text.parse::<u64>().ok());
    assert!(wait.is_some_and(|wait| wait > 3_500_000), "{metadata}");
    // Over REST, where the method has its later one only.
    let body = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let headers = [("a2a-version", "1.0")];
    let request = ask(&caller, "POST", "/message:send", &headers, &body.to_string());
    let refused = caller.send(request).await.whole().await;
    assert_eq!(
        (refused.status, refused.json()["error"]["status"].clone()),
        (429, json!("RESOURCE_EXHAUSTED"))
    );
    assert!(refused.header("retry-after").is_some_and(|wait| wait.parse::<u64>().is_ok()));
    // To look at a task is another method.
    let looked = posted(&mut caller, &rpc(3, "tasks/get", json!({ "id": "t-1" }))).await;
    assert_eq!(looked.json()["error"], json!(null), "{}", looked.text());
    assert_eq!(agent.requests(), 2);
    lictor.stop(4).await;
}

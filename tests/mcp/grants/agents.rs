//! Agents that invoke each other by grants, over A2A.

use serde_json::Value;

use super::*;
use crate::{
    http::{Answer, Caller, whole},
    site::{AGENT_A, POLICIES},
};

const CODER: &str = "spiffe://td-one.example.org/coder";

/// Documents in which `agent-a` may invoke the agent behind the upstream; both have a status.
fn document(caller: &str, callee: &str) -> String {
    format!(
        "agents:\n\
         - {{ id: '{AGENT_A}', canInvoke: [files], status: {caller} }}\n\
         - {{ id: '{CODER}', upstream: files, invocableBy: ['{AGENT_A}'], status: {callee} }}\n"
    )
}

/// An agent that makes a task of each message, and whose card is below its endpoint.
async fn coder() -> Stub {
    Stub::answering(|seen| {
        if seen.head.start.starts_with("GET ") {
            let host = seen.head.headers["host"].to_str().expect("a host");
            return json(&format!(
                r#"{{"name":"coder","description":"c","version":"1","skills":[],"supportedInterfaces":[
                {{"url":"http://{host}/mcp","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],
                "capabilities":{{}},"defaultInputModes":[],"defaultOutputModes":[]}}"#
            ));
        }
        let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        let task = r#"{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}"#;
        let wrapped = format!(r#"{{"task":{task}}}"#);
        json(&result(seen, if body["method"] == "SendMessage" { &wrapped } else { task }))
    })
    .await
}

async fn ask(caller: &mut Caller, method: &str, params: &str) -> Answer {
    let mut request = caller.request_to("POST", "/agent", whole(request(method, params)));
    request.headers_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    caller.send(request).await.whole().await
}

async fn invoke(caller: &mut Caller) -> Answer {
    let message = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}"#;
    ask(caller, "SendMessage", message).await
}

async fn card(caller: &mut Caller) -> u16 {
    let request = caller.request_to("GET", "/agent/.well-known/agent-card.json", whole(""));
    caller.send(request).await.whole().await.status
}

/// The code of a refusal; nothing where the agent has answered.
fn code(answer: &Answer) -> Option<i64> {
    answer.json()["error"]["code"].as_i64()
}

/// Asks until the status of an agent has come into force.
async fn until_invoked(caller: &mut Caller, wanted: Option<i64>) -> usize {
    let asking = async {
        let mut asked = 1;
        while code(&invoke(caller).await) != wanted {
            asked += 1;
            sleep(Duration::from_millis(20)).await;
        }
        asked
    };
    timeout(SOON, asking).await.unwrap_or_else(|_| panic!("not {wanted:?}"))
}

#[tokio::test]
async fn only_whom_both_sides_name_is_heard_by_an_agent() {
    let agent = coder().await;
    let site = Site::to(&agent.url())
        .route(" }, { path: /agent, protocol: a2a, upstream: files")
        .policies(&format!(
            "{POLICIES}\n@id(\"wide\") permit (principal, action, resource in Server::\"files\");"
        ))
        .file("policies/team.grants.yaml", &document("active", "active"));
    let lictor = site.start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    // Whatever a wide permit says, the agent is closed to whom its entry doesn't name.
    assert_eq!(code(&invoke(&mut b).await), Some(4030));
    assert_eq!(agent.requests(), 0);
    assert_eq!((code(&invoke(&mut a).await), card(&mut a).await), (None, 200));
    let task = r#"{"id":"t-1"}"#;
    assert_eq!(code(&ask(&mut a, "GetTask", task).await), None);
    // Somebody else's task is none.
    assert_eq!(code(&ask(&mut b, "GetTask", task).await), Some(-32001));
    let mut asked = 5;

    // A deprecated agent goes on with what it has, and begins nothing.
    write(&lictor, &document("active", "deprecated"));
    asked += until_invoked(&mut a, Some(4030)).await;
    assert_eq!(code(&ask(&mut a, "GetTask", task).await), None);
    let message = r#"{"message":{"messageId":"n","role":"ROLE_USER","taskId":"t-1","parts":[{"text":"and?"}]}}"#;
    assert_eq!(code(&ask(&mut a, "SendMessage", message).await), None);
    // A suspended one does nothing at all, and neither does its caller.
    for document in [document("active", "suspended"), document("suspended", "active")] {
        write(&lictor, &document);
        let refused = async {
            while code(&ask(&mut a, "GetTask", task).await) != Some(4030) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, refused).await.expect("it is out");
        assert_eq!(code(&invoke(&mut a).await), Some(4030));
        // Another of the two is out next; in between it is back.
        write(&lictor, &self::document("active", "active"));
        until_invoked(&mut a, None).await;
    }
    let closings = lictor.stop_with(|closings| closings > asked).await;
    let refused = closings.iter().find(|entry| entry["decision"] == "deny").expect("a refusal");
    assert_eq!((&refused["protocol"], &refused["stage"]), (&"a2a".into(), &"policy".into()));
    let cited = refused["policies"].to_string();
    assert!(cited.contains("team.grants.yaml#agents[1]"), "{cited}");
}

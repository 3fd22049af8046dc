//! Agents (A2A): what reaches one, whose its tasks are, and how it is told no.

use http::Request;
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::{
    http::{Answer, Caller, Outgoing, TRANSPORTS, Transport, whole},
    stub::{self, Seen, Stub},
    subject::{CA, Lictor, Setup, caller_tls},
};

mod cards;
mod limits;
mod requests;
mod tasks;

/// In front of an agent at `/agent`, with a forbidden operation.
async fn in_front_of(agent: &Stub) -> Lictor {
    Setup::to(&agent.url()).also("path: /agent, protocol: a2a").start().await
}

/// A request to the agent.
fn ask(
    caller: &Caller,
    method: &str,
    below: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Request<Outgoing> {
    let mut request = caller.request_to(method, &format!("/agent{below}"), whole(body.to_owned()));
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        request.headers_mut().append(name, value.parse().expect("a value"));
    }
    request
}

async fn posted(caller: &mut Caller, body: &Value) -> Answer {
    let request = ask(caller, "POST", "", &[], &body.to_string());
    caller.send(request).await.whole().await
}

pub(crate) fn rpc(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

/// A message of version 0.3, with more members.
pub(crate) fn message(more: Value) -> Value {
    let mut message = json!({
        "kind": "message", "messageId": "m", "role": "user",
        "parts": [{ "kind": "text", "text": "hello" }],
    });
    message
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    json!({ "message": message })
}

/// Answers as an agent of version 0.3 does that makes a task of each message.
fn task(seen: &Seen, task: &str, context: &str) -> Vec<u8> {
    let result = json!({
        "kind": "task", "id": task, "contextId": context, "status": { "state": "working" },
    });
    stub::json(&json!({ "jsonrpc": "2.0", "id": id(seen), "result": result }).to_string())
}

fn id(seen: &Seen) -> Value {
    let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    body["id"].clone()
}

/// Somebody else than the usual caller.
async fn stranger(lictor: &Lictor) -> Caller {
    let credential = CA.svid("/stranger");
    let config: ClientConfig = caller_tls()
        .with_client_auth_cert(credential.chain.clone(), credential.key())
        .expect("a credential");
    Caller::tls(lictor.mutual, &config, false).await
}

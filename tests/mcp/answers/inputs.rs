//! Results that ask their caller for input (MCP 2026-07-28 `basic/patterns/mrtr`), and errors that do.

use super::{asked, event, modern, modern_reply, rest, site, streamed};
use crate::{
    http::Answer,
    site::{agent_a, agent_b, call, send},
    stub::{Seen, Stub, json, result},
};

/// A result that asks for a form, and for whatever else is named.
fn asks(more: &str, state: &str) -> String {
    format!(
        r#"{{"resultType":"input_required","inputRequests":{{"who":{{"method":"elicitation/create","params":{{"message":"who?","requestedSchema":{{"type":"object","properties":{{"name":{{"type":"string"}}}}}}}}}}{more}}}{state}}}"#
    )
}

const SAMPLING: &str =
    r#","what":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10}}"#;
const STATE: &str = r#","requestState":"step \u0031""#;

/// Calls `echo`, with what was asked for if it is a second try.
fn params(name: &str, state: &str) -> String {
    match state {
        "" => format!(r#""name":"{name}""#),
        _ => format!(
            r#""name":"{name}","inputResponses":{{"who":{{"action":"decline"}}}},"requestState":"{state}""#
        ),
    }
}

/// Asks on a first try and answers the second.
fn asking(seen: &Seen) -> String {
    match seen.body.windows(14).any(|window| window == b"inputResponses") {
        true => result(seen, r#"{"resultType":"complete","content":[]}"#),
        false => result(seen, &asks("", STATE)),
    }
}

fn refused(answer: &Answer) -> (u16, String) {
    (answer.status, answer.kind())
}

#[tokio::test]
async fn what_is_permitted_is_asked_and_goes_on_for_its_caller_only() {
    let stub = Stub::answering(|seen| json(&asking(seen))).await;
    let lictor = site(&stub.url()).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let unknown = |answer: &Answer| assert_eq!(refused(answer).1, "unknown_continuation");
    // Nobody has been given anything.
    let early = modern(&mut a, "tools/call", "echo", &params("echo", "step 1")).await;
    unknown(&early);
    let first = modern(&mut a, "tools/call", "echo", &params("echo", "")).await;
    let expected = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}}}"#, asks("", STATE));
    assert_eq!((first.status, first.text()), (200, expected.clone()));
    // Somebody else, another tool, another state.
    unknown(&modern(&mut b, "tools/call", "echo", &params("echo", "step 1")).await);
    unknown(&modern(&mut a, "tools/call", "lookup", &params("lookup", "step 1")).await);
    unknown(&modern(&mut a, "tools/call", "echo", &params("echo", "step 2")).await);
    assert_eq!(stub.requests(), 1);
    let second = modern(&mut a, "tools/call", "echo", &params("echo", "step 1")).await;
    assert_eq!(second.json()["result"]["resultType"], "complete");
    // The same state may be given to another caller.
    let first = modern(&mut b, "tools/call", "echo", &params("echo", "")).await;
    assert_eq!(first.text(), expected);
    let second = modern(&mut b, "tools/call", "echo", &params("echo", "step 1")).await;
    assert_eq!(second.json()["result"]["resultType"], "complete");
    let closings = lictor.stop(8 + 2).await;
    let asks = asked(&closings);
    assert!(asks.iter().all(|ask| ask["status"] == "ok" && ask["class"] == "write"));
    assert_eq!(asks.len(), 2);
}

#[tokio::test]
async fn a_question_outlives_the_process() {
    let stub = Stub::answering(|seen| json(&asking(seen))).await;
    for (state, goes_on) in [("state: { directory: state }", true), ("", false)] {
        let mut lictor = site(&stub.url()).with(state).start().await;
        let mut a = agent_a(&lictor).await;
        let first = modern(&mut a, "tools/call", "echo", &params("echo", "")).await;
        assert_eq!(first.json()["result"]["resultType"], "input_required");
        lictor.signal("KILL").await;
        lictor.ended().await;
        let lictor = lictor.restart().await;
        let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
        let other = modern(&mut b, "tools/call", "echo", &params("echo", "step 1")).await;
        assert_eq!(other.kind(), "unknown_continuation");
        let second = modern(&mut a, "tools/call", "echo", &params("echo", "step 1")).await;
        match goes_on {
            true => assert_eq!(second.json()["result"]["resultType"], "complete"),
            false => assert_eq!(second.kind(), "unknown_continuation"),
        }
        lictor.stop_with(|closings| closings >= 2).await;
    }
}

#[tokio::test]
async fn one_refused_request_refuses_the_answer() {
    let document = Stub::answering(|seen| json(&result(seen, &asks(SAMPLING, STATE)))).await;
    let stream = Stub::answering(|seen| streamed(&result(seen, &asks(SAMPLING, STATE)))).await;
    for (stub, streams) in [(document, false), (stream, true)] {
        let lictor = site(&stub.url()).start().await;
        let mut a = agent_a(&lictor).await;
        let reply = modern_reply(&mut a, "tools/call", "echo", &params("echo", "")).await;
        assert_eq!(reply.status, 200);
        let text = rest(reply).await;
        let error = match streams {
            true => text.strip_prefix("event: message\ndata: ").expect("an event").trim_end(),
            false => &text,
        };
        let error: serde_json::Value = serde_json::from_str(error).expect("JSON");
        assert_eq!((&error["id"], &error["error"]["code"]), (&7.into(), &4036.into()));
        assert_eq!(error["error"]["data"]["kind"], "server_request_denied");
        // Nothing was bound.
        let retry = modern(&mut a, "tools/call", "echo", &params("echo", "step 1")).await;
        assert_eq!(refused(&retry).1, "unknown_continuation");
        let closings = lictor.stop(2 + 2).await;
        let of = |method: &str| {
            let entry = closings.iter().find(|entry| entry["method"] == method);
            let entry = entry.expect("an entry");
            let said = ["kind", "status"].map(|key| entry[key].as_str().unwrap_or_default());
            (said, entry["complete"].as_bool())
        };
        let sampling = (["denied", "policy_denied"], Some(false));
        assert_eq!(of("sampling/createMessage"), sampling);
        let form = (["outcome", "server_request_denied"], Some(false));
        assert_eq!(of("elicitation/create"), form);
    }
}

#[tokio::test]
async fn what_cannot_be_judged_is_no_answer() {
    let deep = "[".repeat(70) + &"]".repeat(70);
    for result in [
        r#"{"resultType":"input_required","inputRequests":[]}"#.to_owned(),
        asks(r#","x":{"method":"ping"}"#, ""),
        asks(r#","x":{"method":"elicitation/create"}"#, ""),
        asks("", r#","requestState":7"#),
        asks("", r#","inputrequests":{}"#),
        r#"{"resultType":"surprise"}"#.to_owned(),
        format!(r#"{{"resultType":"complete","x":{deep}}}"#),
    ] {
        let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
        let stub = Stub::answering(move |_| json(&message)).await;
        let lictor = site(&stub.url()).start().await;
        let mut a = agent_a(&lictor).await;
        let answer = modern(&mut a, "tools/call", "echo", &params("echo", "")).await;
        assert_eq!(refused(&answer), (502, "upstream_unreadable".to_owned()), "{result}");
        lictor.stop(1).await;
    }
}

#[tokio::test]
async fn an_error_that_sends_its_user_somewhere_is_judged() {
    let policies = r#"
        @id("calls") permit (principal, action in Action::"tools/call", resource);
        @id("visits") permit (principal, action == Action::"elicitation/create", resource)
        when { context.elicitation has url && context.elicitation.url.host == "good.example.org" };
    "#;
    let error = |host: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-32042,"message":"visit","data":{{"elicitations":[{{"mode":"url","elicitationId":"e","message":"m","url":"https://{host}/x"}}]}}}}}}"#
        )
    };
    for (host, passes) in [("good.example.org", true), ("bad.example.org", false)] {
        let error = error(host);
        for streams in [false, true] {
            let text = error.clone();
            let stub = Stub::answering(move |_| match streams {
                true => streamed(&text),
                false => json(&text),
            })
            .await;
            let lictor = site(&stub.url()).policies(policies).start().await;
            let mut a = agent_a(&lictor).await;
            let reply = send(&mut a, "POST", &[], call("echo", "{}")).await;
            let text = rest(reply).await;
            let whole = if streams { event(&error) } else { error.clone() };
            assert_eq!(text == whole, passes, "{text}");
            assert!(passes || text.contains("server_request_denied"), "{text}");
            let closings = lictor.stop(2).await;
            let status = if passes { "ok" } else { "policy_denied" };
            assert_eq!(asked(&closings)[0]["status"], status);
        }
    }
}

//! What the server sends beside an answer, and what callers send back: each reaches its own call.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::{ACCEPTED, a, b, open_by_hand, status};
use crate::{
    http::{Caller, Reply},
    site::{POLICIES, Site, TLS_A, TLS_B, call, send},
    stub::{Call, Stub},
};

/// A call whose answer the test streams.
async fn streaming(
    caller: &mut Caller,
    stub: &mut Stub,
    session: &str,
    body: &str,
) -> (Reply, Call) {
    let headers = [("mcp-session-id", session)];
    tokio::join!(send(caller, "POST", &headers, body), async {
        let mut call = stub.call().await;
        assert_eq!(call.seen.head.header("mcp-session-id"), Some(session));
        call.begin_events().await;
        call
    })
}

async fn event(reply: &mut Reply, expected: &str) {
    let mut text = Vec::new();
    while text.len() < expected.len() {
        text.extend_from_slice(&reply.chunk().await.expect("an event"));
    }
    assert_eq!(String::from_utf8_lossy(&text), expected);
}

#[tokio::test]
async fn equal_ids_of_two_callers_never_meet() {
    let mut stub = Stub::scripted().await;
    let asks = r#"@id("asks") permit (principal, action in Action::"asks", resource);"#;
    let policies = format!("{POLICIES}{asks}");
    let lictor = Site::to(&stub.url()).policies(&policies).start().await;
    let (mut a, mut b) = (a(&lictor).await, b(&lictor).await);
    open_by_hand(&mut a, &mut stub, "s-a").await;
    open_by_hand(&mut b, &mut stub, "s-b").await;
    let body = call("echo", r#"{"_meta":0}"#);
    let (mut to_a, mut of_a) = streaming(&mut a, &mut stub, "s-a", &body).await;
    let (mut to_b, mut of_b) = streaming(&mut b, &mut stub, "s-b", &body).await;
    // Each is asked a question, with the same id, in the other order.
    let question = |who: &str| {
        format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\",\"params\":{{\"message\":\"{who}\",\"requestedSchema\":{{\"type\":\"object\"}}}}}}\n\n"
        )
    };
    of_b.chunk(question("b")).await;
    of_a.chunk(question("a")).await;
    event(&mut to_a, &question("a")).await;
    event(&mut to_b, &question("b")).await;
    // Each answers on another connection, and can't answer for the other.
    for (tls, own, other) in [(&TLS_B, "s-b", "s-a"), (&TLS_A, "s-a", "s-b")] {
        let mut caller = Caller::tls(lictor.mutual, tls, false).await;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"action":"{own}"}}}}"#);
        assert_eq!(status(&mut caller, "POST", other, &answer).await, 404);
        let headers = [("mcp-session-id", own)];
        let (reply, seen) =
            tokio::join!(send(&mut caller, "POST", &headers, answer.as_str()), async {
                let mut call = stub.call().await;
                call.send(ACCEPTED).await;
                let seen = call.seen.clone();
                call.keep();
                seen
            });
        assert_eq!(seen.head.header("mcp-session-id"), Some(own));
        assert_eq!(seen.body, answer);
        let answer = reply.whole().await;
        assert_eq!((answer.status, answer.text().as_str()), (202, ""));
    }
    // The results come in the other order, with equal ids.
    let last = |who: &str| {
        format!("data: {{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"for\":\"{who}\"}}}}\n\n")
    };
    of_b.chunk(last("b")).await;
    event(&mut to_b, &last("b")).await;
    of_a.chunk(last("a")).await;
    event(&mut to_a, &last("a")).await;
    of_a.end().await;
    of_b.end().await;
    assert_eq!((to_a.chunk().await, to_b.chunk().await), (None, None));
    lictor.stop(2 + 2 + 4 + 2).await;
}

#[tokio::test]
async fn answers_in_another_order_find_their_callers() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut one, mut two) = (a(&lictor).await, b(&lictor).await);
    let body = call("echo", "{}").replace(":7", ":0");
    for _ in 0..5 {
        let answering = async {
            let (first, second) = (stub.call().await, stub.call().await);
            let name = |call: &Call| {
                let message: Value = serde_json::from_slice(&call.seen.body).expect("JSON");
                format!(r#"{{"for":{}}}"#, message["params"]["arguments"]["who"])
            };
            let (to_first, to_second) = (name(&first), name(&second));
            second.answer(&to_second).await;
            first.answer(&to_first).await;
        };
        let mine = |who: &str| body.replace("{}", &format!(r#"{{"who":"{who}"}}"#));
        let (to_one, to_two, ()) = tokio::join!(
            send(&mut one, "POST", &[], mine("a")),
            send(&mut two, "POST", &[], mine("b")),
            answering
        );
        for (reply, who) in [(to_one, "a"), (to_two, "b")] {
            let json = reply.whole().await.json();
            assert_eq!((&json["id"], &json["result"]["for"]), (&0.into(), &who.into()));
        }
    }
    lictor.stop(10).await;
}

#[tokio::test]
async fn progress_comes_on_the_stream_of_its_call_and_cancelling_does_not_wait() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = a(&lictor).await;
    open_by_hand(&mut caller, &mut stub, "s-a").await;
    let body = r#"{"jsonrpc":"2.0","id":101,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":"p-1"}}}"#;
    let (mut reply, mut upstream) = streaming(&mut caller, &mut stub, "s-a", body).await;
    for at in 1..=3 {
        let progress = format!(
            "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":\"p-1\",\"progress\":{at}}}}}\n\n"
        );
        upstream.chunk(&progress).await;
        event(&mut reply, &progress).await;
    }
    for id in ["101", "\"101\""] {
        let cancelled = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        let mut other = a(&lictor).await;
        let headers = [("mcp-session-id", "s-a")];
        let cancelling = async {
            tokio::join!(send(&mut other, "POST", &headers, cancelled.as_str()), async {
                let mut call = stub.call().await;
                call.send(ACCEPTED).await;
                let seen = call.seen.clone();
                call.keep();
                seen
            })
        };
        // The call that it cancels goes on all the time.
        let cancelled_in = timeout(Duration::from_secs(2), cancelling).await;
        let (answer, seen) = cancelled_in.expect("at once");
        assert_eq!(seen.body, cancelled);
        let answer = answer.whole().await;
        assert_eq!((answer.status, answer.text().as_str()), (202, ""));
    }
    // The call still has its answer.
    let last = "data: {\"jsonrpc\":\"2.0\",\"id\":101,\"result\":{\"x\":1.0e0}}\n\n";
    upstream.chunk(last).await;
    event(&mut reply, last).await;
    upstream.end().await;
    assert_eq!(reply.chunk().await, None);
    lictor.stop(4).await;
}

//! Event streams behind the bridge: progress, questions, cancellation, resumption, the session's own stream.

use serde_json::json;

use super::{ACCEPTED, Bridge, in_session, numbered};
use crate::{
    site::{Site, call, call_with_token},
    sse::SERVER_PINGS,
    stub::{Call, Stub},
};

async fn asked(stub: &mut Stub) -> Call {
    let asked = stub.call().await;
    in_session(&asked);
    asked
}

/// An event with a message that is no answer.
fn progress(n: u32) -> String {
    format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":0,\"progress\":{n}}}}}\n\n"
    )
}

fn last(id: &str) -> String {
    format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\ndata: \"id\":{id},\"result\":{{}}}}\n\n")
}

#[tokio::test]
async fn events_come_out_as_they_come_in_and_questions_are_answered() {
    let mut stub = Stub::scripted().await;
    let site = Site::to(&stub.url()).file("policies/asks.cedar", SERVER_PINGS);
    let lictor = site.start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    bridge.say(call_with_token("echo", "0")).await;
    let mut stream = asked(&mut stub).await;
    stream.begin_events().await;
    stream.chunk(": hello\n\nid: 1\ndata:\n\n").await;
    for n in [1, 2] {
        stream.chunk(progress(n)).await;
        assert_eq!(bridge.hear().await["params"]["progress"], n);
    }
    // What is no message stays behind.
    stream.chunk("data: nonsense\n\n").await;
    // The answer to a question is posted while the call waits.
    stream.chunk("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n\n").await;
    assert_eq!(bridge.hear().await["method"], "ping");
    let pong = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    bridge.say(pong).await;
    let mut posted = asked(&mut stub).await;
    assert_eq!(posted.seen.body, pong);
    posted.send(ACCEPTED).await;
    posted.keep();
    // Data over several lines is one line.
    stream.chunk(last("7")).await;
    stream.end().await;
    assert_eq!(bridge.line().await.expect("a line"), r#"{"jsonrpc":"2.0", "id":7,"result":{}}"#);
    bridge.close(&mut stub).await;
    lictor.stop(7).await;
}

#[tokio::test]
async fn a_cancellation_does_not_wait_for_what_it_cancels() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    bridge.say(call_with_token("echo", "0")).await;
    let mut stream = asked(&mut stub).await;
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    bridge.say(cancelled).await;
    let mut posted = asked(&mut stub).await;
    assert_eq!(posted.seen.body, cancelled);
    posted.send(ACCEPTED).await;
    posted.keep();
    // Others go on meanwhile.
    bridge.say(numbered(&call("echo", "{}"), "8")).await;
    asked(&mut stub).await.answer("{}").await;
    assert_eq!(bridge.hear().await["id"], 8);
    // Nobody waits for the answer that won't come.
    stream.begin_events().await;
    bridge.close(&mut stub).await;
    lictor.stop(7).await;
}

#[tokio::test]
async fn a_stream_that_breaks_is_resumed_where_it_was() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    bridge.say(call_with_token("echo", "0")).await;
    let mut stream = asked(&mut stub).await;
    stream.begin_events().await;
    stream.chunk(format!("id: e-1\nretry: 20\ndata:\n\nid: e-2\n{}", progress(1))).await;
    assert_eq!(bridge.hear().await["params"]["progress"], 1);
    // Ended in order, without an answer; then not at all; then with the answer.
    stream.end().await;
    let mut again = asked(&mut stub).await;
    assert_eq!(again.seen.head.start, "GET /mcp HTTP/1.1");
    assert_eq!(again.seen.head.header("last-event-id"), Some("e-2"));
    assert_eq!(again.seen.head.header("accept"), Some("text/event-stream"));
    again.begin_events().await;
    again.chunk(format!("id: e-3\n{}", progress(2))).await;
    assert_eq!(bridge.hear().await["params"]["progress"], 2);
    again.end().await;
    let mut again = asked(&mut stub).await;
    assert_eq!(again.seen.head.header("last-event-id"), Some("e-3"));
    again.send("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n").await;
    again.keep();
    let mut again = asked(&mut stub).await;
    assert_eq!(again.seen.head.header("last-event-id"), Some("e-3"));
    again.begin_events().await;
    again.chunk(last("7")).await;
    again.end().await;
    assert_eq!(bridge.hear().await["result"], json!({}));
    bridge.close(&mut stub).await;
    lictor.stop(8).await;
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_leaves_an_error() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    // Nothing to resume after.
    bridge.say(call_with_token("echo", "0")).await;
    let mut stream = asked(&mut stub).await;
    stream.begin_events().await;
    stream.chunk(progress(1)).await;
    stream.end().await;
    assert_eq!(bridge.hear().await["method"], "notifications/progress");
    let heard = bridge.hear().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(5021)));
    // A server that doesn't know the stream any more.
    bridge.say(call_with_token("echo", "0")).await;
    let mut stream = asked(&mut stub).await;
    stream.begin_events().await;
    stream.chunk("id: 1\nretry: 10\ndata:\n\n").await;
    stream.end().await;
    let mut again = asked(&mut stub).await;
    again.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    again.keep();
    let heard = bridge.hear().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(5021)));
    bridge.close(&mut stub).await;
    lictor.stop(7).await;
}

#[tokio::test]
async fn the_sessions_own_stream_is_read_and_opened_again() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open_without_stream(&mut stub).await;
    let mut stream = asked(&mut stub).await;
    assert_eq!(stream.seen.head.start, "GET /mcp HTTP/1.1");
    assert_eq!(stream.seen.head.header("last-event-id"), None);
    stream.begin_events().await;
    let news = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
    stream.chunk(format!("id: n-1\nretry: 20\n{news}")).await;
    assert_eq!(bridge.hear().await["method"], "notifications/tools/list_changed");
    stream.end().await;
    let mut stream = asked(&mut stub).await;
    assert_eq!(stream.seen.head.header("last-event-id"), Some("n-1"));
    stream.begin_events().await;
    stream.chunk(news).await;
    assert_eq!(bridge.hear().await["method"], "notifications/tools/list_changed");
    // An answer may come on it as well, and is the only one then.
    bridge.say(call_with_token("echo", "0")).await;
    let mut call = asked(&mut stub).await;
    call.begin_events().await;
    call.chunk(progress(1)).await;
    assert_eq!(bridge.hear().await["method"], "notifications/progress");
    stream.chunk(last("7")).await;
    assert_eq!(bridge.hear().await["result"], json!({}));
    call.end().await;
    bridge.say(numbered(&crate::site::call("echo", "{}"), "8")).await;
    asked(&mut stub).await.answer("{}").await;
    assert_eq!(bridge.hear().await["id"], 8);
    bridge.close(&mut stub).await;
    lictor.stop(7).await;
}

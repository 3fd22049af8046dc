//! Legacy sessions: a process each.

use serde_json::{Value, json};

use super::*;
use crate::{
    http::{whole, within},
    site::{agent_a, agent_b},
};

#[tokio::test]
async fn a_session_has_a_process_of_its_own() {
    let lictor = site().start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let (one, two) = (Session::open(&mut a).await, Session::open(&mut a).await);
    let of_b = Session::open(&mut b).await;
    let mut pids = vec![
        one.call(&mut a, "pid", "{}").await,
        two.call(&mut a, "pid", "{}").await,
        of_b.call(&mut b, "pid", "{}").await,
    ];
    assert_eq!(one.call(&mut a, "pid", "{}").await, pids[0]);
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 3);
    // Nobody else's.
    assert_eq!(of_b.post(&mut a, &tool_call("1", "pid", "{}")).await.whole().await.status, 404);
    // What the caller sent is what the process got, on one line, but for the id and the token.
    let odd = "{\"jsonrpc\":\"2.0\",\r\n \"id\" : \"x\\u0041\" ,\n\"method\":\"tools/call\",\"params\":\
         {\"name\":\"seen\",\"_meta\":{\"progressToken\":0,\"vendor/x\":[1.50,\"\\n\"]},\
         \"arguments\":{\"n\":1E2}}}";
    let answer = one.post(&mut a, odd).await.whole().await;
    assert!(answer.text().contains(r#""id": "x\u0041""#), "{}", answer.text());
    let seen: Vec<String> = serde_json::from_str(&text(&answer)).expect("lines");
    let got = seen.last().expect("a line");
    let number = serde_json::from_str::<Value>(got).expect("a message")["id"].to_string();
    let expected = odd
        .replace("\"x\\u0041\"", &number)
        .replace("progressToken\":0", &format!("progressToken\":{number}"))
        .replace(['\r', '\n'], " ");
    assert_eq!(*got, expected);
    lictor.stop(3 * 2 + 6).await;
}

#[tokio::test]
async fn lists_are_cut_down_and_refused_calls_never_arrive() {
    let lictor = site().start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    let list = session.post(&mut a, &message("2", "tools/list", "{}")).await.whole().await;
    assert!(list.text().contains("echo") && !list.text().contains("wipe"), "{}", list.text());
    let refused = session.post(&mut a, &tool_call("3", "wipe", "{}")).await.whole().await;
    assert_eq!(refused.kind(), "policy_denied");
    let seen = session.call(&mut a, "seen", "{}").await;
    assert!(!seen.contains("wipe"), "{seen}");
    let unknown = session.post(&mut a, &message("4", "vendor/odd", "{}")).await.whole().await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (200, &json!(-32601)));
    let closings = lictor.stop(6).await;
    assert_eq!(closings.iter().filter(|entry| entry["status"] == "policy_denied").count(), 1);
}

#[tokio::test]
async fn progress_comes_at_once_on_the_stream_of_its_call() {
    let lictor = site().start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    for (id, token) in
        [("5", r#""p-1""#), (r#""five""#, "0"), ("-6", r#""""#), ("0", "9007199254740991")]
    {
        let params = format!(
            r#"{{"name":"progress","arguments":{{"pause":0.2}},"_meta":{{"progressToken":{token}}}}}"#
        );
        let mut reply = session.post(&mut a, &message(id, "tools/call", &params)).await;
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        let [id, token]: [Value; 2] =
            [id, token].map(|literal| serde_json::from_str(literal).expect("JSON"));
        for step in 0..3 {
            let progress = event(&mut reply).await;
            assert_eq!(progress["params"], json!({ "progressToken": token, "progress": step }));
        }
        let answer = event(&mut reply).await;
        assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&id, &json!("done")));
        assert_eq!(reply.chunk().await, None);
    }
    // One who takes no events gets the answer alone.
    let mut request = a.request("POST", whole(tool_call("7", "progress", "{}")));
    let json = "application/json".parse().expect("a value");
    request.headers_mut().insert("accept", json);
    let id = session.id.parse().expect("a value");
    request.headers_mut().insert("mcp-session-id", id);
    let answer = a.send(request).await.whole().await;
    assert_eq!(
        (answer.header("content-type"), &*text(&answer)),
        (Some("application/json"), "done")
    );
    lictor.stop(2 + 4 + 1).await;
}

#[tokio::test]
async fn progress_of_no_call_reaches_nobody() {
    let lictor = site().start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    let params = r#"{"name":"stray","_meta":{"progressToken":"mine"}}"#;
    let answer = session.post(&mut a, &message("5", "tools/call", params)).await.whole().await;
    let told = messages(&answer);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0]["params"]["progressToken"], "mine");
    // The late one came before this, and is not on any stream.
    session.call(&mut a, "echo", "{}").await;
    let mut b = agent_a(&lictor).await;
    let stream = session.stream(&mut b).await;
    assert_eq!(session.delete(&mut a).await, 204);
    assert_eq!(stream.whole().await.text(), "");
    lictor.stop(2 + 4).await;
}

#[tokio::test]
async fn questions_reach_the_session_and_answers_its_process() {
    let lictor = site().start().await;
    let (mut a, mut other) = (agent_a(&lictor).await, agent_a(&lictor).await);
    let session = Session::open(&mut a).await;
    let stranger = Session::open(&mut a).await;
    for (on_stream, method) in [(false, "sampling/createMessage"), (true, "elicitation/create")] {
        let mut listening = agent_a(&lictor).await;
        let mut stream = match on_stream {
            true => Some(session.stream(&mut listening).await),
            false => None,
        };
        let call =
            tool_call("5", "ask", &format!(r#"{{"method":"{method}","key":"q-{on_stream}"}}"#));
        let mut reply = session.post(&mut a, &call).await;
        let question = event(stream.as_mut().unwrap_or(&mut reply)).await;
        assert_eq!(
            (&question["method"], &question["id"]),
            (&json!(method), &json!(format!("q-{on_stream}")))
        );
        let answer =
            format!(r#"{{"jsonrpc":"2.0","id":"q-{on_stream}","result":{{"said":"yes"}}}}"#);
        // With the same id, but from another session: it is for another process.
        assert_eq!(stranger.call(&mut other, "echo", "{}").await, "{}");
        assert_eq!(session.post(&mut other, &answer).await.whole().await.status, 202);
        let last = event(&mut reply).await;
        let told = last["result"]["content"][0]["text"].as_str().expect("text");
        assert_eq!(
            serde_json::from_str::<Value>(told).expect("JSON"),
            serde_json::from_str::<Value>(&answer).expect("JSON")
        );
        assert_eq!(reply.chunk().await, None);
        drop((stream, listening));
    }
    lictor.stop(4 + 7 + 2).await;
}

#[tokio::test]
async fn what_comes_before_the_stream_waits_for_it_and_there_is_one_stream() {
    let lictor = Site::running(&command(", --eager")).policies(EVERYTHING).start().await;
    let (mut a, mut first, mut second) =
        (agent_a(&lictor).await, agent_a(&lictor).await, agent_a(&lictor).await);
    let session = Session::open(&mut a).await;
    let mut stream = session.stream(&mut first).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(event(&mut stream).await["method"], "notifications/tools/list_changed");
    assert_eq!(session.stream(&mut second).await.whole().await.status, 409);
    drop((stream, first));
    let again = async {
        loop {
            let reply = session.stream(&mut second).await;
            if reply.status == 200 {
                return reply;
            }
            reply.whole().await;
        }
    };
    let again = within("a stream once the first has gone", again).await;
    assert_eq!(session.delete(&mut a).await, 204);
    assert_eq!(again.whole().await.text(), "");
    lictor.stop_with(|closings| closings >= 6).await;
}

#[tokio::test]
async fn a_cancellation_names_the_call_as_its_process_knows_it() {
    let lictor = site().start().await;
    let (mut a, mut other) = (agent_a(&lictor).await, agent_a(&lictor).await);
    let session = Session::open(&mut a).await;
    let mut hanging = session.post(&mut a, &tool_call("101", "hang", "{}")).await;
    assert_eq!(hanging.header("content-type"), Some("text/event-stream"));
    for id in [r#""101""#, "102", "101"] {
        let cancelled = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        assert_eq!(session.post(&mut other, &cancelled).await.whole().await.status, 202);
    }
    let seen = session.call(&mut other, "seen", "{}").await;
    let seen: Vec<String> = serde_json::from_str(&seen).expect("lines");
    let seen: Vec<Value> =
        seen.iter().map(|line| serde_json::from_str(line).expect("a message")).collect();
    let hang = seen.iter().find(|it| it["params"]["name"] == "hang").expect("the call");
    let cancelled: Vec<&Value> =
        seen.iter().filter(|it| it["method"] == "notifications/cancelled").collect();
    let [cancelled] = cancelled.as_slice() else { panic!("{cancelled:?}") };
    assert_eq!(cancelled["params"]["requestId"], hang["id"]);
    // No answer is to be expected, so the stream has ended.
    assert_eq!(hanging.chunk().await, None);
    assert_eq!(session.call(&mut a, "echo", "{}").await, "{}");
    lictor.stop(2 + 1 + 3 + 2).await;
}

#[tokio::test]
async fn equal_ids_in_one_session_get_their_own_answers() {
    let lictor = site().start().await;
    let (mut a, mut other) = (agent_a(&lictor).await, agent_a(&lictor).await);
    let session = Session::open(&mut a).await;
    let (one, two) = (tool_call("0", "swap", r#"{"n":1}"#), tool_call("0", "swap", r#"{"n":2}"#));
    let (one, two) = tokio::join!(session.post(&mut a, &one), session.post(&mut other, &two));
    assert_eq!(text(&one.whole().await), r#"{"n": 1}"#);
    assert_eq!(text(&two.whole().await), r#"{"n": 2}"#);
    lictor.stop(4).await;
}

#[tokio::test]
async fn without_a_session_there_is_nobody_to_ask() {
    let lictor = site().start().await;
    let mut a = agent_a(&lictor).await;
    let call = tool_call("7", "echo", "{}");
    let answer = send(&mut a, "POST", &[], call).await.whole().await;
    assert_eq!((answer.status, &answer.json()["id"]), (400, &json!(7)));
    assert_eq!(send(&mut a, "GET", &[], "").await.whole().await.status, 400);
    // An error opens none.
    let refused = message("1", "initialize", r#"{"refuse":true}"#);
    let answer = send(&mut a, "POST", &[], refused).await.whole().await;
    assert_eq!((answer.header("mcp-session-id"), answer.status), (None, 200));
    assert_eq!(answer.json()["error"]["code"], -32602);
    lictor.stop(3).await;
}

#[tokio::test]
async fn a_process_is_told_that_its_question_is_refused() {
    let refusing = format!(
        "{EVERYTHING}@id(\"no-sampling\") \
         forbid (principal, action == Action::\"sampling/createMessage\", resource);\n"
    );
    let lictor = site().policies(&refusing).start().await;
    let (mut a, mut listening) = (agent_a(&lictor).await, agent_a(&lictor).await);
    let session = Session::open(&mut a).await;
    for (key, on_stream) in [("q-1", false), ("q-2", true)] {
        let stream = match on_stream {
            true => Some(session.stream(&mut listening).await),
            false => None,
        };
        let arguments = format!(r#"{{"method":"sampling/createMessage","key":"{key}"}}"#);
        let call = session.post(&mut a, &tool_call("5", "ask", &arguments)).await;
        let told = messages(&call.whole().await);
        let [answer] = told.as_slice() else { panic!("{told:?}") };
        let text = answer["result"]["content"][0]["text"].as_str().expect("text");
        let told: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!((&told["id"], &told["error"]["code"]), (&json!(key), &json!(4030)), "{told}");
        drop(stream);
    }
    lictor.stop_with(|closings| closings >= 4).await;
}

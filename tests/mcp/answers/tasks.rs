//! Tasks belong to the caller whose call made them.

use super::{event, modern, open, reads, rest, site, stream, streamed};
use crate::{
    site::{agent_a, agent_b, call, request, send},
    stub::{Seen, Stub, json, result},
};

/// Everybody may do anything with tasks, as far as policies go.
const TASKS: &str = r#"
@id("all") permit (principal, action, resource);
"#;

fn method(seen: &Seen) -> String {
    let message: serde_json::Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    message["method"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_task_is_its_callers_whatever_shape_it_comes_in() {
    const LEGACY: &str = r#"{"task":{"taskId":"t-1","status":"working"}}"#;
    const MODERN: &str = r#"{"resultType":"task","taskId":"t-1","status":"working"}"#;
    for (made, streams) in [(LEGACY, false), (LEGACY, true), (MODERN, false), (MODERN, true)] {
        let stub = Stub::answering(move |seen| match (&*method(seen), streams) {
            ("tools/call", true) => streamed(&result(seen, made)),
            ("tools/call", false) => json(&result(seen, made)),
            _ => json(&result(seen, r#"{"taskId":"t-1","resultType":"complete"}"#)),
        })
        .await;
        let lictor = site(&stub.url()).policies(TASKS).start().await;
        let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
        let is_modern = made == MODERN;
        let get = request("tasks/get", r#"{"taskId":"t-1"}"#);
        for own in [false, true] {
            if own {
                let answer = match is_modern {
                    true => modern(&mut a, "tools/call", "echo", r#""name":"echo""#).await,
                    false => send(&mut a, "POST", &[], call("echo", "{}")).await.whole().await,
                };
                assert!(answer.text().contains(made), "{}", answer.text());
            }
            for (caller, sees) in [(&mut a, own), (&mut b, false)] {
                let answer = match is_modern {
                    true => modern(caller, "tasks/get", "t-1", r#""taskId":"t-1""#).await,
                    false => send(caller, "POST", &[], get.as_str()).await.whole().await,
                };
                let json = answer.json();
                assert_eq!(json["result"]["taskId"] == "t-1", sees, "{json}");
                assert!(sees || answer.kind() == "unknown_task");
            }
        }
        assert_eq!(stub.requests(), 2);
        lictor.stop(5).await;
    }
}

#[tokio::test]
async fn a_task_that_is_somebody_elses_is_not_handed_out_again() {
    let stub = Stub::answering(|seen| json(&result(seen, r#"{"task":{"taskId":"t-1"}}"#))).await;
    let lictor = site(&stub.url()).policies(TASKS).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let answer = send(&mut a, "POST", &[], call("echo", "{}")).await.whole().await;
    assert_eq!(answer.json()["result"]["task"]["taskId"], "t-1");
    let answer = send(&mut b, "POST", &[], call("echo", "{}")).await.whole().await;
    assert_eq!((answer.status, answer.kind().as_str()), (502, "upstream_unreadable"));
    lictor.stop(2).await;
}

#[tokio::test]
async fn a_list_of_tasks_is_cut_down_to_the_callers_own() {
    for streams in [false, true] {
        let stub = Stub::answering(move |seen| {
            let listed = r#"{"tasks":[{"taskId":"t-0"}, {"taskId":"b-1","status":"working"} , {"taskId":"a-1"},{"taskId":7},"a-1"],"nextCursor":"c"}"#;
            match &*method(seen) {
                "tools/call" => {
                    let body = String::from_utf8_lossy(&seen.body).into_owned();
                    let id = if body.contains("\"b\"") { "b-1" } else { "a-1" };
                    json(&result(seen, &format!(r#"{{"task":{{"taskId":"{id}"}}}}"#)))
                }
                _ if streams => streamed(&result(seen, listed)),
                _ => json(&result(seen, listed)),
            }
        })
        .await;
        let lictor = site(&stub.url()).policies(TASKS).start().await;
        let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
        for (caller, of, kept) in [
            (&mut a, "a", r#"{"taskId":"a-1"}"#),
            (&mut b, "b", r#"{"taskId":"b-1","status":"working"}"#),
        ] {
            let body = call("echo", &format!(r#"{{"for":"{of}"}}"#));
            assert_eq!(send(caller, "POST", &[], body).await.whole().await.status, 200);
            let list = request("tasks/list", "{}");
            let answer = send(caller, "POST", &[], list).await.whole().await;
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"tasks":[{kept}],"nextCursor":"c"}}}}"#
            );
            let expected = if streams { event(&expected) } else { expected };
            assert_eq!(answer.text().replace("[ ", "["), expected);
        }
        lictor.stop(4).await;
    }
}

#[tokio::test]
async fn news_of_a_task_reach_its_owner_only() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).policies(TASKS).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    open(&mut a, &mut stub, "s-a").await;
    open(&mut b, &mut stub, "s-b").await;
    let of_a = [("mcp-session-id", "s-a")];
    let (made, ()) = tokio::join!(send(&mut a, "POST", &of_a, call("echo", "{}")), async {
        stub.call().await.answer(r#"{"task":{"taskId":"t-1"}}"#).await;
    });
    assert_eq!(made.whole().await.status, 200);
    let news = event(
        r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t-1","status":"completed"}}"#,
    );
    let other = event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    for (caller, session, sees) in [(&mut a, "s-a", true), (&mut b, "s-b", false)] {
        let headers = [("mcp-session-id", session)];
        let (mut reply, mut upstream) =
            stream(caller, &mut stub, "GET", &headers, String::new()).await;
        upstream.chunk(&news).await;
        upstream.chunk(&other).await;
        let expected = if sees { format!("{news}{other}") } else { other.clone() };
        reads(&mut reply, &expected).await;
        upstream.end().await;
        assert_eq!(rest(reply).await, "");
    }
    lictor.stop(5).await;
}

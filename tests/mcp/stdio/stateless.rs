//! The stateless revision: a process for each caller, or one for all.

use serde_json::{Value, json};

use super::*;
use crate::{
    http::within,
    site::{agent_a, agent_b},
    subject::Lictor,
};

async fn call(caller: &mut Caller, tool: &str, arguments: &str) -> String {
    text(&post_stateless(caller, &stateless_call("7", tool, arguments)).await.whole().await)
}

async fn shared() -> Lictor {
    site().upstream("processes: shared").start().await
}

/// What a process has got so far.
async fn seen(caller: &mut Caller) -> Vec<Value> {
    let lines: Vec<String> =
        serde_json::from_str(&call(caller, "seen", "{}").await).expect("lines");
    lines.iter().map(|line| serde_json::from_str(line).expect("a message")).collect()
}

#[tokio::test]
async fn a_caller_has_a_process_of_its_own() {
    let lictor = site().start().await;
    let (mut a, mut again) = (agent_a(&lictor).await, agent_a(&lictor).await);
    let mut b = agent_b(&lictor).await;
    let discover = stateless(r#""d""#, "server/discover", "");
    let answer = post_stateless(&mut a, &discover).await.whole().await;
    assert_eq!((answer.status, &answer.json()["id"]), (200, &json!("d")));
    assert_eq!(answer.json()["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(answer.header("mcp-session-id"), None);
    let own = call(&mut a, "pid", "{}").await;
    assert_eq!(call(&mut again, "pid", "{}").await, own);
    assert_ne!(call(&mut b, "pid", "{}").await, own);
    // Errors have the status that the revision wants.
    let unknown = stateless("8", "vendor/odd", "");
    let answer = post_stateless(&mut a, &unknown).await.whole().await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!(-32601)));
    let progress = post_stateless(&mut a, &stateless_call("\"p\"", "progress", "{}")).await;
    let told = events(&progress.whole().await.text());
    assert_eq!(told.len(), 4);
    assert_eq!((&told[0]["params"]["progressToken"], &told[3]["id"]), (&json!("p"), &json!("p")));
    lictor.stop(6).await;
}

#[tokio::test]
async fn a_server_of_sessions_is_recognised_as_one() {
    let site = Site::running(&command(", --sessions")).policies(EVERYTHING);
    let lictor = site.start().await;
    let mut a = agent_a(&lictor).await;
    let discover = stateless("1", "server/discover", "");
    let answer = post_stateless(&mut a, &discover).await.whole().await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32601)));
    let session = Session::open(&mut a).await;
    assert_eq!(session.call(&mut a, "echo", "{}").await, "{}");
    lictor.stop(4).await;
}

#[tokio::test]
async fn equal_ids_of_several_callers_get_their_own_answers() {
    for lictor in [shared().await, site().start().await] {
        let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
        let mut more = agent_a(&lictor).await;
        let one = stateless_call("0", "swap", r#"{"n":1}"#);
        let two = stateless_call("0", "swap", r#"{"n":2}"#);
        let is_shared = call(&mut a, "pid", "{}").await == call(&mut b, "pid", "{}").await;
        let other = if is_shared { &mut b } else { &mut more };
        let (one, two) = tokio::join!(post_stateless(&mut a, &one), post_stateless(other, &two));
        assert_eq!(text(&one.whole().await), r#"{"n": 1}"#);
        assert_eq!(text(&two.whole().await), r#"{"n": 2}"#);
        lictor.stop(4).await;
    }
}

#[tokio::test]
async fn a_shared_process_asks_nobody_and_nobody_hears_of_others() {
    let lictor = shared().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let listening = stateless("0", "subscriptions/listen", r#""notifications":{}"#);
    let mut of_b = post_stateless(&mut b, &listening).await;
    event(&mut of_b).await;
    event(&mut of_b).await;
    for (key, method, code) in
        [("q-1", "sampling/createMessage", json!(-32601)), ("q-2", "ping", Value::Null)]
    {
        let arguments = format!(r#"{{"method":"{method}","key":"{key}"}}"#);
        let told: Value =
            serde_json::from_str(&call(&mut a, "ask", &arguments).await).expect("JSON");
        assert_eq!((&told["id"], &told["error"]["code"]), (&json!(key), &code));
    }
    let log = post_stateless(&mut a, &stateless_call("9", "log", "{}")).await.whole().await;
    assert_eq!(messages(&log).len(), 1);
    // Sessions have state, which nobody shares.
    let initialize = message("1", "initialize", "{}");
    let answer = send(&mut a, "POST", &[], initialize).await.whole().await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32022)));
    // Nothing of all this came to b.
    call(&mut a, "echo", "{}").await;
    lictor.terminate().await;
    let rest = of_b.whole().await.text();
    assert!(events(&rest).iter().all(|event| event["error"]["code"] == 5033), "{rest}");
    let mut lictor = lictor;
    assert!(lictor.ended().await.success());
    lictor.closings(6).await;
}

#[tokio::test]
async fn a_subscription_is_named_by_its_callers_own_id() {
    for (site, id) in [(site(), r#""s-1""#), (site().upstream("processes: shared"), "3")] {
        let lictor = site.start().await;
        let mut a = agent_a(&lictor).await;
        let mut other = agent_a(&lictor).await;
        let listen =
            stateless(id, "subscriptions/listen", r#""notifications":{"toolsListChanged":true}"#);
        let mut stream = post_stateless(&mut a, &listen).await;
        let id: Value = serde_json::from_str(id).expect("JSON");
        for method in
            ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
        {
            let event = event(&mut stream).await;
            assert_eq!(event["method"], method);
            assert_eq!(event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
        }
        drop((stream, a));
        let number = cancelled(&mut other).await;
        let seen = seen(&mut other).await;
        let listen = seen.iter().find(|it| it["method"] == "subscriptions/listen");
        assert_eq!(number, listen.expect("the call")["id"]);
        lictor.stop_with(|closings| closings >= 2).await;
    }
}

#[tokio::test]
async fn whoever_leaves_cancels() {
    let lictor = site().start().await;
    let (mut a, mut other) = (agent_a(&lictor).await, agent_a(&lictor).await);
    call(&mut other, "echo", "{}").await;
    let hanging = post_stateless(&mut a, &stateless_call("5", "hang", "{}")).await;
    assert_eq!(hanging.header("content-type"), Some("text/event-stream"));
    drop((hanging, a));
    let number = cancelled(&mut other).await;
    let seen = seen(&mut other).await;
    let hang = seen.iter().find(|it| it["params"]["name"] == "hang").expect("the call");
    assert_eq!(number, hang["id"]);
    lictor.stop_with(|closings| closings >= 3).await;
}

/// Waits until the process is told that nobody waits for a call any more; its number.
async fn cancelled(caller: &mut Caller) -> Value {
    let looking = async {
        loop {
            let seen = seen(caller).await;
            let cancelled = seen.iter().find(|it| it["method"] == "notifications/cancelled");
            if let Some(cancelled) = cancelled {
                return cancelled["params"]["requestId"].clone();
            }
        }
    };
    within("a cancellation", looking).await
}

#[tokio::test]
async fn a_line_of_the_log_is_for_the_only_call_there_is() {
    let lictor = site().start().await;
    let (mut a, mut other) = (agent_a(&lictor).await, agent_a(&lictor).await);
    let logging = stateless_call("9", "log", "{}");
    let alone = messages(&post_stateless(&mut a, &logging).await.whole().await);
    assert_eq!((alone.len(), &alone[0]["method"]), (2, &json!("notifications/message")));
    let hanging = post_stateless(&mut other, &stateless_call("5", "hang", "{}")).await;
    let among_others = messages(&post_stateless(&mut a, &logging).await.whole().await);
    assert_eq!(among_others.len(), 1, "{among_others:?}");
    drop((hanging, other));
    lictor.stop(3).await;
}

#[tokio::test]
async fn an_unused_process_makes_room_and_a_session_does_not() {
    let lictor = site().upstream("maxProcesses: 1").start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let of_a = call(&mut a, "pid", "{}").await;
    assert_ne!(call(&mut b, "pid", "{}").await, of_a);
    let hanging = post_stateless(&mut b, &stateless_call("5", "hang", "{}")).await;
    let refused = post_stateless(&mut a, &stateless_call("7", "pid", "{}")).await.whole().await;
    assert_eq!((refused.status, &*refused.kind()), (503, "too_many_sessions"));
    assert!(hanging.status == 200 && hanging.header("content-length").is_none());
    drop((hanging, b));
    // The cancelled call leaves the process unused, so that a session can have its place.
    let opening = async {
        loop {
            let reply = send(&mut a, "POST", &[], message("1", "initialize", "{}")).await;
            let opened = reply.status == 200;
            reply.whole().await;
            if opened {
                return;
            }
        }
    };
    within("room for a session", opening).await;
    let refused = post_stateless(&mut a, &stateless_call("7", "pid", "{}")).await.whole().await;
    assert_eq!(refused.kind(), "too_many_sessions");
    lictor.stop_with(|closings| closings >= 6).await;
}

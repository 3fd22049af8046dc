//! The life of a process: how it starts, what it finds, how it goes, and what becomes of its callers.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::*;
use crate::{
    http::{find, whole, within},
    reload::{APPLIED, edit, reloads},
    site::{agent_a, logged, metrics, sample},
};

/// Waits until a process is no more.
async fn gone(pid: &str) {
    let looking = async {
        while is_alive(pid) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("the end of a process", looking).await;
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has gone, whoever may have to reap it.
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

async fn initialize(caller: &mut Caller) -> Answer {
    send(caller, "POST", &[], message("1", "initialize", "{}")).await.whole().await
}

#[tokio::test]
async fn what_its_process_started_ends_with_a_session() {
    for (options, delete) in [("", true), (", --stays", true), ("", false), (", --stays", false)] {
        let lictor = Site::running(&command(options)).policies(EVERYTHING).start().await;
        let mut a = agent_a(&lictor).await;
        let session = Session::open(&mut a).await;
        let pid = session.call(&mut a, "pid", "{}").await;
        let child = session.call(&mut a, "fork", "{}").await;
        assert!(is_alive(&pid) && is_alive(&child));
        if delete {
            assert_eq!(session.delete(&mut a).await, 204);
            let answer = session.post(&mut a, &tool_call("8", "pid", "{}")).await.whole().await;
            assert_eq!(answer.kind(), "unknown_session");
            gone(&pid).await;
            gone(&child).await;
        }
        lictor.stop(if delete { 6 } else { 4 }).await;
        assert!(!is_alive(&pid) && !is_alive(&child), "{options} {delete}");
    }
}

#[tokio::test]
async fn a_crash_fails_its_calls_and_ends_its_session_alone() {
    let lictor = site().start().await;
    let (mut a, mut b, mut c) =
        (agent_a(&lictor).await, agent_a(&lictor).await, agent_a(&lictor).await);
    let (session, bystander) = (Session::open(&mut a).await, Session::open(&mut a).await);
    let child = session.call(&mut a, "fork", "{}").await;
    let mut stream = session.stream(&mut b).await;
    let mut slow = session.post(&mut c, &tool_call("5", "hang", "{}")).await;
    let answer = session.post(&mut a, &tool_call("6", "crash", "{}")).await.whole().await;
    assert_eq!((answer.status, &*answer.kind()), (502, "upstream_failed"));
    let told = event(&mut slow).await;
    assert_eq!(
        (&told["id"], &told["error"]["data"]["kind"]),
        (&5.into(), &"upstream_failed".into())
    );
    // The stream ends as well, and nothing of it can be taken for an answer.
    while let Ok(Some(chunk)) = stream.try_chunk().await {
        assert_eq!(find(&chunk, b"data:"), None);
    }
    let answer = session.post(&mut a, &tool_call("7", "echo", "{}")).await.whole().await;
    assert_eq!(answer.status, 404);
    gone(&child).await;
    assert_eq!(bystander.call(&mut a, "echo", "{}").await, "{}");
    let again = Session::open(&mut a).await;
    assert_eq!(again.call(&mut a, "echo", "{}").await, "{}");
    logged(&lictor, "process ended by itself").await;
    let counting = async {
        loop {
            let metrics = metrics(&lictor).await;
            let count = |name| sample(&metrics, name, &["upstream=\"files\""]);
            let crashes = count("lictor_upstream_process_crashes_total");
            if (count("lictor_upstream_processes"), crashes) == (2.0, 1.0) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("the count of processes", counting).await;
    lictor.stop(4 + 1 + 3 + 2 + 3).await;
}

#[tokio::test]
async fn what_keeps_crashing_is_not_started_at_will() {
    let lictor = Site::running(&command(", --crash")).policies(EVERYTHING).start().await;
    let mut a = agent_a(&lictor).await;
    let mut kinds = Vec::new();
    let trying = async {
        while !kinds.contains(&"upstream_unreachable".to_owned()) {
            kinds.push(initialize(&mut a).await.kind());
        }
        // It is tried again later.
        while initialize(&mut a).await.kind() == "upstream_unreachable" {}
    };
    within("a pause and its end", trying).await;
    assert!(kinds.len() >= 3, "{kinds:?}");
    assert!(kinds.iter().rev().skip(1).all(|kind| kind == "upstream_failed"), "{kinds:?}");
    lictor.stop_with(|closings| closings > 3).await;
}

#[tokio::test]
async fn a_program_that_is_not_there_can_not_be_reached() {
    let lictor = Site::running("[no-such-program]").policies(EVERYTHING).start().await;
    let mut a = agent_a(&lictor).await;
    let answer = initialize(&mut a).await;
    assert_eq!((answer.status, &*answer.kind()), (502, "upstream_unreachable"));
    assert!(!answer.text().contains("no-such-program"));
    logged(&lictor, "No such file").await;
    lictor.stop(1).await;
}

#[tokio::test]
async fn a_silent_process_is_given_up() {
    let lictor = site().upstream("timeouts: { start: 1s }").start().await;
    let mut a = agent_a(&lictor).await;
    let silent = message("1", "initialize", r#"{"silent":true}"#);
    let answer = send(&mut a, "POST", &[], silent).await.whole().await;
    assert_eq!((answer.status, &*answer.kind()), (504, "upstream_timeout"));
    logged(&lictor, "process ended").await;
    lictor.stop(1).await;
}

#[tokio::test]
async fn what_is_no_message_is_told_to_nobody_and_what_may_have_been_one_fails_its_callers() {
    let lictor = site().start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    let pid = session.call(&mut a, "pid", "{}").await;
    assert_eq!(session.call(&mut a, "chatter", "{}").await, "done");
    for tool in ["broken", "huge"] {
        let answer = session.post(&mut a, &tool_call("5", tool, "{}")).await.whole().await;
        let told = messages(&answer).pop().expect("an answer");
        assert_eq!(told["error"]["data"]["kind"], "upstream_failed", "{tool}: {told}");
    }
    assert_eq!(session.call(&mut a, "pid", "{}").await, pid);
    logged(&lictor, "standard output is for messages only").await;
    assert!(!lictor.logs().iter().any(|line| line.contains("this is no message")));
    lictor.stop(2 + 5).await;
}

#[tokio::test]
async fn a_flood_on_standard_error_stops_nothing() {
    let lictor = site().start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    logged(&lictor, "scripted server up").await;
    assert_eq!(session.call(&mut a, "flood", "{}").await, "done");
    assert_eq!(session.call(&mut a, "echo", "{}").await, "{}");
    let lines = lictor.logs().iter().filter(|line| line.contains("process says")).count();
    assert!(lines < 500, "{lines}");
    lictor.stop(4).await;
}

#[tokio::test]
async fn a_process_that_does_not_read_holds_up_nobody_else() {
    let lictor = site().upstream("timeouts: { firstByte: 1s }").start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_a(&lictor).await);
    let (deaf, fine) = (Session::open(&mut a).await, Session::open(&mut a).await);
    assert_eq!(deaf.call(&mut a, "deaf", "{}").await, "done");
    let large = format!(r#"{{"x":"{}"}}"#, "x".repeat(1 << 20));
    let mut stuck = 0;
    for _ in 0..12 {
        let answer = deaf.post(&mut b, &tool_call("5", "echo", &large)).await;
        if answer.status == 504 {
            stuck += 1;
            break;
        }
        drop(answer);
        b = agent_a(&lictor).await;
    }
    assert_eq!(stuck, 1);
    assert_eq!(fine.call(&mut a, "echo", "{}").await, "{}");
    assert_eq!(deaf.delete(&mut a).await, 204);
    lictor.stop_with(|closings| closings > 6).await;
}

#[tokio::test]
async fn processes_are_bounded_and_unused_ones_end() {
    let keys = "maxProcessesPerCaller: 1, timeouts: { unused: 1s }";
    let lictor = site().upstream(keys).start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    let pid = session.call(&mut a, "pid", "{}").await;
    let answer = initialize(&mut a).await;
    assert_eq!((answer.status, &*answer.kind()), (503, "too_many_sessions"));
    let mut b = crate::site::agent_b(&lictor).await;
    Session::open(&mut b).await;
    gone(&pid).await;
    let answer = session.post(&mut a, &tool_call("8", "pid", "{}")).await.whole().await;
    assert_eq!(answer.status, 404);
    let opening = async { while initialize(&mut a).await.status != 200 {} };
    within("room for another", opening).await;
    lictor.stop_with(|closings| closings >= 7).await;
}

#[tokio::test]
async fn a_process_finds_what_it_was_given_and_nothing_else() {
    let keys = "directory: here, env: { allow: [ABSENT, CARGO_PKG_NAME], \
                set: { MODE: fast, LANG: tlh }, files: { TOKEN: token } }";
    let site = site().upstream(keys).file("token", "s3cret\n");
    std::fs::create_dir(site.path().join("here")).expect("a directory");
    let lictor = site.start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    let found: Value =
        serde_json::from_str(&session.call(&mut a, "env", "{}").await).expect("a map");
    let found = found.as_object().expect("a map");
    assert_eq!(
        (&found["MODE"], &found["TOKEN"], &found["LANG"]),
        (&"fast".into(), &"s3cret".into(), &"tlh".into())
    );
    assert_eq!(found["CARGO_PKG_NAME"], "lictor");
    // What the interpreter itself adds is not ours.
    let known = ["PATH", "HOME", "LC_ALL", "TMPDIR", "TZ", "USER", "LC_CTYPE"];
    let given = ["MODE", "TOKEN", "LANG", "CARGO_PKG_NAME"];
    let odd: Vec<&String> = found
        .keys()
        .filter(|name| !known.contains(&&***name) && !given.contains(&&***name))
        .filter(|name| {
            !name.contains("PYENV") && !["PWD", "SHLVL", "_", "OLDPWD"].contains(&&***name)
        })
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
    let here = lictor.directory().join("here").canonicalize().expect("a directory");
    assert_eq!(session.call(&mut a, "where", "{}").await, here.to_str().expect("UTF-8"));
    assert!(!lictor.logs().iter().any(|line| line.contains("s3cret")));
    lictor.stop(4).await;
}

#[tokio::test]
async fn a_process_outlives_a_reload_that_does_not_concern_it_and_ends_with_its_upstream() {
    let lictor = site().file("secret.txt", "one").start().await;
    let mut a = agent_a(&lictor).await;
    let session = Session::open(&mut a).await;
    let pid = session.call(&mut a, "pid", "{}").await;
    let route = "{ path: /mcp, protocol: mcp, upstream: files }";
    let more = route.replace("/mcp", "/more");
    edit(&lictor, "lictor.yaml", route, &format!("{more}, {route}"));
    reloads(&lictor, APPLIED, 1.0).await;
    assert_eq!(session.call(&mut a, "pid", "{}").await, pid, "the same process");
    // Another environment: new sessions have it, and the old process ends when it has no call.
    let slow = session.post(&mut a, &tool_call("5", "hang", "{}")).await;
    edit(&lictor, "lictor.yaml", "tools: {", "env: { files: { SECRET: secret.txt } }, tools: {");
    reloads(&lictor, APPLIED, 2.0).await;
    let mut b = agent_a(&lictor).await;
    let next = Session::open(&mut b).await;
    let second = next.call(&mut b, "pid", "{}").await;
    assert!(second != pid && is_alive(&pid) && is_alive(&second));
    let gone_session = session.post(&mut b, &tool_call("6", "pid", "{}")).await.whole().await;
    assert_eq!(
        (gone_session.status, gone_session.json()["error"]["code"].as_i64()),
        (404, Some(-32001))
    );
    assert!(is_alive(&pid), "it has a call");
    let mut c = agent_a(&lictor).await;
    drop((slow, a));
    gone(&pid).await;
    // The file that it names changes.
    std::fs::write(lictor.directory().join("secret.txt"), "two").expect("a file");
    reloads(&lictor, APPLIED, 3.0).await;
    gone(&second).await;
    let third = Session::open(&mut c).await.call(&mut c, "pid", "{}").await;
    assert!(third != second && is_alive(&third));
    lictor.stop_with(|closings| closings > 8).await;
    assert!(!is_alive(&third));
}

/// A call that takes longer than a replaced command may go on is told so, in a document and on a stream.
#[tokio::test]
async fn what_ends_with_a_replaced_command_is_told_so() {
    let lictor = site().with("drain: 1s").start().await;
    let mut calls = Vec::new();
    for accept in ["application/json, text/event-stream", "application/json"] {
        let mut caller = agent_a(&lictor).await;
        let session = Session::open(&mut caller).await;
        let mut request = caller.request("POST", whole(tool_call("5", "hang", "{}")));
        let headers = request.headers_mut();
        headers.insert("mcp-session-id", session.id.parse().expect("a value"));
        headers.insert("accept", accept.parse().expect("a value"));
        // Nothing comes of it before the end; that it has begun is seen at the server's places.
        calls.push(tokio::spawn(async move { caller.send(request).await.whole().await }));
    }
    let under_way = async {
        let held = async |kind| {
            let kind = format!("kind=\"{kind}\"");
            sample(&metrics(&lictor).await, "lictor_upstream_places_taken", &[&kind])
        };
        while (held("call").await, held("stream").await) != (1.0, 1.0) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("two calls", under_way).await;
    edit(&lictor, "lictor.yaml", "tools: {", "env: { set: { A: b } }, tools: {");
    reloads(&lictor, APPLIED, 1.0).await;
    for (call, status) in calls.into_iter().zip([200, 502]) {
        let answer = within("the end of a call", call).await.expect("no panic");
        let told = messages(&answer).pop().expect("an answer");
        assert_eq!(answer.status, status, "{told}");
        let error = &told["error"];
        assert_eq!((&told["id"], &error["data"]["kind"]), (&5.into(), &"upstream_failed".into()));
    }
    let entries = lictor.stop(6).await;
    let failed = entries.iter().filter(|entry| entry["status"] == "upstream_failed").count();
    assert_eq!(failed, 2);
}

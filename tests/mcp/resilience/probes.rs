//! Half-open: who is let through, and what ends it.

use super::*;
use crate::stub::Call;

/// A Lictor whose server has failed, with a caller, once calls may be tried again; and how many calls that took.
/// The test answers the probe that it took for that with an error of the caller's.
async fn half_open(server: &mut Stub) -> (Lictor, Caller, usize) {
    let lictor = Site::to(&server.url()).upstream(BREAKER).start().await;
    let mut caller = agent_a(&lictor).await;
    for _ in 0..5 {
        let body = call("lookup", "{}");
        let (reply, ()) = tokio::join!(send(&mut caller, "POST", &[], body), fail(server));
        assert_eq!(reply.whole().await.status, 503);
    }
    let body = call("lookup", "{}");
    let (tried, ()) = tokio::join!(until_tried(&mut caller, &body), async {
        status(server.call().await, 404).await;
    });
    (lictor, caller, 5 + tried.1)
}

async fn fail(server: &mut Stub) {
    status(server.call().await, 503).await;
}

async fn status(mut call: Call, status: u16) {
    call.send(format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n")).await;
    call.keep();
}

/// A call that the server has and doesn't answer.
async fn hanging(lictor: &Lictor, server: &mut Stub) -> (crate::http::Wire, Call) {
    let mut wire = crate::site::wire_a(lictor).await;
    let body = call("lookup", "{}");
    wire.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    (wire, server.call().await)
}

#[tokio::test]
async fn a_refusal_shows_that_the_server_lives() {
    let mut server = Stub::scripted().await;
    let (lictor, mut caller, mut calls) = half_open(&mut server).await;
    for with in [401, 404] {
        let body = call("lookup", "{}");
        let (reply, ()) = tokio::join!(send(&mut caller, "POST", &[], body), async {
            status(server.call().await, with).await;
        });
        assert_eq!(reply.whole().await.status, with);
        calls += 1;
    }
    // Closed. Refusals in between don't hide that it fails.
    for with in [404, 503, 404, 503, 503, 404, 503, 503] {
        let body = call("echo", "{}");
        let (reply, ()) = tokio::join!(send(&mut caller, "POST", &[], body), async {
            status(server.call().await, with).await;
        });
        assert_eq!(reply.whole().await.status, with);
        calls += 1;
    }
    assert_eq!(kind(&post(&mut caller, call("echo", "{}")).await), "breaker_open");
    lictor.stop(calls + 1).await;
}

#[tokio::test]
async fn a_probe_whose_caller_leaves_makes_room_for_another() {
    let mut server = Stub::scripted().await;
    let (lictor, mut caller, mut calls) = half_open(&mut server).await;
    let mut probes = vec![];
    for _ in 0..3 {
        probes.push(hanging(&lictor, &mut server).await);
    }
    let mut other = agent_b(&lictor).await;
    for body in [list(), call("echo", "{}")] {
        assert_eq!(kind(&post(&mut other, body).await), "breaker_open");
    }
    for (wire, mut call) in probes {
        drop(wire);
        call.abandoned().await;
    }
    calls += 5;
    // Two more that are answered close it: nobody has failed.
    for _ in 0..2 {
        let trying = async {
            loop {
                let answer = post(&mut other, list()).await;
                calls += 1;
                if kind(&answer) != "breaker_open" {
                    return answer;
                }
            }
        };
        let (answer, ()) = tokio::join!(within("a place", trying), async {
            server.call().await.answer(r#"{"tools":[]}"#).await;
        });
        assert_eq!(answer.status, 200);
    }
    let body = call("echo", "{}");
    let (reply, ()) = tokio::join!(send(&mut caller, "POST", &[], body), async {
        server.call().await.answer("{}").await;
    });
    assert_eq!(kind(&reply.whole().await), "");
    lictor.stop(calls + 1).await;
}

#[tokio::test]
async fn calls_that_may_change_something_are_no_probes_while_others_read() {
    let mut server = Stub::scripted().await;
    let (lictor, mut caller, mut calls) = half_open(&mut server).await;
    // `note` is of class `write`, and nobody may call it; `echo` of class `execute`.
    let answer = post(&mut caller, call("echo", "{}")).await;
    assert_eq!(kind(&answer), "breaker_open");
    calls += 1;
    // Nobody reads: one at a time has to do.
    for _ in 0..2 {
        let body = call("echo", "{}");
        let (tried, ()) = tokio::join!(until_tried(&mut caller, &body), async {
            server.call().await.answer("{}").await;
        });
        assert_eq!(kind(&tried.0), "");
        calls += tried.1;
    }
    let text = metrics(&lictor).await;
    assert_eq!(sample(&text, "lictor_upstream_breaker_state", &["state=\"closed\""]), 1.0);
    lictor.stop(calls).await;
}

#[tokio::test]
async fn a_tool_that_fails_takes_no_other_with_it() {
    let server =
        Stub::answering(|seen| match String::from_utf8_lossy(&seen.body).contains("lookup") {
            true => b"HTTP/1.1 500 So\r\nContent-Length: 0\r\n\r\n".to_vec(),
            false => stub::json(&stub::result(seen, "{}")),
        })
        .await;
    let breaker = "breaker: { open: 60s, perTool: true }";
    let lictor = Site::to(&server.url()).upstream(breaker).start().await;
    let mut caller = agent_a(&lictor).await;
    for round in 0..10 {
        let answer = post(&mut caller, call("lookup", "{}")).await;
        assert_eq!(kind(&answer) == "breaker_open", round >= 5);
        assert_eq!(kind(&post(&mut caller, call("echo", "{}")).await), "");
    }
    assert_eq!(server.requests(), 15);
    lictor.stop(20).await;
}

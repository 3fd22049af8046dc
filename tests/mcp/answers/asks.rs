//! Requests of a server on a stream.

use std::time::Duration;

use lictor::telemetry::Clock;

use super::{asked, event, form, open, reads, rest, sampling, site, stream, told};
use crate::{
    site::{AGENT_A, agent_a, agent_b, call, call_with_token, logged, metrics, sample, send},
    stub::{Stub, result},
};

const SESSION: [(&str, &str); 2] =
    [("mcp-session-id", "s-a"), ("mcp-protocol-version", "2025-11-25")];

#[tokio::test]
async fn a_permitted_question_is_answered_within_the_call() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let mut other = agent_a(&lictor).await;
    open(&mut caller, &mut stub, "s-a").await;
    let mut fastest = Duration::MAX;
    for round in 0..3 {
        let body = call("echo", "{}");
        let (mut reply, mut upstream) =
            stream(&mut caller, &mut stub, "POST", &SESSION, body).await;
        let question = event(&form(&format!("\"srv-{round}\"")));
        let started = Clock.instant();
        upstream.chunk(&question).await;
        reads(&mut reply, &question).await;
        let answer =
            format!(r#"{{"jsonrpc":"2.0","id":"srv-{round}","result":{{"action":"decline"}}}}"#);
        let posting = send(&mut other, "POST", &SESSION, answer.as_str());
        let (posted, (seen, _)) = tokio::join!(posting, told(&mut stub));
        fastest = fastest.min(Clock.instant().duration_since(started));
        assert_eq!(seen.body, answer);
        assert_eq!(posted.whole().await.status, 202);
        let last = event(&result(&upstream.seen, "{}"));
        upstream.chunk(&last).await;
        reads(&mut reply, &last).await;
        upstream.end().await;
        assert_eq!(rest(reply).await, "");
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    let entries = lictor.entries().await;
    let closings = lictor.stop(1 + 3 * 3).await;
    let asks = asked(&closings);
    assert_eq!(asks.len(), 3);
    for ask in asks {
        let told = ["kind", "method", "status", "decision", "class", "era", "server", "peer"]
            .map(|key| ask[key].as_str().unwrap_or_default());
        let expected =
            ["outcome", "elicitation/create", "ok", "permit", "write", "legacy", "files", AGENT_A];
        assert_eq!((told, ask["complete"].as_bool()), (expected, Some(true)));
        // It belongs to the call, and its intent came first.
        let cause = closings.iter().find(|entry| entry["call_id"] == ask["cause"]);
        assert_eq!(cause.expect("the call")["method"], "tools/call");
        let intent = entries
            .iter()
            .find(|entry| entry["kind"] == "intent" && entry["call_id"] == ask["call_id"]);
        assert!(intent.expect("an intent")["seq"].as_u64() < ask["seq"].as_u64());
    }
}

#[tokio::test]
async fn a_refused_request_is_answered_and_the_stream_goes_on() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    open(&mut caller, &mut stub, "s-a").await;
    for (verb, body) in [("POST", call("echo", "{}")), ("GET", String::new())] {
        let (mut reply, mut upstream) = stream(&mut caller, &mut stub, verb, &SESSION, body).await;
        let rows = [
            (sampling("\"srv-1\""), 4030, "policy_denied", "\"srv-1\""),
            (form("2").replace("elicitation", "acme"), -32601, "unknown_method", "2"),
            (form("3").replace("\"params\"", "\"Params\""), -32600, "invalid_request", "3"),
            (
                form("4").replace("\"message\":\"who?\"", "\"mode\":\"url\""),
                -32600,
                "invalid_request",
                "4",
            ),
            (form("5").replace("elicitation/create", "tools/call"), -32601, "unknown_method", "5"),
        ];
        let log = event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
        for (question, code, kind, id) in &rows {
            upstream.chunk(event(question)).await;
            let (seen, error) = told(&mut stub).await;
            assert_eq!(seen.head.header("mcp-session-id"), Some("s-a"));
            assert_eq!(seen.head.header("mcp-protocol-version"), Some("2025-11-25"));
            assert_eq!(error["id"].to_string(), *id);
            assert_eq!(
                (&error["error"]["code"], &error["error"]["data"]["kind"]),
                (&(*code).into(), &(*kind).into())
            );
            // Nothing of it has come, and the stream lives.
            upstream.chunk(&log).await;
            reads(&mut reply, &log).await;
        }
        // An answer to what the caller never saw is made up.
        let mut other = agent_a(&lictor).await;
        let made_up = r#"{"jsonrpc":"2.0","id":"srv-\u0031","result":{}}"#;
        let answer = send(&mut other, "POST", &SESSION, made_up).await.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (409, "not_asked"));
        // The same id again, for something else, is open.
        let question = event(&form("\"srv-1\""));
        upstream.chunk(&question).await;
        reads(&mut reply, &question).await;
        let posting = send(&mut other, "POST", &SESSION, made_up);
        let (posted, _) = tokio::join!(posting, told(&mut stub));
        assert_eq!(posted.whole().await.status, 202);
        let last = event(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        upstream.chunk(&last).await;
        upstream.end().await;
        assert_eq!(rest(reply).await, last);
    }
    let metrics = metrics(&lictor).await;
    let count = |name: &str, labels: &[&str]| sample(&metrics, name, labels);
    assert_eq!(count("lictor_server_replies_total", &["outcome=\"delivered\""]), 10.0);
    let sampled = ["method=\"sampling/createMessage\"", "decision=\"deny\""];
    assert_eq!(count("lictor_server_requests_total", &sampled), 2.0);
    let closings = lictor.stop(1 + 2 * (1 + 6 + 2)).await;
    let asks = asked(&closings);
    assert_eq!(asks.len(), 12);
    let refused: Vec<_> = asks.iter().filter(|ask| ask["kind"] == "denied").collect();
    assert_eq!(refused.len(), 10);
    assert!(refused.iter().all(|ask| ask["http_status"] == 202 && ask["complete"] == true));
    let sampled: Vec<_> =
        asks.iter().filter(|ask| ask["method"] == "sampling/createMessage").collect();
    assert!(sampled.iter().all(|ask| ask["policies"][0] == "no-sampling"));
}

#[tokio::test]
async fn what_a_server_is_not_told_is_on_record() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let (reply, mut upstream) =
        stream(&mut caller, &mut stub, "POST", &[], call("echo", "{}")).await;
    upstream.chunk(event(&sampling("1"))).await;
    let mut refusing = stub.call().await;
    // A server without sessions is told without one.
    assert_eq!(refusing.seen.head.header("mcp-session-id"), None);
    upstream.chunk(event(&sampling("2"))).await;
    let breaking = stub.call().await;
    // Neither holds up the stream.
    let last = event(&result(&upstream.seen, "{}"));
    upstream.chunk(&last).await;
    upstream.end().await;
    assert_eq!(rest(reply).await, last);
    refusing.send("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").await;
    refusing.keep();
    drop(breaking);
    logged(&lictor, "\"outcome\":\"rejected\"").await;
    logged(&lictor, "\"outcome\":\"failed\"").await;
    let closings = lictor.stop(3).await;
    let asks = asked(&closings);
    assert!(asks.iter().all(|ask| ask["status"] == "policy_denied" && ask["complete"] == false));
    assert_eq!(asks.iter().filter(|ask| ask["http_status"] == 500).count(), 1);
}

#[tokio::test]
async fn a_question_in_any_pieces_is_judged_whole() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let escaped = sampling("2").replace("method", "m\\u0065thod");
    let lines = form("3").replace(",\"method\"", ",\ndata: \"method\"");
    let stream_text = |last: &str| {
        format!(
            "id: 1\r\nretry: 5\r\n\r\n{}\u{feff}:\n{}\r\r{}{last}",
            event(&sampling("1")),
            format_args!("data:{escaped}"),
            event(&lines),
        )
    };
    let kept = |last: &str| format!("id: 1\r\nretry: 5\r\n\r\n{}{last}", event(&lines));
    let length = stream_text("").len();
    let mut asks = 0;
    let cuts = (1..length).step_by(37).map(|at| (at, length));
    for (first, others) in [(1, 1), (3, 3), (length, length)].into_iter().chain(cuts) {
        let (reply, mut upstream) =
            stream(&mut caller, &mut stub, "POST", &[], call("echo", "{}")).await;
        let last = event(&result(&upstream.seen, "{}"));
        let text = stream_text(&last);
        let (head, tail) = text.as_bytes().split_at(first);
        let sending = async {
            upstream.chunk(head).await;
            for piece in tail.chunks(others) {
                upstream.chunk(piece).await;
            }
            upstream.end().await;
        };
        let telling = async {
            told(&mut stub).await;
            told(&mut stub).await;
        };
        let (text, (), ()) = tokio::join!(rest(reply), sending, telling);
        assert_eq!(text, kept(&last), "cut at {first}, then every {others}");
        asks += 1;
    }
    lictor.stop(asks * 4).await;
}

#[tokio::test]
async fn a_long_question_passes_whole() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let (reply, mut upstream) =
        stream(&mut caller, &mut stub, "POST", &[], call("echo", "{}")).await;
    let question = event(&form("1").replace("who?", &"who? ".repeat(220_000)));
    let last = event(&result(&upstream.seen, "{}"));
    let sending = async {
        upstream.chunk(&question).await;
        upstream.chunk(&last).await;
        upstream.end().await;
    };
    let (text, ()) = tokio::join!(rest(reply), sending);
    assert!(text == question + &last);
    lictor.stop(2).await;
}

#[tokio::test]
async fn shadow_records_and_delivers() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).route("mode: shadow").start().await;
    let mut caller = agent_a(&lictor).await;
    let (reply, mut upstream) =
        stream(&mut caller, &mut stub, "POST", &[], call("echo", "{}")).await;
    let text = event(&sampling("1")) + &event(&result(&upstream.seen, "{}"));
    upstream.chunk(&text).await;
    upstream.end().await;
    assert_eq!(rest(reply).await, text);
    let closings = lictor.stop(2).await;
    let ask = asked(&closings)[0];
    assert_eq!((&ask["status"], &ask["would_deny"]), (&"ok".into(), &"policy_denied".into()));
    assert_eq!((&ask["mode"], &ask["complete"]), (&"shadow".into(), &true.into()));
}

#[tokio::test]
async fn refused_questions_with_equal_ids_do_not_meet() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    open(&mut a, &mut stub, "s-a").await;
    open(&mut b, &mut stub, "s-b").await;
    let of_b = [("mcp-session-id", "s-b")];
    let (to_a, mut from_a) = stream(&mut a, &mut stub, "POST", &SESSION, call("echo", "{}")).await;
    let (mut to_b, mut from_b) = stream(&mut b, &mut stub, "POST", &of_b, call("echo", "{}")).await;
    from_a.chunk(event(&sampling("1"))).await;
    assert_eq!(told(&mut stub).await.0.head.header("mcp-session-id"), Some("s-a"));
    from_b.chunk(event(&form("1"))).await;
    reads(&mut to_b, &event(&form("1"))).await;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for (caller, headers, status) in [
        (&mut agent_a(&lictor).await, &SESSION[..], 409),
        (&mut agent_b(&lictor).await, &of_b[..], 202),
    ] {
        let posting = send(caller, "POST", headers, answer);
        let posted = match status {
            202 => tokio::join!(posting, told(&mut stub)).0,
            _ => posting.await,
        };
        assert_eq!(posted.whole().await.status, status);
    }
    let last = event(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    from_a.chunk(&last).await;
    from_b.chunk(&last).await;
    from_a.end().await;
    from_b.end().await;
    assert_eq!((rest(to_a).await, rest(to_b).await), (last.clone(), last));
    lictor.stop(2 + 4 + 2).await;
}

#[tokio::test]
async fn a_modern_stream_brings_no_requests() {
    let stub = Stub::answering(|seen| {
        let text = event(&form("1")) + &event(&result(seen, r#"{"resultType":"complete"}"#));
        let body = crate::stub::chunk(text.as_bytes());
        [crate::stub::EVENTS.as_bytes(), &body, b"0\r\n\r\n"].concat()
    })
    .await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let answer = super::modern(&mut caller, "tools/call", "echo", r#""name":"echo""#).await;
    let expected = event(r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}"#);
    assert_eq!((answer.status, answer.text()), (200, expected));
    assert_eq!(stub.requests(), 1);
    let closings = lictor.stop(2).await;
    assert_eq!(asked(&closings)[0]["status"], "invalid_request");
}

#[tokio::test]
async fn progress_after_the_answer_does_not_reach_the_caller() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let progress = event(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    );
    let log = event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    for (text, is_late) in [("{}", true), (r#"{"task":{"taskId":"t-1"}}"#, false)] {
        let body = call_with_token("echo", "1");
        let (reply, mut upstream) = stream(&mut caller, &mut stub, "POST", &[], body).await;
        let answer = event(&result(&upstream.seen, text));
        upstream.chunk([": begins\n\n", &progress, &answer, &progress, &log].concat()).await;
        upstream.end().await;
        let late = if is_late { "" } else { &progress };
        let expected = [": begins\n\n", &progress, &answer, late, &log].concat();
        assert_eq!(rest(reply).await, expected);
    }
    let late = sample(&metrics(&lictor).await, "lictor_withheld_messages_total", &[]);
    assert_eq!(late, 1.0);
    lictor.stop(2).await;
}

#[tokio::test]
async fn progress_of_another_token_does_not_reach_the_caller() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let progress = |token: &str| {
        event(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{token}"progress":1}}}}"#
        ))
    };
    let (text, same) = (progress(r#""progressToken":"p\"é","#), r#""p\u0022\u00e9""#);
    let (one, two) = (progress(r#""progressToken":1,"#), progress(r#""progressToken":2,"#));
    let as_text = progress(r#""progressToken":"1","#);
    let (none, null) = (progress(""), progress(r#""progressToken":null,"#));
    for (body, passes) in [
        (call_with_token("echo", "1"), &one),
        (call_with_token("echo", same), &text),
        (call("echo", "{}"), &String::new()),
    ] {
        let (reply, mut upstream) = stream(&mut caller, &mut stub, "POST", &[], body).await;
        let answer = event(&result(&upstream.seen, "{}"));
        let told = [&*one, &*two, &*as_text, &*none, &*null, &*text, &*answer].concat();
        upstream.chunk(told).await;
        upstream.end().await;
        assert_eq!(rest(reply).await, [&**passes, &*answer].concat());
    }
    let withheld = ["reason=\"progress\""];
    let withheld = sample(&metrics(&lictor).await, "lictor_withheld_messages_total", &withheld);
    assert_eq!(withheld, 5.0 + 5.0 + 6.0);
    lictor.stop(3).await;
}

#[tokio::test]
async fn a_caller_who_leaves_ends_the_stream_and_cancels_nothing() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    for is_modern in [false, true] {
        let mut caller = agent_a(&lictor).await;
        let asking = async {
            match is_modern {
                true => {
                    super::modern_reply(&mut caller, "tools/call", "echo", r#""name":"echo""#).await
                }
                false => send(&mut caller, "POST", &[], call("echo", "{}")).await,
            }
        };
        let (mut reply, mut upstream) = tokio::join!(asking, async {
            let mut call = stub.call().await;
            call.begin_events().await;
            call
        });
        upstream.chunk(": begins\n\n").await;
        reads(&mut reply, ": begins\n\n").await;
        drop((reply, caller));
        upstream.abandoned().await;
    }
    // Whoever wants to cancel a call says so.
    assert_eq!(stub.requests(), 2);
    let closings = lictor.stop(2).await;
    assert!(closings.iter().all(|entry| entry["status"] == "client_gone"));
}

//! Streams that readers could read in several ways, and streams that end without what they are for.

use super::{asked, event, open, reads, rest, sampling, site, stream, told};
use crate::{
    site::{Site, agent_a, call, call_with_token, metrics, sample, send},
    stub::{Stub, result},
};

const SESSION: [(&str, &str); 2] =
    [("mcp-session-id", "s-a"), ("mcp-protocol-version", "2025-11-25")];
const RESUMED: [(&str, &str); 3] = [SESSION[0], SESSION[1], ("last-event-id", "1")];

/// Types of answers, as lines of their heads.
const KINDS: [&str; 4] = [
    "",
    "Content-Type: text/plain\r\n",
    "Content-Type: application/json\r\n",
    "Content-Type: x/event-stream\r\n",
];

/// The TypeScript SDKs read what comes on a session's stream as events, whatever its type says.
#[tokio::test]
async fn a_sessions_own_stream_is_events_or_nothing() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    open(&mut caller, &mut stub, "s-a").await;
    let question = format!("data: {}\n\n", sampling("1"));
    let long = question.clone() + &": x\n\n".repeat(20 << 10);
    let mut calls = 0;
    for headers in [&SESSION[..], &RESUMED[..]] {
        for body in ["", "{}", &question, &long] {
            for (status, passes) in [("200 OK", false), ("202 Accepted", false), ("405 No", true)] {
                for kind in KINDS {
                    let answer = format!(
                        "HTTP/1.1 {status}\r\n{kind}Content-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    let refused = !passes || kind.contains("event");
                    let (reply, ()) = tokio::join!(send(&mut caller, "GET", headers, ""), async {
                        let mut call = stub.call().await;
                        // Not all of it is taken.
                        call.wire.try_send(answer).await;
                        if body.len() < 1000 && !refused {
                            call.keep();
                        }
                    });
                    let answer = reply.whole().await;
                    let expected = if refused { 502 } else { 405 };
                    assert_eq!(answer.status, expected, "{status} {kind} {}", body.len());
                    assert!(!refused || !answer.text().contains("sampling"), "{status} {kind}");
                    calls += 1;
                }
            }
        }
    }
    let closings = lictor.stop(1 + calls).await;
    assert!(asked(&closings).is_empty());
    let refused = closings.iter().filter(|entry| entry["status"] == "upstream_unreadable");
    assert_eq!(refused.count(), calls * 9 / 12);
}

/// What is judged of an event is what every reader finds in it.
#[tokio::test]
async fn no_reader_finds_a_request_where_another_one_was_judged() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    open(&mut caller, &mut stub, "s-a").await;
    let asks = sampling("1");
    // What comes first on a stream, and whether a request is found in it.
    let rows = [
        (format!("ï»¿data: {asks}\n\n"), true),
        (format!("\u{feff}ï»¿data: {asks}\n\n"), true),
        (format!("\u{feff}data: \"\ndata: {asks}\n\n"), false),
        // What comes before it stays here, so it is the first that the caller would see.
        (format!("event: endpoint\u{b}\n\n\u{feff}data: {asks}\n\n"), false),
        (format!(": x\u{2028}data: {asks}\n\n"), false),
        (format!(": x\u{2028}\u{2028}data: {asks}\n\n"), false),
        (format!("data: \"\u{2028}\"\ndata: {asks}\n\n"), false),
        (format!("data: \"\ndata: {asks}\n\n"), false),
        (format!(": x\rdata: \"\ndata: {asks}\n\n"), false),
        (format!("Data: {asks}\n\n"), false),
        (format!(" data: {asks}\n\n"), false),
        (format!("data: \0\"\ndata: {asks}\n\n"), false),
    ];
    let mut refused = 0;
    for (verb, headers) in [("POST", &SESSION[..]), ("GET", &SESSION[..]), ("GET", &RESUMED[..])] {
        for (row, asks) in &rows {
            let body = if verb == "POST" { call("echo", "{}") } else { String::new() };
            let (mut reply, mut upstream) =
                stream(&mut caller, &mut stub, verb, headers, body).await;
            upstream.chunk(row).await;
            if *asks {
                let (_, error) = told(&mut stub).await;
                assert_eq!((&error["id"], &error["error"]["code"]), (&1.into(), &4030.into()));
                refused += 1;
            }
            let last = event(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
            upstream.chunk(&last).await;
            reads(&mut reply, &last).await;
            upstream.end().await;
            assert_eq!(rest(reply).await, "", "{row:?}");
        }
    }
    let closings = lictor.stop(1 + 3 * rows.len() + refused).await;
    assert_eq!(asked(&closings).len(), refused);
}

#[tokio::test]
async fn what_has_one_meaning_goes_on_in_one_reading() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{"text":"$"}}"#;
    for (sent, expected) in [
        (format!("\u{feff}data: {answer}\n\n"), format!("data: {answer}\n\n")),
        (format!("id: 1\rdata: {answer}\r\r"), format!("id: 1\ndata: {answer}\n\n")),
        (
            format!("id: 1\r\ndata: {}\r\n\r\n", answer.replace('$', "a\u{2028}\u{85}é")),
            format!("id: 1\ndata: {}\n\n", answer.replace('$', "a\\u2028\\u0085é")),
        ),
        (
            format!(": \u{2028}\ndata: {}\n\n", answer.replace(",\"id", ",\ndata: \"id")),
            format!("data: {}\n\n", answer.replace(",\"id", ",\ndata: \"id")),
        ),
    ] {
        let body = call("echo", "{}");
        let (reply, mut upstream) = stream(&mut caller, &mut stub, "POST", &[], body).await;
        for byte in sent.as_bytes().chunks(1) {
            upstream.chunk(byte).await;
        }
        upstream.end().await;
        assert_eq!(rest(reply).await, expected);
    }
    for entry in lictor.stop(4).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"ok".into(), &true.into()));
    }
}

#[tokio::test]
async fn events_are_read_as_utf_8() {
    for (kind, passes_as) in [
        ("text/event-stream", Some("text/event-stream")),
        ("text/event-stream; charset=UTF-8", Some("text/event-stream; charset=UTF-8")),
        ("text/event-stream;charset=ISO-8859-1", Some("text/event-stream")),
        ("text/event-stream; charset*=us-ascii''utf-7", None),
        ("text/event-stream; charset*0=utf-7", None),
        ("text/event-stream; charset*0*=us-ascii''utf; charset*1=-7", None),
        ("text/event-stream; \"charset\"=utf-7", None),
        ("text/event-stream; charset=utf-7", None),
    ] {
        let stub = Stub::answering(move |seen| {
            let body = event(&result(seen, "{}"));
            let length = body.len();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .into()
        })
        .await;
        let lictor = Site::to(&stub.url()).start().await;
        let mut caller = agent_a(&lictor).await;
        let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
        match passes_as {
            Some(expected) => assert_eq!(answer.header("content-type"), Some(expected)),
            None => assert_eq!((answer.status, &*answer.kind()), (502, "upstream_unreadable")),
        }
        lictor.stop(1).await;
    }
}

/// Clients of TypeScript would wait for it until their time is up.
#[tokio::test]
async fn a_stream_that_ends_without_its_answer_has_failed() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let progress = event(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    );
    let beat = "event: heartbeat\ndata: {\"beats\":1}\n\n";
    let rows = [
        // Without an answer, or with half of one.
        (String::new(), true),
        (progress.clone(), true),
        (": nothing\n\nretry: 1\n\nid\ndata:\n\n".to_owned(), true),
        ([beat, &progress].concat(), true),
        (r#"data: {"jsonrpc":"2.0","id":7,"result":{}}"#.to_owned(), true),
        ("data: ok\n\n".to_owned(), true),
        // The caller can come back for it.
        (["id: 1\ndata:\n\n", &progress].concat(), false),
        // With one, of either kind.
        (event(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#), false),
        (event(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}"#), false),
        (event(r#"{"jsonrpc":"2.0","id":7,"r\u0065sult":{}}"#), false),
        (event(r#"{"jsonrpc":"2.0","id":7,"result":{"tasks":[{"taskId":"t"}]}}"#), false),
        (event(r#"{"jsonrpc":"2.0","id":7,"result":{"task":{"taskId":"t-1"}}}"#), false),
    ];
    for closes in [false, true] {
        for (text, fails) in &rows {
            let body = call_with_token("echo", "1");
            let (mut reply, ()) = tokio::join!(send(&mut caller, "POST", &[], body), async {
                let mut upstream = stub.call().await;
                if closes {
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
                    upstream.send(format!("{head}{text}")).await;
                } else {
                    upstream.begin_events().await;
                    if !text.is_empty() {
                        upstream.chunk(text).await;
                    }
                    upstream.end().await;
                }
            });
            let whole = if text.ends_with("\n\n") { text } else { "" };
            reads(&mut reply, whole).await;
            let left = rest(reply).await;
            if *fails {
                assert!(left.ends_with("\n\n") && left.contains(r#""id":7"#), "{text}: {left}");
                assert!(left.contains(r#""kind":"upstream_failed""#), "{text}: {left}");
            } else {
                assert_eq!(left, "", "{text}");
            }
        }
    }
    let closings = lictor.stop(2 * rows.len()).await;
    let failed = closings.iter().filter(|entry| entry["status"] == "upstream_failed");
    let failed: Vec<_> = failed.collect();
    assert_eq!(failed.len(), 2 * 6);
    assert!(failed.iter().all(|entry| entry["complete"] == false && entry["http_status"] == 200));
    assert!(closings.iter().all(|entry| {
        let status = entry["status"].as_str();
        entry["complete"] == (status == Some("ok"))
    }));
}

/// Whoever has cancelled a call expects no answer, and takes one for a fault.
#[tokio::test]
async fn the_stream_of_a_cancelled_call_may_end_without_one() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let mut other = agent_a(&lictor).await;
    open(&mut caller, &mut stub, "s-a").await;
    for (headers, id, ends_well) in [
        (&SESSION[..], "7", true),
        (&SESSION[..], "8", false),
        // It is used up.
        (&SESSION[..], "", false),
        (&[][..], "7", true),
    ] {
        let body = call("echo", "{}");
        let (reply, upstream) = stream(&mut caller, &mut stub, "POST", headers, body).await;
        if !id.is_empty() {
            let cancelled = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            );
            let posting = send(&mut other, "POST", headers, cancelled);
            let (posted, _) = tokio::join!(posting, told(&mut stub));
            assert_eq!(posted.whole().await.status, 202);
        }
        upstream.end().await;
        let left = rest(reply).await;
        assert_eq!(left.is_empty(), ends_well, "{id}: {left}");
    }
    lictor.stop(1 + 4 + 3).await;
}

#[tokio::test]
async fn what_is_no_answer_ends_no_progress() {
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let progress = event(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    );
    let body = call_with_token("echo", "1");
    let (reply, mut upstream) = stream(&mut caller, &mut stub, "POST", &[], body).await;
    let beat = "event: heartbeat\ndata: {}\n\n";
    let answer = event(&result(&upstream.seen, "{}"));
    let text = [beat, &progress, "data: ok\n\n", &progress, &answer].concat();
    upstream.chunk(&text).await;
    upstream.end().await;
    assert_eq!(rest(reply).await, text);
    let withheld = sample(&metrics(&lictor).await, "lictor_withheld_messages_total", &[]);
    assert_eq!(withheld, 0.0);
    lictor.stop(1).await;
}

//! Answers in one document, which can be any message at all.

use crate::{
    site::{Site, agent_a, call, request, send},
    stub::{Stub, json},
};

/// Text of no meaning that makes a document too long to be held.
fn padding() -> String {
    "a\\u0062c {\\\"method\\\":1} ".repeat(8 << 10)
}

#[tokio::test]
async fn a_document_that_is_no_answer_is_withheld() {
    let rows = [
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
        r#"[{"jsonrpc":"2.0","id":7,"result":{}},{"jsonrpc":"2.0","id":1,"method":"roots/list"}]"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{},"m\u0065thod":"roots/list"}"#,
        "\u{feff}{\"id\":1,\"method\":\"x\"}",
        r#"{"jsonrpc":"2.0","id":7,"result":{}}{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#,
    ];
    for (messages, tool) in [("tools/call", "echo"), ("tools/list", "")] {
        for row in rows {
            let stub = Stub::answering(move |_| json(row)).await;
            let lictor = Site::to(&stub.url()).start().await;
            let body = match messages {
                "tools/list" => request(messages, "{}"),
                _ => call(tool, "{}"),
            };
            let answer = send(&mut agent_a(&lictor).await, "POST", &[], body).await.whole().await;
            let told = (answer.status, answer.kind());
            assert_eq!(told, (502, "upstream_unreadable".to_owned()), "{row}");
            assert_eq!(answer.json()["id"], 7);
            let closings = lictor.stop(1).await;
            assert_eq!(closings[0]["status"], "upstream_unreadable");
        }
    }
}

#[tokio::test]
async fn a_long_document_is_cut_where_it_turns_out_to_be_none() {
    let padding = padding();
    let rows = [
        (format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{padding}"}}}}"#), true),
        (format!(r#"{{"id":7,"result":{{"a":["{padding}"]}},"method":"roots/list"}}"#), false),
        (format!(r#"{{"id":7,"result":{{"a":"{padding}","task":{{"taskId":"t"}}}}}}"#), false),
        (format!(r#"{{"id":7,"error":{{"data":{{"a":"{padding}","elicitations":[]}}}}}}"#), false),
        (format!(r#"{{"id":7,"result":"{padding}"}} [{{"method":"roots/list"}}]"#), false),
    ];
    for (document, passes) in rows {
        let text = document.clone();
        let stub = Stub::answering(move |_| json(&text)).await;
        let lictor = Site::to(&stub.url()).start().await;
        let mut caller = agent_a(&lictor).await;
        let mut reply = send(&mut caller, "POST", &[], call("echo", "{}")).await;
        assert_eq!(reply.status, 200);
        let mut received = Vec::new();
        let whole = loop {
            match reply.try_chunk().await {
                Ok(Some(part)) => received.extend_from_slice(&part),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        assert_eq!(whole, passes);
        assert_eq!(received == document.as_bytes(), passes);
        assert!(document.as_bytes().starts_with(&received));
        let closings = lictor.stop(1).await;
        assert_eq!(closings[0]["status"], if passes { "ok" } else { "upstream_unreadable" });
    }
}

#[tokio::test]
async fn a_body_that_readers_could_decode_in_two_ways_is_refused() {
    for header in [
        "Content-Type: application/json; charset=utf-16le",
        "Content-Type: application/json; charset=\"utf-7\"",
        "Content-Type: application/json; charset*=us-ascii''utf-7",
        "Content-Type: application/json; charset*0=utf-7",
        "Content-Type: application/json\r\nContent-Encoding: gzip",
        "Content-Type: application/json\r\nContent-Type: text/event-stream",
        "Content-Type: text/event-stream\r\nContent-Encoding: br",
        "Content-Type: text/plain; x=text/event-stream",
        "Content-Type: text/event-streams",
        "Content-Type: text/plain, Text/Event-Stream",
        "Content-Type: text/event-stream; x=application/json",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{header}\r\nContent-Length: 2\r\n\r\n{{}}");
        let stub = Stub::answering(move |_| answer.clone().into()).await;
        let lictor = Site::to(&stub.url()).start().await;
        let mut caller = agent_a(&lictor).await;
        let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
        let told = (answer.status, answer.kind());
        assert_eq!(told, (502, "upstream_unreadable".to_owned()), "{header}");
        lictor.stop(1).await;
    }
}

#[tokio::test]
async fn an_error_page_that_cannot_be_judged_keeps_its_status() {
    for (page, kept) in [
        (r#"{"status":404,"error":"Not Found"}"#, true),
        ("<html>\"method\":1</html>", true),
        (r#"{"status":404,"method":"POST"}"#, false),
        (r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#, false),
    ] {
        let stub = Stub::answering(move |_| {
            let text = String::from_utf8(json(page)).expect("UTF-8");
            text.replace("200 OK", "404 Not Found").into_bytes()
        })
        .await;
        let lictor = Site::to(&stub.url()).start().await;
        let mut caller = agent_a(&lictor).await;
        let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
        assert_eq!((answer.status, &*answer.text()), (404, if kept { page } else { "" }));
        lictor.stop(1).await;
    }
}

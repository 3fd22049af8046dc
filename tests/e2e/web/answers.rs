//! What a caller gets of an API's answers.

use std::time::Duration;

use super::*;
use crate::subject::upstream_tls;

/// The number in a status line.
fn code(status: &str) -> String {
    status.split(' ').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn any_status_passes_as_it_is() {
    let rows: [(&str, &str, &str, &str); 9] = [
        ("/ok", "200 OK", "Content-Encoding: gzip\r\nContent-Type: text/x\r\n", "zipped"),
        ("/part", "206 Partial Content", "Content-Range: bytes 0-1/9\r\n", "ab"),
        ("/none", "204 No Content", "", ""),
        ("/same", "304 Not Modified", "ETag: \"1\"\r\n", ""),
        ("/choices", "300 Multiple Choices", "", "choose"),
        ("/who", "401 Unauthorized", "WWW-Authenticate: Bearer realm=\"api\"\r\n", "{}"),
        ("/missing", "404 Not Found", "Content-Type: application/json\r\n", "not json"),
        ("/odd", "418 I'm a teapot", "Content-Type: text/event-stream2\r\n", "tea"),
        ("/broken", "500 Internal Server Error", "", "stack"),
    ];
    let api = Stub::answering(move |seen| {
        let target = line(seen).split(' ').nth(1).expect("a target");
        let (_, status, headers, body) = rows.iter().find(|row| row.0 == target).expect("a row");
        match code(status).as_str() {
            "204" => format!("HTTP/1.1 {status}\r\n{headers}\r\n").into_bytes(),
            // The length of what it would be without the condition.
            "304" => {
                format!("HTTP/1.1 {status}\r\nContent-Length: 5120\r\n{headers}\r\n").into_bytes()
            }
            _ => reply(status, headers, body),
        }
    })
    .await;
    let site = Setup::to(&base(&api, "/")).upstream("breaker: { enabled: false }").start().await;
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        for (target, status, headers, body) in rows {
            let answer = asked(&mut caller, "GET", &format!("/api{target}"), &[], "").await;
            let told = (answer.status.to_string(), answer.text());
            assert_eq!(told, (code(status), body.to_owned()), "{transport:?} {target}");
            for header in headers.lines() {
                let (name, value) = header.split_once(": ").expect("a header");
                assert_eq!(answer.header(name), Some(value), "{target}");
            }
            let length = answer.header("content-length");
            assert_eq!(length.is_none(), matches!(answer.status, 204 | 304), "{target}");
            let whole = asked(&mut caller, "HEAD", &format!("/api{target}"), &[], "").await;
            assert_eq!((whole.status, whole.body.len()), (answer.status, 0), "{target}");
            assert_eq!(whole.header("content-length"), length, "{transport:?} {target}");
        }
    }
    let closings = site.lictor.stop(rows.len() * 6).await;
    assert!(closings.iter().all(|entry| entry["complete"] == true && entry["status"] == "ok"));
}

#[tokio::test]
async fn a_large_answer_is_not_held() {
    let mut api = Stub::scripted().await;
    let site = Setup::to(&base(&api, "/")).with("limits: { answer: 1KiB }").start().await;
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        let request = ask(&caller, "GET", "/api/large", &[], "");
        let ((mut reply, mut call), part) = {
            let answering = async {
                let mut call = api.call().await;
                call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                call.chunk(vec![b'a'; 100_000]).await;
                call
            };
            (tokio::join!(caller.send(request), answering), 100_000)
        };
        let mut read = 0;
        while read < part {
            read += reply.chunk().await.expect("more").len();
        }
        call.chunk("the end").await;
        call.end().await;
        assert_eq!(reply.whole().await.text(), "the end");
    }
    let closings = site.lictor.stop(3).await;
    assert!(closings.iter().all(|entry| entry["resp_bytes"] == 100_007));
}

#[tokio::test]
async fn nothing_is_put_into_a_stream() {
    let mut api = Stub::scripted().await;
    let site = Setup::to(&base(&api, "/"))
        .listener("timeouts: { keepAlive: 50ms }")
        .upstream("timeouts: { idle: 100ms }")
        .start()
        .await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    let request = ask(&caller, "GET", "/api/events", &[], "");
    let (reply, ()) = tokio::join!(caller.send(request), async {
        let mut call = api.call().await;
        call.begin_events().await;
        call.chunk("data: be").await;
        // Longer than a document may be silent, and than others are kept alive after.
        tokio::time::sleep(Duration::from_millis(300)).await;
        call.chunk("gun\n\n: \n\ndata: x\n\n").await;
        call.end().await;
    });
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(reply.whole().await.text(), "data: begun\n\n: \n\ndata: x\n\n");
    site.lictor.stop(1).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_cut() {
    let mut api = Stub::scripted().await;
    let site = Setup::to(&base(&api, "/")).start().await;
    for kind in ["text/event-stream", "text/plain"] {
        let mut caller = site.lictor.caller(Transport::Http1).await;
        let request = ask(&caller, "GET", "/api/a", &[], "");
        let (mut reply, ()) = tokio::join!(caller.send(request), async {
            let mut call = api.call().await;
            let head = "Transfer-Encoding: chunked\r\n\r\n";
            call.send(format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{head}")).await;
            call.chunk("data: a\n\n").await;
        });
        assert_eq!(reply.chunk().await.as_deref(), Some(&b"data: a\n\n"[..]));
        assert!(reply.try_chunk().await.is_err(), "{kind}");
    }
    let closings = site.lictor.stop(2).await;
    for entry in closings {
        assert_eq!(
            (&entry["status"], &entry["complete"]),
            (&"upstream_failed".into(), &false.into())
        );
    }
}

#[tokio::test]
async fn a_length_that_is_told_twice_goes_on_as_one() {
    let mut api = Stub::scripted_tls(upstream_tls(b"http/1.1")).await;
    let url = format!("https://{}/v1", api.address);
    let site = Setup::to(&url).upstream("spiffeId: spiffe://one.test/server").start().await;
    for transport in TRANSPORTS {
        let mut caller = site.lictor.caller(transport).await;
        for told in ["Content-Length: 4, 4\r\n", "Content-Length: 4\r\nContent-Length: 4\r\n"] {
            let request = ask(&caller, "GET", "/api/a", &[], "");
            let (answer, ()) = tokio::join!(caller.send(request), async {
                let mut call = api.call().await;
                call.send(format!("HTTP/1.1 200 OK\r\n{told}\r\ndone")).await;
                call.keep();
            });
            assert_eq!(answer.header("content-length"), Some("4"), "{transport:?} {told}");
            assert_eq!(answer.whole().await.text(), "done", "{transport:?} {told}");
        }
    }
    let closings = site.lictor.stop(6).await;
    assert!(closings.iter().all(|entry| entry["complete"] == true));
}

#[tokio::test]
async fn an_api_behind_tls_proves_who_it_is() {
    let mut api = Stub::scripted_tls(upstream_tls(b"http/1.1")).await;
    let url = format!("https://{}/v1", api.address);
    let site = Setup::to(&url).upstream("spiffeId: spiffe://one.test/server").start().await;
    let mut caller = site.lictor.caller(Transport::Http2Tls).await;
    let json = [("content-type", "application/json")];
    let request = ask(&caller, "PUT", "/api/a?b=c", &json, "{}");
    let (answer, ()) = tokio::join!(caller.send(request), async {
        let mut call = api.call().await;
        assert_eq!(line(&call.seen), "PUT /v1/a?b=c");
        call.send(reply("200 OK", "", "done")).await;
        call.keep();
    });
    assert_eq!(answer.whole().await.text(), "done");
    site.lictor.stop(1).await;
    let site = Setup::to(&url).upstream("spiffeId: spiffe://one.test/another").start().await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    let answer = asked(&mut caller, "GET", "/api/a", &[], "").await;
    problem(&answer, 502, "upstream_unreachable");
    site.lictor.stop(1).await;
}

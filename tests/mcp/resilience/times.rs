//! Time limits of answers.

use super::*;

#[tokio::test]
async fn a_document_that_never_ends_is_ended() {
    let mut server = Stub::scripted().await;
    let times = format!("timeouts: {{ call: 1s }}, {BREAKER}");
    let lictor = Site::to(&server.url()).upstream(&times).start().await;
    let mut caller = agent_a(&lictor).await;
    // It is never silent for long.
    for _ in 0..5 {
        let body = call("echo", "{}");
        let (reply, ()) = tokio::join!(send(&mut caller, "POST", &[], body), async {
            let mut call = server.call().await;
            call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            while call.wire.try_send(stub::chunk(b" ")).await {
                sleep(Duration::from_millis(20)).await;
            }
        });
        let answer = reply.whole().await;
        assert_eq!((answer.status, kind(&answer).as_str()), (504, "upstream_timeout"));
    }
    assert_eq!(kind(&post(&mut caller, call("echo", "{}")).await), "breaker_open");
    lictor.stop(6).await;
}

#[tokio::test]
async fn a_stream_may_take_longer_than_a_call_and_be_silent_unless_that_is_limited() {
    let mut server = Stub::scripted().await;
    for (more, ends) in [("", false), (", streamIdle: 1s", true)] {
        let times = format!("timeouts: {{ call: 500ms, firstByte: 500ms{more} }}");
        let lictor = Site::to(&server.url()).upstream(&times).start().await;
        let mut caller = agent_a(&lictor).await;
        let body = call("echo", "{}");
        let (mut reply, mut call) = tokio::join!(send(&mut caller, "POST", &[], body), async {
            let mut call = server.call().await;
            call.begin_events().await;
            call
        });
        // Signs of life are as good as news.
        for _ in 0..20 {
            sleep(Duration::from_millis(100)).await;
            call.chunk(": alive\n\n").await;
            assert_eq!(reply.chunk().await.expect("a piece"), ": alive\n\n");
        }
        if ends {
            let last = reply.chunk().await.expect("a piece");
            let last = String::from_utf8(last.to_vec()).expect("text");
            assert!(last.contains(r#""kind":"upstream_timeout""#), "{last}");
            assert!(last.contains(r#""id":7"#), "{last}");
            assert_eq!(reply.chunk().await, None);
            call.abandoned().await;
        } else {
            sleep(Duration::from_millis(1500)).await;
            let last = format!("data: {}\n\n", stub::result(&call.seen, "{}"));
            call.chunk(&last).await;
            call.end().await;
            assert_eq!(reply.chunk().await.expect("a piece"), last);
        }
        lictor.stop(1).await;
    }
}

//! What stays of streams whose callers have gone.

use super::*;
use crate::post_whole;

/// Open at once; more than one caller may have calls at once.
const EACH: usize = 600;

/// F-63.
#[tokio::test]
async fn nothing_of_a_stream_outlives_its_caller() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let directory = format!("/proc/{}/fd", lictor.id());
    let descriptors = || std::fs::read_dir(&directory).expect("a process").count();
    let before = descriptors();
    let mut open = vec![];
    for _ in 0..EACH {
        let mut wire = lictor.wire().await;
        wire.send(post_whole("", CALL)).await;
        let mut call = stub.call().await;
        call.begin_events().await;
        assert_eq!(wire.head().await.status(), 200);
        open.push((wire, call));
    }
    assert!(descriptors() >= before + 2 * EACH);
    // They are in no call's way.
    let mut caller = lictor.caller(Transport::Http1).await;
    let (reply, ()) =
        tokio::join!(caller.post(CALL), async { stub.call().await.answer("{}").await });
    assert_eq!(reply.whole().await.json()["result"], serde_json::json!({}));
    drop(caller);
    let mut upstream = vec![];
    for (number, (mut wire, call)) in open.into_iter().enumerate() {
        // Some say first that they send no more.
        if number % 2 == 0 {
            wire.finish().await;
        }
        drop(wire);
        upstream.push(call);
    }
    for mut call in upstream {
        call.abandoned().await;
    }
    let closing = async {
        while descriptors() > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("as many descriptors as before", closing).await;
    let closed = lictor.stop(EACH + 1).await;
    let gone = closed.iter().filter(|entry| entry["status"] == "client_gone").count();
    assert_eq!(gone, EACH);
}

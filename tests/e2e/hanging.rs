//! A disk that hangs and says nothing: who waits for it, for how long, and what is on record once it has come back.

use std::{collections::BTreeMap, fs, time::Duration};

use serde_json::Value;
use tokio::time::sleep;

use crate::{
    CALL, CHANGE,
    http::{Answer, Caller, Transport, whole, within},
    stub::Stub,
    subject::{Lictor, Setup},
};

/// What administration says at a path.
async fn told(lictor: &Lictor, path: &str) -> String {
    let mut operator = Caller::plain(lictor.administration()).await;
    let request = operator.request_to("GET", path, whole(""));
    operator.send(request).await.whole().await.text()
}

/// Waits until metrics say so.
async fn until(lictor: &Lictor, sample: &str) {
    let line = format!("\n{sample}\n");
    while !told(lictor, "/metrics").await.contains(&line) {
        sleep(Duration::from_millis(20)).await;
    }
}

async fn answer(lictor: &Lictor, transport: Transport, body: &'static str) -> Answer {
    lictor.caller(transport).await.post(body).await.whole().await
}

fn places(count: usize) -> String {
    format!("lictor_upstream_places_taken{{kind=\"call\",upstream=\"files\"}} {count}")
}

/// Lets the disk hang, once so many calls are on record.
async fn hang(lictor: &Lictor, calls: usize) {
    let recorded = async {
        while kinds(&lictor.entries().await).iter().filter(|kinds| ended(kinds)).count() < calls {}
    };
    within("a record of what was before", recorded).await;
    fs::write(lictor.directory().join("hang"), "").expect("a file");
}

fn ended(kinds: &[(&str, &str)]) -> bool {
    kinds.last().is_some_and(|(kind, _)| *kind == "outcome")
}

#[tokio::test]
async fn a_disk_that_hangs_refuses_what_it_cannot_record_and_nothing_else() {
    let stub = Stub::json().await;
    let lictor = Setup::to(&stub.url())
        .ledger("onFailure: denyWrites")
        .upstream("bulkhead: { calls: 2, callsPerCaller: 2, queue: 0 }")
        .hanging()
        .start()
        .await;
    for body in [CALL, CHANGE] {
        assert_eq!(answer(&lictor, Transport::Http1, body).await.status, 200);
    }
    hang(&lictor, 2).await;
    let mut waiting = Vec::new();
    for transport in [Transport::Http1Tls, Transport::Http2Tls] {
        let mut caller = lictor.caller(transport).await;
        let request = caller.request("POST", whole(CHANGE));
        waiting.push(tokio::spawn(async move { caller.send(request).await.whole().await }));
    }
    within("both places", until(&lictor, &places(2))).await;
    let busy = answer(&lictor, Transport::Http1, CALL).await;
    assert_eq!(busy.kind(), "upstream_busy");
    // Who leaves gives the place back while the other still waits.
    let mut stays = waiting.pop().expect("a caller");
    let leaves = waiting.pop().expect("a caller");
    leaves.abort();
    let one = places(1);
    tokio::select! { biased;
        answer = &mut stays => panic!("answered already: {answer:?}"),
        () = within("a place", until(&lictor, &one)) => {}
    }
    assert_eq!(answer(&lictor, Transport::Http1, CALL).await.status, 200);
    let refused = within("an end of the wait", stays).await.expect("no panic");
    assert_eq!((refused.status, refused.kind().as_str()), (503, "ledger_unavailable"));
    // From now on nobody waits, and what needs no entry first goes on.
    let mut caller = lictor.caller(Transport::Http1).await;
    let refusals = async {
        for _ in 0..20 {
            let refused = caller.post(CHANGE).await.whole().await;
            assert_eq!((refused.status, refused.kind().as_str()), (503, "ledger_unavailable"));
            assert_eq!(caller.post(CALL).await.whole().await.status, 200);
        }
    };
    within("refusals and answers", refusals).await;
    assert_eq!(stub.requests(), 23);
    within("metrics", until(&lictor, "lictor_ledger_writable 0")).await;
    assert!(told(&lictor, "/readyz").await.contains("the ledger can't be written"));
    lictor.logged("the commit under way takes too long").await;
    fs::remove_file(lictor.directory().join("hang")).expect("a file");
    within("metrics", until(&lictor, "lictor_ledger_writable 1")).await;
    lictor.logged("the ledger writes again").await;
    assert_eq!(answer(&lictor, Transport::Http1, CHANGE).await.status, 200);
    let entries = lictor.entries().await;
    let calls = kinds(&entries);
    let count = |kinds: &[(&str, &str)]| calls.iter().filter(|call| **call == kinds).count();
    // The disk got both intents in the end.
    assert_eq!(count(&[("intent", "open"), ("outcome", "client_gone")]), 1, "{calls:?}");
    assert_eq!(count(&[("intent", "open"), ("outcome", "ledger_unavailable")]), 1, "{calls:?}");
    assert_eq!(count(&[("outcome", "ledger_unavailable")]), 20, "{calls:?}");
    lictor.stop(2 + 1 + 1 + 1 + 1 + 40 + 1).await;
}

/// What was written of each call, and how it says that it ended.
fn kinds(entries: &[Value]) -> Vec<Vec<(&str, &str)>> {
    let mut calls = BTreeMap::<&str, Vec<_>>::new();
    for entry in entries {
        if let Some(call) = entry["call_id"].as_str() {
            let kind = entry["kind"].as_str().expect("a kind");
            let status = entry["status"].as_str().unwrap_or("open");
            calls.entry(call).or_default().push((kind, status));
        }
    }
    calls.into_values().collect()
}

#[tokio::test]
async fn a_disk_that_hangs_holds_up_no_end() {
    let stub = Stub::json().await;
    let mut lictor = Setup::to(&stub.url()).hanging().start().await;
    assert_eq!(answer(&lictor, Transport::Http1, CHANGE).await.status, 200);
    hang(&lictor, 1).await;
    assert_eq!(answer(&lictor, Transport::Http1, CALL).await.status, 200);
    lictor.terminate().await;
    assert!(lictor.ended().await.success());
    lictor.logged("the disk hangs").await;
    // It was written, and what was written is there, though nobody had said so.
    lictor.closings(2).await;
}

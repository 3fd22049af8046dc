//! Certificates and bundles that change under a running Lictor.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{interval, sleep};

use super::{PAUSE, ended, knock, streaming};
use crate::{
    ca::{Ca, Credential},
    http::{Caller, within},
    site::{Site, TD_ONE, ask, call, logged, send, tls_of},
    stub::{Stub, json, result},
    subject::Lictor,
};

/// Waits until a caller who shows this is served, or is not any more; how often it was.
async fn until(lictor: &Lictor, what: &str, shown: &Credential, served: bool) -> usize {
    let looking = async {
        let mut calls = 0;
        while knock(lictor, &tls_of(shown)).await.starts_with("HTTP/1.1 200 ") != served {
            calls += usize::from(!served);
            sleep(PAUSE).await;
        }
        calls + usize::from(served)
    };
    within(what, looking).await
}

#[tokio::test]
async fn a_bundle_is_swapped_without_a_restart() {
    let mut streams = Stub::scripted().await;
    let (old, new) = (Ca::new("td-one.example.org"), Ca::new("td-one.example.org"));
    let site = Site::to(&streams.url());
    old.svid("/lictor").write(site.path(), &[&old]);
    let lictor = site.start().await;
    let here = lictor.directory().to_owned();
    let (of_old, of_new) = (old.svid("/agent-a"), new.svid("/agent-a"));
    // Whoever is not on a stream is answered at once.
    let (_caller, reply, mut upstream) = streaming(&lictor, &mut streams, &of_old).await;
    let answering = tokio::spawn(async move {
        loop {
            streams.call().await.answer("{}").await;
        }
    });
    assert_eq!(knock(&lictor, &tls_of(&of_new)).await, "");

    // Both roots: both are served, and the stream goes on.
    old.svid("/lictor").write(&here, &[&old, &new]);
    let mut calls = until(&lictor, "the new root", &of_new, true).await;
    calls += until(&lictor, "the old root", &of_old, true).await;
    // Half a bundle, and a key of another certificate: what was stays, and the log tells.
    let bundle = here.join("td-one.example.org.pem");
    let whole = fs::read_to_string(&bundle).expect("a bundle");
    fs::write(&bundle, whole.get(..whole.len() - 100).expect("ASCII")).expect("a file");
    logged(&lictor, "identity can't be refreshed").await;
    calls += until(&lictor, "a bad bundle", &of_new, true).await;
    fs::write(&bundle, &whole).expect("a file");
    fs::write(here.join("key.pem"), old.svid("/lictor").key_pem()).expect("a file");
    sleep(Duration::from_secs(1)).await;
    calls += until(&lictor, "a bad key", &of_old, true).await;
    assert_eq!(ask(&lictor, "/readyz").await.status, 200);
    upstream.chunk(": still here\n\n").await;

    // The old root goes: whoever hangs on it is out, and their stream ends in band.
    new.svid("/lictor").write(&here, &[&new]);
    calls += until(&lictor, "the end of the old root", &of_old, false).await;
    calls += until(&lictor, "the new root alone", &of_new, true).await;
    let error = ended(reply).await;
    assert_eq!((&error["id"], &error["error"]["code"]), (&7.into(), &4011.into()));
    upstream.abandoned().await;
    answering.abort();
    let closings = lictor.stop_with(|closings| closings > calls).await;
    let of = |status: &str| closings.iter().filter(|entry| entry["status"] == status).count();
    // The stream, and maybe a connection that was let in just before.
    assert_eq!(of("ok"), calls);
    assert!(matches!(of("identity_expired"), 1 | 2));
}

/// Calls until told to stop; how often, every one answered well.
async fn calling(address: std::net::SocketAddr, stop: Arc<AtomicBool>) -> usize {
    let mut caller = Caller::plain(address).await;
    let mut calls = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
        assert_eq!((answer.status, answer.json().get("error")), (200, None), "{}", answer.text());
        calls += 1;
    }
    calls
}

fn rotate(directory: &Path, path: &str) {
    TD_ONE.svid_for(path, 600).write(directory, &[&TD_ONE]);
}

#[tokio::test]
async fn certificates_rotate_under_load_without_a_failed_call() {
    let stub = Stub::answering(|seen| json(&result(seen, "{}"))).await;
    let site = Site::to(&stub.url());
    rotate(site.path(), "/lictor-b");
    let inner = site.start().await;
    let url = format!("https://{}/mcp", inner.mutual);
    let site = Site::to(&url).upstream("spiffeId: 'spiffe://td-one.example.org/lictor-b'");
    rotate(site.path(), "/lictor-a");
    let outer = site.start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> =
        (0..4).map(|_| tokio::spawn(calling(outer.plain, Arc::clone(&stop)))).collect();
    let mut seconds = interval(Duration::from_secs(1));
    for _ in 0..6 {
        seconds.tick().await;
        rotate(outer.directory(), "/lictor-a");
        rotate(inner.directory(), "/lictor-b");
    }
    seconds.tick().await;
    stop.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.expect("every call is answered well");
    }
    assert!(calls > 100, "{calls}");
    assert_eq!(stub.requests(), calls);
    outer.stop(calls).await;
    for entry in inner.stop(calls).await {
        assert_eq!(entry["peer"], "spiffe://td-one.example.org/lictor-a");
    }
}

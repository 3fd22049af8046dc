//! Sessions that outlive the process.

use super::{ACCEPTED, a, b, open, status, upstream};
use crate::{
    site::{Site, call, send},
    stub::Stub,
    subject::Lictor,
};

async fn restarted(mut lictor: Lictor, signal: &str) -> Lictor {
    lictor.signal(signal).await;
    lictor.ended().await;
    lictor.restart().await
}

async fn site(state: &str) -> (Stub, Lictor) {
    let stub = upstream((0..9).map(|number| format!("s-{number}")).collect()).await;
    let lictor = Site::to(&stub.url()).with(state).start().await;
    (stub, lictor)
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart_and_for_its_owner_only() {
    for signal in ["TERM", "KILL"] {
        let (stub, lictor) = site("state: { directory: state }").await;
        let of_a = open(&mut a(&lictor).await).await;
        let of_b = open(&mut b(&lictor).await).await;
        let ended = open(&mut a(&lictor).await).await;
        assert_eq!(status(&mut a(&lictor).await, "DELETE", &ended, "").await, 204);
        // What comes after it in the file is there, so it is as well.
        let last = open(&mut a(&lictor).await).await;
        let lictor = restarted(lictor, signal).await;
        let echo = call("echo", "{}");
        let (mut a, mut b) = (a(&lictor).await, b(&lictor).await);
        let before = stub.requests();
        for (verb, body) in [("POST", &*echo), ("GET", ""), ("DELETE", "")] {
            assert_eq!(status(&mut b, verb, &of_a, body).await, 404, "{signal}");
            assert_eq!(status(&mut a, verb, &of_b, body).await, 404, "{signal}");
            assert_eq!(status(&mut a, verb, &ended, body).await, 404, "{signal}");
        }
        assert_eq!(stub.requests(), before);
        for (verb, body, expected) in
            [("POST", &*echo, 200), ("GET", "", 405), ("DELETE", "", 204), ("POST", &echo, 404)]
        {
            assert_eq!(status(&mut a, verb, &of_a, body).await, expected, "{signal}");
        }
        assert_eq!(status(&mut a, "POST", &last, &echo).await, 200, "{signal}");
        let lictor = restarted(lictor, signal).await;
        let mut b = super::b(&lictor).await;
        assert_eq!(status(&mut super::a(&lictor).await, "POST", &of_a, &echo).await, 404);
        assert_eq!(status(&mut b, "POST", &of_b, &echo).await, 200, "{signal}");
        lictor.stop_with(|closings| closings > 0).await;
    }
}

#[tokio::test]
async fn a_session_in_memory_ends_with_the_process() {
    let (stub, lictor) = site("").await;
    let session = open(&mut a(&lictor).await).await;
    let lictor = restarted(lictor, "TERM").await;
    let mut caller = a(&lictor).await;
    assert_eq!(status(&mut caller, "POST", &session, &call("echo", "{}")).await, 404);
    // Which makes a client initialise anew.
    let next = open(&mut caller).await;
    assert_eq!(status(&mut caller, "POST", &next, &call("echo", "{}")).await, 200);
    assert_eq!(stub.requests(), 3);
    lictor.stop(4).await;
}

#[tokio::test]
async fn two_processes_dont_write_to_one_file() {
    let stub = Stub::answering(|_| ACCEPTED.into()).await;
    let lictor = Site::to(&stub.url()).with("state: { directory: state }").start().await;
    let other = Site::to(&stub.url());
    let state = lictor.directory().join("state");
    let directory = other.with(&format!("state: {{ directory: '{}' }}", state.display())).written();
    let told =
        crate::process::lictor_says(directory.path(), &["run", "--file", "lictor.yaml"]).await;
    assert!(!told.status.success());
    let told = String::from_utf8(told.stderr).expect("UTF-8");
    assert!(told.contains("the state can't be opened"), "{told}");
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(send(&mut a(&lictor).await, "POST", &[], told).await.whole().await.status, 202);
    lictor.stop(1).await;
}

//! How a bridge begins and ends: servers that aren't there, identities, signals, closed ends.

use serde_json::json;
use tokio::process::Command;

use super::{Bridge, NO_CONTENT, SVID, in_session};
use crate::{
    http::within,
    process::lictor_says,
    site::{Site, TD_ONE, call},
    stub::Stub,
};

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_of_each_call() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let mut bridge = Bridge::at(&format!("http://{address}/mcp"), &[]);
    for _ in 0..2 {
        bridge.say(call("echo", "{}")).await;
        let heard = bridge.hear().await;
        assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(5020)));
        assert_eq!(heard["error"]["data"]["retryable"], true);
        let said = heard["error"]["message"].as_str().expect("text");
        assert!(said.contains("can't be reached") && said.contains(&address.to_string()), "{said}");
    }
    bridge.hang_up();
    assert!(bridge.ended().await.success());
}

#[tokio::test]
async fn only_the_expected_server_is_believed() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut other = SVID;
    other[7] = "spiffe://td-one.example.org/other";
    let mut bridge = Bridge::at(&format!("https://{}/mcp", lictor.mutual), &other);
    bridge.say(call("echo", "{}")).await;
    let heard = bridge.hear().await;
    assert_eq!(heard["error"]["code"], 5020);
    let said = heard["error"]["message"].as_str().expect("text");
    assert!(said.contains("spiffe://td-one.example.org/lictor"), "{said}");
    bridge.hang_up();
    assert!(bridge.ended().await.success());
    assert_eq!(stub.requests(), 0);
    lictor.stop(0).await;
}

#[tokio::test]
async fn a_rotated_svid_is_picked_up() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    // The next certificate is another agent's, so that the Lictor can tell them apart.
    TD_ONE.svid("/agent-b").write(bridge._home.path(), &[&TD_ONE]);
    let refused = async {
        loop {
            bridge.say(call("echo", "{}")).await;
            tokio::select! {
                heard = bridge.hear() => return heard,
                asked = stub.call() => asked.answer("{}").await,
            }
            bridge.hear().await;
        }
    };
    let heard = within("the other SVID", refused).await;
    assert_eq!(heard["error"]["data"]["kind"], "unknown_session");
    lictor.stop_with(|closings| closings > 3).await;
}

#[tokio::test]
async fn it_ends_its_session_when_it_is_told_to_stop() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    bridge.say(call("echo", "{}")).await;
    let mut waiting = stub.call().await;
    let pid = bridge.child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(within("a signal", sent).await.expect("`kill` runs").success());
    let mut asked = stub.call().await;
    assert_eq!(asked.seen.head.start, "DELETE /mcp HTTP/1.1");
    in_session(&asked);
    asked.send(NO_CONTENT).await;
    asked.keep();
    assert!(bridge.ended().await.success());
    waiting.abandoned().await;
    lictor.stop(5).await;
}

#[tokio::test]
async fn a_client_that_stops_reading_ends_it() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut bridge = Bridge::to(&lictor).await;
    bridge.open(&mut stub).await;
    let (mut child, mut stdin) = (bridge.child, bridge.stdin.take().expect("an open end"));
    drop(bridge.stdout);
    let line = format!("{}\n", call("echo", "{}"));
    tokio::io::AsyncWriteExt::write_all(&mut stdin, line.as_bytes()).await.expect("written");
    stub.call().await.answer("{}").await;
    let mut asked = stub.call().await;
    assert_eq!(asked.seen.head.start, "DELETE /mcp HTTP/1.1");
    asked.send(NO_CONTENT).await;
    asked.keep();
    let status = within("its end", child.wait()).await.expect("a status");
    assert_eq!(status.code(), Some(74));
    lictor.stop(5).await;
}

#[tokio::test]
async fn arguments_that_do_not_fit_start_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let id = "spiffe://td-one.example.org/lictor";
    for (arguments, said) in [
        (vec!["--url", "http://192.0.2.1/mcp"], "loopback"),
        (vec!["--url", "ftp://127.0.0.1/mcp"], "https://"),
        (vec!["--url", "mcp"], "--url"),
        (vec!["--url", "https://a.example/mcp", "--spiffe-id", id], "--certificate"),
        (vec!["--url", "http://127.0.0.1/mcp", "--spiffe-id", id], "https"),
        (vec!["--url", "http://127.0.0.1/mcp", "--roots", "r.pem"], "https"),
        (vec!["--url", "https://a.example/mcp", "--certificate", "c.pem"], "--key"),
        (vec!["--url", "https://a.example/mcp", "--workload-api", "x", "--spiffe-id", id], "unix:"),
        (vec!["--url", "https://a.example/mcp", "--spiffe-id", "x"], "--spiffe-id"),
    ] {
        let all: Vec<_> = ["stdio"].into_iter().chain(arguments.clone()).collect();
        let output = lictor_says(home.path(), &all).await;
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?} {told}");
        assert!(told.contains(said), "{arguments:?} {told}");
        assert!(output.stdout.is_empty());
    }
}

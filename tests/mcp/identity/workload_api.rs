//! Lictor's own identity from an agent that comes and goes.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::{
    http::{Answer, Caller, within},
    process::{Process, lictor_says},
    site::{Site, TD_ONE, TLS_A, address, ask_at, call, send},
    stub::Stub,
    workload_api::{Agent, Script},
};

const PAUSE: Duration = Duration::from_millis(50);

/// Waits until readiness is as wanted.
async fn until_ready(admin: std::net::SocketAddr, status: u16) -> Answer {
    let asking = async {
        loop {
            let answer = ask_at(admin, "/readyz").await;
            if answer.status == status {
                return answer;
            }
            sleep(PAUSE).await;
        }
    };
    within("readiness", asking).await
}

#[tokio::test]
async fn an_identity_comes_and_goes_with_its_agent() {
    let stub = Stub::json().await;
    let site = Site::to(&stub.url());
    let socket = site.path().join("agent.sock");
    let keys = format!("workloadApi: 'unix://{}'", socket.display());
    let directory = site.identity(&keys).written();
    let here = directory.path();
    let serving = || Script::serve(&TD_ONE, "/lictor", &TD_ONE.svid("/lictor"), &[]);

    // There is no agent yet, and so no door.
    let mut lictor = Process::start(here, &["run", "-f", "lictor.yaml"], here);
    let admin = lictor.told(|logs| address(logs, "administration listens", None)).await;
    let answer = until_ready(admin, 503).await;
    assert!(answer.text().contains("no valid identity"), "{}", answer.text());
    assert_eq!(ask_at(admin, "/healthz").await.status, 200);

    let agent = Agent::start(&socket, serving());
    let mutual = lictor.told(|logs| address(logs, "listening", Some("mutual"))).await;
    until_ready(admin, 200).await;
    let mut warm = Caller::tls(mutual, &TLS_A, false).await;
    let answer = send(&mut warm, "POST", &[], call("echo", "{}")).await.whole().await;
    assert_eq!(answer.status, 200, "{}", answer.text());

    // The agent says that Lictor is nobody any more: nobody is served, warm or not.
    agent.play(Script::Deny);
    let answer = until_ready(admin, 503).await;
    assert!(answer.text().contains("no valid identity"), "{}", answer.text());
    let answer = send(&mut warm, "POST", &[], call("echo", "{}")).await.whole().await;
    assert_eq!((answer.status, answer.kind().as_str()), (503, "not_ready"));
    assert_eq!(stub.requests(), 1);

    // It is somebody again.
    agent.play(serving());
    until_ready(admin, 200).await;
    let mut caller = Caller::tls(mutual, &TLS_A, true).await;
    let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
    assert_eq!(answer.status, 200, "{}", answer.text());

    // Without the agent it goes on with what it has.
    drop(agent);
    let stale = async {
        while !ask_at(admin, "/metrics")
            .await
            .text()
            .contains(r#"lictor_identity_state{state="stale"} 1"#)
        {
            sleep(PAUSE).await;
        }
    };
    within("a lost agent", stale).await;
    assert_eq!(ask_at(admin, "/readyz").await.status, 200);
    let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(stub.requests(), 3);

    drop((warm, caller));
    assert!(lictor.stop().await.success());
    let verified = lictor_says(here, &["ledger", "verify", "ledger"]).await;
    assert!(verified.status.success(), "{verified:?}");
    let listed = lictor_says(here, &["ledger", "list", "ledger", "--json"]).await;
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let entries: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect();
    let of = |status: &str| entries.iter().filter(|entry| entry["status"] == status).count();
    assert_eq!((of("ok"), of("not_ready")), (3, 1), "{listed}");
    assert_eq!(entries[0]["spiffe_id"], "spiffe://td-one.example.org/lictor");
}

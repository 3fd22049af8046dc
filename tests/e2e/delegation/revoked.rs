//! What is revoked at the end of a row ends every chain that it is a link of.

use tokio::process::Command;

use super::*;
use crate::http::within;

/// Revokes something at a proxy; its id.
pub(crate) async fn revoke(lictor: &Lictor, kind: &str, value: &str) -> String {
    let told = command(lictor, &[kind, value, "--reason", "r", "--by", "b"]).await;
    let id = told.strip_prefix("revoked ").and_then(|told| told.split(':').next());
    id.expect("an id").to_owned()
}

async fn command(lictor: &Lictor, arguments: &[&str]) -> String {
    let logs = lictor.logs();
    let events = logs.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut told = events.filter(|event| event["message"] == "administration listens");
    let address = told.next().expect("administration")["address"].clone();
    let admin = format!("http://{}", address.as_str().expect("an address"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.arg("revoke").args(arguments).current_dir(lictor.directory());
    command.args(["--admin", &admin, "--token-file", "token"]);
    let output = within("a command", command.output()).await.expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test]
async fn a_chain_with_a_revoked_link_is_refused_on_the_next_call() {
    let mut row = Row::start("").await;
    assert!(row.relay(CALL, true).await.json()["result"].is_object());
    // The root, whom `c` has never met; and the one in between, which stands before it.
    for revoked in ["spiffe://one.test/a", "spiffe://one.test/b"] {
        let id = revoke(&row.c, "spiffe", revoked).await;
        let answer = row.relay(CALL, true).await.json();
        assert_eq!(answer["error"]["data"]["kind"], "revoked", "{answer}");
        assert_eq!(answer["error"]["data"]["retryable"], false);
        command(&row.c, &["lift", &id]).await;
        assert!(row.relay(CALL, true).await.json()["result"].is_object());
    }
    assert_eq!(row.server.requests(), 3);
    let b = row.b.stop(10).await;
    row.a.stop(5).await;
    let c = row.c.stop(5).await;
    let denied: Vec<_> = c.iter().filter(|entry| entry["kind"] == "denied").collect();
    assert_eq!(denied.len(), 2);
    for entry in denied {
        assert_eq!((&entry["stage"], &entry["hops"]), (&json!("revocation"), &json!(2)));
        let outbound = b.iter().find(|outbound| outbound["call_id"] == entry["peer_call"]);
        assert_eq!(outbound.expect("its cause")["peer_denied"], "revoked");
    }
}

/// Nobody is sent to a server whose identity is revoked.
#[tokio::test]
async fn an_upstream_that_has_to_prove_a_revoked_identity_hears_nothing() {
    let mut row = Row::start("").await;
    let id = revoke(&row.b, "spiffe", "spiffe://one.test/c").await;
    let answer = row.relay(CALL, true).await.json();
    assert_eq!(answer["error"]["data"]["kind"], "revoked", "{answer}");
    command(&row.b, &["lift", &id]).await;
    assert!(row.relay(CALL, true).await.json()["result"].is_object());
    assert_eq!(row.server.requests(), 1);
    row.a.stop(2).await;
    row.b.stop(4).await;
    row.c.stop(1).await;
}

/// The workload of `b` works for a call of `a` when its hop is taken back: it can do no more for it.
#[tokio::test]
async fn a_revoked_hop_ends_what_is_done_for_it() {
    let mut row = Row::start("").await;
    let mut workload = Caller::plain(row.a.plain).await;
    let sent = rpc(1, "message/send", message(json!({}))).to_string();
    let request = workload.request_to("POST", "/next", whole(sent));
    let (reply, answer) = tokio::join!(workload.send(request), async {
        let mut inbound = row.agent.call().await;
        let state = inbound.seen.head.headers.get("tracestate").cloned().expect("a handle");
        let mut agent = Caller::plain(row.b.plain).await;
        let mut call = async || {
            let mut request = agent.request_to("POST", "/next", whole(CALL));
            request.headers_mut().insert("tracestate", state.clone());
            agent.send(request).await.whole().await.json()
        };
        assert!(call().await["result"].is_object());
        // The decision id of the call of `a` is what its hop is known by, here as in the ledger of `a`.
        let hop = async {
            loop {
                let entries = row.a.entries().await;
                let intent = entries.iter().find(|entry| entry["kind"] == "intent");
                if let Some(intent) = intent {
                    return intent["call_id"].as_str().expect("an id").to_owned();
                }
            }
        };
        let hop = within("the intent", hop).await;
        revoke(&row.b, "delegation", &hop).await;
        let answer = call().await;
        inbound.abandoned().await;
        answer
    });
    // The call of `a` ends as well, so there may be nobody left whom this one could be for.
    let kind = answer["error"]["data"]["kind"].as_str();
    assert!(matches!(kind, Some("revoked" | "delegation_required")), "{answer}");
    let refused = reply.whole().await.json();
    assert_eq!(refused["error"]["code"], 4030, "{refused}");
    assert_eq!(row.server.requests(), 1);
    row.a.stop(1).await;
    let b = row.b.stop(3).await;
    let inbound = b.iter().find(|entry| entry["direction"] == "inbound").expect("an entry");
    assert_eq!((&inbound["status"], &inbound["decision"]), (&json!("revoked"), &json!("permit")));
    row.c.stop(1).await;
}

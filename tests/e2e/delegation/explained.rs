//! What `lictor policy explain` makes of recorded calls that came by a chain.

use std::time::Duration;

use tokio::{process::Command, time::timeout};

use super::*;

/// What is said of a decision, and whether it permitted the call.
async fn explain(lictor: &Lictor, decision: &str) -> (bool, String) {
    let arguments = ["policy", "explain", "-f", "lictor.yaml", "--decision", decision];
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    let command = command.args(arguments).current_dir(lictor.directory());
    let output = command.output().await.expect("the binary runs");
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    (output.status.success(), told)
}

/// The closing entries, once there are so many.
async fn closings(lictor: &Lictor, count: usize) -> Vec<Value> {
    let found = async {
        loop {
            let mut entries = lictor.entries().await;
            entries.retain(|entry| entry["kind"] == "outcome" || entry["kind"] == "denied");
            if entries.len() == count {
                return entries;
            }
        }
    };
    timeout(Duration::from_secs(20), found).await.expect("they are written")
}

fn id(entry: &Value) -> &str {
    entry["call_id"].as_str().expect("an id")
}

#[tokio::test]
async fn recorded_calls_with_a_chain_are_explained_by_what_is_on_record() {
    let policies = r#"@id("all") permit (principal, action, resource);
        @id("not-for-a") @reason("Not for a.")
        forbid (principal == Agent::"spiffe://one.test/a", action, resource == Tool::"own/change");
        @id("curious") forbid (principal, action, resource)
        when { context has delegation && context.delegation.mode == "none" };"#;
    let mut row = Row::start_with("", policies).await;
    let answer = row.relay(CHANGE, true).await;
    assert_eq!(answer.json()["error"]["data"]["kind"], "delegation_denied", "{}", answer.json());
    assert!(row.relay(CALL, true).await.json()["result"].is_object());
    let entries = closings(&row.c, 2).await;

    let (permitted, told) = explain(&row.c, id(&entries[0])).await;
    assert!(!permitted);
    for part in [
        "caller    spiffe://one.test/b\n",
        "chain     of 2 hops, begun by spiffe://one.test/a\n",
        "ended     delegation_denied (deny)\n",
        "Hop 0 of its chain objected: spiffe://one.test/a\n",
        "the policies of now, with it for principal:\ndenied\n",
        "principal  Agent::\"spiffe://one.test/a\"",
        "determined by:\n  not-for-a (all.cedar:2)",
        "note: modes and capabilities of hops are not recorded",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let (permitted, told) = explain(&row.c, id(&entries[1])).await;
    assert!(permitted);
    for part in [
        "chain     of 2 hops, begun by spiffe://one.test/a\n",
        "principal  Agent::\"spiffe://one.test/b\"",
        "determined by:\n  all (all.cedar:1)",
        "context.delegation.mode",
        "where policies look at a mode, `full` is assumed",
        "note: everybody in the chain was asked; these are the caller's policies",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    row.a.stop(2).await;
    row.c.stop(2).await;

    // What the agent is not allowed to begin has no hop to name.
    let mut agent = Caller::plain(row.b.plain).await;
    let request = agent.request_to("POST", "/next", whole(CALL));
    let answer = agent.send(request).await.whole().await.json();
    assert_eq!(answer["error"]["data"]["kind"], "delegation_required", "{answer}");
    let entries = closings(&row.b, 5).await;
    let (permitted, told) = explain(&row.b, id(entries.last().expect("an entry"))).await;
    assert!(!permitted);
    assert!(told.contains("The policies permitted it to the caller, the rules of"), "{told}");
    row.b.stop(5).await;
}

#[tokio::test]
async fn a_mode_that_objected_is_told_as_one_of_what_isnt_recorded() {
    let mut row = Row::start(", delegate: readonly").await;
    let answer = row.relay(CHANGE, true).await.json();
    assert_eq!(answer["error"]["data"]["kind"], "delegation_denied", "{answer}");
    let entries = closings(&row.b, 2).await;
    let outbound = entries.iter().find(|entry| entry["direction"] == "outbound").expect("one");
    let (permitted, told) = explain(&row.b, id(outbound)).await;
    assert!(!permitted);
    for part in [
        "link      handle\n",
        "Hop 0 of its chain objected: spiffe://one.test/a\n",
        "with it for principal:\npermitted\n",
        "note: it objected by its mode, its capabilities, grants to it, or the policies of then",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    row.a.stop(1).await;
    row.b.stop(2).await;
    row.c.stop(0).await;
}

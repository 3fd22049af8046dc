//! Documents of grants on a running Lictor: one set with the policies beside them.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::{
    http::Caller,
    process::{lictor_says, stdout},
    site::{Site, agent_a, agent_b, call, logged, request, send},
    stub::{Stub, json, result},
    subject::Lictor,
};

mod agents;

/// How soon a change of files has to be in force: they are looked at every second.
const SOON: Duration = Duration::from_secs(3);

const TOOLS: &str = r#"{"tools":[{"name":"echo"},{"name":"lookup"},{"name":"wipe"}]}"#;

fn write(lictor: &Lictor, document: &str) {
    let file = lictor.directory().join("policies/team.grants.yaml");
    std::fs::write(file, document).expect("a file");
}

/// The names in the caller's list, or the code of the error that it is refused with.
async fn list(caller: &mut Caller) -> Result<Vec<String>, i64> {
    let answer = send(caller, "POST", &[], request("tools/list", "{}")).await.whole().await;
    let answer = answer.json();
    let tools = answer["result"]["tools"].as_array().ok_or_else(|| {
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no code in {answer}"))
    })?;
    let name = |tool: &serde_json::Value| tool["name"].as_str().expect("a name").to_owned();
    Ok(tools.iter().map(name).collect())
}

/// Waits until the caller's list is another; how many times it was asked for.
async fn until(caller: &mut Caller, wanted: Result<&[&str], i64>) -> usize {
    let wanted =
        wanted.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let asking = async {
        let mut asked = 1;
        while list(caller).await != wanted {
            asked += 1;
            sleep(Duration::from_millis(20)).await;
        }
        asked
    };
    timeout(SOON, asking).await.unwrap_or_else(|_| panic!("not {wanted:?} after {SOON:?}"))
}

#[tokio::test]
async fn a_document_closes_lists_and_calls_of_its_agent() {
    let stub = Stub::answering(|seen| json(&result(seen, TOOLS))).await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let mut asked = until(&mut a, Ok(&["echo", "lookup"])).await;
    // `lookup` is permitted by a policy, `echo` by a policy and a grant, `wipe` by the grant alone,
    // and forbidden by a policy.
    write(
        &lictor,
        "agents:\n\
         - {id: 'spiffe://td-one.example.org/agent-a'}\n\
         grants:\n\
         - agent: spiffe://td-one.example.org/agent-a\n\
         \x20 server: files\n\
         \x20 tool: echo\n\
         \x20 permissions: [execute]\n\
         - {agent: 'spiffe://td-one.example.org/agent-a', server: files, tool: wipe, permissions: [execute]}\n",
    );
    asked += until(&mut a, Ok(&["echo"])).await;
    assert_eq!(list(&mut b).await, Ok(vec!["echo".to_owned()]), "others are as they were");
    let before = stub.requests();
    let refused = send(&mut a, "POST", &[], call("lookup", "{}")).await.whole().await;
    assert_eq!((refused.status, refused.kind().as_str()), (200, "policy_denied"));
    assert_eq!(stub.requests(), before);
    let wipe = send(&mut a, "POST", &[], call("wipe", "{}")).await.whole().await;
    assert_eq!(wipe.kind(), "policy_denied");
    let echo = send(&mut a, "POST", &[], call("echo", "{}")).await.whole().await;
    assert_eq!(echo.json().get("error"), None);
    assert_eq!(stub.requests(), before + 1);
    // The operator is told file and line.
    let decision =
        refused.json()["error"]["data"]["decisionId"].as_str().expect("an id").to_owned();
    let explain = ["policy", "explain", "--decision", &decision, "-f", "lictor.yaml"];
    let told = timeout(SOON, async {
        loop {
            let told = stdout(&lictor_says(lictor.directory(), &explain).await);
            if !told.contains("no decision") {
                return told;
            }
        }
    });
    let told = told.await.expect("an entry");
    let origin = "team.grants.yaml#agents[0].tools (team.grants.yaml:2): This tool is not granted";
    assert!(told.contains(origin), "{told}");
    let closings = lictor.stop(asked + 4).await;
    let cited: Vec<_> = closings.iter().filter_map(|entry| entry["policies"].as_array()).collect();
    let granted = serde_json::json!("team.grants.yaml#grants[0]");
    assert!(cited.iter().any(|ids| ids.contains(&granted)), "{cited:?}");
}

#[tokio::test]
async fn a_suspended_agent_is_out_within_seconds_and_a_faulty_document_changes_nothing() {
    let stub = Stub::answering(|seen| json(&result(seen, TOOLS))).await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let mut asked = until(&mut b, Ok(&["echo"])).await;
    let entry = "agents:\n- id: spiffe://td-one.example.org/agent-b\n  dynamicDiscovery: true\n";
    write(&lictor, &format!("{entry}  status: suspended\n"));
    asked += until(&mut b, Err(4030)).await;
    let hello = send(&mut b, "POST", &[], request("initialize", "{}")).await.whole().await;
    assert_eq!(hello.kind(), "policy_denied");
    assert_eq!(list(&mut a).await, Ok(vec!["echo".to_owned(), "lookup".to_owned()]));
    asked += 2;
    write(&lictor, &format!("{entry}  status: active\n  requireApproval: true\n"));
    logged(&lictor, "policies not reloaded").await;
    let logs = lictor.logs();
    let place = "team.grants.yaml:5: agents[0].requireApproval: approvals don't exist yet";
    assert!(logs.iter().any(|line| line.contains(place)), "{logs:#?}");
    assert_eq!(list(&mut b).await, Err(4030));
    write(&lictor, entry);
    asked += 1 + until(&mut b, Ok(&["echo"])).await;
    lictor.stop(asked).await;
}

/// Waits until a reload was told.
async fn reloaded(lictor: &Lictor, times: usize) {
    let looking = async {
        let count = || {
            let logs = lictor.logs();
            logs.iter().filter(|line| line.contains("policies reloaded")).count()
        };
        while count() < times {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, looking).await.unwrap_or_else(|_| panic!("{times} reloads after {SOON:?}"));
}

#[tokio::test]
async fn a_grant_holds_its_agent_to_calls_an_hour() {
    let document = |most: u32| {
        format!(
            "agents:\n\
             - {{id: 'spiffe://td-one.example.org/agent-a'}}\n\
             grants:\n\
             - agent: spiffe://td-one.example.org/agent-a\n\
             \x20 server: files\n\
             \x20 tool: e*\n\
             \x20 permissions: [execute]\n\
             \x20 maxCallsPerHour: {most}\n"
        )
    };
    let stub = Stub::json().await;
    let site = Site::to(&stub.url()).file("policies/team.grants.yaml", &document(2));
    let lictor = site.start().await;
    let mut a = agent_a(&lictor).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        let answer = send(&mut a, "POST", &[], call("echo", "{}")).await.whole().await.json();
        codes.push(answer["error"]["code"].as_i64());
    }
    assert_eq!(codes, [None, None, Some(4291)]);
    // Another set with the same limit goes on counting; another limit begins anew.
    write(&lictor, &format!("{}  reason: Echoes are enough.\n", document(2)));
    reloaded(&lictor, 1).await;
    let refused = send(&mut a, "POST", &[], call("echo", "{}")).await.whole().await.json();
    let data = &refused["error"]["data"];
    assert_eq!(data["kind"], "budget_exhausted");
    let name = "td-one.example.org/agent-a/files/e*/hour";
    assert_eq!(data["limits"], serde_json::json!([name]));
    write(&lictor, &document(1));
    reloaded(&lictor, 2).await;
    for code in [None, Some(4291)] {
        let answer = send(&mut a, "POST", &[], call("echo", "{}")).await.whole().await;
        assert_eq!(answer.json()["error"]["code"].as_i64(), code);
        if code.is_some() {
            let policy = format!("\"{name}\";q=1;w=3600");
            assert_eq!(answer.header("ratelimit-policy"), Some(&*policy));
        }
    }
    // An operator is told of the limit, and not that policies refused it.
    let decision = data["decisionId"].as_str().expect("an id").to_owned();
    let explain = ["policy", "explain", "--decision", &decision, "-f", "lictor.yaml"];
    let asking = async {
        loop {
            let told = stdout(&lictor_says(lictor.directory(), &explain).await);
            if !told.contains("no decision") {
                return told;
            }
        }
    };
    let told = timeout(SOON, asking).await.expect("it is on record");
    assert!(told.contains(&format!("it was over the limits: {name}")), "{told}");
    assert_eq!(stub.requests(), 3);
    lictor.stop(6).await;
}

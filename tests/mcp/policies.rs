//! Policies in force: what they mean, how they change on a running Lictor, and what an operator is told.

use std::{process::Output, time::Duration};

use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{
    http::{Caller, within},
    process::{lictor_says, stdout},
    site::{POLICIES, Site, agent_a, agent_b, call, logged, metrics, request, sample, send},
    stub::Stub,
    subject::Lictor,
};

/// How soon a change of files has to be in force: they are looked at every second.
const SOON: Duration = Duration::from_secs(3);

/// Between two looks of a test.
const PAUSE: Duration = Duration::from_millis(20);

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// The code of the error that a call of `echo` is refused with.
async fn refusal(caller: &mut Caller, body: &str) -> Option<i64> {
    let answer = send(caller, "POST", &[], body).await.whole().await;
    answer.json()["error"]["code"].as_i64()
}

fn write(lictor: &Lictor, text: &str) {
    std::fs::write(lictor.directory().join("policies/all.cedar"), text).expect("a file");
}

/// Waits until calls are judged otherwise; how many it took.
async fn until(caller: &mut Caller, body: &str, wanted: Option<i64>) -> usize {
    let asking = async {
        let mut asked = 1;
        while refusal(caller, body).await != wanted {
            asked += 1;
            sleep(PAUSE).await;
        }
        asked
    };
    timeout(SOON, asking).await.unwrap_or_else(|_| panic!("not {wanted:?} after {SOON:?}"))
}

#[tokio::test]
async fn nothing_is_permitted_by_forbidding_something() {
    let stub = Stub::json().await;
    let forbid = r#"@id("no-wipe") forbid (principal, action, resource == Tool::"files/wipe");"#;
    let lictor = Site::to(&stub.url()).policies(forbid).start().await;
    let mut caller = agent_a(&lictor).await;
    for body in [call("echo", "{}"), request("initialize", "{}"), request("tools/list", "{}")] {
        assert_eq!(refusal(&mut caller, &body).await, Some(4030), "{body}");
    }
    assert_eq!(stub.requests(), 0);
    let logs = lictor.logs();
    let told = logs.iter().any(|line| line.contains("\"WARN\"") && line.contains("permit"));
    assert!(told, "{logs:#?}");
    let checked = lictor_says(lictor.directory(), &["policy", "check", "-f", "lictor.yaml"]).await;
    assert!(stdout(&checked).contains("permit"), "{checked:?}");
    lictor.stop(3).await;
}

#[tokio::test]
async fn faulty_policies_start_nothing() {
    let rows = [
        ("never there", "permit (principal, action, resource) when { context.header == \"x\" };"),
        (
            "no attribute of agents",
            "permit (principal, action, resource) when { principal.nonesuch };",
        ),
        ("no such action", "permit (principal, action == Action::\"tools/cal\", resource);"),
        ("no Cedar", "permit (principal, action, resource"),
        ("a template", "permit (principal == ?principal, action, resource);"),
        (
            "the same id twice",
            "@id(\"a\") permit (principal, action, resource);\n@id(\"a\") forbid (principal, action, resource);",
        ),
    ];
    for (name, policies) in rows {
        let site = Site::to("http://127.0.0.1:9/mcp").policies(policies);
        let directory = site.written();
        for arguments in
            [&["run", "-f", "lictor.yaml"][..], &["run", "-f", "lictor.yaml", "--validate-only"]]
        {
            let output = lictor_says(directory.path(), arguments).await;
            assert_eq!(output.status.code(), Some(64), "{name}: {output:?}");
            assert!(stderr(&output).contains("all.cedar"), "{name}: {output:?}");
            assert!(!directory.path().join("ledger").exists(), "{name}");
        }
    }
    let faulty =
        Site::to("http://127.0.0.1:9/mcp").with("nonesuch: 1").with("alsoNot: 2").written();
    let output = lictor_says(faulty.path(), &["run", "-f", "lictor.yaml", "--validate-only"]).await;
    assert_eq!(output.status.code(), Some(64));
    let told = stderr(&output);
    assert!(told.contains("nonesuch") && told.contains("alsoNot"), "{told}");
    let sound = Site::to("http://127.0.0.1:9/mcp").written();
    let output = lictor_says(sound.path(), &["run", "-f", "lictor.yaml", "--validate-only"]).await;
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "no faults\n"));
    assert!(!sound.path().join("ledger").exists());
}

#[tokio::test]
async fn sound_policies_come_into_force_and_faulty_ones_do_not() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_b(&lictor).await;
    let echo = call("echo", "{}");
    assert_eq!(refusal(&mut caller, &echo).await, None);
    write(
        &lictor,
        &format!(
            "{POLICIES}@id(\"no-echo\") forbid (principal, action, resource == Tool::\"files/echo\");"
        ),
    );
    let mut asked = 1 + until(&mut caller, &echo, Some(4030)).await;
    // A fault: the old set stays, and it is told.
    write(
        &lictor,
        &format!("{POLICIES}permit (principal, action, resource) when {{ context.nonesuch }};"),
    );
    logged(&lictor, "policies not reloaded").await;
    let rejected = ["outcome=\"rejected\""];
    assert_eq!(sample(&metrics(&lictor).await, "lictor_policy_reloads_total", &rejected), 1.0);
    assert_eq!(refusal(&mut caller, &echo).await, Some(4030));
    asked += 1;
    // Nothing new: nothing is said again, unless somebody asks.
    lictor.signal("HUP").await;
    let again = async {
        while sample(&metrics(&lictor).await, "lictor_policy_reloads_total", &rejected) < 2.0 {
            sleep(PAUSE).await;
        }
    };
    within("another look", again).await;
    write(&lictor, POLICIES);
    asked += until(&mut caller, &echo, None).await;
    let applied = ["outcome=\"applied\""];
    assert_eq!(sample(&metrics(&lictor).await, "lictor_policy_reloads_total", &applied), 2.0);
    // The same once more, only because it was asked for.
    lictor.signal("HUP").await;
    let again = async {
        while sample(&metrics(&lictor).await, "lictor_policy_reloads_total", &applied) < 3.0 {
            sleep(PAUSE).await;
        }
    };
    within("another reload", again).await;
    let closings = lictor.stop(asked).await;
    let versions: std::collections::BTreeSet<_> =
        closings.iter().map(|entry| entry["policy_version"].as_str().expect("a version")).collect();
    assert_eq!(versions.len(), 2);
}

#[tokio::test]
async fn shadow_mode_records_what_it_lets_through() {
    let stub = Stub::answering(|seen| {
        let tools = r#"{"tools":[{"name":"wipe"},{"name":"echo"}],"cacheScope":"public"}"#;
        crate::stub::json(&crate::stub::result(seen, tools))
    })
    .await;
    let lictor = Site::to(&stub.url()).route("mode: shadow").start().await;
    let mut caller = agent_b(&lictor).await;
    let session = [("mcp-session-id", "s-nobody")];
    let rows = [
        (call("echo", "{}"), &[][..], Value::Null),
        (call("wipe", "{}"), &[], "policy_denied".into()),
        (call("nonesuch", "{}"), &[], "policy_denied".into()),
        (request("vendor/nonesuch", "{}"), &[], "unknown_method".into()),
        (call("echo", r#"{"a":1}"#), &session, "unknown_session".into()),
    ];
    for (body, headers, _) in &rows {
        let answer = send(&mut caller, "POST", headers, body.as_str()).await.whole().await;
        assert_eq!(answer.json().get("error"), None, "{body}");
    }
    let list = send(&mut caller, "POST", &[], request("tools/list", "{}")).await.whole().await;
    assert_eq!(list.json()["result"]["tools"][0]["name"], "wipe");
    assert_eq!(list.json()["result"]["cacheScope"], "public");
    assert_eq!(stub.requests(), 6);
    // What can't be decoded or routed is refused in any mode.
    let batch = send(&mut caller, "POST", &[], format!("[{}]", call("echo", "{}"))).await;
    assert_eq!(batch.whole().await.status, 400);
    let nowhere = caller.request_to("POST", "/nowhere", crate::http::whole(call("echo", "{}")));
    assert_eq!(caller.send(nowhere).await.whole().await.status, 404);
    assert_eq!(stub.requests(), 6);
    let text = metrics(&lictor).await;
    for (kind, expected) in
        [("policy_denied", 2.0), ("unknown_method", 1.0), ("unknown_session", 1.0)]
    {
        let labels = ["upstream=\"files\"", &*format!("kind=\"{kind}\"")];
        assert_eq!(sample(&text, "lictor_shadow_denials_total", &labels), expected, "{kind}");
    }
    assert_eq!(
        sample(&text, "lictor_calls_total", &["decision=\"shadow\"", "outcome=\"ok\""]),
        4.0
    );
    assert_eq!(sample(&text, "lictor_unsafe_settings", &["setting=\"mode: shadow\""]), 2.0);
    assert!(lictor.logs().iter().any(|line| line.contains("shadow") && line.contains("WARN")));
    let closings = lictor.stop(8).await;
    for (body, _, would_deny) in rows {
        let digest = digest(&body);
        let entry = closings.iter().find(|entry| entry["req_sha256"] == *digest);
        let entry = entry.unwrap_or_else(|| panic!("no entry of {body}"));
        let of = |key: &str| entry.get(key).cloned().unwrap_or_default();
        assert_eq!((of("would_deny"), of("mode")), (would_deny, "shadow".into()), "{body}");
        assert_eq!((of("decision"), of("status")), ("permit".into(), "ok".into()), "{body}");
    }
}

fn digest(body: &str) -> String {
    use sha2::Digest as _;
    data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(body))
}

#[tokio::test]
async fn a_recorded_decision_can_be_explained() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_b(&lictor).await;
    let mut decisions = Vec::new();
    for tool in ["wipe", "lookup"] {
        let answer = send(&mut caller, "POST", &[], call(tool, "{}")).await.whole().await;
        let decision =
            answer.json()["error"]["data"]["decisionId"].as_str().expect("an id").to_owned();
        decisions.push(decision);
    }
    send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
    send(&mut caller, "POST", &[], "{").await.whole().await;
    let explain = async |decision: &str| {
        let arguments = ["policy", "explain", "--decision", decision, "-f", "lictor.yaml"];
        let directory = lictor.directory();
        // The entry may wait for its commit.
        let explaining = async {
            loop {
                let output = lictor_says(directory, &arguments).await;
                if !stdout(&output).contains("no decision") || decision == "nonesuch" {
                    return output;
                }
            }
        };
        within("an entry", explaining).await
    };
    let (wipe, lookup) = (explain(&decisions[0]).await, explain(&decisions[1]).await);
    let told = stdout(&wipe);
    assert_eq!(wipe.status.code(), Some(1), "{wipe:?}");
    for text in
        ["no-wipe", "wiping is permitted to nobody", "all.cedar", "agent-b", "tools/call wipe"]
    {
        assert!(told.contains(text), "{text}: {told}");
    }
    // Nobody permits it; the nearest permit is that of `agent-a`.
    let told = stdout(&lookup);
    assert_eq!(lookup.status.code(), Some(1), "{lookup:?}");
    assert!(told.contains("lookup") && told.contains("agent-a"), "{told}");
    let entries = lictor.entries().await;
    let of = |status: &str, target: Option<&str>| {
        let found = entries.iter().rev().find(|entry| {
            entry["status"] == status && entry.get("target").and_then(Value::as_str) == target
        });
        found.expect("an entry")["call_id"].as_str().expect("an id").to_owned()
    };
    let permitted = explain(&of("ok", Some("echo"))).await;
    assert_eq!(permitted.status.code(), Some(0), "{permitted:?}");
    assert!(stdout(&permitted).contains("echo"), "{permitted:?}");
    let unparsed = explain(&of("parse_error", None)).await;
    assert_eq!(unparsed.status.code(), Some(2), "{unparsed:?}");
    assert_eq!(explain("nonesuch").await.status.code(), Some(2));
    lictor.stop(4).await;
}

#[tokio::test]
async fn methods_of_vendors_are_served_where_a_schema_names_them() {
    const META: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;
    const SCHEMA: &str =
        r#"action "acme/doThing" in ["write"] appliesTo { principal: Agent, resource: Server };"#;
    let permit = "@id(\"acme\") permit (principal == Agent::\"spiffe://td-one.example.org/agent-a\", action == Action::\"acme/doThing\", resource);";
    let stub = Stub::json().await;
    let site = Site::to(&stub.url())
        .policies(&format!("{POLICIES}{permit}"))
        .file("policies/acme.cedarschema", SCHEMA);
    let lictor = site.start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    for (method, a_gets, b_gets) in [
        ("acme/doThing", None, Some(4030)),
        ("acme/dothing", Some(-32601), Some(-32601)),
        ("acme/other", Some(-32601), Some(-32601)),
        ("tools/call2", Some(-32601), Some(-32601)),
    ] {
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        for (caller, expected) in [(&mut a, a_gets), (&mut b, b_gets)] {
            let before = stub.requests();
            let legacy = send(caller, "POST", &[], request(method, "{}")).await.whole().await;
            let modern = send(caller, "POST", &headers, request(method, META)).await.whole().await;
            assert_eq!(legacy.status, 200, "{method}");
            assert_eq!(modern.status, if expected == Some(-32601) { 404 } else { 200 }, "{method}");
            for answer in [legacy, modern] {
                assert_eq!(answer.json()["error"]["code"].as_i64(), expected, "{method}");
            }
            assert_eq!(
                stub.requests() - before,
                if expected.is_none() { 2 } else { 0 },
                "{method}"
            );
        }
    }
    let entries = lictor.entries().await;
    let intents = entries.iter().filter(|entry| entry["kind"] == "intent");
    let intents: Vec<_> = intents.map(|entry| (&entry["method"], &entry["class"])).collect();
    assert_eq!(intents, [(&"acme/doThing".into(), &"write".into()); 2]);
    lictor.stop(16).await;
}

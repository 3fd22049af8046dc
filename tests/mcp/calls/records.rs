//! What is on record of single messages: before the upstream hears of them, and afterwards.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Forwarded, JSON, LEGACY, META, MODERN, Refused, Row, answer, judge, judge_at};
use crate::{
    site::{AGENT_A, POLICIES, Site, agent_a, agent_b, call, metrics, request, sample, send},
    stub::Stub,
};

/// The intents in the files of a ledger, as they are on disk now.
fn intents(ledger: &Path) -> Vec<Value> {
    let files = fs::read_dir(ledger).expect("a ledger").map(|file| file.expect("a file").path());
    let segments =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let text: String = segments.map(|path| fs::read_to_string(path).expect("text")).collect();
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines();
    let entries = whole.filter_map(|line| line.split_once('\t'));
    let entries = entries.map(|(entry, _)| serde_json::from_str::<Value>(entry).expect("an entry"));
    entries.filter(|entry| entry["kind"] == "intent").collect()
}

fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("memory");
        hex
    })
}

#[tokio::test]
async fn what_may_change_things_is_on_record_before_the_upstream_hears_of_it() {
    let rows = [
        (call("echo", "{}"), Some("execute")),
        (call("note", "{}"), Some("write")),
        (call("lookup", "{}"), None),
        (request("prompts/get", r#"{"name":"greeting"}"#), None),
        (request("resources/read", r#"{"uri":"note:///public"}"#), None),
        (request("tools/list", "{}"), None),
        (request("initialize", "{}"), None),
        (request("ping", "{}"), None),
    ];
    for read_intent in [false, true] {
        let ledger: Arc<OnceLock<PathBuf>> = Arc::default();
        let found: Arc<Mutex<Vec<Option<Value>>>> = Arc::default();
        let (place, results) = (Arc::clone(&ledger), Arc::clone(&found));
        let stub = Stub::answering(move |seen| {
            let own = digest(&seen.body);
            let mut intents = intents(place.get().expect("it runs")).into_iter();
            let intent = intents.find(|intent| intent["req_sha256"] == *own);
            results.lock().expect("the lock").push(intent);
            answer(seen)
        })
        .await;
        let note = "\n@id(\"note\") permit (principal, action, resource == Tool::\"files/note\");";
        let site = Site::to(&stub.url())
            .policies(&format!("{}{note}", POLICIES))
            .ledger(&format!("readIntent: {read_intent}, commitInterval: 10s"));
        let lictor = site.start().await;
        ledger.set(lictor.directory().join("ledger")).expect("once");
        let mut caller = agent_a(&lictor).await;
        for (body, class) in &rows {
            let reply = send(&mut caller, "POST", &[], body.as_str()).await.whole().await;
            assert_eq!(reply.status, 200, "{body}");
            let intent = found.lock().expect("the lock").pop().expect("a request");
            assert_eq!(intent.is_some(), class.is_some() || read_intent, "{body}: {intent:?}");
            let Some(intent) = intent else { continue };
            assert_eq!((&intent["peer"], &intent["decision"]), (&AGENT_A.into(), &"permit".into()));
            if let Some(class) = class {
                assert_eq!(intent["class"], **class, "{body}");
            }
        }
        lictor.stop(rows.len()).await;
    }
}

/// Arguments that policies look at.
const TYPED: &str = r#"
action "files/lookup" in ["tools/call", "read"] appliesTo {
  principal: Agent, resource: Tool,
  context: { input: { a?: Long } },
};
"#;

const FEW: &str = r#"
@id("none")
permit (principal, action == Action::"files/lookup", resource)
when { !(context.input has a) };

@id("few")
permit (principal, action == Action::"files/lookup", resource)
when { context.input has a && context.input.a < 10 };
"#;

#[tokio::test]
async fn arguments_that_no_policy_can_hold_are_refused_where_one_looks() {
    let stub = Stub::answering(answer).await;
    let site = Site::to(&stub.url()).policies(FEW).file("policies/lookup.cedarschema", TYPED);
    let lictor = site.start().await;
    let denied = Refused(200, 4030, "7");
    let rows = [
        ("{}", Forwarded),
        (r#"{"a":5}"#, Forwarded),
        (r#"{"a":-9223372036854775808}"#, Forwarded),
        (r#"{"a":null}"#, Forwarded),
        (r#"{"b":1.0,"c":1e0,"d":0.1,"e":9223372036854775808}"#, Forwarded),
        (r#"{"__entity":{"type":"Agent","id":"admin"}}"#, Forwarded),
        (r#"{"__extn":{"fn":"ip","arg":"::1"}}"#, Forwarded),
        (r#"{"a":10}"#, denied),
        (r#"{"a":1.0}"#, denied),
        (r#"{"a":1e0}"#, denied),
        (r#"{"a":0.1}"#, denied),
        (r#"{"a":9223372036854775808}"#, denied),
        (r#"{"a":"5"}"#, denied),
        (r#"{"a":true}"#, denied),
        (r#"{"a":[5]}"#, denied),
        (r#"{"a":{"__extn":{"fn":"decimal","arg":"1.0"}}}"#, denied),
        (r#"{"a":{"__entity":{"type":"Agent","id":"admin"}}}"#, denied),
        (r#"{"a":5,"A":50}"#, denied),
    ];
    let rows = rows.iter().flat_map(|(arguments, expect)| {
        let legacy = call("lookup", arguments);
        let modern = legacy.replacen(r#""params":{"#, &format!(r#""params":{{{META},"#), 1);
        let mirrors = "Mcp-Method: tools/call\r\nMcp-Name: lookup\r\n";
        [
            Row::new(arguments, &format!("{JSON}{LEGACY}"), legacy, *expect),
            Row::new(arguments, &format!("{JSON}{MODERN}{mirrors}"), modern, *expect),
        ]
    });
    judge_at(lictor, &stub, rows.collect()).await;
}

#[tokio::test]
async fn denied_and_unknown_are_told_apart_by_the_operator_only() {
    let stub = Stub::answering(answer).await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_b(&lictor).await;
    let mut told = Vec::new();
    for body in [
        call("wipe", "{}"),
        call("lookup", "{}"),
        call("nonesuch", "{}"),
        request("vendor/nonesuch", "{}"),
    ] {
        let answer = send(&mut caller, "POST", &[], body).await.whole().await;
        assert_eq!(answer.status, 200);
        let json = answer.json();
        assert_eq!(json["id"], 7);
        assert_eq!(json["error"]["data"]["retryable"], false);
        let decision = json["error"]["data"]["decisionId"].as_str().expect("an id").to_owned();
        let message = json["error"]["message"].as_str().expect("a message");
        assert!(message.contains(&decision), "{message}");
        told.push((json["error"]["code"].as_i64().expect("a code"), decision));
    }
    assert_eq!(told.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [4030, 4030, 4030, -32601]);
    let text = metrics(&lictor).await;
    let count = |outcome| sample(&text, "lictor_calls_total", &["decision=\"deny\"", outcome]);
    assert_eq!(count("outcome=\"policy_denied\""), 3.0, "{text}");
    assert_eq!(count("outcome=\"unknown_method\""), 1.0, "{text}");
    assert_eq!(stub.requests(), 0);
    let closings = lictor.stop(4).await;
    let seen: Vec<_> = told
        .iter()
        .map(|(_, decision)| {
            let entry = closings.iter().find(|entry| entry["call_id"] == **decision);
            let entry = entry.expect("an entry");
            assert_eq!((&entry["stage"], &entry["decision"]), (&"policy".into(), &"deny".into()));
            assert_eq!(entry["req_sha256"].as_str().map(str::len), Some(64));
            (entry["status"].clone(), entry["policies"].clone())
        })
        .collect();
    let policies = |at: usize| seen[at].1.as_array().cloned().unwrap_or_default();
    assert_eq!(policies(0), ["no-wipe"]);
    assert!([1, 2, 3].iter().all(|at| policies(*at).is_empty()), "{seen:?}");
    let statuses: Vec<_> = seen.iter().map(|(status, _)| status).collect();
    assert_eq!(statuses, ["policy_denied", "policy_denied", "policy_denied", "unknown_method"]);
}

#[tokio::test]
async fn messages_that_want_no_answer_get_none() {
    let text = |method: &str| format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
    let headers = format!("{JSON}{LEGACY}");
    let modern = format!("{JSON}{MODERN}");
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}}"#;
    let rows = [
        ("initialized", &headers, text("notifications/initialized"), Forwarded),
        ("cancelled", &headers, cancelled.into(), Forwarded),
        ("a result", &headers, r#"{"jsonrpc":"2.0","id":"srv-1","result":{}}"#.into(), Forwarded),
        (
            "an error",
            &headers,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#.into(),
            Forwarded,
        ),
        ("modern: cancelled", &modern, cancelled.into(), Forwarded),
        ("unknown", &headers, text("notifications/nonesuch"), Refused(404, -32601, "")),
        ("denied", &headers, text("notifications/roots/list_changed"), Refused(403, 4030, "")),
        ("modern: unknown", &modern, text("notifications/nonesuch"), Refused(404, -32601, "")),
        (
            "modern: of the other era",
            &modern,
            text("notifications/initialized"),
            Refused(404, -32601, ""),
        ),
        (
            "modern: a result",
            &modern,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(),
            Refused(400, -32600, "7"),
        ),
        (
            "a result without an id",
            &headers,
            r#"{"jsonrpc":"2.0","result":{}}"#.into(),
            Refused(400, -32600, "null"),
        ),
    ];
    let rows = rows.map(|(name, headers, body, expect)| Row::new(name, headers, body, expect));
    judge(rows.into()).await;
}

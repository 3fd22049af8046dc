//! What a client sees through Lictor equals what it sees without.
//!
//! `docs/compatibility.md` has a table for each test; `LICTOR_WRITE_DOCS=1` writes it.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;

use crate::{
    clients::{Client, JAVASCRIPT, JSON_RPC, PYTHON, REST, Report, Sdk, Sight},
    document::compare_with_document,
    site::{PERMIT, Site},
};

/// A step of the drivers: its name there, and what it is.
struct Step(&'static str, &'static str);

const STEPS: &[Step] = &[
    Step("read_card", "the card"),
    Step("extended_card", "the extended card"),
    Step("send_message", "a message, answered by one"),
    Step("send_task", "a message, answered by a task"),
    Step("send_parts", "text, data, bytes and references to files"),
    Step("stream_message", "a stream of a message"),
    Step("stream_task", "a stream of a task, with its result in pieces"),
    Step("stream_parts", "a stream with all kinds of parts"),
    Step("large", "messages of 512 KiB"),
    Step("many", "twelve messages at once"),
    Step("tenant", "a tenant"),
    Step("extensions", "extensions of the protocol"),
    Step("references", "references to other tasks"),
    Step("fail", "tasks that fail, or are rejected"),
    Step("ask", "a task that asks back"),
    Step("stream_ask", "a stream of one, and of its answer"),
    Step("get", "a task, with as much history as is asked for"),
    Step("list", "lists of tasks, page by page"),
    Step("cancel", "cancellation"),
    Step("cancel_done", "cancellation of what is done: an error"),
    Step("subscribe", "what becomes of a task that is under way"),
    Step("subscribe_done", "the same of one that is done: an error"),
    Step("push_create", "push configurations: create"),
    Step("push_get", "push configurations: get"),
    Step("push_list", "push configurations: list"),
    Step("push_delete", "push configurations: delete"),
    Step("push_list_again", "push configurations: list of none"),
    Step("push_inline", "push configurations: with a message"),
    Step("unknown_get", "a task that there isn't: get"),
    Step("unknown_cancel", "a task that there isn't: cancel"),
    Step("unknown_send", "a task that there isn't: message"),
    Step("unknown_stream", "a task that there isn't: stream"),
    Step("unknown_subscribe", "a task that there isn't: subscribe"),
    Step("unknown_push", "a task that there isn't: push configurations"),
];

/// What is to be an error, with Lictor and without.
const ERRORS: &[&str] = &[
    "cancel_done",
    "subscribe_done",
    "unknown_cancel",
    "unknown_get",
    "unknown_push",
    "unknown_send",
    "unknown_stream",
    "unknown_subscribe",
];

/// What an SDK doesn't do by version 0.3, with the steps that are an error without Lictor.
struct Missing(Sdk, &'static [&'static str]);

#[tokio::test]
async fn clients_see_the_same_by_json_rpc() {
    let missing = [Missing(PYTHON, &["list"]), Missing(JAVASCRIPT, &["list"])];
    compare("A2A by JSON-RPC", JSON_RPC, &missing).await;
}

#[tokio::test]
async fn clients_see_the_same_by_rest() {
    // The two SDKs don't agree on the messages of version 0.3, and the Python one lacks some of it.
    let missing = [
        Missing(PYTHON, &["list", "push_delete", "push_inline", "push_list", "push_list_again"]),
        Missing(
            JAVASCRIPT,
            &["list", "push_create", "push_delete", "push_get", "send_parts", "stream_parts"],
        ),
    ];
    compare("A2A by REST", REST, &missing).await;
}

async fn compare(heading: &str, binding: &'static str, missing: &[Missing]) {
    let site = Site::start(PERMIT).await;
    let mut faults = Vec::new();
    let mut columns = Vec::new();
    for &Missing(sdk, missing) in missing {
        for (version, missing) in [("1.0", &[][..]), ("0.3", missing)] {
            let client = Client { sdk, binding, version };
            let direct = faults_of(client, &site, missing, &mut faults).await;
            columns.push((client.title(), direct));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    compare_with_document(heading, &table(&columns));
    site.stop().await;
}

/// Compares what a client sees at both doors with what it sees of the agent itself, which is returned.
async fn faults_of(
    client: Client,
    site: &Site,
    missing: &[&str],
    faults: &mut Vec<String>,
) -> Report {
    let [direct, plain, mutual] = [site.direct(), site.plain(), site.mutual()];
    let http2: &[&str] = if client.sdk.speaks_http2() { &["--http2"] } else { &[] };
    let (direct, plain, mutual) = tokio::join!(
        client.report(&direct, &[]),
        client.report(&plain, &[]),
        client.report(&mutual, http2),
    );
    let errors: BTreeSet<&str> = ERRORS.iter().chain(missing).copied().collect();
    let raised = direct.iter().filter(|(_, sight)| matches!(sight, Sight::Error(_)));
    assert_eq!(
        raised.map(|(step, _)| step.as_str()).collect::<BTreeSet<_>>(),
        errors,
        "{client:?}"
    );
    for (door, seen) in [("plain", plain), ("mutual", mutual)] {
        assert_eq!(seen.len(), STEPS.len(), "{client:?} {door}");
        for Step(step, _) in STEPS {
            let sides = [&direct, &seen].map(|report| report.get(*step).expect("every step"));
            if !alike(step, sides) {
                let [direct, through] = sides;
                let Client { sdk, binding, version } = client;
                faults.push(format!(
                    "{sdk:?} {binding} {version} {door} {step}\n  directly {direct:?}\n  through  {through:?}"
                ));
            }
        }
    }
    direct
}

/// Whether a step came to the same, but for what Lictor has to say otherwise.
fn alike(step: &str, [direct, through]: [&Sight; 2]) -> bool {
    if direct == through {
        return true;
    }
    match (step, direct, through) {
        // A door that asks for a certificate says so.
        ("read_card" | "extended_card", Sight::Seen(direct), Sight::Seen(through)) => {
            without(direct, "security") == without(through, "security")
        }
        // How many tasks others have is nobody's business.
        ("list", Sight::Seen(direct), Sight::Seen(through)) => {
            without(direct, "totalSize") == without(through, "totalSize")
        }
        // Lictor answers itself for a task that nobody was handed.
        (_, Sight::Error(_), Sight::Error(through)) if step.starts_with("unknown_") => {
            tells(through, &["TaskNotFound", "TASK_NOT_FOUND"])
        }
        // Where an agent breaks a stream off, Lictor tells so before it ends.
        (_, Sight::Error(direct), Sight::Error(through)) => {
            tells(direct, &["incomplete", "terminated"]) && tells(through, &["UPSTREAM_FAILED"])
        }
        _ => false,
    }
}

/// A value without the members whose names begin like this.
fn without(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(key, _)| !key.starts_with(name));
            kept.map(|(key, value)| (key.clone(), without(value, name))).collect()
        }
        Value::Array(items) => items.iter().map(|item| without(item, name)).collect(),
        other => other.clone(),
    }
}

fn tells(error: &Value, words: &[&str]) -> bool {
    let error = error.to_string();
    words.iter().any(|word| error.contains(word))
}

/// "Yes" where it is as it is to be without Lictor, and through it.
fn table(columns: &[(String, Report)]) -> String {
    let heads: Vec<_> = columns.iter().map(|(title, _)| title.as_str()).collect();
    let rule = "|---".repeat(heads.len() + 1);
    let mut table = format!("| feature | {} |\n{rule}|\n", heads.join(" | "));
    for Step(step, title) in STEPS {
        let works = |report: &Report| {
            ERRORS.contains(step) == matches!(report.get(*step), Some(Sight::Error(_)))
        };
        let cells: Vec<_> =
            columns.iter().map(|(_, report)| if works(report) { "yes" } else { "–" }).collect();
        writeln!(table, "| {title} | {} |", cells.join(" | ")).expect("room");
    }
    table
}

//! The record, whatever happens: one chain, one closing entry for each message, nothing acknowledged lost.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    env, fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    ca::Ca,
    http::{Caller, Wire, within},
    site::{
        AGENT_A, AGENT_B, Site, TLS_B, agent_a, agent_b, call, metrics, request, sample, send,
        tls_of, wire_a,
    },
    stub::{Seen, Stub, json, result},
};

/// Verifies a chain with nothing but a JSON parser and another SHA-256; its entries.
fn verified(ledger: &Path) -> Vec<Value> {
    let files = fs::read_dir(ledger).expect("a ledger").map(|file| file.expect("a file").path());
    let mut segments: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    segments.sort();
    let (mut head, mut entries) = (vec![0; 32], Vec::<Value>::new());
    for segment in segments {
        let text = fs::read(segment).expect("readable");
        // What follows the last line end is half a line.
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { continue };
        for line in text[..end].split(|byte| *byte == b'\n') {
            let (entry, hash) = line.split_at(line.len() - 65);
            head.extend_from_slice(entry);
            head = ring::digest::digest(&ring::digest::SHA256, &head).as_ref().to_vec();
            let hex = data_encoding::HEXLOWER.encode(&head);
            assert_eq!(hash, format!("\t{hex}").as_bytes(), "entry {}", entries.len());
            let entry: Value = serde_json::from_slice(entry).expect("JSON");
            assert_eq!(entry["seq"], entries.len());
            assert!(entries.last().is_none_or(|last| last["ts"].as_str() <= entry["ts"].as_str()));
            entries.push(entry);
        }
    }
    assert!(entries.iter().all(|entry| entry["chain"] == entries[0]["chain"]));
    entries
}

fn digest(body: impl AsRef<[u8]>) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, body.as_ref());
    data_encoding::HEXLOWER.encode(digest.as_ref())
}

/// The kinds of the entries of each call.
fn kinds(entries: &[Value]) -> BTreeMap<&str, Vec<&str>> {
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in entries {
        if let (Some(id), Some(kind)) = (entry["call_id"].as_str(), entry["kind"].as_str()) {
            kinds.entry(id).or_default().push(kind);
        }
    }
    kinds
}

#[tokio::test]
async fn parallel_calls_make_one_chain_that_anybody_can_verify() {
    let stub = Stub::json().await;
    let lictor = Arc::new(Site::to(&stub.url()).start().await);
    let mut callers = JoinSet::new();
    for at in 0..200 {
        let lictor = Arc::clone(&lictor);
        callers.spawn(async move {
            // Names and arguments that have to survive their way into a line and back.
            let (tool, arguments) = match at % 4 {
                0 => (
                    "echo",
                    format!(r#"{{"at":{at},"t":"\u2028","z":-0.0,"big":9007199254740993}}"#),
                ),
                1 => ("lookup", format!(r#"{{"at":{at},"s":1e-7}}"#)),
                2 => ("w\u{456}pe\u{1f600}\u{e9}", format!(r#"{{"at":{at}}}"#)),
                _ => ("wipe", format!(r#"{{"at":{at}}}"#)),
            };
            let body = call(tool, &arguments);
            let mut caller =
                if at % 2 == 0 { agent_a(&lictor).await } else { agent_b(&lictor).await };
            let answer = send(&mut caller, "POST", &[], body.as_str()).await.whole().await;
            assert_eq!(answer.status, 200);
            (digest(&body), digest(&answer.body))
        });
    }
    let mut sent = HashMap::new();
    while let Some(done) = callers.join_next().await {
        let (asked, answered) = done.expect("a call");
        sent.insert(asked, answered);
    }
    let second = within("a second process", lictor.again()).await;
    assert!(!second.status.success(), "{second:?}");
    let mut lictor = Arc::into_inner(lictor).expect("every caller has gone");
    let directory = lictor.directory().to_owned();
    lictor.terminate().await;
    assert!(lictor.ended().await.success());
    lictor.closings(200).await;
    let entries = verified(&directory.join("ledger"));
    let closed = entries.iter().filter(|entry| {
        let (asked, answered) = (entry["req_sha256"].as_str(), entry["resp_sha256"].as_str());
        asked.is_some_and(|asked| sent.get(asked).map(String::as_str) == answered)
            && entry["kind"] != "intent"
    });
    assert_eq!(closed.count(), 200);
    let intents = entries.iter().filter(|entry| entry["kind"] == "intent").count();
    assert_eq!(intents, 50, "only `echo` may change something and is permitted");
}

/// How long a Lictor lives before it is killed, from the bits of an id.
fn some_time() -> Duration {
    let bytes = uuid::Uuid::now_v7().into_bytes();
    Duration::from_millis(u64::from(bytes[14]) / 2 + u64::from(bytes[15]) / 16)
}

/// Calls until the other side is gone; the digests of what was answered.
async fn until_killed(address: std::net::SocketAddr, ids: Arc<AtomicUsize>) -> Vec<String> {
    let mut answered = Vec::new();
    let mut caller = Caller::plain(address).await;
    loop {
        let at = ids.fetch_add(1, Ordering::Relaxed);
        let tool = if at.is_multiple_of(3) { "lookup" } else { "echo" };
        let body = call(tool, &format!(r#"{{"at":{at}}}"#));
        let request = caller.request("POST", crate::http::whole(body.clone()));
        let Ok(mut reply) = caller.try_send(request).await else { return answered };
        loop {
            match reply.try_chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return answered,
            }
        }
        if tool == "echo" {
            answered.push(digest(&body));
        }
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let rounds = env::var("LICTOR_KILL_ROUNDS").map_or(20, |text| text.parse().expect("a number"));
    let stub = Stub::json().await;
    let ids = Arc::new(AtomicUsize::new(0));
    let (mut answered, mut recovered, mut left) = (HashSet::new(), 0, rounds);
    while left > 0 {
        // A fresh chain now and then, since each round looks at all of it.
        let mut lictor = Site::to(&stub.url()).start().await;
        let ledger = lictor.directory().join("ledger");
        let mut here = HashSet::new();
        let seen_before = stub.seen().len();
        for _ in 0..left.min(5) {
            let mut callers = JoinSet::new();
            for _ in 0..8 {
                callers.spawn(until_killed(lictor.plain, Arc::clone(&ids)));
            }
            sleep(some_time()).await;
            lictor.signal("KILL").await;
            assert!(!lictor.ended().await.success());
            while let Some(done) = callers.join_next().await {
                here.extend(done.expect("a caller"));
            }
            verified(&ledger);
            lictor = lictor.restart().await;
        }
        left -= left.min(5);
        lictor.terminate().await;
        assert!(lictor.ended().await.success());
        let entries = verified(&ledger);
        let intents: HashSet<_> = entries
            .iter()
            .filter(|entry| entry["kind"] == "intent")
            .filter_map(|entry| entry["req_sha256"].as_str())
            .collect();
        // What the upstream heard of, and so whatever was acknowledged.
        let heard = stub.seen().split_off(seen_before);
        let changes = heard.iter().filter(|seen| seen.body.windows(6).any(|at| at == b"\"echo\""));
        for seen in changes {
            assert!(intents.contains(&*digest(&seen.body)), "no intent of {:?}", seen.body);
        }
        assert!(here.iter().all(|body| intents.contains(&**body)));
        for (id, kinds) in kinds(&entries) {
            match &*kinds {
                ["outcome"] | ["denied"] | ["intent", "outcome"] => {}
                ["intent", "recovered"] => recovered += 1,
                kinds => panic!("{id}: {kinds:?}"),
            }
        }
        answered.extend(here);
    }
    println!("{rounds} kills, {} answered, {recovered} recovered", answered.len());
    assert!(!answered.is_empty(), "no call was ever answered");
}

/// Answers by the name of the tool, or not at all.
fn by_tool(seen: &Seen) -> Vec<u8> {
    let message: Value = serde_json::from_slice(&seen.body).expect("JSON");
    let what = message["params"]["arguments"]["answer"].as_str().unwrap_or_default().to_owned();
    let error = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    match &*what {
        "5xx" => error.into(),
        "cut" => b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\nConnection: close\r\n\r\n{".into(),
        "none" => Vec::new(),
        "garbage" => b"SSH-2.0-x\r\n\r\n".into(),
        _ => json(&result(seen, "{}")),
    }
}

#[tokio::test]
async fn every_stage_closes_what_it_ends_exactly_once() {
    const TYPES: &str = r#"
action "files/lookup" in ["tools/call", "read"] appliesTo {
  principal: Agent, resource: Tool, context: { input: { count: Long } },
};
"#;
    const COUNTED: &str = r#"
@id("counted") forbid (principal, action == Action::"files/lookup", resource)
when { context.input.count > 9 };
"#;
    let stub = Stub::answering(by_tool).await;
    let site = Site::to(&stub.url())
        .policies(&format!("{}{COUNTED}", crate::site::POLICIES))
        .file("policies/lookup.cedarschema", TYPES)
        .with("limits: { body: 4KiB }");
    let lictor = site.start().await;
    let large = call("echo", &format!(r#"{{"a":"{}"}}"#, "x".repeat(5000)));
    let answer = |what: &str| call("echo", &format!(r#"{{"answer":"{what}"}}"#));
    // Body, headers; then the entry's kind, status, stage, decision.
    let none = "";
    let rows = [
        (call("echo", "{}"), none, "outcome", "ok", none, "permit"),
        (answer("5xx"), none, "outcome", "ok", none, "permit"),
        (answer("cut"), none, "outcome", "upstream_failed", none, "permit"),
        (answer("none"), none, "outcome", "upstream_failed", none, "permit"),
        (answer("garbage"), none, "outcome", "upstream_failed", none, "permit"),
        ("{".to_owned(), none, "denied", "parse_error", none, "none"),
        ("[]".to_owned(), none, "denied", "invalid_request", none, "none"),
        (call("echo", "[]"), none, "denied", "invalid_params", none, "none"),
        (large, none, "denied", "request_too_large", none, "none"),
        (
            call("echo", "1 "),
            "MCP-Protocol-Version: 1\r\n",
            "denied",
            "unsupported_version",
            none,
            "none",
        ),
        (
            call("echo", r#"{"b":0}"#),
            "Mcp-Session-Id: s\r\n",
            "denied",
            "unknown_session",
            "ownership",
            "deny",
        ),
        (request("vendor/x", "{}"), none, "denied", "unknown_method", "policy", "deny"),
        (call("wipe", "{}"), none, "denied", "policy_denied", "policy", "deny"),
        (call("lookup", r#"{"count":10}"#), none, "denied", "policy_denied", "policy", "deny"),
        (call("lookup", r#"{"count":1.5}"#), none, "denied", "policy_denied", "policy", "deny"),
        (call("lookup", "{}"), none, "denied", "policy_denied", "policy", "deny"),
    ];
    for (body, headers, ..) in &rows {
        let mut wire = wire_a(&lictor).await;
        let length = body.len();
        wire.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             {headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
        assert!(!wire.rest().await.is_empty(), "{body}");
    }
    // Nobody that can be named; no route; a caller who leaves in the middle of a body.
    let stranger = Ca::new("td-two.example.org").svid("/agent-a");
    let mut wire = Wire::connect_tls(lictor.mutual, &tls_of(&stranger)).await;
    assert_eq!(wire.rest().await, b"");
    let mut caller = agent_a(&lictor).await;
    let nowhere = caller.request_to("POST", "/nowhere", crate::http::whole(call("echo", "{}")));
    assert_eq!(caller.send(nowhere).await.whole().await.status, 404);
    let mut wire = wire_a(&lictor).await;
    wire.send("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{").await;
    drop(wire);
    let requests = rows.len() + 2;
    let ended = async {
        while sample(&metrics(&lictor).await, "lictor_calls_total", &[]) < requests as f64 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("the end of every request", ended).await;
    assert!(
        (sample(&metrics(&lictor).await, "lictor_calls_total", &[]) - requests as f64).abs() < 0.5
    );
    assert_eq!(stub.requests(), 5);
    let closings = lictor.stop(requests + 1).await;
    for (body, _, kind, status, stage, decision) in rows {
        let digest = digest(&body);
        let whole = status != "request_too_large";
        let mut of: Vec<_> = closings
            .iter()
            .filter(|entry| match whole {
                true => entry["req_sha256"] == *digest,
                false => entry["status"] == status,
            })
            .collect();
        if of.len() > 1 {
            // The same body with another header.
            of.retain(|entry| entry["status"] == status);
        }
        assert_eq!(of.len(), 1, "{body}: {of:#?}");
        let told = ["kind", "status", "stage", "decision", "peer"]
            .map(|key| of[0][key].as_str().unwrap_or_default());
        assert_eq!(told, [kind, status, stage, decision, AGENT_A], "{body}");
    }
    let of = |status: &str| closings.iter().find(|entry| entry["status"] == status);
    assert_eq!(of("certificate_refused").expect("an entry")["peer"], "unauthenticated");
    assert_eq!(of("no_route").expect("an entry")["peer"], AGENT_A);
}

#[tokio::test]
async fn an_upstream_that_says_nothing_and_a_caller_who_leaves_are_on_record() {
    let mut stub = Stub::scripted().await;
    let site = Site::to(&stub.url()).upstream("timeouts: { firstByte: 500ms }");
    let lictor = site.start().await;
    let mut patient = agent_a(&lictor).await;
    let late = call("echo", r#"{"who":"late"}"#);
    let (reply, held) = tokio::join!(send(&mut patient, "POST", &[], late.as_str()), stub.call());
    assert_eq!(reply.whole().await.kind(), "upstream_timeout");
    drop(held);
    let gone = call("echo", r#"{"who":"gone"}"#);
    let mut hasty = Caller::tls(lictor.mutual, &TLS_B, false).await;
    let left = timeout(Duration::from_millis(50), send(&mut hasty, "POST", &[], gone.as_str()));
    let (left, mut held) = tokio::join!(left, stub.call());
    assert!(left.is_err(), "nobody answered");
    drop(hasty);
    held.abandoned().await;
    let closings = lictor.stop(2).await;
    for (body, status, peer) in
        [(late, "upstream_timeout", AGENT_A), (gone, "client_gone", AGENT_B)]
    {
        let digest = digest(body);
        let entry = closings.iter().find(|entry| entry["req_sha256"] == *digest).expect("an entry");
        let of = ["kind", "status", "peer"].map(|key| entry[key].as_str());
        assert_eq!(of, ["outcome", status, peer].map(Some));
        assert_eq!(entry["complete"], status == "upstream_timeout");
    }
}

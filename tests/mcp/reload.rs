//! Another configuration on a running Lictor: taken over as a whole, or not at all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::time::sleep;

use crate::{
    http::{Answer, Caller, whole, within},
    site::{POLICIES, Site, agent_a, call, logged, metrics, request, sample, send},
    stub::{Stub, json, result},
    subject::Lictor,
};

mod files;
mod lists;
mod refused;
mod series;

/// Between two looks of a test.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) const APPLIED: &[&str] = &["outcome=\"applied\""];
const REJECTED: &[&str] = &["outcome=\"rejected\""];

/// Puts another text in the place of one in a file, at once.
pub(crate) fn edit(lictor: &Lictor, file: &str, from: &str, to: &str) {
    let path = lictor.directory().join(file);
    let text = std::fs::read_to_string(&path).expect("a file");
    assert!(text.contains(from), "no {from:?} in {text}");
    put(lictor, file, &text.replace(from, to));
}

/// Puts a file in the place of another, at once.
fn put(lictor: &Lictor, file: &str, text: &str) {
    let path = lictor.directory().join(file);
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("a file");
    std::fs::rename(beside, path).expect("a file");
}

/// Waits until so many changes of the configuration have been taken over, or not.
pub(crate) async fn reloads(lictor: &Lictor, outcome: &[&str], count: f64) {
    let looking = async {
        while sample(&metrics(lictor).await, "lictor_config_reloads_total", outcome) < count {
            sleep(PAUSE).await;
        }
    };
    within("a reload", looking).await;
}

/// Sends one message on a connection of its own, which a refusal may end.
async fn post_to(lictor: &Lictor, path: &str, body: &str) -> Answer {
    let mut caller = agent_a(lictor).await;
    let request = caller.request_to("POST", path, whole(body.to_owned()));
    caller.send(request).await.whole().await
}

/// What a stub's tool says.
fn says(text: &'static str) -> impl Fn(&crate::stub::Seen) -> Vec<u8> {
    move |seen| {
        json(&result(seen, &format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)))
    }
}

fn said(answer: &Answer) -> String {
    answer.json()["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn routes_come_and_go() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let echo = call("echo", "{}");
    assert_eq!(post_to(&lictor, "/more", &echo).await.status, 404);
    let route = "{ path: /mcp, protocol: mcp, upstream: files }";
    let more = "{ path: /more, protocol: mcp, upstream: files, mode: shadow }";
    edit(&lictor, "lictor.yaml", route, &format!("{route}, {more}"));
    reloads(&lictor, APPLIED, 1.0).await;
    assert_eq!(post_to(&lictor, "/more", &echo).await.status, 200);
    assert_eq!(post_to(&lictor, "/mcp", &echo).await.status, 200);
    let weakened = ["setting=\"mode: shadow\""];
    assert_eq!(sample(&metrics(&lictor).await, "lictor_unsafe_settings", &weakened), 2.0);
    edit(&lictor, "lictor.yaml", &format!("{route}, {more}"), more);
    reloads(&lictor, APPLIED, 2.0).await;
    assert_eq!(post_to(&lictor, "/mcp", &echo).await.status, 404);
    edit(&lictor, "lictor.yaml", more, route);
    reloads(&lictor, APPLIED, 3.0).await;
    assert_eq!(post_to(&lictor, "/more", &echo).await.status, 404);
    assert_eq!(post_to(&lictor, "/mcp", &echo).await.status, 200);
    assert_eq!(sample(&metrics(&lictor).await, "lictor_unsafe_settings", &weakened), 0.0);
    // All on one connection to the upstream.
    assert_eq!(stub.connections(), 1);
    let entries = lictor.entries().await;
    let told = entries.iter().filter(|entry| entry["kind"] == "config");
    let digests: std::collections::BTreeSet<_> =
        told.map(|entry| entry["config_sha256"].as_str().expect("a digest").to_owned()).collect();
    assert_eq!(digests.len(), 3, "the first and the last are the same");
    lictor.stop(6).await;
}

#[tokio::test]
async fn an_upstream_moves_and_no_call_is_lost() {
    const CALLERS: usize = 6;
    let (old, new) = (Stub::answering(says("old")).await, Stub::answering(says("new")).await);
    let lictor = Site::to(&old.url()).start().await;
    let moved = Arc::new(AtomicBool::new(false));
    let mut working = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (mut caller, moved) = (agent_a(&lictor).await, Arc::clone(&moved));
        working.spawn(async move {
            let (mut asked, mut later) = (0, 0);
            let mut last = String::new();
            while later < 20 {
                let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let text = said(&answer);
                assert!(text == "new" || last != "new", "{last} and then {text}");
                last = text;
                asked += 1;
                later += usize::from(moved.load(Ordering::Relaxed));
            }
            assert_eq!(last, "new");
            asked
        });
    }
    edit(&lictor, "lictor.yaml", &old.url(), &new.url());
    reloads(&lictor, APPLIED, 1.0).await;
    moved.store(true, Ordering::Relaxed);
    let asked = within("the callers", working.join_all()).await.iter().sum();
    assert_eq!(old.requests() + new.requests(), asked);
    lictor.stop(asked).await;
}

#[tokio::test]
async fn a_call_ends_where_it_began() {
    let mut old = Stub::scripted().await;
    let new = Stub::answering(says("new")).await;
    let lictor = Site::to(&old.url()).start().await;
    let echo = call("echo", "{}");
    let (begun, ()) = tokio::join!(post_to(&lictor, "/mcp", &echo), async {
        let pending = old.call().await;
        edit(&lictor, "lictor.yaml", &old.url(), &new.url());
        reloads(&lictor, APPLIED, 1.0).await;
        let answer = post_to(&lictor, "/mcp", &echo).await;
        assert_eq!(said(&answer), "new");
        pending.answer(r#"{"content":[{"type":"text","text":"old"}]}"#).await;
    });
    assert_eq!(said(&begun), "old");
    assert_eq!(old.requests(), 1);
    lictor.stop(2).await;
}

#[tokio::test]
async fn policies_and_routes_change_together() {
    let (one, two) = (Stub::answering(says("one")).await, Stub::answering(says("two")).await);
    let lictor = Site::to(&one.url()).start().await;
    // The new route leads to an upstream of which the old policies know nothing, and the new ones don't
    // load under the old configuration: their tool is of no class there.
    let policies = format!(
        "{POLICIES}@id(\"other\") permit (principal, action in Action::\"read\", \
         resource == Tool::\"other/see\");"
    );
    put(&lictor, "policies/all.cedar", &policies);
    let route = "{ path: /mcp, protocol: mcp, upstream: files }";
    let other = "{ path: /other, protocol: mcp, upstream: other }";
    let upstreams = format!(
        "upstreams:\n- {{ name: other, url: '{}', tools: {{ see: {{ class: read }} }} }}\n",
        two.url()
    );
    let path = lictor.directory().join("lictor.yaml");
    let text = std::fs::read_to_string(path).expect("a file");
    let text = text.replace(route, &format!("{route}, {other}"));
    put(&lictor, "lictor.yaml", &text.replace("upstreams:\n", &upstreams));
    let see = call("see", "{}");
    let asking = async {
        let mut asked = 1;
        loop {
            let answer = post_to(&lictor, "/other", &see).await;
            if answer.status == 200 {
                // No moment in which the route is there and the policy isn't.
                assert_eq!(said(&answer), "two", "{}", answer.text());
                return asked;
            }
            assert_eq!(answer.status, 404);
            asked += 1;
            sleep(PAUSE).await;
        }
    };
    let asked = within("the new route", asking).await;
    let applied = sample(&metrics(&lictor).await, "lictor_policy_reloads_total", APPLIED);
    assert_eq!(applied, 1.0);
    lictor.stop(asked).await;
}

#[tokio::test]
async fn limits_change() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).with("limits: { body: 2KiB }").start().await;
    let long = call("echo", &format!(r#"{{"a":"{}"}}"#, "a".repeat(3000)));
    assert_eq!(post_to(&lictor, "/mcp", &long).await.status, 413);
    edit(&lictor, "lictor.yaml", "body: 2KiB", "body: 4KiB, bodiesInFlight: 4KiB");
    reloads(&lictor, APPLIED, 1.0).await;
    assert_eq!(post_to(&lictor, "/mcp", &long).await.status, 200);
    let longer = call("echo", &format!(r#"{{"a":"{}"}}"#, "a".repeat(5000)));
    assert_eq!(post_to(&lictor, "/mcp", &longer).await.status, 413);
    lictor.stop(3).await;
}

#[tokio::test]
async fn rate_limits_change_and_those_that_stay_keep_count() {
    let stub = Stub::json().await;
    let hourly = "{ name: hourly, rate: 2/1h }";
    let lictor = Site::to(&stub.url()).with(&format!("rateLimits: [{hourly}]")).start().await;
    let is_served =
        async || post_to(&lictor, "/mcp", &call("echo", "{}")).await.json()["error"].is_null();
    assert!(is_served().await && is_served().await && !is_served().await);
    let more = "{ name: more, rate: 1000/1h }";
    edit(&lictor, "lictor.yaml", hourly, &format!("{more}, {hourly}"));
    reloads(&lictor, APPLIED, 1.0).await;
    assert!(!is_served().await, "nothing comes back by a reload");
    edit(&lictor, "lictor.yaml", hourly, "{ name: hourly, rate: 3/1h }");
    reloads(&lictor, APPLIED, 2.0).await;
    assert!(is_served().await && is_served().await && is_served().await && !is_served().await);
    edit(
        &lictor,
        "lictor.yaml",
        &format!("rateLimits: [{more}, {{ name: hourly, rate: 3/1h }}]"),
        "",
    );
    reloads(&lictor, APPLIED, 3.0).await;
    assert!(is_served().await);
    assert_eq!(stub.requests(), 6);
    lictor.stop(9).await;
}

#[tokio::test]
async fn what_says_the_same_is_not_reloaded_unless_somebody_asks() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    // The same file with other times: nothing is reloaded.
    let text = std::fs::read_to_string(lictor.directory().join("lictor.yaml")).expect("a file");
    put(&lictor, "lictor.yaml", &text);
    put(&lictor, "policies/all.cedar", "permit (principal, action, resource);");
    let asking = async {
        let mut asked = 1;
        while send(&mut caller, "POST", &[], call("wipe", "{}")).await.whole().await.json()["error"]
            != Value::Null
        {
            asked += 1;
            sleep(PAUSE).await;
        }
        asked
    };
    let asked = within("other policies", asking).await;
    let text = metrics(&lictor).await;
    assert_eq!(sample(&text, "lictor_config_reloads_total", &[]), 0.0);
    assert_eq!(sample(&text, "lictor_policy_reloads_total", APPLIED), 1.0);
    // Unless somebody asks.
    lictor.signal("HUP").await;
    reloads(&lictor, APPLIED, 1.0).await;
    logged(&lictor, "configuration reloaded").await;
    let list = send(&mut caller, "POST", &[], request("tools/list", "{}")).await.whole().await;
    assert_eq!(list.status, 200);
    lictor.stop(asked + 1).await;
}

//! Rate limits, budgets and hours: what they refuse, what the caller is told, and what goes on all the same.

mod shared;

use std::time::Duration;

use lictor::telemetry::Clock;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    http::{Answer, Caller, within},
    site::{AGENT_A, Site, agent_a, agent_b, call, metrics, request, sample, send},
    stub::Stub,
};

async fn post(caller: &mut Caller, body: impl Into<String>) -> Answer {
    send(caller, "POST", &[], body).await.whole().await
}

/// The code of the error, if it is one.
async fn code(caller: &mut Caller, body: impl Into<String>) -> Option<i64> {
    post(caller, body).await.json()["error"]["code"].as_i64()
}

/// The codes of some calls of `echo`.
async fn echoes(caller: &mut Caller, calls: usize) -> Vec<Option<i64>> {
    let mut codes = Vec::new();
    for _ in 0..calls {
        codes.push(code(caller, call("echo", "{}")).await);
    }
    codes
}

#[tokio::test]
async fn a_call_over_a_limit_is_told_when_to_come_back() {
    let stub = Stub::json().await;
    let limits = "rateLimits: [{ name: per-agent, rate: 2/1h }]";
    let lictor = Site::to(&stub.url()).with(limits).start().await;
    let mut caller = agent_a(&lictor).await;
    assert_eq!(echoes(&mut caller, 2).await, [None, None]);

    let refused = post(&mut caller, call("echo", "{}")).await;
    assert_eq!(refused.status, 200);
    let message = refused.json();
    assert_eq!(message["id"], 7);
    let error = &message["error"];
    assert_eq!(error["code"], 4290);
    let data = &error["data"];
    assert_eq!((&data["kind"], &data["retryable"]), (&json!("rate_limited"), &json!(true)));
    assert_eq!(data["limits"], json!(["per-agent"]));
    let wait = data["retryAfterMs"].as_u64().expect("a wait");
    // Half an hour, and a little more so that not everybody comes back at once.
    assert!((1_790_000..=1_830_000).contains(&wait), "{wait}");
    let text = error["message"].as_str().expect("a text");
    let seconds = wait.div_ceil(1_000).to_string();
    let words = format!("; try again in {seconds} s (decision ");
    assert!(text.contains("`per-agent`") && text.contains(&words), "{text}");
    assert_eq!(refused.header("retry-after"), Some(&*seconds));
    assert_eq!(refused.header("ratelimit-policy"), Some(r#""per-agent";q=2;w=3600"#));
    // How the limit stands is told as it is.
    let standing = refused.header("ratelimit").expect("a header");
    let reset = standing.strip_prefix(r#""per-agent";r=0;t="#).expect("none is left");
    let reset: u64 = reset.parse().expect("seconds");
    assert!((1_790..=1_800).contains(&reset) && reset * 1_000 <= wait + 1_000, "{reset} {wait}");

    // Nobody else is held up, and neither is what clients can't wait with.
    assert_eq!(echoes(&mut agent_b(&lictor).await, 1).await, [None]);
    for body in [request("ping", "{}"), request("tools/list", "{}"), request("initialize", "{}")] {
        assert_eq!(code(&mut caller, body.clone()).await, None, "{body}");
    }
    // Who it is doesn't change with a connection, a header or a session.
    let spoofed =
        [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.1"), ("x-real-ip", "::1")];
    let again = send(&mut agent_a(&lictor).await, "POST", &spoofed, call("echo", "{}")).await;
    assert_eq!(again.whole().await.json()["error"]["code"], 4290);
    assert_eq!(stub.requests(), 2 + 1 + 3);

    let metrics = metrics(&lictor).await;
    let count =
        |outcome: &str| sample(&metrics, "lictor_limits_total", &["limit=\"per-agent\"", outcome]);
    assert_eq!((count("outcome=\"taken\""), count("outcome=\"refused\"")), (3.0, 2.0));
    let denied = ["decision=\"deny\"", "outcome=\"rate_limited\""];
    assert_eq!(sample(&metrics, "lictor_calls_total", &denied), 2.0);
    let entries = lictor.stop(8).await;
    let refused: Vec<&Value> =
        entries.iter().filter(|entry| entry["status"] == "rate_limited").collect();
    assert_eq!(refused.len(), 2);
    for entry in refused {
        assert_eq!((&entry["kind"], &entry["stage"]), (&json!("denied"), &json!("limits")));
        assert_eq!((&entry["decision"], &entry["peer"]), (&json!("deny"), &json!(AGENT_A)));
        assert_eq!(entry["limits"], json!(["per-agent"]));
    }
}

#[tokio::test]
async fn whoever_waits_as_told_is_let_through() {
    let stub = Stub::json().await;
    let limits = "rateLimits: [{ name: steady, rate: 5/1s, burst: 1 }]";
    let lictor = Site::to(&stub.url()).with(limits).start().await;
    let mut caller = agent_a(&lictor).await;
    let (mut served, mut refused) = (0, 0);
    while served < 4 || refused < 3 {
        let answer = post(&mut caller, call("echo", "{}")).await.json();
        let Some(wait) = answer["error"]["data"]["retryAfterMs"].as_u64() else {
            served += 1;
            continue;
        };
        refused += 1;
        assert!((1..=220).contains(&wait), "{wait}");
        sleep(Duration::from_millis(wait)).await;
        assert_eq!(code(&mut caller, call("echo", "{}")).await, None, "after {wait} ms");
        served += 1;
    }
    assert_eq!(stub.requests(), served);
    lictor.stop(served + refused).await;
}

#[tokio::test]
async fn all_limits_are_told_and_none_is_charged() {
    let stub = Stub::json().await;
    let limits = "rateLimits: [\
         { name: all, rate: 3/1h, per: [] }, \
         { name: daily, budget: 1/1d, when: { tools: [lookup] } }, \
         { name: dear, rate: 2/1h, cost: { lookup: 2 }, when: { tools: [lookup] } }]";
    let lictor = Site::to(&stub.url()).with(limits).start().await;
    let mut caller = agent_a(&lictor).await;
    assert_eq!(code(&mut caller, call("lookup", "{}")).await, None);
    // It is over two limits, so it takes nothing of the third.
    for _ in 0..5 {
        let refused = post(&mut caller, call("lookup", "{}")).await;
        let (policy, standing) = (refused.header("ratelimit-policy"), refused.header("ratelimit"));
        assert_eq!(policy, Some(r#""daily";q=1;w=86400, "dear";q=2;w=3600"#));
        assert!(standing.is_some_and(|text| text.contains(r#""dear";r=0;t="#)), "{standing:?}");
        let error = &refused.json()["error"];
        assert_eq!(
            (&error["code"], &error["data"]["limits"]),
            (&json!(4291), &json!(["daily", "dear"]))
        );
        // The longest wait.
        assert!(error["data"]["retryAfterMs"].as_u64().is_some_and(|wait| wait > 86_000_000));
    }
    assert_eq!(echoes(&mut caller, 3).await, [None, None, Some(4290)]);
    // Everybody shares that one.
    assert_eq!(echoes(&mut agent_b(&lictor).await, 1).await, [Some(4290)]);
    assert_eq!(stub.requests(), 3);
    lictor.stop(10).await;
}

#[tokio::test]
async fn what_is_denied_takes_nothing() {
    let stub = Stub::json().await;
    let limits = "rateLimits: [\
         { name: all, rate: 1/1h, per: [], when: { classes: [list, read, write, execute] } }, \
         { name: each, rate: 1/1h, per: [principal, tool, method] }]";
    let lictor = Site::to(&stub.url()).with(limits).start().await;
    let mut caller = agent_a(&lictor).await;
    for _ in 0..20 {
        assert_eq!(code(&mut caller, call("wipe", "{}")).await, Some(4030));
        assert_eq!(post(&mut caller, "{").await.status, 400);
        assert_eq!(send(&mut caller, "DELETE", &[], "").await.whole().await.status, 400);
    }
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    for _ in 0..3 {
        assert_eq!(post(&mut caller, note).await.status, 200);
    }
    assert_eq!(echoes(&mut caller, 2).await, [None, Some(4290)]);
    // Of all that came, one call is remembered.
    let each = ["limit=\"each\""];
    let counted = async {
        loop {
            let keys = sample(&metrics(&lictor).await, "lictor_limit_keys", &each);
            if keys > 0.0 {
                return keys;
            }
        }
    };
    assert_eq!(within("a count", counted).await, 1.0);
    // A list is counted where the limit says so.
    assert_eq!(code(&mut caller, request("tools/list", "{}")).await, Some(4290));
    assert_eq!(stub.requests(), 4);
    lictor.stop(66).await;
}

/// Twelve hours, the first of which begins in so many: at any time of a test, those from −6 are open, and those
/// from 6 are not.
pub(crate) fn hours_from_now(offset: i64) -> String {
    let now = i64::try_from(Clock.unix().as_secs() / 3600).expect("it is small");
    let hour = |offset: i64| (now + offset).rem_euclid(24);
    // Hours end at 24:00, not at 00:00.
    let end = hour(offset + 11) + 1;
    format!("from: '{:02}:00', to: '{end:02}:00'", hour(offset))
}

#[tokio::test]
async fn hours_are_those_of_a_clock_on_a_wall() {
    let stub = Stub::json().await;
    let limits = format!(
        "rateLimits: [\
         {{ name: now, hours: {{ {}, zone: UTC }}, when: {{ tools: [echo] }} }}, \
         {{ name: later, hours: {{ {}, zone: Etc/UTC }}, when: {{ tools: [lookup] }} }}]",
        hours_from_now(-6),
        hours_from_now(6)
    );
    let lictor = Site::to(&stub.url()).with(&limits).start().await;
    let mut caller = agent_a(&lictor).await;
    assert_eq!(code(&mut caller, call("echo", "{}")).await, None);
    let refused = post(&mut caller, call("lookup", "{}")).await;
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(4292), &json!("outside_hours")));
    assert_eq!(error["data"]["limits"], json!(["later"]));
    let wait = error["data"]["retryAfterMs"].as_u64().expect("a wait");
    assert!((5 * 3_600_000 - 60_000..=6 * 3_600_000 + 30_000).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), None);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(stub.requests(), 1);
    lictor.stop(2).await;
}

#[tokio::test]
async fn in_shadow_mode_a_limit_only_counts() {
    let stub = Stub::json().await;
    let limits = "rateLimits: [{ name: few, rate: 1/1h }]";
    let site = Site::to(&stub.url()).route("mode: shadow").with(limits);
    let lictor = site.start().await;
    let mut caller = agent_a(&lictor).await;
    assert_eq!(echoes(&mut caller, 3).await, [None; 3]);
    assert_eq!(code(&mut caller, call("wipe", "{}")).await, None);
    let metrics = metrics(&lictor).await;
    assert_eq!(sample(&metrics, "lictor_limits_total", &["outcome=\"shadow\""]), 3.0);
    assert_eq!(sample(&metrics, "lictor_shadow_denials_total", &["kind=\"rate_limited\""]), 2.0);
    let entries = lictor.stop(4).await;
    let would: Vec<_> = entries.iter().map(|entry| entry["would_deny"].as_str()).collect();
    assert_eq!(would, [None, Some("rate_limited"), Some("rate_limited"), Some("policy_denied")]);
    assert_eq!(entries[1]["limits"], json!(["few"]));
    assert_eq!(
        (&entries[1]["decision"], &entries[1]["kind"]),
        (&json!("permit"), &json!("outcome"))
    );
}

#[tokio::test]
async fn where_statuses_are_looked_at_it_is_429() {
    let stub = Stub::json().await;
    let limits = "rateLimits: [{ name: few, rate: 1/1h }]";
    let site = Site::to(&stub.url()).route("denials: httpStatus").with(limits);
    let lictor = site.start().await;
    let mut caller = agent_a(&lictor).await;
    assert_eq!(echoes(&mut caller, 1).await, [None]);
    let refused = post(&mut caller, call("echo", "{}")).await;
    let wait: u64 = refused.header("retry-after").expect("a header").parse().expect("seconds");
    assert!(refused.status == 429 && (3_590..=3_630).contains(&wait), "{wait}");
    assert_eq!(refused.json()["error"]["code"], 4290);
    assert_eq!(refused.json()["id"], 7);
    lictor.stop(2).await;
}

/// Of many calls that come at once, no more than there are tokens for reach the server.
#[tokio::test]
async fn no_burst_gets_past_a_limit() {
    let stub = Stub::json().await;
    let limits = "rateLimits: [{ name: few, rate: 10/1h }, { name: some, budget: 10/1h }]";
    let lictor = Site::to(&stub.url()).with(limits).start().await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut caller = agent_a(&lictor).await;
        callers.spawn(async move { echoes(&mut caller, 4).await });
    }
    let codes: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    assert_eq!(codes.iter().filter(|code| code.is_none()).count(), 10);
    assert_eq!(stub.requests(), 10);
    lictor.stop(64).await;
}

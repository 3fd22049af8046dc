//! Several endpoints of one upstream.

use serde_json::json;

use super::*;
use crate::upstream::settings::{Asked, Health, Http};

const ONE: &str = "https://one.example.org/mcp";
const TWO: &str = "https://two.example.org:8443/mcp";

/// The upstream of the page, with these keys beside its name.
fn upstream(keys: Value) -> Http {
    let folder = folder();
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    page["upstreams"][0] = keys;
    page["upstreams"][0]["name"] = json!("files");
    let config = parse(&page.to_string(), folder.path()).expect("no faults");
    http(&config.upstreams[0]).clone()
}

fn seconds(interval: u64, timeout: u64, asked: Asked) -> Option<Health> {
    let [interval, timeout] = [interval, timeout].map(Duration::from_secs);
    Some(Health { interval, timeout, asked })
}

#[test]
fn several_endpoints_are_asked_and_one_is_if_somebody_wants_it() {
    let every = seconds(10, 2, Asked::Discover);
    for (keys, urls, health) in [
        (json!({ "url": ONE }), &[ONE][..], None),
        (json!({ "urls": [ONE] }), &[ONE], None),
        (json!({ "urls": [ONE, TWO] }), &[ONE, TWO], every.clone()),
        (json!({ "url": ONE, "healthCheck": {} }), &[ONE], every),
        (
            json!({ "url": ONE, "healthCheck": { "interval": "1m", "timeout": "1s" } }),
            &[ONE],
            seconds(60, 1, Asked::Discover),
        ),
        (json!({ "urls": [ONE, TWO], "healthCheck": { "enabled": false } }), &[ONE, TWO], None),
    ] {
        let http = upstream(keys);
        assert_eq!(http.urls().map(url::Url::as_str).collect::<Vec<_>>(), urls);
        assert_eq!(http.health, health);
    }
}

#[test]
fn agents_are_asked_for_their_cards() {
    let folder = folder();
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    page["listeners"][0]["routes"][0]["protocol"] = json!("a2a");
    page["upstreams"][0]["healthCheck"] = json!({});
    let config = parse(&page.to_string(), folder.path()).expect("no faults");
    assert_eq!(http(&config.upstreams[0]).health, seconds(10, 2, Asked::Card));
}

#[test]
fn endpoints_that_dont_serve_the_same_are_faults() {
    let same = "(all endpoints of an upstream serve the same)";
    let differs = |index: usize| {
        format!(
            "upstreams[1].urls[{index}]: differs from the first one in more than host and port {same}"
        )
    };
    for (keys, fault) in [
        (json!({ "url": ONE, "urls": [TWO] }), "upstreams[1]: has both `url` and `urls`; keep one".to_owned()),
        (json!({ "urls": [] }), "upstreams[1].urls: is empty (at least one entry is needed)".to_owned()),
        (json!({ "urls": [ONE, TWO, ONE] }), "upstreams[1].urls[2]: is there twice".to_owned()),
        (json!({ "urls": [ONE, "https://two.example.org/mcp/"] }), differs(1)),
        (json!({ "urls": [ONE, "https://two.example.org/mcp?a"] }), differs(1)),
        (json!({ "urls": [ONE, "http://127.0.0.1:9000/mcp"] }), differs(1)),
        (
            json!({ "urls": ["http://localhost:1/", "http://files.internal/"] }),
            "upstreams[1].urls[1]: plain HTTP is for loopback addresses only (say `https://`, with `spiffeId` or \
             `roots` where it has no public name)"
                .to_owned(),
        ),
        (
            json!({ "urls": [ONE, TWO], "transport": "sse" }),
            "upstreams[1].urls: a client's messages have to go where its event stream is (say `url`; with \
             `transport: sse` it is only one)"
                .to_owned(),
        ),
        (
            json!({ "url": ONE, "healthCheck": { "interval": "1s", "timeout": "2s" } }),
            "upstreams[1].healthCheck.timeout: has to be at most as long as `interval`".to_owned(),
        ),
        (
            json!({ "url": ONE, "healthCheck": { "interval": "10ms", "timeout": "1ms" } }),
            "upstreams[1].healthCheck.interval: has to be at least 100ms".to_owned(),
        ),
        (
            json!({ "command": ["x"], "healthCheck": {} }),
            "upstreams[1].healthCheck: is for servers with a `url` only".to_owned(),
        ),
    ] {
        let mut keys = keys;
        keys["name"] = json!("other");
        let faults = faults_with("/upstreams/-", keys.clone());
        assert_eq!(faults, [fault], "{keys}");
    }
    let many: Vec<_> = (0..33).map(|at| format!("https://{at}.example.org/mcp")).collect();
    let faults = faults_with("/upstreams/-", json!({ "name": "other", "urls": many }));
    assert_eq!(faults[0], "upstreams[1].urls: has more than 32 entries");
}

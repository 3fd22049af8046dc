//! A2A agents.

use serde_json::json;

use super::*;
use crate::upstream::{
    PushTargets,
    settings::{Agent, Signing},
};

#[test]
fn an_agent_is_what_its_upstream_says() {
    let folder = folder();
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    page["listeners"][0]["publicUrl"] = json!("https://agents.example.org/out");
    page["upstreams"][0] = json!({
        "name": "files",
        "url": "https://agent.example.org/a2a",
        "card": "https://AGENT.example.org:443/card?of=a",
        "rest": "https://agent.example.org/rest/",
        "agentCard": {
            "urls": ["http://10.0.0.1:9000/", "https://old.example.org/a2a"],
            "keys": "roots.pem",
            "sign": {
                "key": "key.pem", "keyId": "lictor-1", "keysUrl": "https://keys.example.org/jwks",
            },
        },
        "pushNotifications": { "hosts": ["hooks.example.org", "*.push.example.org"], "ports": [8443] },
    });
    let config = parse(&page.to_string(), folder.path()).expect("no faults");
    let url = |text: &str| url::Url::parse(text).expect("a URL");
    let listener = &config.listeners[0].settings;
    assert_eq!(listener.public_url, Some(url("https://agents.example.org/out")));
    let hosts = ["hooks.example.org", "*.push.example.org"].map(str::to_owned);
    let agent = Agent {
        card: Some(url("https://agent.example.org/card?of=a")),
        rest: Some(url("https://agent.example.org/rest/")),
        known_as: vec![url("http://10.0.0.1:9000/"), url("https://old.example.org/a2a")],
        keys: Some(folder.path().join("roots.pem")),
        signing: Some(Signing {
            key: folder.path().join("key.pem"),
            key_id: "lictor-1".to_owned(),
            keys_url: Some(url("https://keys.example.org/jwks")),
        }),
        push: PushTargets::new(&hosts, [8443]).expect("hosts"),
    };
    assert_eq!(*http(&config.upstreams[0]).agent, agent);
}

#[test]
fn each_fault_of_an_agent_is_told() {
    for (pointer, value, fault) in [
        (
            "/listeners/0/publicUrl",
            json!("http://agents.example.org"),
            "listeners[0].publicUrl: plain HTTP is for loopback addresses only (such as \
             `https://agents.example.org`)",
        ),
        (
            "/listeners/0/publicUrl",
            json!("https://agents.example.org/out/"),
            "listeners[0].publicUrl: has an empty segment or a trailing slash",
        ),
        (
            "/listeners/0/publicUrl",
            json!("https://agents.example.org/?a"),
            "listeners[0].publicUrl: has a query; routes serve none",
        ),
        (
            "/listeners/0/publicUrl",
            json!("https://user:word@agents.example.org"),
            "listeners[0].publicUrl: has user information; credentials don't belong in a URL",
        ),
        (
            "/upstreams/0/card",
            json!("https://127.0.0.1:9000/card"),
            "upstreams[0].card: has to have scheme, host and port of the upstream's `url`",
        ),
        (
            "/upstreams/0/rest",
            json!("http://127.0.0.1:9001/"),
            "upstreams[0].rest: has to have scheme, host and port of the upstream's `url`",
        ),
        (
            "/upstreams/0/rest",
            json!("http://127.0.0.1:9000/rest?a"),
            "upstreams[0].rest: is a base that paths are added to, and has a query",
        ),
        (
            "/upstreams/0/agentCard",
            json!({ "urls": ["agent.example.org"] }),
            "upstreams[0].agentCard.urls[0]: is no URL: relative URL without a base (such as \
             `http://127.0.0.1:9000/mcp`)",
        ),
        (
            "/upstreams/0/agentCard",
            json!({ "sign": { "keyId": "a" } }),
            "upstreams[0].agentCard.sign.key: is missing",
        ),
        (
            "/upstreams/0/agentCard",
            json!({ "sign": { "key": "key.pem" } }),
            "upstreams[0].agentCard.sign.keyId: is missing",
        ),
        (
            "/upstreams/0/agentCard",
            json!({ "sign": { "key": "key.pem", "keyId": "" } }),
            "upstreams[0].agentCard.sign.keyId: is empty",
        ),
        (
            "/upstreams/0/agentCard",
            json!({ "sign": { "key": "key.pem", "keyId": "a", "keysUrl": "http://127.0.0.1/" } }),
            "upstreams[0].agentCard.sign.keysUrl: has to start with `https://`: whoever changes it \
             signs cards",
        ),
        (
            "/upstreams/0/pushNotifications",
            json!({}),
            "upstreams[0].pushNotifications.hosts: is missing",
        ),
        (
            "/upstreams/0/pushNotifications",
            json!({ "hosts": [] }),
            "upstreams[0].pushNotifications.hosts: is empty (at least one entry is needed)",
        ),
        (
            "/upstreams/0/pushNotifications",
            json!({ "hosts": ["hooks.example.org", "*"] }),
            "upstreams[0].pushNotifications.hosts[1]: `*` is no host, and no `*.` with a domain of \
             two labels or more (such as `hooks.example.org` or `*.push.example.org`)",
        ),
    ] {
        assert_eq!(faults_with(pointer, value.clone()), [fault], "{pointer}: {value}");
    }
    let files = json!({ "keys": "no.json", "sign": { "key": "no.pem", "keyId": "a" } });
    let faults = faults_with("/upstreams/0/agentCard", files).join("\n");
    assert!(faults.contains("agentCard.keys: `"), "{faults}");
    assert!(faults.contains("agentCard.sign.key: `"), "{faults}");
    let ports = json!({ "hosts": ["a.org"], "ports": [0, 65536] });
    assert_eq!(faults_with("/upstreams/0/pushNotifications", ports).len(), 2);
}

#[test]
fn a_command_is_no_agent() {
    let faults = faults_with(
        "/upstreams/-",
        json!({
            "name": "other", "command": ["x"], "card": "http://127.0.0.1/", "rest": "http://127.0.0.1/",
            "agentCard": {}, "pushNotifications": { "hosts": ["a.org"] },
        }),
    );
    let place = |key: &str| format!("upstreams[1].{key}: is for servers with a `url` only");
    assert_eq!(faults, ["card", "rest", "agentCard", "pushNotifications"].map(place));
}

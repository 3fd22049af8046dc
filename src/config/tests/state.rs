//! Where state is kept, and what is wrong about it.

use serde_json::json;

use super::*;
use crate::state::{Password, RedisSettings, Settings, Transport};

fn settings(state: Value) -> Settings {
    let folder = folder();
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    page["state"] = state;
    parse(&page.to_string(), folder.path()).expect("no faults").state
}

#[test]
fn state_is_in_memory_in_a_file_or_in_redis() {
    let folder = folder();
    let config = parse(page(), folder.path()).expect("no faults");
    assert_eq!(config.state, Settings::Memory);
    let directory = settings(json!({ "directory": "/var/lib/lictor/state" }));
    assert_eq!(directory, Settings::Directory("/var/lib/lictor/state".into()));
    let local = RedisSettings {
        host: "127.0.0.1".into(),
        port: 6379,
        database: 0,
        username: None,
        password: None,
        transport: Transport::Plain,
    };
    let redis = |redis: Value| match settings(json!({ "redis": redis })) {
        Settings::Redis(settings) => settings,
        other => panic!("{other:?}"),
    };
    assert_eq!(redis(json!({ "url": "redis://127.0.0.1" })), local);
    let six = RedisSettings { host: "::1".into(), port: 1, database: 7, ..local.clone() };
    assert_eq!(redis(json!({ "url": "redis://[::1]:1/7" })), six);
    let named = redis(json!({
        "url": "rediss://lictor@Redis.example.org/0", "passwordEnv": "PATH", "roots": ROOTS,
    }));
    let expected = RedisSettings {
        host: "redis.example.org".into(),
        username: Some("lictor".into()),
        password: Some(Password::Environment("PATH".into())),
        transport: Transport::Tls { roots: Some(ROOTS.into()) },
        ..local.clone()
    };
    assert_eq!(named, expected);
    assert!(!named.is_exposed());
    let exposed = redis(json!({ "url": "redis://redis.example.org", "unsafePlaintext": true }));
    assert!(exposed.is_exposed());
}

/// A file that there is.
const ROOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

#[test]
fn faults_of_state() {
    let hint = "(such as `rediss://lictor@redis.example.org:6379/0`)";
    let url = |problem: &str| format!("state.redis.url: {problem} {hint}");
    for (state, fault) in [
        (
            json!({}),
            "state: needs `directory` or `redis` (leave `state` out to keep it in memory)".into(),
        ),
        (
            json!({ "directory": "a", "redis": { "url": "redis://localhost" } }),
            "state: has both `directory` and `redis`; keep one".into(),
        ),
        (json!({ "directory": "" }), "state.directory: is empty".into()),
        (json!({ "redis": {} }), "state.redis.url: is missing".into()),
        (json!({ "redis": { "url": "redis" } }), url("is no URL")),
        (
            json!({ "redis": { "url": "http://localhost" } }),
            url("has to start with `rediss://` or `redis://`"),
        ),
        (
            json!({ "redis": { "url": "redis://:hunter2@localhost" } }),
            url("has a password; say `passwordFile` or `passwordEnv`"),
        ),
        (
            json!({ "redis": { "url": "redis://localhost/0?protocol=resp3" } }),
            url("has a query or a fragment, which nobody reads"),
        ),
        (
            json!({ "redis": { "url": "rediss://localhost/#insecure" } }),
            url("has a query or a fragment, which nobody reads"),
        ),
        (json!({ "redis": { "url": "redis:///0" } }), url("names no host")),
        (
            json!({ "redis": { "url": "redis://localhost/zero" } }),
            url("has a path that is no number of a database"),
        ),
        (
            json!({ "redis": { "url": "redis://a%20b@localhost" } }),
            url("has a user whose name needs encoding, which isn't read"),
        ),
        (
            json!({ "redis": { "url": "redis://redis.example.org" } }),
            "state.redis.url: `redis`, without TLS, is for loopback addresses only (say \
             `rediss://`: who can change an answer can take sessions over)"
                .into(),
        ),
        (
            json!({ "redis": { "url": "rediss://redis.example.org", "unsafePlaintext": true } }),
            "state.redis.unsafePlaintext: allows nothing here; leave it out".into(),
        ),
        (
            json!({ "redis": { "url": "redis://localhost", "roots": ROOTS } }),
            "state.redis.roots: needs `rediss`; nothing proves who answers without TLS".into(),
        ),
        (
            json!({ "redis": {
                "url": "redis://localhost", "passwordFile": ROOTS, "passwordEnv": "PATH",
            } }),
            "state.redis: has both `passwordFile` and `passwordEnv`; keep one".into(),
        ),
        (
            json!({ "redis": { "url": "redis://localhost", "passwordEnv": "LICTOR_NO_SUCH" } }),
            "state.redis.passwordEnv: the environment has no `LICTOR_NO_SUCH`".into(),
        ),
    ] {
        let told = faults_after(|page| page["state"] = state.clone());
        assert_eq!(told, [fault], "{state}");
        assert!(!told[0].contains("hunter2"));
    }
}

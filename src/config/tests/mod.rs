//! What a file means, what its defaults are, and what YAML may not do.

mod admission;
mod agents;
mod commands;
mod delegation;
mod endpoints;
mod faults;
mod laws;
mod rate_limits;
mod state;
mod token_exchange;
mod web;

use std::{collections::BTreeMap, num::NonZeroU32, path::PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::protocol::Protocol;

/// The documentation, whose pages are the ones that are tested.
const DOCUMENTATION: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md"));

/// The pages that the documentation shows: a whole small file, and the one of a run without a file.
fn pages() -> [&'static str; 2] {
    let blocks = DOCUMENTATION.split("```yaml\n").skip(1);
    let pages: Vec<_> = blocks.filter_map(|block| block.split("```").next()).collect();
    pages.try_into().expect("two pages")
}

/// The small file.
fn page() -> &'static str {
    pages()[0]
}

/// A folder with everything that a configuration may refer to.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("policies")).expect("a folder");
    for file in ["svid.pem", "key.pem", "roots.pem"] {
        std::fs::write(folder.path().join(file), "").expect("a file");
    }
    folder
}

/// The faults of the page after `change`, one a line.
fn faults_after(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let folder = folder();
    let mut page = serde_saphyr::from_str(page()).expect("the page");
    change(&mut page);
    match parse(&page.to_string(), folder.path()) {
        Ok(_) => vec![],
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

/// The faults of the page with `value` in place of what `pointer` leads to.
fn faults_with(pointer: &str, value: Value) -> Vec<String> {
    faults_after(|page| {
        let (above, key) = pointer.rsplit_once('/').expect("a pointer");
        let target = page.pointer_mut(above).expect("a place");
        match target {
            Value::Object(map) => drop(map.insert(key.to_owned(), value)),
            Value::Array(list) => list.push(value),
            _ => panic!("{above} holds nothing"),
        }
    })
}

/// The part of an upstream that only a server at a URL has.
fn http(upstream: &upstream::Settings) -> &upstream::settings::Http {
    match &upstream.server {
        upstream::settings::Server::Http(http) => http,
        upstream::settings::Server::Command(_) => panic!("a URL"),
    }
}

#[test]
fn the_documented_page_works_as_it_stands() {
    let folder = folder();
    let config = parse(page(), folder.path()).expect("no faults");
    let endpoint = "unix:///run/spire/agent.sock".to_owned();
    assert_eq!(config.identity, Some(identity::Settings::WorkloadApi { endpoint }));
    let listener = listener::Settings {
        name: "inbound".into(),
        direction: listener::Direction::Inbound,
        bind: "0.0.0.0:8443".parse().expect("an address"),
        door: listener::Door::MutualTls,
        public_url: None,
        hosts: vec![],
        origins: vec![],
        max_connections: 10_000,
        shield: listener::shield::Settings {
            connections: 1000,
            new_per_second: NonZeroU32::new(100).expect("a rate"),
            loopback: false,
        },
        head_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(30),
        stall_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(75),
        keep_alive: Duration::from_secs(15),
    };
    let route = proxy_settings::Route {
        headers: vec![],
        repeatable: vec![],
        protocol: Protocol::Mcp,
        at_root: false,
        message_forms: false,
        delegate: None,
        path: "/mcp".into(),
        upstream: "files".into(),
        shadow: false,
        refusals: proxy_settings::Refusals::JsonRpc,
    };
    assert_eq!(config.listeners, [Listener { settings: listener, routes: vec![route] }]);
    let upstream = upstream::Settings::new(
        "files",
        upstream::settings::Server::Http(upstream::settings::Http {
            url: "http://127.0.0.1:9000/mcp".parse().expect("a URL"),
            others: Vec::new(),
            health: None,
            transport: upstream::Transport::StreamableHttp,
            verification: upstream::Verification::Loopback,
            host: None,
            connect_timeout: Duration::from_secs(5),
            pool_idle_timeout: Duration::from_secs(4),
            agent: Box::default(),
        }),
    );
    assert_eq!(config.upstreams, [upstream]);
    let servers = BTreeMap::from([("files".to_owned(), policy::settings::Server::default())]);
    let directory = folder.path().join("policies");
    assert_eq!(config.policy, policy::Settings { directory, servers, ..Default::default() });
    let ledger = ledger::Settings {
        directory: PathBuf::from("/var/lib/lictor/ledger"),
        commit_interval: Duration::from_millis(50),
        read_intent: false,
        on_failure: ledger::OnFailure::DenyAll,
    };
    assert_eq!(config.ledger, ledger);
    let admin = "127.0.0.1:9440".parse().expect("an address");
    assert_eq!(config.admin, admin::Settings { health: None, admin, token_file: None });
    let limits = proxy_settings::Limits::default();
    assert_eq!(config.limits, limits);
    assert_eq!(config.drain, Duration::from_secs(25));
    assert_eq!(config.telemetry.logs, telemetry::Format::Json);
    assert_eq!(config.telemetry.level, tracing::level_filters::LevelFilter::INFO);
    assert_eq!(config.weakened(), []);
}

/// Writing every default of the schema out changes nothing, so editors show what is true.
#[test]
fn defaults_of_the_schema_are_the_defaults() {
    fn fill(root: &Value, schema: &Value, value: &mut Value, filled: &mut usize) {
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.get(1..));
        let schema = reference.and_then(|it| root.pointer(it)).unwrap_or(schema);
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, property) in properties.into_iter().flatten() {
            let map = value.as_object_mut().expect("a map");
            match property.get("default") {
                Some(default) if !map.contains_key(key) => {
                    map.insert(key.clone(), default.clone());
                    *filled += 1;
                }
                // Sections of which every key has a default.
                _ if ["timeouts", "limits", "admin", "telemetry"].contains(&key.as_str()) => {
                    map.entry(key).or_insert(json!({}));
                }
                _ => {}
            }
            if let Some(inner) = map.get_mut(key) {
                fill(root, property, inner, filled);
            }
        }
        if let (Some(items), Value::Array(list)) = (schema.get("items"), &mut *value) {
            list.iter_mut().for_each(|item| fill(root, items, item, filled));
        }
    }
    let folder = folder();
    let root = schema::schema();
    let mut full: Value = serde_saphyr::from_str(page()).expect("the page");
    let mut filled = 0;
    fill(&root, &root, &mut full, &mut filled);
    assert!(filled >= 20, "{filled} defaults in {full:#}");
    let expected = parse(page(), folder.path()).expect("no faults");
    assert_eq!(parse(&full.to_string(), folder.path()), Ok(expected), "{full:#}");
}

#[test]
fn every_key_is_documented() {
    fn keys<'a>(schema: &'a Value, all: &mut Vec<&'a str>) {
        if let Some(Value::Object(properties)) = schema.get("properties") {
            all.extend(properties.keys().map(String::as_str));
        }
        match schema {
            Value::Object(map) => map.values().for_each(|inner| keys(inner, all)),
            Value::Array(list) => list.iter().for_each(|inner| keys(inner, all)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let schema = schema::schema();
    let mut all = Vec::new();
    keys(&schema, &mut all);
    assert!(all.len() > 50, "{all:?}");
    for key in all {
        let forms =
            [format!("`{key}`"), format!(".{key}`"), format!("`{key}[]`"), format!(".{key}.")];
        let sections = [format!("`{key}."), format!(".{key}[]`")];
        let mut forms = forms.iter().chain(&sections);
        assert!(forms.any(|form| DOCUMENTATION.contains(form)), "{key} is not documented");
    }
}

#[test]
fn every_key_is_understood() {
    let folder = folder();
    let text = "
identity:
  spiffe:
    files: { certificate: svid.pem, key: key.pem, bundles: { example.org: roots.pem } }
listeners:
  - name: local
    bind: '[::1]:0'
    tls: none
    identity: spiffe://example.org/agent
    hosts: [MCP.example.org, 'other.example.org:8443']
    origins: ['https://App.example.org']
    maxConnections: 7
    shield: { connections: 5, newPerSecond: 6, loopback: true }
    timeouts: { head: 1s, body: 2s, stall: 3s, idle: 1m30s, keepAlive: 4s }
    routes:
      - { path: /, protocol: mcp, upstream: one, mode: shadow }
      - { path: /two/mcp, protocol: mcp, upstream: two, denials: httpStatus }
upstreams:
  - name: one
    url: https://one.example.org/base?set=a,b
    spiffeId: spiffe://example.org/server/one
    tags: [pii]
    tools: { read_file: { class: read, tags: [local] }, plain: {} }
    timeouts: { connect: 1s, firstByte: 2s, idle: 3s, poolIdle: 4m }
  - { name: two, url: 'https://two.example.org', roots: roots.pem, host: two.internal }
  - { name: three, url: 'http://localhost:1/' }
policy:
  directory: policies
  groups: { ops: ['spiffe://example.org/ops/*', 'spiffe://example.org/root'] }
  pathTemplate: /tenant/{tenant}/agent/{agent}
ledger: { directory: ledger, commitInterval: 5ms, readIntent: true, onFailure: denyWrites }
limits: { body: 1MiB, bodiesInFlight: 2MB, answer: 3MiB }
drain: 2m
admin: { bind: '127.0.0.1:0' }
health: { bind: '0.0.0.0:9441' }
telemetry: { logs: text, level: debug }
";
    let config = parse(text, folder.path()).expect("no faults");
    let at = |name: &str| folder.path().join(name);
    let files = identity::Files {
        certificate: at("svid.pem"),
        key: at("key.pem"),
        bundles: BTreeMap::from([("example.org".into(), at("roots.pem"))]),
    };
    assert_eq!(config.identity, Some(identity::Settings::Files(files)));
    let id = |text| crate::identity::SpiffeId::parse(text).expect("an ID");
    let [local] = config.listeners.as_slice() else { panic!("one listener") };
    let caller = id("spiffe://example.org/agent");
    assert_eq!(local.settings.door, listener::Door::PlainLoopback(caller));
    assert_eq!(local.settings.hosts, ["mcp.example.org", "other.example.org:8443"]);
    assert_eq!(local.settings.origins, ["https://app.example.org"]);
    assert_eq!(local.settings.max_connections, 7);
    let shield = local.settings.shield;
    assert_eq!((shield.connections, shield.new_per_second.get(), shield.loopback), (5, 6, true));
    assert_eq!(local.settings.idle_timeout, Duration::from_secs(90));
    assert_eq!(local.settings.keep_alive, Duration::from_secs(4));
    assert_eq!((config.limits.answer, config.drain), (3 << 20, Duration::from_secs(120)));
    let shadows: Vec<_> = local.routes.iter().map(|it| (it.shadow, it.refusals)).collect();
    use proxy_settings::Refusals::{HttpStatus, JsonRpc};
    assert_eq!(shadows, [(true, JsonRpc), (false, HttpStatus)]);
    let [one, two, _] = config.upstreams.as_slice() else { panic!("three upstreams") };
    let (one, two) = (http(one), http(two));
    assert_eq!(one.url.as_str(), "https://one.example.org/base?set=a,b");
    let server = id("spiffe://example.org/server/one");
    assert_eq!(one.verification, upstream::Verification::Spiffe(server));
    assert_eq!(one.pool_idle_timeout, Duration::from_secs(240));
    let roots = Some(at("roots.pem"));
    assert_eq!(two.verification, upstream::Verification::WebPki { roots });
    assert_eq!(two.host.as_deref(), Some("two.internal"));
    let known = &config.policy.servers["one"];
    assert_eq!(known.tags, ["pii"]);
    assert_eq!(known.agent.as_deref(), Some("spiffe://example.org/server/one"));
    assert_eq!(known.tools["read_file"].class, crate::protocol::Class::Read);
    assert_eq!(known.tools["plain"].class, crate::protocol::Class::Execute);
    assert_eq!(config.ledger.directory, at("ledger"));
    assert_eq!(config.ledger.on_failure, ledger::OnFailure::DenyWrites);
    assert!(config.ledger.read_intent);
    assert_eq!(config.limits.bodies_in_flight, 2_000_000);
    assert_eq!(config.admin.health.map(|it| it.port()), Some(9441));
    assert_eq!(config.telemetry.logs, telemetry::Format::Text);
    assert_eq!(config.weakened(), [("mode: shadow", 1), ("onFailure: denyWrites", 1)]);
}

#[test]
fn yaml_has_no_traps() {
    for (text, problem) in [
        ("policy: 1\npolicy: 2", "duplicate mapping key `policy`"),
        ("a: &a { b: 1 }\nc: { <<: *a }", "merge"),
        ("a: !!python/object x", "tag"),
        ("a: [1", ""),
        ("a: 1\n---\nb: 2", ""),
        ("a: \u{0}", ""),
        ("", "the file is empty"),
        ("just text", "expected a map, found text"),
    ] {
        let faults = parse(text, Path::new("")).expect_err(text).to_string();
        assert!(faults.to_lowercase().contains(problem), "{text}: {faults}");
        assert!(!faults.contains("Policy in Options"), "{text}: {faults}");
    }
    // `no` is text, not `false`.
    let faults = faults_with("/ledger/readIntent", json!(true));
    assert_eq!(faults, [""; 0]);
    let text = page()
        .replace("ledger/ledger }", "x, readIntent: no }")
        .replace("lictor/ledger }", "x, readIntent: no }");
    let faults = parse(&text, folder().path()).expect_err("`no`").to_string();
    assert_eq!(faults, "ledger.readIntent: expected true or false, found text");
}

#[test]
fn aliases_are_bounded() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let inner = format!("*a{}", level - 1);
        let row = vec![inner; 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{row}]\n"));
    }
    let faults = parse(&bomb, Path::new("")).expect_err("a bomb").to_string();
    assert!(faults.starts_with("no valid YAML: "), "{faults}");
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let folder = folder();
    let path = folder.path().join("long.yaml");
    std::fs::write(&path, "#".repeat(MAX_FILE as usize + 1)).expect("a file");
    let faults = load(&path).expect_err("too long").to_string();
    assert!(faults.ends_with("longer than 4194304 bytes"), "{faults}");
}

#[test]
fn a_url_is_enough() {
    let state = TempDir::new().expect("a temporary folder");
    let bind = "127.0.0.1:0".parse().expect("an address");
    let url = "https://mcp.example.org/mcp?a=b";
    let governed = Governed::Url(url.to_owned());
    let config = drop_in(&governed, bind, state.path()).expect("no faults");
    let [listener] = config.listeners.as_slice() else { panic!("one listener") };
    let operator = crate::identity::SpiffeId::parse("spiffe://local.lictor.internal/operator");
    let door = listener::Door::PlainLoopback(operator.expect("an ID"));
    assert_eq!((&listener.settings.door, listener.settings.bind), (&door, bind));
    assert_eq!(http(&config.upstreams[0]).url.as_str(), url);
    let documented = pages()[1].replace("URL", url).replace("127.0.0.1:8080", "127.0.0.1:0");
    let home = config.ledger.directory.parent().expect("a folder");
    assert_eq!(parse(&documented, home), Ok(config.clone()));
    let starter = config.policy.directory.join("starter.cedar");
    std::fs::write(&starter, "// mine").expect("the starter policy is there to be changed");
    let again = drop_in(&governed, bind, state.path()).expect("no faults");
    assert_eq!(again, config);
    assert_eq!(std::fs::read_to_string(&starter).expect("still there"), "// mine");
    let other = Governed::Url("https://mcp.example.org/mcp?a=c".to_owned());
    let other = drop_in(&other, bind, state.path()).expect("no faults");
    assert_ne!(other.ledger.directory, config.ledger.directory);

    let open = "0.0.0.0:8080".parse().expect("an address");
    let faults = drop_in(&governed, open, state.path()).expect_err("not loopback").to_string();
    assert!(faults.contains("has to bind a loopback address"), "{faults}");
}

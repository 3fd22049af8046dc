//! Servers that are commands.

use serde_json::json;

use super::*;
use crate::upstream::settings::{Command, Environment, Processes, Server};

/// The command of the small file with another upstream.
fn command(upstream: Value) -> Result<Command, String> {
    let folder = folder();
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    page["upstreams"] = json!([upstream]);
    let mut config = parse(&page.to_string(), folder.path()).map_err(|it| it.to_string())?;
    match config.upstreams.remove(0).server {
        Server::Command(command) => Ok(Command {
            directory: command.directory.strip_prefix(&folder).expect("in the folder").into(),
            ..command
        }),
        Server::Http(_) => panic!("a command"),
    }
}

#[test]
fn a_command_has_defaults_and_keys_of_its_own() {
    let plain = command(json!({ "name": "files", "command": ["npx", "-y", "x"] }));
    let expected = Command {
        program: "npx".into(),
        arguments: vec!["-y".into(), "x".into()],
        directory: "".into(),
        environment: Environment::default(),
        processes: Processes::PerSession,
        max_processes: 64,
        max_processes_per_caller: 16,
        start_timeout: Duration::from_secs(60),
        unused_timeout: Duration::from_secs(1800),
    };
    assert_eq!(plain, Ok(expected.clone()));
    let full = command(json!({
        "name": "files", "command": ["./x"], "directory": "srv",
        "env": { "allow": ["A"], "set": { "B": "b" }, "files": { "C": "key.pem" } },
        "processes": "shared", "maxProcesses": 3, "maxProcessesPerCaller": 2,
        "timeouts": { "start": "2s", "unused": "3s", "firstByte": "4s", "idle": "5s" },
    }));
    let full = full.expect("no faults");
    assert!(full.environment.files["C"].ends_with("key.pem"));
    let environment = Environment {
        allow: ["A".to_owned()].into(),
        set: [("B".to_owned(), "b".to_owned())].into(),
        files: full.environment.files.clone(),
    };
    let expected = Command {
        program: "./x".into(),
        arguments: vec![],
        directory: "srv".into(),
        environment,
        processes: Processes::Shared,
        max_processes: 3,
        max_processes_per_caller: 2,
        start_timeout: Duration::from_secs(2),
        unused_timeout: Duration::from_secs(3),
    };
    assert_eq!(full, expected);
}

#[test]
fn what_fits_no_command_is_a_fault() {
    for (more, fault) in [
        (
            json!({ "url": "http://127.0.0.1/" }),
            "upstreams[0]: has both `url` and `command`; keep one",
        ),
        (json!({ "command": [] }), "upstreams[0].command: is empty"),
        (json!({ "command": [""] }), "upstreams[0].command: names no program"),
        (json!({ "command": ["x", "a\0"] }), "upstreams[0].command[1]: holds a NUL"),
        (json!({ "command": "npx x" }), "upstreams[0].command: expected a list, found"),
        (json!({ "host": "x" }), "upstreams[0].host: is for servers with a `url` only"),
        (json!({ "roots": "roots.pem" }), "upstreams[0].roots: is for servers with a `url` only"),
        (json!({ "timeouts": { "connect": "1s" } }), "upstreams[0].timeouts.connect: is for"),
        (json!({ "timeouts": { "poolIdle": "1s" } }), "upstreams[0].timeouts.poolIdle: is for"),
        (json!({ "env": { "allow": ["A=B"] } }), "upstreams[0].env.allow[0]: is no name"),
        (json!({ "env": { "set": { "": "b" } } }), "is no name of an environment variable"),
        (json!({ "env": { "set": { "A": "\0" } } }), "upstreams[0].env.set.A: holds a NUL"),
        (json!({ "env": { "files": { "A": "no.txt" } } }), "upstreams[0].env.files.A: `"),
        (
            json!({ "env": { "set": { "A": "secret" }, "files": { "A": "key.pem" } } }),
            "upstreams[0].env.set.A: is in `files` too; keep one",
        ),
        (json!({ "maxProcesses": 0 }), "upstreams[0].maxProcesses: has to be at least 1"),
    ] {
        let mut upstream = json!({ "name": "files", "command": ["x"] });
        let (Value::Object(map), Value::Object(more)) = (&mut upstream, more) else { panic!() };
        map.extend(more);
        let told = command(upstream).expect_err(fault);
        assert!(told.contains(fault), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
}

#[test]
fn what_fits_no_url_is_a_fault() {
    for (key, value) in [
        ("directory", json!("x")),
        ("env", json!({})),
        ("processes", json!("shared")),
        ("maxProcesses", json!(1)),
        ("maxProcessesPerCaller", json!(1)),
    ] {
        let told = faults_with(&format!("/upstreams/0/{key}"), value);
        assert_eq!(told, [format!("upstreams[0].{key}: is for servers with a `command` only")]);
    }
    let timeouts = json!({ "start": "1s", "unused": "1s" });
    assert_eq!(faults_with("/upstreams/0/timeouts", timeouts).len(), 2);
    let told = faults_after(|page| page["upstreams"][0] = json!({ "name": "files" }));
    assert!(told[0].starts_with("upstreams[0]: has neither `url` nor `command`"), "{told:?}");
}

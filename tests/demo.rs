//! The demonstration of the README, as a newcomer runs it, and what it offers to paste.

#![cfg(test)]

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn lictor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lictor")).args(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_shows_what_the_readme_promises() {
    let home = tempfile::TempDir::new().expect("a folder");
    let home: PathBuf = home.path().join("demo");
    let directory = home.to_str().expect("text");
    let shown = lictor(&["demo", "--once", "--directory", directory]);
    let (out, err) = (text(&shown.stdout), text(&shown.stderr));
    assert!(shown.status.success(), "{out}{err}");
    let row = |caller: &str, what: &str| {
        let found = out.lines().find(|line| line.contains(caller) && line.contains(what));
        found.unwrap_or_else(|| panic!("no row {caller}, {what}: {out}")).to_owned()
    };
    for (caller, what, answer) in [
        ("reader", "list the tools", "count, list_notes, read_note "),
        ("writer", "list the tools", "count, list_notes, read_note, write_note "),
        ("reader", "read a note", "allowed: Read me first."),
        ("reader", "write a note", "refused (4030): not permitted by policy"),
        ("writer", "write a note", "allowed: wrote `todo`"),
        (
            "writer",
            "write a protected note",
            "refused (4030): Notes below protected/ are read-only.",
        ),
        ("reader", "count, streamed", "3 progress events, then: allowed: counted to 3"),
    ] {
        let row = row(caller, what);
        assert!(row.contains(answer), "{row}");
    }
    assert!(
        out.contains("signed    by an SVID") && out.contains("complete up to entry 16"),
        "{out}"
    );

    let denied = row("reader", "write a note");
    let decision = denied.split('|').map(str::trim).nth(4).expect("a decision id");
    let config = home.join("lictor.yaml");
    let config = config.to_str().expect("text");
    let explained = lictor(&["policy", "explain", "-f", config, "--decision", decision]);
    let out = text(&explained.stdout);
    assert_eq!(explained.status.code(), Some(1), "{out}{}", text(&explained.stderr));
    assert!(out.contains("spiffe://demo.lictor.internal/agent/reader"), "{out}");
    assert!(out.contains("write"), "names the nearest permit: {out}");

    let verified = lictor(&["ledger", "verify", home.join("ledger").to_str().expect("text")]);
    assert!(verified.status.success(), "{}", text(&verified.stdout));

    let again = lictor(&["demo", "--once", "--directory", directory]);
    assert!(again.status.success(), "its own folder is made anew: {}", text(&again.stderr));
}

#[test]
fn what_the_demo_offers_to_paste_works() {
    let home = tempfile::TempDir::new().expect("a folder");
    let directory = home.path().join("demo");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_lictor"))
        .args(["demo", "--directory", directory.to_str().expect("text")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines =
        BufReader::new(demo.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut commands = Vec::new();
    while commands.len() < 3 {
        let Some(line) = lines.next() else { break };
        let Some(command) = line.strip_prefix("  ") else { continue };
        let mut command = command.to_owned();
        while let Some(begun) = command.strip_suffix('\\').map(str::to_owned) {
            command = begun + &lines.next().expect("the rest of a command");
        }
        commands.push(command);
    }
    let outputs: Vec<Output> = commands
        .iter()
        .map(|command| Command::new("bash").args(["-c", command]).output().expect("it runs"))
        .collect();
    let pid = demo.id().to_string();
    let ended = Command::new("kill").args(["-INT", &pid]).status().expect("it runs");
    assert!(ended.success() && demo.wait().expect("it ends").success());
    let [call, explained, verified] = &outputs[..] else { panic!("three commands: {commands:?}") };
    let refusal = text(&call.stdout);
    assert!(call.status.success() && refusal.contains("policy_denied"), "{commands:?} {refusal}");
    assert!(text(&explained.stdout).contains("nearest permits"), "{}", text(&explained.stdout));
    assert!(verified.status.success(), "{}", text(&verified.stdout));
}

#[test]
fn the_demo_empties_no_folder_but_its_own() {
    let home = tempfile::TempDir::new().expect("a folder");
    let precious = home.path().join("precious");
    std::fs::write(&precious, "mine").expect("written");
    let refused = lictor(&["demo", "--once", "--directory", home.path().to_str().expect("text")]);
    assert!(!refused.status.success() && precious.is_file());
    assert!(text(&refused.stderr).contains("--directory"), "{}", text(&refused.stderr));
}

use std::fs;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn lictor_policy(arguments: &[&str]) -> (ExitCode, String) {
    let line = Line::try_parse_from([&["policy"], arguments].concat()).expect("parses");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let mut out = vec![];
    let settings = Settings { directory, ..Settings::default() };
    let known = Known { settings, ledger: None, rules: Rules::Unknown };
    let code = run_on(&line.options, &known, &mut out, &mut vec![]).expect("written");
    (code, String::from_utf8(out).expect("text"))
}

#[test]
fn the_starter_set_is_sound() {
    let (code, out) = lictor_policy(&["check"]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    assert!(out.starts_with("29 policies, version ") && !out.contains("warning"), "{out}");
    let (code, out) = lictor_policy(&["test"]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    assert!(out.ends_with("45 cases, 0 failed\n"), "{out}");
}

#[test]
fn failing_cases_and_mistakes_are_told_apart() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let at = directory.path();
    fs::write(at.join("a.cedar"), "@id(\"a\") permit(principal, action, resource);")
        .expect("written");
    fs::create_dir(at.join("tests")).expect("created");
    let at = at.to_str().expect("text");
    let case = |rest: &str| {
        let case = format!(r#"{{"cases":[{{"principal":"spiffe://td/a","server":"s",{rest}}}]}}"#);
        fs::write(directory.path().join("tests/a.json"), case).expect("written");
        lictor_policy(&["test", at])
    };
    let (passed, failed, mistake) = (ExitCode::SUCCESS, ExitCode::FAILURE, ExitCode::from(2));
    for (rest, expected) in [
        (r#""tool":"t","expect":"allow","policy":"a""#, passed),
        (r#""tool":"t","expect":"deny""#, failed),
        (r#""tool":"t","expect":"allow","policy":"b""#, failed),
        (r#""method":"tools/list","offered":["a","b"],"shown":["a","b"]"#, passed),
        (r#""method":"tools/list","offered":["a","b"],"shown":["a"]"#, failed),
        (r#""method":"tasks/list","offered":["a"],"shown":["a"]"#, mistake),
        (r#""tool":"t","expect":"allow","polices":"a""#, mistake),
        (r#""tool":"t","expect":"maybe""#, mistake),
        (r#""method":"roots/list","expect":"allow""#, passed),
        (r#""method":"roots/list","asks":{},"expect":"allow","policy":"a""#, passed),
        (r#""method":"sampling/createMessage","asks":{"maxTokens":1},"expect":"allow""#, passed),
        (r#""method":"sampling/createMessage","asks":{"maxTokens":1},"expect":"deny""#, failed),
        (r#""method":"sampling/createMessage","expect":"allow""#, mistake),
        (r#""method":"sampling/createMessage","asks":{"maxtokens":1},"expect":"allow""#, mistake),
        (r#""method":"roots/list","tool":"t","expect":"allow""#, mistake),
        (r#""method":"tools/list","asks":{},"expect":"allow""#, mistake),
        (r#""method":"notifications/progress","asks":[],"expect":"allow""#, mistake),
        // Nobody declared it.
        (r#""method":"acme/ask","asks":{},"expect":"deny""#, passed),
    ] {
        let (code, out) = case(rest);
        assert_eq!(code, expected, "{rest}: {out}");
    }
}

#[test]
fn faults_are_told_with_their_place() {
    let directory = tempfile::TempDir::new().expect("a directory");
    fs::write(directory.path().join("a.cedar"), "permit(principal, action resource);")
        .expect("written");
    let (code, out) = lictor_policy(&["check", directory.path().to_str().expect("text")]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.starts_with("1 fault in the policies\n  a.cedar:1: "), "{out}");
}

#[test]
fn explains_a_hypothetical_call() {
    let writer = "spiffe://demo.lictor.internal/agent/writer";
    let base = ["explain", "--server", "files", "--tool", "write_note", "--principal"];
    let ask = |rest: &[&str]| lictor_policy(&[&base, rest].concat());
    let (code, out) = ask(&[writer, "--arguments", r#"{"name":"protected/a","text":"x"}"#]);
    assert_eq!(code, ExitCode::FAILURE);
    for part in [
        "denied",
        "determined by:\n  protected-notes (starter.cedar:",
        "Notes below protected/ are read-only.",
        "overruled:\n  write (starter.cedar:",
        "context.input.name",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (code, out) = ask(&["spiffe://demo.lictor.internal/agent/reader"]);
    assert_eq!(code, ExitCode::FAILURE);
    for part in ["nearest permits:\n  write (", "lacks: principal == Agent::"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (code, out) = ask(&[writer, "--arguments", r#"{"name":"a","text":"x"}"#]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    let (code, _) = ask(&["nobody"]);
    assert_eq!(code, ExitCode::from(2));
}

#[test]
fn explains_what_a_server_would_ask() {
    let ask = |rest: &[&str]| {
        let agent = "spiffe://demo.lictor.internal/agent/writer";
        let base = ["explain", "--server", "files", "--principal", agent, "--method"];
        lictor_policy(&[&base, rest].concat())
    };
    let form = r#"{"requestedSchema":{"properties":{"apiKey":{"type":"string"}}}}"#;
    let (code, out) = ask(&["elicitation/create", "--asks", form]);
    assert_eq!(code, ExitCode::FAILURE);
    for part in [
        "determined by:\n  asks-no-secrets (asks.cedar:",
        "overruled:\n  asks-form (asks.cedar:",
        "principal  Server::\"files\"",
        "resource   Agent::\"spiffe://demo.lictor.internal/agent/writer\"",
        "context.elicitation.words",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("apiKey"), "no values: {out}");
    let (code, out) = ask(&["client/ping"]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    let (code, out) = ask(&["sampling/createMessage", "--asks", r#"{"maxTokens":10}"#]);
    assert_eq!((code, out.contains("no permit holds")), (ExitCode::FAILURE, true), "{out}");
    let (code, _) = ask(&["elicitation/create", "--asks", "{"]);
    assert_eq!(code, ExitCode::from(2));
}

#[test]
fn grants_are_shown_as_a_table_and_as_cedar() {
    let (code, out) = lictor_policy(&["grants"]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    let rows: Vec<Vec<&str>> =
        out.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let planner = "spiffe://demo.lictor.internal/agent/planner";
    let coder = "coder (spiffe://demo.lictor.internal/agent/coder)";
    for row in [
        ["", "who", "may", "what", "says", ""],
        ["", planner, "invoke", coder, "team.grants.yaml:4", ""],
        ["", planner, "read", "files/*", "team.grants.yaml:13", ""],
    ] {
        assert!(rows.iter().any(|shown| *shown == row), "{row:?}\n{out}");
    }
    let (code, out) = lictor_policy(&["grants", "--cedar"]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    for part in [
        "// team.grants.yaml\n",
        "@id(\"team.grants.yaml#grants[0]\")\n@reason(\"The planner looks around.\")\npermit (",
        "when { [\"read\"].contains(resource.class) };",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
}

#[test]
fn dead_grants_and_faults_are_told() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let at = directory.path().to_str().expect("text");
    let document = |text: &str| {
        fs::write(directory.path().join("a.grants.yaml"), text).expect("written");
        lictor_policy(&["grants", at])
    };
    let (code, out) = document("agents:\n- id: spiffe://td/a\n  canInvoke: [b]\n");
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    let dead = "warning: a.grants.yaml:3: agents[0].canInvoke[0]: permits nothing: no document says \
                who may invoke `b`";
    assert!(out.contains(dead), "{out}");
    let (code, out) = document("agents:\n- id: spiffe://td/a\n  trust: ask\n");
    assert_eq!(code, ExitCode::FAILURE);
    let fault =
        "  a.grants.yaml:3: agents[0].trust: approvals don't exist yet (hint: remove the key)";
    assert!(out.contains(fault), "{out}");
}

/// What the pages say to type works, on the policies that come with Lictor; a comment behind a command is what
/// it answers first, and that it denies.
#[test]
fn the_commands_of_the_pages_work() {
    for (page, least) in [
        (include_str!("../../../docs/grants.md"), 4),
        (include_str!("../../../docs/delegation.md"), 5),
        (include_str!("../../../docs/http-routes.md"), 3),
    ] {
        let shells = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        let lines = shells.flat_map(str::lines);
        let lines = lines.filter_map(|line| line.strip_prefix("lictor policy "));
        let mut ran = 0;
        for line in lines {
            let (command, denied) = match line.split_once(" # ") {
                Some((command, denied)) => (command, Some(denied)),
                None => (line, None),
            };
            // Within quotation marks, white space is part of a word.
            let words = command.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().collect(),
                _ => vec![part],
            });
            let (code, out) = lictor_policy(&words.collect::<Vec<_>>());
            assert_eq!(code == ExitCode::SUCCESS, denied.is_none(), "{line}: {out}");
            assert!(denied.is_none_or(|denied| out.lines().next() == Some(denied)), "{out}");
            ran += 1;
        }
        assert!(ran >= least, "{ran}");
    }
}

#[test]
fn requests_to_web_apis_are_explained() {
    let explain = |principal: &str, rest: &[&str]| {
        let principal = format!("spiffe://demo.lictor.internal/agent/{principal}");
        let base = ["explain", "--principal", &principal, "--server", "issues"];
        lictor_policy(&[&base, rest].concat())
    };
    let (code, out) = explain("reader", &["--http", "GET /repos/other/site"]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.contains("GET.other") && out.contains("context.http.path"), "{out}");
    let body = r#"{"title":"secret","labels":["a"]}"#;
    let post = ["--http", "POST /repos/demo/site/issues", "--arguments", body];
    let (code, out) = explain("writer", &post);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.contains("issues-no-labels") && !out.contains("secret"), "{out}");
    for (request, why) in [
        ("GET /a/../b", "two ways"),
        ("PURGE /a", "not served"),
        ("GET", "GET.other"),
        ("GET a", "two ways"),
    ] {
        let (_, out) = explain("reader", &["--http", request]);
        assert!(out.contains(why), "{request}: {out}");
    }
}

#[test]
fn calls_between_agents_are_asked_about_with_their_message() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let at = directory.path();
    let policy = r#"@id("texts") permit(principal, action == Action::"SendMessage", resource)
        when { ["text"].containsAll(context.a2a.parts) };
        @id("reads") permit(principal, action in Action::"read", resource);"#;
    fs::write(at.join("a.cedar"), policy).expect("written");
    fs::create_dir(at.join("tests")).expect("created");
    let at = at.to_str().expect("text");
    let case = |rest: &str| {
        let case = format!(r#"{{"cases":[{{"principal":"spiffe://td/a","server":"s",{rest}}}]}}"#);
        fs::write(directory.path().join("tests/a.json"), case).expect("written");
        lictor_policy(&["test", at])
    };
    let (passed, mistake) = (ExitCode::SUCCESS, ExitCode::from(2));
    let send = |message: &str, expect: &str| {
        let method = r#""method":"SendMessage","arguments":{"message":"#;
        format!(r#"{method}{message}}},"expect":"{expect}""#)
    };
    for (rest, expected) in [
        (send(r#"{"parts":[{"text":"a"}]}"#, "allow"), passed),
        (send(r#"{"parts":[{"text":"a"},{"url":"https://a.example"}]}"#, "deny"), passed),
        (send(r#"{"parts":[{"text":"a","url":"b"}]}"#, "deny"), mistake),
        (r#""method":"SendMessage","expect":"deny""#.to_owned(), passed),
        (r#""method":"GetTask","task":"t","expect":"allow","policy":"reads""#.to_owned(), passed),
        (r#""method":"GetAgentCard","expect":"deny""#.to_owned(), passed),
    ] {
        let (code, out) = case(&rest);
        assert_eq!(code, expected, "{rest}: {out}");
    }
    let message = r#"{"message":{"parts":[{"data":{"secret":1}}]}}"#;
    let base = ["explain", "--directory", at, "--server", "s", "--principal", "spiffe://td/a"];
    let explain = |rest: &[&str]| lictor_policy(&[&base, rest].concat());
    let (code, out) = explain(&["--method", "SendMessage", "--arguments", message]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.contains("context.a2a.parts") && !out.contains("secret"), "{out}");
    let (_, out) = explain(&["--method", "SendMessage"]);
    assert!(out.contains("depends on what the message told"), "{out}");
}

mod delegation;
mod recorded;

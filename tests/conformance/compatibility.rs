//! The matrix of `docs/compatibility.md`: every feature of every client, through the governed chain and
//! without it, in front of servers of both SDKs.
//!
//! A cell is good only if what the client saw through the chain equals what it saw directly, to the last
//! detail, and both are what the feature promises. `LICTOR_WRITE_DOCS=1` writes the file; otherwise it has
//! to say what the run said.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsStr,
    fmt::Write as _,
    fs,
    path::PathBuf,
};

use serde_json::Value;

use crate::{
    PYTHON, TYPESCRIPT,
    chain::governed_chain,
    process::{Output, fixture, interpreter, run, tests_path},
};

/// How the protocol revisions are told apart: with sessions, or without.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// A feature: its name in the drivers' reports, what it is, and what a client sees of it.
struct Feature {
    name: &'static str,
    title: &'static str,
    seen: &'static str,
}

const fn feature(name: &'static str, title: &'static str, seen: &'static str) -> Feature {
    Feature { name, title, seen }
}

const FEATURES: &[Feature] = &[
    feature("connect", "connect: revision, capabilities, names", "true"),
    feature("ping", "ping", "0"),
    feature("list_tools", "list tools", "true"),
    feature("call", "call a tool", r#""This is a simple text response for testing.""#),
    feature("arguments", "arguments and results beyond ASCII", r#""Grüße, 世界 🌍""#),
    feature("large", "arguments and results of 512 KiB", "true"),
    feature(
        "many",
        "twelve calls at once",
        r#"["call 0","call 1","call 2","call 3","call 4","call 5","call 6","call 7","call 8","call 9",
            "call 10","call 11"]"#,
    ),
    feature("content", "text, image and embedded resource", r#"["text","image","resource"]"#),
    feature("audio", "audio", r#"["audio"]"#),
    feature("structured", "structured results", r#"{"answer":42}"#),
    feature("tool_error", "error inside a result", "true"),
    feature("protocol_error", "error instead of a result", "-32602"),
    feature("progress", "progress", "[0,50,100]"),
    feature(
        "logging",
        "log messages",
        r#"["Tool execution started","Tool processing data","Tool execution completed"]"#,
    ),
    feature("mirrored_headers", "arguments mirrored in headers", r#""Nürnberg""#),
    feature(
        "list_resources",
        "list resources",
        r#"["static-binary","static-text","watched-resource"]"#,
    ),
    feature("list_templates", "list resource templates", r#"["template"]"#),
    feature("read_text", "read a text", "[48]"),
    feature("read_binary", "read bytes", "[96]"),
    feature("read_template", "read by a template", "[61]"),
    feature("resource_error", "read what isn't there", "-32602"),
    feature(
        "list_prompts",
        "list prompts",
        r#"["test_input_required_result_prompt","test_prompt_with_arguments",
            "test_prompt_with_embedded_resource","test_prompt_with_image","test_simple_prompt"]"#,
    ),
    feature("get_prompt", "fetch a prompt", r#"["Prompt with arguments: arg1='one', arg2='two'"]"#),
    feature(
        "complete",
        "completion, of prompts and templates",
        r#"[["paris","park","party"],["paris","park","party"]]"#,
    ),
    feature("sampling", "sampling", "true"),
    feature("elicitation_form", "elicitation by form", "true"),
    feature("elicitation_url", "elicitation by URL", r#""URL response: action=accept""#),
    feature("roots", "roots", "true"),
    feature("rounds", "several rounds of input, with state", "true"),
    feature("prompt_rounds", "input for a prompt", r#"["The context was given."]"#),
    feature("server_ping", "ping by the server", r#""The client answered.""#),
    feature("cancel", "cancellation, seen by the tool", r#"["raised","cancelled"]"#),
    feature("resume", "resumption of a stream that the server closed", r#""Reconnected.""#),
    feature("tools_changed", "news: tools changed", "1"),
    feature("prompts_changed", "news: prompts changed", "1"),
    feature("resource_changed", "news: a subscribed resource changed", "1"),
    feature("end_session", "end of the session by the client", "true"),
];

/// What only one of the eras has.
const LEGACY_ONLY: &[&str] = &["ping", "server_ping", "resume", "end_session"];
const MODERN_ONLY: &[&str] = &["mirrored_headers", "rounds", "prompt_rounds"];

impl Feature {
    fn expected(&self) -> Value {
        serde_json::from_str(self.seen).expect("what a feature promises is JSON")
    }

    /// What is wrong with what a client saw of it, directly and through the chain.
    fn fault(&self, direct: Option<&Value>, governed: Option<&Value>) -> Option<String> {
        if direct.is_some_and(|direct| direct["seen"] != self.expected()) {
            return Some(format!("doesn't work without the chain: {}", show(direct, 0)));
        }
        (direct != governed).then(|| {
            let [one, two] =
                [direct, governed].map(|seen| seen.map(Value::to_string).unwrap_or_default());
            let same = one.chars().zip(two.chars()).take_while(|(one, two)| one == two).count();
            let (direct, governed) = (show(direct, same), show(governed, same));
            format!("directly {direct}\n    but through the chain {governed}")
        })
    }

    fn exists_in(&self, era: Era) -> bool {
        let elsewhere = match era {
            Era::Legacy => MODERN_ONLY,
            Era::Modern => LEGACY_ONLY,
        };
        !elsewhere.contains(&self.name)
    }
}

/// A part of what was seen, from shortly before the character at `from`: a list of tools is long.
fn show(seen: Option<&Value>, from: usize) -> String {
    const BEFORE: usize = 60;
    const SHOWN: usize = 400;
    let Some(seen) = seen else { return "nothing".to_owned() };
    seen.to_string().chars().skip(from.saturating_sub(BEFORE)).take(SHOWN).collect()
}

/// A client in one era. `package` is where its version is pinned.
struct Client {
    name: &'static str,
    package: &'static str,
    driver: &'static str,
    mode: &'static str,
    era: Era,
}

const INSPECTOR: &str = "@modelcontextprotocol/inspector";
const CLIENTS: &[Client] = &[
    Client {
        name: "Inspector CLI",
        package: INSPECTOR,
        driver: "features_inspector.mjs",
        mode: "legacy",
        era: Era::Legacy,
    },
    Client {
        name: "TypeScript v1",
        package: "@modelcontextprotocol/sdk",
        driver: "features_v1.mjs",
        mode: "",
        era: Era::Legacy,
    },
    Client {
        name: "TypeScript v2",
        package: "@modelcontextprotocol/client",
        driver: "features_v2.mjs",
        mode: "legacy",
        era: Era::Legacy,
    },
    Client {
        name: "Python",
        package: "mcp",
        driver: "features_mcp.py",
        mode: "legacy",
        era: Era::Legacy,
    },
    Client {
        name: "fastmcp",
        package: "fastmcp",
        driver: "features_fastmcp.py",
        mode: "legacy",
        era: Era::Legacy,
    },
    Client {
        name: "Inspector CLI",
        package: INSPECTOR,
        driver: "features_inspector.mjs",
        mode: "modern",
        era: Era::Modern,
    },
    Client {
        name: "TypeScript v2",
        package: "@modelcontextprotocol/client",
        driver: "features_v2.mjs",
        mode: "modern",
        era: Era::Modern,
    },
    Client {
        name: "Python",
        package: "mcp",
        driver: "features_mcp.py",
        mode: "auto",
        era: Era::Modern,
    },
    Client {
        name: "fastmcp",
        package: "fastmcp",
        driver: "features_fastmcp.py",
        mode: "auto",
        era: Era::Modern,
    },
];

/// What a client saw, by feature: `seen`, `detail`, or `error`.
type Report = BTreeMap<String, Value>;

impl Client {
    async fn report(&self, url: &str) -> Report {
        let script = tests_path("clients").join(self.driver);
        let arguments = [script.as_ref(), OsStr::new(url), OsStr::new(self.mode)];
        let Output { succeeded, stdout, stderr } = run(interpreter(self.driver), &arguments).await;
        assert!(succeeded, "{} {}: {stderr}", self.driver, self.mode);
        // fastmcp writes log messages to stdout too.
        let report = stdout.lines().last().unwrap_or_default();
        serde_json::from_str(report).unwrap_or_else(|error| panic!("{}: {error}", self.driver))
    }

    /// Where the two lists of pinned packages have its version.
    fn version(&self) -> String {
        if self.driver.ends_with(".py") {
            let pins = fs::read_to_string(tests_path("fixtures/requirements.txt")).expect("pins");
            let pin = format!("{}==", self.package);
            let version = pins.lines().find_map(|line| line.strip_prefix(&pin));
            return version.expect("a pinned version").to_owned();
        }
        let lock = fs::read(tests_path("node/package-lock.json")).expect("a lock file");
        let lock: Value = serde_json::from_slice(&lock).expect("a lock file is JSON");
        let package = &lock["packages"][format!("node_modules/{}", self.package)];
        package["version"].as_str().expect("a locked version").to_owned()
    }
}

#[tokio::test]
async fn every_client_sees_through_the_chain_what_it_sees_without_it() {
    let (python, typescript) = tokio::join!(reports(PYTHON), reports(TYPESCRIPT));
    let mut offered: Vec<BTreeSet<&str>> = CLIENTS.iter().map(|_| BTreeSet::new()).collect();
    let mut faults = Vec::new();
    for (script, reports) in [(PYTHON, python), (TYPESCRIPT, typescript)] {
        for ((client, offered), pair) in CLIENTS.iter().zip(&mut offered).zip(reports) {
            let Some([direct, governed]) = pair else { continue };
            for feature in FEATURES {
                let (direct, governed) = (direct.get(feature.name), governed.get(feature.name));
                if let Some(fault) = feature.fault(direct, governed) {
                    let Client { driver, mode, .. } = client;
                    faults.push(format!("{script} {driver} {mode} {}: {fault}", feature.name));
                }
                offered.extend(direct.map(|_| feature.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    compare_with_document(&document(&offered));
}

/// What each client that is tried with this server reports, directly and through the chain.
async fn reports(script: &str) -> Vec<Option<[Report; 2]>> {
    // Each side has a server of its own, since what one client sets off reaches all that listen.
    let (plain, behind) = tokio::join!(fixture(script), fixture(script));
    let chain = governed_chain(&behind).await;
    let url = plain.mcp_url();
    let mut reports = Vec::new();
    for client in CLIENTS {
        // A process for each call takes its time; one server will do.
        if client.package == INSPECTOR && script != PYTHON {
            reports.push(None);
            continue;
        }
        let (direct, governed) = tokio::join!(client.report(&url), client.report(&chain.url));
        reports.push(Some([direct, governed]));
    }
    reports
}

fn document(offered: &[BTreeSet<&str>]) -> String {
    let mut text = String::from(INTRODUCTION);
    for (era, heading) in [
        (Era::Legacy, "2025-11-25: sessions, event streams, questions from the server"),
        (Era::Modern, "2026-07-28: no sessions, input by rounds, subscriptions"),
    ] {
        let shown: Vec<_> =
            CLIENTS.iter().zip(offered).filter(|(client, _)| client.era == era).collect();
        let heads: Vec<_> = shown
            .iter()
            .map(|(client, _)| format!("{} {}", client.name, client.version()))
            .collect();
        let rule = "|---".repeat(heads.len() + 1);
        let heads = heads.join(" | ");
        writeln!(text, "\n## {heading}\n\n| feature | {heads} |\n{rule}|").expect("room");
        for feature in FEATURES.iter().filter(|feature| feature.exists_in(era)) {
            let cells: Vec<_> = shown
                .iter()
                .map(|(_, offered)| if offered.contains(feature.name) { "yes" } else { "–" })
                .collect();
            writeln!(text, "| {} | {} |", feature.title, cells.join(" | ")).expect("room");
        }
    }
    text
}

fn compare_with_document(expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/compatibility.md");
    if env::var_os("LICTOR_WRITE_DOCS").is_some() {
        fs::write(&path, expected).expect("written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, expected, "run the test with LICTOR_WRITE_DOCS=1 to write the file anew");
}

const INTRODUCTION: &str = "\
# Compatibility

What clients can do through Lictor, client by client and feature by feature. A test drives each client twice, once
against a server and once through two Lictors in a row (plain HTTP, then mutual TLS with exact SPIFFE IDs, then the
server), and compares all that the client saw. It writes this file, and fails when a run says something else.

- **yes**: the client sees what the feature promises, and through Lictor it sees exactly what it sees without it, in
  front of a server on the Python SDK and of one on the TypeScript SDK (the Inspector: the former only).
- **–**: the client's interface has no such thing.

A call that a policy refuses is an error of that one call for each of these clients, with Lictor's code and, where the
client shows it, data; the same client object goes on. `docs/refusals.md` has the codes.
";

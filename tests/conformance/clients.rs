//! Real client SDKs through the governed chain: an allowed call, a call with progress, a refused call
//! and, on the same client object, an allowed one again.

use std::ffi::OsStr;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    chain::{Wire, governed_chain, limited_chain},
    process::fixture,
    programs::{Output, interpreter, run, tests_path},
};

const PLAN: &str = r#"{
    "allowed": "test_simple_text",
    "streaming": "test_tool_with_progress",
    "refused": "test_refused"
}"#;

/// Asks the fixture how often each of its tools ran.
const COUNT: &str = r#"{
    "allowed": "test_counters",
    "streaming": "test_tool_with_progress",
    "refused": "test_error_handling"
}"#;

/// What a driver saw.
#[derive(Debug, Deserialize)]
struct Seen {
    tools: Vec<String>,
    before: String,
    streamed: String,
    progress: Vec<f64>,
    refusal: Option<Refusal>,
    after: String,
}

/// The error that a client raised for the refused call.
#[derive(Debug, Deserialize)]
struct Refusal {
    code: i64,
    message: String,
    data: Value,
}

impl Seen {
    async fn by(driver: &str, mode: &str, url: &str, plan: &str) -> Self {
        let script = tests_path("clients").join(driver);
        let arguments = [script.as_ref(), OsStr::new(url), OsStr::new(plan), OsStr::new(mode)];
        let Output { succeeded, stdout, stderr } = run(interpreter(driver), &arguments).await;
        assert!(succeeded, "{driver} {mode}: {stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{driver}: {error}: {stdout}"))
    }

    fn lists_the_refused_tool(&self) -> bool {
        self.tools.iter().any(|tool| tool == "test_refused")
    }

    /// Everything but the refused call, which is the same with and without a proxy.
    fn expect_allowed_calls(&self) {
        const TEXT: &str = "This is a simple text response for testing.";
        assert_eq!(self.before, TEXT);
        assert_eq!(self.streamed, "Progress reported.");
        assert_eq!(self.progress, [0.0, 50.0, 100.0]);
        assert_eq!(self.after, TEXT, "the client is still usable after the refusal");
    }
}

/// Drives one client through the chain.
async fn drive(driver: &str, mode: &str) {
    let fixture = fixture("mcp_server.py", Wire::StreamableHttp).await;
    let chain = governed_chain(&fixture).await;
    let seen = Seen::by(driver, mode, &chain.url, PLAN).await;
    seen.expect_allowed_calls();
    assert!(!seen.lists_the_refused_tool(), "what can't be called isn't listed");
    let Refusal { code, message, data } = seen.refusal.as_ref().expect("an error was raised");
    assert_eq!(*code, 4030);
    assert_eq!(data["kind"], "policy_denied");
    let id = data["decisionId"].as_str().expect("an id to ask the operator about");
    assert!(message.contains(id), "`{message}` names the decision `{id}`");

    let counts = Seen::by("ts_v1.mjs", "", &fixture.url, COUNT).await.before;
    assert!(counts.contains("test_simple_text"), "{counts}");
    assert!(!counts.contains("test_refused"), "the refused call never got there: {counts}");
}

#[tokio::test]
async fn typescript_v1() {
    drive("ts_v1.mjs", "").await;
}

#[tokio::test]
async fn typescript_v2_legacy() {
    drive("ts_v2.mjs", "legacy").await;
}

#[tokio::test]
async fn typescript_v2_modern() {
    drive("ts_v2.mjs", "modern").await;
}

#[tokio::test]
async fn python_legacy() {
    drive("python_mcp.py", "legacy").await;
}

#[tokio::test]
async fn python_auto() {
    drive("python_mcp.py", "auto").await;
}

#[tokio::test]
async fn python_modern() {
    drive("python_mcp.py", "2026-07-28").await;
}

#[tokio::test]
async fn fastmcp() {
    drive("python_fastmcp.py", "").await;
}

/// A tool that may be called once an hour, and was.
const OVER: &str = r#"{
    "allowed": "test_simple_text",
    "streaming": "test_tool_with_progress",
    "refused": "test_error_handling"
}"#;

/// Every client takes a call over a limit as an error of that call, with all that it has to know, and goes on.
#[tokio::test]
async fn a_call_over_a_limit_is_an_error_of_that_call() {
    let fixture = fixture("mcp_server.py", Wire::StreamableHttp).await;
    let limits =
        "rateLimits: [{ name: scarce, rate: 1/1h, when: { tools: [test_error_handling] } }]";
    let chain = limited_chain(&fixture, limits).await;
    let first = Seen::by("ts_v1.mjs", "", &chain.url, OVER).await;
    assert!(first.refusal.is_none(), "{:?}", first.refusal);
    for (driver, mode) in [
        ("ts_v1.mjs", ""),
        ("ts_v2.mjs", "legacy"),
        ("ts_v2.mjs", "modern"),
        ("python_mcp.py", "legacy"),
        ("python_mcp.py", "2026-07-28"),
        ("python_fastmcp.py", ""),
    ] {
        let seen = Seen::by(driver, mode, &chain.url, OVER).await;
        seen.expect_allowed_calls();
        let Refusal { code, message, data } = seen.refusal.as_ref().expect("an error was raised");
        assert_eq!((*code, &data["kind"]), (4290, &"rate_limited".into()), "{driver} {mode}");
        assert_eq!(data["limits"], serde_json::json!(["scarce"]));
        assert!(data["retryAfterMs"].as_u64().is_some_and(|wait| wait > 3_000_000), "{data}");
        assert!(message.contains("`scarce`"), "{message}");
    }
    let counts = Seen::by("ts_v1.mjs", "", &fixture.url, COUNT).await.before;
    assert!(counts.contains("test_error_handling"), "{counts}");
}

/// Without a proxy the tool runs: only the chain can be what refuses it.
#[tokio::test]
async fn nothing_is_refused_without_the_chain() {
    let fixture = fixture("mcp_server.py", Wire::StreamableHttp).await;
    for (driver, mode) in [("ts_v1.mjs", ""), ("python_mcp.py", "auto")] {
        let seen = Seen::by(driver, mode, &fixture.url, PLAN).await;
        seen.expect_allowed_calls();
        assert!(seen.refusal.is_none(), "{driver}: {:?}", seen.refusal);
        assert!(seen.lists_the_refused_tool());
    }
}

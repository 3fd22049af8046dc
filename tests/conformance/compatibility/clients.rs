//! The clients: what runs them, and which versions they are.

use std::ffi::OsStr;

use super::features::Report;
use crate::programs::{Output, interpreter, pinned, run, tests_path};

/// A client, in the mode that chooses the era of the protocol. `package` is where its version is pinned.
pub(super) struct Client {
    name: &'static str,
    package: &'static str,
    pub(super) driver: &'static str,
    pub(super) mode: &'static str,
}

const fn client(
    name: &'static str,
    package: &'static str,
    driver: &'static str,
    mode: &'static str,
) -> Client {
    Client { name, package, driver, mode }
}

const INSPECTOR: &str = "@modelcontextprotocol/inspector";
pub(super) const INSPECTOR_LEGACY: Client =
    client("Inspector CLI", INSPECTOR, "features_inspector.mjs", "legacy");
pub(super) const INSPECTOR_MODERN: Client =
    client("Inspector CLI", INSPECTOR, "features_inspector.mjs", "modern");
pub(super) const TYPESCRIPT_V1: Client =
    client("TypeScript v1", "@modelcontextprotocol/sdk", "features_v1.mjs", "legacy");
pub(super) const TYPESCRIPT_V2_LEGACY: Client =
    client("TypeScript v2", "@modelcontextprotocol/client", "features_v2.mjs", "legacy");
pub(super) const TYPESCRIPT_V2_MODERN: Client =
    client("TypeScript v2", "@modelcontextprotocol/client", "features_v2.mjs", "modern");
pub(super) const PYTHON_LEGACY: Client = client("Python", "mcp", "features_mcp.py", "legacy");
pub(super) const PYTHON_MODERN: Client = client("Python", "mcp", "features_mcp.py", "auto");
pub(super) const FASTMCP_LEGACY: Client =
    client("fastmcp", "fastmcp", "features_fastmcp.py", "legacy");
pub(super) const FASTMCP_MODERN: Client =
    client("fastmcp", "fastmcp", "features_fastmcp.py", "auto");

impl Client {
    /// What it sees of the fixture at `target`, which is of the form that the drivers take.
    pub(super) async fn report(&self, target: &str) -> Report {
        self.drive(target, "fixture").await
    }

    /// What it sees of the everything server there.
    pub(super) async fn report_everything(&self, target: &str) -> Report {
        self.drive(target, "everything").await
    }

    async fn drive(&self, target: &str, server: &str) -> Report {
        let script = tests_path("clients").join(self.driver);
        let [target, mode, server] = [target, self.mode, server].map(OsStr::new);
        let arguments = [script.as_ref(), target, mode, server];
        let Output { succeeded, stdout, stderr } = run(interpreter(self.driver), &arguments).await;
        assert!(succeeded, "{} {target:?} {mode:?}: {stderr}", self.driver);
        // fastmcp writes log messages to stdout too.
        let report = stdout.lines().last().unwrap_or_default();
        serde_json::from_str(report).unwrap_or_else(|error| panic!("{}: {error}", self.driver))
    }

    /// Its name with the version that is pinned.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.name, pinned(self.driver, self.package))
    }
}

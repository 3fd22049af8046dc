//! The configuration of `lictor run --mcp URL` and `lictor run -- COMMAND`: governance of one server without a file.

use std::{
    fmt, fs,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use super::{Config, Faults, Place};

/// Who calls through the loopback listener.
const OPERATOR: &str = "spiffe://local.lictor.internal/operator";

/// Permits everything; written where no policy is yet, and the operator's from then on.
const STARTER: &str = "\
// Everything is permitted and recorded; narrow it down from here.
// Every caller of this listener is spiffe://local.lictor.internal/operator.
@id(\"starter\")
permit (principal, action, resource);
";

/// What is governed without a file.
#[derive(Clone, Debug)]
pub enum Governed {
    /// The MCP server at a URL.
    Url(String),
    /// An MCP server on standard input and output.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// Where it runs.
        directory: PathBuf,
        /// Names in our environment that it inherits.
        env: Vec<String>,
    },
}

/// One plain listener on `bind`, a loopback address, in front of an MCP server.
///
/// Policies and ledger stay in `state`, in a folder of their own for each server: a starter policy is
/// written to `policies/starter.cedar` where that folder doesn't exist yet, and is left alone
/// later.
pub fn drop_in(governed: &Governed, bind: SocketAddr, state: &Path) -> Result<Config, Faults> {
    let home = state.join(folder(&governed.to_string()));
    let policies = home.join("policies");
    if let Err(error) = write_starter(&policies) {
        let mut faults = Faults::default();
        let problem = format!("`{}` can't be written: {error}", policies.display());
        faults.push(&Place::default(), problem);
        return Err(faults);
    }
    let file = serde_json::json!({
        "listeners": [{
            "name": "local",
            "bind": bind.to_string(),
            "tls": "none",
            "identity": OPERATOR,
            "routes": [{ "path": "/mcp", "protocol": "mcp", "upstream": "mcp" }],
        }],
        "upstreams": [governed.upstream()],
        "policy": { "directory": "policies" },
        "ledger": { "directory": "ledger" },
        "telemetry": { "logs": "text" },
        "admin": { "bind": "127.0.0.1:0" },
    });
    // JSON is YAML, so that defaults and checks are those of a file.
    super::parse(&file.to_string(), &home)
}

impl Governed {
    fn upstream(&self) -> serde_json::Value {
        match self {
            Self::Url(url) => serde_json::json!({ "name": "mcp", "url": url }),
            Self::Command { words, directory, env } => serde_json::json!({
                "name": "mcp",
                "command": words,
                "directory": directory,
                "env": { "allow": env },
            }),
        }
    }
}

impl fmt::Display for Governed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url),
            Self::Command { words, .. } => f.write_str(&words.join(" ")),
        }
    }
}

/// Where [`drop_in`] keeps its state: `$XDG_STATE_HOME/lictor`, or `~/.local/state/lictor` (XDG
/// Base Directory Specification), or `./lictor-state` where there is no home.
pub fn state_directory() -> PathBuf {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map_or_else(|| "lictor-state".into(), |state| state.join("lictor"))
}

fn write_starter(policies: &Path) -> std::io::Result<()> {
    if policies.is_dir() {
        return Ok(());
    }
    // The ledger comes to lie beside it; neither is for other users of this machine.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(policies)?;
    fs::write(policies.join("starter.cedar"), STARTER)
}

/// A readable, unique name: the URL or command line with other characters than letters and digits folded, and a
/// digest, since folding makes different ones alike.
fn folder(server: &str) -> String {
    use sha2::{Digest, Sha256};
    let folded = server.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let folded: String = folded.take(48).collect();
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(server));
    let digest: String = digest.chars().take(8).collect();
    format!("{folded}-{digest}")
}

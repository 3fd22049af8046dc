//! The governed chain: suite or client → near Lictor (plain loopback listener) → mutual TLS with exact
//! SPIFFE IDs → far Lictor → fixture.
//!
//! The near one permits everything, the far one everything but [`REFUSED`], so that a refusal has to
//! come through a proxy unharmed as well.

use std::{fs, net::SocketAddr, path::Path};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    ca::{Ca, Written},
    process::{Lictor, lictor},
    programs::Server,
};

const DOMAIN: &str = "chain.lictor.internal";
const PERMIT: &str = r#"@id("everything") permit (principal, action, resource);"#;
/// The tool that nobody may call.
const REFUSED: &str = "test_refused";

/// The transport that a fixture speaks, and clients with it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wire {
    StreamableHttp,
    /// Of revision 2024-11-05.
    Sse,
}

impl Wire {
    /// Its name in the configuration.
    fn key(self) -> &'static str {
        match self {
            Self::StreamableHttp => "streamableHttp",
            Self::Sse => "sse",
        }
    }

    /// Its name for a fixture.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::StreamableHttp => "http",
            Self::Sse => "sse",
        }
    }

    /// A URL as the clients' drivers take it.
    pub(crate) fn target(self, url: &str) -> String {
        match self {
            Self::StreamableHttp => url.to_owned(),
            Self::Sse => format!("sse+{url}"),
        }
    }
}

/// A running chain; it ends with this value.
pub(crate) struct Chain {
    /// The MCP endpoint of its near end.
    pub(crate) url: String,
    _near: Lictor,
    _far: Lictor,
    /// Of the far end, and of the near one.
    directories: [TempDir; 2],
}

impl Chain {
    /// Has the far end forbid everybody a tool, from when it looks at its policies.
    pub(crate) fn forbid(&self, tool: &str) {
        let [far, _] = &self.directories;
        let policy = format!(
            r#"@id("hidden") forbid (principal, action, resource == Tool::"fixture/{tool}");"#
        );
        fs::write(far.path().join("policies/hidden.cedar"), policy).expect("written");
    }
}

/// Starts a chain in front of `fixture`.
pub(crate) async fn governed_chain(fixture: &Server) -> Chain {
    chain(fixture, Wire::StreamableHttp).await
}

/// Starts a chain whose far end has more top-level lines in its configuration.
pub(crate) async fn limited_chain(fixture: &Server, lines: &str) -> Chain {
    chain_to(&format!("url: '{}'", fixture.url), lines, Wire::StreamableHttp).await
}

/// Starts a chain in front of `fixture`, which speaks `wire`.
pub(crate) async fn chain(fixture: &Server, wire: Wire) -> Chain {
    let far = format!("url: '{}', transport: {}", fixture.url, wire.key());
    chain_to(&far, "", wire).await
}

/// Starts a chain whose far end starts `command` for each session or caller.
pub(crate) async fn chain_to_command(command: &[String]) -> Chain {
    chain_to(&format!("command: {}", json!(command)), "", Wire::StreamableHttp).await
}

/// `upstream` is how the far Lictor reaches the server; between the two, and before them, it is `wire`.
async fn chain_to(upstream: &str, lines: &str, wire: Wire) -> Chain {
    let ca = Ca::new(DOMAIN);
    let forbid = format!(
        r#"@id("refused") @reason("nobody may call this")
        forbid (principal, action, resource == Tool::"fixture/{REFUSED}");"#
    );

    let directory = prepare(&format!("{PERMIT}\n{forbid}"));
    let identity = identity(&ca, "/lictor/far", directory.path());
    let far = lictor(directory.path(), &far_config(&identity, upstream, lines)).await;
    let far_directory = directory;

    let directory = prepare(PERMIT);
    let identity = self::identity(&ca, "/lictor/near", directory.path());
    let near = lictor(directory.path(), &near_config(&identity, far.address, wire)).await;

    let url = format!("http://{}/mcp", near.address);
    Chain { url, _near: near, _far: far, directories: [far_directory, directory] }
}

fn prepare(policies: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory for a Lictor");
    let place = directory.path().join("policies");
    fs::create_dir(&place).expect("a directory for policies");
    fs::write(place.join("chain.cedar"), policies).expect("written");
    directory
}

fn identity(ca: &Ca, path: &str, directory: &Path) -> String {
    let Written { certificate, key, bundles } = ca.svid(path).write(directory, &[ca]);
    let bundle = bundles.get(DOMAIN).expect("the bundle of the only domain");
    format!(
        "spiffe: {{ files: {{ certificate: {}, key: {}, bundles: {{ {DOMAIN}: {} }} }} }}",
        certificate.display(),
        key.display(),
        bundle.display(),
    )
}

fn near_config(identity: &str, far: SocketAddr, wire: Wire) -> String {
    let transport = wire.key();
    format!(
        "
identity: {{ {identity} }}
listeners:
  - name: chain
    bind: 127.0.0.1:0
    tls: none
    identity: spiffe://{DOMAIN}/agent/tester
    routes: [{{ path: /mcp, protocol: mcp, upstream: fixture }}]
upstreams:
  - name: fixture
    url: https://{far}/mcp
    transport: {transport}
    spiffeId: spiffe://{DOMAIN}/lictor/far
policy: {{ directory: policies }}
ledger: {{ directory: ledger }}
admin: {{ bind: 127.0.0.1:0 }}
"
    )
}

fn far_config(identity: &str, upstream: &str, lines: &str) -> String {
    format!(
        "
identity: {{ {identity} }}
listeners:
  - name: chain
    bind: 127.0.0.1:0
    tls: mutual
    routes: [{{ path: /mcp, protocol: mcp, upstream: fixture }}]
upstreams:
  - {{ name: fixture, {upstream} }}
policy: {{ directory: policies }}
ledger: {{ directory: ledger }}
admin: {{ bind: 127.0.0.1:0 }}
{lines}
"
    )
}

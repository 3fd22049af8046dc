//! One server behind a Lictor of `td-one.example.org`, and its callers.
//!
//! `agent-a` may call `echo` and `lookup`, `agent-b` may call `echo`; `wipe` is permitted to nobody. The
//! plain listener takes every caller for `agent-a`; over mutual TLS callers prove who they are.

use std::{net::SocketAddr, path::Path, sync::LazyLock, time::Duration};

use rustls::ClientConfig;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    ca::{Ca, Credential},
    http::{Answer, Caller, Reply, Wire, whole, within},
    subject::{Lictor, caller_tls},
};

/// The trust domain of everybody here.
pub(crate) static TD_ONE: LazyLock<Ca> = LazyLock::new(|| Ca::new("td-one.example.org"));

pub(crate) const AGENT_A: &str = "spiffe://td-one.example.org/agent-a";
pub(crate) const AGENT_B: &str = "spiffe://td-one.example.org/agent-b";

/// TLS settings of the two agents.
pub(crate) static TLS_A: LazyLock<ClientConfig> =
    LazyLock::new(|| tls_of(&TD_ONE.svid("/agent-a")));
pub(crate) static TLS_B: LazyLock<ClientConfig> =
    LazyLock::new(|| tls_of(&TD_ONE.svid("/agent-b")));

/// TLS settings of a caller that shows a credential.
pub(crate) fn tls_of(credential: &Credential) -> ClientConfig {
    let config = caller_tls().with_client_auth_cert(credential.chain.clone(), credential.key());
    config.expect("a credential")
}

/// What operators show to administration; in the file `token` of every site.
pub(crate) const TOKEN: &str = "a token of the operators of this site";

/// Who may do what, unless a test says otherwise.
pub(crate) const POLICIES: &str = r#"
@id("connect")
permit (principal, action in Action::"control", resource);

@id("lists")
permit (principal, action in Action::"list", resource);

@id("echo")
permit (
  principal in TrustDomain::"td-one.example.org",
  action in Action::"tools/call",
  resource == Tool::"files/echo"
);

@id("lookup")
permit (
  principal == Agent::"spiffe://td-one.example.org/agent-a",
  action in Action::"tools/call",
  resource == Tool::"files/lookup"
);

@id("greeting")
permit (principal, action in Action::"read", resource == Prompt::"files/greeting");

@id("public")
permit (principal, action in Action::"read", resource == Resource::"files/note:///public");

@id("tasks")
permit (principal, action, resource is Task)
when { principal == Agent::"spiffe://td-one.example.org/agent-a" };

@id("no-wipe")
@reason("wiping is permitted to nobody")
forbid (principal, action, resource == Tool::"files/wipe");

@id("no-roots")
forbid (principal, action == Action::"notifications/roots/list_changed", resource);
"#;

/// What a Lictor is started with. Keys are lines of YAML in flow style.
pub(crate) struct Site {
    directory: TempDir,
    identity: String,
    server: String,
    listener: String,
    route: String,
    upstream: String,
    ledger: String,
    beside: String,
    rest: String,
}

impl Site {
    /// In front of one upstream, with [`POLICIES`].
    pub(crate) fn to(url: &str) -> Self {
        Self::with_server(format!("url: '{url}'"))
    }

    /// In front of several endpoints of one upstream.
    pub(crate) fn to_several(urls: &[String]) -> Self {
        Self::with_server(format!("urls: ['{}']", urls.join("', '")))
    }

    /// In front of a command, as a list in flow style.
    pub(crate) fn running(command: &str) -> Self {
        Self::with_server(format!("command: {command}"))
    }

    fn with_server(server: String) -> Self {
        let site = Self {
            directory: TempDir::new().expect("a directory"),
            identity: "files: { certificate: svid.pem, key: key.pem, \
                       bundles: { td-one.example.org: td-one.example.org.pem } }"
                .to_owned(),
            server,
            listener: String::new(),
            route: String::new(),
            upstream: String::new(),
            ledger: String::new(),
            beside: String::new(),
            rest: String::new(),
        };
        TD_ONE.svid("/lictor").write(site.path(), &[&TD_ONE]);
        std::fs::create_dir(site.path().join("policies")).expect("a directory");
        site.file("policies/all.cedar", POLICIES).file("token", TOKEN)
    }

    /// Where it will run.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// One more file, or another text of one.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path().join(name), text).expect("a file");
        self
    }

    /// Other policies.
    pub(crate) fn policies(self, text: &str) -> Self {
        self.file("policies/all.cedar", text)
    }

    /// Another source of its own identity.
    pub(crate) fn identity(mut self, keys: &str) -> Self {
        keys.clone_into(&mut self.identity);
        self
    }

    /// More keys of both listeners.
    pub(crate) fn listener(mut self, keys: &str) -> Self {
        self.listener = format!(", {keys}");
        self
    }

    /// More keys of the route.
    pub(crate) fn route(mut self, keys: &str) -> Self {
        self.route = format!(", {keys}");
        self
    }

    /// More keys of the upstream.
    pub(crate) fn upstream(mut self, keys: &str) -> Self {
        self.upstream = format!(", {keys}");
        self
    }

    /// One more upstream, at the path of its name.
    pub(crate) fn beside(mut self, name: &str, url: &str) -> Self {
        self.route.push_str(&format!(" }}, {{ path: /{name}, protocol: mcp, upstream: {name}"));
        self.beside.push_str(&format!("- {{ name: {name}, url: '{url}' }}\n"));
        self
    }

    /// More keys of the ledger.
    pub(crate) fn ledger(mut self, keys: &str) -> Self {
        self.ledger = format!(", {keys}");
        self
    }

    /// More top-level lines.
    pub(crate) fn with(mut self, line: &str) -> Self {
        self.rest.push_str(line);
        self.rest.push('\n');
        self
    }

    fn yaml(&self) -> String {
        let Self { identity, server, listener, route, upstream, ledger, beside, rest, .. } = self;
        let routes = format!("routes: [{{ path: /mcp, protocol: mcp, upstream: files{route} }}]");
        format!(
            "identity: {{ spiffe: {{ {identity} }} }}\n\
             listeners:\n\
             - {{ name: plain, bind: '127.0.0.1:0', tls: none, identity: '{AGENT_A}', {routes}{listener} }}\n\
             - {{ name: mutual, bind: '127.0.0.1:0', tls: mutual, {routes}{listener} }}\n\
             upstreams:\n\
             - {{ name: files, {server}, \
             tools: {{ lookup: {{ class: read }}, note: {{ class: write }} }}{upstream} }}\n\
             {beside}\
             policy: {{ directory: policies }}\n\
             ledger: {{ directory: ledger{ledger} }}\n\
             admin: {{ bind: '127.0.0.1:0', tokenFile: token }}\n\
             {rest}"
        )
    }

    /// Everything that it needs, in its place.
    pub(crate) fn written(self) -> TempDir {
        let yaml = self.yaml();
        self.file("lictor.yaml", &yaml).directory
    }

    /// Starts it and waits until it listens.
    pub(crate) async fn start(self) -> Lictor {
        Lictor::run(self.written(), None).await
    }
}

/// A connection of `agent-a`, to the plain listener.
pub(crate) async fn agent_a(lictor: &Lictor) -> Caller {
    Caller::plain(lictor.plain).await
}

/// A connection of `agent-b`.
pub(crate) async fn agent_b(lictor: &Lictor) -> Caller {
    Caller::tls(lictor.mutual, &TLS_B, false).await
}

/// A bare connection of `agent-a`, to the plain listener.
pub(crate) async fn wire_a(lictor: &Lictor) -> Wire {
    Wire::connect(lictor.plain).await
}

/// Sends one message with more headers: `[("mcp-session-id", "s-1")]`.
pub(crate) async fn send(
    caller: &mut Caller,
    method: &str,
    headers: &[(&str, &str)],
    body: impl Into<String>,
) -> Reply {
    let mut request = caller.request(method, whole(body.into()));
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        request.headers_mut().append(name, value.parse().expect("a value"));
    }
    caller.send(request).await
}

/// Asks for the tools until the answer is as wanted, which has to be soon; how often it took.
pub(crate) async fn until_listed(caller: &mut Caller, wanted: &str) -> usize {
    let asking = async {
        let mut asked = 0;
        loop {
            asked += 1;
            let answer = send(caller, "POST", &[], request("tools/list", "{}")).await.whole().await;
            if answer.text() == wanted {
                return asked;
            }
        }
    };
    within("another list", asking).await
}

/// A call of a tool, with id 7.
pub(crate) fn call(tool: &str, arguments: &str) -> String {
    request("tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
}

/// The same, that wants to hear of its progress by this token.
pub(crate) fn call_with_token(tool: &str, token: &str) -> String {
    let meta = format!(r#"{{"progressToken":{token}}}"#);
    request("tools/call", &format!(r#"{{"name":"{tool}","arguments":{{}},"_meta":{meta}}}"#))
}

/// A request with id 7.
pub(crate) fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
}

/// Waits for a log line with such a text.
pub(crate) async fn logged(lictor: &Lictor, text: &str) {
    let looking = async {
        while !lictor.logs().iter().any(|line| line.contains(text)) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    within("a log line", looking).await;
}

/// The metrics as they are now.
pub(crate) async fn metrics(lictor: &Lictor) -> String {
    ask(lictor, "/metrics").await.text()
}

/// What administration says at a path.
pub(crate) async fn ask(lictor: &Lictor, path: &str) -> Answer {
    let address = address(&lictor.logs(), "administration listens", None);
    ask_at(address.expect("administration"), path).await
}

/// What is said at a path there.
pub(crate) async fn ask_at(address: SocketAddr, path: &str) -> Answer {
    let mut operator = Caller::plain(address).await;
    let request = operator.request_to("GET", path, whole(""));
    operator.send(request).await.whole().await
}

/// The address that a log line tells.
pub(crate) fn address(
    logs: &[String],
    message: &str,
    listener: Option<&str>,
) -> Option<SocketAddr> {
    let events = logs.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut told = events.filter(|event| {
        event["message"] == message && listener.is_none_or(|name| event["listener"] == name)
    });
    told.next()?["address"].as_str()?.parse().ok()
}

/// The sum of the samples of a metric that have all of these labels: `["outcome=\"ok\""]`.
pub(crate) fn sample(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = metrics.lines().filter_map(|line| line.rsplit_once(' '));
    let wanted = samples.filter(|(series, _)| {
        series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label))
    });
    wanted.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}

//! Real agents in a row, each with a Lictor of its own: two workloads call a JavaScript agent, which calls a Python
//! one, which calls a tool. One workload lets others only read on its behalf, the other lets them write, and both
//! are served at once. Whose call the tool's is decides what it may do, and the shims of `examples/shim` tell it.

use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::join;

use crate::{
    http::{Caller, whole},
    programs::{Server, listening, script},
    site::{PERMIT, free_port},
    subject::{CA, Lictor},
};

/// The whole row; everything in it ends with this value.
struct Row {
    writer: Lictor,
    reader: Lictor,
    first: Lictor,
    second: Lictor,
    tools: Lictor,
    _programs: [Server; 3],
}

/// What stands where calls arrive.
struct Own<'a> {
    protocol: &'a str,
    url: &'a str,
}

/// Where calls go on to.
struct Next<'a> {
    /// The workload's own way out.
    port: u16,
    /// Protocol, and whatever else the route says.
    route: &'a str,
    lictor: &'a Lictor,
    name: &'a str,
}

impl Row {
    /// `shim`: whether the agents tell what their calls are for.
    async fn start(shim: bool) -> Self {
        let server = listening(script("fixtures/mcp_server.py"), "/mcp").await;
        let own = Own { protocol: "mcp", url: &server.url };
        let tools = proxy("tools", Some(own), None).await;

        let port = free_port();
        let second_agent =
            agent("relay_agent.py", &format!("mcp:http://127.0.0.1:{port}/next"), shim).await;
        let own = Own { protocol: "a2a", url: &format!("{}/", second_agent.url) };
        let next = Next { port, route: "protocol: mcp", lictor: &tools, name: "tools" };
        let second = proxy("second", Some(own), Some(next)).await;

        let port = free_port();
        let first_agent = agent("relay.mjs", &format!("http://127.0.0.1:{port}/next"), shim).await;
        let own = Own { protocol: "a2a", url: &format!("{}/", first_agent.url) };
        let next = Next { port, route: "protocol: a2a", lictor: &second, name: "second" };
        let first = proxy("first", Some(own), Some(next)).await;

        let origin = async |name: &str, route| {
            let next = Next { port: free_port(), route, lictor: &first, name: "first" };
            proxy(name, None, Some(next)).await
        };
        let writer = origin("writer", "protocol: a2a").await;
        let reader = origin("reader", "protocol: a2a, delegate: readonly").await;
        let _programs = [server, second_agent, first_agent];
        Self { writer, reader, first, second, tools, _programs }
    }

    /// Both workloads ask at once; what each is told.
    async fn ask(&self) -> [Value; 2] {
        let (writer, reader) = join!(ask(&self.writer, "writes"), ask(&self.reader, "reads"));
        [writer, reader]
    }
}

/// A Lictor of its own SVID, with what it stands beside.
async fn proxy(name: &str, own: Option<Own<'_>>, next: Option<Next<'_>>) -> Lictor {
    let directory = TempDir::new().expect("a directory");
    let here = directory.path();
    CA.svid(&format!("/{name}")).write(here, &[&CA]);
    std::fs::create_dir(here.join("policies")).expect("a directory");
    std::fs::write(here.join("policies/all.cedar"), PERMIT).expect("policies");
    let (mut upstreams, mut inward, mut outward) = (String::new(), String::new(), String::new());
    const TOOLS: &str = "tools: { test_echo: { class: write } }";
    if let Some(Own { protocol, url }) = own {
        upstreams += &format!("- {{ name: own, url: '{url}', {TOOLS} }}\n");
        inward = format!("{{ path: /own, protocol: {protocol}, upstream: own }}");
    }
    let mut port = 0;
    if let Some(next) = next {
        let address = next.lictor.mutual;
        port = next.port;
        upstreams += &format!(
            "- {{ name: next, url: 'https://{address}/own', spiffeId: 'spiffe://one.test/{}', {TOOLS} }}\n",
            next.name
        );
        outward = format!("{{ path: /next, upstream: next, {} }}", next.route);
    }
    // A listener needs a route; what leads nowhere is never asked for.
    let or_idle = |routes: String| match routes.is_empty() {
        true => "{ path: /idle, protocol: mcp, upstream: idle }".to_owned(),
        false => routes,
    };
    let (inward, outward) = (or_idle(inward), or_idle(outward));
    let config = format!(
        "identity: {{ spiffe: {{ files: {{ certificate: svid.pem, key: key.pem, \
         bundles: {{ one.test: one.test.pem }} }} }} }}\n\
         listeners:\n\
         - {{ name: out, direction: outbound, bind: '127.0.0.1:{port}', tls: none, \
         routes: [{outward}] }}\n\
         - {{ name: in, bind: '127.0.0.1:0', tls: mutual, routes: [{inward}] }}\n\
         upstreams:\n\
         - {{ name: idle, url: 'http://127.0.0.1:9/' }}\n{upstreams}\
         delegation: {{ mayOriginate: [{{ id: 'spiffe://one.test/writer', mode: full }}, \
         {{ id: 'spiffe://one.test/reader', mode: full }}] }}\n\
         policy: {{ directory: policies }}\n\
         ledger: {{ directory: ledger }}\n\
         state: {{ directory: state }}\n\
         admin: {{ bind: '127.0.0.1:0' }}\n"
    );
    std::fs::write(here.join("lictor.yaml"), config).expect("a configuration");
    Lictor::run_with(directory, None, ["out", "in"]).await
}

/// An agent that goes on only when it has been asked twice, so that both calls are under way.
async fn agent(name: &str, next: &str, shim: bool) -> Server {
    let mut program = script(&format!("fixtures/{name}"));
    program.env("RELAY_NEXT", next).env("RELAY_TOGETHER", "2");
    if !shim {
        program.env("RELAY_SHIM", "off");
    }
    listening(program, "").await
}

async fn ask(from: &Lictor, text: &str) -> Value {
    let mut workload = Caller::plain(from.plain).await;
    let message = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": { "message": {
            "messageId": text,
            "role": "ROLE_USER",
            "parts": [{ "text": text }],
        } },
    });
    let mut request = workload.request_to("POST", "/next", whole(Bytes::from(message.to_string())));
    request.headers_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    workload.send(request).await.whole().await.json()
}

/// The closing entries of tool calls, by who began the chain.
fn tool_calls(closings: &[Value], root: &str) -> Vec<Value> {
    let root = format!("spiffe://one.test/{root}");
    let of = |entry: &&Value| entry["method"] == "tools/call" && entry["root"] == root;
    closings.iter().filter(of).cloned().collect()
}

#[tokio::test]
async fn agents_that_tell_what_their_calls_are_for_do_each_what_its_caller_may() {
    let row = Row::start(true).await;
    let [writer, reader] = row.ask().await;
    assert!(writer.to_string().contains("writes"), "{writer}");
    assert!(!reader.to_string().contains("reads"), "{reader}");

    let second = row.second.stop_with(|closings| closings > 0).await;
    let tools = row.tools.stop_with(|closings| closings > 0).await;
    let written = tool_calls(&tools, "writer");
    assert_eq!(written.len(), 1, "{tools:?}");
    assert_eq!((&written[0]["hops"], &written[0]["decision"]), (&json!(3), &json!("permit")));
    // The write of the reader ends where it would go out, in words of who withholds it.
    assert_eq!(tool_calls(&tools, "reader"), [] as [Value; 0]);
    let refused = tool_calls(&second, "reader");
    assert_eq!(refused.len(), 1, "{second:?}");
    let refused = &refused[0];
    assert_eq!(
        (&refused["status"], &refused["hop_peer"]),
        (&json!("delegation_denied"), &json!("spiffe://one.test/reader"))
    );
    assert_eq!((&refused["link"], &refused["hop"]), (&json!("handle"), &json!(0)));
    for lictor in [row.first, row.writer, row.reader] {
        lictor.stop_with(|closings| closings > 0).await;
    }
}

#[tokio::test]
async fn agents_that_tell_nothing_do_only_what_all_their_callers_may() {
    let row = Row::start(false).await;
    let [writer, reader] = row.ask().await;
    for (answer, text) in [(&writer, "writes"), (&reader, "reads")] {
        assert!(!answer.to_string().contains(text), "{answer}");
    }
    let tools = row.tools.stop_with(|_| true).await;
    assert!(!tools.iter().any(|entry| entry["method"] == "tools/call"), "{tools:?}");
    for lictor in [row.second, row.first, row.writer, row.reader] {
        lictor.stop_with(|closings| closings > 0).await;
    }
}

//! Three proxies in a row, each with its own SVID: `a`, an agent, calls `b`, an agent, which calls `c`, an MCP
//! server. What `a` lets `b` do is all that `b` can do on its behalf.

use http::HeaderValue;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    CALL, CHANGE,
    agents::{message, rpc},
    http::{Answer, Caller, whole},
    stub::Stub,
    subject::{CA, Lictor, caller_tls},
};

mod explained;
mod forged;
mod limits;
mod refused;
mod restarted;
pub(crate) mod revoked;

/// Who may begin a chain, unless a test says otherwise.
pub(crate) const ORIGINS: &str = "mayOriginate: [{ id: spiffe://one.test/a, mode: full }]";

/// Permits everything to everybody.
const POLICIES: &str = r#"@id("all") permit (principal, action, resource);"#;

/// A proxy beside `/{name}`.
pub(crate) async fn proxy(name: &str, doors: &str, upstreams: &str, delegation: &str) -> Lictor {
    proxy_with(name, doors, upstreams, delegation, POLICIES).await
}

async fn proxy_with(
    name: &str,
    doors: &str,
    upstreams: &str,
    delegation: &str,
    policies: &str,
) -> Lictor {
    // In memory, nothing would be taken yet that could have been shown before.
    let state = "state: { directory: state }\n";
    proxy_keeping(state, name, doors, upstreams, delegation, policies).await
}

/// `state` is the line of the configuration.
async fn proxy_keeping(
    state: &str,
    name: &str,
    doors: &str,
    upstreams: &str,
    delegation: &str,
    policies: &str,
) -> Lictor {
    let directory = TempDir::new().expect("a directory");
    let here = directory.path();
    CA.svid(&format!("/{name}")).write(here, &[&CA]);
    std::fs::create_dir(here.join("policies")).expect("a directory");
    std::fs::write(here.join("policies/all.cedar"), policies).expect("policies");
    let yaml = format!(
        "identity: {{ spiffe: {{ files: {{ certificate: svid.pem, key: key.pem, \
         bundles: {{ one.test: one.test.pem }} }} }} }}\n\
         listeners:\n{doors}\
         upstreams:\n{upstreams}\
         delegation: {{ {delegation} }}\n\
         policy: {{ directory: policies }}\n\
         ledger: {{ directory: ledger }}\n\
         admin: {{ bind: '127.0.0.1:0', tokenFile: token }}\n{state}"
    );
    std::fs::write(here.join("token"), "a token of operators").expect("a token");
    std::fs::write(here.join("lictor.yaml"), yaml).expect("a configuration");
    Lictor::run_with(directory, None, ["out", "in"]).await
}

/// Listeners in front of `own` and for its calls to `next`.
fn doors(own: &str, next: &str) -> String {
    format!(
        "- {{ name: out, direction: outbound, bind: '127.0.0.1:0', tls: none, \
         routes: [{{ path: /next, upstream: next, {next} }}] }}\n\
         - {{ name: in, bind: '127.0.0.1:0', tls: mutual, \
         routes: [{{ path: /own, upstream: own, {own} }}] }}\n"
    )
}

fn upstreams(own: &Stub, next: Option<(&Lictor, &str)>) -> String {
    let next = match next {
        Some((lictor, name)) => {
            format!("url: 'https://{}/own', spiffeId: 'spiffe://one.test/{name}'", lictor.mutual)
        }
        None => "url: 'http://127.0.0.1:9/'".to_owned(),
    };
    let url = own.url();
    let tools = "tools: { look: { class: read }, change: { class: write } }";
    format!("- {{ name: own, url: '{url}', {tools} }}\n- {{ name: next, {next}, {tools} }}\n")
}

/// The row, with the agent of `b` in the hands of the test.
struct Row {
    a: Lictor,
    b: Lictor,
    c: Lictor,
    agent: Stub,
    server: Stub,
}

impl Row {
    /// `delegate` are more keys of the route from `a` to `b`.
    async fn start(delegate: &str) -> Self {
        Self::start_with(delegate, POLICIES).await
    }

    /// `policies` are those of `c`.
    async fn start_with(delegate: &str, policies: &str) -> Self {
        Self::start_limited(delegate, policies, "").await
    }

    /// `limits` are lines of the configuration of `c`.
    async fn start_limited(delegate: &str, policies: &str, limits: &str) -> Self {
        let server = Stub::json().await;
        let idle = Stub::json().await;
        let mcp = doors("protocol: mcp", "protocol: mcp");
        let behind = format!("{}{limits}", upstreams(&server, None));
        let c = proxy_with("c", &mcp, &behind, ORIGINS, policies).await;
        let agent = Stub::scripted().await;
        let both = doors("protocol: a2a", "protocol: mcp");
        let b = proxy("b", &both, &upstreams(&agent, Some((&c, "c"))), ORIGINS).await;
        let out = doors("protocol: mcp", &format!("protocol: a2a{delegate}"));
        let a = proxy("a", &out, &upstreams(&idle, Some((&b, "b"))), ORIGINS).await;
        Self { a, b, c, agent, server }
    }

    /// `a` sends a message to `b`, whose agent calls `c` for it; the answer to that call.
    async fn relay(&mut self, call: &str, marked: bool) -> Answer {
        self.relay_all(&[call], marked).await.remove(0)
    }

    /// The same with several calls for one message, one after the other.
    async fn relay_all(&mut self, calls: &[&str], marked: bool) -> Vec<Answer> {
        let mut workload = Caller::plain(self.a.plain).await;
        let sent = rpc(1, "message/send", message(json!({}))).to_string();
        let request = workload.request_to("POST", "/next", whole(sent));
        let (reply, answers) = tokio::join!(workload.send(request), async {
            let inbound = self.agent.call().await;
            let headers = &inbound.seen.head.headers;
            assert!(!headers.contains_key("agent-delegation"), "the workload sees no chain");
            let state = headers.get("tracestate").cloned().expect("a handle");
            let mut agent = Caller::plain(self.b.plain).await;
            let mut answers = Vec::new();
            for call in calls {
                let mut request = agent.request_to("POST", "/next", whole((*call).to_owned()));
                if marked {
                    request.headers_mut().insert("tracestate", state.clone());
                }
                // A copy of the workload's own making goes nowhere.
                let forged = HeaderValue::from_static("forged");
                request.headers_mut().insert("agent-delegation", forged);
                answers.push(agent.send(request).await.whole().await);
            }
            let message =
                json!({ "kind": "message", "messageId": "r", "role": "agent", "parts": [] });
            inbound.answer(&message.to_string()).await;
            answers
        });
        assert_eq!(reply.whole().await.status, 200);
        answers
    }
}

#[tokio::test]
async fn a_call_at_the_end_is_on_behalf_of_the_beginning() {
    let mut row = Row::start("").await;
    for marked in [true, false] {
        let answer = row.relay(CALL, marked).await;
        assert_eq!(answer.status, 200);
        assert!(answer.json()["result"].is_object(), "{}", answer.json());
    }
    let seen = row.server.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| !seen.head.headers.contains_key("agent-delegation")));

    let a = row.a.stop(2).await;
    let b = row.b.stop(4).await;
    let c = row.c.stop(2).await;
    let (inbound, outbound): (Vec<_>, Vec<_>) =
        b.iter().partition(|entry| entry["direction"] == "inbound");
    for at in 0..2 {
        assert_eq!(a[at]["direction"], "outbound");
        assert_eq!((&a[at]["link"], &a[at]["hops"]), (&json!("root"), &Value::Null));
        assert_eq!(
            (&inbound[at]["hops"], &inbound[at]["root"]),
            (&json!(1), &json!("spiffe://one.test/a"))
        );
        assert_eq!(inbound[at]["peer_call"], a[at]["call_id"]);
        assert_eq!(
            (&outbound[at]["hops"], &outbound[at]["root"]),
            (&json!(1), &json!("spiffe://one.test/a"))
        );
        assert_eq!((&c[at]["hops"], &c[at]["root"]), (&json!(2), &json!("spiffe://one.test/a")));
        assert_eq!(c[at]["peer_call"], outbound[at]["call_id"]);
        assert_eq!(c[at]["run"], inbound[at]["run"]);
    }
    assert_eq!((&outbound[0]["link"], &outbound[1]["link"]), (&json!("handle"), &json!("single")));
}

#[tokio::test]
async fn the_user_and_the_tenant_of_the_beginning_are_known_at_the_end() {
    let policies = r#"@id("all") permit (principal, action, resource);
        @id("acme") forbid (principal, action in Action::"tools/call", resource)
        unless { context has delegation && context.delegation has tenant
            && context.delegation.tenant == "acme" && context.delegation has user };"#;
    let server = Stub::json().await;
    let idle = Stub::json().await;
    let tenant = format!("{ORIGINS}, tenant: acme");
    let mcp = doors("protocol: mcp", "protocol: mcp");
    let c = proxy_with("c", &mcp, &upstreams(&server, None), ORIGINS, policies).await;
    let a = proxy("a", &mcp, &upstreams(&idle, Some((&c, "c"))), &tenant).await;
    let mut workload = Caller::plain(a.plain).await;
    let mut told = Vec::new();
    for users in [&["alice@one.test"][..], &["alice@one.test"], &["bob"], &[], &["a", "b"], &[""]] {
        let mut request = workload.request_to("POST", "/next", whole(CALL));
        for user in users {
            let user = HeaderValue::from_static(user);
            request.headers_mut().append("lictor-user", user);
        }
        let answer = workload.send(request).await.whole().await;
        told.push((answer.status, answer.json()["result"].is_object()));
        if answer.status == 400 {
            workload = Caller::plain(a.plain).await;
        }
    }
    let permitted = (200, true);
    // Without a user it is the policy that refuses; what isn't one name is refused before.
    let refused = (400, false);
    assert_eq!(told, [permitted, permitted, permitted, (200, false), refused, refused]);
    let closings = c.stop(4).await;
    let users: Vec<_> = closings.iter().map(|entry| &entry["user"]).collect();
    assert_eq!(users[0], users[1]);
    assert_ne!(users[0], users[2]);
    assert_eq!(users[3], &Value::Null);
    assert_eq!(users[0].as_str().map(str::len), Some(22), "{users:?}");
    assert!(closings.iter().all(|entry| entry["tenant"] == "acme"));
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.head.header("lictor-user").is_none()));
    a.stop(6).await;
}

#[tokio::test]
async fn what_the_first_hop_withholds_the_last_cant_do() {
    let mut row = Row::start(", delegate: readonly").await;
    let answer = row.relay(CHANGE, true).await.json();
    assert_eq!(answer["error"]["data"]["kind"], "delegation_denied", "{answer}");
    let answer = row.relay(CALL, true).await.json();
    assert!(answer["result"].is_object(), "reading is permitted: {answer}");
    assert_eq!(row.server.requests(), 1);
    row.a.stop(2).await;
    let refused = row.b.stop(4).await;
    let refused =
        refused.iter().find(|entry| entry["decision"] == "deny").expect("a refusal").clone();
    assert_eq!((&refused["stage"], &refused["hop"]), (&json!("delegation"), &json!(0)));
    assert_eq!(refused["hop_peer"], "spiffe://one.test/a");
    row.c.stop(1).await;
}

#[tokio::test]
async fn whoever_works_for_others_cant_begin() {
    let row = Row::start("").await;
    let mut agent = Caller::plain(row.b.plain).await;
    let request = agent.request_to("POST", "/next", whole(CALL));
    let answer = agent.send(request).await.whole().await.json();
    assert_eq!(answer["error"]["data"]["kind"], "delegation_required", "{answer}");
    assert_eq!(row.server.requests(), 0);
    // What does nothing for anybody, it may: it has to connect before it is called.
    for method in ["initialize", "ping", "tools/list"] {
        let asked = rpc(1, method, json!({})).to_string();
        let request = agent.request_to("POST", "/next", whole(asked));
        let answer = agent.send(request).await.whole().await.json();
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    let request = rpc(1, "resources/read", json!({ "uri": "file:///a" })).to_string();
    let request = agent.request_to("POST", "/next", whole(request));
    let answer = agent.send(request).await.whole().await.json();
    assert_eq!(answer["error"]["data"]["kind"], "delegation_required", "{answer}");
    assert_eq!(row.server.requests(), 3);
    let closings = row.b.stop(5).await;
    assert!(closings.iter().all(|entry| entry["link"] == "root" && entry["hops"].is_null()));
    row.a.stop(0).await;
    let closings = row.c.stop(3).await;
    assert!(closings.iter().all(|entry| entry["peer"] == "spiffe://one.test/b"));
}

#[tokio::test]
async fn a_refusal_is_in_the_ledgers_of_both_neighbours() {
    let policies = r#"@id("all") permit (principal, action, resource);
        @id("not-for-a") forbid (principal == Agent::"spiffe://one.test/a", action, resource == Tool::"own/change");"#;
    let mut row = Row::start_with("", policies).await;
    let answer = row.relay(CHANGE, true).await;
    assert_eq!(answer.json()["error"]["data"]["kind"], "delegation_denied", "{}", answer.json());
    assert_eq!(row.server.requests(), 0);
    row.a.stop(1).await;
    let b = row.b.stop(2).await;
    let outbound = b.iter().find(|entry| entry["direction"] == "outbound").expect("an entry");
    assert_eq!(outbound["peer_denied"], "delegation_denied");
    let c = row.c.stop(1).await;
    assert_eq!((&c[0]["decision"], &c[0]["hop"]), (&json!("deny"), &json!(0)));
    assert_eq!(c[0]["hop_peer"], "spiffe://one.test/a");
    assert_eq!(c[0]["peer_call"], outbound["call_id"]);
}

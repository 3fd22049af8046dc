//! What callers that listen are told of a reload: that a list has changed, once, and only if theirs has.

use super::*;
use crate::{
    http::Reply,
    site::{AGENT_A, agent_b},
    stub::Call,
};

const TOOLS: &str = r#"{"tools":[{"name":"echo"},{"name":"lookup"},{"name":"wipe"}]}"#;

const LISTENING: &str = "@id(\"listening\") permit (principal, action == Action::\"subscriptions/listen\", resource);\n";

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// With signs of life often enough to count time by.
fn site(stub: &Stub) -> Site {
    let site = Site::to(&stub.url()).listener("timeouts: { keepAlive: 1s }");
    site.policies(&format!("{POLICIES}{LISTENING}"))
}

/// A subscription to changes of these lists, as `{"toolsListChanged":true}`, and the stream of its answer.
async fn subscribe(lictor: &Lictor, stub: &mut Stub, wanted: &str) -> (Caller, Reply, Call) {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"l-1","method":"subscriptions/listen","params":{{"notifications":{wanted},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let mut caller = agent_a(lictor).await;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let (reply, call) = tokio::join!(send(&mut caller, "POST", &headers, body), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    });
    assert_eq!(reply.status, 200);
    (caller, reply, call)
}

/// A stream of the revisions before.
async fn stream(mut caller: Caller, stub: &mut Stub) -> (Caller, Reply, Call) {
    let (reply, call) = tokio::join!(send(&mut caller, "GET", &[], ""), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    });
    assert_eq!(reply.status, 200);
    (caller, reply, call)
}

/// The tools that a caller is shown, which is what can be hidden from it.
async fn list(mut caller: Caller, stub: &mut Stub) -> usize {
    let (answer, ()) = tokio::join!(
        async { send(&mut caller, "POST", &[], request("tools/list", "{}")).await.whole().await },
        async { stub.call().await.answer(TOOLS).await }
    );
    answer.json()["result"]["tools"].as_array().expect("a list").len()
}

/// The messages on a stream until it has been silent for so many seconds, or has ended.
async fn messages(reply: &mut Reply, silent: usize) -> Vec<String> {
    let (mut heard, mut alive) = (Vec::new(), 0);
    let mut text = String::new();
    while alive < silent {
        let Some(more) = reply.chunk().await else { return heard };
        text.push_str(std::str::from_utf8(&more).expect("UTF-8"));
        while let Some((event, rest)) = text.split_once("\n\n") {
            match event.split_once("data: ") {
                Some((_, data)) => {
                    heard.push(data.to_owned());
                    alive = 0;
                }
                None => alive += 1,
            }
            text = rest.to_owned();
        }
    }
    heard
}

async fn policies(lictor: &Lictor, more: &str, count: f64) {
    put(lictor, "policies/all.cedar", &format!("{POLICIES}{LISTENING}{more}"));
    let looking = async {
        while sample(&metrics(lictor).await, "lictor_policy_reloads_total", APPLIED) < count {
            sleep(PAUSE).await;
        }
    };
    within("other policies", looking).await;
}

#[tokio::test]
async fn who_has_a_list_is_told_once_that_it_has_changed() {
    /// Longer than it takes until every stream has been looked at.
    const A_LOOK: usize = 7;
    let mut stub = Stub::scripted().await;
    let lictor = site(&stub).start().await;
    assert_eq!(list(agent_a(&lictor).await, &mut stub).await, 2);
    let (_c1, mut legacy, _u1) = stream(agent_a(&lictor).await, &mut stub).await;
    let (_c2, mut other, _u2) = stream(agent_b(&lictor).await, &mut stub).await;
    let (_c3, mut tools, mut far) =
        subscribe(&lictor, &mut stub, r#"{"toolsListChanged":true}"#).await;
    let (_c4, mut prompts, mut far_prompts) =
        subscribe(&lictor, &mut stub, r#"{"promptsListChanged":true,"toolsListChanged":false}"#)
            .await;
    let (_c5, mut early, mut far_early) =
        subscribe(&lictor, &mut stub, r#"{"toolsListChanged":true}"#).await;
    const ACK: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}"#;
    far.chunk(format!("data: {ACK}\n\n")).await;
    far_prompts.chunk(format!("data: {ACK}\n\n")).await;
    // Something that doesn't touch what anybody of them is shown, and then something that does.
    policies(&lictor, "@id(\"x\") permit (principal, action, resource == Tool::\"y/z\");", 1.0)
        .await;
    let (a, b) = tokio::join!(messages(&mut legacy, A_LOOK), messages(&mut tools, A_LOOK));
    assert_eq!((a, b), (vec![], vec![ACK.to_owned()]));
    let forbid = format!(
        "@id(\"x\") forbid (principal == Agent::\"{AGENT_A}\", action in Action::\"tools/call\", \
         resource == Tool::\"files/lookup\");"
    );
    policies(&lictor, &forbid, 2.0).await;
    let subscribed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l-1"}}}"#;
    let (a, c) = tokio::join!(messages(&mut legacy, A_LOOK), messages(&mut tools, A_LOOK));
    assert_eq!((a, c), (vec![CHANGED.to_owned()], vec![subscribed.to_owned()]));
    // These have been silent, and are read to where that time ends.
    const ALL: usize = 4 * A_LOOK;
    let (b, d, e) = tokio::join!(
        messages(&mut other, ALL),
        messages(&mut prompts, ALL),
        messages(&mut early, ALL),
    );
    assert_eq!(b, [""; 0], "agent-b could never call it");
    assert_eq!(d, [ACK], "it has asked for other news");
    assert_eq!(e, [""; 0], "not before what such a stream begins with");
    far_early.chunk(format!("data: {ACK}\n\n")).await;
    assert_eq!(messages(&mut early, A_LOOK).await, [ACK, subscribed]);
    assert_eq!(list(agent_a(&lictor).await, &mut stub).await, 1);
    lictor.stop(7).await;
}

#[tokio::test]
async fn a_stream_whose_route_has_changed_is_told_so_and_ends() {
    let (mut stub, next) = (Stub::scripted().await, Stub::json().await);
    let lictor = site(&stub).route("mode: shadow").start().await;
    let (_c1, mut legacy, _u1) = stream(agent_a(&lictor).await, &mut stub).await;
    let (_c2, mut tools, mut far) =
        subscribe(&lictor, &mut stub, r#"{"toolsListChanged":true}"#).await;
    far.chunk(": begun\n\n").await;
    assert_eq!(tools.chunk().await.as_deref(), Some(&b": begun\n\n"[..]));
    edit(&lictor, "lictor.yaml", ", mode: shadow", "");
    reloads(&lictor, APPLIED, 1.0).await;
    let heard = messages(&mut legacy, usize::MAX).await;
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert_eq!(heard.first().map(String::as_str), Some(CHANGED));
    let heard = messages(&mut tools, usize::MAX).await;
    assert_eq!(heard.len(), 2, "{heard:?}");
    let last: Value = serde_json::from_str(heard.last().expect("an error")).expect("JSON");
    assert_eq!(
        (&last["id"], &last["error"]["data"]["kind"]),
        (&"l-1".into(), &"route_changed".into())
    );
    assert_eq!(last["error"]["code"], 4100);
    // One that stays as it is isn't touched by the coming and going of others; one that moves is.
    let (_c3, mut stays, mut far) = stream(agent_a(&lictor).await, &mut stub).await;
    let route = "{ path: /mcp, protocol: mcp, upstream: files }";
    edit(&lictor, "lictor.yaml", route, &format!("{route}, {}", route.replace("/mcp", "/more")));
    reloads(&lictor, APPLIED, 2.0).await;
    assert_eq!(messages(&mut stays, 7).await, [""; 0]);
    edit(&lictor, "lictor.yaml", &stub.url(), &next.url());
    reloads(&lictor, APPLIED, 3.0).await;
    assert_eq!(messages(&mut stays, usize::MAX).await, [""; 0]);
    far.abandoned().await;
    let closings = lictor.stop(3).await;
    assert!(closings.iter().all(|entry| entry["status"] == "route_changed"), "{closings:?}");
}

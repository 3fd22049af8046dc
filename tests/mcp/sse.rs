//! The HTTP+SSE transport of 2024-11-05: the place to post is Lictor's own, and what is posted there is
//! governed as anywhere.

use serde_json::Value;

use crate::{
    http::{Answer, Caller, Reply, whole},
    site::{self, Site, TLS_A, TLS_B, call, request},
    stub::{Call, Stub},
    subject::Lictor,
};

mod announcements;
mod chain;

const ACCEPTED: &str =
    "HTTP/1.1 202 Accepted\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nAccepted";

/// What a server may ask.
pub(crate) const SERVER_PINGS: &str =
    r#"@id("ping") permit (principal is Server, action in Action::"asks.control", resource);"#;

async fn lictor(stub: &Stub) -> Lictor {
    let site = Site::to(&stub.url()).upstream("transport: sse");
    site.file("policies/asks.cedar", SERVER_PINGS).start().await
}

async fn a(lictor: &Lictor) -> Caller {
    Caller::tls(lictor.mutual, &TLS_A, false).await
}

/// Over HTTP/2.
async fn b(lictor: &Lictor) -> Caller {
    Caller::tls(lictor.mutual, &TLS_B, true).await
}

/// A client's stream, and the upstream's end of it.
struct Stream {
    reply: Reply,
    far: Call,
    /// Where to post.
    place: String,
    _caller: Caller,
}

/// A stream whose upstream announces `/messages?sessionId=…`.
async fn open(mut caller: Caller, stub: &mut Stub, session: &str) -> Stream {
    let (mut reply, mut far) = begin(&mut caller, stub).await;
    far.chunk(format!("event: endpoint\ndata: /messages?sessionId={session}\n\n")).await;
    let announced = event(&mut reply).await;
    let place = announced.strip_prefix("event: endpoint\ndata: ").expect("an announcement");
    let place = place.strip_suffix("\n\n").expect("one line").to_owned();
    let token = place.strip_prefix("/mcp/message/").expect("a place below the route");
    assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    Stream { reply, far, place, _caller: caller }
}

/// A stream before anything was said on it.
async fn begin(caller: &mut Caller, stub: &mut Stub) -> (Reply, Call) {
    let asked = caller.request("GET", whole(""));
    let (reply, far) = tokio::join!(caller.send(asked), async {
        let mut far = stub.call().await;
        assert_eq!(far.seen.head.start, "GET /mcp HTTP/1.1");
        far.begin_events().await;
        far
    });
    assert_eq!(
        (reply.status.as_u16(), reply.header("content-type")),
        (200, Some("text/event-stream"))
    );
    (reply, far)
}

/// What comes next on a stream, up to the end of an event.
async fn event(reply: &mut Reply) -> String {
    let mut text = Vec::new();
    while ![&b"\n\n"[..], b"\r\n\r\n"].iter().any(|end| text.ends_with(end)) {
        text.extend_from_slice(&reply.chunk().await.expect("an event"));
    }
    String::from_utf8(text).expect("UTF-8")
}

/// The message of the next event.
async fn message(reply: &mut Reply) -> Value {
    let text = event(reply).await;
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
    serde_json::from_str(data).expect("JSON")
}

/// Posts something that Lictor answers by itself.
async fn post(caller: &mut Caller, place: &str, body: impl Into<String>) -> Answer {
    let posted = caller.request_to("POST", place, whole(body.into()));
    caller.send(posted).await.whole().await
}

/// Posts something that reaches the upstream as it is, at this target.
async fn taken(caller: &mut Caller, stub: &mut Stub, place: &str, body: &str, target: &str) {
    let posted = caller.request_to("POST", place, whole(body.to_owned()));
    let (reply, ()) = tokio::join!(caller.send(posted), async {
        let mut far = stub.call().await;
        assert_eq!(far.seen.head.start, format!("POST {target} HTTP/1.1"));
        assert_eq!(far.seen.body, body);
        far.send(ACCEPTED).await;
        far.keep();
    });
    let answer = reply.whole().await;
    assert_eq!((answer.status, answer.text().as_str()), (202, ""));
}

const AT: &str = "/messages?sessionId=s-1";

#[tokio::test]
async fn a_client_posts_where_it_is_told_and_hears_on_its_stream() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let mut stream = open(a(&lictor).await, &mut stub, "s-1").await;
    let (place, mut caller) = (stream.place.clone(), a(&lictor).await);
    let initialize = request("initialize", r#"{"protocolVersion":"2024-11-05"}"#);
    taken(&mut caller, &mut stub, &place, &initialize, AT).await;
    let answer = "event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"capabilities\":{}}}\n\n";
    stream.far.chunk(answer).await;
    assert_eq!(event(&mut stream.reply).await, answer);
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    taken(&mut caller, &mut stub, &place, initialized, AT).await;
    // Lists are cut down as everywhere.
    taken(&mut caller, &mut stub, &place, &request("tools/list", "{}"), AT).await;
    let listed = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"wipe"},{"name":"echo"}]}}"#;
    stream.far.chunk(format!("event: message\r\ndata: {listed}\r\n\r\n")).await;
    let cut = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo"}]}}"#;
    assert_eq!(event(&mut stream.reply).await, format!("event: message\r\ndata: {cut}\r\n\r\n"));
    // A question of the server is answered by a post.
    taken(&mut caller, &mut stub, &place, &call("echo", "{}"), AT).await;
    stream.far.chunk("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n").await;
    assert_eq!(message(&mut stream.reply).await["method"], "ping");
    taken(&mut caller, &mut stub, &place, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, AT).await;
    // The stream ends, and with it the place.
    stream.far.end().await;
    assert!(stream.reply.chunk().await.is_none());
    let answer = post(&mut caller, &place, call("echo", "{}")).await;
    assert_eq!((answer.status, answer.kind().as_str()), (404, "unknown_session"));
    let closings = lictor.stop(8).await;
    let told = |method: &str| {
        let entry = closings.iter().find(|entry| entry["method"] == method);
        let entry = entry.unwrap_or_else(|| panic!("{method}"));
        (entry["status"].clone(), entry["http_status"].clone(), entry["server"].clone())
    };
    assert_eq!(told("session/stream"), ("ok".into(), 200.into(), "files".into()));
    assert_eq!(told("tools/call"), ("ok".into(), 202.into(), "files".into()));
    assert_eq!(told("client/response"), ("ok".into(), 202.into(), "files".into()));
}

#[tokio::test]
async fn refusals_come_on_the_stream_and_the_session_lives_on() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let mut stream = open(b(&lictor).await, &mut stub, "s-1").await;
    let (place, mut caller) = (stream.place.clone(), b(&lictor).await);
    let before = stub.requests();
    let modern = r#"{"jsonrpc":"2.0","id":7,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    for (body, code, kind) in [
        (call("wipe", "{}"), 4030, "policy_denied"),
        (call("lookup", "{}"), 4030, "policy_denied"),
        (request("x/vendor", "{}"), -32601, "unknown_method"),
        (request("tools/call", "{}"), -32602, "invalid_params"),
        (modern.to_owned(), -32601, "unknown_method"),
    ] {
        let answer = post(&mut caller, &place, body.as_str()).await;
        assert_eq!((answer.status, answer.text().as_str()), (202, ""), "{body}");
        let told = message(&mut stream.reply).await;
        assert_eq!(told["id"], 7);
        assert_eq!(
            (&told["error"]["code"], &told["error"]["data"]["kind"]),
            (&code.into(), &kind.into())
        );
        assert!(told["error"]["data"]["decisionId"].is_string());
    }
    // Nobody waits for an answer to a notification.
    let roots = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    assert_eq!(post(&mut caller, &place, roots).await.status, 202);
    // Whose id can't be read is told by the status.
    assert_eq!(post(&mut caller, &place, "{").await.status, 400);
    assert_eq!(stub.requests(), before);
    // An upstream that breaks off.
    let posted = caller.request_to("POST", &place, whole(call("echo", "{}")));
    let (reply, _) = tokio::join!(caller.send(posted), async { drop(stub.call().await) });
    assert_eq!(reply.whole().await.status, 202);
    let told = message(&mut stream.reply).await;
    assert_eq!(
        (&told["id"], &told["error"]["data"]["kind"]),
        (&7.into(), &"upstream_failed".into())
    );
    taken(&mut caller, &mut stub, &place, &call("echo", "{}"), AT).await;
    drop((stream.reply, stream._caller));
    stream.far.abandoned().await;
    let closings = lictor.stop(10).await;
    let kinds: Vec<_> =
        closings.iter().map(|entry| entry["status"].as_str().unwrap_or("")).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "policy_denied").count(), 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == "upstream_failed").count(), 1);
}

#[tokio::test]
async fn a_shutdown_waits_for_the_answers_that_a_stream_owes() {
    let mut stub = Stub::scripted().await;
    let mut lictor = lictor(&stub).await;
    let mut owes = open(a(&lictor).await, &mut stub, "s-1").await;
    let mut idle = open(b(&lictor).await, &mut stub, "s-2").await;
    let (mut caller, mut other) = (a(&lictor).await, b(&lictor).await);
    let numbered = |id: u32| call("echo", "{}").replace("\"id\":7", &format!("\"id\":{id}"));
    for id in [1, 2, 3] {
        taken(&mut caller, &mut stub, &owes.place, &numbered(id), AT).await;
    }
    taken(&mut other, &mut stub, &idle.place, &numbered(1), "/messages?sessionId=s-2").await;
    let answer = |id: u32| format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n");
    idle.far.chunk(answer(1)).await;
    assert_eq!(event(&mut idle.reply).await, answer(1));
    // One is answered, one is cancelled.
    owes.far.chunk(answer(1)).await;
    assert_eq!(event(&mut owes.reply).await, answer(1));
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    taken(&mut caller, &mut stub, &owes.place, cancelled, AT).await;
    lictor.terminate().await;
    assert_eq!(idle.reply.chunk().await, None);
    // A question with the id of the answer is no answer.
    let question = "data: {\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}\n\n";
    owes.far.chunk(question).await;
    assert_eq!(event(&mut owes.reply).await, question);
    owes.far.chunk(answer(3)).await;
    assert_eq!(event(&mut owes.reply).await, answer(3));
    assert_eq!(owes.reply.chunk().await, None);
    assert!(lictor.ended().await.success());
    lictor.closings(8).await;
}

#[tokio::test]
async fn what_the_upstream_says_of_a_post_is_relayed() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let stream = open(a(&lictor).await, &mut stub, "s-1").await;
    let mut caller = a(&lictor).await;
    let posted = caller.request_to("POST", &stream.place, whole(call("echo", "{}")));
    let (reply, ()) = tokio::join!(caller.send(posted), async {
        let mut far = stub.call().await;
        far.send("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone").await;
        far.keep();
    });
    let answer = reply.whole().await;
    assert_eq!((answer.status, answer.text().as_str()), (404, "gone"));
    drop(stream);
    lictor.stop(2).await;
}

#[tokio::test]
async fn operators_can_have_statuses() {
    let mut stub = Stub::scripted().await;
    let site = Site::to(&stub.url()).upstream("transport: sse").route("denials: httpStatus");
    let lictor = site.start().await;
    let stream = open(a(&lictor).await, &mut stub, "s-1").await;
    let mut caller = a(&lictor).await;
    let answer = post(&mut caller, &stream.place, call("wipe", "{}")).await;
    assert_eq!((answer.status, answer.kind().as_str()), (403, "policy_denied"));
    drop(stream);
    lictor.stop(2).await;
}

#[tokio::test]
async fn a_place_is_of_use_to_nobody_but_its_owner() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let mut of_a = open(a(&lictor).await, &mut stub, "s-a").await;
    let mut of_b = open(b(&lictor).await, &mut stub, "s-b").await;
    let (mut a, mut b) = (a(&lictor).await, b(&lictor).await);
    let before = stub.requests();
    let guessed = [
        of_a.place.clone(),
        of_a.place.to_uppercase().replace("MCP/MESSAGE", "mcp/message"),
        format!("{}0", of_b.place),
        "/mcp/message/0".to_owned(),
        "/mcp/message/".to_owned(),
        "/mcp/message".to_owned(),
        "/mcp/message/a/b".to_owned(),
    ];
    for place in &guessed {
        for body in [call("echo", "{}").as_str(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "{"] {
            // The connection of who is refused before its body is read ends.
            let answer = post(&mut self::b(&lictor).await, place, body).await;
            assert_eq!(answer.status, 404, "{place} {body}");
        }
    }
    assert_eq!(stub.requests(), before);
    // Equal ids never meet.
    taken(&mut b, &mut stub, &of_b.place, &call("echo", "{}"), "/messages?sessionId=s-b").await;
    taken(&mut a, &mut stub, &of_a.place, &call("echo", "{}"), "/messages?sessionId=s-a").await;
    for (stream, who) in [(&mut of_a, "a"), (&mut of_b, "b")] {
        let result =
            format!("data: {{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"for\":\"{who}\"}}}}\n\n");
        stream.far.chunk(&result).await;
        assert_eq!(event(&mut stream.reply).await, result);
    }
    // The plain listener takes everybody for the same principal.
    let mut plain = site::agent_a(&lictor).await;
    taken(&mut plain, &mut stub, &of_a.place, &call("echo", "{}"), "/messages?sessionId=s-a").await;
    drop((of_a, of_b));
    lictor.stop(2 + guessed.len() * 3 + 3).await;
}

#[tokio::test]
async fn a_place_is_its_owners_where_denials_are_only_recorded() {
    let mut stub = Stub::scripted().await;
    let site = Site::to(&stub.url()).upstream("transport: sse").route("mode: shadow");
    let lictor = site.start().await;
    let stream = open(a(&lictor).await, &mut stub, "s-1").await;
    let (mut own, mut other) = (a(&lictor).await, b(&lictor).await);
    taken(&mut own, &mut stub, &stream.place, &call("wipe", "{}"), AT).await;
    let before = stub.requests();
    assert_eq!(post(&mut other, &stream.place, call("echo", "{}")).await.status, 404);
    assert_eq!(stub.requests(), before);
    drop(stream);
    let closings = lictor.stop(3).await;
    let wipe = closings.iter().find(|entry| entry["target"] == "wipe").expect("an entry");
    assert_eq!((&wipe["mode"], &wipe["would_deny"]), (&"shadow".into(), &"policy_denied".into()));
}

#[tokio::test]
async fn each_path_serves_one_method() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let stream = open(a(&lictor).await, &mut stub, "s-1").await;
    let before = stub.requests();
    for (method, path, allowed) in [
        // What clients of both transports take as a sign to try the older one.
        ("POST", "/mcp", "GET"),
        ("DELETE", "/mcp", "GET"),
        ("GET", stream.place.as_str(), "POST"),
        ("DELETE", stream.place.as_str(), "POST"),
    ] {
        let body = if method == "POST" { request("initialize", "{}") } else { String::new() };
        let mut caller = a(&lictor).await;
        let asked = caller.request_to(method, path, whole(body));
        let answer = caller.send(asked).await.whole().await;
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some(allowed)),
            "{method} {path}"
        );
    }
    assert_eq!(stub.requests(), before);
    drop(stream);
    lictor.stop(5).await;
}

#[tokio::test]
async fn a_refused_question_is_answered_where_the_server_takes_messages() {
    let mut stub = Stub::scripted().await;
    let lictor = lictor(&stub).await;
    let Stream { mut reply, mut far, place: _, _caller } =
        open(a(&lictor).await, &mut stub, "s-1").await;
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
    let log = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
    far.chunk(format!("data: {question}\n\n{log}")).await;
    assert_eq!(event(&mut reply).await, log);
    let mut told = stub.call().await;
    assert_eq!(told.seen.head.start, format!("POST {AT} HTTP/1.1"));
    let error: Value = serde_json::from_slice(&told.seen.body).expect("JSON");
    assert_eq!((&error["id"], &error["error"]["code"]), (&"q".into(), &4030.into()));
    told.send(ACCEPTED).await;
    told.keep();
    far.end().await;
    assert_eq!(reply.chunk().await, None);
    let closings = lictor.stop(2).await;
    let asked = closings.iter().find(|entry| entry["direction"] == "outbound").expect("an entry");
    assert_eq!((&asked["status"], &asked["complete"]), (&"policy_denied".into(), &true.into()));
}

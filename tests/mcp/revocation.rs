//! What operators revoke, by the command that they use: on warm connections, in calls that are under way, in
//! open streams, after a restart and on other replicas.

mod kept;
mod page;

use std::{
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lictor::telemetry::Clock;
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use crate::{
    http::{Answer, Caller, Reply, Wire, whole, within},
    site::{AGENT_B, Site, TLS_B, TOKEN, address, agent_a, agent_b, call, request, send},
    stub::{Call, Stub, chunk, json, result},
    subject::Lictor,
};

/// How long it may take until everybody knows.
const SECOND: Duration = Duration::from_secs(1);

/// Runs `lictor revoke` against a running Lictor.
async fn revoke(lictor: &Lictor, arguments: &[&str]) -> Output {
    let admin = address(&lictor.logs(), "administration listens", None).expect("administration");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.arg("revoke").args(arguments).current_dir(lictor.directory());
    command.args(["--admin", &format!("http://{admin}"), "--token-file", "token"]);
    within("a command", command.output()).await.expect("the binary runs")
}

/// Revokes something; its id.
pub(crate) async fn pull(lictor: &Lictor, kind: &str, value: &str) -> String {
    let output = revoke(lictor, &[kind, value, "--reason", "a test", "--by", "tests"]).await;
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    let (id, rest) =
        told.strip_prefix("revoked ").and_then(|told| told.split_once(": ")).expect(&told);
    assert_eq!(rest, format!("{kind} {value}\n"));
    id.to_owned()
}

async fn lift(lictor: &Lictor, id: &str) {
    let output = revoke(lictor, &["lift", id]).await;
    assert!(output.status.success(), "{output:?}");
}

async fn post(caller: &mut Caller, body: String) -> Answer {
    send(caller, "POST", &[], body).await.whole().await
}

/// Checks that this is how what was revoked is refused.
fn refused(answer: &Answer) {
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["code"]), (200, &4030.into()), "{error}");
    assert_eq!(answer.json()["id"], 7);
    assert_eq!((&*answer.kind(), &error["data"]["retryable"]), ("revoked", &false.into()));
    assert!(!answer.text().contains("a test"), "why is not for callers");
}

/// What the ledger has on revocations: status, target.
async fn recorded(lictor: &Lictor) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let entries = lictor.entries().await;
    let mut told = Vec::new();
    for entry in entries.iter().filter(|entry| entry["kind"] == "revocation") {
        assert_eq!((&entry["reason"], &entry["by"]), (&"a test".into(), &"tests".into()));
        told.push((text(&entry["status"]), text(&entry["target"])));
    }
    told
}

#[tokio::test]
async fn a_warm_connection_is_refused_within_a_second() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut ids = Vec::new();
    for http2 in [false, true] {
        let mut b = Caller::tls(lictor.mutual, &TLS_B, http2).await;
        let mut a = agent_a(&lictor).await;
        assert!(post(&mut b, call("echo", "{}")).await.json()["result"].is_object());
        let id = pull(&lictor, "spiffe", AGENT_B).await;
        let asked = Clock.instant();
        let answer = post(&mut b, call("echo", "{}")).await;
        assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
        refused(&answer);
        assert!(post(&mut a, call("echo", "{}")).await.json()["result"].is_object());
        ids.push(Value::from(id.clone()));
        // The client is of use again without connecting anew.
        lift(&lictor, &id).await;
        assert!(post(&mut b, call("echo", "{}")).await.json()["result"].is_object());
    }
    assert_eq!(stub.requests(), 6);
    let told = |status: &str| (status.to_owned(), AGENT_B.to_owned());
    let expected = ["revoked", "lifted", "revoked", "lifted"].map(told);
    assert_eq!(recorded(&lictor).await, expected);
    let closings = lictor.stop(8).await;
    let denied: Vec<_> = closings.iter().filter(|entry| entry["kind"] == "denied").collect();
    assert_eq!(denied.len(), 2);
    for entry in denied {
        assert_eq!((&entry["stage"], &entry["status"]), (&"revocation".into(), &"revoked".into()));
        assert_eq!((&entry["decision"], &entry["peer"]), (&"deny".into(), &AGENT_B.into()));
        assert!(ids.contains(&entry["revocation"]), "{entry}");
    }
}

#[tokio::test]
async fn what_is_touched_is_refused_and_nothing_else() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url())
        .route("mode: shadow")
        .with("delegation: { mayOriginate: [{ id: 'spiffe://td-one.example.org/*', mode: full }] }")
        .start()
        .await;
    let mut a = agent_a(&lictor).await;
    let tool = pull(&lictor, "tool", "files/echo").await;
    refused(&post(&mut a, call("echo", "{}")).await);
    assert!(post(&mut a, call("lookup", "{}")).await.json()["result"].is_object());
    lift(&lictor, &tool).await;
    pull(&lictor, "user", "u-1").await;
    pull(&lictor, "delegation", "01993f0e-7b5a-7c3e-9a1d-0123456789ab").await;
    assert!(post(&mut a, call("echo", "{}")).await.json()["result"].is_object());
    pull(&lictor, "spiffe", "spiffe://td-one.example.org/*").await;
    refused(&post(&mut a, call("echo", "{}")).await);
    assert_eq!(stub.requests(), 2);
    lictor.stop(4).await;
}

/// A caller with an event stream that has begun, and the upstream's side of it.
async fn streaming(caller: &mut Caller, stub: &mut Stub, body: &str) -> (Reply, Call) {
    let (reply, call) = tokio::join!(send(caller, "POST", &[], body), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    });
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    (reply, call)
}

/// Reads to the well-formed end.
async fn rest_of(reply: &mut Reply) -> String {
    let mut text = Vec::new();
    while let Some(more) = reply.chunk().await {
        text.extend(more);
    }
    String::from_utf8(text).expect("UTF-8")
}

const NEWS: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";

#[tokio::test]
async fn an_open_stream_ends_in_band_and_others_go_on() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let (mut of_a, mut at_a) = streaming(&mut a, &mut stub, &call("echo", "{}")).await;
    let (mut of_b, mut at_b) = streaming(&mut b, &mut stub, &call("echo", "{}")).await;
    at_b.chunk(NEWS).await;
    let first = of_b.chunk().await.expect("an event");
    assert_eq!(first, NEWS.as_bytes());
    pull(&lictor, "spiffe", AGENT_B).await;
    let asked = Clock.instant();
    let rest = rest_of(&mut of_b).await;
    assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
    let data = rest.strip_prefix("event: message\ndata: ").expect(&rest).trim_end();
    let error: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!((&error["id"], &error["error"]["data"]["kind"]), (&7.into(), &"revoked".into()));
    at_b.abandoned().await;
    // Whoever has nothing to do with it notices nothing.
    at_a.chunk(NEWS).await;
    assert_eq!(of_a.chunk().await.expect("an event"), NEWS.as_bytes());
    // The stream of a tool ends with the tool.
    pull(&lictor, "tool", "files/echo").await;
    assert!(rest_of(&mut of_a).await.contains("\"revoked\""));
    at_a.abandoned().await;
    let closings = lictor.stop(2).await;
    for entry in closings {
        assert_eq!((&entry["kind"], &entry["status"]), (&"outcome".into(), &"revoked".into()));
        assert!(entry["revocation"].is_string(), "{entry}");
        assert_eq!((&entry["decision"], &entry["complete"]), (&"permit".into(), &false.into()));
    }
}

/// A caller who doesn't read can't be told, and keeps nothing open.
#[tokio::test]
async fn a_stream_that_nobody_reads_ends_all_the_same() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut wire = Wire::connect_tls(lictor.mutual, &TLS_B).await;
    let body = call("echo", "{}");
    let length = body.len();
    wire.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
    .await;
    let mut upstream = stub.call().await;
    upstream.begin_events().await;
    let event = chunk(format!("data: {}\n\n", "x".repeat(60 << 10)).as_bytes());
    let full = Duration::from_millis(500);
    while timeout(full, upstream.wire.try_send(&event)).await.is_ok() {}
    pull(&lictor, "spiffe", AGENT_B).await;
    let asked = Clock.instant();
    while upstream.wire.try_send(&event).await {}
    assert!(asked.elapsed() < 5 * SECOND, "{:?}", asked.elapsed());
    let closings = lictor.stop(1).await;
    let [entry] = &closings[..] else { panic!("{closings:?}") };
    assert_eq!((&entry["status"], &entry["complete"]), (&"revoked".into(), &false.into()));
    assert!(entry["revocation"].is_string(), "{entry}");
}

/// Nor does a caller keep a long document by taking its time for it.
#[tokio::test]
async fn a_document_that_is_being_read_is_cut() {
    let text = "x".repeat(2 << 20);
    let tool = format!(r#"{{"tools":[{{"name":"echo","description":"{text}"}}]}}"#);
    let stub = Stub::answering(move |seen| json(&result(seen, &tool))).await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut wire = Wire::connect_narrow_tls(lictor.mutual, &TLS_B, b"http/1.1").await;
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let length = body.len();
    wire.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
    .await;
    let head = wire.head().await;
    let length: usize = head.header("content-length").expect("a length").parse().expect("digits");
    pull(&lictor, "spiffe", AGENT_B).await;
    let closed = async {
        while lictor.entries().await.iter().all(|entry| entry["kind"] != "outcome") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(2 * SECOND, closed).await.expect("it is cut at once");
    assert!(wire.rest().await.len() < length);
    let closings = lictor.stop(1).await;
    let [entry] = &closings[..] else { panic!("{closings:?}") };
    assert_eq!((&entry["status"], &entry["complete"]), (&"revoked".into(), &false.into()));
    assert!(entry["revocation"].is_string(), "{entry}");
}

#[tokio::test]
async fn a_call_under_way_ends_with_its_upstreams_side() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    // Nothing is answered; or the head and a part of a document.
    let half = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    for begun in ["", half] {
        let waiting = send(&mut b, "POST", &[], call("echo", "{}"));
        let revoking = async {
            let mut at_b = stub.call().await;
            at_b.send(begun).await;
            let id = pull(&lictor, "spiffe", AGENT_B).await;
            let asked = Clock.instant();
            at_b.abandoned().await;
            assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
            id
        };
        let (reply, id) = tokio::join!(waiting, revoking);
        refused(&reply.whole().await);
        lift(&lictor, &id).await;
    }
    // Nobody else's call ends with it.
    let waiting = send(&mut a, "POST", &[], call("echo", "{}"));
    let revoking = async {
        let at_a = stub.call().await;
        pull(&lictor, "spiffe", AGENT_B).await;
        at_a.answer("{}").await;
    };
    let (reply, ()) = tokio::join!(waiting, revoking);
    assert!(reply.whole().await.json()["result"].is_object());
    let closings = lictor.stop(3).await;
    let statuses: Vec<_> = closings.iter().map(|entry| &entry["status"]).collect();
    assert_eq!(statuses, ["revoked", "revoked", "ok"]);
}

#[tokio::test]
async fn a_session_is_revoked_by_its_id_which_nobody_is_shown() {
    let stub = Stub::answering(|seen| {
        let body = crate::stub::result(seen, "{}");
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nMcp-Session-Id: s-secret\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .into()
    })
    .await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut a = agent_a(&lictor).await;
    assert!(post(&mut a, request("initialize", "{}")).await.json()["result"].is_object());
    let in_session = [("mcp-session-id", "s-secret")];
    let echo = call("echo", "{}");
    let answer = send(&mut a, "POST", &in_session, echo.clone()).await.whole().await;
    assert!(answer.json()["result"].is_object());
    let revoked = ["session", "s-secret", "--reason", "a test", "--by", "tests"];
    let output = revoke(&lictor, &revoked).await;
    assert!(output.status.success(), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("s-secret"));
    refused(&send(&mut a, "POST", &in_session, echo.clone()).await.whole().await);
    // A stream is refused by what clients take for "not offered".
    assert_eq!(send(&mut a, "GET", &in_session, "").await.whole().await.status, 405);
    assert!(post(&mut a, echo).await.json()["result"].is_object());
    let listed = revoke(&lictor, &["list"]).await;
    assert!(!String::from_utf8_lossy(&listed.stdout).contains("s-secret"));
    for (_, target) in recorded(&lictor).await {
        assert!(target.starts_with("sha256:"), "{target}");
    }
    lictor.stop(5).await;
}

#[tokio::test]
async fn the_command_says_what_is_wrong() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).file("other", "a token of somebody else").start().await;
    for (arguments, code, text) in [
        (&["spiffe", "spiffe://td/a*", "--reason", "r"][..], 64, "prefix of IDs that ends in `/*`"),
        (&["tool", "echo", "--reason", "r"], 64, "the upstream's name"),
        (&["tool", "files/echo"], 64, "--reason"),
        (&["tool", "files/echo", "--reason", ""], 64, "`reason` has 1 to 256 bytes"),
        (&["tool", "files/echo", "--reason", "r", "--for", "soon"], 64, "`soon` is no duration"),
        (&["tenant", "acme", "--reason", "r"], 64, "`policy.pathTemplate` has no `{tenant}`"),
        (&["lift", "../metrics"], 64, "is no id"),
        (&["lift", "01993f0e-7b5a-7c3e-9a1d-0123456789ab"], 64, "there is no revocation"),
        (&["list", "--token-file", "nowhere"], 66, "`nowhere` can't be read"),
        (&["list", "--token-file", "other"], 77, "with the token of `admin.tokenFile`"),
        (&["list", "--admin", "http://127.0.0.1:1"], 69, "`127.0.0.1:1` can't be reached"),
        (&["list", "--admin", "127.0.0.1:9440"], 64, "such as `http://127.0.0.1:9440`"),
    ] {
        let defaults = [("--admin", None), ("--token-file", Some("token".to_owned()))];
        let admin = address(&lictor.logs(), "administration listens", None).expect("it listens");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
        command.arg("revoke").args(arguments).current_dir(lictor.directory());
        for (key, value) in defaults {
            if !arguments.contains(&key) {
                command.args([key, &value.unwrap_or_else(|| format!("http://{admin}"))]);
            }
        }
        let output = within("a command", command.output()).await.expect("the binary runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(text), "{arguments:?}: {told}");
    }
    assert!(recorded(&lictor).await.is_empty());
    lictor.stop(0).await;
}

/// What administration says to an operator.
async fn ask(lictor: &Lictor, method: &str, path: &str) -> Value {
    let admin = address(&lictor.logs(), "administration listens", None).expect("administration");
    let mut operator = Caller::plain(admin).await;
    let mut request = operator.request_to(method, path, whole(""));
    let token = format!("Bearer {TOKEN}").parse().expect("a value");
    request.headers_mut().insert("authorization", token);
    operator.send(request).await.whole().await.json()
}

#[tokio::test]
async fn an_operator_closes_the_breaker_of_a_server_that_is_well_again() {
    let failing = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&failing);
    let stub = Stub::answering(move |seen| match fails.load(Ordering::SeqCst) {
        true => b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => json(&result(seen, "{}")),
    })
    .await;
    let lictor = Site::to(&stub.url())
        .upstream("breaker: { failures: 2, open: 60s, maxOpen: 60s }")
        .start()
        .await;
    let mut a = agent_a(&lictor).await;
    for _ in 0..2 {
        assert_eq!(post(&mut a, call("echo", "{}")).await.status, 500);
    }
    assert_eq!(post(&mut a, call("echo", "{}")).await.kind(), "breaker_open");
    let shown = ask(&lictor, "GET", "/upstreams").await;
    let breaker = &shown["upstreams"][0]["breaker"];
    assert_eq!(
        (&shown["upstreams"][0]["name"], &breaker["state"]),
        (&"files".into(), &"open".into())
    );
    assert!(breaker["opensForMs"].as_u64().is_some_and(|rest| rest > 1000), "{shown}");
    assert_eq!(breaker["openings"], 1);
    failing.store(false, Ordering::SeqCst);
    assert!(ask(&lictor, "POST", "/upstreams/others/reset").await["error"].is_string());
    assert_eq!(post(&mut a, call("echo", "{}")).await.kind(), "breaker_open");
    let closed = ask(&lictor, "POST", "/upstreams/files/reset").await;
    assert_eq!(closed["breaker"]["state"], "closed", "{closed}");
    assert!(post(&mut a, call("echo", "{}")).await.json()["result"].is_object());
    lictor.stop(5).await;
}

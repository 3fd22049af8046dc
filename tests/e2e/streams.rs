//! Event streams: every event at once and as it came, silence that doesn't end them, and ends that a
//! client can make sense of.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::{
    CALL,
    http::{Caller, Reply, TRANSPORTS, Transport, whole, within},
    stub::{Call, Stub, json, result},
    subject::{CA, Lictor, Setup, caller_tls},
};

mod crowds;
mod drain;
mod gone;
mod sessions;

const LISTEN: &str = r#"{"jsonrpc":"2.0","id":"l-1","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// Reads until so many bytes are there.
async fn text_of(reply: &mut Reply, length: usize) -> String {
    let mut text = Vec::new();
    while text.len() < length {
        text.extend(reply.chunk().await.expect("more of the stream"));
    }
    String::from_utf8(text).expect("UTF-8")
}

/// Reads to the well-formed end.
async fn rest_of(reply: &mut Reply) -> String {
    let mut text = Vec::new();
    while let Some(more) = reply.chunk().await {
        text.extend(more);
    }
    String::from_utf8(text).expect("UTF-8")
}

/// The JSON-RPC error in the last event of a stream.
fn last_error(text: &str) -> Value {
    assert!(text.ends_with("\n\n"), "the last event isn't finished: {text:?}");
    let last = text.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(!last.contains("id:"), "{last}");
    let data = last.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
    serde_json::from_str(data).expect("JSON")
}

/// A caller with an event stream that has begun, and the upstream's side of it.
async fn streaming(
    lictor: &Lictor,
    stub: &mut Stub,
    transport: Transport,
    body: &str,
) -> (Caller, Reply, Call) {
    let mut caller = lictor.caller(transport).await;
    let (reply, call) = tokio::join!(caller.post(body.to_owned()), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    });
    assert_eq!(
        (reply.status.as_u16(), reply.header("content-type")),
        (200, Some("text/event-stream"))
    );
    (caller, reply, call)
}

#[tokio::test]
async fn every_event_arrives_before_the_next_is_sent() {
    const EVENTS: usize = 20;
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let (_caller, mut reply, mut call) = streaming(&lictor, &mut stub, transport, CALL).await;
        let mut prompt = 0;
        for number in 0..EVENTS {
            let event = format!(
                "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\
                 \"params\":{{\"level\":\"info\",\"data\":{number}}}}}\n\n"
            );
            call.chunk(&event).await;
            // Another process may have the processor for a while, but not each time.
            let arriving = text_of(&mut reply, event.len());
            tokio::pin!(arriving);
            let arrived = match timeout(Duration::from_millis(100), &mut arriving).await {
                Ok(arrived) => {
                    prompt += 1;
                    arrived
                }
                Err(_) => arriving.await,
            };
            assert_eq!(arrived, event);
        }
        assert!(prompt > EVENTS / 2, "{transport:?}: only {prompt} came within 100 ms");
        let last = format!("data: {}\n\n", result(&call.seen, "{}"));
        call.chunk(&last).await;
        call.end().await;
        assert_eq!(rest_of(&mut reply).await, last);
    }
    // The streams ended well, so their connection serves the next call.
    assert_eq!((stub.connections(), stub.requests()), (1, 3));
    for entry in lictor.stop(3).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"ok".into(), &true.into()));
    }
}

#[tokio::test]
async fn the_bytes_of_a_stream_are_not_touched() {
    let stream = [
        ": a comment\n\nretry: 500\nid: 7\nevent: message\n",
        "data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/message\"}\n\n",
        "id: 8\r\nevent: odd\r\ndata:\"no space\"\r\ndata\r\nunknown: field\r\n\r\n",
        ":\n\n\n\r\n",
        "data: 1e400 é 漢 \t 9007199254740993\n\n",
    ]
    .concat();
    // The end of a stream ends no event.
    let cut = "data: never finished";
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        for piece in [1, 7, stream.len()] {
            let (_caller, mut reply, mut call) =
                streaming(&lictor, &mut stub, transport, CALL).await;
            for bytes in [stream.as_str(), cut].concat().as_bytes().chunks(piece) {
                call.chunk(bytes).await;
            }
            call.end().await;
            assert_eq!(rest_of(&mut reply).await, stream, "{transport:?} {piece}");
        }
    }
    lictor.stop(9).await;
}

#[tokio::test]
async fn long_lines_are_no_reason_to_stop() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    for transport in TRANSPORTS {
        // A list is looked at event by event, another answer isn't.
        for call in [CALL, list] {
            for length in [70 << 10, 1_100_000] {
                let (_caller, mut reply, mut call) =
                    streaming(&lictor, &mut stub, transport, call).await;
                let padding = "x".repeat(length);
                let message =
                    result(&call.seen, &format!(r#"{{"tools":[],"padding":"{padding}"}}"#));
                let event = format!("data: {message}\n\n");
                call.chunk(&event).await;
                call.end().await;
                assert!(rest_of(&mut reply).await == event, "{transport:?} {length}");
            }
        }
    }
    lictor.stop(12).await;
}

#[tokio::test]
async fn a_list_beyond_the_limit_ends_with_an_error() {
    let mut stub = Stub::scripted().await;
    let lictor = Setup::to(&stub.url()).with("limits: { answer: 1MiB }").start().await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    for transport in TRANSPORTS {
        let (_caller, mut reply, mut call) = streaming(&lictor, &mut stub, transport, list).await;
        let event = format!("data: {}", "x".repeat(1 << 20));
        let sending = async {
            // Not all of it is taken.
            call.wire.try_send(crate::stub::chunk(event.as_bytes())).await;
        };
        let (text, ()) = tokio::join!(rest_of(&mut reply), sending);
        let error = last_error(&text);
        assert_eq!((&error["id"], &error["error"]["code"]), (&7.into(), &5022.into()));
    }
    for entry in lictor.stop(3).await {
        assert_eq!(entry["status"], "upstream_unreadable");
    }
}

#[tokio::test]
async fn a_listed_stream_is_cut_down_event_by_event() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    for transport in TRANSPORTS {
        let (_caller, mut reply, mut call) = streaming(&lictor, &mut stub, transport, list).await;
        let told =
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
        call.chunk(told).await;
        assert_eq!(text_of(&mut reply, told.len()).await, told);
        let tools = r#"{"tools":[{"name":"wipe"},{"name":"look"}]}"#;
        call.chunk(format!("event: message\ndata: {}\n\n", result(&call.seen, tools))).await;
        call.end().await;
        let text = rest_of(&mut reply).await;
        assert!(text.contains("look") && !text.contains("wipe"), "{text}");
        assert!(text.starts_with("event: message\ndata: "), "{text}");
    }
    lictor.stop(3).await;
}

#[tokio::test]
async fn an_upstream_that_dies_leaves_an_error_for_the_request() {
    let started = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
    let rows = [
        // After a whole event, within one, before any, and with a chunk that is no chunk.
        (started, "", started.len()),
        (started, "data: {\"half", started.len()),
        ("", "", 0),
    ];
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        for (row, (whole, half, length)) in rows.iter().enumerate() {
            let call = CALL.replace(":7", r#":"seven""#);
            let (_caller, mut reply, mut call) =
                streaming(&lictor, &mut stub, transport, &call).await;
            if !whole.is_empty() {
                call.chunk(whole).await;
                assert_eq!(text_of(&mut reply, *length).await, *whole);
            }
            if !half.is_empty() {
                // It is no event, and goes nowhere.
                call.chunk(half).await;
            }
            drop(call);
            let text = rest_of(&mut reply).await;
            assert!(text.starts_with("event: message\n"), "{row}: {text}");
            let error = last_error(&text);
            assert_eq!(error["id"], "seven");
            assert_eq!(error["error"]["data"]["kind"], "upstream_failed");
            assert!(error["error"]["data"]["decisionId"].is_string());
        }
    }
    assert_eq!(stub.requests(), 9);
    for entry in lictor.stop(9).await {
        // The end was well-formed, but it wasn't the upstream's.
        assert_eq!(
            (&entry["status"], &entry["http_status"]),
            (&"upstream_failed".into(), &200.into())
        );
    }
}

#[tokio::test]
async fn a_caller_who_leaves_a_silent_stream_ends_it_upstream() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        // The whole connection goes …
        let (caller, reply, mut call) = streaming(&lictor, &mut stub, transport, CALL).await;
        drop((caller, reply));
        call.abandoned().await;
        // … or only the answer's stream.
        let (caller, reply, mut call) = streaming(&lictor, &mut stub, transport, CALL).await;
        drop(reply);
        call.abandoned().await;
        drop(caller);
    }
    assert_eq!(stub.requests(), 6);
    for entry in lictor.stop(6).await {
        assert_eq!((&entry["status"], &entry["complete"]), (&"client_gone".into(), &false.into()));
    }
}

#[tokio::test]
async fn silence_is_filled_between_events() {
    const KEEP_ALIVE: &str = ": keep-alive\n\n";
    let mut stub = Stub::scripted().await;
    // Shorter than the silence: it isn't meant for streams.
    let timeouts = "timeouts: { idle: 1s, firstByte: 1s }";
    let setup = Setup::to(&stub.url()).upstream(timeouts).listener("timeouts: { keepAlive: 2s }");
    let lictor = setup.start().await;
    let mut streams = Vec::new();
    for transport in TRANSPORTS {
        let (caller, reply, call) = streaming(&lictor, &mut stub, transport, CALL).await;
        let (other, within_event, mut half) = streaming(&lictor, &mut stub, transport, CALL).await;
        // What isn't whole is held, and the caller hears a sign of life all the same.
        half.chunk("data: on").await;
        streams.push((caller, reply, call, other, within_event, half));
    }
    for (_caller, mut reply, mut call, _other, mut within_event, mut half) in streams {
        assert_eq!(text_of(&mut reply, KEEP_ALIVE.len()).await, KEEP_ALIVE);
        let last = format!("data: {}\n\n", result(&call.seen, "{}"));
        call.chunk(&last).await;
        call.end().await;
        let rest = rest_of(&mut reply).await;
        assert_eq!(rest.replace(KEEP_ALIVE, ""), last);
        assert_eq!(text_of(&mut within_event, KEEP_ALIVE.len()).await, KEEP_ALIVE);
        half.chunk(format!("e\n\n{last}")).await;
        half.end().await;
        let rest = rest_of(&mut within_event).await;
        assert_eq!(rest.replace(KEEP_ALIVE, ""), format!("data: one\n\n{last}"));
    }
    lictor.stop(6).await;
}

/// A `subscriptions/listen` that has begun.
async fn listening(
    lictor: &Lictor,
    stub: &mut Stub,
    transport: Transport,
) -> (Caller, Reply, Call) {
    let mut caller = lictor.caller(transport).await;
    let mut request = caller.request("POST", whole(LISTEN));
    let headers = request.headers_mut();
    headers.insert("mcp-protocol-version", "2026-07-28".parse().expect("a value"));
    headers.insert("mcp-method", "subscriptions/listen".parse().expect("a value"));
    let (reply, call) = tokio::join!(caller.send(request), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    });
    (caller, reply, call)
}

/// A session's own stream, or one without a session, that has begun.
async fn getting(lictor: &Lictor, stub: &mut Stub, transport: Transport) -> (Caller, Reply, Call) {
    let mut caller = lictor.caller(transport).await;
    let request = caller.request("GET", whole(""));
    let (reply, call) = tokio::join!(caller.send(request), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call
    });
    (caller, reply, call)
}

#[tokio::test]
async fn a_stream_ends_with_the_identity_of_its_caller() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let brief = CA.svid_for("/caller", 3);
    let config =
        caller_tls().with_client_auth_cert(brief.chain.clone(), brief.key()).expect("a credential");
    let mut streams = Vec::new();
    for http2 in [false, true] {
        let mut caller = Caller::tls(lictor.mutual, &config, http2).await;
        let (reply, call) = tokio::join!(caller.post(CALL), async {
            let mut call = stub.call().await;
            call.begin_events().await;
            call
        });
        streams.push((caller, reply, call));
    }
    for (_caller, mut reply, mut call) in streams {
        let error = last_error(&rest_of(&mut reply).await);
        assert_eq!((&error["id"], &error["error"]["code"]), (&7.into(), &4011.into()));
        call.abandoned().await;
    }
    for entry in lictor.stop(2).await {
        assert_eq!(entry["status"], "identity_expired");
    }
}

#[tokio::test]
async fn a_stream_that_only_listens_ends_with_its_permission() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut streams = Vec::new();
    for transport in TRANSPORTS {
        let modern = listening(&lictor, &mut stub, transport).await;
        streams.push((modern, getting(&lictor, &mut stub, transport).await));
    }
    let (_caller, mut running, call) = streaming(&lictor, &mut stub, Transport::Http1, CALL).await;
    let forbid = r#"
        @id("no-listening")
        @reason("listening is over")
        forbid (principal, action in [
            Action::"subscriptions/listen", Action::"session/stream", Action::"tools/call"
        ], resource);
    "#;
    std::fs::write(lictor.directory().join("policies/more.cedar"), forbid).expect("policies");
    for ((_a, mut modern, mut first), (_b, mut legacy, mut second)) in streams {
        let error = last_error(&rest_of(&mut modern).await);
        let told = (&error["id"], &error["error"]["data"]["kind"]);
        assert_eq!(told, (&"l-1".into(), &"policy_denied".into()));
        assert_eq!(rest_of(&mut legacy).await, "");
        first.abandoned().await;
        second.abandoned().await;
    }
    // What was asked for when it was permitted is answered.
    let last = format!("data: {}\n\n", result(&call.seen, "{}"));
    let mut call = call;
    call.chunk(&last).await;
    call.end().await;
    assert_eq!(rest_of(&mut running).await, last);
    let closed = lictor.stop(7).await;
    let ended = closed.iter().filter(|entry| entry["status"] == "policy_denied");
    assert_eq!(ended.count(), 6);
}

#[tokio::test]
async fn a_stream_that_dies_has_nobody_to_tell_an_error() {
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        let request = caller.request("GET", whole(""));
        let (mut reply, mut call) = tokio::join!(caller.send(request), async {
            let mut call = stub.call().await;
            call.begin_events().await;
            call
        });
        call.chunk(": hello\n\n").await;
        assert_eq!(text_of(&mut reply, 9).await, ": hello\n\n");
        drop(call);
        // No request, so no error message; the client opens the stream again.
        assert_eq!(within("the end", rest_of(&mut reply)).await, "");
    }
    lictor.stop(3).await;
}

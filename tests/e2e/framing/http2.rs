//! HTTP/2 heads that no library would send, written frame by frame.

use super::*;
use crate::http::{Caller, within};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Header fields as literals that are never indexed (RFC 7541 §6.2.2), without Huffman coding.
pub(crate) fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend(text.as_bytes());
        }
    }
    block
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// An answer with an error in its status; the code of the first byte tells (RFC 7541, appendix A).
    Answered { ok: bool },
    /// The stream was reset, or the connection ended.
    Refused,
}

/// Sends one request with a body over a connection of its own.
async fn ask(lictor: &Lictor, fields: &[(&str, &str)], body: &[u8]) -> Outcome {
    ask_in(lictor, fields, &[body]).await
}

/// The same with a frame for each part of the body.
async fn ask_in(lictor: &Lictor, fields: &[(&str, &str)], parts: &[&[u8]]) -> Outcome {
    let mut wire = lictor.wire_http2().await;
    wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    wire.send(frame(SETTINGS, 0, 0, &[])).await;
    wire.send(frame(HEADERS, END_HEADERS, 1, &literals(fields))).await;
    for (at, part) in parts.iter().enumerate() {
        let flags = if at + 1 == parts.len() { END_STREAM } else { 0 };
        wire.try_send(frame(DATA, flags, 1, part)).await;
    }
    let mut outcome = Outcome::Refused;
    loop {
        let Some(head) = wire.try_exactly(9).await else { return Outcome::Refused };
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some(payload) = wire.try_exactly(length).await else { return Outcome::Refused };
        match head[3] {
            // `:status: 200` is entry 8 of the static table, and always the first field.
            HEADERS => outcome = Outcome::Answered { ok: payload[0] == 0x88 },
            RESET | GOAWAY => return Outcome::Refused,
            _ => {}
        }
        // To leave before the end would be on record.
        if matches!(head[3], HEADERS | DATA) && head[4] & END_STREAM != 0 {
            return outcome;
        }
    }
}

pub(crate) const GOOD: [(&str, &str); 5] = [
    (":method", "POST"),
    (":scheme", "https"),
    (":authority", "127.0.0.1"),
    (":path", "/mcp"),
    ("content-type", "application/json"),
];

/// The good head with one field set, or added.
fn with<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut fields = GOOD.to_vec();
    match fields.iter_mut().find(|field| field.0 == name) {
        Some(field) => field.1 = value,
        None => fields.push((name, value)),
    }
    fields
}

fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    GOOD.into_iter().filter(|field| field.0 != name).collect()
}

#[tokio::test]
async fn streams_that_are_reset_at_once_cost_nothing() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    assert_eq!(ask(&lictor, &GOOD, CALL.as_bytes()).await, Outcome::Answered { ok: true });
    let (files, before) = (lictor.descriptors(usize::MAX).await, lictor.resident());
    let mut sent = 0;
    for _ in 0..5 {
        let mut wire = lictor.wire_http2().await;
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        wire.send(frame(SETTINGS, 0, 0, &[])).await;
        for stream in (1..20_000).step_by(2) {
            let mut both = frame(HEADERS, END_HEADERS, stream, &literals(&GOOD));
            both.extend(frame(RESET, 0, stream, &[0, 0, 0, 8]));
            if !wire.try_send(both).await {
                break;
            }
            sent += 1;
        }
    }
    assert!(sent < 5 * 10_000, "nobody minds");
    assert_eq!(ask(&lictor, &GOOD, CALL.as_bytes()).await, Outcome::Answered { ok: true });
    let (left, after) = (lictor.descriptors(files).await, lictor.resident());
    assert!(left <= files && after < before + (8 << 10), "{before} KiB, {after} KiB; {left}");
    assert_eq!(stub.requests(), 2, "nothing of it is forwarded");
    lictor.stop_with(|closings| closings >= 2).await;
}

/// Python's clients end every body so.
#[tokio::test]
async fn the_end_of_a_body_may_come_in_a_frame_of_its_own() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let body = CALL.as_bytes();
    let (first, second) = body.split_at(9);
    let length = body.len().to_string();
    let announced = with("content-length", &length);
    let empty = vec![&b""[..]; 10_000];
    let flood = [&[first], &*empty, &[second]].concat();
    let rows: [&[&[u8]]; 6] = [
        &[body],
        &[body, b""],
        &[first, second, b""],
        &[b"", first, b"", b"", second, b"", b"", b""],
        &[b"", body, b"", b""],
        &flood,
    ];
    let mut passed = 0;
    for parts in rows {
        for fields in [&GOOD[..], &announced] {
            let outcome = ask_in(&lictor, fields, parts).await;
            // How many are too many is for the library to say.
            if parts.len() < 100 {
                assert_eq!(outcome, Outcome::Answered { ok: true }, "{parts:?}");
            }
            passed += usize::from(outcome == Outcome::Answered { ok: true });
        }
    }
    assert!(stub.seen().iter().all(|seen| seen.body == body));
    assert_eq!(stub.requests(), passed);
    // Nor is it another one than was announced.
    for parts in [&[body, b"x"][..], &[first, b""], &[first, second, b"x", b""]] {
        assert_eq!(ask_in(&lictor, &announced, parts).await, Outcome::Refused);
    }
    assert_eq!(stub.requests(), passed);
    lictor.stop_with(|closings| closings >= passed).await;
}

#[tokio::test]
async fn a_body_that_is_given_up_reaches_nobody() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let reset = frame(RESET, 0, 1, &[0, 0, 0, 8]);
    for (read, last) in [(3, Some(reset)), (5, None)] {
        let mut wire = lictor.wire_http2().await;
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        wire.send(frame(SETTINGS, 0, 0, &[])).await;
        wire.send(frame(HEADERS, END_HEADERS, 1, &literals(&GOOD))).await;
        wire.send(frame(DATA, 0, 1, &CALL.as_bytes()[..read])).await;
        let sample = format!("lictor_bodies_in_flight_bytes {read}\n");
        let reading = async {
            loop {
                let mut scraper = Caller::plain(lictor.administration()).await;
                let request = scraper.request_to("GET", "/metrics", whole(""));
                if scraper.send(request).await.whole().await.text().contains(&sample) {
                    return;
                }
            }
        };
        within("a part of a body", reading).await;
        if let Some(last) = last {
            wire.send(last).await;
        }
    }
    assert_eq!(stub.connections(), 0);
    for entry in lictor.stop(2).await {
        assert_eq!(entry["status"], "client_gone");
    }
}

#[tokio::test]
async fn http2_heads_with_two_meanings_reach_nobody() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let mut rows = vec![
        ("no path", without(":path")),
        ("no method", without(":method")),
        ("no scheme", without(":scheme")),
        ("an upper-case name", with("X-Upper", "1")),
        ("a space in a name", with("x a", "1")),
        ("a line end in a value", with("x-split", "1\r\nx-admin: 1")),
        ("a NUL in a value", with("x-null", "a\0b")),
        ("a pseudo-header after a header", {
            let mut fields = GOOD.to_vec();
            fields.rotate_right(1);
            fields
        }),
        ("the path twice", [&GOOD[..], &[(":path", "/admin")]].concat()),
        ("an unknown pseudo-header", [&[(":admin", "1")], &GOOD[..]].concat()),
        ("a method with a space", with(":method", "POST /admin HTTP/1.1\r\n")),
        ("connect", with(":method", "CONNECT")),
    ];
    for name in ["transfer-encoding", "connection", "keep-alive", "upgrade", "proxy-connection"] {
        rows.push((name, with(name, "chunked")));
    }
    rows.push(("te", with("te", "gzip")));
    for length in ["1", "9999", "+5", "0x10", "1e3", "-1", ""] {
        rows.push(("a wrong length", with("content-length", length)));
    }
    for path in [
        "/mcp/../admin",
        "/mcp/%2e%2e/admin",
        "/%6dcp",
        "//mcp",
        "/mcp;a=1",
        "/mcp\\admin",
        "/mcp?tool=wipe",
        "mcp",
        "*",
        "",
        "https://127.0.0.1/mcp",
        "/mcp HTTP/1.1\r\nx: ",
    ] {
        rows.push((path, with(":path", path)));
    }
    let mut served = Vec::new();
    for (name, fields) in &rows {
        if ask(&lictor, fields, CALL.as_bytes()).await == (Outcome::Answered { ok: true }) {
            served.push(name);
        }
    }
    assert!(served.is_empty(), "{served:?}");
    assert_eq!((stub.connections(), stub.requests()), (0, 0));
    // The frames themselves are fine.
    assert_eq!(ask(&lictor, &GOOD, CALL.as_bytes()).await, Outcome::Answered { ok: true });
    let length = CALL.len().to_string();
    let exact = with("content-length", &length);
    assert_eq!(ask(&lictor, &exact, CALL.as_bytes()).await, Outcome::Answered { ok: true });
    assert_eq!(stub.requests(), 2);
    // What the library refuses by itself was never a request.
    let closed = lictor.stop_with(|closings| (2..=rows.len() + 2).contains(&closings)).await;
    assert_eq!(closed.iter().filter(|entry| entry["status"] == "ok").count(), 2);
}

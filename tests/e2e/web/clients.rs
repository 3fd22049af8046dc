//! A client of web APIs as agents use one.

use std::{ffi::OsStr, fmt::Write as _};

use super::*;
use crate::{
    http::find,
    programs::{Output, interpreter, run, tests_path},
};

const CLIENT: &str = "clients/web_httpx.py";

/// An API with pages, redirects, uploads and a stream.
fn answer(seen: &Seen) -> Vec<u8> {
    let host = seen.head.header("host").unwrap_or_default();
    match line(seen) {
        "GET /v1/items?page=1" => {
            let next = format!("Link: <http://{host}/v1/items?page=2>; rel=\"next\"\r\n");
            reply("200 OK", &format!("Content-Type: application/json\r\n{next}"), "[1, 2]")
        }
        "GET /v1/items?page=2" => reply("200 OK", "Content-Type: application/json\r\n", "[3]"),
        "GET /v1/old" => {
            reply("301 Moved Permanently", &format!("Location: http://{host}/v1/new\r\n"), "")
        }
        "GET /v1/away" => reply("302 Found", "Location: https://evil.example/\r\n", ""),
        "GET /v1/new" => reply("200 OK", "", "moved"),
        "POST /v1/items" => reply("201 Created", "Location: /v1/items/4\r\n", ""),
        "PUT /v1/items/4" => {
            let whole = find(&seen.body, b"\r\nthe file\r\n").is_some();
            reply(if whole { "204 No Content" } else { "400 Bad Request" }, "", "")
        }
        "GET /v1/events" => {
            let mut body = String::new();
            for number in 0..100 {
                let _ = write!(body, "data: {number}\n\n");
            }
            reply("200 OK", "Content-Type: text/event-stream\r\n", &body)
        }
        other => reply("404 Not Found", "", other),
    }
}

#[tokio::test]
async fn a_client_of_python_works_as_without_us() {
    let api = Stub::answering(answer).await;
    let site = Setup::to(&base(&api, "/v1")).start().await;
    let url = format!("http://{}/api", site.lictor.plain);
    let script = tests_path(CLIENT);
    let arguments = [script.as_os_str(), OsStr::new(&url)];
    let Output { succeeded, stdout, stderr } = run(interpreter(CLIENT), &arguments).await;
    assert!(succeeded, "{stdout}{stderr}");
    let own = |seen: &Seen| seen.head.header("authorization") == Some("Bearer agents-own");
    assert!(api.seen().iter().all(own));
    site.lictor.stop(stdout.trim().parse().expect("how many requests it made")).await;
}

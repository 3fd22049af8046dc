//! The shims of `examples/shim`, without Lictor: a handle that comes in goes out with what is called for it.

use std::ffi::OsStr;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    http::{Caller, whole},
    programs::{Output, Server, interpreter, listening, run, script, tests_path},
};

/// Two calls are under way at once at each of three relays in a row.
#[tokio::test]
async fn a_handle_goes_along_three_agents_in_a_row() {
    let agent = listening(script("fixtures/a2a_agent.py"), "").await;
    let third = relay("relay_agent.py", &format!("a2a:{}", agent.url)).await;
    let second = relay("relay_agent.py", &format!("a2a:{}", third.url)).await;
    let first = relay("relay.mjs", &format!("{}/", second.url)).await;
    let (one, two) = tokio::join!(headers(&first, "one"), headers(&first, "two"));
    for (handle, seen) in [("one", one), ("two", two)] {
        assert_eq!(seen["tracestate"], format!("lictor={handle},relay=1"));
        assert_eq!(seen["baggage"], format!("lictor={handle},relay=1;kept=yes"));
    }
}

/// By `_meta` of MCP, and as middleware of a web framework.
#[tokio::test]
async fn a_call_without_a_handle_gets_none_from_its_neighbours() {
    let script = tests_path("clients/shim.py");
    let Output { succeeded, stdout, stderr } =
        run(interpreter("shim.py"), &[script.as_ref() as &OsStr]).await;
    assert!(succeeded, "{stderr}");
    let seen: Value = serde_json::from_str(&stdout).expect("a line of JSON");
    let none = json!({ "tracestate": null, "baggage": null });
    let with = |handle: &str, mine: &str| {
        let member = format!("lictor={handle}");
        json!({ "tracestate": format!("{member}{mine}"), "baggage": member })
    };
    assert_eq!(seen["meta"], json!([with("one", ",mine=1"), with("two", ",mine=1"), none]));
    assert_eq!(seen["middleware"], json!([with("one", ""), with("two", ""), none]));
}

async fn relay(name: &str, next: &str) -> Server {
    let mut program = script(&format!("fixtures/{name}"));
    program.env("RELAY_NEXT", next).env("RELAY_TOGETHER", "2");
    listening(program, "").await
}

/// The headers with which a message that came with a handle arrived at the end.
async fn headers(first: &Server, handle: &str) -> Value {
    let address = first.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    let mut caller = Caller::plain(address).await;
    let message = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": { "message": {
            "messageId": handle,
            "role": "ROLE_USER",
            "parts": [{ "text": "headers" }],
        } },
    });
    let mut request = caller.request_to("POST", "/", whole(Bytes::from(message.to_string())));
    let tracestate = format!("theirs=1, lictor={handle}");
    for (name, value) in [("a2a-version", "1.0"), ("tracestate", tracestate.as_str())] {
        request.headers_mut().insert(name, value.parse().expect("a value"));
    }
    let answer = caller.send(request).await.whole().await;
    let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
    answer["result"]["message"]["parts"][0]["data"].clone()
}

//! Lists: each caller sees what some call of theirs could be permitted, and nothing that is kept changes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;

use crate::{
    http::{Answer, Caller, Reply},
    site::{POLICIES, Site, agent_a, agent_b, call, logged, request, send, until_listed},
    stub::{EVENTS, Stub, chunk, json},
};

/// An upstream that answers each method with a result of its own, `{}` by default.
async fn offering(results: &'static [(&'static str, &'static str)]) -> Stub {
    Stub::answering(move |seen| {
        let message: Value = serde_json::from_slice(&seen.body).expect("JSON");
        let named = results.iter().find(|(method, _)| message["method"] == *method);
        json(&message_with(&seen.id(), named.map_or("{}", |(_, result)| result)))
    })
    .await
}

fn message_with(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

async fn ask(caller: &mut Caller, method: &str) -> Answer {
    let answer = send(caller, "POST", &[], request(method, "{}")).await.whole().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

const ALL: &[(&str, &str)] = &[
    ("tools/list", r#"{"tools":[{"name":"echo"},{"name":"lookup"},{"name":"wipe"}]}"#),
    ("prompts/list", r#"{"prompts":[{"name":"secret"},{"name":"greeting"}]}"#),
    ("resources/list", r#"{"resources":[{"uri":"note:///public"},{"uri":"note:///secret"}]}"#),
    ("resources/templates/list", r#"{"resourceTemplates":[{"uriTemplate":"note:///{name}"}]}"#),
];

#[tokio::test]
async fn what_is_not_listed_cannot_be_called_and_what_can_is_listed() {
    let stub = offering(ALL).await;
    let lictor = Site::to(&stub.url()).start().await;
    let of_a = [
        r#"{"tools":[{"name":"echo"},{"name":"lookup"}]}"#,
        r#"{"prompts":[{"name":"greeting"}]}"#,
        r#"{"resources":[{"uri":"note:///public"}]}"#,
        r#"{"resourceTemplates":[{"uriTemplate":"note:///{name}"}]}"#,
    ];
    let of_b = [r#"{"tools":[{"name":"echo"}]}"#, of_a[1], of_a[2], of_a[3]];
    for (mut caller, lists) in [(agent_a(&lictor).await, of_a), (agent_b(&lictor).await, of_b)] {
        for ((method, _), list) in ALL.iter().zip(lists) {
            assert_eq!(ask(&mut caller, method).await.text(), message_with("7", list));
        }
    }
    let before = stub.requests();
    let mut caller = agent_b(&lictor).await;
    let hidden = [
        call("wipe", "{}"),
        call("lookup", "{}"),
        request("prompts/get", r#"{"name":"secret"}"#),
        request("resources/read", r#"{"uri":"note:///secret"}"#),
        request("resources/subscribe", r#"{"uri":"note:///secret"}"#),
        request("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"secret"}}"#),
    ];
    for body in &hidden {
        let answer = send(&mut caller, "POST", &[], body.as_str()).await.whole().await;
        assert_eq!((answer.status, answer.kind().as_str()), (200, "policy_denied"), "{body}");
    }
    assert_eq!(stub.requests(), before);
    let shown = [
        call("echo", "{}"),
        request("prompts/get", r#"{"name":"greeting"}"#),
        request("resources/read", r#"{"uri":"note:///public"}"#),
    ];
    for body in &shown {
        let answer = send(&mut caller, "POST", &[], body.as_str()).await.whole().await;
        assert_eq!(answer.text(), message_with("7", "{}"), "{body}");
    }
    assert_eq!(stub.requests(), before + shown.len());
    lictor.stop(8 + hidden.len() + shown.len()).await;
}

#[tokio::test]
async fn a_rule_on_arguments_hides_no_tool() {
    const RULES: &str = r#"
@id("lists") permit (principal, action in Action::"list", resource);
@id("few")
permit (
  principal == Agent::"spiffe://td-one.example.org/agent-a",
  action == Action::"files/lookup",
  resource
) when { context.input.count < 10 };
@id("not-zero")
forbid (principal, action == Action::"files/lookup", resource)
when { context.input has word && context.input.word == "zero" };
"#;
    const TYPES: &str = r#"
action "files/lookup" in ["tools/call", "read"] appliesTo {
  principal: Agent, resource: Tool,
  context: { input: { count: Long, word?: String } },
};
"#;
    let stub = offering(ALL).await;
    let site = Site::to(&stub.url()).policies(RULES).file("policies/lookup.cedarschema", TYPES);
    let lictor = site.start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let listed = |tools| message_with("7", &format!(r#"{{"tools":[{tools}]}}"#));
    assert_eq!(ask(&mut a, "tools/list").await.text(), listed(r#"{"name":"lookup"}"#));
    assert_eq!(ask(&mut b, "tools/list").await.text(), listed(""));
    let calls = [
        (r#"{"count":5}"#, true),
        (r#"{"count":5,"word":"one"}"#, true),
        (r#"{"count":50}"#, false),
        ("{}", false),
        (r#"{"count":"5"}"#, false),
        (r#"{"count":null}"#, false),
        (r#"{"count":5,"word":"zero"}"#, false),
    ];
    for (arguments, permitted) in calls {
        let before = stub.requests();
        let answer = send(&mut a, "POST", &[], call("lookup", arguments)).await.whole().await;
        assert_eq!(stub.requests() - before, usize::from(permitted), "{arguments}");
        assert_eq!(answer.json().get("error").is_none(), permitted, "{arguments}");
    }
    lictor.stop(2 + calls.len()).await;
}

#[tokio::test]
async fn what_is_kept_is_kept_byte_for_byte() {
    // Each as it comes and as `agent-b` sees it; `§` marks what goes.
    let rows = [
        r#"{"tools":[{"name":"echo"}§,{"name":"wipe"}§]}"#,
        r#"{"tools":[§{"name":"wipe"},§{"name":"echo"}]}"#,
        r#"{"tools":[§{"name":"wipe"}§]}"#,
        r#"{"tools":[§{"name":"wipe"},{"name":"lookup"}§]}"#,
        r#"{"tools":[]}"#,
        "{ \"tools\" : [\n  §{ \"name\" : \"wipe\" },\n  §{ \"name\" : \"echo\" , \"n\" : 1.0e0 }\n ] }",
        r#"{"future":{"a":12345678901234567890123},"tools":[§{"name":"wipe"},§{"name":"echo","outputSchema":{"x":-0.0,"y":1E400},"annotations":{"readOnlyHint":true},"icons":[],"inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}},"futureField":{"a":1}}],"nextCursor":"a=/+é\u00e9","_meta":{"k":9223372036854775807}}"#,
        r#"{"tools":[§{"name":"Echo"},{"name":"echo "},{"name":"\u0065ch\u200bo"},§{"name":"\u0065cho"}]}"#,
        r#"{"tools":[§{"title":"echo"},{"name":7},{"name":null},"echo",null,§{"name":"echo","x":[{"name":"wipe"}]}]}"#,
        r#"{"t\u006fols":[§{"n\u0061me":"wipe"},§{"n\u0061me":"echo"}]}"#,
        r#"{"tools":[{"name":"echo"},{"name":"echo","title":"again"}§,{"name":"wipe"}§]}"#,
    ];
    let (asked, results) = (Arc::new(AtomicUsize::new(0)), rows.map(|row| row.replace('§', "")));
    let stub = Stub::answering(move |seen| {
        let at = asked.fetch_add(1, Ordering::SeqCst);
        json(&message_with(&seen.id(), &results[at]))
    })
    .await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_b(&lictor).await;
    for row in rows {
        let kept: String = row.split('§').step_by(2).collect();
        let answer = ask(&mut caller, "tools/list").await;
        assert_eq!(answer.text(), message_with("7", &kept));
        assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
    }
    lictor.stop(rows.len()).await;
}

#[tokio::test]
async fn an_answer_that_is_no_list_passes() {
    let rows = [
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"tools","data":{"tools":[{"name":"wipe"}]}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"structuredContent":{"n":12345678901234567890123,"f":1.0},"isError":true,"resultType":"complete","futureField":{"a":1}}}"#,
    ];
    let asked = AtomicUsize::new(0);
    let stub =
        Stub::answering(move |_| json(rows[asked.fetch_add(1, Ordering::SeqCst) % rows.len()]))
            .await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_b(&lictor).await;
    for body in [request("tools/list", "{}"), call("echo", "{}")] {
        for row in rows {
            let answer = send(&mut caller, "POST", &[], body.as_str()).await.whole().await;
            assert_eq!(answer.text(), row);
        }
    }
    lictor.stop(4).await;
}

#[tokio::test]
async fn a_cut_list_is_nobody_elses() {
    const META: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;
    let scopes = [
        (
            r#""cacheScope":"public","ttlMs":1,"tools":[{"name":"echo"}]"#,
            r#""cacheScope":"private","ttlMs":1,"tools":[{"name":"echo"}]"#,
        ),
        (
            r#""tools":[{"name":"wipe"},{"name":"echo"}],"cacheScope": "public""#,
            r#""tools":[{"name":"echo"}],"cacheScope": "private""#,
        ),
        (r#""cacheScope":"private","tools":[]"#, r#""cacheScope":"private","tools":[]"#),
        (r#""cacheScope":null,"tools":[]"#, r#""cacheScope":"private","tools":[]"#),
    ];
    let asked = AtomicUsize::new(0);
    let stub = Stub::answering(move |seen| {
        let (sent, _) = scopes[asked.fetch_add(1, Ordering::SeqCst)];
        json(&message_with(&seen.id(), &format!(r#"{{"resultType":"complete",{sent}}}"#)))
    })
    .await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_b(&lictor).await;
    for (_, seen) in scopes {
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
        let answer = send(&mut caller, "POST", &headers, request("tools/list", META)).await.whole();
        let expected = message_with("7", &format!(r#"{{"resultType":"complete",{seen}}}"#));
        assert_eq!(answer.await.text(), expected);
    }
    lictor.stop(scopes.len()).await;
}

#[tokio::test]
async fn each_caller_has_a_list_of_their_own_and_a_change_of_policy_shows() {
    let stub = offering(ALL).await;
    let lictor = Site::to(&stub.url()).start().await;
    let (mut a, mut b) = (agent_a(&lictor).await, agent_b(&lictor).await);
    let listed = |tools| message_with("7", &format!(r#"{{"tools":[{tools}]}}"#));
    let (one, two) = (r#"{"name":"echo"}"#, r#"{"name":"echo"},{"name":"lookup"}"#);
    for _ in 0..3 {
        assert_eq!(ask(&mut a, "tools/list").await.text(), listed(two));
        assert_eq!(ask(&mut b, "tools/list").await.text(), listed(one));
    }
    assert_eq!(stub.requests(), 6);
    let more = "@id(\"all\") permit (principal, action, resource == Tool::\"files/lookup\");";
    std::fs::write(lictor.directory().join("policies/more.cedar"), more).expect("a file");
    logged(&lictor, "policies reloaded").await;
    assert_eq!(ask(&mut b, "tools/list").await.text(), listed(two));
    let less = format!(
        "{POLICIES}@id(\"no-echo\") forbid (principal, action, resource == Tool::\"files/echo\");"
    );
    std::fs::write(lictor.directory().join("policies/all.cedar"), less).expect("a file");
    let asked = 7 + until_listed(&mut a, &listed(r#"{"name":"lookup"}"#)).await;
    assert_eq!(ask(&mut b, "tools/list").await.text(), listed(r#"{"name":"lookup"}"#));
    assert_eq!(stub.requests(), asked + 1);
    lictor.stop(asked + 1).await;
}

#[tokio::test]
async fn pages_and_cursors_arrive_as_they_are() {
    let cursors = ["", "a=/+", "é\u{1f600}", r"\u00e9\n\/", "last"];
    // 6 pages of 8 tools; `echo` is on the fourth, `lookup` on the sixth.
    let page = |number: usize| {
        let tool = |at| match (number, at) {
            (3, 5) => r#"{"name":"echo"}"#.to_owned(),
            (5, 0) => r#"{"name":"lookup"}"#.to_owned(),
            _ => format!(r#"{{"name":"t-{number}-{at}"}}"#),
        };
        (0..8).map(tool).collect::<Vec<_>>().join(",")
    };
    let end = |number: usize| match cursors.get(number) {
        Some(cursor) => format!(r#","nextCursor":"{cursor}""#),
        None => String::new(),
    };
    let pages: Vec<_> =
        (0..6).map(|at| format!(r#"{{"tools":[{}]{}}}"#, page(at), end(at))).collect();
    let asked = AtomicUsize::new(0);
    let stub = Stub::answering(move |seen| {
        json(&message_with(&seen.id(), &pages[asked.fetch_add(1, Ordering::SeqCst)]))
    })
    .await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let mut sent = Vec::new();
    for at in 0..6 {
        let params = match at {
            0 => "{}".to_owned(),
            at => format!(r#"{{"cursor":"{}"}}"#, cursors[at - 1]),
        };
        let body = request("tools/list", &params);
        let answer = send(&mut caller, "POST", &[], body.as_str()).await.whole().await;
        sent.push(body);
        let kept = match at {
            3 => r#"{"name":"echo"}"#,
            5 => r#"{"name":"lookup"}"#,
            _ => "",
        };
        let expected = message_with("7", &format!(r#"{{"tools":[{kept}]{}}}"#, end(at)));
        assert_eq!(answer.text(), expected);
    }
    let seen: Vec<_> = stub.seen().iter().map(|seen| seen.body.clone()).collect();
    assert_eq!(seen, sent);
    lictor.stop(6).await;
}

#[tokio::test]
async fn a_thousand_tools_are_cut_down_to_what_may_be_called() {
    let tools: Vec<_> = (0..1000)
        .map(|at| match at {
            500 => r#"{"name":"echo","n":1e0}"#.to_owned(),
            999 => r#"{"name":"lookup"}"#.to_owned(),
            _ => format!(r#"{{"name":"tool-{at}","description":"{}"}}"#, "x".repeat(200)),
        })
        .collect();
    let list = format!(r#"{{"tools":[{}]}}"#, tools.join(","));
    let stub = Stub::answering(move |seen| json(&message_with(&seen.id(), &list))).await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_a(&lictor).await;
    let kept = r#"{"tools":[{"name":"echo","n":1e0},{"name":"lookup"}]}"#;
    for _ in 0..3 {
        assert_eq!(ask(&mut caller, "tools/list").await.text(), message_with("7", kept));
    }
    lictor.stop(3).await;
}

/// An event stream that ends by itself, in the pieces given.
async fn streaming(pieces: &'static [&'static str]) -> Stub {
    Stub::answering(move |_| {
        let mut answer = EVENTS.as_bytes().to_vec();
        for piece in pieces {
            answer.extend_from_slice(&chunk(piece.as_bytes()));
        }
        answer.extend_from_slice(b"0\r\n\r\n");
        answer
    })
    .await
}

#[tokio::test]
async fn a_list_in_a_stream_is_cut_and_other_events_are_not_touched() {
    const BEFORE: &str = "retry: 500\r\nid: 7\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\r\ndata: \"params\":{\"level\":\"info\",\"data\":1.0e0}}\r\n\r\n: comment\r\n\r\nid: 8\r\ndata:\r\n\r\n";
    const HALF: &str = "event: message\r\nid: 9\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"tools\":[{\"name\":\"wi";
    const REST: &str = "pe\"},{\"name\":\"echo\",\"n\":1.0e0}]}}\r\n\r\n: bye\n\n";
    let stub = streaming(&[BEFORE, HALF, REST]).await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = agent_b(&lictor).await;
    let answer = ask(&mut caller, "tools/list").await;
    let (event, bye) = answer
        .text()
        .strip_prefix(BEFORE)
        .expect("untouched")
        .split_once(": bye")
        .map(|(event, bye)| (event.to_owned(), bye.to_owned()))
        .expect("an end");
    assert_eq!(bye, "\n\n");
    let lines: Vec<_> = event.lines().collect();
    assert_eq!(lines[..2], ["event: message", "id: 9"]);
    assert_eq!(
        lines[2],
        r#"data: {"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo","n":1.0e0}]}}"#
    );
    // The same for the same list in one document.
    let stub =
        offering(&[("tools/list", r#"{"tools":[{"name":"wipe"},{"name":"echo","n":1.0e0}]}"#)])
            .await;
    let documents = Site::to(&stub.url()).start().await;
    let document = ask(&mut agent_b(&documents).await, "tools/list").await;
    assert_eq!(lines[2].strip_prefix("data: "), Some(&*document.text()));
    lictor.stop(1).await;
    documents.stop(1).await;
}

#[tokio::test]
async fn a_list_that_nobody_can_read_does_not_leave_the_stream() {
    let stub = streaming(&[
        ": first\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"tools\":[{\"name\":\"wipe\"}],\"tools\":[]}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n",
    ])
    .await;
    let lictor = Site::to(&stub.url()).start().await;
    let answer = ask(&mut agent_b(&lictor).await, "tools/list").await.text();
    // The error stands in its place, and the stream goes on.
    let error = answer.strip_prefix(": first\n\ndata: ").expect("one event");
    let (error, rest) = error.split_once("\n\n").expect("another event");
    assert_eq!(rest, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    let error: Value = serde_json::from_str(error).expect("JSON");
    assert_eq!((&error["id"], &error["error"]["code"]), (&7.into(), &5022.into()));
    let closing = lictor.stop(1).await.remove(0);
    assert_eq!(closing["status"], "upstream_unreadable");
}

#[tokio::test]
async fn a_sessions_stream_can_bring_lists_and_news() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut opener = agent_b(&lictor).await;
    let (opened, ()) = tokio::join!(
        send(&mut opener, "POST", &[], request("initialize", "{}")),
        async {
            let mut call = stub.call().await;
            let body = message_with("7", "{}");
            call.send(format!("HTTP/1.1 200 OK\r\nMcp-Session-Id: s-b\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
            call.keep();
        }
    );
    opened.whole().await;
    let session = [("mcp-session-id", "s-b"), ("last-event-id", "41")];
    let mut listener = agent_b(&lictor).await;
    let (mut stream, mut upstream) =
        tokio::join!(send(&mut listener, "GET", &session, ""), async {
            let mut call = stub.call().await;
            call.begin_events().await;
            call
        });
    assert_eq!(upstream.seen.head.header("last-event-id"), Some("41"));
    for (sent, shown) in [
        ("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n", None),
        (
            "id: 42\ndata: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"tools\":[{\"name\":\"wipe\"},{\"name\":\"echo\"}]}}\n\n",
            Some(
                "id: 42\ndata: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"tools\":[{\"name\":\"echo\"}]}}\n\n",
            ),
        ),
        (
            "data: {\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"prompts\":[{\"name\":\"secret\"}]}}\n\n",
            Some("data: {\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"prompts\":[]}}\n\n"),
        ),
        (
            "data: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"resources\":[{\"uri\":\"note:///secret\"}]}}\n\n",
            Some("data: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"resources\":[]}}\n\n"),
        ),
    ] {
        upstream.chunk(sent).await;
        let shown = shown.unwrap_or(sent);
        assert_eq!(exactly(&mut stream, shown.len()).await, shown);
    }
    upstream.end().await;
    assert_eq!(stream.chunk().await, None);
    lictor.stop(2).await;
}

async fn exactly(reply: &mut Reply, length: usize) -> String {
    let mut text = Vec::new();
    while text.len() < length {
        text.extend_from_slice(&reply.chunk().await.expect("more"));
    }
    String::from_utf8(text).expect("UTF-8")
}

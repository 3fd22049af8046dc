//! What an agent hears, and what it doesn't.

use super::*;

#[tokio::test]
async fn both_bindings_and_versions_reach_the_agent_as_they_came() {
    let agent = Stub::answering(|seen| match id(seen) {
        Value::Null => stub::json("{}"),
        id => stub::json(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }).to_string()),
    })
    .await;
    let lictor = in_front_of(&agent).await;
    let v03 = rpc(1, "message/send", message(json!({}))).to_string();
    let v10 = rpc(
        2,
        "SendMessage",
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hello" }] } }),
    )
    .to_string();
    let body = message(json!({})).to_string();
    let list = rpc(3, "ListTasks", json!({ "tenant": "acme" })).to_string();
    let extensions = ("A2A-Extensions", "https://example.org/ext/1");
    type Row<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, &'a str, &'a str);
    let rows: Vec<Row<'_>> = vec![
        ("POST", "", vec![], &v03, "/mcp"),
        ("POST", "/", vec![("X-A2A-Extensions", "https://example.org/ext/1")], &v03, "/mcp"),
        ("POST", "", vec![("A2A-Version", "1.0"), extensions], &v10, "/mcp"),
        ("POST", "", vec![("A2A-Version", "1.0.1")], &list, "/mcp"),
        ("POST", "/message:send", vec![("A2A-Version", "1.0")], &body, "/mcp/message%3Asend"),
        ("POST", "/v1/message:send", vec![], &body, "/mcp/v1/message%3Asend"),
        ("GET", "/tasks?pageSize=10", vec![("A2A-Version", "1.0")], "", "/mcp/tasks?pageSize=10"),
    ];
    for transport in TRANSPORTS {
        let mut caller = lictor.caller(transport).await;
        for (method, below, headers, body, _) in &rows {
            let reply = caller.send(ask(&caller, method, below, headers, body)).await.whole().await;
            assert_eq!(
                reply.status,
                200,
                "{method} {below}: {}",
                String::from_utf8_lossy(&reply.body)
            );
        }
    }
    let seen = agent.seen();
    assert_eq!(seen.len(), rows.len() * TRANSPORTS.len());
    for (seen, (method, below, headers, body, target)) in seen.iter().zip(rows.iter().cycle()) {
        assert_eq!(seen.body, body.as_bytes(), "{below}");
        let (start, _) = seen.head.start.rsplit_once(' ').expect("a version");
        let decoded = start.replace("%3A", ":");
        assert_eq!(decoded, format!("{method} {}", target.replace("%3A", ":")), "{below}");
        for (name, value) in headers {
            assert_eq!(
                seen.head.headers.get(*name).map(|value| value.as_bytes()),
                Some(value.as_bytes())
            );
        }
        if !headers.iter().any(|(name, _)| *name == "A2A-Version") {
            assert!(!seen.head.headers.contains_key("a2a-version"), "{below}");
        }
    }
    let closings = lictor.stop(rows.len() * TRANSPORTS.len()).await;
    assert!(closings.iter().all(|entry| entry["protocol"] == "a2a" && entry["status"] == "ok"));
    assert_eq!(closings[0]["method"], "message/send");
    assert_eq!(closings[0]["era"], "0.3");
    assert_eq!(closings[0]["class"], "execute");
    assert_eq!(closings[2]["era"], "1.0");
}

/// Body, status, code.
fn garbled() -> Vec<(Vec<u8>, u16, i64)> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (text(r#"{"id":1,"method":"tasks/get","params":{"id":"t"}}"#), 200, -32600),
        (
            text(r#"{"jsonrpc":"2.0","id":{},"method":"tasks/get","params":{"id":"t"}}"#),
            400,
            -32600,
        ),
        (text(r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":"x"}"#), 200, -32602),
        (text(r#"{"jsonrpc":"2.0","id":1,"method":5}"#), 200, -32600),
        (text("{"), 400, -32700),
        (text(""), 400, -32700),
        (
            [b"\xef\xbb\xbf", rpc(1, "tasks/get", json!({ "id": "t" })).to_string().as_bytes()]
                .concat(),
            400,
            -32700,
        ),
        // Agents run what has no id.
        (text(r#"{"jsonrpc":"2.0","method":"tasks/cancel","params":{"id":"t"}}"#), 400, -32600),
        (
            text(r#"{"jsonrpc":"2.0","id":null,"method":"tasks/cancel","params":{"id":"t"}}"#),
            400,
            -32600,
        ),
        (
            text(r#"[{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t"}}]"#),
            400,
            -32600,
        ),
        (
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","method":"tasks/cancel","params":{"id":"t"}}"#,
            ),
            400,
            -32600,
        ),
        (text(r#"{"jsonrpc":"2.0","id":1,"method":"sendmessage","params":{}}"#), 200, -32601),
        (text(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#), 200, -32601),
        (
            rpc(1, "message/send", message(json!({ "taskId": "a", "task_id": "b" })))
                .to_string()
                .into_bytes(),
            200,
            -32600,
        ),
        (
            rpc(1, "message/send", message(json!({ "TaskId": "a" }))).to_string().into_bytes(),
            200,
            -32600,
        ),
    ]
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_never_reaches_the_agent() {
    let agent = Stub::json().await;
    let lictor = in_front_of(&agent).await;
    let rows = garbled();
    for (body, status, code) in &rows {
        let mut caller = lictor.caller(Transport::Http1).await;
        let request = caller.request_to("POST", "/agent", whole(body.clone()));
        let answer = caller.send(request).await.whole().await;
        let told = answer.json();
        let shown = String::from_utf8_lossy(body);
        assert_eq!(
            (answer.status, told["error"]["code"].as_i64()),
            (*status, Some(*code)),
            "{shown}: {told}"
        );
        assert_eq!(told["error"]["data"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    }
    let paths = [
        ("GET", "/tasks/../admin", 400),
        ("GET", "/tasks/%2e%2e/admin", 400),
        ("GET", "/tasks/a%2fb", 400),
        ("GET", "/tasks/a%252fb", 400),
        ("GET", "//tasks/a", 400),
        ("GET", "/tasks;x/a", 400),
        ("GET", "/tasks/a/other", 404),
        ("GET", "/nothing", 404),
        ("PUT", "/tasks/a", 405),
        ("GET", "/tasks?pageSize=1&page_size=2", 400),
        ("GET", "/tasks?unknown=1", 400),
    ];
    for (method, below, status) in paths {
        let mut caller = lictor.caller(Transport::Http1).await;
        let answer = caller.send(ask(&caller, method, below, &[], "")).await.whole().await;
        let told = answer.json();
        assert_eq!(answer.status, status, "{method} {below}: {told}");
        assert_eq!(told["error"]["code"], status, "{method} {below}");
        assert!(told["error"]["status"].is_string(), "{told}");
    }
    assert_eq!(agent.requests(), 0);
    lictor.stop(rows.len() + paths.len()).await;
}

#[tokio::test]
async fn a_refused_operation_is_told_in_the_words_of_its_binding() {
    let agent = Stub::json().await;
    let lictor = Setup::to(&agent.url())
        .also("path: /agent, protocol: a2a")
        .policy(
            r#"@id("no-cancel") @reason("cancelling is not permitted")
            forbid (principal, action == Action::"CancelTask", resource);
            @id("no-sending") forbid (principal, action in [Action::"SendMessage", Action::"SendStreamingMessage"], resource);"#,
        )
        .start()
        .await;
    let mut caller = lictor.caller(Transport::Http1).await;
    for (id, method) in
        [(json!(7), "message/send"), (json!("a"), "SendMessage"), (json!(8), "message/stream")]
    {
        let told = posted(&mut caller, &rpc(id.clone(), method, message(json!({})))).await;
        let body = told.json();
        assert_eq!(
            (told.status, &body["error"]["code"], &body["id"]),
            (200, &json!(4030), &id),
            "{body}"
        );
        let detail = &body["error"]["data"][0];
        assert_eq!(
            (&detail["reason"], &detail["domain"]),
            (&json!("POLICY_DENIED"), &json!("lictor"))
        );
        assert_eq!(detail["metadata"]["retryable"], "false");
        assert_eq!(told.header("content-type"), Some("application/json"));
    }
    let rest = message(json!({})).to_string();
    let told =
        caller.send(ask(&caller, "POST", "/v1/message:send", &[], &rest)).await.whole().await;
    let body = told.json();
    assert_eq!(
        (told.status, &body["error"]["status"]),
        (403, &json!("PERMISSION_DENIED")),
        "{body}"
    );
    assert_eq!(body["error"]["details"][0]["metadata"]["kind"], "policy_denied");
    assert_eq!(agent.requests(), 0);
    let closings = lictor.stop(4).await;
    assert!(closings.iter().all(|entry| entry["status"] == "policy_denied"), "{closings:?}");
}

#[tokio::test]
async fn messages_of_no_known_form_are_refused_where_forms_are_asked_for() {
    let agent = Stub::json().await;
    let setup = Setup::to(&agent.url()).also("path: /agent, protocol: a2a, messageForms: true");
    let lictor = setup.start().await;
    let mut caller = lictor.caller(Transport::Http1).await;
    let with = |form: Value, data: &str| {
        rpc(
            1,
            "message/send",
            message(json!({
                "metadata": { "form": form },
                "parts": [{ "kind": "text", "text": "t" }, { "kind": "data", "data": { "type": data } }],
            })),
        )
    };
    let spawned = |form: &str, spawned: Value| {
        let mut call = with(json!(form), &format!("hub.{form}"));
        call["params"]["message"]["metadata"]["spawned"] = spawned;
        call
    };
    let rows = [
        (with(json!("claim"), "hub.claim"), true),
        (spawned("delegate", json!(true)), true),
        (spawned("delegate", json!("yes")), false),
        (spawned("claim", json!(true)), false),
        (with(json!("claim"), "hub.review"), false),
        (with(json!("whatever"), "hub.whatever"), false),
        (with(json!(7), "hub.claim"), false),
    ];
    for (call, fine) in &rows {
        let answer = posted(&mut caller, call).await.json();
        assert_eq!(answer["error"].is_null(), *fine, "{call}: {answer}");
    }
    assert_eq!(agent.requests(), 2);
    lictor.stop(rows.len()).await;
}

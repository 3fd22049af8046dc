//! Whose tasks and conversations are whose.

use super::*;

/// An agent that makes task `t-<n>` in the conversation that the message names, or a new one.
async fn agent() -> Stub {
    Stub::answering(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        let message = &body["params"]["message"];
        let name = |key: &str| message[key].as_str().map(str::to_owned);
        match body["method"].as_str() {
            Some("message/send") => {
                let task_id = name("taskId").unwrap_or_else(|| format!("t-{}", id(seen)));
                task(seen, &task_id, &name("contextId").unwrap_or_else(|| "c-1".into()))
            }
            Some("ListTasks") => {
                let all = ["t-1", "t-2", "t-3"].map(|id| json!({ "id": id, "contextId": "c-1" }));
                let result =
                    json!({ "tasks": all, "totalSize": 3, "pageSize": 50, "nextPageToken": "" });
                stub::json(
                    &json!({ "jsonrpc": "2.0", "id": id(seen), "result": result }).to_string(),
                )
            }
            _ => task(seen, body["params"]["id"].as_str().unwrap_or("?"), "c-1"),
        }
    })
    .await
}

#[tokio::test]
async fn nobody_else_finds_a_task() {
    let agent = agent().await;
    let lictor = in_front_of(&agent).await;
    let mut owner = lictor.caller(Transport::Http1Tls).await;
    let made = posted(&mut owner, &rpc(1, "message/send", message(json!({})))).await.json();
    assert_eq!(made["result"]["id"], "t-1", "{made}");

    let naming = [
        rpc(2, "tasks/get", json!({ "id": "t-1" })),
        rpc(2, "GetTask", json!({ "id": "t-1" })),
        rpc(2, "tasks/cancel", json!({ "id": "t-1" })),
        rpc(2, "tasks/resubscribe", json!({ "id": "t-1" })),
        rpc(2, "tasks/pushNotificationConfig/list", json!({ "id": "t-1" })),
        rpc(
            2,
            "tasks/pushNotificationConfig/get",
            json!({ "id": "t-1", "pushNotificationConfigId": "p" }),
        ),
        rpc(
            2,
            "tasks/pushNotificationConfig/delete",
            json!({ "id": "t-1", "pushNotificationConfigId": "p" }),
        ),
        rpc(2, "message/send", message(json!({ "taskId": "t-1" }))),
        rpc(2, "message/send", message(json!({ "task_id": "t-1" }))),
        rpc(2, "message/send", message(json!({ "referenceTaskIds": ["t-1"] }))),
        rpc(2, "message/send", message(json!({ "contextId": "c-1" }))),
        // There is no such task, which looks just the same.
        rpc(2, "tasks/get", json!({ "id": "t-9" })),
    ];
    let before = agent.requests();
    let mut other = stranger(&lictor).await;
    for call in &naming {
        let told = posted(&mut other, call).await;
        let body = told.json();
        assert_eq!((told.status, &body["error"]["code"]), (200, &json!(-32001)), "{call}: {body}");
        assert_eq!(body["error"]["data"][0]["reason"], "TASK_NOT_FOUND");
    }
    for (method, below) in [
        ("GET", "/v1/tasks/t-1"),
        ("GET", "/tasks/t%2d1"),
        ("POST", "/tasks/t-1:subscribe"),
        ("GET", "/tasks/t-1%3Asubscribe"),
        ("POST", "/tasks/t-1:cancel"),
    ] {
        let told = other.send(ask(&other, method, below, &[], "")).await.whole().await;
        assert_eq!(told.status, 404, "{below}: {}", told.json());
        assert_eq!(told.json()["error"]["details"][0]["reason"], "TASK_NOT_FOUND");
    }
    assert_eq!(agent.requests(), before);

    // The owner goes on, by any of the names.
    for call in naming.iter().take(3).chain(naming.iter().skip(7).take(4)) {
        let answer = posted(&mut owner, call).await.json();
        assert!(answer["result"].is_object(), "{call}: {answer}");
    }
    lictor.stop(1 + naming.len() + 5 + 7).await;
}

#[tokio::test]
async fn a_list_shows_a_callers_own_tasks() {
    let agent = agent().await;
    let lictor = in_front_of(&agent).await;
    let mut owner = lictor.caller(Transport::Http1Tls).await;
    posted(&mut owner, &rpc(1, "message/send", message(json!({})))).await;
    posted(&mut owner, &rpc(3, "message/send", message(json!({})))).await;
    let list = rpc(9, "ListTasks", json!({}));
    let shown = posted(&mut owner, &list).await.json();
    let ids: Vec<_> = shown["result"]["tasks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|task| &task["id"])
        .collect();
    assert_eq!(ids, ["t-1", "t-3"]);
    let mut other = stranger(&lictor).await;
    let shown = posted(&mut other, &list).await.json();
    assert_eq!(shown["result"]["tasks"], json!([]));
    assert_ne!(shown["result"]["totalSize"], json!(3), "how many others have is theirs to know");
    lictor.stop(4).await;
}

#[tokio::test]
async fn whoever_names_a_conversation_first_has_it() {
    let agent = agent().await;
    let lictor = in_front_of(&agent).await;
    let mut first = lictor.caller(Transport::Http1Tls).await;
    let mine = |id: u64| rpc(id, "message/send", message(json!({ "contextId": "mine" })));
    assert!(posted(&mut first, &mine(1)).await.json()["result"].is_object());
    let mut other = stranger(&lictor).await;
    assert_eq!(posted(&mut other, &mine(2)).await.json()["error"]["code"], -32001);
    assert!(posted(&mut first, &mine(3)).await.json()["result"].is_object());
    lictor.stop(3).await;
}

#[tokio::test]
async fn an_agent_cant_hand_out_what_is_anothers() {
    let agent = Stub::answering(|seen| task(seen, "t-1", "c-1")).await;
    let lictor = in_front_of(&agent).await;
    let mut owner = lictor.caller(Transport::Http1Tls).await;
    assert!(
        posted(&mut owner, &rpc(1, "message/send", message(json!({})))).await.json()["result"]
            .is_object()
    );
    let mut other = stranger(&lictor).await;
    let told = posted(&mut other, &rpc(2, "message/send", message(json!({})))).await;
    assert_eq!((told.status, &told.json()["error"]["code"]), (502, &json!(5022)));
    lictor.stop(2).await;
}

#[tokio::test]
async fn tasks_have_their_owner_after_a_restart() {
    let agent = agent().await;
    let lictor = Setup::to(&agent.url())
        .also("path: /agent, protocol: a2a")
        .with("state: { directory: state }")
        .start()
        .await;
    let mut owner = lictor.caller(Transport::Http1Tls).await;
    posted(&mut owner, &rpc(1, "message/send", message(json!({})))).await;
    drop(owner);
    lictor.terminate().await;
    let mut lictor = lictor;
    assert!(lictor.ended().await.success());
    let lictor = lictor.restart().await;
    let get = rpc(2, "tasks/get", json!({ "id": "t-1" }));
    let mut owner = lictor.caller(Transport::Http1Tls).await;
    assert!(posted(&mut owner, &get).await.json()["result"].is_object());
    let mut other = stranger(&lictor).await;
    assert_eq!(posted(&mut other, &get).await.json()["error"]["code"], -32001);
    lictor.stop(3).await;
}

#[tokio::test]
async fn streams_of_tasks_pass_as_they_come() {
    let mut agent = Stub::scripted().await;
    let lictor = in_front_of(&agent).await;
    let mut owner = lictor.caller(Transport::Http1Tls).await;
    let request =
        ask(&owner, "POST", "", &[], &rpc(1, "message/stream", message(json!({}))).to_string());
    let (reply, mut call) = tokio::join!(owner.send(request), async {
        let mut call = agent.call().await;
        call.begin_events().await;
        call
    });
    let mut reply = reply;
    let event = |more: Value| {
        let mut result = json!({ "kind": "status-update", "taskId": "t-1", "contextId": "c-1" });
        result.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
    };
    let whole = event(json!({ "status": { "state": "working" }, "final": false }));
    // One event in three writes.
    let (a, rest) = whole.split_at(10);
    let (b, c) = rest.split_at(20);
    for part in [a, b, c] {
        call.chunk(part).await;
    }
    let mut got = Vec::new();
    while got.len() < whole.len() {
        got.extend_from_slice(&reply.chunk().await.expect("an event"));
    }
    assert_eq!(String::from_utf8_lossy(&got), whole);

    // It is the caller's from the first event on.
    let mut other = stranger(&lictor).await;
    let told = posted(&mut other, &rpc(2, "tasks/resubscribe", json!({ "id": "t-1" }))).await;
    assert_eq!(told.json()["error"]["code"], -32001);

    // An event that can't be read ends the stream in band.
    call.chunk("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\n\n").await;
    let mut last = Vec::new();
    while let Some(chunk) = reply.chunk().await {
        last.extend_from_slice(&chunk);
    }
    let last = String::from_utf8(last).expect("text");
    assert!(last.contains("\"code\":5022") && last.contains("\"id\":1"), "{last}");
    // Either may be on record first.
    let closings = lictor.stop(2).await;
    assert!(closings.iter().any(|entry| entry["status"] == "upstream_unreadable"), "{closings:?}");
}

/// The Python SDK ends lines where others don't.
#[tokio::test]
async fn no_task_is_handed_out_between_the_lines() {
    let mut agent = Stub::scripted().await;
    let lictor = in_front_of(&agent).await;
    let event = |task: &str, text: &str| {
        let update =
            json!({ "kind": "status-update", "taskId": task, "contextId": task, "x": text });
        json!({ "jsonrpc": "2.0", "id": 1, "result": update }).to_string()
    };
    let request = rpc(1, "message/stream", message(json!({}))).to_string();
    let (mine, theirs) = (event("t-9", "a\u{2028}b"), event("t-1", ""));
    let rows = [
        (format!("data: {theirs}\n\n"), Some(format!("data: {theirs}\n\n"))),
        (format!(": x\u{2028}data: {theirs}\n\ndata: {mine}\n\n"), {
            Some(format!("data: {}\n\n", mine.replace('\u{2028}', "\\u2028")))
        }),
        (format!("id: \u{85}data: {theirs}\n\n"), None),
        (format!("data: \u{c}\u{c}data: {theirs}\n\n"), None),
        (format!("data: {}\u{2028}\ndata: {theirs}\n\n", event("t-9", "")), None),
    ];
    for (row, (sent, expected)) in rows.iter().enumerate() {
        let mut caller = match row {
            0 => lictor.caller(Transport::Http1Tls).await,
            _ => stranger(&lictor).await,
        };
        let request = ask(&caller, "POST", "", &[], &request);
        let (mut reply, ()) = tokio::join!(caller.send(request), async {
            let mut call = agent.call().await;
            call.begin_events().await;
            call.chunk(sent).await;
            // The connection is closed where the stream had to end.
            call.wire.try_send("0\r\n\r\n").await;
        });
        let mut text = Vec::new();
        while let Some(chunk) = reply.chunk().await {
            text.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(text).expect("text");
        match expected {
            Some(expected) => assert_eq!(text, *expected),
            None => assert!(text.contains("\"code\":5022") && !text.contains("t-1"), "{text}"),
        }
    }
    lictor.stop(rows.len()).await;
}

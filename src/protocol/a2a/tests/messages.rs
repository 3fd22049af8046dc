//! What messages tell of all that they touch.

use super::*;

#[test]
fn a_message_tells_all_that_it_touches() {
    let params = r#"{
        "tenant": "acme",
        "message": {
            "messageId": "m", "role": 1, "taskId": "t", "contextId": "c",
            "referenceTaskIds": ["r1", "r2", "t", "r1"],
            "extensions": ["https://e.example/2"],
            "metadata": {"form": "claim", "other": 1},
            "parts": [
                {"text": "a"}, {"url": "https://f.example/x"}, {"raw": "AA=="},
                {"data": {"url": 1, "text": 2}}, {"text": "b", "metadata": {"url": "x"}}
            ]
        },
        "configuration": {
            "taskPushNotificationConfig": {"url": "https://Hook.example:8443/p?q", "token": "s"}
        },
        "metadata": {"form": "claim"}
    }"#;
    let both = [
        JSON,
        ("a2a-extensions", "https://e.example/1, https://e.example/3"),
        ("x-a2a-extensions", "https://e.example/1"),
    ];
    for name in ["SendMessage", "SendStreamingMessage", "message/send", "message/stream"] {
        let call = post(&both, &text(name, params)).expect(name);
        assert_eq!(call.targets, [task("t"), task("r1"), task("r2")]);
        let facts = facts(&call);
        assert_eq!(names(&facts.contexts), all(&["c"]));
        assert_eq!(names(&facts.push_urls), all(&["https://Hook.example:8443/p?q"]));
        let traits = &facts.traits;
        assert_eq!(traits.tenant.as_deref(), Some("acme"));
        assert_eq!(names(&traits.parts), all(&["data", "raw", "text", "url"]));
        assert_eq!(names(&traits.push_hosts), all(&["hook.example"]));
        assert_eq!(traits.form.as_deref(), Some("claim"));
        let extensions = ["https://e.example/1", "https://e.example/2", "https://e.example/3"];
        assert_eq!(names(&traits.extensions), all(&extensions));
    }
}

#[test]
fn a_message_without_a_task_is_for_the_agent() {
    for (message, targets) in [
        (r#"{"parts":[]}"#, vec![Target::Server]),
        (r#"{"taskId":"","contextId":""}"#, vec![Target::Server]),
        (r#"{"taskId":null,"referenceTaskIds":null,"parts":null}"#, vec![Target::Server]),
        (r#"{"referenceTaskIds":["r"]}"#, vec![Target::Server, task("r")]),
        (r#"{"task_id":"t","reference_task_ids":["r"]}"#, vec![task("t"), task("r")]),
    ] {
        let call = call("SendMessage", &format!(r#"{{"message":{message}}}"#)).expect(message);
        assert!(facts(&call).contexts.is_empty());
        assert_eq!(call.targets, targets, "{message}");
    }
    // The configuration of a task of somebody else doesn't get through unseen.
    let call = call(
        "SendMessage",
        r#"{"message":{},"configuration":{"task_push_notification_config":
            {"task_id":"x","url":"https://a.example"}}}"#,
    );
    assert_eq!(call.expect("decoded").targets, [Target::Server, task("x")]);
}

#[test]
fn files_of_version_0_3_are_raw_or_url() {
    for (part, kind) in [
        (r#"{"kind":"text","text":""}"#, "text"),
        (r#"{"kind":"file","file":{"uri":"https://a.example/f","mimeType":"x/y"}}"#, "url"),
        (r#"{"kind":"file","file":{"bytes":"AA==","name":"f"}}"#, "raw"),
        (r#"{"file":{"file_with_uri":"https://a.example/f"}}"#, "url"),
        (r#"{"file":{"fileWithBytes":"AA=="}}"#, "raw"),
        (r#"{"kind":"data","data":{}}"#, "data"),
        (r#"{"data":null}"#, "data"),
        (r#"{"text":"a","url":null}"#, "text"),
    ] {
        let params = format!(r#"{{"message":{{"parts":[{part}]}}}}"#);
        let call = call("message/send", &params).expect(part);
        assert_eq!(names(&facts(&call).traits.parts), all(&[kind]), "{part}");
    }
    for part in [
        "{}",
        "null",
        r#""text""#,
        r#"{"text":1}"#,
        r#"{"url":{}}"#,
        r#"{"text":"a","url":"https://a.example"}"#,
        r#"{"text":"a","data":null}"#,
        r#"{"kind":"text","text":"a","file":{"uri":"x"}}"#,
        r#"{"kind":"text","file":{"uri":"x"}}"#,
        r#"{"kind":"data","text":"x"}"#,
        r#"{"kind":5,"text":"x"}"#,
        r#"{"kind":"file","file":{"uri":"x","bytes":"AA=="}}"#,
        r#"{"kind":"file","file":{"uri":"x","fileWithUri":"y"}}"#,
        r#"{"kind":"file","file":{}}"#,
        r#"{"kind":"file","file":"x"}"#,
        r#"{"text":"a","Url":"https://a.example"}"#,
    ] {
        let params = format!(r#"{{"message":{{"parts":[{part}]}}}}"#);
        let error = call("message/send", &params).expect_err(part);
        assert!(matches!(error.fault, Fault::Params | Fault::Invalid), "{part}");
    }
}

#[test]
fn push_urls_are_seen_at_every_door() {
    for (name, params) in [
        (
            "message/send",
            r#"{"message":{},"configuration":{"pushNotificationConfig":{"url":"URL"}}}"#,
        ),
        ("message/stream", r#"{"message":{},"configuration":{"push_notification":{"url":"URL"}}}"#),
        (
            "SendMessage",
            r#"{"message":{},"configuration":{"taskPushNotificationConfig":{"url":"URL"}}}"#,
        ),
        (
            "tasks/pushNotificationConfig/set",
            r#"{"taskId":"t","pushNotificationConfig":{"url":"URL"}}"#,
        ),
        (
            "tasks/pushNotificationConfig/set",
            r#"{"task_id":"t","push_notification_config":{"url":"URL"}}"#,
        ),
        ("CreateTaskPushNotificationConfig", r#"{"taskId":"t","url":"URL"}"#),
        (
            "CreateTaskPushNotificationConfig",
            r#"{"taskId":"t","parent":"tasks/t","configId":"c","config":{"pushNotificationConfig":{"url":"URL"}}}"#,
        ),
    ] {
        let with = |url: &str| call(name, &params.replace("URL", url));
        let call = with("http://a.example/x").expect(params);
        assert_eq!(names(&facts(&call).push_urls), all(&["http://a.example/x"]), "{params}");
        assert_eq!(names(&facts(&call).traits.push_hosts), all(&["a.example"]));
        // Of which two readers could find two hosts, or none.
        for url in [
            "",
            "a.example",
            "file:///etc/passwd",
            "http://2130706433/",
            "http://0x7f.1/",
            "https://ok.example.org@10.0.0.1/",
            r"https://a.example\\@b.example/",
            "https://a.example./",
            "https:a.example",
            " https://a.example",
            r"https://a.ex\nample",
            "https://ex\u{e4}mple.org/",
        ] {
            assert_eq!(fault(with(url)).0, Fault::Params, "{params} {url}");
        }
        // Plain, and so for policies and the check of addresses to refuse.
        for (url, host) in
            [("http://169.254.169.254/x", "169.254.169.254"), ("http://[::1]:80/", "[::1]")]
        {
            let call = with(url).expect(url);
            assert_eq!(names(&facts(&call).traits.push_hosts), all(&[host]));
        }
    }
    // Both addresses, whichever an agent takes.
    let both = r#"{"taskId":"t","url":"https://a.example/","pushNotificationConfig":{"url":"https://b.example/"}}"#;
    let call = call("CreateTaskPushNotificationConfig", both).expect("decoded");
    assert_eq!(names(&facts(&call).traits.push_hosts), all(&["a.example", "b.example"]));
}

#[test]
fn what_is_said_twice_is_the_same() {
    for (name, params) in [
        ("SendMessage", r#"{"message":{"taskId":"a","task_id":"a"}}"#),
        ("SendMessage", r#"{"message":{"contextId":"a","context_id":"b"}}"#),
        ("SendMessage", r#"{"message":{"contextId":null,"context_id":"b"}}"#),
        ("SendMessage", r#"{"message":{},"request":{}}"#),
        ("SendMessage", r#"{"request":{"taskId":"a"}}"#),
        ("message/send", r#"{"request":{"taskId":"a"}}"#),
        ("SendMessage", r#"{"message":{"parts":[],"content":[]}}"#),
        ("message/send", r#"{"message":{"content":[{"text":"a"}]}}"#),
        ("SendMessage", r#"{"message":{"metadata":{"form":"a"}},"metadata":{"form":"b"}}"#),
        ("SendMessage", r#"{"message":{"metadata":{"form":"a","Form":"b"}}}"#),
        (
            "SendMessage",
            r#"{"message":{},"tenant":"a","configuration":{"taskPushNotificationConfig":
               {"tenant":"b","url":"https://a.example/"}}}"#,
        ),
        (
            "SendMessage",
            r#"{"message":{},"configuration":{"taskPushNotificationConfig":{"url":"https://a.example/"},
               "pushNotificationConfig":{"url":"https://a.example/"}}}"#,
        ),
        ("SendMessage", r#"{"message":{"taskid":"a"}}"#),
        ("SendMessage", r#"{"message":{"TaskId":"a"}}"#),
        ("SendMessage", r#"{"message":{"tas\u212aId":"a"}}"#),
        ("SendMessage", r#"{"message":{"taskId\u0000":"a"}}"#),
        ("SendMessage", r#"{"message":{"Task_Id":"a"}}"#),
        ("SendMessage", r#"{"Message":{"taskId":"a"},"message":{}}"#),
        ("SendMessage", r#"{"message":{},"Configuration":{}}"#),
        ("SendMessage", r#"{"message":{},"configuration":{"TaskPushNotificationConfig":{}}}"#),
        ("GetTask", r#"{"id":"a","taskId":"b"}"#),
        ("tasks/get", r#"{"id":"a","task_id":"b"}"#),
        ("GetTask", r#"{"id":"a","name":"tasks/b"}"#),
        ("GetTask", r#"{"id":"a","ID":"b"}"#),
        ("GetTaskPushNotificationConfig", r#"{"taskId":"a","task_id":"b","id":"c"}"#),
        (
            "CreateTaskPushNotificationConfig",
            r#"{"taskId":"a","url":"https://a.example/","config":{"taskId":"b"}}"#,
        ),
        (
            "CreateTaskPushNotificationConfig",
            r#"{"taskId":"a","url":"https://a.example/","URL":"https://b.example/"}"#,
        ),
        (
            "CreateTaskPushNotificationConfig",
            r#"{"taskId":"a","config":{"name":"tasks/b/pushNotificationConfigs/c","url":"https://a.example/"}}"#,
        ),
    ] {
        assert_eq!(
            fault(call(name, params)),
            (Fault::Invalid, Some("7".into())),
            "{name} {params}"
        );
    }
    for (name, params) in [
        ("SendMessage", "{}"),
        ("SendMessage", r#"{"message":null}"#),
        ("SendMessage", r#"{"message":[]}"#),
        ("SendMessage", r#"{"message":{"parts":{}}}"#),
        ("SendMessage", r#"{"message":{"taskId":7}}"#),
        ("SendMessage", r#"{"message":{"referenceTaskIds":"a"}}"#),
        ("SendMessage", r#"{"message":{"referenceTaskIds":[7]}}"#),
        ("SendMessage", r#"{"message":{"metadata":[]}}"#),
        ("SendMessage", r#"{"message":{},"configuration":[]}"#),
        ("SendMessage", r#"{"message":{},"configuration":{"pushNotificationConfig":{}}}"#),
        ("GetTask", r#"{"id":"a","name":"b"}"#),
        ("GetTask", r#"{"id":"a","tenant":7}"#),
    ] {
        assert_eq!(fault(call(name, params)), (Fault::Params, Some("7".into())), "{name} {params}");
    }
    let many: Vec<String> = (0..256).map(|n| format!("\"{n}\"")).collect();
    let params = format!(r#"{{"message":{{"referenceTaskIds":[{}]}}}}"#, many.join(","));
    assert_eq!(fault(call("SendMessage", &params)).0, Fault::Params);
}

#[test]
fn a_list_names_its_context() {
    for params in [r#"{"contextId":"c"}"#, r#"{"context_id":"c","tenant":""}"#] {
        let call = call("ListTasks", params).expect(params);
        assert_eq!(call.targets, [Target::Server]);
        assert_eq!(names(&facts(&call).contexts), all(&["c"]));
    }
    let call = call("ListTasks", "{}").expect("decoded");
    assert_eq!(
        (call.kind.clone(), facts(&call).contexts.len()),
        (Kind::Request(call.id().unwrap().clone()), 0)
    );
}

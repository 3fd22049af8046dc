use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method as HttpMethod};
use proptest::prelude::*;

use super::{Given, read};
use crate::protocol::{Call, a2a::decode};

/// A call over JSON-RPC, by the name of its method.
fn rpc(method: &str) -> Call {
    let params = match method {
        "ListTasks" | "agent/getAuthenticatedExtendedCard" => "{}",
        _ => r#"{"message":{},"id":"t","taskId":"t","url":"https://a.example/"}"#,
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    decode(&HttpMethod::POST, "", None, &headers, body.into()).expect("decoded")
}

/// A call over REST.
fn rest(method: &HttpMethod, path: &str) -> Call {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let body = match path.contains("message:") {
        true => Bytes::from_static(br#"{"message":{}}"#),
        false => Bytes::new(),
    };
    decode(method, path, None, &headers, body).expect("decoded")
}

fn response(result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#)
}

/// What is told, without whether its task goes on.
fn told(call: &Call, message: &[u8]) -> Result<Given, super::Unreadable> {
    read(call, message).map(|given| Given { runs: None, ..given })
}

fn given(tasks: &[&str], contexts: &[&str]) -> Given {
    let set = |ids: &[&str]| ids.iter().map(|id| Box::from(*id)).collect();
    Given { tasks: set(tasks), contexts: set(contexts), runs: None, listed: None }
}

const TASK: &str = r#"{"id":"t","contextId":"c","kind":"task","status":{"state":"working","message":
    {"taskId":"other","contextId":"other"}},"history":[{"taskId":"old"}],"artifacts":[{"parts":[]}]}"#;
const MESSAGE: &str = r#"{"kind":"message","messageId":"m","taskId":"t","contextId":"c",
    "referenceTaskIds":["other"],"parts":[{"data":{"taskId":"other","Id":1}}]}"#;
const UPDATE: &str = r#"{"kind":"status-update","taskId":"t","contextId":"c","final":true,
    "status":{"state":"completed"}}"#;

#[test]
fn every_shape_hands_over_its_ids() {
    let handing = [
        rpc("message/send"),
        rpc("SendMessage"),
        rpc("SendStreamingMessage"),
        rpc("tasks/resubscribe"),
        rpc("GetTask"),
        rpc("tasks/cancel"),
    ];
    for call in &handing {
        for bare in [TASK, MESSAGE, UPDATE] {
            let expected = given(&["t"], &["c"]);
            assert_eq!(told(call, response(bare).as_bytes()), Ok(expected), "{bare}");
        }
        for (wrapper, content) in [
            ("task", TASK),
            ("message", MESSAGE),
            ("msg", MESSAGE),
            ("statusUpdate", UPDATE),
            ("status_update", UPDATE),
            ("artifactUpdate", UPDATE),
            ("artifact_update", UPDATE),
        ] {
            let wrapped = format!(r#"{{"{wrapper}":{content}}}"#);
            let expected = given(&["t"], &["c"]);
            assert_eq!(told(call, response(&wrapped).as_bytes()), Ok(expected), "{wrapped}");
        }
    }
    for call in [
        rest(&HttpMethod::POST, "/message:send"),
        rest(&HttpMethod::POST, "/v1/message:stream"),
        rest(&HttpMethod::GET, "/tasks/t"),
        rest(&HttpMethod::GET, "/tasks/t:subscribe"),
    ] {
        let wrapped = format!(r#"{{"task":{TASK}}}"#);
        for result in [TASK, &wrapped] {
            assert_eq!(told(&call, result.as_bytes()), Ok(given(&["t"], &["c"])));
        }
        let error = r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no such task"}}"#;
        assert_eq!(told(&call, error.as_bytes()), Ok(Given::default()));
    }
}

#[test]
fn what_hands_over_nothing_is_nothing() {
    let send = rpc("message/send");
    for message in [
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Task not found","data":[{"id":"t"}]}}"#,
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"x"},"result":null}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
        &response(r#"{"message":{"messageId":"m","parts":[],"contextId":"","taskId":null}}"#),
        &response(r#"{"kind":"message","messageId":"m","parts":[]}"#),
    ] {
        assert_eq!(told(&send, message.as_bytes()), Ok(Given::default()), "{message}");
    }
    for name in [
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotificationConfig/list",
        "tasks/pushNotificationConfig/delete",
        "agent/getAuthenticatedExtendedCard",
        "acme/other",
    ] {
        let call = rpc(name);
        for message in [
            response(r#"{"taskId":"t","id":"c","url":"https://a.example/"}"#),
            response("null"),
            response("[]"),
            r#"{"jsonrpc":"2.0","id":7}"#.to_owned(),
        ] {
            assert_eq!(told(&call, message.as_bytes()), Ok(Given::default()), "{name} {message}");
        }
    }
}

#[test]
fn what_two_readers_could_read_in_two_ways_is_refused() {
    for message in [
        "",
        "{",
        "[]",
        "null",
        r#"{"jsonrpc":"2.0","id":7,"method":"x","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"id":"a"},"Result":{"id":"b"}}"#,
        &response("null"),
        &response("[]"),
        &response(r#""t""#),
        &response(r#"{"id":"a","id":"b"}"#),
        &response(r#"{"id":"a","\u0069d":"b"}"#),
        &response(r#"{"id":"a","Id":"b"}"#),
        &response(r#"{"ID":"b"}"#),
        &response(r#"{"id":"a","taskId":"b"}"#),
        &response(r#"{"taskId":"a","task_id":"a"}"#),
        &response(r#"{"taskId":"a","contextID":"b"}"#),
        &response(r#"{"id":7}"#),
        &response(r#"{"id":"a","contextId":{}}"#),
        &response(r#"{"id":"a","task":{"id":"b"}}"#),
        &response(r#"{"task":{"id":"a"},"message":{"taskId":"b"}}"#),
        &response(r#"{"task":{"id":"a"},"statusUpdate":{"taskId":"a"}}"#),
        &response(r#"{"statusUpdate":{"taskId":"a"},"status_update":{"taskId":"b"}}"#),
        &response(r#"{"Task":{"id":"a"}}"#),
        &response(r#"{"task":"a"}"#),
        &response(r#"{"task":[{"id":"a"}]}"#),
    ] {
        assert!(told(&rpc("SendMessage"), message.as_bytes()).is_err(), "{message}");
    }
}

const LIST: &str = r#"{ "tasks" : [ {"id":"a","contextId":"c"} , {"id":"b", "artifacts":[1, 2.50]},{"id":"c"}],
    "nextPageToken":"p","pageSize":3,"totalSize":120 }"#;

#[test]
fn a_list_is_cut_to_what_is_shown() {
    for (call, message) in [
        (rpc("ListTasks"), response(LIST)),
        (rest(&HttpMethod::GET, "/tasks"), LIST.to_owned()),
        (rest(&HttpMethod::GET, "/v1/tasks"), LIST.replace("totalSize", "total_size")),
    ] {
        let found = told(&call, message.as_bytes()).expect("read");
        assert_eq!((found.tasks.len(), found.contexts.len()), (0, 0));
        let listed = found.listed.expect("a list");
        let ids: Vec<&str> = listed.tasks.iter().map(|(id, _)| &**id).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        for (shown, array) in [
            (
                "abc",
                r#"[ {"id":"a","contextId":"c"} , {"id":"b", "artifacts":[1, 2.50]},{"id":"c"}]"#,
            ),
            ("b", r#"[ {"id":"b", "artifacts":[1, 2.50]}]"#),
            ("ac", r#"[ {"id":"a","contextId":"c"},{"id":"c"}]"#),
            ("", "[ ]"),
        ] {
            let cut = listed.only(message.as_bytes(), |id| shown.contains(id));
            let cut = String::from_utf8(cut.into()).expect("text");
            assert!(cut.contains(array), "{cut}");
            assert!(cut.contains(&format!(":{}", shown.len())) && !cut.contains("120"), "{cut}");
            assert!(cut.contains(r#""nextPageToken":"p","pageSize":3"#), "{cut}");
            serde_json::from_str::<serde_json::Value>(&cut).expect("still JSON");
        }
    }
    let none = told(&rpc("ListTasks"), response(r#"{"totalSize":0}"#).as_bytes());
    assert_eq!(none, Ok(Given::default()));
    let first = response(r#"{"totalSize":9,"tasks":[{"id":"a"}]}"#);
    let listed = told(&rpc("ListTasks"), first.as_bytes()).expect("read").listed.expect("a list");
    let cut = listed.only(first.as_bytes(), |_| false);
    assert_eq!(
        String::from_utf8(cut.into()).expect("text"),
        response(r#"{"totalSize":0,"tasks":[]}"#)
    );
}

#[test]
fn a_list_that_could_hide_a_task_is_refused() {
    for result in [
        r#"{"tasks":{}}"#,
        r#"{"tasks":"a"}"#,
        r#"{"tasks":["a"]}"#,
        r#"{"tasks":[{}]}"#,
        r#"{"tasks":[{"id":""}]}"#,
        r#"{"tasks":[{"id":7}]}"#,
        r#"{"tasks":[{"id":"a","ID":"b"}]}"#,
        r#"{"tasks":[],"Tasks":[{"id":"a"}]}"#,
        r#"{"tasks":[{"id":"a"}],"totalSize":1,"total_size":2}"#,
        "[]",
    ] {
        assert!(told(&rpc("ListTasks"), response(result).as_bytes()).is_err(), "{result}");
    }
}

/// Keys that readers could take for something that is governed, and some that they don't.
const KEYS: &[&str] = &[
    "id",
    "ID",
    "taskId",
    "task_id",
    "tas\u{212a}Id",
    "task",
    "message",
    "statusUpdate",
    "status_update",
    "other",
];

fn object(depth: u32) -> BoxedStrategy<serde_json::Value> {
    let leaf = prop::sample::select(vec!["a", "b"]).prop_map(serde_json::Value::from);
    let value = match depth {
        0 => leaf.boxed(),
        _ => prop_oneof![leaf, object(depth - 1)].boxed(),
    };
    prop::collection::vec((prop::sample::select(KEYS), value), 1..5)
        .prop_map(|members| {
            members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
        })
        .boxed()
}

/// Every id that some reader takes for that of a task, with as little care as any has.
fn ids(value: &serde_json::Value, wrapped: bool) -> Vec<&str> {
    let plain = |key: &str| -> String {
        let key = key.replace(['_', '\u{212a}'], "k").to_lowercase();
        key.replace("taskkid", "taskid").replace("statuskupdate", "statusupdate")
    };
    let mut found = vec![];
    for (key, value) in value.as_object().into_iter().flatten() {
        match &*plain(key) {
            "id" | "taskid" => found.extend(value.as_str()),
            "task" | "message" | "msg" | "statusupdate" | "artifactupdate" if !wrapped => {
                found.extend(ids(value, true));
            }
            _ => {}
        }
    }
    found
}

proptest! {
    #[test]
    fn no_reader_finds_an_id_that_is_not_told(result in object(2)) {
        let message = response(&result.to_string());
        if let Ok(given) = told(&rpc("SendMessage"), message.as_bytes()) {
            for id in ids(&result, false) {
                prop_assert!(given.tasks.contains(id), "{} {:?}", message, given);
            }
            prop_assert!(given.tasks.len() <= 1);
        }
    }

    #[test]
    fn a_cut_list_holds_what_is_shown(
        shown in prop::collection::vec(any::<bool>(), 0..6),
        space in "[ \\n]{0,2}",
    ) {
        let items: Vec<_> =
            (0..shown.len()).map(|at| format!("{space}{{\"id\":\"{at}\",\"x\":[]}}{space}")).collect();
        let message = response(&format!(r#"{{"tasks":[{}],"totalSize":99}}"#, items.join(",")));
        let listed = told(&rpc("ListTasks"), message.as_bytes()).expect("read").listed.expect("a list");
        let is_shown = |id: &str| shown[id.parse::<usize>().expect("a number")];
        let cut = listed.only(message.as_bytes(), is_shown);
        let again = told(&rpc("ListTasks"), &cut).expect("read").listed.expect("a list");
        let left: Vec<_> = again.tasks.iter().map(|(id, _)| id.to_string()).collect();
        let expected: Vec<_> =
            (0..shown.len()).filter(|at| shown[*at]).map(|at| at.to_string()).collect();
        prop_assert_eq!(left, expected);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "[\\[\\]{}:,\"\\\\a-z0-9 ]{0,60}") {
        for call in [rpc("SendMessage"), rpc("ListTasks"), rest(&HttpMethod::GET, "/tasks")] {
            drop(told(&call, &bytes));
            drop(told(&call, text.as_bytes()));
            drop(told(&call, response(&text).as_bytes()));
        }
    }
}

#[test]
fn it_is_told_whether_a_task_goes_on() {
    for (state, runs) in [
        (r#"{"state":"working"}"#, Some(true)),
        (r#"{"state":"TASK_STATE_INPUT_REQUIRED"}"#, Some(true)),
        (r#"{"state":"completed"}"#, Some(false)),
        (r#"{"state":"TASK_STATE_REJECTED"}"#, Some(false)),
        ("{}", None),
        ("null", None),
    ] {
        let task = response(&format!(r#"{{"id":"t","status":{state}}}"#));
        let given = read(&rpc("message/send"), task.as_bytes()).expect("readable");
        assert_eq!(given.runs, runs, "{state}");
    }
}

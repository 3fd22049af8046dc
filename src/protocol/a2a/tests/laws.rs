//! What holds whatever is sent.

use bytes::Bytes;
use proptest::prelude::*;

use super::{HttpMethod, JSON, Target, call, decode, facts, headers};

/// Members as a peer would meet them: key, decoded, and a text.
type Members = Vec<(&'static str, &'static str)>;

/// Keys in JSON, and what they are when decoded.
const KEYS: &[(&str, &str)] = &[
    ("taskId", "taskId"),
    ("task_id", "task_id"),
    ("task\\u0049d", "taskId"),
    ("TaskId", "TaskId"),
    ("TASK_ID", "TASK_ID"),
    ("tas\u{212a}Id", "tas\u{212a}Id"),
    ("ta\u{17f}kId", "ta\u{17f}kId"),
    ("taskId\\u0000", "taskId\0"),
    ("contextId", "contextId"),
    ("context_id", "context_id"),
    ("contextID", "contextID"),
    ("id", "id"),
    ("Id", "Id"),
    ("i\\u0064", "id"),
    ("other", "other"),
];

/// How agents find a member: by its exact name or the one of the `.proto` file, or with less care;
/// and which one they take of several.
fn readings(members: &Members, camel: &str, snake: &str) -> Vec<Option<String>> {
    let fold = |text: &str| -> String {
        let text = text.split('\0').next().unwrap_or_default();
        text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
    };
    let exact = |key: &str| key == camel || key == snake;
    let lenient = |key: &str| fold(key) == fold(camel) || fold(key) == fold(snake);
    let read = |is: &dyn Fn(&str) -> bool| -> Vec<Option<String>> {
        let found: Vec<_> =
            members.iter().filter(|(key, _)| is(key)).map(|(_, text)| *text).collect();
        let text =
            |text: Option<&&str>| text.filter(|text| !text.is_empty()).map(|it| it.to_string());
        vec![text(found.first()), text(found.last())]
    };
    let only = |name: &'static str| move |key: &str| key == name;
    let mut all = read(&exact);
    all.extend(read(&lenient));
    let both = members.iter().filter(|(key, _)| exact(key)).count() > 1;
    if both {
        all.extend(read(&only("taskId")));
        all.extend(read(&only("task_id")));
    }
    all
}

fn members() -> impl Strategy<Value = Vec<(usize, &'static str)>> {
    prop::collection::vec((0..KEYS.len(), prop::sample::select(vec!["a", "b", ""])), 0..4)
}

fn written(members: &[(usize, &'static str)]) -> (Members, String) {
    let read = members.iter().map(|(key, text)| (KEYS[*key].1, *text)).collect();
    let text: Vec<_> =
        members.iter().map(|(key, text)| format!("\"{}\":\"{text}\"", KEYS[*key].0)).collect();
    (read, format!("{{{}}}", text.join(",")))
}

fn task_of(targets: &[Target]) -> Option<String> {
    targets.first().and_then(Target::name).map(str::to_owned)
}

proptest! {
    #[test]
    fn a_message_names_the_same_task_to_every_reader(sent in members()) {
        let (members, message) = written(&sent);
        for method in ["SendMessage", "message/send"] {
            if let Ok(call) = call(method, &format!(r#"{{"message":{message}}}"#)) {
                for reading in readings(&members, "taskId", "task_id") {
                    prop_assert_eq!(&reading, &task_of(&call.targets), "{}", message);
                }
                let context = facts(&call).contexts.iter().next().map(|id| id.to_string());
                for reading in readings(&members, "contextId", "context_id") {
                    prop_assert_eq!(&reading, &context, "{}", message);
                }
            }
        }
    }

    #[test]
    fn an_operation_is_on_the_same_task_to_every_reader(sent in members()) {
        let (members, params) = written(&sent);
        for (method, camel, snake) in [
            ("GetTask", "id", "id"),
            ("tasks/cancel", "id", "id"),
            ("DeleteTaskPushNotificationConfig", "taskId", "task_id"),
            ("tasks/pushNotificationConfig/delete", "id", "id"),
        ] {
            if let Ok(call) = call(method, &params) {
                for reading in readings(&members, camel, snake) {
                    prop_assert_eq!(&reading, &task_of(&call.targets), "{} {}", method, params);
                }
            }
        }
    }

    #[test]
    fn what_is_sent_over_rest_is_what_was_understood(
        path in prop::collection::vec(
            prop::sample::select(vec![
                "/", "tasks", "v1", "t", ":", "cancel", "subscribe", "message", "send", "%2f", "%2e",
                "%3a", "%25", "%", ".", "..", ";", "\\", "acme", "pushNotificationConfigs", "%74", "?",
                "historyLength=1", "contextId=a", "&", "tenant=acme", "+", "%2B", "é",
            ]),
            1..8,
        ),
        method in prop::sample::select(vec![HttpMethod::GET, HttpMethod::POST, HttpMethod::DELETE]),
    ) {
        let target = format!("/{}", path.concat());
        let (suffix, query) = target.split_once('?').map_or((&*target, None), |(s, q)| (s, Some(q)));
        let body = || Bytes::from_static(br#"{"message":{},"url":"https://a.example"}"#);
        for body in [Bytes::new(), body()] {
            let decode = |suffix: &str, query: Option<&str>| {
                decode(&method, suffix, query, &headers(&[JSON]), body.clone())
            };
            let Ok(call) = decode(suffix, query) else { continue };
            let Some(rest) = facts(&call).rest.clone() else { continue };
            for odd in ["//", "/.", "%2F", "%5C", "%25", "%00", ";", "\\"] {
                prop_assert!(!rest.path.contains(odd), "{} {}", target, rest.path);
            }
            let again = decode(&rest.path, rest.query.as_deref()).expect("the same call");
            prop_assert_eq!(&again.method, &call.method);
            prop_assert_eq!(&again.targets, &call.targets);
            prop_assert_eq!(&again.a2a, &call.a2a);
            // A server that decodes the whole path before it splits it finds the same task.
            let decoded = crate::protocol::target::decoded(&rest.path).expect("decoded");
            let named = call.targets.iter().all(|target| {
                target.name().is_none_or(|name| decoded.contains(&format!("/tasks/{name}")))
            });
            prop_assert!(named, "{} {}", decoded, rest.path);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes: Vec<u8>,
        path in "/[a-z0-9/:%.;é]{0,30}",
        query in "[a-zA-Z0-9=&%+]{0,30}",
        text in "[\\[\\]{}:,\"\\\\a-z0-9 ]{0,60}",
    ) {
        for body in [bytes, text.into_bytes()] {
            for suffix in ["", "/message:send", &path] {
                drop(decode(&HttpMethod::POST, suffix, Some(&query), &headers(&[JSON]), body.clone().into()));
            }
        }
    }
}

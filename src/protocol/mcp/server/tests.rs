//! What servers send, as tables.

mod asks;

use proptest::prelude::*;

use super::*;
use crate::protocol::method::{METHODS, SERVER_METHODS};

fn legacy(text: &str) -> Result<ServerMessage, Undecodable> {
    decode(text.as_bytes(), Era::Legacy)
}

fn modern(text: &str) -> Result<ServerMessage, Undecodable> {
    decode(text.as_bytes(), Era::Modern)
}

fn request_text(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"s-1","method":"{method}","params":{params}}}"#)
}

fn result_text(result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#)
}

fn asked(method: &str, params: &str) -> Result<Asks, Undecodable> {
    match legacy(&request_text(method, params))? {
        ServerMessage::Request { id, asked } => {
            assert_eq!(id.as_json(), r#""s-1""#);
            assert_eq!(asked.method, Method::of_server(method));
            Ok(asked.asks)
        }
        other => panic!("{other:?}"),
    }
}

fn outcome_of(text: Result<ServerMessage, Undecodable>) -> Result<Outcome, Undecodable> {
    match text? {
        ServerMessage::Answer { outcome, .. } => Ok(outcome),
        other => panic!("{other:?}"),
    }
}

fn waits(result: Result<impl std::fmt::Debug, Undecodable>) -> Waits {
    result.expect_err("refused").waits
}

fn server_waits() -> Waits {
    match legacy(&request_text("ping", "{}")) {
        Ok(ServerMessage::Request { id, .. }) => Waits::Server(id),
        other => panic!("{other:?}"),
    }
}

fn client_waits() -> Waits {
    match legacy(&result_text("{}")) {
        Ok(ServerMessage::Answer { id: Some(id), .. }) => Waits::Client(id),
        other => panic!("{other:?}"),
    }
}

const FORM: &str = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]}}"#;

fn sample(method: &str) -> &'static str {
    match method {
        "elicitation/create" => FORM,
        "sampling/createMessage" => r#"{"messages":[],"maxTokens":100}"#,
        _ => r#"{"taskId":"t"}"#,
    }
}

#[test]
fn the_table_is_sorted_and_shares_no_action_with_the_callers() {
    for table in [METHODS, SERVER_METHODS] {
        assert!(table.is_sorted_by(|left, right| left.name < right.name));
    }
    for rule in SERVER_METHODS.iter().filter(|rule| !rule.notification) {
        assert!(METHODS.iter().all(|other| other.action != rule.action), "{}", rule.action);
    }
}

#[test]
fn each_side_knows_its_own_methods_only() {
    for rule in SERVER_METHODS {
        let text = request_text(rule.name, sample(rule.name));
        let kind = legacy(&text);
        match (rule.notification, rule.exists_in(Era::Legacy)) {
            (true, _) => assert_eq!(waits(kind), server_waits(), "{}", rule.name),
            (false, _) => {
                let Ok(ServerMessage::Request { asked, .. }) = kind else { panic!("{kind:?}") };
                assert_eq!(asked.method, Method::Known(rule));
            }
        }
        assert_eq!(waits(modern(&text)), server_waits(), "none on a modern stream: {}", rule.name);
        let within = result_text(&format!(
            r#"{{"resultType":"input_required","inputRequests":{{"k":{{"method":"{}","params":{}}}}}}}"#,
            rule.name,
            sample(rule.name)
        ));
        let exists = !rule.notification && rule.exists_in(Era::Modern);
        assert_eq!(modern(&within).is_ok(), exists, "{}", rule.name);
    }
    for rule in METHODS.iter().filter(|rule| Method::of_server(rule.name).rule().is_none()) {
        let method = match legacy(&request_text(rule.name, "{}")) {
            Ok(ServerMessage::Request { asked, .. }) => asked.method,
            other => panic!("{other:?}"),
        };
        assert_eq!(method, Method::Vendor(rule.name.into()));
    }
    for name in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        assert_eq!(Method::parse(name), Method::Vendor(name.into()));
    }
    let name = "Sampling/createMessage";
    assert_eq!(asked(name, "{}"), Ok(Asks::Plain), "a vendor's, which nobody declared");
}

#[test]
fn results_that_ask_are_found() {
    let roots = r#"{"method":"roots/list"}"#;
    let form = format!(r#"{{"method":"elicitation/create","params":{FORM}}}"#);
    let required = |requests: usize, state: Option<&str>| (requests, state.map(Box::from));
    for (result, expected) in [
        (r#"{"resultType":"complete","content":[]}"#.to_owned(), None),
        (r#"{"content":[]}"#.to_owned(), None),
        ("{}".to_owned(), None),
        ("null".to_owned(), None),
        ("[]".to_owned(), None),
        (
            r#"{"structuredContent":{"inputRequests":1,"resultType":5,"method":"x"}}"#.to_owned(),
            None,
        ),
        (
            format!(
                r#"{{"resultType":"input_required","inputRequests":{{"a":{roots},"b":{form}}}}}"#
            ),
            Some(required(2, None)),
        ),
        (
            r#"{"resultType":"input_required","requestState":"s"}"#.to_owned(),
            Some(required(0, Some("s"))),
        ),
        (
            format!(
                r#"{{"resultType":"input_r\u0065quired","requestState":"s","inputRequests":{{"a":{roots}}}}}"#
            ),
            Some(required(1, Some("s"))),
        ),
        // Whoever doesn't look at the kind of result still acts on what it holds.
        (format!(r#"{{"inputRequests":{{"a":{roots}}}}}"#), Some(required(1, None))),
        (
            format!(
                r#"{{"resultType":"complete","taskId":"t","status":"input_required","inputRequests":{{"a":{form}}}}}"#
            ),
            Some(required(1, None)),
        ),
        (r#"{"resultType":"complete","requestState":""}"#.to_owned(), Some(required(0, Some("")))),
        (
            r#"{"resultType":null,"inputRequests":null,"requestState":null,"task":null}"#
                .to_owned(),
            None,
        ),
    ] {
        for era in [Era::Legacy, Era::Modern] {
            let found = outcome_of(decode(result_text(&result).as_bytes(), era));
            let found = match found {
                Ok(Outcome::Complete) => None,
                Ok(Outcome::InputRequired { requests, state }) => Some((requests.len(), state)),
                other => panic!("{result}: {other:?}"),
            };
            assert_eq!(found, expected, "{result}");
        }
    }
    let text = result_text(&format!(
        r#"{{"resultType":"input_required","inputRequests":{{"b":{form},"a":{roots}}}}}"#
    ));
    let Ok(Outcome::InputRequired { requests, .. }) = outcome_of(modern(&text)) else {
        panic!("{text}");
    };
    let found: Vec<_> = requests.iter().map(|(key, asked)| (&**key, asked.method.name())).collect();
    assert_eq!(found, [("b", "elicitation/create"), ("a", "roots/list")]);
    let many = |count: usize| {
        let requests: Vec<_> = (0..count).map(|key| format!(r#""{key}":{roots}"#)).collect();
        outcome_of(modern(&result_text(&format!(
            r#"{{"inputRequests":{{{}}}}}"#,
            requests.join(",")
        ))))
    };
    assert!(many(64).is_ok());
    assert_eq!(waits(many(65)), client_waits());
}

#[test]
fn results_that_can_be_read_in_two_ways_are_refused() {
    let roots = r#"{"method":"roots/list"}"#;
    for result in [
        r#"{"resultType":"input_required","inputRequests":[]}"#.to_owned(),
        r#"{"resultType":"input_required","inputRequests":{"a":1}}"#.to_owned(),
        r#"{"resultType":"input_required","inputRequests":{"a":{}}}"#.to_owned(),
        r#"{"inputRequests":{"a":{"method":1}}}"#.to_owned(),
        r#"{"inputRequests":{"a":{"method":"roots/list","params":[]}}}"#.to_owned(),
        r#"{"inputRequests":{"a":{"method":"roots/list","Method":"sampling/createMessage"}}}"#
            .to_owned(),
        r#"{"inputRequests":{"a":{"method":"sampling/createMessage"}}}"#.to_owned(),
        r#"{"inputRequests":{"a":{"method":"ping"}}}"#.to_owned(),
        r#"{"inputRequests":{"a":{"method":"tasks/get","params":{"taskId":"t"}}}}"#.to_owned(),
        r#"{"inputRequests":{"a":{"method":"notifications/progress"}}}"#.to_owned(),
        format!(r#"{{"inputrequests":{{"a":{roots}}}}}"#),
        format!(r#"{{"inputReque\u017fts":{{"a":{roots}}}}}"#),
        r#"{"resultType":"complete","ResultType":"input_required"}"#.to_owned(),
        r#"{"requestState":1}"#.to_owned(),
        r#"{"RequestState":"s"}"#.to_owned(),
        r#"{"resultType":1}"#.to_owned(),
        r#"{"resultType":"task"}"#.to_owned(),
        r#"{"resultType":"task","taskId":1}"#.to_owned(),
        r#"{"resultType":"task","taskid":"t"}"#.to_owned(),
        format!(r#"{{"resultType":"task","taskId":"t","inputRequests":{{"a":{roots}}}}}"#),
        r#"{"Task":{"taskId":"t"}}"#.to_owned(),
        r#"{"task":{"taskId":"t","TaskId":"u"}}"#.to_owned(),
        format!(
            r#"{{"taskId":"t","status":"completed","result":{{"inputRequests":{{"a":{roots}}}}}}}"#
        ),
        r#"{"taskId":"t","result":{"resultType":"task","taskId":"u"}}"#.to_owned(),
        r#"{"taskId":"t","result":{"RequestState":"u"}}"#.to_owned(),
        r#"{"taskId":"t","error":{"code":-32042,"data":{"elicitations":[]}}}"#.to_owned(),
        r#"{"content":1,"content":2}"#.to_owned(),
    ] {
        for era in [Era::Legacy, Era::Modern] {
            let refused = decode(result_text(&result).as_bytes(), era).expect_err(&result);
            // What the scan refuses has no id that could be trusted.
            assert!([client_waits(), Waits::Nobody].contains(&refused.waits), "{result}");
        }
    }
    let vendor = result_text(r#"{"resultType":"vendor.example/later"}"#);
    assert_eq!(waits(modern(&vendor)), client_waits());
    assert_eq!(outcome_of(legacy(&vendor)), Ok(Outcome::Complete), "no such member then");
}

#[test]
fn tasks_are_found_in_the_shape_of_their_revision() {
    let task = |id: &str| Ok(Outcome::Task { id: id.into() });
    let flat = result_text(r#"{"resultType":"task","taskId":"t","status":"working"}"#);
    let nested = result_text(r#"{"task":{"taskId":"t","status":"working"},"_meta":{}}"#);
    assert_eq!(outcome_of(modern(&flat)), task("t"));
    assert_eq!(outcome_of(legacy(&flat)), task("t"));
    assert_eq!(outcome_of(legacy(&nested)), task("t"));
    assert_eq!(outcome_of(modern(&nested)), Ok(Outcome::Complete), "a member of the tool's own");
    for own in [r#"{"task":"write"}"#, r#"{"task":{"taskId":1}}"#, r#"{"task":{"name":"x"}}"#] {
        assert_eq!(outcome_of(legacy(&result_text(own))), Ok(Outcome::Complete), "{own}");
    }
    let done = r#"{"resultType":"complete","taskId":"t","status":"completed","result":{"resultType":"complete","content":[]}}"#;
    assert_eq!(outcome_of(modern(&result_text(done))), Ok(Outcome::Complete));
}

#[test]
fn errors_may_ask_for_visits() {
    let error = |error: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#);
    let visit = r#"{"mode":"url","elicitationId":"e","url":"https://a.example/","message":"m"}"#;
    let text =
        error(&format!(r#"{{"code":-32042,"message":"m","data":{{"elicitations":[{visit}]}}}}"#));
    let Ok(Outcome::InputRequired { requests, state: None }) = outcome_of(legacy(&text)) else {
        panic!("{text}");
    };
    let host = Elicitation::Url { scheme: "https".into(), host: "a.example".into() };
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].1.asks, Asks::Elicitation(host));
    for plain in [
        r#"{"code":-32602,"message":"m"}"#,
        r#"{"code":-32042,"message":"m"}"#,
        r#"{"code":1,"message":"m","data":"elicitations"}"#,
        r#"{"code":1,"message":"m","data":{"method":"x"}}"#,
    ] {
        assert_eq!(outcome_of(legacy(&error(plain))), Ok(Outcome::Error), "{plain}");
    }
    for odd in [
        r#"{"code":-32042,"message":"m","Data":{"elicitations":[]}}"#,
        r#"{"code":-32042,"message":"m","data":{"Elicitations":[]}}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":{}}}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":[1]}}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url"}]}}"#,
    ] {
        assert_eq!(waits(legacy(&error(odd))), client_waits(), "{odd}");
    }
    for (nameless, known) in [
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#, true),
        (r#"{"jsonrpc":"2.0","error":{"code":-32022,"message":"m"}}"#, true),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, false),
        (r#"{"jsonrpc":"2.0","result":{}}"#, false),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, false),
    ] {
        assert_eq!(modern(nameless).is_ok(), known, "{nameless}");
    }
}

#[test]
fn notifications_are_named() {
    let text = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
    };
    for rule in SERVER_METHODS {
        let found = modern(&text(rule.name, r#"{"taskId":"t"}"#));
        if !rule.notification {
            assert_eq!(waits(found), Waits::Nobody, "{}", rule.name);
            continue;
        }
        let Ok(ServerMessage::Notification(notice)) = found else { panic!("{found:?}") };
        assert_eq!(notice.method, Method::Known(rule));
        assert!(notice.requests.is_empty(), "{}", rule.name);
        assert_eq!(notice.task.is_some(), rule.name.starts_with("notifications/tasks"));
    }
    let waiting = text(
        "notifications/tasks",
        r#"{"taskId":"t","status":"input_required","inputRequests":{"a":{"method":"roots/list"}}}"#,
    );
    let Ok(ServerMessage::Notification(notice)) = modern(&waiting) else { panic!("{waiting}") };
    assert_eq!((notice.task.as_deref(), notice.requests.len()), (Some("t"), 1));
    for params in ["{}", r#"{"taskId":1}"#, r#"{"taskId":"t","TaskId":"u"}"#] {
        let refused = legacy(&text("notifications/tasks/status", params));
        assert_eq!(waits(refused), Waits::Nobody, "{params}");
    }
    let Ok(ServerMessage::Notification(notice)) = legacy(&text("notifications/acme", "{}")) else {
        panic!("a vendor's");
    };
    let method = Method::Vendor("notifications/acme".into());
    assert_eq!(notice.method, method);
    assert_eq!(notice.requests, [("".into(), Asked { method, asks: Asks::Plain })]);
}

#[test]
fn what_is_no_single_message_is_refused() {
    let ping = request_text("ping", "{}");
    for (text, expected) in [
        (format!("[{ping}]"), Waits::Nobody),
        ("[]".to_owned(), Waits::Nobody),
        ("1".to_owned(), Waits::Nobody),
        (String::new(), Waits::Nobody),
        (format!("{ping}{ping}"), Waits::Nobody),
        (ping.replace("2.0", "1.0"), server_waits()),
        (ping.replacen('{', r#"{"Method":"x","#, 1), server_waits()),
        (ping.replacen('{', r#"{"result":{},"#, 1), server_waits()),
        (ping.replacen('{', r#"{"method":"roots/list","#, 1), Waits::Nobody),
        (result_text("{}").replacen('{', r#"{"x":1,"#, 1), client_waits()),
        (result_text("{}").replacen('{', r#"{"params":{},"#, 1), client_waits()),
    ] {
        for era in [Era::Legacy, Era::Modern] {
            let refused = decode(text.as_bytes(), era).expect_err(&text);
            assert_eq!(refused.waits, expected, "{text}");
        }
    }
}

#[test]
fn a_look_at_the_keys_tells_what_is_harmless() {
    for (text, may) in [
        (result_text(r#"{"content":[{"type":"text","text":"\"method\": 1 \u00e9 \\"}]}"#), false),
        (result_text(r#"{"content":[{"type":"text","text":"inputRequests"}],"x":"task"}"#), false),
        (result_text(r#"{"métier":1,"caf\u00e9":2}"#), false),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"method not found"}}"#
                .to_owned(),
            false,
        ),
        (request_text("ping", "{}"), true),
        (request_text("ping", "{}").replace("\"method\":", "\"method\" \n\t:"), true),
        (request_text("ping", "{}").replace("method", r"m\u0065thod"), true),
        (request_text("ping", "{}").replace("method", "Method"), true),
        (request_text("ping", "{}").replace("method", r"method\u0000x"), true),
        (result_text(r#"{"ta\u017fk":{}}"#), true),
        (result_text("{\"ta\u{17f}\u{212a}\":{}}"), true),
        (result_text(r#"{"resultType":"complete"}"#), true),
        (result_text(r#"{"INPUTREQUESTS":1}"#), true),
        (r#"{"error":{"data":{"elicitations":[]}}}"#.to_owned(), true),
        (r#"{"a\"":1,"method":2}"#.to_owned(), true),
        (r#"{"a":"\\","method":2}"#.to_owned(), true),
        (r#"{"method":2"#.to_owned(), true),
    ] {
        assert_eq!(may_ask(text.as_bytes()), may, "{text}");
    }
}

/// JSON in which governed names turn up as keys and as texts, in several spellings.
fn document() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "method",
        "m\\u0065thod",
        "Method",
        "result",
        "resultType",
        "inputRequests",
        "task",
        "taskId",
        "requestState",
        "error",
        "data",
        "elicitations",
        "id",
        "jsonrpc",
        "params",
        "x",
        "\\\"",
        "\\\\",
    ]);
    let leaf = prop_oneof![
        name.clone().prop_map(|name| format!("\"{name}\"")),
        Just("7".to_owned()),
        Just("\"2.0\"".to_owned()),
        Just("\"roots/list\"".to_owned()),
        Just("\"input_required\"".to_owned()),
    ];
    let member = move |value: BoxedStrategy<String>| (name.clone(), value);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop::collection::vec(member(inner.boxed()), 0..5).prop_map(|members| {
            let members: Vec<_> =
                members.iter().map(|(name, value)| format!("\"{name}\" :{value}")).collect();
            format!("{{{}}}", members.join(", "))
        })
    })
}

proptest! {
    #[test]
    fn the_look_is_never_wrong_when_it_says_no(
        result in document(),
        era in prop::sample::select(vec![Era::Legacy, Era::Modern]),
    ) {
        let error = format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"data":{result}}}}}"#);
        for text in [result_text(&result), error, result] {
            match decode(text.as_bytes(), era) {
                Ok(ServerMessage::Answer { outcome: Outcome::Complete | Outcome::Error, .. }) => {}
                Ok(_) => prop_assert!(may_ask(text.as_bytes()), "{}", text),
                // Nothing that a reader could act on, or not because of what is governed here.
                Err(_) => {}
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "[\\[\\]{}:,\"\\\\a-z0-9 ]{0,40}") {
        for data in [bytes, text.clone().into_bytes(), result_text(&text).into_bytes()] {
            may_ask(&data);
            drop(decode(&data, Era::Legacy));
            drop(decode(&data, Era::Modern));
        }
    }
}

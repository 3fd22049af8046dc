//! What is exchanged in a message, and that nothing else is.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn text(line: &[u8]) -> &str {
    std::str::from_utf8(line).expect("UTF-8")
}

fn id(literal: &str) -> Id {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{literal},"method":"m"}}"#);
    let document = scan(text.as_bytes()).expect("JSON");
    match crate::protocol::json_rpc::Message::read(&document).expect("a message") {
        crate::protocol::json_rpc::Message::Request { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_gets_a_number_in_two_places() {
    for (body, line, token) in [
        (r#"{"id":1,"method":"m"}"#, r#"{"id":9,"method":"m"}"#, None),
        (
            r#"{"params":{"_meta":{"progressToken":"t"},"id":1},"id":"a","method":"m"}"#,
            r#"{"params":{"_meta":{"progressToken":9},"id":1},"id":9,"method":"m"}"#,
            Some(r#""t""#),
        ),
        (
            r#"{"id":"\u0061","params":{"arguments":{"_meta":{"progressToken":1}},"_meta":{"progressToken":-7}}}"#,
            r#"{"id":9,"params":{"arguments":{"_meta":{"progressToken":1}},"_meta":{"progressToken":9}}}"#,
            Some("-7"),
        ),
        // What is no token is left to the server.
        (
            r#"{"id":1,"params":{"_meta":{"progressToken":null}}}"#,
            r#"{"id":9,"params":{"_meta":{"progressToken":null}}}"#,
            None,
        ),
        ("{\r\n\t\"id\" : 1,\n\"x\":\"\\n\"}", "{  \t\"id\" : 9, \"x\":\"\\n\"}", None),
    ] {
        let numbered = number(body.as_bytes(), 9).expect("a request");
        assert_eq!(text(&numbered.line), format!("{line}\n"));
        assert_eq!(numbered.token.as_deref(), token);
    }
    assert!(number(br#"{"method":"m"}"#, 9).is_err());
}

#[test]
fn a_cancellation_names_the_number() {
    let body = "{\"method\":\"notifications/cancelled\",\n\"params\":{\"requestId\":\"x\",\"reason\":\"r\"}}";
    assert_eq!(cancelled(body.as_bytes()).as_deref(), Some(r#""x""#));
    let line = number_cancelled(body.as_bytes(), 4).expect("a line");
    let expected = body.replace("\"x\"", "4").replace('\n', " ");
    assert_eq!(text(&line), format!("{expected}\n"));
    for body in [r#"{"params":{}}"#, r#"{"params":{"requestId":null}}"#, "{}"] {
        assert_eq!(cancelled(body.as_bytes()), None, "{body}");
    }
}

/// What a process sends, what it counts as without and with sessions, and what the caller gets.
#[test]
fn what_a_process_sends_is_told_apart() {
    let answer = |number, error| Sort::Answer { number, error };
    let question = |id: &str, method: &str| Sort::Question { id: id.into(), method: method.into() };
    for (line, stateless, kind, for_caller) in [
        (
            r#"{"id":9,"result":{"id":9}}"#,
            false,
            answer(Some(9), None),
            r#"{"id":"me","result":{"id":9}}"#,
        ),
        (r#"{"id":"9","result":{}}"#, false, answer(None, None), ""),
        (r#"{"id":null,"error":{"code":-32700}}"#, true, answer(None, Some(-32700)), ""),
        (
            r#"{"id":9,"error":{"code":-32601}}"#,
            true,
            answer(Some(9), Some(-32601)),
            r#"{"id":"me","error":{"code":-32601}}"#,
        ),
        (
            r#"{"id":9,"error":{"code":1e3}}"#,
            true,
            answer(Some(9), Some(0)),
            r#"{"id":"me","error":{"code":1e3}}"#,
        ),
        (
            r#"{"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":"9"}},"id":9}"#,
            true,
            answer(Some(9), None),
            r#"{"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":"me"}},"id":"me"}"#,
        ),
        // In a session this key has no meaning, and another call's number isn't this one's.
        (
            r#"{"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":9}},"id":9}"#,
            false,
            answer(Some(9), None),
            r#"{"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":9}},"id":"me"}"#,
        ),
        (
            r#"{"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":8}},"id":9}"#,
            true,
            answer(Some(9), None),
            r#"{"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":8}},"id":"me"}"#,
        ),
        (
            r#"{"method":"notifications/progress","params":{"progressToken":9,"progress":9}}"#,
            false,
            Sort::About(9),
            r#"{"method":"notifications/progress","params":{"progressToken":"mine","progress":9}}"#,
        ),
        (
            r#"{"method":"notifications/progress","params":{"progressToken":"9"}}"#,
            false,
            Sort::Stray,
            "",
        ),
        (r#"{"method":"notifications/progress"}"#, true, Sort::Stray, ""),
        (
            r#"{"method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":9}}}"#,
            true,
            Sort::About(9),
            r#"{"method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"me"}}}"#,
        ),
        (
            r#"{"method":"notifications/cancelled","params":{"requestId":9}}"#,
            true,
            Sort::About(9),
            r#"{"method":"notifications/cancelled","params":{"requestId":"me"}}"#,
        ),
        // It is a request of the server's that is cancelled here.
        (
            r#"{"method":"notifications/cancelled","params":{"requestId":9}}"#,
            false,
            Sort::Notice,
            "",
        ),
        (r#"{"method":"notifications/message","params":{}}"#, true, Sort::Log, ""),
        (r#"{"method":"notifications/x"}"#, false, Sort::Notice, ""),
        (r#"{"id":9,"method":"ping"}"#, false, question("9", "ping"), ""),
        (r#"{"id":"q","method":"roots/list"}"#, true, question(r#""q""#, "roots/list"), ""),
    ] {
        let sent = read(line.into(), stateless).expect(line);
        assert_eq!(sent.kind, kind, "{line}");
        assert_eq!(text(&sent.as_it_came()), line);
        if !for_caller.is_empty() {
            let told = sent.for_caller(&id(r#""me""#), Some(r#""mine""#));
            assert_eq!(text(&told), for_caller);
        }
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for line in [
        "hello",
        "[]",
        r#"[{"id":1,"result":{}}]"#,
        r#"{"id":1}"#,
        r#"{"id":1,"id":2,"result":{}}"#,
        r#"{"id":{},"method":"m"}"#,
        r#"{"method":7}"#,
        r#"{"id":1,"result":{}} x"#,
        "{\"id\":1,\"result\":\"\u{0}\"}",
    ] {
        assert!(read(line.into(), true).is_err(), "{line}");
    }
    assert!(read(vec![b'{', 0xff, b'}'], true).is_err());
    let deep = format!(r#"{{"id":1,"result":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    assert!(read(deep.into(), true).is_ok());
}

#[test]
fn an_id_keeps_its_spelling() {
    let sent = read(br#"{"id":9,"result":{}}"#.to_vec(), false).expect("an answer");
    for literal in [r#""\u0041""#, "-7", "0", r#""9""#, "9007199254740991"] {
        let told = sent.for_caller(&id(literal), None);
        assert_eq!(text(&told), format!(r#"{{"id":{literal},"result":{{}}}}"#));
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,6}|[\\n\\r\"\\\\]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("id|progressToken|_meta|params|[a-z]{1,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    /// Whatever else is in a request, only its id and its token are exchanged, it is one line, and the
    /// caller gets its own back.
    #[test]
    fn nothing_else_is_exchanged(
        params in anything(),
        token in prop_oneof![Just(json!(0)), Just(json!("t")), Just(json!("9"))],
        pretty in any::<bool>(),
    ) {
        let mut request = json!({
            "jsonrpc": "2.0", "id": "x", "method": "m",
            "params": { "_meta": { "progressToken": token }, "rest": params },
        });
        let body = if pretty { format!("{request:#}") } else { request.to_string() };
        let Numbered { line, token: kept } = number(body.as_bytes(), 9).expect("a request");
        prop_assert_eq!(kept.as_deref(), Some(&*token.to_string()));
        prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let got: Value = serde_json::from_slice(&line).expect("JSON");
        let back = json!({ "method": "notifications/progress", "params": got["params"] });
        request["id"] = json!(9);
        request["params"]["_meta"]["progressToken"] = json!(9);
        prop_assert_eq!(&got, &request);
        // The other way round, as far as a notification has it.
        let progress = json!({
            "method": "notifications/progress",
            "params": { "progressToken": 9, "rest": back["params"]["rest"] },
        });
        let sent = read(progress.to_string().into_bytes(), true).expect("a notification");
        let told = sent.for_caller(&id("1"), kept.as_deref());
        let told: Value = serde_json::from_slice(&told).expect("JSON");
        prop_assert_eq!(&told["params"]["progressToken"], &token);
        prop_assert_eq!(&told["params"]["rest"], &request["params"]["rest"]);
    }
}

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Looks at a text in parts of at most `size` bytes.
fn look(text: &[u8], size: usize) -> Result<(), Unreadable> {
    let mut look = Look::default();
    text.chunks(size).try_for_each(|part| look.at(part))
}

/// The same answer however the text is cut.
fn passes(text: impl AsRef<[u8]>) -> bool {
    let text = text.as_ref();
    let whole = look(text, text.len().max(1)).is_ok();
    for size in 1..text.len().min(40) {
        assert_eq!(look(text, size).is_ok(), whole, "parts of {size}");
    }
    whole
}

#[test]
fn what_asks_nothing_passes() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"method":"x","a":[{"method":1}]}}"#,
        r#"{"jsonrpc":"2.0","id":"method","result":"\"method\":1"}"#,
        r#" {"id":"\\","result":{"text":"\u006d \n [{"},"error":null}"#,
        r#"{"result":{"structuredContent":{"method":1,"task":2,"\u00e9":3,"é":4,"elicitations":5}}}"#,
        r#"{"result":{"content":["task","requestState",{"taskId":"t"}],"x":"taskId"}}"#,
        r#"{"error":{"code":-32602,"message":"method","data":{"task":1,"result":2}}}"#,
        r#"{"error":{"data":{"data":{"elicitations":[]}}},"result":{"data":{"elicitations":1}}}"#,
        "\u{feff}\n{\"result\":{}}\r\n ",
        r#"{"methods":1,"metho":2,"amethod":3,"":4,"tasks":5}"#,
        "{}",
        "",
        "<html>method</html>",
        "\"method\"",
        "12 method",
        "not found",
    ] {
        assert!(passes(text), "{text}");
    }
}

#[test]
fn what_could_ask_something_does_not() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
        r#"{"result":{"a":[1,{"b":"}"}]},"method":"x"}"#,
        r#"{"Method":"x"}"#,
        r#"{"metho\u0064":"x"}"#,
        r#"{"\u006detho\u0064":"x"}"#,
        "{\"re\u{17f}ult\":{}}",
        "\t\u{feff}{ \"method\" : 1}",
        r#"{"result":{"resultType":"input_required","inputRequests":{}}}"#,
        r#"{"id":1,"Result":{"x":[{}],"requestState":"s"}}"#,
        r#"{"result":{"resultType":"task","taskId":"t"}}"#,
        r#"{"result":{"_meta":{"x":1},"TASK":{"taskId":"t"}}}"#,
        r#"{"result":{"task\u0049d":"t"}}"#,
        r#"{"error":{"code":-32042,"data":{"a":[],"elicitations":[]}}}"#,
        "[]",
        " [{\"id\":1,\"method\":\"x\"}]",
        "{}{\"method\":1}",
        "{\"result\":{}}\n[{\"method\":1}]",
        "{method:1}",
        "{'method':1}",
        "{/*\"*/\"method\":1}",
        "// a\n{\"method\":1}",
    ] {
        assert!(!passes(text), "{text}");
    }
    let text = r#"{"id":1,"method":"x"}"#;
    let wide = |unit: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
    for mark in [&b""[..], b"\xfe\xff", b"\xff\xfe", b" \0", b"\0 "] {
        for body in [wide(u16::to_be_bytes), wide(u16::to_le_bytes)] {
            assert!(!passes([mark, &body].concat()), "{mark:?}");
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("method".to_owned()),
        Just("a\"method\":\\".to_owned()),
        "[a-z\"\\\\{}\\[\\],:é\u{1}]{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(text.clone(), inner, 0..5)
                .prop_map(|members| json!(members)),
        ]
    })
}

proptest! {
    #[test]
    fn a_message_is_refused_exactly_if_it_has_a_method(
        members in prop::collection::vec(("[a-z]{1,8}|method", value()), 0..5),
        pretty in any::<bool>(),
        size in 1..90usize,
    ) {
        let message: serde_json::Map<String, Value> = members.into_iter().collect();
        let asks = message.contains_key("method");
        let text = if pretty {
            serde_json::to_vec_pretty(&message)
        } else {
            serde_json::to_vec(&message)
        };
        let text = text.expect("JSON");
        prop_assert_eq!(look(&text, size).is_err(), asks);
        prop_assert_eq!(look(&text, text.len()).is_err(), asks);
    }
}

use super::{Message, Refused};
use crate::protocol::{
    Fault,
    json::{Limits, scan},
};

type Outcome = Result<(&'static str, Option<String>), (Fault, Option<String>)>;

/// What became of a message: its shape and its id.
fn read(text: &str) -> Outcome {
    let document = scan(text.as_bytes(), Limits::default()).expect(text);
    match Message::read(&document) {
        Ok(Message::Request { id, .. }) => Ok(("request", Some(id.as_json().to_owned()))),
        Ok(Message::Notification { .. }) => Ok(("notification", None)),
        Ok(Message::Response { id, .. }) => Ok(("response", id.map(|id| id.as_json().to_owned()))),
        Err(Refused { fault, id, .. }) => Err((fault, id.map(|id| id.as_json().to_owned()))),
    }
}

#[test]
fn ids_keep_type_and_value() {
    for id in [
        "1",
        "0",
        "-1",
        "9007199254740991",
        "-9007199254740991",
        r#""1""#,
        r#""""#,
        r#""é""#,
        r#""\u00e9""#,
        r#"" ""#,
        r#""9007199254740993""#,
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(read(&text), Ok(("request", Some(id.to_owned()))), "{id}");
    }
}

#[test]
fn odd_ids_are_refused() {
    for id in [
        "null",
        "true",
        "false",
        "{}",
        "[1]",
        "[]",
        "1.5",
        "1.0",
        "1e2",
        "1E2",
        "0.0",
        "-0",
        "1e0",
        "9007199254740992",
        "-9007199254740992",
        "9007199254740993",
        "12345678901234567890123",
        "1e400",
    ] {
        for rest in [r#""method":"ping""#, r#""result":{}"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#);
            assert_eq!(read(&text), Err((Fault::Invalid, None)), "{text}");
        }
    }
}

#[test]
fn batches_are_refused() {
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe"}}"#;
    for text in [
        "[]".to_owned(),
        format!("[{one}]"),
        format!(" \n\t[{one}]"),
        format!("[{one},{one}]"),
        "[1]".to_owned(),
    ] {
        assert_eq!(read(&text), Err((Fault::Invalid, None)), "{text}");
    }
}

#[test]
fn envelopes() {
    let one = || Some("1".to_owned());
    let invalid = |id| Err((Fault::Invalid, id));
    for (text, expected) in [
        (r#"{"jsonrpc":"2.0","method":"m"}"#, Ok(("notification", None))),
        (r#"{"jsonrpc":"2.0","method":"m","params":{}}"#, Ok(("notification", None))),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, Ok(("request", one()))),
        (r#"{"\u006aso\u006erpc":"2.\u0030","id":1,"method":"m"}"#, Ok(("request", one()))),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, Ok(("response", one()))),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#, Ok(("response", one()))),
        (r#"{"id":1,"method":"m"}"#, invalid(one())),
        (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, invalid(one())),
        (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, invalid(one())),
        (r#"{"jsonrpc":null,"id":1,"method":"m"}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","error":{}}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"params":{}}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","result":{}}"#, invalid(None)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","extra":1}"#, invalid(one())),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}"#, Err((Fault::Params, one()))),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, Err((Fault::Params, one()))),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#, Err((Fault::Params, one()))),
        ("{}", invalid(None)),
        ("1", invalid(None)),
        ("null", invalid(None)),
        ("\"x\"", invalid(None)),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn variants_of_envelope_members_are_refused() {
    for key in ["Method", "METHOD", "method\\u0000", "param\u{17f}", "Params", "ID", "re\u{17f}ult"]
    {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","{key}":{{}}}}"#);
        assert_eq!(read(&text), Err((Fault::Invalid, Some("1".to_owned()))), "{key}");
    }
}

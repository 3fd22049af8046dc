//! What is read from a body, in both eras.

use super::{CALL, Forwarded, JSON, LEGACY, META, MODERN, Refused, Row, judge};

const PARSE: i64 = -32700;
const INVALID: i64 = -32600;
const PARAMS: i64 = -32602;

#[tokio::test]
async fn keys_that_occur_twice_are_refused() {
    let rows = [
        (
            "name",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{},"name":"wipe",$M}}"#,
        ),
        (
            "an escaped name",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","na\u006de":"wipe",$M}}"#,
        ),
        (
            "the same name",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","name":"echo",$M}}"#,
        ),
        (
            "method",
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"echo",$M}}"#,
        ),
        (
            "an escaped method",
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","m\u0065thod":"tools/call","params":{"name":"echo",$M}}"#,
        ),
        (
            "params",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"params":{"name":"wipe",$M}}"#,
        ),
        (
            "id",
            r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"tools/call","params":{"name":"echo",$M}}"#,
        ),
        (
            "jsonrpc",
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M}}"#,
        ),
        (
            "in the arguments",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":[{"b":1,"b":2}]},$M}}"#,
        ),
        (
            "_meta",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","_meta":{},$M,"_meta":{}}}"#,
        ),
        (
            "in _meta",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M,"x":{"a":1,"\u0061":2}}}"#,
        ),
    ];
    let refused = Refused(400, INVALID, "null");
    judge(rows.iter().flat_map(|(name, body)| Row::both(name, body, refused)).collect()).await;
}

#[tokio::test]
async fn other_spellings_of_governed_keys_are_refused() {
    let params = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params},$M}}}}"#)
    };
    let in_params = [
        r#""name":"echo","Name":"wipe""#,
        r#""Name":"echo""#,
        r#""name":"echo","NAME":"wipe""#,
        r#""name":"echo","name\u0000":"wipe""#,
        r#""name":"echo","na\u200bme":"wipe""#,
        r#""name":"echo","argument\u017f":{}"#,
        r#""name":"echo","ta\u017f\u212a":{}"#,
        r#""name":"echo","Arguments":{}"#,
        r#""name":"echo","_META":{}"#,
    ];
    let envelopes = [
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","Method":"ping","params":{"name":"echo",$M}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"Params":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"param\u017f":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"params\u0000":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"ID":8}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"extra":1}"#,
    ];
    let refused = Refused(400, INVALID, "7");
    let rows = in_params.iter().map(|text| (*text, params(text)));
    let rows = rows.chain(envelopes.iter().map(|text| (*text, (*text).to_owned())));
    judge(rows.flat_map(|(name, body)| Row::both(name, &body, refused)).collect()).await;
}

#[tokio::test]
async fn what_is_no_single_message_is_refused() {
    let entry = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe","arguments":{},$M}}"#;
    let allowed = CALL;
    let null = |code| Refused(400, code, "null");
    let rows = [
        ("a batch of one", format!("[{entry}]"), null(INVALID)),
        ("an empty batch", "[]".into(), null(INVALID)),
        ("a batch after white space", format!(" \r\n\t[{entry}]"), null(INVALID)),
        ("a batch with an allowed call", format!("[{allowed},{entry}]"), null(INVALID)),
        ("a batch of allowed calls", format!("[{allowed},{allowed}]"), null(INVALID)),
        ("a broken batch", format!("[{entry}"), null(PARSE)),
        ("a string", "\"tools/call\"".into(), null(INVALID)),
        ("null", "null".into(), null(INVALID)),
        ("nothing", String::new(), null(PARSE)),
        ("white space", " \n".into(), null(PARSE)),
        ("a brace", "{".into(), null(PARSE)),
        ("trailing text", format!("{CALL} x"), null(PARSE)),
        ("two messages", format!("{CALL}\n{CALL}"), null(PARSE)),
        ("a comment", format!("{CALL}// x"), null(PARSE)),
        ("a trailing comma", CALL.replace("$M}", "$M,}"), null(PARSE)),
        ("a byte order mark", format!("\u{feff}{CALL}"), null(PARSE)),
        ("a form", "id=1&method=ping".into(), null(PARSE)),
        ("NaN", CALL.replace("\"echo\"", "\"echo\",\"arguments\":{\"a\":NaN}"), null(PARSE)),
        ("a leading zero", CALL.replace("7", "07"), null(PARSE)),
        ("a raw control character", CALL.replace("echo", "ec\tho"), null(PARSE)),
        ("a lone surrogate", CALL.replace("echo", r"\ud800"), null(INVALID)),
        (
            "a lone surrogate in a key",
            CALL.replace("\"name\"", r#""x\udc00":1,"name""#),
            null(INVALID),
        ),
        (
            "too deep",
            CALL.replace(
                "\"echo\"",
                &format!("\"echo\",\"a\":{}{}", "[".repeat(80), "]".repeat(80)),
            ),
            null(INVALID),
        ),
        ("100,000 levels", "[".repeat(100_000), null(INVALID)),
    ];
    let mut all: Vec<Row> =
        rows.iter().flat_map(|(name, body, expect)| Row::both(name, body, *expect)).collect();
    let bytes =
        |name, encode: fn(&str) -> Vec<u8>| Row::both_as(name, "", CALL, null(PARSE), encode);
    all.extend(bytes("invalid UTF-8", |body| {
        body.replace("echo", "ec\u{1}ho")
            .bytes()
            .map(|byte| if byte == 1 { 0xff } else { byte })
            .collect()
    }));
    all.extend(bytes("overlong UTF-8", |body| {
        let (before, after) = body.split_once("echo").expect("a name");
        [before.as_bytes(), b"\xc1\xa5cho", after.as_bytes()].concat()
    }));
    all.extend(bytes("UTF-16, little-endian", |body| {
        body.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }));
    all.extend(bytes("UTF-16, big-endian", |body| {
        body.encode_utf16().flat_map(u16::to_be_bytes).collect()
    }));
    all.extend(bytes("NUL at the end", |body| format!("{body}\0").into_bytes()));
    judge(all).await;
}

#[tokio::test]
async fn envelopes_that_can_be_read_in_two_ways_are_refused() {
    let invalid = Refused(400, INVALID, "7");
    let rows = [
        ("no jsonrpc", r#"{"id":7,"method":"tools/call","params":{"name":"echo",$M}}"#, invalid),
        (
            "jsonrpc 1.0",
            r#"{"jsonrpc":"1.0","id":7,"method":"tools/call","params":{"name":"echo",$M}}"#,
            invalid,
        ),
        (
            "jsonrpc as number",
            r#"{"jsonrpc":2.0,"id":7,"method":"tools/call","params":{"name":"echo",$M}}"#,
            invalid,
        ),
        (
            "a method that is no string",
            r#"{"jsonrpc":"2.0","id":7,"method":5,"params":{"name":"echo",$M}}"#,
            invalid,
        ),
        ("no method", r#"{"jsonrpc":"2.0","id":7,"params":{"name":"echo",$M}}"#, invalid),
        (
            "method and result",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"result":{}}"#,
            invalid,
        ),
        (
            "method and error",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",$M},"error":{}}"#,
            invalid,
        ),
        ("result and error", r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#, invalid),
        (
            "params that are a string",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"x"}"#,
            Refused(400, PARAMS, "7"),
        ),
        (
            "params that are a list",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":["echo"]}"#,
            Refused(400, PARAMS, "7"),
        ),
        (
            "a call without an id",
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo",$M}}"#,
            Refused(400, INVALID, ""),
        ),
    ];
    let mut all: Vec<Row> =
        rows.iter().flat_map(|(name, body, expect)| Row::both(name, body, *expect)).collect();
    for id in [
        "null",
        "true",
        "[1]",
        "{}",
        "1.5",
        "1.0",
        "1e2",
        "-0",
        "9007199254740992",
        "-9007199254740993",
    ] {
        let body = CALL.replace("\"id\":7", &format!("\"id\":{id}"));
        all.extend(Row::both(&format!("id {id}"), &body, Refused(400, INVALID, "null")));
    }
    judge(all).await;
}

#[tokio::test]
async fn parameters_have_to_say_what_is_touched() {
    let legacy = [
        ("tools/call", "{}"),
        ("tools/call", r#"{"name":1}"#),
        ("tools/call", r#"{"name":["echo"]}"#),
        ("tools/call", r#"{"name":"echo","arguments":[]}"#),
        ("tools/call", r#"{"name":"echo","arguments":"{}"}"#),
        ("tools/call", r#"{"name":"echo","_meta":1}"#),
        ("prompts/get", "{}"),
        ("resources/read", r#"{"uri":null}"#),
        ("tasks/get", r#"{"task":"t"}"#),
        ("completion/complete", r#"{"ref":{"type":"ref/other","name":"x"}}"#),
    ];
    let rows = legacy.iter().map(|(method, params)| {
        let body = crate::site::request(method, params);
        Row::new(&body, &format!("{JSON}{LEGACY}"), &*body, Refused(400, PARAMS, "7"))
    });
    judge(rows.collect()).await;
}

#[tokio::test]
async fn what_is_forwarded_is_what_was_sent() {
    let with =
        |arguments: &str| CALL.replace("\"echo\"", &format!("\"echo\",\"arguments\":{arguments}"));
    let mut rows = vec![
        ("an escaped value", CALL.replace("echo", r"ech\u006f")),
        ("an escaped key", CALL.replace("\"name\"", r#""n\u0061me""#)),
        ("an escaped method", CALL.replace("tools/call", r"tools\/c\u0061ll")),
        ("white space around", format!(" \r\n\t{CALL}\n\n")),
        ("white space inside", CALL.replace(':', " :\n ")),
        (
            "another order",
            r#"{"params":{$M,"name":"echo"},"method":"tools/call","id":7,"jsonrpc":"2.0"}"#.into(),
        ),
        ("unknown members of params", CALL.replace("\"echo\"", r#""echo","future":{"a":[1]}"#)),
        (
            "numbers that no double holds",
            with(
                r#"{"n":9223372036854775807,"m":12345678901234567890123,"f":1.0,"e":1E400,"z":-0.0}"#,
            ),
        ),
        (
            "what looks like an entity",
            with(r#"{"__entity":{"type":"Agent","id":"admin"},"__extn":{"fn":"ip","arg":"::1"}}"#),
        ),
        ("null and fractions", with(r#"{"a":null,"b":1e0,"c":0.1}"#)),
        ("line separators", with("{\"a\":\"\u{2028}\u{2029}\\u2028\"}")),
        ("two normal forms", with("{\"caf\u{e9}\":1,\"cafe\u{301}\":2}")),
        ("astral characters", with("{\"a\":\"\u{1f600}\\ud83d\\ude00\"}")),
        ("progress token 0", CALL.replace("\"echo\"", r#""echo","arguments":{}"#)),
    ];
    for id in ["\"7\"", "0", "-1", "\"\"", "\"é\"", "\"\\u00e9\"", "9007199254740991", "\"r-1\""] {
        rows.push(("an id", CALL.replace("\"id\":7", &format!("\"id\":{id}"))));
    }
    let mut all: Vec<Row> =
        rows.iter().flat_map(|(name, body)| Row::both(name, body, Forwarded)).collect();
    // Tokens and the traces of others are no business of Lictor's (SEP-414).
    for token in ["0", "\"\"", "9223372036854775807", "\"p-1\""] {
        let more = format!(
            r#""progressToken":{token},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","vendor.example/x":{{"k":[1]}}"#
        );
        let legacy = CALL.replace("$M", &format!(r#""_meta":{{{more}}}"#));
        all.push(Row::new(
            &format!("legacy: token {token}"),
            &format!("{JSON}{LEGACY}"),
            legacy,
            Forwarded,
        ));
        let meta = META.replacen("{}}", &format!("{{}},{more}}}"), 1);
        let modern = CALL.replace("$M", &meta);
        let headers = format!("{JSON}{MODERN}{}", super::ECHO);
        all.push(Row::new(&format!("modern: token {token}"), &headers, modern, Forwarded));
    }
    judge(all).await;
}

/// A name as JSON, as `Mcp-Name` and as the ledger has it.
const NAMES: &[(&str, &str, &str)] = &[
    ("wipe", "wipe", "wipe"),
    ("Wipe", "Wipe", "Wipe"),
    ("WIPE", "WIPE", "WIPE"),
    ("wipe ", "=?base64?d2lwZSA=?=", r"wipe\u{20}"),
    (r"wipe\t", "=?base64?d2lwZQk=?=", r"wipe\u{9}"),
    (r"wipe\u0000", "=?base64?d2lwZQA=?=", r"wipe\u{0}"),
    (r"w\u0456pe", "=?base64?d9GWcGU=?=", r"w\u{456}pe"),
    ("w\u{456}pe", "=?base64?d9GWcGU=?=", r"w\u{456}pe"),
    (r"ec\u200bho", "=?base64?ZWPigItobw==?=", r"ec\u{200b}ho"),
    ("\u{fb01}nd", "=?base64?76yBbmQ=?=", r"\u{fb01}nd"),
    ("caf\u{e9}", "=?base64?Y2Fmw6k=?=", r"caf\u{e9}"),
    ("cafe\u{301}", "=?base64?Y2FmZcyB?=", r"cafe\u{301}"),
    (" echo", "=?base64?IGVjaG8=?=", r"\u{20}echo"),
    ("Echo", "Echo", "Echo"),
    ("files/echo", "files/echo", "files/echo"),
    ("../echo", "../echo", "../echo"),
    ("", "", ""),
    ("nonesuch", "nonesuch", "nonesuch"),
];

#[tokio::test]
async fn names_match_byte_for_byte() {
    let refused = Refused(200, 4030, "7");
    let rows = NAMES.iter().flat_map(|(literal, mirrored, _)| {
        let body = CALL.replace("echo", literal);
        let headers = format!("{JSON}{MODERN}Mcp-Method: tools/call\r\nMcp-Name: {mirrored}\r\n");
        [
            Row::new(
                &format!("legacy: {literal}"),
                &format!("{JSON}{LEGACY}"),
                body.replace(",$M", ""),
                refused,
            ),
            Row::new(&format!("modern: {literal}"), &headers, body.replace("$M", META), refused),
        ]
    });
    let closings = judge(rows.collect()).await;
    for (literal, _, recorded) in NAMES {
        let here = closings.iter().filter(|entry| entry["target"] == **recorded);
        let twice = if literal.contains("456") || literal.contains('\u{456}') { 4 } else { 2 };
        assert_eq!(here.count(), twice, "{literal}");
    }
}

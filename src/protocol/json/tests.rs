use proptest::prelude::*;
use serde_json::Value as Tree;
use sha2::{Digest as _, Sha256};

use super::{Kind, Limits, ScanError, Value, scan, scan_and_digest};

mod reference;

fn check(text: &[u8]) -> Result<(), ScanError> {
    scan(text, Limits::default()).map(drop)
}

#[test]
fn the_grammar_is_rfc_8259() {
    for text in [
        "{}",
        "[]",
        "0",
        "-0",
        "1",
        "-1",
        "10",
        "0.5",
        "1e5",
        "1E+5",
        "1.5e-10",
        "true",
        "false",
        "null",
        "\"\"",
        "\"a\"",
        "[1,2]",
        "[[],{}]",
        "{\"a\":1,\"b\":[{}]}",
        " \t\r\n{ \"a\" : [ 1 , 2 ] } \n",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
        "\"\u{7f}\u{e9}\u{1f600}\"",
        "\"\\ud83d\\ude00\"",
        "\"\\u0000\"",
    ] {
        assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
    }
    for text in [
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{,}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"\\U0041\"",
        "\"\t\"",
        "\"\n\"",
        "\"\0\"",
        "\"\u{1f}\"",
        "tru",
        "True",
        "nul",
        "nulL",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "-a",
        "0x10",
        "\u{a0}1",
        "/**/1",
        "[1]//",
        "[1}",
        "{\"a\":1]",
        "\u{b}1",
        "\u{c}1",
    ] {
        let error = check(text.as_bytes()).expect_err(text);
        assert!(error.is_malformed(), "{text}: {error}");
    }
}

#[test]
fn leading_zeros_are_refused() {
    for text in ["00", "01", "-01", "[01]", "{\"a\":007}"] {
        let error = check(text.as_bytes()).expect_err(text);
        assert!(error.is_malformed(), "{text}");
    }
}

#[test]
fn trailing_data_is_refused() {
    for (text, at) in [("{} x", 3), ("{}{}", 2), ("1 2", 2), ("{}\0", 2), ("[]]", 2), ("\"a\"b", 3)]
    {
        assert_eq!(check(text.as_bytes()), Err(ScanError::Trailing(at)), "{text}");
    }
    assert_eq!(check(b"{} \r\n\t "), Ok(()));
}

#[test]
fn duplicate_keys_are_refused() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#"{"\u0061":1,"a":1}"#,
        r#"{"\u0061":1,"\u0061":1}"#,
        r#"{"na\u006de":1,"name":2}"#,
        r#"{"\/":1,"/":2}"#,
        r#"{"😀":1,"\ud83d\uDE00":2}"#,
        r#"{"":1,"":2}"#,
        r#"{"a":1,"b":{"x":[{"c":1,"d":2,"c":3}]}}"#,
        r#"[{"a":{"b":1}},{"a":{"b":1,"b":1}}]"#,
        r#"{"a":{"a":1},"b":2,"a":3}"#,
    ] {
        let error = check(text.as_bytes()).expect_err(text);
        assert!(matches!(error, ScanError::DuplicateKey(_)), "{text}: {error}");
        assert!(!error.is_malformed());
    }
    for text in [
        r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#,
        r#"[{"a":1},{"a":1}]"#,
        r#"{"a":1,"A":1,"a ":1,"\u0061\u0000":1}"#,
        r#"{"12345678":1,"123456789":1,"1234567":1}"#,
        // The same bytes before decoding, different ones after it.
        r#"{"\\u0061":1,"a":1,"\\\u0061":2}"#,
    ] {
        assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
    }
}

#[test]
fn duplicate_keys_are_found_among_many() {
    for count in [1, 2, 6, 7, 8, 9, 10, 16, 17, 200] {
        let keys: Vec<String> = (0..count).map(|key| format!("\"key{key}\":{{\"x\":1}}")).collect();
        assert_eq!(check(format!("{{{}}}", keys.join(",")).as_bytes()), Ok(()), "{count}");
        for twice in 0..count {
            let text = format!("{{{},\"\\u006bey{twice}\":0}}", keys.join(","));
            let error = check(text.as_bytes()).expect_err("duplicate");
            assert!(matches!(error, ScanError::DuplicateKey(_)), "{count} {twice}: {error}");
        }
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert_eq!(check(&nested(64)), Ok(()));
    assert_eq!(check(&nested(65)), Err(ScanError::Depth(64)));
    assert_eq!(check(&b"[".repeat(100_000)), Err(ScanError::Depth(64)));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    assert_eq!(check(objects(64).as_bytes()), Ok(()));
    assert!(matches!(check(objects(65).as_bytes()), Err(ScanError::Depth(_))));
    let limits = Limits { depth: usize::MAX };
    assert!(scan(&nested(256), limits).is_ok());
    assert!(matches!(scan(&b"[".repeat(1 << 20), limits), Err(ScanError::Depth(256))));
}

#[test]
fn lone_surrogates_are_refused() {
    for text in [
        r#""\ud800""#,
        r#""\udfff""#,
        r#""\ud83d\ud83d""#,
        r#""\ud83dx""#,
        r#""\ud83d\n""#,
        r#""\ude00\ud83d""#,
        r#"{"\uD800":1}"#,
        r#""\ud83d\u0041""#,
    ] {
        let error = check(text.as_bytes()).expect_err(text);
        assert!(matches!(error, ScanError::LoneSurrogate(_)), "{text}: {error}");
    }
}

#[test]
fn other_encodings_are_refused() {
    assert_eq!(check(b"\xef\xbb\xbf{}"), Err(ScanError::ByteOrderMark));
    assert_eq!(check(b"{\"a\":\"\xff\"}"), Err(ScanError::Utf8(6)));
    assert_eq!(check(b"\"\xed\xa0\x80\""), Err(ScanError::Utf8(1)));
    assert_eq!(check(b"\"\xc0\x80\""), Err(ScanError::Utf8(1)));
    let wide: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(check(&wide).expect_err("UTF-16").is_malformed());
    let marked: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert!(check(&marked).expect_err("UTF-16").is_malformed());
}

#[test]
fn special_bytes_are_found_at_every_offset() {
    for length in 0..200 {
        let plain = "x".repeat(length);
        assert_eq!(check(format!("\"{plain}\"").as_bytes()), Ok(()), "{length}");
        for at in 0..length {
            for byte in [b'"', b'\\', b'\n', 0, 0x1f] {
                let mut text = format!("\"{plain}\"").into_bytes();
                text[at + 1] = byte;
                assert!(check(&text).is_err() || byte == b'\\', "{length} {at} {byte}");
            }
            let mut text = format!("\"{plain}\"").into_bytes();
            text[at + 1] = 0x7f;
            assert_eq!(check(&text), Ok(()), "{length} {at}");
        }
    }
}

#[test]
fn numbers_stay_tokens() {
    let text =
        r#"{"n":9223372036854775807,"m":12345678901234567890123,"f":1.0,"e":1E400,"z":-0.0}"#;
    let document = scan(text.as_bytes(), Limits::default()).expect("valid");
    let tokens: Vec<_> =
        document.root().members().filter_map(|member| member.value.as_number()).collect();
    assert_eq!(tokens, ["9223372036854775807", "12345678901234567890123", "1.0", "1E400", "-0.0"]);
}

#[test]
fn the_cursor_gives_spans_of_the_original_bytes() {
    let text = br#" { "a\u0062" : [ 1 , {"x":"}]\"" } ,true ] , "c":null} "#;
    let document = scan(text, Limits::default()).expect("valid");
    let root = document.root();
    let members: Vec<_> = root.members().collect();
    assert_eq!(members.len(), 2);
    assert_eq!(members[0].name, "ab");
    assert_eq!(&text[members[0].key_span.clone()], br#""a\u0062""#);
    let elements: Vec<_> = members[0].value.elements().map(Value::raw).collect();
    assert_eq!(elements, [&b"1"[..], br#"{"x":"}]\"" }"#, b"true"]);
    assert_eq!(members[1].value.kind(), Kind::Null);
    assert_eq!(root.member("c").map(Value::raw), Some(&b"null"[..]));
    assert!(root.member("a").is_none());
    assert_eq!(root.raw(), text.trim_ascii());
    assert!(members[1].value.members().next().is_none());
    assert!(root.elements().next().is_none());
    assert_eq!(format!("{:?}", members[1].value), format!("Null@{:?}", members[1].value.span()));
}

#[test]
fn a_cursor_on_other_bytes_stays_in_bounds() {
    let text =
        br#"{"a":[1,2,{"b":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"}]}"#;
    let index = scan(text, Limits::default()).expect("valid").into_index();
    for other in [&b""[..], b"{", b"[[[[[[", b"\"\\", b"{\"a\":\"", b"{\"\xff\":tru", text] {
        for start in 0..text.len() + 2 {
            drop(to_tree(index.value(other, start)));
        }
    }
}

/// Rebuilds a tree, reading everything the cursor offers; `None` where a number has no `f64`.
fn to_tree(value: Value<'_>) -> Option<Tree> {
    Some(match value.kind() {
        Kind::Null => Tree::Null,
        Kind::Bool => Tree::Bool(value.as_bool()?),
        Kind::Number => serde_json::from_str(value.as_number()?).ok()?,
        Kind::String => Tree::String(value.as_str()?.into_owned()),
        Kind::Array => Tree::Array(value.elements().map(to_tree).collect::<Option<_>>()?),
        Kind::Object => Tree::Object(
            value
                .members()
                .map(|member| Some((member.name.into_owned(), to_tree(member.value)?)))
                .collect::<Option<_>>()?,
        ),
    })
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::from),
        any::<i64>().prop_map(Tree::from),
        any::<f64>().prop_map(Tree::from),
        any::<String>().prop_map(Tree::from),
        "[a-z\"\\\\\n]{0,80}".prop_map(Tree::from),
    ];
    leaf.prop_recursive(5, 64, 24, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..24).prop_map(Tree::from),
            prop::collection::vec(("[a-z\\\\\"é]{0,12}", inner), 0..24)
                .prop_map(|members| Tree::Object(members.into_iter().collect())),
        ]
    })
}

/// Text that is nearly JSON: pieces of it in any order.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\"a\"",
        "\"\\u0061\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "1",
        "-",
        "0",
        ".",
        "e",
        "1e400",
        "true",
        "null",
        " ",
        "\n",
        "{\"a\":",
        "\"b\":1",
        "é",
        "\0",
        "{\"a\":1,",
        "}]",
        "\"\\u006",
        "u",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn agree(text: &[u8]) -> Result<(), TestCaseError> {
    match (scan(text, Limits::default()), scan_and_digest(text, Limits::default())) {
        (Ok(_), Ok(document)) => {
            let digest: [u8; 32] = Sha256::digest(text).into();
            prop_assert_eq!(document.into_index().digest(), Some(digest));
        }
        (Err(error), Err(digested)) => prop_assert_eq!(error, digested),
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => prop_assert!(false, "{}", error),
    }
    let theirs: Result<Tree, _> = serde_json::from_slice(text);
    match (scan(text, Limits::default()), theirs) {
        (Ok(document), Ok(tree)) => prop_assert_eq!(to_tree(document.root()), Some(tree)),
        (Ok(document), Err(error)) => {
            // The one thing we take and they don't: numbers without an `f64`.
            prop_assert!(error.to_string().contains("number out of range"), "{}", error);
            prop_assert_eq!(to_tree(document.root()), None);
        }
        (Err(error), Ok(_)) => {
            let refused_json = matches!(error, ScanError::DuplicateKey(_) | ScanError::Depth(_));
            prop_assert!(refused_json, "{}", error);
        }
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_cursor_agrees_with_serde_json(tree in trees(), pretty: bool) {
        let text = if pretty { format!("{tree:#}") } else { tree.to_string() };
        let document = scan(text.as_bytes(), Limits::default()).expect("serialised JSON");
        // Parsed again, because serde_json's own printing and reading of floats may differ in a
        // bit.
        prop_assert_eq!(to_tree(document.root()), serde_json::from_str::<Tree>(&text).ok());
    }

    #[test]
    fn the_scanner_agrees_with_serde_json_on_near_json(text in nearly_json()) {
        agree(text.as_bytes())?;
    }

    #[test]
    fn the_scanner_agrees_with_serde_json_on_mutations(
        tree in trees(),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut text = tree.to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        agree(&text)?;
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>) {
        agree(&bytes)?;
    }

    #[test]
    fn repeated_keys_never_pass(
        mut keys in prop::collection::vec("[a-c]{0,3}", 2..40),
        escape: prop::sample::Index,
    ) {
        let unique = keys.iter().collect::<std::collections::HashSet<_>>().len();
        let repeated = unique != keys.len();
        let escaped = escape.index(keys.len());
        keys[escaped] =
            keys[escaped].bytes().map(|byte| format!("\\u{byte:04x}")).collect::<String>();
        let members: Vec<_> = keys.iter().map(|key| format!("\"{key}\":0")).collect();
        let text = format!("{{{}}}", members.join(","));
        let outcome = check(text.as_bytes());
        prop_assert_eq!(matches!(outcome, Err(ScanError::DuplicateKey(_))), repeated);
    }
}

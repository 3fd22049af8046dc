//! What holds for any change to a file.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Something that a file could hold anywhere.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!("30s")),
        Just(json!("4MiB")),
        Just(json!("mcp")),
        Just(json!("none")),
        Just(json!("127.0.0.1:1")),
        Just(json!("https://example.org/")),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}|name|bind|tls|url", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Pointers to all values below `value`.
fn pointers(value: &Value, here: &str, all: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, inner)| (key.clone(), inner)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, inner)| (index.to_string(), inner)).collect()
        }
        _ => vec![],
    };
    for (key, inner) in inner {
        let pointer = format!("{here}/{key}");
        pointers(inner, &pointer, all);
        all.push(pointer);
    }
}

/// A case takes some ten milliseconds.
fn few() -> ProptestConfig {
    ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(few())]

    /// Wherever something else stands, the file is read without a panic; it is either refused with
    /// a fault that can be told, or means the same each time.
    #[test]
    fn a_file_is_refused_with_faults_or_understood(
        at in any::<prop::sample::Index>(),
        value in anything(),
    ) {
        let folder = folder();
        let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
        let mut all = Vec::new();
        pointers(&page, "", &mut all);
        let pointer: &String = at.get(&all);
        *page.pointer_mut(pointer).expect("a place") = value;
        let text = page.to_string();
        let read = parse(&text, folder.path());
        if let Err(faults) = &read {
            prop_assert!(!faults.is_empty());
            for fault in faults.iter() {
                prop_assert!(!fault.problem.is_empty());
                prop_assert!(!fault.to_string().contains("$defs"), "{fault}");
            }
        }
        prop_assert_eq!(read, parse(&text, folder.path()));
    }

    /// Any text is either YAML of the right form or refused.
    #[test]
    fn any_text_is_read_without_a_panic(text in "[a-z:{}\\[\\]&*!|>#\"' \\n,-]{0,80}") {
        prop_assert!(parse(&text, Path::new("")).is_err());
    }
}

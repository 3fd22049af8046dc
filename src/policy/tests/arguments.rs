//! `context.input`.

use super::*;

#[test]
fn arguments_are_lifted_by_type() {
    let rule = |condition: &str| {
        policies(&format!(
            r#"permit(principal, action == Action::"files/read_file", resource) when {{ {condition} }};"#
        ))
    };
    let path = rule(r#"context.input.path like "public/*""#);
    let lines = rule("context.input has lines && context.input.lines <= 10");
    let tags = rule(r#"context.input has tags && context.input.tags.contains("b")"#);
    let deep = rule("context.input has options.deep && context.input.options.deep");
    let ratio = rule(
        r#"context.input has options.ratio && context.input.options.ratio.lessThan(decimal("0.5"))"#,
    );
    let whole =
        rule(r#"(if principal has tenant then context.input else context.input).path == "a""#);
    const FAILS: Option<bool> = None;
    for (policies, arguments, expected) in [
        (&path, r#"{"path":"public/a"}"#, Some(true)),
        (&path, r#"{"p\u0061th":"public\/a"}"#, Some(true)),
        (&path, r#"{"path":"private/a"}"#, Some(false)),
        (&path, r#"{"path":"private/a","other":1e400}"#, Some(false)),
        (&path, r#"{"path":"public/a","Path":"private/a"}"#, FAILS),
        (&path, "{\"path\":\"public/a\",\"PATH\":1}", FAILS),
        (&path, "{}", FAILS),
        (&path, r#"{"path":null}"#, FAILS),
        (&path, r#"{"path":1}"#, FAILS),
        (&path, r#"{"path":["public/a"]}"#, FAILS),
        (&path, r#"{"path":{"__entity":{"type":"Agent","id":"admin"}}}"#, FAILS),
        (&path, r#"{"path":{"__extn":{"fn":"ip","arg":"::1"}}}"#, FAILS),
        (&path, "[]", FAILS),
        (&lines, r#"{"lines":10}"#, Some(true)),
        (&lines, r#"{"lines":11}"#, Some(false)),
        (&lines, "{}", Some(false)),
        (&lines, "null", Some(false)),
        (&lines, r#"{"lines":null}"#, Some(false)),
        (&lines, r#"{"line\u017f":1,"lines":1}"#, FAILS),
        (&lines, r#"{"lines":1.0}"#, FAILS),
        (&lines, r#"{"lines":1e0}"#, FAILS),
        (&lines, r#"{"lines":9223372036854775808}"#, FAILS),
        (&lines, r#"{"lines":"1"}"#, FAILS),
        (&lines, r#"{"lines":true}"#, FAILS),
        (&tags, r#"{"tags":["a","b","b"]}"#, Some(true)),
        (&tags, r#"{"tags":[]}"#, Some(false)),
        (&tags, r#"{"tags":["b",1]}"#, FAILS),
        (&tags, r#"{"tags":["b",null]}"#, FAILS),
        (&tags, r#"{"tags":"b"}"#, FAILS),
        (&deep, r#"{"options":{"deep":true}}"#, Some(true)),
        (&deep, r#"{"options":{"deep":false,"ratio":1e99}}"#, Some(false)),
        (&deep, r#"{"options":{}}"#, Some(false)),
        (&deep, r#"{"options":{"deep":true,"DEEP":false}}"#, FAILS),
        (&deep, r#"{"options":true}"#, FAILS),
        (&ratio, r#"{"options":{"ratio":0.25}}"#, Some(true)),
        (&ratio, r#"{"options":{"ratio":0}}"#, Some(true)),
        (&ratio, r#"{"options":{"ratio":25e-2}}"#, Some(true)),
        (&ratio, r#"{"options":{"ratio":0.50000000}}"#, Some(false)),
        (&ratio, r#"{"options":{"ratio":0.00001}}"#, FAILS),
        (&ratio, r#"{"options":{"ratio":1e15}}"#, FAILS),
        (&whole, r#"{"path":"a"}"#, Some(true)),
        (&whole, r#"{"path":"b","lines":1}"#, Some(false)),
        (&whole, r#"{"path":"a","options":{"deep":1}}"#, FAILS),
        (&whole, r#"{"path":"a","lines":1.5}"#, FAILS),
        (&whole, r#"{"path":"a","unknown":1.5}"#, Some(true)),
    ] {
        let decision = Ask::call(READER, "read_file").with(arguments).decide(policies);
        let found = decision.errors.is_empty().then_some(decision.permit);
        assert_eq!(found, expected, "{arguments} {decision:?}");
        assert!(expected.is_some() || !decision.permit, "{arguments}");
    }
    let many = |count| format!(r#"{{"tags":["b"{}]}}"#, r#","c""#.repeat(count));
    assert!(Ask::call(READER, "read_file").with(&many(1_000)).permitted(&tags));
    let decision = Ask::call(READER, "read_file").with(&many(1_100)).decide(&tags);
    assert_eq!(decision.errors, ["argument `input.tags` brings the values to judge above 1024"]);
    let decision =
        Ask::call(READER, "read_file").with(r#"{"lines":12345678901234567890}"#).decide(&lines);
    assert_eq!(decision.errors, ["argument `input.lines` can't be represented as declared"]);
    assert!(!Ask::call(READER, "read_file").permitted(&path), "no arguments at all");
}

#[test]
fn an_argument_that_no_policy_in_reach_looks_at_does_not_matter() {
    let policies = policies(
        r#"permit(principal, action, resource);
           forbid(principal == Agent::"spiffe://td/x", action == Action::"files/read_file", resource)
           when { context.input has lines && context.input.lines > 3 };"#,
    );
    let odd = r#"{"path":"a","lines":1.5}"#;
    assert!(Ask::call(READER, "read_file").with(odd).permitted(&policies));
    assert!(!Ask::call("spiffe://td/x", "read_file").with(odd).permitted(&policies));
}

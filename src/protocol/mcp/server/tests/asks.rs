//! Parameters of what servers ask.

use std::collections::BTreeSet;

use super::*;

fn set(names: &[&str]) -> BTreeSet<Box<str>> {
    names.iter().map(|name| Box::from(*name)).collect()
}

#[test]
fn sampling_is_read() {
    let full = r#"{
        "messages":[{"role":"user","content":{"type":"text","text":"hi","name":"n"}}],
        "modelPreferences":{"hints":[{"name":"opus"},{"name":"haiku"},{}],"costPriority":0.3},
        "systemPrompt":"x","includeContext":"thisServer","maxTokens":4096,
        "tools":[{"name":"wipe","inputSchema":{"type":"object"}},{"name":"r\u0065ad"}],
        "task":{"ttl":1}}"#;
    let expected = Sampling {
        max_tokens: 4096,
        hints: set(&["opus", "haiku"]),
        tools: set(&["read", "wipe"]),
        include_context: "thisServer".into(),
    };
    assert_eq!(asked("sampling/createMessage", full), Ok(Asks::Sampling(expected)));
    let least = Sampling {
        max_tokens: 0,
        hints: set(&[]),
        tools: set(&[]),
        include_context: "none".into(),
    };
    for params in [
        r#"{"maxTokens":0}"#,
        r#"{"maxTokens":0,"tools":null,"modelPreferences":null,"includeContext":null}"#,
        r#"{"maxTokens":0,"modelPreferences":{"hints":[{"name":null}]}}"#,
    ] {
        let found = asked("sampling/createMessage", params);
        assert_eq!(found, Ok(Asks::Sampling(least.clone())), "{params}");
    }
    for params in [
        "{}",
        r#"{"maxTokens":null}"#,
        r#"{"maxTokens":"1"}"#,
        r#"{"maxTokens":1.0}"#,
        r#"{"maxTokens":1e3}"#,
        r#"{"maxTokens":-1}"#,
        r#"{"maxTokens":9223372036854775808}"#,
        r#"{"maxTokens":1,"maxtokens":1000000}"#,
        r#"{"maxTokens":1,"Max\u0054okens":1000000}"#,
        r#"{"maxTokens":1,"Tools":[]}"#,
        r#"{"maxTokens":1,"tool\u017f":[]}"#,
        r#"{"maxTokens":1,"tools":{"name":"x"}}"#,
        r#"{"maxTokens":1,"tools":[{}]}"#,
        r#"{"maxTokens":1,"tools":[{"name":1}]}"#,
        r#"{"maxTokens":1,"tools":[{"name":"a","Name":"b"}]}"#,
        r#"{"maxTokens":1,"tools":["a"]}"#,
        r#"{"maxTokens":1,"modelPreferences":[]}"#,
        r#"{"maxTokens":1,"modelPreferences":{"hints":{}}}"#,
        r#"{"maxTokens":1,"modelPreferences":{"hints":[{"NAME":"x"}]}}"#,
        r#"{"maxTokens":1,"modelPreferences":{"Hints":[]}}"#,
        r#"{"maxTokens":1,"modelpreferences":{}}"#,
        r#"{"maxTokens":1,"includeContext":1}"#,
        r#"{"maxTokens":1,"IncludeContext":"allServers"}"#,
    ] {
        let refused = asked("sampling/createMessage", params);
        assert_eq!(waits(refused), server_waits(), "{params}");
    }
    let without = r#"{"jsonrpc":"2.0","id":"s-1","method":"sampling/createMessage"}"#;
    assert_eq!(waits(legacy(without)), server_waits());
}

#[test]
fn forms_tell_every_field_at_any_depth() {
    for (schema, fields) in [
        ("{}", &[][..]),
        (r#"{"properties":{}}"#, &[]),
        (r#"{"properties":{"a":{"type":"string"},"b":{}}}"#, &["a", "b"]),
        (r#"{"properties":{"a":{"properties":{"password":{}}}}}"#, &["a", "password"]),
        (r#"{"allOf":[{"properties":{"token":{}}}]}"#, &["token"]),
        (r##"{"$ref":"#/$defs/x","$defs":{"x":{"properties":{"t\u006fken":{}}}}}"##, &["token"]),
        (r#"{"properties":{"properties":{"type":"string"}}}"#, &["properties", "type"]),
    ] {
        for mode in ["", r#""mode":"form","#, r#""mode":null,"url":null,"#] {
            let params = format!(r#"{{{mode}"message":"m","requestedSchema":{schema}}}"#);
            let expected = Elicitation::Form { fields: set(fields) };
            let found = asked("elicitation/create", &params);
            assert_eq!(found, Ok(Asks::Elicitation(expected)), "{params}");
        }
    }
    for params in [
        "{}",
        r#"{"requestedSchema":[]}"#,
        r#"{"requestedSchema":null}"#,
        r#"{"requestedschema":{}}"#,
        r#"{"requestedSchema":{},"RequestedSchema":{}}"#,
        r#"{"requestedSchema":{"Properties":{"password":{}}}}"#,
        r#"{"requestedSchema":{"propertie\u017f":{"password":{}}}}"#,
        r#"{"requestedSchema":{"anyOf":[{"PROPERTIES":{"password":{}}}]}}"#,
        r#"{"mode":"forms","requestedSchema":{}}"#,
        r#"{"mode":"form","requestedSchema":{},"url":"https://a.example/"}"#,
        r#"{"requestedSchema":{},"Mode":"url"}"#,
        r#"{"mode":"form","url":"https://a.example/"}"#,
    ] {
        assert_eq!(waits(asked("elicitation/create", params)), server_waits(), "{params}");
    }
}

#[test]
fn an_address_has_one_host_or_is_refused() {
    let visit = |address: &str| {
        let params = serde_json::json!({"mode": "url", "message": "m", "elicitationId": "e", "url": address});
        asked("elicitation/create", &params.to_string())
    };
    for (address, scheme, host) in [
        (
            "https://login.example.com/authorize?x=https://other.example#f",
            "https",
            "login.example.com",
        ),
        ("https://Login.EXAMPLE.com", "https", "login.example.com"),
        ("https://login.example.com:8443/", "https", "login.example.com"),
        ("https://login.example.com:443?x", "https", "login.example.com"),
        ("http://127.0.0.1:9000/cb", "http", "127.0.0.1"),
        ("http://[::1]:9000/", "http", "[::1]"),
        ("https://xn--bcher-kva.example/", "https", "xn--bcher-kva.example"),
        ("https://a.example/x@b", "https", "a.example"),
    ] {
        let expected = Elicitation::Url { scheme: scheme.into(), host: host.into() };
        assert_eq!(visit(address), Ok(Asks::Elicitation(expected)), "{address}");
    }
    for address in [
        "",
        "login.example.com",
        "//login.example.com/",
        "https:login.example.com",
        "https:/login.example.com",
        "https:///login.example.com",
        "HTTPS://login.example.com/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "ftp://a.example/",
        "https://good.example@evil.example/",
        "https://good.example:pw@evil.example/",
        r"https://good.example\@evil.example/",
        r"https://good.example\.evil.example/",
        r"https:\\evil.example/",
        "https://evil.example/\\x",
        "https://good.exam\nple/",
        "https://good.example/\ta",
        " https://good.example/",
        "https://b\u{fc}cher.example/",
        "https://good.example/\u{fc}",
        "https://e%76il.example/",
        "https://evil.example./",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://[0:0::1]/",
        "https://[::1/",
        "https://a.example:x/",
        "https://a.example:99999/",
        "https://a b.example/",
        "https://:80/",
    ] {
        assert_eq!(waits(visit(address)), server_waits(), "{address}");
    }
}

#[test]
fn there_is_an_end_to_names() {
    let form = |names: usize, length: usize| {
        let field = |name: usize| format!(r#""{name:0length$}":{{}}"#);
        let fields: Vec<_> = (0..names).map(field).collect();
        let schema = format!(r#"{{"properties":{{{}}}}}"#, fields.join(","));
        asked("elicitation/create", &format!(r#"{{"requestedSchema":{schema}}}"#))
    };
    let tools = |names: usize, length: usize| {
        let tools: Vec<_> =
            (0..names).map(|name| format!(r#"{{"name":"{name:0length$}"}}"#)).collect();
        let params = format!(r#"{{"maxTokens":1,"tools":[{}]}}"#, tools.join(","));
        asked("sampling/createMessage", &params)
    };
    for (names, length, fine) in
        [(1_024, 4, true), (1_025, 4, false), (64, 1_024, true), (64, 1_025, false)]
    {
        assert_eq!(form(names, length).is_ok(), fine, "{names} fields of {length}");
        assert_eq!(tools(names, length).is_ok(), fine, "{names} tools of {length}");
    }
}

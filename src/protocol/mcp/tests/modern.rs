use super::*;

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

/// A modern `tools/call` of `name` with these headers besides the media type.
fn call(headers: &[(&str, &str)], name: &str) -> Result<Call, DecodeError> {
    let headers: Vec<_> = [JSON].iter().chain(headers).copied().collect();
    post_with(&headers, &modern_request("tools/call", &format!(r#""name":"{name}""#)))
}

fn mismatch() -> (Fault, Era, Option<String>) {
    (Fault::HeaderMismatch, Era::Modern, seven())
}

#[test]
fn mirrored_headers_have_to_agree_with_the_body() {
    let method = ("mcp-method", "tools/call");
    let name = |name| ("mcp-name", name);
    for (header, body) in [
        ("echo", "echo"),
        ("  echo\t", "echo"),
        ("=?base64?ZWNobw==?=", "echo"),
        ("=?base64?Y2Fmw6k=?=", "caf\u{e9}"),
        ("=?base64?IGE=?=", " a"),
        ("=?base64?PT9iYXNlNjQ/ZUE9PT89?=", "=?base64?eA==?="),
        ("=?base64?ZWNobw==", "=?base64?ZWNobw=="),
        ("ZWNobw==", "ZWNobw=="),
        ("=?BASE64?ZWNobw==?=", "=?BASE64?ZWNobw==?="),
        ("=?base64??=", ""),
    ] {
        let outcome = call(&[VERSION, method, name(header)], body);
        assert!(outcome.is_ok(), "{header} {body}");
    }
    for (header, body) in [
        ("echo", "wipe"),
        ("wipe", "echo"),
        ("Echo", "echo"),
        ("", "echo"),
        ("echo, wipe", "echo"),
        ("=?base64?ZWNobw==?=", "=?base64?ZWNobw==?="),
        ("=?base64?ZWNobw?=", "echo"),
        ("=?base64?ZWNo!bw==?=", "echo"),
        ("=?base64?ZWNobx==?=", "echo"),
        ("=?base64?/w==?=", "\u{fffd}"),
    ] {
        let outcome = call(&[VERSION, method, name(header)], body);
        assert_eq!(fault_of(outcome), mismatch(), "{header} {body}");
    }
    for wrong in ["tools/list", "TOOLS/CALL", "=?base64?dG9vbHMvY2FsbA==?=", ""] {
        let outcome = call(&[VERSION, ("mcp-method", wrong), name("echo")], "echo");
        assert_eq!(fault_of(outcome), mismatch(), "{wrong}");
    }
}

#[test]
fn missing_headers_are_mismatches() {
    let method = ("mcp-method", "tools/call");
    let name = ("mcp-name", "echo");
    assert!(call(&[VERSION, method, name], "echo").is_ok());
    for headers in [vec![VERSION, name], vec![VERSION, method], vec![method, name], vec![]] {
        assert_eq!(fault_of(call(&headers, "echo")), mismatch(), "{headers:?}");
    }
}

#[test]
fn names_in_headers_without_a_name_in_the_body_are_mismatches() {
    for (method, params) in [
        ("tools/call", r#""arguments":{}"#),
        ("tools/call", r#""uri":"echo""#),
        ("resources/read", r#""name":"echo""#),
        ("tools/list", r#""name":"echo""#),
        ("server/discover", ""),
        ("vendor/do", ""),
    ] {
        assert_eq!(fault_of(modern(method, params, Some("echo"))), mismatch(), "{method} {params}");
    }
    assert!(modern("vendor/do", r#""uri":"echo""#, Some("echo")).is_ok());
}

#[test]
fn only_what_the_revision_names_has_to_name_its_object_in_a_header() {
    let names = r#""name":"echo","uri":"note:///a","taskId":"t-1""#;
    for method in ["tools/call", "prompts/get", "resources/read", "tasks/get"] {
        assert_eq!(fault_of(modern(method, names, None)), mismatch(), "{method}");
    }
    for method in ["server/discover", "acme/search"] {
        assert!(modern(method, names, None).is_ok(), "{method}");
    }
    assert_eq!(fault_of(modern("acme/search", names, Some("other"))), mismatch());
}

#[test]
fn versions_have_to_agree() {
    let body = |version: &str| {
        let version = format!(r#""io.modelcontextprotocol/protocolVersion":{version}"#);
        let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        request("server/discover", &format!(r#"{{"_meta":{{{version},{capabilities}}}}}"#))
    };
    for (header, meta, expected) in [
        ("2026-07-28", r#""2025-11-25""#, Fault::HeaderMismatch),
        ("2025-11-25", r#""2026-07-28""#, Fault::HeaderMismatch),
        ("2026-07-28", r#""v999.0.0""#, Fault::HeaderMismatch),
        ("v999.0.0", r#""v999.0.0""#, Fault::Version),
        ("2027-01-01", r#""2027-01-01""#, Fault::Version),
        ("2025-11-25", r#""2025-11-25""#, Fault::Version),
        ("2026-07-28", "20260728", Fault::Params),
        ("2026-07-28", "null", Fault::Params),
    ] {
        let headers = [JSON, ("mcp-protocol-version", header), ("mcp-method", "server/discover")];
        let error = post_with(&headers, &body(meta)).expect_err(meta);
        assert_eq!((error.fault, error.era), (expected, Era::Modern), "{header} {meta}");
        assert_eq!(error.id.expect("id").as_json(), "7");
        let requested = (expected == Fault::Version).then_some(header);
        assert_eq!(error.requested.as_deref(), requested);
    }
    let headers = [JSON, ("mcp-protocol-version", "2027-01-01")];
    let outcome = post_with(&headers, &request("ping", "{}"));
    assert_eq!(fault_of(outcome), (Fault::Version, Era::Modern, seven()));
}

#[test]
fn required_meta_keys() {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let headers = [JSON, VERSION, ("mcp-method", "server/discover")];
    for params in [
        "{}".to_owned(),
        r#"{"_meta":{}}"#.to_owned(),
        r#"{"_meta":null}"#.to_owned(),
        format!(r#"{{"_meta":{{{version}}}}}"#),
        format!(r#"{{"_meta":{{{capabilities}}}}}"#),
        format!(r#"{{"_meta":{{{version},{}}}}}"#, capabilities.replace("{}", "[]")),
    ] {
        let outcome = post_with(&headers, &request("server/discover", &params));
        assert_eq!(fault_of(outcome), (Fault::Params, Era::Modern, seven()), "{params}");
    }
    let bare = r#"{"jsonrpc":"2.0","id":7,"method":"server/discover"}"#;
    assert_eq!(fault_of(post_with(&headers, bare)), (Fault::Params, Era::Modern, seven()));
    let params = format!(r#"{{"_meta":{{{version},{capabilities}}}}}"#);
    let call = post_with(&headers, &request("server/discover", &params)).expect("complete");
    assert_eq!(call.version.as_deref(), Some("2026-07-28"));
}

#[test]
fn removed_methods_are_unknown() {
    for method in
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
    {
        let outcome = modern(method, r#""uri":"x""#, method.starts_with('r').then_some("x"));
        assert_eq!(fault_of(outcome), (Fault::UnknownMethod, Era::Modern, seven()), "{method}");
        // The conformance suite sends them without the name.
        let outcome = modern(method, "", None);
        assert_eq!(fault_of(outcome), (Fault::UnknownMethod, Era::Modern, seven()), "{method}");
    }
    for (method, params) in
        [("server/discover", "{}"), ("tasks/update", "{}"), ("subscriptions/listen", "{}")]
    {
        let outcome = legacy(method, params);
        assert_eq!(fault_of(outcome), (Fault::UnknownMethod, Era::Legacy, seven()), "{method}");
    }
}

#[test]
fn a_stray_session_is_ignored() {
    for id in ["s-1", "", "a b"] {
        let headers = [VERSION, ("mcp-method", "tools/call"), ("mcp-name", "echo")];
        let headers: Vec<_> = headers.into_iter().chain([("mcp-session-id", id)]).collect();
        assert_eq!(call(&headers, "echo").expect("served").session, None);
    }
}

#[test]
fn only_post_is_served() {
    for method in [HttpMethod::GET, HttpMethod::DELETE, HttpMethod::PUT] {
        for version in ["2026-07-28", "2027-01-01"] {
            let headers = map(&[("mcp-protocol-version", version), ("mcp-session-id", "s-1")]);
            let outcome = decode(&method, &headers, Bytes::new());
            assert_eq!(fault_of(outcome), (Fault::HttpMethod, Era::Modern, None), "{method}");
        }
    }
}

#[test]
fn responses_are_refused() {
    let outcome = post_with(&[JSON, VERSION], r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(fault_of(outcome), (Fault::Invalid, Era::Modern, seven()));
}

#[test]
fn notifications_need_no_mirrors() {
    let body = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let call = post_with(&[JSON, VERSION], body).expect("bare");
    assert_eq!((call.era, call.kind), (Era::Modern, Kind::Notification));
    let mirrored = [JSON, VERSION, ("mcp-method", "notifications/cancelled")];
    assert!(post_with(&mirrored, body).is_ok());
    let wrong = [JSON, VERSION, ("mcp-method", "tools/call")];
    assert_eq!(fault_of(post_with(&wrong, body)), (Fault::HeaderMismatch, Era::Modern, None));
}

#[test]
fn undecodable_bodies_keep_the_era_of_the_header() {
    for (body, fault) in [("{", Fault::Parse), ("[]", Fault::Invalid), ("{}", Fault::Invalid)] {
        assert_eq!(fault_of(post_with(&[JSON, VERSION], body)), (fault, Era::Modern, None));
    }
    let outcome = post_with(&[("content-type", "text/plain"), VERSION], "{}");
    assert_eq!(fault_of(outcome), (Fault::MediaType, Era::Modern, None));
}

#[test]
fn unknown_parameter_headers_pass() {
    let headers =
        [VERSION, ("mcp-method", "tools/call"), ("mcp-name", "echo"), ("mcp-param-region", "eu")];
    assert!(call(&headers, "echo").is_ok());
}

#[test]
fn a_request_state_counts_for_one_call_only() {
    let continuation = |method, params: &str, name| {
        modern(method, params, Some(name)).expect("decodes").continuation
    };
    let call = |params| continuation("tools/call", params, "t");
    let state = call(r#""name":"t","arguments":{},"requestState":"r-1""#);
    assert!(state.is_some());
    // The same however it is written, whatever else is sent along.
    let other = r#""requestState":"r\u002d1","inputResponses":{},"name":"t","arguments":{"a":1}"#;
    assert_eq!(call(other), state);
    let asked = modern("tools/call", r#""name":"t""#, Some("t")).expect("decodes");
    assert_eq!((&asked.continuation, Some(asked.continuation_with("r-1"))), (&None, state.clone()));
    let others = [
        call(r#""name":"t","requestState":"r-2""#),
        call(r#""name":"t","requestState":"""#),
        continuation("tools/call", r#""name":"t1","requestState":"r-1""#, "t1"),
        continuation("prompts/get", r#""name":"t","requestState":"r-1""#, "t"),
        continuation("resources/read", r#""uri":"t","requestState":"r-1""#, "t"),
    ];
    for other in others {
        assert!(other.is_some() && other != state);
    }
    assert_eq!(call(r#""name":"t","requestState":null"#), None);
    for wrong in ["1", "{}", "[\"r-1\"]", "true"] {
        let outcome =
            modern("tools/call", &format!(r#""name":"t","requestState":{wrong}"#), Some("t"));
        assert_eq!(fault_of(outcome), (Fault::Params, Era::Modern, seven()), "{wrong}");
    }
    for variant in ["requeststate", "RequestState", "requestState\\u0000"] {
        let outcome = modern("tools/call", &format!(r#""name":"t","{variant}":"r-1""#), Some("t"));
        assert_eq!(fault_of(outcome).0, Fault::Invalid, "{variant}");
    }
    let vendor = modern("acme/poll", r#""requestState":{"a":1}"#, None).expect("decodes");
    assert_eq!(vendor.continuation, None);
}

use super::*;

#[test]
fn versions() {
    let body = request("ping", "{}");
    for version in LEGACY_VERSIONS {
        let call = post_with(&[JSON, ("mcp-protocol-version", version)], &body).expect(version);
        assert_eq!(call.version.as_deref(), Some(*version));
        assert_eq!(call.era, Era::Legacy);
    }
    assert_eq!(legacy("ping", "{}").expect("no version").version, None);
    for version in ["2024-01-01", "DRAFT-2026-v1", "v999.0.0", "2", "2025-11-25x", "x"] {
        let error =
            post_with(&[JSON, ("mcp-protocol-version", version)], &body).expect_err(version);
        assert_eq!((error.fault, error.era), (Fault::Version, Era::Legacy), "{version}");
        assert_eq!(error.requested.as_deref(), Some(version));
        let headers = map(&[("mcp-protocol-version", version)]);
        let outcome = decode(&HttpMethod::GET, &headers, Bytes::new());
        assert_eq!(fault_of(outcome).0, Fault::Version, "{version}");
    }
    for version in ["", "\u{e9}", "a b"] {
        let outcome = post_with(&[JSON, ("mcp-protocol-version", version)], &body);
        assert_eq!(fault_of(outcome).0, Fault::Version, "{version}");
    }
}

#[test]
fn sessions_are_read_and_checked() {
    let long = "x".repeat(513);
    let id = |id| ("mcp-session-id", id);
    let delete =
        |headers: &[(&str, &str)]| decode(&HttpMethod::DELETE, &map(headers), Bytes::new());
    let call = post_with(&[JSON, id("s-1")], &request("ping", "{}")).expect("session");
    assert_eq!(call.session.expect("session").expose(), "s-1");
    let call = delete(&[id("s-1")]).expect("session");
    assert_eq!(call.session.expect("session").expose(), "s-1");
    for illegal in ["", "a b", "\u{e9}", &long] {
        let outcome = post_with(&[JSON, id(illegal)], &request("ping", "{}"));
        assert_eq!(fault_of(outcome), (Fault::Invalid, Era::Legacy, seven()), "{illegal}");
        assert_eq!(fault_of(delete(&[id(illegal)])).0, Fault::Invalid, "{illegal}");
    }
    assert_eq!(fault_of(delete(&[])).0, Fault::Invalid);
}

#[test]
fn streams_open_and_sessions_end() {
    let headers = map(&[("mcp-session-id", "s-1"), ("mcp-protocol-version", "2025-06-18")]);
    for (method, kind, name) in [
        (HttpMethod::GET, Kind::Stream, "session/stream"),
        (HttpMethod::DELETE, Kind::End, "session/end"),
    ] {
        let call = decode(&method, &headers, Bytes::new()).expect(name);
        assert_eq!(call.kind, kind);
        assert_eq!(call.method.name(), name);
        assert_eq!(call.targets, [Target::Server]);
        assert_eq!(call.version.as_deref(), Some("2025-06-18"));
        let outcome = decode(&method, &headers, Bytes::from_static(b"{}"));
        assert_eq!(fault_of(outcome).0, Fault::Invalid);
    }
    assert!(decode(&HttpMethod::GET, &map(&[]), Bytes::new()).is_ok());
}

#[test]
fn answers_to_the_server_are_responses() {
    for body in [
        r#"{"jsonrpc":"2.0","id":7,"result":{"roots":[]}}"#,
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#,
    ] {
        let call = post_with(&[JSON, ("mcp-session-id", "s-1")], body).expect(body);
        assert!(matches!(call.kind, Kind::Response(ref id) if id.as_json() == "7"));
        assert_eq!(call.method.name(), "client/response");
        assert_eq!(call.targets, [Target::Server]);
        assert!(call.session.is_some());
        assert!(call.id().is_none());
    }
}

#[test]
fn notifications_have_no_id_and_requests_have_one() {
    for body in [
        r#"{"jsonrpc":"2.0","id":7,"method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"notifications/cancelled","params":{"requestId":1}}"#,
    ] {
        assert_eq!(fault_of(post_with(&[JSON], body)), (Fault::Invalid, Era::Legacy, seven()));
    }
    for rule in METHODS.iter().filter(|rule| rule.exists_in(Era::Legacy) && !rule.notification) {
        let params = sample(rule.governs).0;
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{{{params}}}}}"#, rule.name);
        let outcome = post_with(&[JSON], &body);
        assert_eq!(fault_of(outcome), (Fault::Invalid, Era::Legacy, None), "{body}");
    }
}

#[test]
fn mirrored_headers_are_compared_where_they_are_sent() {
    let body = request("tools/call", r#"{"name":"echo"}"#);
    let version = ("mcp-protocol-version", "2025-11-25");
    for (headers, matches) in [
        (vec![("mcp-method", "tools/call")], true),
        (vec![("mcp-method", "tools/call"), ("mcp-name", "echo")], true),
        (vec![("mcp-name", "wipe")], false),
        (vec![("mcp-method", "tools/list")], false),
    ] {
        let headers: Vec<_> = [JSON, version].into_iter().chain(headers).collect();
        let outcome = post_with(&headers, &body);
        match matches {
            true => assert!(outcome.is_ok(), "{headers:?}"),
            false => assert_eq!(fault_of(outcome).0, Fault::HeaderMismatch, "{headers:?}"),
        }
    }
}

use super::*;

#[test]
fn media_types() {
    let body = request("ping", "{}");
    for content_type in [
        "application/json",
        "Application/JSON ; charset=\"UTF-8\"",
        "application/json;charset=utf-8",
        "application/json; charset=utf-8; x=y",
        "application/json;",
    ] {
        assert!(post_with(&[("content-type", content_type)], &body).is_ok(), "{content_type}");
    }
    for content_type in [
        "text/plain",
        "application/vnd+json",
        "application/jsonx",
        "application/json-rpc",
        "application/json; charset=utf-16",
        "application/json; charset=utf-8; charset=utf-16",
        "application/json; CHARSET = latin1",
        "application/json, text/plain",
        "",
    ] {
        let outcome = post_with(&[("content-type", content_type)], &body);
        assert_eq!(fault_of(outcome), (Fault::MediaType, Era::Legacy, None), "{content_type}");
    }
    assert_eq!(fault_of(post_with(&[], &body)).0, Fault::MediaType);
}

#[test]
fn encoded_bodies_are_refused() {
    let body = request("ping", "{}");
    for (coding, accepted) in [
        ("identity", true),
        ("Identity", true),
        ("", true),
        ("gzip", false),
        ("deflate", false),
        ("identity, gzip", false),
        ("x", false),
    ] {
        let outcome = post_with(&[JSON, ("content-encoding", coding)], &body);
        match accepted {
            true => assert!(outcome.is_ok(), "{coding}"),
            false => assert_eq!(fault_of(outcome).0, Fault::MediaType, "{coding}"),
        }
    }
    let twice = [JSON, ("content-encoding", "identity"), ("content-encoding", "gzip")];
    assert_eq!(fault_of(post_with(&twice, &body)).0, Fault::MediaType);
}

#[test]
fn repeated_headers_are_refused() {
    let body = request("ping", "{}");
    for (name, value) in [
        ("content-type", "application/json"),
        ("authorization", "Bearer x"),
        ("mcp-session-id", "s-1"),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", "ping"),
        ("mcp-name", "x"),
        ("mcp-param-a", "x"),
    ] {
        let once = [JSON, (name, value), (name, value)];
        let headers = if name == JSON.0 { &once[..2] } else { &once[..] };
        assert_eq!(fault_of(post_with(headers, &body)).0, Fault::Invalid, "{name}");
        for method in [HttpMethod::GET, HttpMethod::DELETE] {
            let outcome = decode(&method, &map(headers), Bytes::new());
            assert_eq!(fault_of(outcome).0, Fault::Invalid, "{name}");
        }
    }
    let params = r#""name":"echo""#;
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "tools/call");
    for (headers, expected) in [
        (vec![version, method, ("mcp-name", "echo"), ("mcp-name", "wipe")], Fault::HeaderMismatch),
        (vec![version, version, method, ("mcp-name", "echo")], Fault::HeaderMismatch),
        (vec![version, method, ("mcp-name", "echo"), JSON], Fault::Invalid),
    ] {
        let headers: Vec<_> = [JSON].into_iter().chain(headers).collect();
        let outcome = post_with(&headers, &modern_request("tools/call", params));
        assert_eq!(fault_of(outcome), (expected, Era::Modern, None), "{headers:?}");
    }
    let accepts = [JSON, ("accept", "*/*"), ("accept", "application/*, text/event-stream;q=0.5")];
    assert!(post_with(&accepts, &body).is_ok());
}

#[test]
fn other_http_methods_are_refused() {
    for method in ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "get", "X"] {
        let method = method.parse().expect("method");
        let outcome = decode(&method, &map(&[]), Bytes::new());
        assert_eq!(fault_of(outcome), (Fault::HttpMethod, Era::Legacy, None), "{method}");
    }
}

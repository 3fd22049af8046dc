//! Headers that say something about a body.

use super::{CALL, ECHO, Forwarded, JSON, LEGACY, META, MODERN, Refused, Row, answer, judge};
use crate::{
    site::{Site, wire_a},
    stub::Stub,
};

const MISMATCH: i64 = -32020;

fn modern() -> String {
    CALL.replace("$M", META)
}

#[tokio::test]
async fn mirrored_headers_have_to_say_what_the_body_says() {
    let wipe = CALL.replace("echo", "wipe").replace("$M", META);
    let nameless = CALL.replace("\"name\":\"echo\",", "").replace("$M", META);
    let old = META.replace("2026-07-28", "2025-11-25");
    let mismatch = Refused(400, MISMATCH, "7");
    let list = crate::site::request("tools/list", &format!("{{{META}}}"));
    let read =
        crate::site::request("resources/read", &format!(r#"{{"uri":"note:///public",{META}}}"#));
    let method = "Mcp-Method: tools/call\r\n";
    let rows = [
        ("the header says echo, the body wipe", format!("{MODERN}{ECHO}"), wipe.clone(), mismatch),
        (
            "the header says wipe, the body echo",
            format!("{MODERN}{method}Mcp-Name: wipe\r\n"),
            modern(),
            mismatch,
        ),
        (
            "another case of the name",
            format!("{MODERN}{method}Mcp-Name: Echo\r\n"),
            modern(),
            mismatch,
        ),
        (
            "another method",
            format!("{MODERN}Mcp-Method: tools/list\r\nMcp-Name: echo\r\n"),
            modern(),
            mismatch,
        ),
        (
            "another case of the method",
            format!("{MODERN}Mcp-Method: Tools/Call\r\nMcp-Name: echo\r\n"),
            modern(),
            mismatch,
        ),
        (
            "an encoded method",
            format!("{MODERN}Mcp-Method: =?base64?dG9vbHMvY2FsbA==?=\r\nMcp-Name: echo\r\n"),
            modern(),
            mismatch,
        ),
        (
            "bad base64",
            format!("{MODERN}{method}Mcp-Name: =?base64?ZWNobw?=\r\n"),
            modern(),
            mismatch,
        ),
        (
            "base64 of another name",
            format!("{MODERN}{method}Mcp-Name: =?base64?d2lwZQ==?=\r\n"),
            modern(),
            mismatch,
        ),
        (
            "another case of the marker",
            format!("{MODERN}{method}Mcp-Name: =?BASE64?ZWNobw==?=\r\n"),
            modern(),
            mismatch,
        ),
        ("no method", format!("{MODERN}Mcp-Name: echo\r\n"), modern(), mismatch),
        ("no method for wipe", format!("{MODERN}Mcp-Name: wipe\r\n"), wipe.clone(), mismatch),
        ("no name", format!("{MODERN}{method}"), modern(), mismatch),
        ("no version", ECHO.to_owned(), modern(), mismatch),
        ("no version for wipe", format!("{method}Mcp-Name: wipe\r\n"), wipe, mismatch),
        ("only the body is modern", format!("{LEGACY}{ECHO}"), modern(), mismatch),
        (
            "only the header is modern",
            format!("{MODERN}{ECHO}"),
            CALL.replace("$M", &old),
            mismatch,
        ),
        (
            "the body says no version",
            format!("{MODERN}{ECHO}"),
            CALL.replace(",$M", ""),
            Refused(400, -32602, "7"),
        ),
        ("a name that the body lacks", format!("{MODERN}{ECHO}"), nameless, mismatch),
        (
            "a name for a list",
            format!("{MODERN}Mcp-Method: tools/list\r\nMcp-Name: echo\r\n"),
            list.clone(),
            mismatch,
        ),
        ("no URI", format!("{MODERN}Mcp-Method: resources/read\r\n"), read.clone(), mismatch),
        (
            "another URI",
            format!("{MODERN}Mcp-Method: resources/read\r\nMcp-Name: note:///secret\r\n"),
            read.clone(),
            mismatch,
        ),
        (
            "two names",
            format!("{MODERN}{method}Mcp-Name: echo\r\nMcp-Name: wipe\r\n"),
            modern(),
            Refused(400, MISMATCH, "null"),
        ),
        (
            "the name twice",
            format!("{MODERN}{ECHO}Mcp-Name: echo\r\n"),
            modern(),
            Refused(400, MISMATCH, "null"),
        ),
        (
            "two methods",
            format!("{MODERN}{ECHO}Mcp-Method: tools/call\r\n"),
            modern(),
            Refused(400, MISMATCH, "null"),
        ),
        (
            "two versions",
            format!("{MODERN}{LEGACY}{ECHO}"),
            modern(),
            Refused(400, MISMATCH, "null"),
        ),
        (
            "two parameters",
            format!("{MODERN}{ECHO}Mcp-Param-A: 1\r\nMcp-Param-A: 2\r\n"),
            modern(),
            Refused(400, MISMATCH, "null"),
        ),
        (
            "two credentials",
            format!("{MODERN}{ECHO}Authorization: a\r\nAuthorization: b\r\n"),
            modern(),
            Refused(400, -32600, "null"),
        ),
        (
            "two types",
            format!("{MODERN}{ECHO}Content-Type: application/json\r\n"),
            modern(),
            Refused(400, -32600, "null"),
        ),
        (
            "a version to come",
            format!("MCP-Protocol-Version: 2027-01-01\r\n{ECHO}"),
            modern().replace("2026-07-28", "2027-01-01"),
            Refused(400, -32022, "7"),
        ),
        (
            "legacy and two versions",
            format!("{LEGACY}{LEGACY}"),
            CALL.replace(",$M", ""),
            Refused(400, -32600, "null"),
        ),
        (
            "legacy and two sessions",
            format!("{LEGACY}Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n"),
            CALL.replace(",$M", ""),
            Refused(400, -32600, "null"),
        ),
        (
            "legacy and another name",
            format!("{LEGACY}Mcp-Name: wipe\r\n"),
            CALL.replace(",$M", ""),
            mismatch,
        ),
        (
            "a version of nobody",
            "MCP-Protocol-Version: 1.0\r\n".into(),
            CALL.replace(",$M", ""),
            Refused(400, -32600, "7"),
        ),
        (
            "encoded",
            format!("{MODERN}{method}Mcp-Name: =?base64?ZWNobw==?=\r\n"),
            modern(),
            Forwarded,
        ),
        (
            "other case of the header's name",
            format!("{MODERN}mcp-METHOD: tools/call\r\nMCP-name: echo\r\n"),
            modern(),
            Forwarded,
        ),
        (
            "white space around",
            format!("{MODERN}Mcp-Method:  tools/call \r\nMcp-Name:\techo\t\r\n"),
            modern(),
            Forwarded,
        ),
        ("a parameter", format!("{MODERN}{ECHO}Mcp-Param-Region: eu\r\n"), modern(), Forwarded),
        ("a list", format!("{MODERN}Mcp-Method: tools/list\r\n"), list, Forwarded),
        (
            "a URI",
            format!("{MODERN}Mcp-Method: resources/read\r\nMcp-Name: note:///public\r\n"),
            read,
            Forwarded,
        ),
        ("no version at all is legacy", String::new(), CALL.replace(",$M", ""), Forwarded),
        (
            "the oldest version",
            "MCP-Protocol-Version: 2024-11-05\r\n".into(),
            CALL.replace(",$M", ""),
            Forwarded,
        ),
    ];
    let rows = rows.map(|(name, headers, body, expect)| {
        Row::new(name, &format!("{JSON}{headers}"), body, expect)
    });
    judge(rows.into()).await;
}

#[tokio::test]
async fn only_plain_json_in_utf_8_is_taken() {
    let accept = "Accept: application/json, text/event-stream\r\n";
    let refused = Refused(415, 4150, "null");
    let rows = [
        ("Content-Type: application/json", Forwarded),
        ("Content-Type: Application/JSON ; charset=\"UTF-8\"", Forwarded),
        ("Content-Type: application/json; charset=utf-8", Forwarded),
        ("Content-Type: application/json;profile=x", Forwarded),
        ("Content-Type: application/json\r\nContent-Encoding: identity", Forwarded),
        ("X-Content-Type: application/json", refused),
        ("Content-Type: text/plain", refused),
        ("Content-Type:", refused),
        ("Content-Type: application/vnd.api+json", refused),
        ("Content-Type: application/jsonp", refused),
        ("Content-Type: application/json, text/plain", refused),
        ("Content-Type: application/json; charset=utf-16", refused),
        ("Content-Type: application/json; charset=latin1", refused),
        ("Content-Type: application/json\r\nContent-Encoding: gzip", refused),
        ("Content-Type: application/json\r\nContent-Encoding: deflate", refused),
        ("Content-Type: application/json\r\nContent-Encoding: identity, br", refused),
    ];
    let rows = rows.iter().flat_map(|(headers, expect)| {
        Row::both_as(headers, &format!("{headers}\r\n{accept}"), CALL, *expect, |body| body.into())
    });
    judge(rows.collect()).await;
}

#[tokio::test]
async fn what_a_client_accepts_is_the_servers_business() {
    let stub = Stub::answering(answer).await;
    let lictor = Site::to(&stub.url()).start().await;
    let accepts =
        ["*/*", "application/*, text/event-stream;q=0.5", "application/json", "text/html"];
    for accept in accepts {
        for (version, mirrors, body) in
            [(LEGACY, "", CALL.replace(",$M", "")), (MODERN, ECHO, modern())]
        {
            let headers = format!(
                "Content-Type: application/json\r\nAccept: {accept}\r\nAccept: x/y\r\n{version}{mirrors}"
            );
            let mut wire = wire_a(&lictor).await;
            wire.send(Row::new("", &headers, body, Forwarded).text()).await;
            assert_eq!(wire.answer().await.status, 200);
            let seen = stub.seen().pop().expect("a request");
            let accepted: Vec<_> = seen.head.headers.get_all("accept").iter().collect();
            assert_eq!(accepted, [accept, "x/y"]);
        }
    }
    lictor.stop(2 * accepts.len()).await;
}

#[tokio::test]
async fn a_modern_message_belongs_to_no_session() {
    let stub = Stub::answering(answer).await;
    let lictor = Site::to(&stub.url()).start().await;
    let headers = format!("{JSON}{MODERN}{ECHO}Mcp-Session-Id: s-of-nobody\r\nMcp-Param-X: 1\r\n");
    let mut wire = wire_a(&lictor).await;
    wire.send(Row::new("", &headers, modern(), Forwarded).text()).await;
    assert_eq!(wire.answer().await.status, 200);
    let seen = stub.only();
    assert_eq!(seen.head.header("mcp-session-id"), None);
    assert_eq!(seen.head.header("mcp-param-x"), Some("1"));
    assert_eq!(seen.head.header("mcp-name"), Some("echo"));
    // There are no streams and no ends of sessions in this era.
    for method in ["GET", "DELETE"] {
        let text = format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{MODERN}Mcp-Session-Id: s\r\n\r\n"
        );
        let mut wire = wire_a(&lictor).await;
        wire.send(text).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    }
    assert_eq!(stub.requests(), 1);
    lictor.stop(3).await;
}

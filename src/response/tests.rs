use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::{
    governance::Visibility,
    identity::{Principal, Proof, SpiffeId},
    policy::{Policies, Settings},
    protocol::{Era, sse::Splitter},
    revocation::Revocations,
};

/// Runs `check` with a filter for a caller who may use what ends in `-ok`.
fn with_filter(check: impl FnOnce(ListFilter<'_>)) {
    let directory = tempfile::TempDir::new().expect("a folder");
    let policy = r#"@id("ok") permit (principal, action in Action::"tools/call", resource)
        when { resource.name like "*-ok" };"#;
    std::fs::write(directory.path().join("a.cedar"), policy).expect("written");
    let settings = Settings { directory: directory.path().to_owned(), ..Settings::default() };
    let policies = Arc::new(Policies::load(&settings).expect("loads"));
    let id = SpiffeId::parse("spiffe://td/agent-a").expect("valid");
    let principal = Principal { id, proof: Proof::Configured };
    let visibility = Visibility {
        delegation: None,
        policies,
        principal: &principal,
        server: "s",
        listener: "in",
        era: Era::Modern,
        revocations: Arc::new(Revocations::of(true, [])),
    };
    check(ListFilter { visibility, listed: &Listed::default() });
}

fn message(tools: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":{tools},"nextCursor":"c="}}}}"#)
}

#[test]
fn whole_items_are_cut_and_the_rest_stays_byte_for_byte() {
    with_filter(|filter| {
        for (tools, left) in [
            ("[]", "[]"),
            (r#"[{"name":"a-ok"}]"#, r#"[{"name":"a-ok"}]"#),
            (r#"[{"name":"a"}]"#, "[]"),
            (r#"[ {"name":"a"} , {"name":"b-ok","n":1.0e3} ]"#, r#"[ {"name":"b-ok","n":1.0e3} ]"#),
            (r#"[{"name":"a-ok"} , {"name":"b"}]"#, r#"[{"name":"a-ok"}]"#),
            (
                r#"[{"name":"a"},{"name":"b-ok"},{"name":"c"},{"name":"d-ok"},{"name":"e"}]"#,
                r#"[{"name":"b-ok"},{"name":"d-ok"}]"#,
            ),
            (r#"[{"name":"a"},{"name":"b"},{"name":"c"}]"#, "[]"),
            (r#"[{"n\u0061me":"x-ok"},{"name":7},{},3,"x-ok"]"#, r#"[{"n\u0061me":"x-ok"}]"#),
        ] {
            let seen = filter.document(message(tools).into(), &OwnTasks::new()).expect("readable");
            assert_eq!(std::str::from_utf8(&seen), Ok(&*message(left)), "{tools}");
        }
    });
}

#[test]
fn no_list_comes_along_with_another() {
    with_filter(|filter| {
        let list = br#"{"result":{"tools":[],"prompts":[{"name":"p"}],"resources":[{"uri":"a:"}],"resourceTemplates":[{"uriTemplate":"a:{b}"}]}}"#;
        let left = r#"{"result":{"tools":[],"prompts":[],"resources":[],"resourceTemplates":[]}}"#;
        let seen = filter.document(Bytes::from_static(list), &OwnTasks::new()).expect("readable");
        assert_eq!(std::str::from_utf8(&seen), Ok(left));
    });
}

#[test]
fn a_filtered_list_is_private() {
    with_filter(|filter| {
        for (scope, left) in [("public", "private"), ("private", "private"), ("odd", "private")] {
            let list = |scope| {
                format!(r#"{{"result":{{"cacheScope":"{scope}","tools":[{{"name":"a-ok"}}]}}}}"#)
            };
            let seen = filter.document(list(scope).into(), &OwnTasks::new()).expect("readable");
            assert_eq!(std::str::from_utf8(&seen), Ok(&*list(left)));
        }
    });
}

#[test]
fn what_is_no_list_passes_and_what_cannot_be_read_does_not() {
    with_filter(|filter| {
        for fine in [
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"tools"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"}}"#,
        ] {
            assert_eq!(filter.document(fine.into(), &OwnTasks::new()), Ok(Bytes::from(fine)));
        }
        for odd in [
            r#"{"result":{"tools":[],"tools":[{"name":"a"}]}}"#,
            r#"{"result":{"tools":{"a":1}}}"#,
            r#"{"result":{"tools":[],"prompts":7}}"#,
            r#"[{"result":{"tools":[]}}]"#,
            "<html>",
        ] {
            assert_eq!(filter.document(odd.into(), &OwnTasks::new()), Err(Unreadable), "{odd}");
        }
    });
}

#[test]
fn events_are_filtered_one_by_one() {
    let other = "id: 7\r\nretry: 5\r\n: note\r\nevent: message\r\ndata: {\"method\":\"x\"}\r\n\r\n";
    let list = message(r#"[{"name":"a"},{"name":"b-ok"}]"#);
    let left = message(r#"[{"name":"b-ok"}]"#);
    let stream = format!("{other}id: 8\ndata: {list}\n\n: ping\n\ndata: cut");
    let expected = format!("{other}id: 8\ndata: {left}\n\n: ping\n\n");
    for size in [1, 2, 7, 64, 4096] {
        with_filter(|filter| {
            let mut splitter = Splitter::new(1 << 20);
            let mut seen = Vec::new();
            for part in stream.as_bytes().chunks(size) {
                let mut events = Vec::new();
                splitter.feed(Bytes::copy_from_slice(part), &mut events).expect("short");
                for event in events {
                    seen.extend_from_slice(
                        &filter.event(&event, &OwnTasks::new()).expect("readable"),
                    );
                }
            }
            assert_eq!(String::from_utf8(seen), Ok(expected.clone()), "parts of {size}");
        });
    }
}

#[test]
fn an_unreadable_list_does_not_pass_in_an_event() {
    with_filter(|filter| {
        let mut events = Vec::new();
        let event = "data: {\"result\":{\"tools\":[}}\n\n";
        Splitter::new(64).feed(event.into(), &mut events).expect("short");
        assert_eq!(filter.event(&events[0], &OwnTasks::new()), Err(Unreadable));
    });
}

#[test]
fn what_no_reader_takes_for_json_is_foreign() {
    for text in ["<html>", "not found", " \n", "", "\"{\"", "7"] {
        assert!(is_foreign(text.as_bytes()), "{text}");
    }
    for text in ["{}", " [", "\u{feff}{}", "\u{feff}", "\0{", "/**/{"] {
        assert!(!is_foreign(text.as_bytes()), "{text}");
    }
    assert!(!is_foreign(b"\xff\xfe{\0"));
}

#[test]
fn tasks_are_cut_down_to_those_that_are_owned() {
    with_filter(|filter| {
        let list = br#"{"result":{"tasks":[{"taskId":"a"},{"taskId":"b"},{"x":1}],"tools":[]}}"#;
        assert_eq!(ListFilter::tasks(list), ["a", "b"].map(Box::from));
        let own = OwnTasks::from(["b".into()]);
        let seen = filter.document(Bytes::from_static(list), &own).expect("readable");
        let left = r#"{"result":{"tasks":[{"taskId":"b"}],"tools":[]}}"#;
        assert_eq!(std::str::from_utf8(&seen), Ok(left));
        assert!(ListFilter::tasks(b"{\"result\":{\"tasks\":[}").is_empty());
    });
}

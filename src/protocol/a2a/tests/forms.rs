//! The forms of messages.

use super::{Fault, call};
use crate::protocol::a2a::{Form, check_form};

#[test]
fn forms_say_the_same_in_both_places() {
    let message = |metadata: &str, parts: &str| {
        let message = format!(r#"{{"message":{{"metadata":{metadata},"parts":[{parts}]}}}}"#);
        check_form(&call("message/send", &message).expect("decoded"))
    };
    let text = r#"{"kind":"text","text":"hi"}"#;
    for form in Form::ALL {
        let name = form.as_str();
        let metadata = format!(r#"{{"form":"{name}"}}"#);
        for data in [
            format!(r#"{{"kind":"data","data":{{"type":"hub.{name}"}}}}"#),
            format!(r#"{{"data":{{"type":"a.b.{name}","x":1}}}}"#),
            format!(r#"{{"data":{{"data":{{"type":"hub.{name}"}}}}}}"#),
        ] {
            assert_eq!(message(&metadata, &format!("{text},{data}")), Ok(Some(form)));
            // Without its text, and in a message that doesn't say so.
            assert!(message(&metadata, &data).is_err());
            assert!(message("null", &format!("{text},{data}")).is_err());
            assert!(message("{}", &format!("{text},{data}")).is_err());
        }
        assert!(message(&metadata, text).is_err());
        let other = r#"{"data":{"type":"hub.claim"}},{"data":{"type":"hub.board"}}"#;
        assert!(message(&metadata, &format!("{text},{other}")).is_err());
        let folded = format!(r#"{{"data":{{"type":"hub.{name}","Type":"hub.claim"}}}}"#);
        assert_eq!(message(&metadata, &format!("{text},{folded}")).is_ok(), form == Form::Claim);
    }
    for form in ["\"Claim\"", "\"vote\"", "\"hub.claim\""] {
        let outcome = message(&format!(r#"{{"form":{form}}}"#), text);
        let error = outcome.expect_err("refused");
        assert_eq!((error.fault, error.rest), (Fault::Params, false));
        assert_eq!(error.id.map(|id| id.as_json().to_owned()), Some("7".into()));
    }
    for (metadata, parts) in [
        ("null", text.to_owned()),
        (r#"{"form":{}}"#, text.to_owned()),
        (
            "{}",
            format!(r#"{text},{{"data":{{"type":"invoice"}}}},{{"data":{{"type":"hub.vote"}}}}"#),
        ),
        ("{}", format!(r#"{text},{{"data":[1]}},{{"data":{{"type":7}}}}"#)),
    ] {
        assert_eq!(message(metadata, &parts), Ok(None));
    }
    let delegated = r#"{"data":{"type":"hub.delegate"}}"#;
    let claimed = r#"{"data":{"type":"hub.claim"}}"#;
    for (metadata, data, fine) in [
        (r#"{"form":"delegate","spawned":true}"#, delegated, true),
        (r#"{"form":"delegate","spawned":false}"#, delegated, true),
        (r#"{"form":"delegate","spawned":null}"#, delegated, true),
        (r#"{"form":"delegate","spawned":"true"}"#, delegated, false),
        (r#"{"form":"delegate","spawned":1}"#, delegated, false),
        (r#"{"form":"delegate","spawned":{}}"#, delegated, false),
        (r#"{"form":"claim","spawned":true}"#, claimed, false),
        (r#"{"form":"claim","spawned":false}"#, claimed, true),
        (r#"{"spawned":true}"#, r#"{"data":{}}"#, false),
        (r#"{"spawned":false}"#, r#"{"data":{}}"#, true),
    ] {
        let outcome = message(metadata, &format!("{text},{data}"));
        assert_eq!(outcome.is_ok(), fine, "{metadata}: {outcome:?}");
    }
    assert_eq!(check_form(&call("tasks/get", r#"{"id":"t"}"#).expect("decoded")), Ok(None));
}

/// Without the convention metadata is anybody's; what could be taken for a yes is one.
#[test]
fn spawned_is_what_any_reader_could_take_for_it() {
    let spawned = |outer: &str, inner: &str| {
        let params = format!(
            r#"{{"metadata":{outer},"message":{{"metadata":{inner},"parts":[{{"text":"a"}}]}}}}"#
        );
        let decoded = call("message/send", &params);
        decoded.map(|call| call.a2a.expect("facts").traits.spawned).map_err(|error| error.fault)
    };
    for (metadata, expected) in [
        ("null", false),
        ("{}", false),
        (r#"{"spawned":null}"#, false),
        (r#"{"spawned":false}"#, false),
        (r#"{"spawned":true}"#, true),
        (r#"{"spawned":"no"}"#, true),
        (r#"{"spawned":0}"#, true),
        (r#"{"spawned":{}}"#, true),
        (r#"{"deeper":{"spawned":true}}"#, false),
    ] {
        assert_eq!(spawned(metadata, "null"), Ok(expected), "{metadata}");
        assert_eq!(spawned("null", metadata), Ok(expected), "{metadata}");
    }
    // Two readers could take one for another.
    for (outer, inner) in [
        (r#"{"spawned":true}"#, r#"{"spawned":false}"#),
        ("{}", r#"{"Spawned":true}"#),
        (r#"{"SPAWNED":true}"#, "null"),
    ] {
        assert_eq!(spawned(outer, inner), Err(Fault::Invalid), "{outer} {inner}");
    }
}

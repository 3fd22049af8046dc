//! Explanations.

use super::*;

const SET: &str = r#"
@id("read") @reason("Acme may read.")
permit(principal in Path::"spiffe://td/tenant/acme", action in Action::"read", resource in Server::"files")
when { principal has tenant && principal.tenant == "acme" && context.era == "modern" };
@id("short") permit(principal == Agent::"spiffe://td/other", action == Action::"files/read_file", resource)
when { context.input has lines && context.input.lines < 10 };
@id("control") permit(principal, action in Action::"control", resource);
@id("etc") @reason("Not etc.")
forbid(principal, action == Action::"files/read_file", resource)
when { context.input.path like "/etc/*" };
"#;

fn explain(ask: &Ask<'_>, policies: &Policies) -> Explanation {
    ask.ask(|question| policies.explain(question))
}

fn lacking(explanation: &Explanation) -> Vec<(&str, Vec<&str>)> {
    let lacking = |miss: &'_ NearMiss| miss.lacking.len();
    assert!(explanation.nearest.iter().all(|miss| lacking(miss) > 0), "{explanation}");
    let misses = explanation.nearest.iter();
    misses
        .map(|miss| (&*miss.origin.id, miss.lacking.iter().map(String::as_str).collect()))
        .collect()
}

#[test]
fn the_nearest_permit_tells_what_it_lacks() {
    let policies = policies(SET);
    let explanation = explain(&Ask::call(READER, "read_file").with(r#"{"path":"a"}"#), &policies);
    let misses = lacking(&explanation);
    assert_eq!(misses[0], ("read", vec![r#"when { context.era == "modern" }"#]), "{explanation}");
    assert_eq!(misses[1].0, "short");
    assert_eq!(
        misses[1].1,
        [
            r#"principal == Agent::"spiffe://td/other" (it is Agent::"spiffe://td/tenant/acme/agent/r")"#,
            "when { context.input has lines }",
        ],
        "{explanation}"
    );
    let looked_at: Vec<&str> = explanation.attributes.iter().map(String::as_str).collect();
    assert_eq!(looked_at, ["context.era", "context.input.path", "principal.tenant"]);
}

#[test]
fn a_forbid_tells_what_it_overruled() {
    let policies = policies(SET);
    let ask =
        Ask { era: Era::Modern, ..Ask::call(READER, "read_file").with(r#"{"path":"/etc/x"}"#) };
    let explanation = explain(&ask, &policies);
    let ids = |origins: &[Origin]| origins.iter().map(|at| at.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&explanation.determining), ["etc"]);
    assert_eq!(ids(&explanation.overruled), ["read"]);
    let text = explanation.to_string();
    assert!(text.contains("etc (a.cedar:8): Not etc."), "{text}");
    assert!(!text.contains("/etc/x"), "no values: {text}");
    let permitted = Ask { arguments: Some(r#"{"path":"a"}"#), ..ask };
    let explanation = explain(&permitted, &policies);
    assert!(explanation.decision.permit && explanation.nearest.is_empty(), "{explanation}");
}

#[test]
fn a_record_is_explained_without_its_arguments() {
    let policies = policies(SET);
    let ask = Ask { era: Era::Modern, ..Ask::call(READER, "read_file") };
    let recorded = |version: &str, ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let recorded = Recorded { version, permit: false, policies: &ids };
        ask.ask(|question| policies.explain_recorded(question, &recorded))
    };
    let explanation = recorded(policies.version(), &["etc"]);
    assert!(!explanation.decision.permit);
    assert_eq!(explanation.decision.policies, [Arc::<str>::from("etc")]);
    assert_eq!(explanation.decision.reason.as_deref(), Some("Not etc."));
    assert_eq!(explanation.caveats, ["arguments are not recorded"], "{explanation}");
    let explanation = recorded("0123456789abcdef", &["gone"]);
    assert_eq!(explanation.caveats.len(), 3, "{explanation}");
    assert_eq!(explanation.decision.reason, None);
}

#[test]
fn a_question_without_an_action_is_explained_by_its_error() {
    let policies = policies(SET);
    let explanation = explain(&Ask::method(READER, "acme/other", Target::Server), &policies);
    assert!(explanation.to_string().starts_with("denied\nerror: the schema has no such method"));
}

#[test]
fn a_permit_that_a_plain_forbid_overrules_is_not_a_near_miss() {
    let policies = policies(
        r#"@id("all") permit(principal, action, resource);
           @id("no") forbid(principal, action, resource == Tool::"files/echo");"#,
    );
    let explanation = explain(&Ask::call(READER, "echo"), &policies);
    let ids = |origins: &[Origin]| origins.iter().map(|at| at.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&explanation.determining), ["no"]);
    assert_eq!(ids(&explanation.overruled), ["all"]);
    assert!(explanation.nearest.is_empty(), "{explanation}");
}

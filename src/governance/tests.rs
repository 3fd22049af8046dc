mod delegation;
mod revocation;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    delegation::Behalf,
    denial::Denial,
    identity::{Principal, Proof, SpiffeId},
    policy::{Policies, Settings},
    protocol::{Call, Era, mcp},
    revocation::Revocations,
};

#[derive(Debug)]
struct Fixed(bool);

impl Stage for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn judge(&self, _: &Request<'_>, _: &Facts, _: &mut Findings) -> Verdict {
        if self.0 { Verdict::Continue } else { Verdict::Deny(Denial::NoRoute) }
    }
}

fn principal() -> Principal {
    let id = SpiffeId::parse("spiffe://td/agent-a").expect("valid");
    Principal { id, proof: Proof::Configured }
}

fn call(body: &'static str, session: Option<&'static str>) -> Call {
    let mut headers = http::HeaderMap::new();
    headers.insert("content-type", http::HeaderValue::from_static("application/json"));
    if let Some(session) = session {
        headers.insert("mcp-session-id", http::HeaderValue::from_static(session));
    }
    mcp::decode(&http::Method::POST, &headers, Bytes::from_static(body.as_bytes()))
        .expect("decodes")
}

const ECHO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;

fn facts(policies: &str) -> Facts {
    facts_with(policies, Settings::default())
}

/// Facts with these policies, and nothing revoked.
fn facts_with(policies: &str, settings: Settings) -> Facts {
    let directory = tempfile::TempDir::new().expect("a folder");
    std::fs::write(directory.path().join("a.cedar"), policies).expect("written");
    let settings = Settings { directory: directory.path().to_owned(), ..settings };
    let policies = Arc::new(Policies::load(&settings).expect("loads"));
    let revocations = Arc::new(Revocations::of(true, []));
    Facts { policies, owned: Owned::default(), push_refused: None, revocations }
}

/// A call to the one server there is.
fn request<'a>(principal: &'a Principal, call: &'a Call, behalf: &'a Behalf) -> Request<'a> {
    Request {
        principal,
        call,
        asked: None,
        server: "s",
        callee: None,
        listener: "in",
        behalf,
        shadow: false,
    }
}

fn permitted(chain: &Chain, call: &Call, facts: &Facts, shadow: bool) -> Result<Permit, Refusal> {
    let principal = principal();
    let behalf = Behalf::default();
    chain.evaluate(&Request { shadow, ..request(&principal, call, &behalf) }, facts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn adding_a_stage_never_turns_a_denial_into_a_permit(
        verdicts in proptest::collection::vec(any::<bool>(), 0..6),
        at in any::<prop::sample::Index>(),
        added in any::<bool>(),
    ) {
        let facts = facts("@id(\"all\") permit (principal, action, resource);");
        let call = call(ECHO, None);
        let chain = |verdicts: &[bool]| {
            let boxed = |verdict: &bool| Box::new(Fixed(*verdict)) as Box<dyn Stage>;
            Chain::new(verdicts.iter().map(boxed).collect())
        };
        let mut more = verdicts.clone();
        more.insert(at.index(verdicts.len() + 1), added);
        let before = permitted(&chain(&verdicts), &call, &facts, false).is_ok();
        let after = permitted(&chain(&more), &call, &facts, false).is_ok();
        prop_assert!(before || !after);
        prop_assert_eq!(before, verdicts.iter().all(|verdict| *verdict));
    }
}

#[test]
fn policy_judges_every_target_and_names_what_it_went_by() {
    let facts = facts(
        "@id(\"echo\") permit (principal, action in Action::\"tools/call\", resource == Tool::\"s/echo\");",
    );
    let chain = Chain::new(vec![Box::new(PolicyStage)]);
    let permit = permitted(&chain, &call(ECHO, None), &facts, false).expect("permitted");
    assert_eq!(permit.decisions()[0].policies, [Arc::<str>::from("echo")]);
    assert!(permit.class().may_change_state(), "a tool that nobody classed can do anything");
    let wipe = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe"}}"#;
    let refusal = permitted(&chain, &call(wipe, None), &facts, false).expect_err("refused");
    assert_eq!((refusal.stage, refusal.decisions.len()), ("policy", 1));
    let vendor = r#"{"jsonrpc":"2.0","id":1,"method":"acme/wipe"}"#;
    let refusal = permitted(&chain, &call(vendor, None), &facts, false).expect_err("refused");
    assert!(matches!(refusal.denial, Denial::UnknownMethod));
}

#[test]
fn shadow_mode_permits_and_remembers_the_first_denial() {
    let facts = facts("@id(\"none\") forbid (principal, action, resource);");
    let chain =
        Chain::new(vec![Box::new(Fixed(true)), Box::new(PolicyStage), Box::new(Fixed(false))]);
    let permit = permitted(&chain, &call(ECHO, None), &facts, true).expect("shadow");
    assert_eq!(permit.would_deny().map(|(stage, _)| stage), Some("policy"));
}

#[test]
fn what_a_call_names_is_its_owners() {
    let chain = Chain::new(vec![Box::new(OwnershipStage)]);
    let mut facts = facts("@id(\"all\") permit (principal, action, resource);");
    let mine = Owner::Is("spiffe://td/agent-a".into());
    let theirs = Owner::Is("spiffe://td/agent-b".into());
    let get = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t-1"}}"#;
    let retry = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","requestState":"r-1"}}"#;
    type Owning = fn(Owner) -> Owned;
    let session: Owning = |owner| Owned { session: owner, ..Owned::default() };
    let task: Owning = |owner| Owned { tasks: vec![owner], ..Owned::default() };
    let continuation: Owning = |owner| Owned { continuation: owner, ..Owned::default() };
    let cases = [
        (call(ECHO, Some("s-1")), session, "unknown_session"),
        (call(get, None), task, "unknown_task"),
        (call(retry, None), continuation, "unknown_continuation"),
    ];
    for (call, owned, unknown) in cases {
        for (owner, expected) in [
            (&Owner::Nobody, Some(unknown)),
            (&mine, None),
            (&theirs, Some(unknown)),
            (&Owner::Unavailable, Some("state_unavailable")),
        ] {
            facts.owned = owned(owner.clone());
            let refused = permitted(&chain, &call, &facts, false).err();
            let kind = refused.map(|refusal| refusal.denial.row(Era::Legacy).kind);
            assert_eq!(kind, expected, "{owner:?}");
        }
        facts.owned = Owned::default();
        assert!(permitted(&chain, &call, &facts, false).is_err(), "nothing was looked up");
    }
}

#[test]
fn every_task_of_a_call_is_looked_up() {
    let chain = Chain::new(vec![Box::new(OwnershipStage)]);
    let mut headers = http::HeaderMap::new();
    for (name, value) in [
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
        ("mcp-session-id", "ignored"),
    ] {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{
        "notifications":{"taskIds":["t-1","t-2"],"resourceSubscriptions":["file:///a"]},
        "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
                 "io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let call = mcp::decode(&http::Method::POST, &headers, Bytes::from_static(body.as_bytes()))
        .expect("decodes");
    let tasks = vec!["t-1", "t-2"];
    assert_eq!(chain.needs(&call), Needs { tasks, ..Needs::default() });
    let mut facts = facts("@id(\"all\") permit (principal, action, resource);");
    let mine = Owner::Is("spiffe://td/agent-a".into());
    for (tasks, fine) in [
        (vec![], false),
        (vec![mine.clone()], false),
        (vec![mine.clone(), Owner::Nobody], false),
        (vec![Owner::Nobody, mine.clone()], false),
        (vec![mine.clone(), mine], true),
    ] {
        facts.owned.tasks = tasks;
        assert_eq!(permitted(&chain, &call, &facts, false).is_ok(), fine, "{:?}", facts.owned);
    }
}

//! What was revoked, held against calls.

use std::collections::BTreeSet;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::{
    delegation::{Verifier, tests::World},
    revocation::{Revocation, Subject, What},
};

const ALL: &str = "@id(\"all\") permit (principal, action, resource);";

fn revoked(kind: &str, value: &str) -> Arc<Revocations> {
    Arc::new(Revocations::of(true, [entry(kind, value)]))
}

fn entry(kind: &str, value: &str) -> Arc<Revocation> {
    Arc::new(Revocation {
        id: Uuid::now_v7(),
        subject: Subject::parse(kind, value).expect("a subject"),
        reason: "r".into(),
        by: "b".into(),
        at: 1,
        until: None,
    })
}

/// What the stage refuses a call for, if it does.
fn refused(request: &Request<'_>, facts: &Facts) -> Option<What> {
    let stages = Chain::new(vec![Box::new(RevocationStage), Box::new(PolicyStage)]);
    let refusal = stages.evaluate(request, facts).err()?;
    assert_eq!(refusal.stage, "revocation");
    match refusal.denial {
        Denial::Revoked { id, what } => {
            assert!(facts.revocations.entry(id).is_some());
            Some(what)
        }
        denial => panic!("{denial:?}"),
    }
}

fn facts_of_tenants() -> Facts {
    let path_template = Some("/tenant/{tenant}/agent/{agent}".to_owned());
    facts_with(ALL, Settings { path_template, ..Settings::default() })
}

#[test]
fn a_call_is_refused_by_what_it_touches_and_whose_it_is() {
    let mut facts = facts_of_tenants();
    let id = SpiffeId::parse("spiffe://td/tenant/acme/agent/a").expect("valid");
    let principal = Principal { id, proof: Proof::Configured };
    let call = call(ECHO, Some("s-1"));
    for (kind, value, expected) in [
        ("spiffe", "spiffe://td/tenant/acme/agent/a", Some(What::Spiffe)),
        ("spiffe", "spiffe://td/tenant/acme/*", Some(What::Spiffe)),
        ("spiffe", "spiffe://td/*", Some(What::Spiffe)),
        ("spiffe", "spiffe://td/tenant/acme/agent/ab", None),
        ("spiffe", "spiffe://td/tenant/acme/agent", None),
        ("spiffe", "spiffe://td/tenant/acme/agent/a/*", None),
        ("spiffe", "spiffe://t/*", None),
        ("tenant", "acme", Some(What::Tenant)),
        ("tenant", "acm", None),
        ("tool", "s/echo", Some(What::Tool)),
        ("tool", "s/ech", None),
        ("tool", "other/echo", None),
        ("session", "s-1", Some(What::Session)),
        ("session", "s-2", None),
        ("user", "u-1", None),
        ("delegation", "01993f0e-7b5a-7c3e-9a1d-0123456789ab", None),
    ] {
        facts.revocations = revoked(kind, value);
        for shadow in [false, true] {
            let behalf = Behalf::default();
            let request = Request { shadow, ..request(&principal, &call, &behalf) };
            assert_eq!(refused(&request, &facts), expected, "{kind} {value} {shadow}");
        }
    }
}

#[test]
fn a_chain_ends_with_any_of_its_links() {
    let world = World::new();
    let mut claims = world.claims(3);
    for hop in &mut claims {
        hop["usr"] = json!("u-1");
        hop["ten"] = json!("acme");
    }
    let header = world.sign(&claims);
    let behalf = Behalf::of(world.show(&Verifier::new(), &header, 3).expect("taken"));
    let principal = behalf.chains()[0].hops().last().expect("a hop").principal();
    let call = call(ECHO, None);
    let mut facts = facts(ALL);
    let request = request(principal, &call, &behalf);
    let member = |at: usize| world.members[at].id.to_string();
    let jti = |at: usize| claims[at]["jti"].as_str().expect("text").to_owned();
    let run = claims[0]["run"].as_str().expect("text").to_owned();
    for (kind, value, expected) in [
        ("spiffe", member(0), Some(What::Spiffe)),
        ("spiffe", member(1), Some(What::Spiffe)),
        ("spiffe", member(2), Some(What::Spiffe)),
        // The one that it is shown to.
        ("spiffe", member(3), None),
        ("delegation", jti(0), Some(What::Delegation)),
        ("delegation", jti(1), Some(What::Delegation)),
        ("delegation", Uuid::from_bytes([2; 16]).to_string(), Some(What::Delegation)),
        ("delegation", Uuid::from_bytes([3; 16]).to_string(), None),
        ("delegation", run, Some(What::Delegation)),
        ("user", "u-1".to_owned(), Some(What::User)),
        ("user", "u-2".to_owned(), None),
        ("tenant", "acme".to_owned(), Some(What::Tenant)),
        ("tenant", "other".to_owned(), None),
    ] {
        facts.revocations = revoked(kind, &value);
        assert_eq!(refused(&request, &facts), expected, "{kind} {value}");
    }
}

#[test]
fn nothing_passes_while_it_is_not_known_what_is_revoked() {
    let mut facts = facts(ALL);
    facts.revocations = Arc::new(Revocations::unknown());
    let chain = Chain::new(vec![Box::new(RevocationStage), Box::new(PolicyStage)]);
    for shadow in [false, true] {
        let refusal = permitted(&chain, &call(ECHO, None), &facts, shadow).expect_err("refused");
        assert!(matches!(refusal.denial, Denial::RevocationsUnknown));
    }
}

#[test]
fn a_revoked_tool_is_not_listed() {
    let facts = facts(ALL);
    let principal = principal();
    let shown = |revocations| {
        let visibility = Visibility {
            policies: Arc::clone(&facts.policies),
            principal: &principal,
            server: "s",
            listener: "in",
            era: Era::Legacy,
            delegation: None,
            revocations,
        };
        let lists = [
            (crate::protocol::method::ListOf::Tools, "echo"),
            (crate::protocol::method::ListOf::Tools, "wipe"),
            (crate::protocol::method::ListOf::Prompts, "echo"),
        ];
        lists.map(|(list, item)| visibility.shows(list, item))
    };
    assert_eq!(shown(revoked("tool", "s/echo")), [false, true, true]);
    assert_eq!(shown(revoked("tool", "other/echo")), [true, true, true]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Revoking something more never lets a call through that was refused.
    #[test]
    fn revoking_more_never_permits(
        chosen in proptest::collection::vec(0..6_usize, 0..6),
        more in 0..6_usize,
    ) {
        let all = [
            ("spiffe", "spiffe://td/agent-a"),
            ("spiffe", "spiffe://td/agent-b"),
            ("tool", "s/echo"),
            ("tool", "s/wipe"),
            ("session", "s-1"),
            ("session", "s-2"),
        ];
        let mut facts = facts(ALL);
        let call = call(ECHO, Some("s-1"));
        let chain = Chain::new(vec![Box::new(RevocationStage), Box::new(PolicyStage)]);
        let mut is_permitted = |chosen: &BTreeSet<usize>| {
            let entries = chosen.iter().map(|at| entry(all[*at].0, all[*at].1));
            facts.revocations = Arc::new(Revocations::of(true, entries));
            permitted(&chain, &call, &facts, false).is_ok()
        };
        let mut chosen: BTreeSet<_> = chosen.into_iter().collect();
        let before = is_permitted(&chosen);
        chosen.insert(more);
        prop_assert!(before || !is_permitted(&chosen));
        prop_assert_eq!(is_permitted(&chosen), !chosen.iter().any(|at| at % 2 == 0));
    }
}

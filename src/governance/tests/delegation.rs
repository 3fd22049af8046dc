//! What is done on somebody's behalf, and what somebody does by itself.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::json;

use super::*;
use crate::{
    delegation::{self, Behalf, Mode, Objection, Origin, Verifier, Who, tests::World},
    policy::settings::{Server, Tool},
    protocol::Class,
};

/// Facts with policies that permit everything to these members of the world, and with two classed tools.
fn facts_for(world: &World, permitted: &[usize]) -> Facts {
    let mut text = String::new();
    for at in permitted {
        let id = &world.members[*at].id;
        text.push_str(&format!("permit(principal == Agent::\"{id}\", action, resource);\n"));
    }
    text.push_str("forbid(principal, action, resource) when { context.method == \"acme/none\" };");
    let tool = |class| Tool { class, tags: vec![] };
    let tools = [("read", tool(Class::Read)), ("write", tool(Class::Write))];
    let tools = tools.into_iter().map(|(name, tool)| (name.to_owned(), tool)).collect();
    let servers = BTreeMap::from([("s".to_owned(), Server { agent: None, tags: vec![], tools })]);
    facts_with(&text, Settings { servers, ..Settings::default() })
}

fn call_of(tool: &'static str) -> Call {
    call(
        match tool {
            "read" => r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}"#,
            "write" => {
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write"}}"#
            }
            "" => r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            _ => ECHO,
        },
        None,
    )
}

/// What the stages say to a call of the last of `hops` members, with a chain of theirs.
fn judged(
    world: &World,
    behalf: &Behalf,
    tool: &'static str,
    facts: &Facts,
) -> Result<(), Refusal> {
    let stages = Chain::new(vec![Box::new(PolicyStage), Box::new(DelegationStage::new(None))]);
    let principal = behalf.chains()[0].hops().last().expect("a hop").principal();
    let call = call_of(tool);
    assert!(world.members.iter().any(|member| member.id == principal.id));
    stages.evaluate(&request(principal, &call, behalf), facts).map(|_permit| ())
}

#[test]
fn everybody_in_the_chain_has_to_be_permitted() {
    let world = World::new();
    let chain =
        Behalf::of(world.show(&Verifier::new(), &world.sign(&world.claims(3)), 3).expect("taken"));
    let objection = |hop: usize, to| {
        let id = world.members[hop].id.clone();
        Some(("delegation", Some(Objection { hop, id, to })))
    };
    use delegation::Limit::Policies;
    for (permitted, expected) in [
        (&[0, 1, 2][..], None),
        (&[0, 2], objection(1, Policies)),
        (&[1, 2], objection(0, Policies)),
        (&[2], objection(0, Policies)),
        (&[0, 1], Some(("policy", None))),
    ] {
        let refused = judged(&world, &chain, "echo", &facts_for(&world, permitted)).err();
        let refused = refused.map(|refusal| match refusal.denial {
            Denial::DelegationDenied(objection) => (refusal.stage, Some(objection)),
            _ => (refusal.stage, None),
        });
        assert_eq!(refused, expected, "{permitted:?}");
    }
}

#[test]
fn modes_and_capabilities_of_each_hop_are_kept() {
    use delegation::Limit::{Capabilities, Mode};
    let world = World::new();
    let facts = facts_for(&world, &[0, 1]);
    for (modes, caps, tool, expected) in [
        (["full", "full"], [json!(null), json!(null)], "echo", None),
        (["full", "readwrite"], [json!(null), json!(null)], "echo", Some((1, Mode))),
        (["full", "readwrite"], [json!(null), json!(null)], "write", None),
        (["readonly", "readonly"], [json!(null), json!(null)], "write", Some((0, Mode))),
        (["readonly", "readonly"], [json!(null), json!(null)], "read", None),
        (["readonly", "readonly"], [json!(null), json!(null)], "", None),
        (["full", "full"], [json!(["s|tools/call|e*"]), json!(null)], "echo", None),
        (["full", "full"], [json!(["s|tools/call|e*"]), json!(null)], "", None),
        (
            ["full", "full"],
            [json!(["s|tools/call|e*"]), json!(null)],
            "read",
            Some((0, Capabilities)),
        ),
        (["full", "full"], [json!(null), json!(["other|*|*"])], "", Some((1, Capabilities))),
    ] {
        let mut claims = world.claims(2);
        for (at, (mode, caps)) in modes.into_iter().zip(caps).enumerate() {
            claims[at]["mode"] = mode.into();
            if !caps.is_null() {
                claims[at]["cap"] = caps;
            }
        }
        let chain =
            Behalf::of(world.show(&Verifier::new(), &world.sign(&claims), 2).expect("taken"));
        let refused = judged(&world, &chain, tool, &facts).err();
        let refused = refused.map(|refusal| match refusal.denial {
            Denial::DelegationDenied(Objection { hop, to, .. }) => (hop, to),
            denial => panic!("{denial:?}"),
        });
        assert_eq!(refused, expected, "{claims:?} {tool}");
    }
}

#[test]
fn without_a_chain_only_those_act_who_may_begin_one() {
    let facts = facts("@id(\"all\") permit (principal, action, resource);");
    let origins = |who: &str, mode| {
        let origin = Origin { who: Who::parse(who).expect("who"), mode };
        delegation::Settings { origins: vec![origin], ..delegation::Settings::default() }
    };
    for (settings, tool, permit) in [
        (None, "echo", true),
        (Some(delegation::Settings::default()), "echo", false),
        // A list is done for nobody.
        (Some(delegation::Settings::default()), "", true),
        (Some(origins("spiffe://td/other", Mode::Full)), "echo", false),
        (Some(origins("spiffe://td/*", Mode::Full)), "echo", true),
        (Some(origins("spiffe://td/agent-a", Mode::ReadWrite)), "echo", false),
        (Some(origins("spiffe://td/agent-a", Mode::ReadOnly)), "", true),
    ] {
        let what = format!("{settings:?} {tool}");
        let stages =
            Chain::new(vec![Box::new(PolicyStage), Box::new(DelegationStage::new(settings))]);
        match permitted(&stages, &call_of(tool), &facts, false) {
            Ok(_) => assert!(permit, "{what}"),
            Err(refusal) => {
                assert!(matches!(refusal.denial, Denial::DelegationRequired), "{what}");
                assert!(!permit, "{what}");
            }
        }
    }
}

/// A world, and facts for each choice of three members, since loading policies takes its time.
static WORLD: LazyLock<(World, Vec<Facts>)> = LazyLock::new(|| {
    let world = World::new();
    let facts = (0..8_usize).map(|mask| {
        let members: Vec<_> = (0..3).filter(|at| mask >> at & 1 == 1).collect();
        facts_for(&world, &members)
    });
    let facts = facts.collect();
    (world, facts)
});

fn mask(permitted: [bool; 3]) -> usize {
    (0..3).filter(|at| permitted[*at]).map(|at| 1 << at).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn adding_a_hop_never_permits_more(
        mut modes in prop::array::uniform3(0_usize..3),
        mut caps in prop::array::uniform3(0_usize..4),
        permitted in prop::array::uniform3(any::<bool>()),
        tool in prop::sample::select(vec!["read", "write", "echo", ""]),
    ) {
        modes.sort_unstable();
        modes.reverse();
        caps.sort_unstable();
        let (world, all) = &*WORLD;
        let facts = &all[mask(permitted)];
        let mut claims = world.claims(3);
        for (at, claims) in claims.iter_mut().enumerate() {
            claims["mode"] = Mode::ALL[modes[at]].as_str().into();
            let lists = [json!(null), json!(["s|*|*"]), json!(["s|tools/*|r*", "s|tools/call|e*"]),
                json!(["s|tools/call|read"])];
            if caps[at] > 0 {
                claims["cap"] = lists[caps[at]].clone();
            }
        }
        let verdicts: Vec<bool> = (1..=3)
            .map(|hops| {
                let header = world.sign(&claims[..hops]);
                let chain = Behalf::of(world.show(&Verifier::new(), &header, hops).expect("taken"));
                judged(world, &chain, tool, facts).is_ok()
            })
            .collect();
        prop_assert!(verdicts.is_sorted_by(|before, after| before >= after), "{:?}", verdicts);
        prop_assert_eq!(verdicts[0], permitted[0] && Mode::ALL[modes[0]].permits(match tool {
            "read" => Class::Read,
            "write" => Class::Write,
            "" => Class::List,
            _ => Class::Execute,
        }) && (caps[0] < 3 || tool.is_empty() || tool == "read")
            && (caps[0] < 2 || tool != "write"));
    }
}

#[test]
fn a_vague_call_is_refused_where_it_has_to_say_for_whom_it_is() {
    use delegation::link::{Cause, Linked, Rung};
    let facts = facts("@id(\"all\") permit (principal, action, resource);");
    let caller = crate::identity::SpiffeId::parse("spiffe://td/agent-a").expect("an ID");
    let origins = vec![Origin { who: Who::parse("spiffe://td/*").expect("who"), mode: Mode::Full }];
    for (ambient, rung, tool, permit) in [
        (true, Rung::Ambient, "echo", true),
        (false, Rung::Ambient, "echo", false),
        (false, Rung::Ambient, "", true),
        (false, Rung::Handle, "echo", true),
        (false, Rung::Single, "echo", true),
        (false, Rung::Root, "echo", true),
    ] {
        let settings =
            delegation::Settings { ambient, origins: origins.clone(), ..Default::default() };
        let stages =
            Chain::new(vec![Box::new(PolicyStage), Box::new(DelegationStage::new(Some(settings)))]);
        let behalf = Behalf::itself(Mode::Full);
        let cause = Cause { call_id: uuid::Uuid::nil(), caller: caller.clone(), behalf };
        let behalf = Behalf::linked(&Linked { rung, causes: vec![Arc::new(cause)] });
        let call = call_of(tool);
        let principal = Principal { id: caller.clone(), proof: Proof::Own };
        let request = Request { listener: "out", ..request(&principal, &call, &behalf) };
        match stages.evaluate(&request, &facts) {
            Ok(_) => assert!(permit, "{ambient} {rung:?} {tool}"),
            Err(refusal) => {
                assert!(matches!(refusal.denial, Denial::DelegationAmbiguous), "{refusal:?}");
                assert!(!permit, "{ambient} {rung:?} {tool}");
            }
        }
    }
}

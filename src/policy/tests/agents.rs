//! Calls between agents.

use super::*;
use crate::{
    policy::Delegation,
    protocol::{a2a::Traits, method::AGENT_METHODS},
};

fn set(items: &[&str]) -> std::collections::BTreeSet<Box<str>> {
    items.iter().map(|item| Box::from(*item)).collect()
}

/// A decision on a call by its action, twice: the second comes from what was remembered.
fn decide(policies: &Policies, action: &str, target: Target, traits: Option<&Traits>) -> Decision {
    let ask = Ask { era: Era::V10, ..Ask::method(READER, action, target) };
    let judge = || ask.ask(|question| policies.decide(&Question { a2a: traits, ..*question }));
    let first = judge();
    assert_eq!(judge(), first);
    first
}

fn permitted(policies: &Policies, action: &str, target: Target, traits: &Traits) -> bool {
    let decision = decide(policies, action, target, Some(traits));
    assert!(decision.errors.is_empty(), "{action} {decision:?}");
    decision.permit
}

#[test]
fn one_line_says_what_an_agent_may_ask_of_another() {
    let task = || Target::Task("t".into());
    let questions = [
        ('c', "GetAgentCard", Target::Server),
        ('C', "GetExtendedAgentCard", Target::Server),
        ('l', "ListTasks", Target::Server),
        ('g', "GetTask", task()),
        ('f', "SubscribeToTask", task()),
        ('p', "GetTaskPushNotificationConfig", task()),
        ('q', "ListTaskPushNotificationConfigs", task()),
        ('x', "CancelTask", task()),
        ('P', "CreateTaskPushNotificationConfig", task()),
        ('D', "DeleteTaskPushNotificationConfig", task()),
        ('s', "SendMessage", Target::Server),
        ('S', "SendMessage", task()),
        ('t', "SendStreamingMessage", Target::Server),
        ('T', "SendStreamingMessage", task()),
    ];
    for (policy, allowed) in [
        ("permit(principal, action, resource);", "cClgfpqxPDsStT"),
        (
            r#"permit(principal in TrustDomain::"td", action, resource in Server::"files");"#,
            "cClgfpqxPDsStT",
        ),
        ("permit(principal, action, resource is Task);", "gfpqxPDST"),
        (r#"permit(principal, action, resource == Task::"files/t");"#, "gfpqxPDST"),
        (r#"permit(principal, action in Action::"control", resource);"#, "cC"),
        (r#"permit(principal, action in Action::"list", resource);"#, "l"),
        (r#"permit(principal, action in Action::"read", resource);"#, "gfpq"),
        (r#"permit(principal, action in Action::"write", resource);"#, "xPD"),
        (r#"permit(principal, action in Action::"execute", resource);"#, "sStT"),
        (r#"permit(principal, action == Action::"SendMessage", resource);"#, "sS"),
        // What they ask of each other has its own names, and isn't what servers ask.
        (r#"permit(principal, action == Action::"tasks/get", resource);"#, ""),
        (r#"permit(principal, action in [Action::"asks", Action::"tools/call"], resource);"#, ""),
        ("permit(principal is Server, action, resource);", ""),
        ("permit(principal, action, resource) when { context.era == \"1.0\" };", "cClgfpqxPDsStT"),
        ("permit(principal, action, resource) when { context.era == \"modern\" };", ""),
    ] {
        let policies = policies(policy);
        let traits = Traits::default();
        let found: String = questions
            .iter()
            .filter(|(_, action, target)| permitted(&policies, action, target.clone(), &traits))
            .map(|(letter, ..)| letter)
            .collect();
        assert_eq!(found, allowed, "{policy}");
    }
}

#[test]
fn both_spellings_are_one_action() {
    let policies = policies(r#"permit(principal, action == Action::"GetTask", resource);"#);
    let target = Target::Task("t".into());
    for (method, era, expected) in [
        (Method::of_agent("GetTask"), Era::V10, true),
        (Method::of_agent("tasks/get"), Era::V03, true),
        (Method::parse("tasks/get"), Era::Legacy, false),
    ] {
        let decision = Ask::method(READER, "", target.clone()).ask(|question| {
            let traits = Traits::default();
            policies.decide(&Question { method: &method, era, a2a: Some(&traits), ..*question })
        });
        assert_eq!(decision.permit, expected, "{method:?}");
    }
}

#[test]
fn methods_of_one_protocol_are_unknown_in_the_other() {
    let policies = policies("permit(principal, action, resource);");
    for rule in AGENT_METHODS {
        // As an MCP endpoint decodes it: `tasks/get` is one there, another one.
        let of_mcp = Method::parse(rule.name);
        assert!(of_mcp != Method::Known(rule), "{}", rule.name);
        let shared = of_mcp.rule().is_some();
        assert_eq!(policies.knows(&of_mcp), shared, "{}", rule.name);
    }
    for rule in METHODS {
        let of_agent = Method::of_agent(rule.name);
        assert!(of_agent != Method::Known(rule), "{}", rule.name);
        assert_eq!(policies.knows(&of_agent), of_agent.rule().is_some(), "{}", rule.name);
    }
    for name in ["sendmessage", "tasks/send", "read", "GetAgentCard"] {
        assert!(!policies.knows(&Method::of_agent(name)), "{name}");
    }
    assert!(policies.knows(&Method::of_agent("acme/doThing")));
}

#[test]
fn policies_read_what_a_message_tells() {
    let plain = Traits { parts: set(&["text"]), ..Traits::default() };
    let form = |form: &str| Traits { form: Some(form.into()), ..plain.clone() };
    let push = |hosts: &[&str]| Traits { push_hosts: set(hosts), ..plain.clone() };
    let messages = [
        ('p', plain.clone()),
        ('e', Traits::default()),
        ('u', Traits { parts: set(&["text", "url"]), ..Traits::default() }),
        ('a', Traits { tenant: Some("acme".into()), ..plain.clone() }),
        ('b', Traits { tenant: Some("beta".into()), ..plain.clone() }),
        ('x', Traits { extensions: set(&["https://e.example/1"]), ..plain.clone() }),
        ('o', push(&["hooks.example"])),
        ('O', push(&["hooks.example", "evil.example"])),
        ('c', form("claim")),
        ('s', Traits { streaming: true, ..plain.clone() }),
        ('h', Traits { spawned: true, ..form("delegate") }),
    ];
    for (condition, allowed) in [
        ("true", "peuabxoOcsh"),
        (r#"["text", "data"].containsAll(context.a2a.parts)"#, "peabxoOcsh"),
        (r#"context.a2a has tenant && context.a2a.tenant == "acme""#, "a"),
        (r#"!(context.a2a has tenant)"#, "peuxoOcsh"),
        (r#"["hooks.example"].containsAll(context.a2a.pushHosts)"#, "peuabxocsh"),
        (r#"context.a2a.pushHosts.isEmpty()"#, "peuabxcsh"),
        (r#"context.a2a.extensions.contains("https://e.example/1")"#, "x"),
        (r#"context.a2a has form && context.a2a.form == "claim""#, "c"),
        (r#"context.a2a.streaming"#, "s"),
        (r#"context.a2a.spawned"#, "h"),
        (r#"!context.a2a.spawned"#, "peuabxoOcs"),
    ] {
        let policies = policies(&format!(
            r#"permit(principal, action == Action::"SendMessage", resource) when {{ {condition} }};"#
        ));
        // Nothing is taken over from one question to the next.
        for order in [1, -1] {
            let mut messages: Vec<_> = messages.iter().collect();
            if order < 0 {
                messages.reverse();
            }
            let mut found: Vec<char> = messages
                .into_iter()
                .filter(|(_, traits)| permitted(&policies, "SendMessage", Target::Server, traits))
                .map(|(letter, _)| *letter)
                .collect();
            found.sort_by_key(|letter| "peuabxoOcsh".find(*letter));
            assert_eq!(found.iter().collect::<String>(), allowed, "{condition}");
        }
    }
}

#[test]
fn without_what_the_message_told_nothing_that_reads_it_holds() {
    for policy in [
        "permit(principal, action == Action::\"SendMessage\", resource) when { !context.a2a.streaming };",
        "permit(principal, action, resource);
         forbid(principal, action == Action::\"SendMessage\", resource) when { context.a2a.streaming };",
    ] {
        let policies = policies(policy);
        let decision = decide(&policies, "SendMessage", Target::Server, None);
        assert!(!decision.permit && !decision.errors.is_empty(), "{decision:?}");
        let ask = Ask { era: Era::V10, ..Ask::method(READER, "SendMessage", Target::Server) };
        let told = ask.ask(|question| policies.explain(question).to_string());
        assert!(told.contains("denied"), "{told}");
    }
    let policies = policies(
        r#"permit(principal, action == Action::"SendMessage", resource) when { context.a2a.streaming };"#,
    );
    let ask = Ask { era: Era::V10, ..Ask::method(READER, "SendMessage", Target::Server) };
    let told = ask.ask(|question| policies.explain(question).to_string());
    assert!(told.contains("depends on what the message told"), "{told}");
}

#[test]
fn a_policy_can_only_read_what_is_filled() {
    for policy in [
        r#"permit(principal, action == Action::"SendMessage", resource) when { context.a2a.form == "x" };"#,
        r#"permit(principal, action == Action::"SendMessage", resource) when { context.a2a.skill == "x" };"#,
        r#"permit(principal, action == Action::"tools/list", resource) when { context.a2a.streaming };"#,
    ] {
        let directory = directory(&[("a.cedar", policy)]);
        assert!(Policies::load(&settings(directory.path())).is_err(), "{policy}");
    }
}

#[test]
fn contexts_of_calls_between_agents_conform_to_the_schema() {
    let policies = policies("permit(principal, action, resource);");
    let full = Traits {
        tenant: Some("t".into()),
        parts: set(&["text"]),
        extensions: set(&["e"]),
        push_hosts: set(&["h"]),
        form: Some("claim".into()),
        spawned: true,
        streaming: true,
    };
    let root = SpiffeId::parse(READER).expect("valid");
    let (user, tenant) = (Some("u"), Some("t"));
    let place = Delegation { depth: 2, hop: 1, mode: "full", root: &root, user, tenant };
    for rule in AGENT_METHODS {
        let target = match rule.governs {
            crate::protocol::method::Governs::Task => Target::Task("t".into()),
            _ => Target::Server,
        };
        for (traits, delegation) in [(&full, Some(place)), (&Traits::default(), None)] {
            let ask = Ask { era: Era::V10, ..Ask::method(READER, rule.action, target.clone()) };
            ask.ask(|question| {
                let question = Question { a2a: Some(traits), delegation, ..*question };
                let (scene, _) = policies.scene(&question, &policies.calls).expect("a scene");
                let request = scene.request(None).expect("a request");
                let context = request.context().expect("a context").clone();
                let schema = &policies.vocabulary.schema;
                context.validate(schema, &scene.action.uid).expect("the context conforms");
            });
        }
    }
}

#[test]
fn policies_read_on_whose_behalf_a_message_comes() {
    let policies = policies(
        "permit(principal, action == Action::\"SendMessage\", resource) \
         when { context has delegation && context.delegation.depth <= 2 };",
    );
    let root = SpiffeId::parse(READER).expect("valid");
    let ask = Ask { era: Era::V10, ..Ask::method(READER, "SendMessage", Target::Server) };
    for (depth, permitted) in [(None, false), (Some(2), true), (Some(3), false)] {
        let delegation = depth.map(|depth| Delegation {
            depth,
            hop: 0,
            mode: "full",
            root: &root,
            user: None,
            tenant: None,
        });
        let decision = ask.ask(|question| {
            let a2a = Some(&Traits::default());
            policies.decide(&Question { a2a, delegation, ..*question })
        });
        assert_eq!((decision.permit, decision.errors.len()), (permitted, 0), "{depth:?}");
    }
}

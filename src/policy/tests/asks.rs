//! What servers ask: calls in the other direction.

use super::*;
use crate::protocol::mcp::server::{Elicitation, Sampling};

fn sampling(max_tokens: i64, include_context: &str) -> Asks {
    Asks::Sampling(Sampling {
        max_tokens,
        hints: ["opus".into()].into(),
        tools: ["wipe".into(), "read".into()].into(),
        include_context: include_context.into(),
    })
}

fn form(fields: &[&str]) -> Asks {
    let fields = fields.iter().map(|field| Box::from(*field)).collect();
    Asks::Elicitation(Elicitation::Form { fields })
}

fn visit(scheme: &str, host: &str) -> Asks {
    Asks::Elicitation(Elicitation::Url { scheme: scheme.into(), host: host.into() })
}

fn asked(policies: &Policies, server: &str, method: &str, asks: Option<&Asks>) -> Decision {
    let ask = Ask::method(READER, method, Target::Caller).on(server);
    ask.ask(|question| policies.decide(&Question { asks, ..*question }))
}

fn permitted(policies: &Policies, method: &str, asks: &Asks) -> bool {
    let decision = asked(policies, "files", method, Some(asks));
    assert!(decision.errors.is_empty(), "{method} {decision:?}");
    decision.permit
}

#[test]
fn one_line_says_what_a_server_may_ask() {
    let (small, large) = (sampling(100, "none"), sampling(100_000, "allServers"));
    let (plain, secret) = (form(&["name", "age"]), form(&["name", "apiKey"]));
    let (own, other) = (visit("https", "login.example.com"), visit("http", "evil.example"));
    let questions = [
        ('P', "client/ping", &Asks::Plain),
        ('R', "roots/list", &Asks::Plain),
        ('G', "client/tasks/get", &Asks::Plain),
        ('C', "client/tasks/cancel", &Asks::Plain),
        ('f', "elicitation/create", &plain),
        ('F', "elicitation/create", &secret),
        ('u', "elicitation/create", &own),
        ('U', "elicitation/create", &other),
        ('s', "sampling/createMessage", &small),
        ('S', "sampling/createMessage", &large),
    ];
    for (policy, allowed) in [
        (r#"permit(principal, action, resource);"#, "PRGCfFuUsS"),
        (r#"permit(principal, action in Action::"asks", resource);"#, "PRGCfFuUsS"),
        (r#"permit(principal is Server, action, resource);"#, "PRGCfFuUsS"),
        (r#"permit(principal == Server::"files", action, resource is Agent);"#, "PRGCfFuUsS"),
        (r#"permit(principal, action, resource in TrustDomain::"td");"#, "PRGCfFuUsS"),
        (r#"permit(principal, action, resource in Group::"acme");"#, "PRGCfFuUsS"),
        (
            r#"permit(principal, action, resource) when { principal.tags.contains("internal") };"#,
            "PRGCfFuUsS",
        ),
        (
            r#"permit(principal, action, resource) when { resource.tags.contains("acme") };"#,
            "PRGCfFuUsS",
        ),
        (r#"permit(principal, action in Action::"asks.control", resource);"#, "P"),
        (r#"permit(principal, action in Action::"asks.read", resource);"#, "RG"),
        (r#"permit(principal, action in Action::"asks.write", resource);"#, "CfFuU"),
        (r#"permit(principal, action in Action::"asks.execute", resource);"#, "sS"),
        (r#"permit(principal, action == Action::"roots/list", resource);"#, "R"),
        // Rules for calls never reach the other direction.
        (r#"permit(principal is Agent, action, resource);"#, ""),
        (r#"permit(principal in TrustDomain::"td", action, resource);"#, ""),
        (r#"permit(principal, action, resource in Server::"files");"#, ""),
        (r#"permit(principal, action == Action::"ping", resource);"#, ""),
        (
            r#"permit(principal, action in [Action::"control", Action::"list", Action::"read",
                Action::"write", Action::"execute", Action::"tools/call"], resource);"#,
            "",
        ),
        (r#"permit(principal == Server::"other", action, resource);"#, ""),
        (r#"permit(principal, action, resource in Group::"writers");"#, ""),
        (
            r#"permit(principal, action in Action::"asks", resource);
               forbid(principal, action == Action::"elicitation/create", resource)
               when { context.elicitation.words.containsAny(["password", "key"]) };"#,
            "PRGCfuUsS",
        ),
        (
            r#"permit(principal, action == Action::"elicitation/create", resource)
               when { context.elicitation has url && context.elicitation.url.scheme == "https"
                      && context.elicitation.url.host == "login.example.com" };"#,
            "u",
        ),
        (
            r#"permit(principal, action == Action::"elicitation/create", resource)
               when { context.elicitation.mode == "form" };"#,
            "fF",
        ),
        (
            r#"permit(principal, action == Action::"sampling/createMessage", resource)
               when { context.sampling.maxTokens <= 100 && context.sampling.includeContext == "none"
                      && context.sampling.hints.contains("opus") };"#,
            "s",
        ),
        (
            r#"permit(principal, action == Action::"sampling/createMessage", resource)
               unless { context.sampling.tools.contains("wipe") };"#,
            "",
        ),
        (
            r#"permit(principal, action == Action::"roots/list", resource)
               when { context.method == "roots/list" && context.era == "legacy"
                      && context.listener == "inbound" };"#,
            "R",
        ),
        (
            r#"permit(principal, action == Action::"client/ping", resource)
               when { context.method == "ping" };"#,
            "P",
        ),
    ] {
        let policies = policies(policy);
        for (letter, method, asks) in questions {
            let found = permitted(&policies, method, asks);
            assert_eq!(found, allowed.contains(letter), "{letter} {policy}");
            assert_eq!(permitted(&policies, method, asks), found, "asked again");
        }
    }
}

#[test]
fn an_answer_is_never_that_to_another_question() {
    let policies = policies(
        r#"permit(principal, action, resource);
           forbid(principal, action == Action::"sampling/createMessage", resource)
           when { context.sampling.maxTokens > 100 };"#,
    );
    for _ in 0..2 {
        for (tokens, permit) in [(100, true), (101, false), (99, true), (5_000, false)] {
            let asks = sampling(tokens, "none");
            assert_eq!(permitted(&policies, "sampling/createMessage", &asks), permit, "{tokens}");
        }
    }
    // The agent's own `ping`, the server's, and a tool of the same name are three questions.
    let policies = policies_of(r#"forbid(principal, action == Action::"client/ping", resource);"#);
    assert!(Ask::method(READER, "ping", Target::Server).permitted(&policies));
    assert!(!permitted(&policies, "client/ping", &Asks::Plain));
    assert!(Ask::call(READER, "client/ping").permitted(&policies));
}

fn policies_of(more: &str) -> Policies {
    policies(&format!("permit(principal, action, resource);{more}"))
}

#[test]
fn what_fails_or_is_missing_refuses() {
    let failing = policies_of(
        r#"@id("bad") forbid(principal, action == Action::"sampling/createMessage", resource)
           when { context.sampling.maxTokens + 9223372036854775807 < 0 };"#,
    );
    let decide = |asks: Option<&Asks>| asked(&failing, "files", "sampling/createMessage", asks);
    assert!(decide(Some(&sampling(0, "none"))).permit);
    let overflown = decide(Some(&sampling(1, "none")));
    assert_eq!(overflown.errors, ["policy `bad`: integer overflow"]);
    assert!(!overflown.permit);
    // Nobody says what is asked, or says something else.
    for asks in [None, Some(&Asks::Plain), Some(&form(&[]))] {
        assert!(!decide(asks).permit, "{asks:?}");
    }
    // A method of the one side on a target of the other.
    let all = policies_of("");
    for (method, target) in [
        ("tools/list", Target::Caller),
        ("ping", Target::Caller),
        ("roots/list", Target::Server),
        ("client/ping", Target::Server),
        ("sampling/createMessage", tool("sampling/createMessage/x")),
    ] {
        let decision = Ask::method(READER, method, target).decide(&all);
        assert!(!decision.permit && decision.errors.len() == 1, "{method} {decision:?}");
    }
    assert!(!asked(&all, "a/b", "roots/list", None).permit, "a slash in the server's name");
}

#[test]
fn classes_are_those_of_the_method_table() {
    let all = policies_of("");
    for (method, asks, class) in [
        ("client/ping", Asks::Plain, Class::Control),
        ("roots/list", Asks::Plain, Class::Read),
        ("client/tasks/cancel", Asks::Plain, Class::Write),
        ("elicitation/create", form(&[]), Class::Write),
        ("sampling/createMessage", sampling(1, "none"), Class::Execute),
    ] {
        assert_eq!(asked(&all, "files", method, Some(&asks)).class, class, "{method}");
    }
}

#[test]
fn fragments_declare_what_servers_of_a_vendor_ask() {
    let load = |fragment: &str| {
        let all = ("a.cedar", "permit(principal, action, resource);");
        let directory = directory(&[all, ("f.cedarschema", fragment)]);
        Policies::load(&settings(directory.path()))
    };
    let declared = load(
        r#"action "acme" in ["asks"];
           action "acme/ask" in ["acme", "asks.write"] appliesTo { principal: Server, resource: Agent };
           action "acme/do" in ["write"] appliesTo { principal: Agent, resource: Server };"#,
    )
    .expect("loads");
    let [ask, call] = ["acme/ask", "acme/do"].map(Method::of_server);
    assert!(declared.knows_asked(&ask) && !declared.knows(&ask));
    assert!(!declared.knows_asked(&call) && declared.knows(&call));
    let decision = asked(&declared, "files", "acme/ask", Some(&Asks::Plain));
    assert_eq!((decision.permit, decision.class), (true, Class::Write));
    assert!(!asked(&declared, "files", "acme/do", Some(&Asks::Plain)).permit);
    assert!(!Ask::method(READER, "acme/ask", Target::Server).permitted(&declared));
    for (fragment, why) in [
        (
            r#"action "acme/ask" in ["write"] appliesTo { principal: Server, resource: Agent };"#,
            "has to be in `asks.control`",
        ),
        (
            r#"action "acme/ask" in ["asks"] appliesTo { principal: Server, resource: Agent };"#,
            "has to be in `asks.control`",
        ),
        (
            r#"action "acme/ask" in ["asks.read", "read"] appliesTo
               { principal: Server, resource: Agent };"#,
            "in no group of calls",
        ),
        (
            r#"action "acme/do" in ["read", "asks.read"] appliesTo
               { principal: Agent, resource: Server };"#,
            "only what a server asks",
        ),
        (
            r#"action "s/t" in ["tools/call", "asks"] appliesTo
               { principal: Agent, resource: Tool };"#,
            "only what a server asks",
        ),
        (
            r#"action "acme/ask" in ["asks.read"] appliesTo
               { principal: Server, resource: Agent, context: { input: {} } };"#,
            "only a tool has arguments",
        ),
        (
            r#"action "acme/ask" in ["asks.read"] appliesTo { principal: Server, resource: Tool };"#,
            "that asks something of an `Agent`",
        ),
        (r#"action "asks.more" in ["asks"]; action "asks";"#, "declared twice"),
    ] {
        let faults = load(fragment).expect_err(fragment).faults;
        assert!(faults.iter().any(|fault| fault.message.contains(why)), "{fragment} {faults:?}");
    }
}

#[test]
fn a_rule_that_holds_for_calls_alone_is_told_how_to_say_so() {
    let load = |policy: &str| {
        let directory = directory(&[("a.cedar", policy)]);
        Policies::load(&settings(directory.path()))
    };
    let unscoped = r#"permit(principal, action, resource) when { principal.path like "/a/*" };"#;
    let faults = load(unscoped).expect_err("ambiguous").faults;
    let hint = faults[0].hint.as_deref().unwrap_or_default();
    assert!(hint.contains("write `principal is Agent`"), "{faults:?}");
    load(&unscoped.replacen("principal", "principal is Agent", 1)).expect("for calls");
    load(&unscoped.replace("action,", "action in Action::\"read\",")).expect("of calls");
    let mistaken = load(r#"permit(principal, action, resource) when { principal.nonesuch };"#);
    let faults = mistaken.expect_err("a mistake").faults;
    assert!(!faults[0].to_string().contains("principal is Agent"), "{faults:?}");
}

#[test]
fn a_refused_question_is_explained() {
    let policies = policies(
        r#"@id("short") permit(principal, action == Action::"sampling/createMessage", resource)
           when { context.sampling.maxTokens <= 100 };"#,
    );
    let asks = sampling(4_096, "none");
    let ask = Ask::method(READER, "sampling/createMessage", Target::Caller);
    let text = ask
        .ask(|question| policies.explain(&Question { asks: Some(&asks), ..*question }).to_string());
    for part in [
        r#"principal  Server::"files""#,
        r#"action     Action::"sampling/createMessage" (class execute)"#,
        r#"resource   Agent::"spiffe://td/tenant/acme/agent/r""#,
        "looked at: context.sampling.maxTokens",
        "short (a.cedar:1)",
        "lacks: when {",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("4096"), "no values: {text}");
    let recorded = Recorded { version: policies.version(), permit: false, policies: &[] };
    let explanation = ask.ask(|question| policies.explain_recorded(question, &recorded));
    assert_eq!(explanation.caveats, ["what the server asked for is not recorded"]);
    let lacking = &explanation.nearest[0].lacking;
    assert!(lacking[0].ends_with(": depends on what the server asked for"), "{lacking:?}");
}

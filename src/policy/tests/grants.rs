//! Documents of grants: what they permit, what they forbid.

mod faults;
mod laws;
mod limits;

use super::{
    super::grants::{Delegation, DelegationMode, schema, show},
    *,
};

const PLANNER: &str = "spiffe://td/tenant/acme/agent/planner";
const CODER: &str = "spiffe://td/tenant/acme/agent/coder";
const REVIEWER: &str = "spiffe://td/tenant/acme/agent/reviewer";

/// Three upstreams: `files` with tools, `coder` without a proven ID, `review` with one.
fn configured(directory: &Path) -> Settings {
    let mut settings = settings(directory);
    settings.servers.insert("coder".to_owned(), settings::Server::default());
    let review = settings::Server { agent: Some(REVIEWER.to_owned()), ..Default::default() };
    settings.servers.insert("review".to_owned(), review);
    settings
}

fn load(files: &[(&str, &str)]) -> Result<Policies, LoadError> {
    let directory = directory(files);
    Policies::load(&configured(directory.path()))
}

/// The policies of a document alone.
fn granted(document: &str) -> Policies {
    load(&[("team.grants.yaml", document), ("files.cedarschema", FRAGMENT)]).expect("loads")
}

/// With a permit for everything beside the document.
fn granted_beside_all(document: &str) -> Policies {
    let all = "@id(\"all\") permit(principal, action, resource);";
    let files = [("a.cedar", all), ("team.grants.yaml", document), ("files.cedarschema", FRAGMENT)];
    load(&files).expect("loads")
}

fn ids(decision: &Decision) -> Vec<&str> {
    decision.policies.iter().map(|id| &**id).collect()
}

fn message(principal: &'static str, upstream: &'static str) -> Ask<'static> {
    Ask::method(principal, "SendMessage", Target::Server).on(upstream)
}

#[test]
fn a_grant_covers_tools_by_name_and_class() {
    // Classes: read_file and echo read, save writes, wipe executes.
    for (tool_name, permissions, allowed) in [
        ("echo", "[read]", "E"),
        ("echo", "[write]", ""),
        ("echo", "[read, write, execute]", "E"),
        ("read_file", "[read]", "R"),
        ("re*", "[read]", "R"),
        ("*", "[read]", "RE"),
        ("*", "[write]", "S"),
        ("*", "[execute]", "W"),
        ("*", "[read, write]", "RES"),
        ("*", "[read, write, execute]", "RESW"),
        ("Echo", "[read, write, execute]", ""),
    ] {
        let document = format!(
            "agents: [{{id: '{PLANNER}'}}]\n\
             grants: [{{agent: '{PLANNER}', server: files, tool: '{tool_name}', \
             permissions: {permissions}}}]"
        );
        // What is granted is the same, whether others permit everything or nothing.
        for policies in [granted(&document), granted_beside_all(&document)] {
            for (letter, name) in [('R', "read_file"), ('E', "echo"), ('S', "save"), ('W', "wipe")]
            {
                let ask = Ask::call(PLANNER, name);
                let expected = allowed.contains(letter);
                assert_eq!(ask.permitted(&policies), expected, "{tool_name} {permissions} {name}");
                let listed = Ask::method(PLANNER, "tools/list", tool(name)).listed(&policies);
                assert_eq!(listed, expected, "{tool_name} {permissions} {name}");
            }
            assert!(Ask::method(PLANNER, "tools/list", Target::Server).permitted(&policies));
            assert!(Ask::method(PLANNER, "initialize", Target::Server).permitted(&policies));
            let task = Target::Task("t".into());
            assert!(Ask::method(PLANNER, "tasks/cancel", task).permitted(&policies));
        }
        let policies = granted(&document);
        assert!(!Ask::call(CODER, "echo").permitted(&policies));
        assert!(!Ask::call(PLANNER, "echo").on("coder").permitted(&policies));
        assert!(!Ask::method(CODER, "tools/list", Target::Server).permitted(&policies));
    }
}

#[test]
fn a_tool_in_two_classes_counts_as_the_worse() {
    let both = r#"action "files/sync" in ["tools/call", "read", "execute"]
                    appliesTo { principal: Agent, resource: Tool };"#;
    for (permissions, allowed) in [("[read]", false), ("[execute]", true)] {
        let document = format!(
            "agents: [{{id: '{PLANNER}'}}]\n\
             grants: [{{agent: '{PLANNER}', server: files, tool: sync, permissions: {permissions}}}]"
        );
        let policies =
            load(&[("a.grants.yaml", &document), ("a.cedarschema", both)]).expect("loads");
        assert_eq!(Ask::call(PLANNER, "sync").permitted(&policies), allowed, "{permissions}");
    }
}

#[test]
fn dynamic_discovery_leaves_other_tools_to_other_policies() {
    for (dynamic, others) in [(true, true), (false, false)] {
        let document = format!("agents: [{{id: '{PLANNER}', dynamicDiscovery: {dynamic}}}]");
        let beside = granted_beside_all(&document);
        assert_eq!(Ask::call(PLANNER, "echo").permitted(&beside), others);
        assert_eq!(Ask::method(PLANNER, "tools/list", tool("echo")).listed(&beside), others);
        assert!(!Ask::call(PLANNER, "echo").permitted(&granted(&document)), "it grants nothing");
    }
}

#[test]
fn entries_that_fit_one_agent_add_up() {
    let document = format!(
        "agents:\n\
         - {{id: 'spiffe://td/tenant/acme/agent/*', canInvoke: [review]}}\n\
         - {{id: '{PLANNER}', canInvoke: [coder]}}\n\
         - {{id: '{CODER}', upstream: coder, invocableBy: [acme]}}\n\
         - {{id: '{REVIEWER}', invocableBy: [acme]}}\n\
         grants:\n\
         - {{agent: 'spiffe://td/tenant/acme/agent/*', server: files, tool: echo, permissions: [read]}}\n\
         - {{agent: '{PLANNER}', server: files, tool: save, permissions: [write]}}\n"
    );
    for policies in [granted(&document), granted_beside_all(&document)] {
        for (principal, tools, upstreams) in [
            (PLANNER, ["echo", "save"].as_slice(), ["coder", "review"].as_slice()),
            (READER, &["echo"], &["review"]),
        ] {
            for name in ["echo", "save", "wipe"] {
                let permitted = Ask::call(principal, name).permitted(&policies);
                assert_eq!(permitted, tools.contains(&name), "{principal} {name}");
            }
            for upstream in ["coder", "review"] {
                let permitted = message(principal, upstream).permitted(&policies);
                assert_eq!(permitted, upstreams.contains(&upstream), "{principal} {upstream}");
            }
        }
    }
}

fn invocations() -> [(&'static str, Target); 6] {
    let task = || Target::Task("t".into());
    [
        ("SendMessage", Target::Server),
        ("SendStreamingMessage", task()),
        ("GetTask", task()),
        ("ListTasks", Target::Server),
        ("CreateTaskPushNotificationConfig", task()),
        ("GetExtendedAgentCard", Target::Server),
    ]
}

#[test]
fn an_invocation_needs_the_word_of_both() {
    for (can, by, invokes) in [
        ("coder", PLANNER, true),
        (CODER, PLANNER, true),
        ("coder", "spiffe://td/tenant/acme/agent/*", true),
        ("coder", "spiffe://td/*", true),
        ("coder", "acme", true),
        ("coder", "writers", false),
        ("coder", READER, false),
        ("coder", "", false),
        ("", PLANNER, false),
        ("review", PLANNER, false),
    ] {
        let list = |name: &str| if name.is_empty() { "[]".into() } else { format!("['{name}']") };
        let (can, by) = (list(can), list(by));
        let document = format!(
            "agents:\n\
             - {{id: '{PLANNER}', canInvoke: {can}}}\n\
             - {{id: '{CODER}', upstream: coder, invocableBy: {by}}}\n"
        );
        for policies in [granted(&document), granted_beside_all(&document)] {
            for (method, target) in invocations() {
                let ask = Ask::method(PLANNER, method, target.clone()).on("coder");
                assert_eq!(ask.permitted(&policies), invokes, "{document} {method}");
                for other in [WRITER, CODER] {
                    let ask = Ask::method(other, method, target.clone()).on("coder");
                    assert!(!ask.permitted(&policies), "{document} {method} {other}");
                }
            }
        }
        let card = Ask::method(PLANNER, "GetAgentCard", Target::Server).on("coder");
        assert_eq!(card.permitted(&granted(&document)), invokes);
    }
}

#[test]
fn a_declared_agent_invokes_only_whom_it_names() {
    // Nobody declared the agent behind `coder`, so other policies may permit to invoke it.
    let document = format!(
        "agents:\n\
         - {{id: 'spiffe://td/tenant/acme/agent/*'}}\n\
         - {{id: '{PLANNER}', canInvoke: [coder]}}\n"
    );
    let (alone, beside) = (granted(&document), granted_beside_all(&document));
    for (caller, permitted) in [(PLANNER, true), (READER, false), ("spiffe://td/other", true)] {
        let decision = message(caller, "coder").decide(&beside);
        assert_eq!(decision.permit, permitted, "{caller} {decision:?}");
        if !permitted {
            assert_eq!(ids(&decision), ["team.grants.yaml#agents[0].canInvoke"]);
        }
        assert!(!message(caller, "coder").permitted(&alone), "{caller}");
    }
}

#[test]
fn a_permit_speaks_of_those_only_that_both_sides_name() {
    let document = format!(
        "agents:\n\
         - {{id: 'spiffe://td/tenant/acme/agent/*', canInvoke: [coder]}}\n\
         - {{id: '{CODER}', upstream: coder, invocableBy: [writers]}}\n"
    );
    let policies = granted(&document);
    for (caller, permitted) in [(WRITER, true), (READER, false)] {
        let explained = message(caller, "coder").ask(|question| policies.explain(question));
        assert_eq!(explained.decision.permit, permitted, "{explained}");
        // The forbid has nothing to overrule.
        assert_eq!(explained.overruled, [], "{explained}");
    }
}

#[test]
fn a_card_is_open_to_invokers_or_to_everybody() {
    for (card, expected) in [("invokers", false), ("everybody", true)] {
        let document = format!("agents: [{{id: '{CODER}', upstream: coder, card: {card}}}]");
        let policies = granted(&document);
        let ask = |method| Ask::method(READER, method, Target::Server).on("coder");
        assert_eq!(ask("GetAgentCard").permitted(&policies), expected, "{card}");
        assert!(!ask("GetExtendedAgentCard").permitted(&policies), "{card}");
    }
}

#[test]
fn no_agent_invokes_itself() {
    // Everybody of the tenant may, so may the agent itself; only the entry of its own forbids it.
    let document = format!(
        "agents:\n\
         - {{id: 'spiffe://td/tenant/acme/*', canInvoke: [review]}}\n\
         - {{id: '{REVIEWER}', invocableBy: [acme]}}\n"
    );
    for policies in [granted(&document), granted_beside_all(&document)] {
        assert!(message(PLANNER, "review").permitted(&policies));
        let decision = message(REVIEWER, "review").decide(&policies);
        assert!(!decision.permit);
        assert_eq!(ids(&decision), ["team.grants.yaml#agents[1].self:review"]);
        assert_eq!(decision.reason.as_deref(), Some("An agent doesn't invoke itself."));
    }
}

#[test]
fn a_suspended_agent_neither_calls_nor_is_called() {
    let document = |status: &str| {
        format!(
            "agents:\n\
             - {{id: '{PLANNER}', canInvoke: [coder]}}\n\
             - {{id: '{CODER}', upstream: coder, invocableBy: ['{PLANNER}'], status: {status}}}\n\
             - {{id: 'spiffe://td/tenant/acme/agent/old/*', status: {status}}}\n\
             grants:\n\
             - {{agent: '{CODER}', server: files, tool: echo, permissions: [read]}}\n"
        )
    };
    let (active, suspended) =
        (granted_beside_all(&document("active")), granted_beside_all(&document("suspended")));
    let plain = &Asks::Plain;
    for ask in [
        Ask::call(CODER, "echo"),
        Ask::method(CODER, "initialize", Target::Server),
        Ask::method(CODER, "GetAgentCard", Target::Server).on("review"),
        message(PLANNER, "coder"),
        Ask::method(PLANNER, "GetTask", Target::Task("t".into())).on("coder"),
        Ask::method(PLANNER, "GetAgentCard", Target::Server).on("coder"),
        Ask::method("spiffe://td/tenant/acme/agent/old/1", "tools/list", Target::Server),
        // It isn't asked, and doesn't ask.
        Ask::method(CODER, "roots/list", Target::Caller),
        Ask::method(PLANNER, "roots/list", Target::Caller).on("coder"),
    ] {
        let permitted = |policies: &Policies| {
            ask.ask(|question| {
                let asks = (*question.target == Target::Caller).then_some(plain);
                policies.decide(&Question { asks, ..*question }).permit
            })
        };
        assert!(permitted(&active), "{} {} {:?}", ask.principal, ask.method, ask.target);
        assert!(!permitted(&suspended), "{} {} {:?}", ask.principal, ask.method, ask.target);
    }
    let reason = message(PLANNER, "coder").decide(&suspended).reason;
    assert_eq!(reason.as_deref(), Some("This agent is suspended."));
}

#[test]
fn a_deprecated_agent_takes_nothing_new() {
    let document = format!(
        "agents:\n\
         - {{id: '{PLANNER}', canInvoke: [coder], dynamicDiscovery: true}}\n\
         - {{id: '{CODER}', upstream: coder, invocableBy: ['{PLANNER}'], status: deprecated, \
             reason: Ask the reviewer., canInvoke: [review]}}\n\
         - {{id: '{REVIEWER}', invocableBy: ['{CODER}']}}\n"
    );
    for policies in [granted(&document), granted_beside_all(&document)] {
        let task = || Target::Task("t".into());
        for (method, target, permitted) in [
            ("SendMessage", Target::Server, false),
            ("SendStreamingMessage", Target::Server, false),
            ("SendMessage", task(), true),
            ("GetTask", task(), true),
            ("CancelTask", task(), true),
            ("ListTasks", Target::Server, true),
            ("GetAgentCard", Target::Server, true),
        ] {
            let decision = Ask::method(PLANNER, method, target).on("coder").decide(&policies);
            assert_eq!(decision.permit, permitted, "{method} {decision:?}");
            let reason = (!permitted).then_some("Ask the reviewer.");
            assert_eq!(decision.reason.as_deref(), reason, "{method}");
        }
        assert!(!Ask::call(PLANNER, "t").on("coder").permitted(&policies));
        assert!(message(CODER, "review").permitted(&policies), "it goes on calling");
    }
}

#[test]
fn decisions_tell_file_and_entry() {
    let document = format!(
        "# The team.\n\
         agents:\n\
         - id: '{PLANNER}'\n\
         ---\n\
         grants:\n\
         - agent: '{PLANNER}'\n\
         \x20 server: files\n\
         \x20 tool: ech*\n\
         \x20 permissions: [read]\n\
         \x20 reason: It echoes.\n"
    );
    let policies = granted_beside_all(&document);
    let granted = "team.grants.yaml#2.grants[0]";
    let decision = Ask::call(PLANNER, "echo").decide(&policies);
    assert_eq!(ids(&decision), ["all", granted]);
    let refused = Ask::call(PLANNER, "save").decide(&policies);
    assert_eq!(ids(&refused), ["team.grants.yaml#agents[0].tools"]);
    assert_eq!(refused.reason.as_deref(), Some("This tool is not granted to this agent."));
    let explained = Ask::call(PLANNER, "echo").ask(|question| policies.explain(question));
    let explained = explained.to_string();
    let origin = format!("{granted} (team.grants.yaml:6): It echoes.");
    assert!(explained.contains(&origin), "{explained}");
    let missed = Ask::call(READER, "echo")
        .ask(|question| self::granted(&document).explain(question).to_string());
    assert!(missed.contains(&origin) && missed.contains("lacks: principal =="), "{missed}");
}

#[test]
fn names_are_names_whatever_stands_in_them() {
    let odd = r#"a"]) || true // \"*x"#;
    let odd = odd.replace('*', "\u{e9}\u{1F600}");
    let document = format!(
        "agents: [{{id: '{PLANNER}'}}]\n\
         grants:\n\
         - {{agent: '{PLANNER}', server: files, tool: '{odd}', permissions: [execute], reason: '{odd}'}}\n\
         - {{agent: '{PLANNER}', server: files, tool: '{odd}.*', permissions: [execute]}}\n"
    );
    for policies in [granted(&document), granted_beside_all(&document)] {
        let rest = format!("{odd}.more");
        let like = format!("{odd}xmore");
        for (name, permitted) in [(&*odd, true), (&rest, true), (&like, false), ("wipe", false)] {
            assert_eq!(Ask::call(PLANNER, name).permitted(&policies), permitted, "{name}");
        }
    }
}

#[test]
fn a_thousand_grants_of_one_agent_are_judged() {
    let mut document = format!("agents: [{{id: '{PLANNER}'}}]\ngrants:\n");
    for number in 0..1_000 {
        let star = if number % 4 == 0 { "*" } else { "" };
        document.push_str(&format!(
            "- {{agent: '{PLANNER}', server: files, tool: 't{number}.{star}', permissions: [execute]}}\n"
        ));
    }
    let policies = granted_beside_all(&document);
    for (name, permitted) in [("t999.", true), ("t996.x", true), ("t999.x", false), ("t", false)] {
        let decision = Ask::call(PLANNER, name).decide(&policies);
        assert_eq!((decision.permit, decision.errors), (permitted, vec![]), "{name}");
    }
}

#[test]
fn delegation_is_the_narrowest_of_tenant_and_grants() {
    let document = format!(
        "agents: [{{id: '{PLANNER}'}}, {{id: 'spiffe://td/*'}}]\n\
         grants:\n\
         - {{agent: '{PLANNER}', server: files, tool: 're*', permissions: [read], \
             delegation: {{maxDepth: 2}}}}\n\
         - {{agent: 'spiffe://td/*', server: files, tool: read_file, permissions: [read], \
             delegation: {{mode: readonly}}}}\n\
         - {{agent: '{PLANNER}', server: files, tool: save, permissions: [write]}}\n\
         delegation: [{{tenant: acme, maxDepth: 3, mode: readwrite}}, {{tenant: wide, maxDepth: 9}}, \
             {{tenant: five}}]\n"
    );
    let policies = granted(&document);
    let (wide, none) = ("spiffe://td/tenant/wide/agent/a", "spiffe://td/tenant/none/agent/a");
    let five = "spiffe://td/tenant/five/agent/a";
    use DelegationMode::{Full, ReadOnly, ReadWrite};
    for (id, target, max_depth, mode) in [
        (PLANNER, tool("read_file"), 2, ReadOnly),
        (PLANNER, tool("rest"), 2, ReadWrite),
        (PLANNER, tool("save"), 3, ReadWrite),
        (PLANNER, Target::Server, 3, ReadWrite),
        (READER, tool("read_file"), 3, ReadOnly),
        (wide, Target::Server, 9, Full),
        (five, Target::Server, 5, Full),
        (none, tool("read_file"), 5, ReadOnly),
    ] {
        let told = policies.delegation_for(&principal(id), "files", &target);
        assert_eq!(told, Some(Delegation { max_depth, mode }), "{id} {target:?}");
    }
    let elsewhere = policies.delegation_for(&principal(PLANNER), "coder", &tool("read_file"));
    assert_eq!(elsewhere, Some(Delegation { max_depth: 3, mode: ReadWrite }));
    // Nothing was said of these; what was said holds, also if it is the default.
    assert_eq!(policies.delegation_for(&principal(none), "files", &Target::Server), None);
}

#[test]
fn what_is_shown_is_what_decides() {
    let document = format!(
        "agents:\n\
         - {{id: '{PLANNER}', canInvoke: [coder]}}\n\
         - {{id: '{CODER}', upstream: coder, invocableBy: ['{PLANNER}'], card: everybody}}\n\
         - {{id: 'spiffe://td/old/*', status: suspended}}\n\
         grants: [{{agent: '{PLANNER}', server: files, tool: 'e*', permissions: [write, read]}}]\n"
    );
    let files = [("team.grants.yaml", &*document), ("files.cedarschema", FRAGMENT)];
    let written = directory(&files);
    let shown = show(&configured(written.path())).expect("compiles");
    let rows: Vec<String> =
        shown.rows.iter().map(|row| format!("{} {} {}", row.who, row.may, row.what)).collect();
    let coder = format!("coder ({CODER})");
    assert_eq!(
        rows,
        [
            "spiffe://td/old/* nothing suspended".to_owned(),
            format!("{PLANNER} invoke {coder}"),
            "everybody see the card of coder".to_owned(),
            format!("{PLANNER} read, write files/e*"),
        ]
    );
    let places: Vec<&str> = shown.rows.iter().map(|row| &*row.place).collect();
    assert_eq!(places, [4, 2, 3, 5].map(|line| format!("team.grants.yaml:{line}")));
    // The text is a set of its own that decides alike.
    let again = directory(&[("a.cedar", &*shown.cedar), ("files.cedarschema", FRAGMENT)]);
    let again = Policies::load(&configured(again.path())).expect("loads");
    let policies = Policies::load(&configured(written.path())).expect("loads");
    for ask in [Ask::call(PLANNER, "echo"), Ask::call(PLANNER, "save"), message(PLANNER, "coder")] {
        assert_eq!(ask.decide(&again), ask.decide(&policies));
    }
    assert_eq!(again.origins().len(), policies.origins().len());
}

//! Faults and warnings.

use super::*;
use crate::policy::nesting::{DEEPEST, nesting};

fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let directory = directory(files);
    match Policies::load(&settings(directory.path())) {
        Ok(_) => vec![],
        Err(error) => error.faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn all_faults_are_told_at_once_with_their_place() {
    let found = faults(&[
        (
            "a.cedar",
            "permit(principal, action, resource);\n\npermit(principal, action resource);\n",
        ),
        (
            "sub/b.cedar",
            "@id(\"x\") permit(principal, action, resource);\n\
             @id(\"x\") permit(principal, action, resource);\n\
             permit(principal == ?principal, action, resource);\n\
             permit(principal, action, resource)\nwhen { principal.age > 3 };\n",
        ),
        ("c.cedarschema", "entity User;\naction \"files/t\" in [\"tools/call\"] appliesTo {\n"),
    ]);
    let starts = ["c.cedarschema:", "a.cedar:3:", "sub/b.cedar:2:", "sub/b.cedar:3:"];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (fault, start) in found.iter().zip(starts) {
        assert!(fault.starts_with(start), "{fault} / {start}");
    }
}

#[test]
fn what_could_never_match_is_a_fault() {
    for (policy, at) in [
        ("permit(principal, action, resource)\nwhen { principal.age > 3 };", "a.cedar:2:"),
        ("permit(principal, action, resource)\nwhen { context.headers == \"x\" };", "a.cedar:2:"),
        (
            "permit(principal, action in Action::\"read\", resource)\nwhen { context.input.path == \"x\" };",
            "a.cedar:2:",
        ),
        ("permit(principal, action == Action::\"tool/call\", resource);", "a.cedar:1:"),
        ("permit(principal == User::\"a\", action, resource);", "a.cedar:1:"),
        ("permit(principal, action, resource) when { principal has colour };", "a.cedar:1:"),
    ] {
        let found = faults(&[("a.cedar", policy), ("f.cedarschema", FRAGMENT)]);
        let told = found.first().is_some_and(|fault| fault.starts_with(at));
        // Cedar only warns of a `has` that is always false.
        assert!(told || policy.contains("has colour"), "{policy}: {found:#?}");
    }
}

#[test]
fn fragments_declare_tools_and_vendor_methods_and_nothing_else() {
    for (fragment, why) in [
        ("entity User;", "entity type `User` would never be filled"),
        ("namespace A { type T = String; }", "namespace `A` is not used"),
        ("type Call = String;", "type `Call` is declared twice"),
        (r#"action "ping" appliesTo { principal: Agent, resource: Server };"#, "declared twice"),
        (
            r#"action "a/b" in ["read"] appliesTo { principal: Server, resource: Tool };"#,
            "has to be `Agent`",
        ),
        (
            r#"action "a/b" in ["read"] appliesTo { principal: Agent, resource: Prompt };"#,
            "has to be `Tool`",
        ),
        (
            r#"action "a/b" in ["read"] appliesTo { principal: Agent, resource: Tool };"#,
            "has to be in `tools/call`",
        ),
        (
            r#"action "ab" in ["tools/call", "read"] appliesTo { principal: Agent, resource: Tool };"#,
            "named `server/tool`",
        ),
        (
            r#"action "a/b" in ["tools/call", "read"] appliesTo
               { principal: Agent, resource: Tool, context: { args: {} } };"#,
            "`context.args` would never be filled",
        ),
        (
            r#"action "a/b" in ["tools/call", "read"] appliesTo
               { principal: Agent, resource: Tool, context: { input: { who: Agent } } };"#,
            "can't be of type `Agent`",
        ),
        (
            r#"action "a/b" in ["tools/call", "read"] appliesTo
               { principal: Agent, resource: Tool, context: { input: { from: ipaddr } } };"#,
            "can't be of type `ipaddr`",
        ),
        (
            r#"action "a/b" in ["tools/call", "read"] appliesTo
               { principal: Agent, resource: Tool, context: { input: String } };"#,
            "`input` has to be a record",
        ),
        (
            r#"action "a/b" appliesTo { principal: Agent, resource: Server };"#,
            "has to be in a class",
        ),
        (
            r#"action "a/b" in ["read"] appliesTo
               { principal: Agent, resource: Server, context: { input: {} } };"#,
            "only a tool has arguments",
        ),
    ] {
        let found = faults(&[("a.cedarschema", fragment)]);
        assert!(found.iter().any(|fault| fault.contains(why)), "{fragment}: {found:#?}");
    }
}

#[test]
fn settings_are_checked() {
    let directory = directory(&[]);
    let base = settings(directory.path());
    let group = |member: &str| BTreeMap::from([("g".to_owned(), vec![member.to_owned()])]);
    for (settings, why) in [
        (Settings { groups: group("spiffe://td"), ..base.clone() }, "no SPIFFE ID"),
        (Settings { groups: group("*"), ..base.clone() }, "no SPIFFE ID"),
        (Settings { groups: group("spiffe://td/a*"), ..base.clone() }, "no SPIFFE ID"),
        (Settings { path_template: Some("tenant".into()), ..base.clone() }, "path template"),
        (Settings { path_template: Some("/{path}".into()), ..base.clone() }, "path template"),
        (Settings { path_template: Some("/{a}/{a}".into()), ..base.clone() }, "stands twice"),
        (
            Settings {
                servers: [("a/b".to_owned(), settings::Server::default())].into(),
                ..base.clone()
            },
            "must not contain a slash",
        ),
        (Settings { directory: "/nowhere/at/all".into(), ..base.clone() }, "can't be read"),
    ] {
        let error = Policies::load(&settings).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
    let trust_domain = Settings { groups: group("spiffe://td/*"), ..base };
    assert!(Policies::load(&trust_domain).is_ok());
}

#[test]
fn warnings_tell_what_to_look_at() {
    let directory = directory(&[
        ("a.cedar", "@id(\"no\") forbid(principal, action, resource);"),
        (
            "f.cedarschema",
            r#"action "files/echo" in ["tools/call", "write"]
                 appliesTo { principal: Agent, resource: Tool };
               action "files/new" in ["tools/call"] appliesTo { principal: Agent, resource: Tool };"#,
        ),
    ]);
    let policies = Policies::load(&settings(directory.path())).expect("loads");
    let warnings: Vec<String> = policies.warnings().iter().map(ToString::to_string).collect();
    for (warning, start) in warnings.iter().zip([
        "f.cedarschema:1: `files/echo` is `write` here, `read` elsewhere",
        "f.cedarschema:3: `files/new` has no class",
        "no policy permits anything",
    ]) {
        assert!(warning.starts_with(start), "{warning}");
    }
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    let class = |name: &str| Ask::call(READER, name).decide(&policies).class;
    assert_eq!(
        (class("echo"), class("new"), class("save")),
        (Class::Write, Class::Execute, Class::Write)
    );
}

#[test]
fn the_version_names_the_sources() {
    let version = |text: &str| policies(text).version().to_owned();
    let one = version("permit(principal, action, resource);");
    assert_eq!(one.len(), 16);
    assert_eq!(one, version("permit(principal, action, resource);"));
    assert_ne!(one, version("permit(principal, action, resource); "));
}

#[test]
fn what_cannot_be_read_makes_another_state_of_the_directory() {
    let directory = directory(&[("a.cedar", "permit(principal, action, resource);")]);
    let settings = settings(directory.path());
    let look = || (Glance::at(directory.path()), version_on_disk(&settings));
    let good = look();
    assert_eq!(&*good.1, &**Policies::load(&settings).expect("loads").version());
    let odd = directory.path().join("b.cedar");
    std::os::unix::fs::symlink("nowhere", &odd).expect("linked");
    let bad = look();
    assert!(bad.0 != good.0 && bad.1 != good.1);
    fs::write(directory.path().join("c.cedar"), "forbid(principal, action, resource);")
        .expect("written");
    let other = look();
    assert!(other.0 != bad.0 && other.1 != bad.1);
    assert_eq!(look(), other);
    let error = Policies::load(&settings).expect_err("a fault");
    assert!(error.to_string().contains("b.cedar: can't be read"), "{error}");
    fs::remove_file(odd).expect("removed");
    fs::remove_file(directory.path().join("c.cedar")).expect("removed");
    assert_eq!(look(), good);
}

#[test]
fn groups_of_actions_can_stand_anywhere() {
    let directory = directory(&[
        ("a.cedar", r#"permit(principal, action in Action::"notes", resource);"#),
        (
            "a.cedarschema",
            r#"action "files/n" in ["notes"] appliesTo { principal: Agent, resource: Tool };"#,
        ),
        ("b.cedarschema", r#"action "notes" in ["tools/call", "write"];"#),
    ]);
    let policies = Policies::load(&settings(directory.path())).expect("loads");
    assert!(policies.warnings().is_empty(), "{:?}", policies.warnings());
    let decision = Ask::call(READER, "n").decide(&policies);
    assert_eq!((decision.permit, decision.class), (true, Class::Write));
    assert!(!Ask::call(READER, "n").on("other").permitted(&policies));
}

#[test]
fn names_of_the_path_template_are_the_only_ones() {
    let rule = "permit(principal, action, resource) when { principal has tenant && \
                principal.tenant == \"acme\" };";
    let directory = directory(&[("a.cedar", rule)]);
    let base = settings(directory.path());
    for (template, loads) in
        [(Some("/tenant/{tenant}/agent/{agent}"), true), (Some("/x/{other}"), false), (None, false)]
    {
        let settings = Settings { path_template: template.map(str::to_owned), ..base.clone() };
        // Cedar warns of a `has` that can't hold, and then doesn't look at what it guards.
        let sound = Policies::load(&settings).is_ok_and(|policies| policies.warnings().is_empty());
        assert_eq!(sound, loads, "{template:?}");
    }
}

#[test]
fn a_mounted_config_map_is_read_once() {
    let directory = directory(&[
        ("..2026/a.cedar", "@id(\"a\") permit(principal, action, resource);"),
        ("notes.txt", "not a policy"),
    ]);
    std::os::unix::fs::symlink("..2026", directory.path().join("..data")).expect("linked");
    std::os::unix::fs::symlink("..data/a.cedar", directory.path().join("a.cedar")).expect("linked");
    let policies = Policies::load(&settings(directory.path())).expect("loads");
    assert_eq!(policies.origins().len(), 1);
}

#[test]
fn many_policies_keep_their_order_and_their_places() {
    let permit =
        |number: usize| format!("permit(principal, action, resource == Tool::\"s/{number}\");");
    let mut lines: Vec<String> = (1..=500).map(permit).collect();
    lines[399] = "forbid(principal, action, resource == Tool::\"s/17\");".to_owned();
    let sound = policies(&lines.join("\n"));
    let places: Vec<usize> = sound.origins().iter().map(|origin| origin.line).collect();
    assert_eq!(places, (1..=500).collect::<Vec<_>>());
    let by = |tool: &str| Ask::call(READER, tool).on("s").decide(&sound).policies;
    assert_eq!((by("17"), by("18")), (vec!["a.cedar:400".into()], vec!["a.cedar:18".into()]));

    lines[250] =
        "permit(principal, action, resource is Tool) when { principal.age > 3 };".to_owned();
    lines[450] = "permit(principal, action resource);".to_owned();
    let found = faults(&[("a.cedar", &lines.join("\n"))]);
    let starts = ["a.cedar:451:", "a.cedar:251:"];
    assert!(found.iter().zip(starts).all(|(fault, start)| fault.starts_with(start)), "{found:#?}");
    assert_eq!(found.len(), 2);
}

#[test]
fn each_of_many_alike_is_told() {
    let scope = |user: &str| format!("permit(principal == {user}, action, resource);");
    let [agent, other] = [scope("Agent::\"a\""), scope("Agent::\"b\"")];
    let [stranger, another] = [scope("User::\"a\""), scope("User::\"b\"")];
    let text = [&*agent, &stranger, &other, &another].join("\n");
    let found = faults(&[("a.cedar", &text)]);
    let starts = ["a.cedar:2:", "a.cedar:4:"];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    assert!(found.iter().zip(starts).all(|(fault, start)| fault.starts_with(start)), "{found:#?}");

    // A letter that only looks like one of ours, as it is and escaped.
    let [odd, escaped] = [scope("Agent::\"\u{430}gent\""), scope("Agent::\"\\u{430}gent\"")];
    for (position, suspect) in [(2, odd), (3, escaped)] {
        let mut lines = [&*agent; 4];
        lines[position] = &suspect;
        let warnings = policies(&lines.join("\n")).warnings().to_vec();
        let lines: Vec<_> = warnings.iter().map(|warning| warning.line).collect();
        assert_eq!(lines, [Some(position + 1)], "{warnings:#?}");
    }
}

/// What nests, so often; each is a condition that is sound.
fn condition(kind: &str, times: usize) -> String {
    let around = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    match kind {
        "row" => vec!["context.input.path == \"x\""; times].join(" || "),
        "if" => around("if context.input.path == \"x\" then false else ", "true", ""),
        "brackets" => around("(", "principal.path == \"x\"", ")"),
        "not" => around("!(", "principal.path == \"x\"", ")"),
        "record" => format!("{} == {}", around("{a: ", "1", "}"), around("{a: ", "1", "}")),
        "sum" => format!("{} > 3", vec!["context.input.lines"; times].join(" + ")),
        _ => format!("true {}", around("} when { principal.path != \"x\" ", "", "")),
    }
}

#[test]
fn the_deepest_statement_is_safe_and_one_that_is_deeper_is_told() {
    for kind in ["row", "if", "brackets", "not", "record", "sum", "when"] {
        let statement = |times| {
            let scope = "principal is Agent, action == Action::\"files/read_file\", resource";
            let condition = condition(kind, times);
            format!("permit({scope}) when {{ {condition} }};")
        };
        let refused = (1..).find(|times| nesting(&statement(*times)) > DEEPEST).expect("one");
        let faults = faults(&[("a.cedar", &statement(refused)), ("f.cedarschema", FRAGMENT)]);
        let told = format!("a.cedar:1: nests deeper than {DEEPEST}");
        assert!(matches!(&*faults, [fault] if fault.starts_with(&told)), "{kind}: {faults:?}");

        let text = statement(refused - 1).replace("context.input.lines", "1");
        // A worker has 2 MiB, but optimised frames are a tenth of those here.
        let worker = std::thread::Builder::new().stack_size(8 * 1024 * 1024);
        let asked = worker.spawn(move || {
            let policies = policies(&text);
            let call = Ask::call(READER, "read_file").with(r#"{"path":"y","lines":1}"#);
            let explained = call.ask(|question| policies.explain(question));
            (call.permitted(&policies), call.listed(&policies), explained.nearest.len())
        });
        asked.expect("a thread").join().expect(kind);
    }
}

#[test]
fn the_examples_of_the_documentation_load() {
    let page = include_str!("../../../docs/policies.md");
    let blocks = |language: &str| -> String {
        let fenced = page.split("```").skip(1).step_by(2);
        fenced.filter_map(|block| block.strip_prefix(&format!("{language}\n"))).collect()
    };
    let (policies, schema) = (blocks("cedar"), blocks("cedarschema"));
    let directory = directory(&[("a.cedar", &policies), ("a.cedarschema", &schema)]);
    let policies = Policies::load(&settings(directory.path())).expect("loads");
    assert_eq!(policies.warnings(), [], "{:?}", policies.warnings());
    let ids: Vec<&str> = policies.origins().iter().map(|origin| &*origin.id).collect();
    assert!(ids.contains(&"docs-read") && ids.contains(&"short-completions"), "{ids:?}");
}

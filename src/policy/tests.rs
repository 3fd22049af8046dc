mod agents;
mod arguments;
mod asks;
mod delegation;
mod explaining;
mod grants;
mod lists;
mod loading;
mod web;

use std::{collections::BTreeMap, fs, path::Path};

use tempfile::TempDir;

use super::*;
use crate::{
    identity::{Proof, SpiffeId},
    protocol::method::METHODS,
};

fn principal(id: &str) -> Principal {
    Principal { id: SpiffeId::parse(id).expect("valid"), proof: Proof::Svid }
}

fn tool(name: &str) -> Target {
    Target::Tool(name.into())
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().expect("a directory");
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
    }
    directory
}

fn settings(directory: &Path) -> Settings {
    let tools = [("echo", Class::Read), ("save", Class::Write)];
    let tools = tools.into_iter().map(|(name, class)| {
        (name.to_owned(), settings::Tool { class, tags: vec![format!("tag-{name}")] })
    });
    Settings {
        directory: directory.to_owned(),
        groups: BTreeMap::from([
            ("writers".to_owned(), vec!["spiffe://td/tenant/acme/agent/w".to_owned()]),
            ("acme".to_owned(), vec!["spiffe://td/tenant/acme/*".to_owned()]),
        ]),
        path_template: Some("/tenant/{tenant}/agent/{agent}".to_owned()),
        runs: false,
        servers: BTreeMap::from([(
            "files".to_owned(),
            settings::Server {
                agent: None,
                tags: vec!["internal".to_owned()],
                tools: tools.collect(),
            },
        )]),
    }
}

const FRAGMENT: &str = r#"
type Options = { deep?: Bool, ratio?: decimal };
action "files/read_file" in ["tools/call", "read"] appliesTo {
  principal: Agent, resource: Tool,
  context: { input: { path: String, lines?: Long, tags?: Set<String>, options?: Options } },
};
action "acme/doThing" in ["execute"] appliesTo { principal: Agent, resource: Server };
"#;

fn policies(text: &str) -> Policies {
    let directory = directory(&[("a.cedar", text), ("files.cedarschema", FRAGMENT)]);
    Policies::load(&settings(directory.path())).expect("loads")
}

const READER: &str = "spiffe://td/tenant/acme/agent/r";
const WRITER: &str = "spiffe://td/tenant/acme/agent/w";

/// Arguments as the decoder hands them over; the text lives on for the rest of the test.
pub(super) fn value(text: &str) -> json::Value<'static> {
    let text: &'static str = Box::leak(text.into());
    let document = json::scan(text.as_bytes(), json::Limits::default()).expect("strict JSON");
    Box::leak(Box::new(document)).root()
}

struct Ask<'a> {
    principal: &'a str,
    server: &'a str,
    method: &'a str,
    target: Target,
    arguments: Option<&'a str>,
    era: Era,
    listener: &'a str,
}

impl<'a> Ask<'a> {
    fn call(principal: &'a str, tool_name: &str) -> Self {
        Self::method(principal, "tools/call", tool(tool_name))
    }

    fn method(principal: &'a str, method: &'a str, target: Target) -> Self {
        Self {
            principal,
            server: "files",
            method,
            target,
            arguments: None,
            era: Era::Legacy,
            listener: "inbound",
        }
    }

    fn with(self, arguments: &'a str) -> Self {
        Self { arguments: Some(arguments), ..self }
    }

    fn on(self, server: &'a str) -> Self {
        Self { server, ..self }
    }

    fn ask<T>(&self, judge: impl FnOnce(&Question<'_>) -> T) -> T {
        judge(&Question {
            principal: &principal(self.principal),
            server: self.server,
            listener: self.listener,
            method: &Method::named(self.method),
            target: &self.target,
            arguments: self.arguments.map(value),
            asks: None,
            a2a: None,
            web: None,
            era: self.era,
            delegation: None,
        })
    }

    fn decide(&self, policies: &Policies) -> Decision {
        // Twice: the second answer comes from what was remembered, and has to be the same.
        let first = self.ask(|question| policies.decide(question));
        assert_eq!(self.ask(|question| policies.decide(question)), first);
        first
    }

    fn permitted(&self, policies: &Policies) -> bool {
        self.decide(policies).permit
    }

    fn listed(&self, policies: &Policies) -> bool {
        let first = self.ask(|question| policies.may_list(question));
        assert_eq!(self.ask(|question| policies.may_list(question)), first);
        first
    }
}

#[test]
fn one_line_says_one_thing() {
    for (policy, allowed) in [
        (r#"permit(principal, action in Action::"tools/call", resource);"#, "RESWX"),
        (r#"permit(principal, action in Action::"read", resource in Server::"files");"#, "RE"),
        (r#"permit(principal, action in Action::"write", resource);"#, "S"),
        (r#"permit(principal, action in Action::"execute", resource);"#, "WX"),
        (
            r#"permit(principal, action in Action::"tools/call", resource == Tool::"files/echo");"#,
            "E",
        ),
        (r#"permit(principal, action == Action::"files/read_file", resource);"#, "R"),
        (r#"permit(principal, action == Action::"tools/call.write", resource);"#, "S"),
        (r#"permit(principal, action, resource) when { resource.tags.contains("tag-save") };"#, ""),
        (
            r#"permit(principal, action, resource is Tool) when { resource.tags.contains("tag-save") };"#,
            "S",
        ),
        (
            r#"permit(principal, action, resource is Tool) when { resource.tags.contains("internal") };"#,
            "RESWX",
        ),
        (r#"permit(principal, action, resource is Tool) when { resource.class == "read" };"#, "RE"),
        (r#"permit(principal, action in Action::"tools/call", resource in Server::"other");"#, ""),
        (r#"forbid(principal, action, resource);"#, ""),
    ] {
        if policy.contains("action, resource) when") {
            // `tags` is on every kind of resource, so this holds for all of them.
            assert!(Ask::call(READER, "save").permitted(&policies(policy)));
            continue;
        }
        let policies = policies(policy);
        for (letter, name) in
            [('R', "read_file"), ('E', "echo"), ('S', "save"), ('W', "wipe"), ('X', "Echo")]
        {
            let decision = Ask::call(READER, name).decide(&policies);
            assert_eq!(decision.permit, allowed.contains(letter), "{policy} {name} {decision:?}");
            assert!(decision.errors.is_empty(), "{policy} {name} {decision:?}");
        }
    }
}

#[test]
fn principals_are_known_by_id_path_domain_group_and_template() {
    let other = "spiffe://td/tenant/acme2/agent/r";
    let foreign = "spiffe://td2/tenant/acme/agent/r";
    for (scope, condition, allowed) in [
        (
            r#"principal == Agent::"spiffe://td/tenant/acme/agent/r""#,
            "",
            [true, false, false, false],
        ),
        (r#"principal in Path::"spiffe://td/tenant/acme""#, "", [true, true, false, false]),
        (r#"principal in Path::"spiffe://td/tenant""#, "", [true, true, true, false]),
        (r#"principal in Path::"spiffe://td/tenant/acme/agent/r""#, "", [false; 4]),
        (r#"principal in TrustDomain::"td""#, "", [true, true, true, false]),
        (r#"principal in Group::"writers""#, "", [false, true, false, false]),
        (r#"principal in Group::"acme""#, "", [true, true, false, false]),
        (
            "principal",
            r#"when { principal has tenant && principal.tenant == "acme" }"#,
            [true, true, false, true],
        ),
        ("principal is Agent", r#"when { principal.path like "*/r" }"#, [true, false, true, true]),
        ("principal is Agent", "", [true; 4]),
    ] {
        let policies = policies(&format!("permit({scope}, action, resource) {condition};"));
        let found =
            [READER, WRITER, other, foreign].map(|id| Ask::call(id, "echo").permitted(&policies));
        assert_eq!(found, allowed, "{scope} {condition}");
    }
}

#[test]
fn every_method_has_an_action_on_what_it_governs() {
    use crate::protocol::method::{
        AGENT_METHODS, CLIENT_RESPONSE, Governs, SERVER_METHODS, SESSION_END, SESSION_STREAM,
        operation,
    };
    let policies = policies("permit(principal, action, resource);");
    let asks = SERVER_METHODS.iter().filter(|rule| !rule.notification);
    let ours = [&SESSION_STREAM, &SESSION_END, &CLIENT_RESPONSE, &operation::CARD];
    for rule in METHODS.iter().chain(ours).chain(asks).chain(AGENT_METHODS) {
        let targets: Vec<Target> = match rule.governs {
            Governs::Server => vec![Target::Server],
            Governs::Caller => vec![Target::Caller],
            Governs::Tool => vec![tool("t")],
            Governs::Prompt => vec![Target::Prompt("p".into())],
            Governs::Resource => vec![Target::Resource("file:///r".into())],
            Governs::Task => vec![Target::Task("t".into())],
            Governs::Message => vec![Target::Server, Target::Task("t".into())],
            Governs::Reference => {
                vec![Target::Prompt("p".into()), Target::Resource("file:///{r}".into())]
            }
            Governs::Subscriptions => {
                vec![Target::Server, Target::Resource("a:b".into()), Target::Task("t".into())]
            }
        };
        let method = Method::Known(rule);
        let of_caller = rule.governs != Governs::Caller;
        assert_eq!(policies.knows(&method), of_caller, "{}", rule.name);
        assert_eq!(policies.knows_asked(&method), !of_caller, "{}", rule.name);
        for target in targets {
            let decision = policies.decide(&Question {
                principal: &principal(READER),
                server: "files",
                listener: "inbound",
                method: &method,
                target: &target,
                arguments: None,
                asks: None,
                a2a: None,
                web: None,
                era: Era::Modern,
                delegation: None,
            });
            assert!(decision.permit, "{} {target:?} {decision:?}", rule.name);
            assert_eq!(decision.class, rule.class, "{}", rule.name);
        }
    }
}

#[test]
fn only_declared_vendor_methods_are_known() {
    let policies = policies("permit(principal, action, resource);");
    for (name, known) in [
        ("acme/doThing", true),
        ("acme/dothing", false),
        ("acme/other", false),
        // Actions, but no methods.
        ("read", false),
        ("tools/call.read", false),
        ("files/read_file", false),
    ] {
        let ask = Ask::method(READER, name, Target::Server);
        assert_eq!(policies.knows(&Method::parse(name)), known, "{name}");
        assert_eq!(ask.permitted(&policies), known, "{name}");
    }
    assert_eq!(
        Ask::method(READER, "acme/doThing", Target::Server).decide(&policies).class,
        Class::Execute
    );
}

#[test]
fn names_match_byte_for_byte() {
    let policies = policies(
        r#"permit(principal, action, resource == Tool::"files/echo");
           permit(principal, action, resource == Tool::"files/caf\u{e9}");"#,
    );
    for name in
        ["Echo", "ECHO", "echo ", "echo\t", "echo\0", "ec\u{200b}ho", "\u{435}cho", "files/echo"]
    {
        assert!(!Ask::call(READER, name).permitted(&policies), "{name:?}");
    }
    assert!(Ask::call(READER, "echo").permitted(&policies));
    assert!(Ask::call(READER, "caf\u{e9}").permitted(&policies));
    assert!(!Ask::call(READER, "cafe\u{301}").permitted(&policies));
}

#[test]
fn pairs_of_server_and_tool_never_mix() {
    let policies = policies(r#"permit(principal, action, resource == Tool::"srv/a/b");"#);
    assert!(Ask::call(READER, "a/b").on("srv").permitted(&policies));
    let mixed = Ask::call(READER, "b").on("srv/a").decide(&policies);
    assert!(!mixed.permit && mixed.errors.len() == 1, "{mixed:?}");
    assert!(!Ask::call(READER, "srv/a/b").on("srv").permitted(&policies));
}

#[test]
fn any_forbid_and_any_error_refuses() {
    let base = r#"@id("all") permit(principal, action, resource);"#;
    let forbidding = policies(&format!(
        r#"{base} @id("no") @reason("Not you.") forbid(principal in Group::"writers", action, resource);"#
    ));
    let decision = Ask::call(WRITER, "echo").decide(&forbidding);
    assert_eq!(
        (decision.permit, decision.policies.as_slice(), decision.reason.as_deref()),
        (false, ["no".into()].as_slice(), Some("Not you."))
    );
    let allowed = Ask::call(READER, "echo").decide(&forbidding);
    assert_eq!((allowed.permit, allowed.policies.as_slice()), (true, ["all".into()].as_slice()));

    for effect in ["permit", "forbid"] {
        let failing = policies(&format!(
            r#"{base} @id("bad") {effect}(principal, action == Action::"files/read_file", resource)
               when {{ context.input has lines && context.input.lines + 9223372036854775807 > 0 }};"#
        ));
        assert!(Ask::call(READER, "read_file").with(r#"{"path":"a"}"#).permitted(&failing));
        let decision =
            Ask::call(READER, "read_file").with(r#"{"path":"a","lines":77}"#).decide(&failing);
        assert!(!decision.permit);
        assert_eq!(decision.policies, [Arc::<str>::from("bad")]);
        assert_eq!(decision.errors, ["policy `bad`: integer overflow"], "no value in the text");
    }
}

#[test]
fn a_snapshot_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Policies>();
}

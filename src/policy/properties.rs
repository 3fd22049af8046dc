//! Laws that hold for every policy set and every request.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{Authorizer, Effect, Entities, Policy, PolicyId, PolicySet};
use proptest::prelude::*;

use super::{
    analysis::InputPath,
    input::{self, Wanted},
    tests::value,
    *,
};
use crate::{
    identity::{Proof, SpiffeId},
    protocol::{
        mcp::server::{Elicitation, Sampling},
        method::METHODS,
    },
};

const FRAGMENT: &str = r#"
action "files/read_file" in ["tools/call", "read"] appliesTo {
  principal: Agent, resource: Tool,
  context: { input: { path: String, lines?: Long, tags?: Set<String>, options?: { deep?: Bool } } },
};
"#;
const PRINCIPALS: &[&str] =
    &["spiffe://td/tenant/a/agent/x", "spiffe://td/tenant/b/agent/y", "spiffe://u/z"];
const SERVERS: &[&str] = &["files", "other"];
const ARGUMENTS: &[Option<&str>] = &[
    None,
    Some(r#"{"path":"a"}"#),
    Some(r#"{"path":"b","lines":3}"#),
    Some(r#"{"lines":9,"tags":["t"]}"#),
    Some(r#"{"path":"b","options":{"deep":true},"tags":[]}"#),
    Some(r#"{"path":"a","options":{},"lines":null}"#),
];

fn principal_scope() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("principal".to_owned()),
        1 => Just("principal is Agent".to_owned()),
        2 => proptest::sample::select(PRINCIPALS).prop_map(|id| format!("principal == Agent::\"{id}\"")),
        1 => Just("principal in TrustDomain::\"td\"".to_owned()),
        1 => Just("principal in Path::\"spiffe://td/tenant/a\"".to_owned()),
        1 => Just("principal is Agent in Group::\"g\"".to_owned()),
        1 => Just("principal is Server".to_owned()),
        1 => Just("principal == Server::\"files\"".to_owned()),
    ]
}

fn action_scope() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("action".to_owned()),
        2 => Just("action in Action::\"tools/call\"".to_owned()),
        2 => Just("action in Action::\"read\"".to_owned()),
        2 => Just("action == Action::\"files/read_file\"".to_owned()),
        1 => Just("action in [Action::\"write\", Action::\"read\", Action::\"list\"]".to_owned()),
        1 => Just("action == Action::\"resources/read\"".to_owned()),
        1 => Just("action in Action::\"asks\"".to_owned()),
        1 => Just("action in [Action::\"asks.read\", Action::\"sampling/createMessage\"]".to_owned()),
        1 => Just("action == Action::\"elicitation/create\"".to_owned()),
    ]
}

fn resource_scope() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("resource".to_owned()),
        1 => Just("resource is Tool".to_owned()),
        1 => Just("resource is Resource".to_owned()),
        2 => Just("resource in Server::\"files\"".to_owned()),
        1 => Just("resource is Resource in Server::\"other\"".to_owned()),
        2 => Just("resource == Tool::\"files/read_file\"".to_owned()),
        1 => Just("resource == Tool::\"files/save\"".to_owned()),
        3 => Just("resource == Resource::\"files/file:///a\"".to_owned()),
        1 => Just("resource is Agent".to_owned()),
        1 => Just("resource is Agent in Group::\"g\"".to_owned()),
    ]
}

/// Conditions that pass validation on every request, so that any scope can have them. Some fail when
/// they are evaluated, on some requests.
fn condition() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "true",
        "false",
        r#"principal is Agent && principal.trustDomain == "td""#,
        r#"principal.tags.contains("pii")"#,
        r#"resource is Agent && resource.path like "*/x""#,
        r#"principal has tenant && principal.tenant == "a""#,
        r#"principal in Group::"g""#,
        r#"context.era == "legacy""#,
        r#"context.method == "tools/call""#,
        r#"resource in Server::"files""#,
        r#"resource.tags.contains("pii")"#,
        r#"context has sampling && context.sampling.maxTokens < 100"#,
        r#"context has sampling && context.sampling.tools.contains("wipe")"#,
        // Overflows from 1 on.
        r#"context has sampling && context.sampling.maxTokens + 9223372036854775807 > 0"#,
        r#"context has elicitation && context.elicitation.words.contains("password")"#,
        r#"context has elicitation.url.host && context.elicitation.url.host == "a.example""#,
        r#"if context has input then true else context has elicitation"#,
        r#"resource is Tool && resource.name == "save""#,
        r#"resource is Resource && resource.uri like "file:*""#,
        r#"context has input && context.input.path == "a""#,
        r#"context has input && context.input.path == "a" && principal in Group::"g""#,
        r#"context has input && context.input has lines && context.input.lines < 5"#,
        // Overflows from 1 on.
        r#"context has input && context.input has lines && context.input.lines + 9223372036854775807 > 0"#,
        r#"context has input && context.input has tags && context.input.tags.contains("t")"#,
        r#"context has input.options.deep && context.input.options.deep"#,
        r#"if context has input then context.input has lines else principal has tenant"#,
        r#"!(context has input) || !(context.input has options)"#,
        // Overflows always.
        r#"principal has tenant && 9223372036854775807 + 1 > 0"#,
    ])
}

fn policy(effect: impl Strategy<Value = &'static str>) -> impl Strategy<Value = String> {
    let conditions = proptest::collection::vec((any::<bool>(), condition()), 0..3);
    let clauses = proptest::collection::vec((any::<bool>(), conditions), 0..3);
    (effect, principal_scope(), action_scope(), resource_scope(), clauses).prop_map(
        |(effect, principal, action, resource, clauses)| {
            let mut text = format!("{effect}({principal}, {action}, {resource})");
            for (when, conditions) in clauses {
                let (word, joined, empty) =
                    if when { ("when", " && ", "true") } else { ("unless", " || ", "false") };
                let parts: Vec<String> = conditions
                    .iter()
                    .map(
                        |(not, part)| if *not { format!("!({part})") } else { format!("({part})") },
                    )
                    .chain([empty.to_owned()])
                    .collect();
                text.push_str(&format!(" {word} {{ {} }}", parts.join(joined)));
            }
            text + ";\n"
        },
    )
}

fn any_policy() -> impl Strategy<Value = String> {
    policy(prop_oneof![3 => Just("permit"), 1 => Just("forbid")])
}

fn load(texts: &[String]) -> Policies {
    let directory = tempfile::TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("a.cedar"), texts.concat()).expect("written");
    std::fs::write(directory.path().join("f.cedarschema"), FRAGMENT).expect("written");
    let server = |tags: &[&str]| settings::Server {
        agent: None,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        tools: BTreeMap::from([(
            "save".to_owned(),
            settings::Tool { class: Class::Write, tags: vec!["pii".to_owned()] },
        )]),
    };
    Policies::load(&Settings {
        directory: directory.path().to_owned(),
        groups: BTreeMap::from([("g".to_owned(), vec!["spiffe://td/tenant/a/*".to_owned()])]),
        path_template: Some("/tenant/{tenant}/agent/{agent}".to_owned()),
        runs: false,
        servers: BTreeMap::from([
            ("files".to_owned(), server(&[])),
            ("other".to_owned(), server(&["pii"])),
        ]),
    })
    .expect("loads")
}

/// A question that owns its parts.
#[derive(Clone, Debug)]
struct Asked {
    principal: &'static str,
    server: &'static str,
    method: &'static str,
    target: Target,
    arguments: Option<&'static str>,
    asks: Option<Asks>,
    era: Era,
}

impl Asked {
    fn put<T>(&self, judge: impl FnOnce(&Question<'_>) -> T) -> T {
        let id = SpiffeId::parse(self.principal).expect("valid");
        judge(&Question {
            principal: &Principal { id, proof: Proof::Svid },
            server: self.server,
            listener: "inbound",
            method: &Method::named(self.method),
            target: &self.target,
            arguments: self.arguments.map(value),
            asks: self.asks.as_ref(),
            a2a: None,
            web: None,
            era: self.era,
            delegation: None,
        })
    }

    /// The item, as a list asks for it.
    fn listed(&self, list: &'static str, target: Target) -> Self {
        Self { method: list, target, arguments: None, ..self.clone() }
    }
}

fn every_call() -> Vec<Asked> {
    let tool = |name: &str| Target::Tool(name.into());
    let resource = Target::Resource("file:///a".into());
    let calls = [
        ("tools/call", tool("read_file"), ARGUMENTS),
        ("tools/call", tool("save"), &[None]),
        ("tools/call", tool("wipe"), &[None]),
        ("resources/read", resource.clone(), &[None]),
        ("completion/complete", resource, &[None]),
        ("prompts/get", Target::Prompt("p".into()), &[None]),
        ("tools/list", Target::Server, &[None]),
        ("tasks/cancel", Target::Task("t".into()), &[None]),
    ];
    let mut all = vec![];
    for &principal in PRINCIPALS {
        for &server in SERVERS {
            for (method, target, arguments) in &calls {
                for &arguments in *arguments {
                    for era in [Era::Legacy, Era::Modern] {
                        let target = target.clone();
                        let asks = None;
                        all.push(Asked { principal, server, method, target, arguments, asks, era });
                    }
                }
            }
            for (method, asks) in every_ask() {
                let (target, era) = (Target::Caller, Era::Legacy);
                let asks = Some(asks);
                all.push(Asked { principal, server, method, target, arguments: None, asks, era });
            }
        }
    }
    all
}

fn every_ask() -> Vec<(&'static str, Asks)> {
    let sampling = |max_tokens, tool: &str| {
        let tools = [tool.into()].into();
        Asks::Sampling(Sampling {
            max_tokens,
            tools,
            hints: [].into(),
            include_context: "none".into(),
        })
    };
    let form = |field: &str| Elicitation::Form { fields: [field.into()].into() };
    let url = Elicitation::Url { scheme: "https".into(), host: "a.example".into() };
    vec![
        ("sampling/createMessage", sampling(0, "read")),
        ("sampling/createMessage", sampling(100, "wipe")),
        ("elicitation/create", Asks::Elicitation(form("userPassword"))),
        ("elicitation/create", Asks::Elicitation(url)),
        ("roots/list", Asks::Plain),
        ("client/tasks/cancel", Asks::Plain),
    ]
}

/// The whole set as Cedar itself has it.
fn whole_set(texts: &[String], policies: &Policies) -> PolicySet {
    let named = texts.iter().zip(policies.origins());
    let parsed = named.map(|(text, origin)| {
        Policy::parse(Some(PolicyId::new(&origin.id)), text).expect("parsed")
    });
    PolicySet::from_policies(parsed).expect("ids of their own")
}

/// The answer of Cedar itself over the whole set, with every argument in the context: whether all is
/// well and permitted, and the ids of the determining policies.
fn by_cedar(
    set: &PolicySet,
    policies: &Policies,
    question: &Question<'_>,
) -> (bool, BTreeSet<String>) {
    let (scene, _) = policies.scene(question, &policies.calls).expect("a scene");
    let input = scene.action.input.as_ref().map(|shape| {
        let mut wanted = Wanted::default();
        wanted.add(&InputPath { segments: vec![], value: true });
        input::lift(question.arguments, &wanted, shape)
            .expect("representable")
            .into_expression()
            .expect("a record")
    });
    let request = scene.request(input).expect("a request");
    let response = Authorizer::new().is_authorized(&request, set, &scene.entities);
    let allowed = response.decision() == cedar_policy::Decision::Allow;
    let failed = response.diagnostics().errors().next().is_some();
    let reasons = response.diagnostics().reason().map(ToString::to_string).collect();
    (allowed && !failed, reasons)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_slice_decides_like_the_whole_set(texts in proptest::collection::vec(any_policy(), 0..12)) {
        let policies = load(&texts);
        let whole = whole_set(&texts, &policies);
        for asked in every_call() {
            let (permit, reasons) = asked.put(|question| by_cedar(&whole, &policies, question));
            for time in ["fresh", "remembered"] {
                let decision = asked.put(|question| policies.decide(question));
                prop_assert_eq!(decision.permit, permit, "{} {:?} {:?}", time, asked, decision);
                if permit {
                    let told: BTreeSet<String> =
                        decision.policies.iter().map(|id| id.to_string()).collect();
                    prop_assert_eq!(&told, &reasons);
                }
            }
        }
    }

    #[test]
    fn whatever_some_call_permits_is_listed(texts in proptest::collection::vec(any_policy(), 1..6)) {
        let policies = load(&texts);
        for asked in every_call() {
            if !asked.put(|question| policies.decide(question)).permit {
                continue;
            }
            let lists = match &asked.target {
                Target::Tool(_) => vec![asked.listed("tools/list", asked.target.clone())],
                Target::Prompt(_) => vec![asked.listed("prompts/list", asked.target.clone())],
                Target::Resource(_) => vec![
                    asked.listed("resources/list", asked.target.clone()),
                    asked.listed(
                        "resources/templates/list",
                        Target::Template("file:///{path}".into()),
                    ),
                ],
                Target::Server | Target::Template(_) | Target::Task(_) | Target::Caller => {
                    vec![]
                }
            };
            for list in lists {
                prop_assert!(list.put(|question| policies.may_list(question)), "{:?} {:?}", asked, list);
            }
        }
    }

    #[test]
    fn a_forbid_more_never_permits_more(
        texts in proptest::collection::vec(any_policy(), 1..6),
        forbid in policy(Just("forbid")),
    ) {
        let before = load(&texts);
        let after = load(&[texts, vec![forbid]].concat());
        for asked in every_call() {
            let permit = |policies: &Policies| asked.put(|question| policies.decide(question)).permit;
            prop_assert!(permit(&before) || !permit(&after), "{:?}", asked);
            let listed = |policies: &Policies| asked.put(|question| policies.may_list(question));
            prop_assert!(listed(&before) || !listed(&after), "{:?}", asked);
        }
    }
}

#[test]
fn requests_and_entities_conform_to_the_schema() {
    use crate::protocol::method::Governs;
    let policies = load(&[]);
    let schema = &policies.vocabulary.schema;
    let mut asked = every_call();
    for rule in METHODS.iter().filter(|rule| rule.governs == Governs::Server) {
        asked.push(Asked { method: rule.name, target: Target::Server, ..asked[0].clone() });
    }
    for asked in asked {
        asked.put(|question| {
            let (scene, _) = policies.scene(question, &policies.calls).expect("a scene");
            let input = scene.action.input.as_ref().map(|shape| {
                let mut wanted = Wanted::default();
                wanted.add(&InputPath { segments: vec![], value: true });
                let lifted = input::lift(Some(value(r#"{"path":"a"}"#)), &wanted, shape);
                lifted.expect("representable").into_expression().expect("a record")
            });
            let request = scene.request(input).expect("a request");
            let context = request.context().expect("a context").clone();
            context.validate(schema, &scene.action.uid).expect("the context conforms");
            let data = scene.entities.clone().into_iter();
            let data = data.filter(|entity| entity.uid() != scene.action.uid);
            Entities::from_entities(data, Some(schema)).expect("the entities conform");
        });
    }
}

#[test]
fn conjuncts_mean_what_the_whole_condition_means() {
    // Splitting is trusted by lists and explanations; a policy rebuilt from its parts has to be the same.
    let text = r#"permit(principal, action, resource)
        when { (context.era == "legacy" && principal has tenant) && principal.tenant == "a" }
        unless { resource.tags.contains("pii") || context.method == "x" };"#;
    let whole = Policy::parse(None, text).expect("parses");
    let tree = whole.to_pst().expect("a tree");
    let parts = analysis::conjuncts(tree.body().clauses());
    assert_eq!(parts.len(), 5);
    assert_eq!(whole.effect(), Effect::Permit);
    let expected = [
        r#"when { (context.era) == "legacy" }"#,
        "when { principal has tenant }",
        r#"when { (principal.tenant) == "a" }"#,
        r#"unless { (resource.tags).contains("pii") }"#,
        r#"unless { (context.method) == "x" }"#,
    ];
    for (part, expected) in parts.iter().zip(expected) {
        let plain = |text: &str| text.replace(['(', ')'], "");
        assert_eq!(plain(&part.to_string()), plain(expected));
    }
}

//! Requests to web APIs.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::*;
use crate::protocol::{Call, method::WEB_METHODS, web};

/// A request as it is decoded: method and target, and a JSON body if there is one.
fn request(request: &str, body: Option<&str>) -> Call {
    let (method, target) = request.split_once(' ').expect("a target");
    let (below, query) = match target.split_once('?') {
        Some((below, query)) => (below, Some(query)),
        None => (target, None),
    };
    let mut headers = HeaderMap::new();
    if body.is_some() {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
    }
    let body = Bytes::from(body.unwrap_or_default().to_owned());
    let method = method.parse().expect("a method");
    web::decode(&method, below, query, &headers, body, |_| false).expect("decoded")
}

fn judge<T>(call: &Call, judge: impl Fn(&Question<'_>) -> T) -> T {
    judge(&Question {
        principal: &principal(READER),
        server: "files",
        listener: "outbound",
        method: &call.method,
        target: &Target::Server,
        arguments: call.arguments_value(),
        asks: None,
        a2a: None,
        web: call.web.as_deref().map(|facts| &facts.traits),
        era: call.era,
        delegation: None,
    })
}

/// Twice: the second decision comes from what was remembered.
fn decide(policies: &Policies, call: &Call) -> Decision {
    let first = judge(call, |question| policies.decide(question));
    assert_eq!(judge(call, |question| policies.decide(question)), first);
    first
}

fn with_fragment(text: &str, fragment: &str) -> Result<Policies, LoadError> {
    let directory = directory(&[("a.cedar", text), ("web.cedarschema", fragment)]);
    Policies::load(&settings(directory.path()))
}

const OPERATIONS: &str = r#"
action "files/POST /search" in ["read"] appliesTo { principal: Agent, resource: Server };
action "files/PUT /users/{id}" in ["write"] appliesTo {
  principal: Agent, resource: Server, context: { input: { name: String, admin?: Bool } },
};
action "files/GET /users/{id}/keys" in ["execute"] appliesTo { principal: Agent, resource: Server };
"#;

#[test]
fn one_line_says_what_may_be_requested() {
    let requests = [
        ('g', "GET /a"),
        ('h', "HEAD /a"),
        ('p', "POST /a"),
        ('u', "PUT /a"),
        ('a', "PATCH /a"),
        ('d', "DELETE /a"),
        ('S', "POST /search"),
        ('U', "PUT /users/me"),
        ('K', "GET /users/me/keys"),
    ];
    for (policy, allowed) in [
        ("permit(principal, action, resource);", "ghpuadSUK"),
        (r#"permit(principal, action, resource == Server::"files");"#, "ghpuadSUK"),
        (r#"permit(principal, action in Action::"GET", resource);"#, "gK"),
        (r#"permit(principal, action in [Action::"POST", Action::"PUT"], resource);"#, "puSU"),
        (r#"permit(principal, action == Action::"POST.other", resource);"#, "p"),
        (r#"permit(principal, action == Action::"files/POST /search", resource);"#, "S"),
        (r#"permit(principal, action in Action::"read", resource);"#, "ghS"),
        (r#"permit(principal, action in Action::"write", resource);"#, "puadU"),
        (r#"permit(principal, action in Action::"execute", resource);"#, "K"),
        (r#"permit(principal, action in Action::"tools/call", resource);"#, ""),
        (r#"permit(principal, action in Action::"asks", resource);"#, ""),
        (r#"permit(principal, action, resource in Server::"other");"#, ""),
        ("permit(principal, action, resource) when { context.era == \"http\" };", "ghpuadSUK"),
        ("permit(principal, action, resource) when { context.method == \"PUT\" };", "uU"),
        (
            r#"permit(principal, action in Action::"PUT", resource)
               when { context.http.path like "/users/*" };"#,
            "U",
        ),
        (
            r#"permit(principal, action == Action::"files/PUT /users/{id}", resource)
               when { context.http.named.id == "me" };"#,
            "U",
        ),
    ] {
        let policies = with_fragment(policy, OPERATIONS).expect(policy);
        let found: String = requests
            .iter()
            .filter(|(_, it)| decide(&policies, &request(it, None)).permit)
            .map(|(letter, _)| letter)
            .collect();
        assert_eq!(found, allowed, "{policy}");
    }
}

#[test]
fn paths_and_queries_are_told_apart_also_when_remembered() {
    let policies = policies(
        r#"permit(principal, action in Action::"GET", resource) when {
             context.http.path like "/repos/*/issues" && context.http.depth == 3 &&
             ["state=open", "page=1", "all"].containsAll(context.http.query) &&
             !(context.http has contentType)
           };"#,
    );
    for (it, expected) in [
        ("GET /repos/a/issues", true),
        ("GET /repos/a/issues/", true),
        ("GET /repos/a/issues?state=open&page=1", true),
        ("GET /repos/a/issues?all", true),
        ("GET /repos/a/issues?all=", false),
        ("GET /repos/a/issues?state=closed", false),
        ("GET /repos/a/issues?state=open&x", false),
        ("GET /repos/a/b/issues", false),
        ("GET /repos/issues", false),
        ("GET /repos/a/Issues", false),
        ("HEAD /repos/a/issues", false),
    ] {
        assert_eq!(decide(&policies, &request(it, None)).permit, expected, "{it}");
    }
}

#[test]
fn a_body_is_seen_as_declared_or_denies() {
    let text = r#"
        permit(principal, action in Action::"PUT", resource);
        forbid(principal, action == Action::"files/PUT /users/{id}", resource)
        when { context.input has admin };
    "#;
    let policies = with_fragment(text, OPERATIONS).expect("loads");
    let mut opaque = request("PUT /users/me", None);
    opaque.web.as_mut().expect("facts").traits.opaque = true;
    assert!(!decide(&policies, &opaque).permit, "a body that nobody has read");
    for (body, expected) in [
        (r#"{"name":"x"}"#, true),
        (r#"{"name":"x","other":{"admin":true}}"#, true),
        ("{}", true),
        (r#"{"name":"x","admin":true}"#, false),
        (r#"{"name":"x","admin":null}"#, true),
        (r#"{"name":"x","Admin":true}"#, false),
        (r#"{"name":"x","admin":"true"}"#, false),
        (r#"[{"admin":true}]"#, false),
        (r#""admin""#, false),
    ] {
        let call = request("PUT /users/me", Some(body));
        assert_eq!(decide(&policies, &call).permit, expected, "{body}");
    }
    // Of what no template fits, nothing is known.
    assert!(decide(&policies, &request("PUT /users", Some(r#"{"admin":true}"#))).permit);
}

#[test]
fn faults_of_operations_are_told() {
    let declared = |name: &str, rest: &str| {
        format!("action \"{name}\" {rest}appliesTo {{ principal: Agent, resource: Server }};")
    };
    let with_input = |name: &str| {
        format!(
            "action \"{name}\" in [\"read\"] appliesTo {{ principal: Agent, resource: Server, \
             context: {{ input: {{ a: String }} }} }};"
        )
    };
    let read = "in [\"read\"] ";
    for (fragment, fault) in [
        (declared("files/GET /a", ""), "has to be in a class"),
        (declared("files/GET /a", "in [\"GET\"] "), "has to be in a class"),
        (declared("files/FETCH /a", read), "is none of the methods"),
        (declared("files/GET a", read), "starts with a slash"),
        (declared("files/GET /{a}/{a}", read), "stands once"),
        (
            declared("files/GET /a/{b}", read) + &declared("files/GET /{a}/b", read),
            "fits the same paths",
        ),
        (with_input("files/GET /a"), "has no body"),
        (with_input("files/DELETE /a"), "has no body"),
        (with_input("acme/ask"), "an operation of a web API a body"),
        (declared("GET.other", read), "one of Lictor's own"),
    ] {
        let refused = with_fragment("", &fragment).expect_err(&fragment).to_string();
        assert!(refused.contains(fault), "{fragment}: {refused}");
    }
    let fine = declared("files/GET /a/{b}", "in [\"GET\", \"read\"] ");
    assert!(with_fragment("", &fine).is_ok());
    // A method is a group: a policy for it alone would cease to hold when operations are declared.
    let alone = r#"permit(principal, action == Action::"GET", resource);"#;
    let policies = with_fragment(alone, OPERATIONS).expect("loads");
    assert!(!policies.warnings().is_empty());
    assert!(!decide(&policies, &request("GET /a", None)).permit);
    for text in [
        r#"permit(principal, action in Action::"GET", resource) when { context.http.named.id == "x" };"#,
        r#"permit(principal, action in Action::"PUT", resource) when { context.input.name == "x" };"#,
        r#"permit(principal, action in Action::"GET", resource) when { context.http.contentType == "x" };"#,
    ] {
        assert!(with_fragment(text, OPERATIONS).is_err(), "{text}");
    }
}

#[test]
fn other_protocols_have_no_such_methods() {
    let policies = policies("permit(principal, action, resource);");
    for rule in WEB_METHODS {
        for name in [rule.name, rule.action] {
            for method in [Method::parse(name), Method::of_agent(name), Method::named(name)] {
                assert!(!policies.knows(&method), "{name}");
            }
        }
        assert!(policies.knows(&Method::of_web(rule.name)));
    }
    // Without what the request tells, policies that look at it fail.
    let policies = super::policies(
        r#"permit(principal, action in Action::"GET", resource) when { context.http.depth == 1 };"#,
    );
    let mut call = request("GET /a", None);
    assert!(decide(&policies, &call).permit);
    call.web = None;
    assert!(!decide(&policies, &call).permit);
}

#[test]
fn the_examples_of_the_page_load() {
    let page = include_str!("../../../docs/http-routes.md");
    let blocks = |language: &str| -> String {
        let fenced = page.split("```").skip(1).step_by(2);
        fenced.filter_map(|block| block.strip_prefix(&format!("{language}\n"))).collect()
    };
    let policies = with_fragment(&blocks("cedar"), &blocks("cedarschema")).expect("loads");
    assert_eq!(policies.warnings(), []);
    let ids: Vec<&str> = policies.origins().iter().map(|origin| &*origin.id).collect();
    assert_eq!(ids, ["github-reads", "github-issues", "github-declared-only"]);
}

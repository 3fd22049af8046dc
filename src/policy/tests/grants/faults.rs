//! What is wrong with documents, and what in them permits nothing.

use super::*;

fn told(result: Result<Policies, LoadError>) -> Vec<String> {
    let faults = result.err().map(|error| error.faults).unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

const FAULTY: &str = "\
agents:
  - id: spiffe://td/tenant/acme/agent/planner
    status: paused
  - id: spiffe://td/x
    canInvok: [coder]
  - id: td/x
  - id: spiffe://td/y
    canInvoke:
      - codr
      - spiffe://td/other
      - spiffe://td/y/z
      - spiffe://td/tenant/acme/agent/planner
    invocableBy: [writer]
  - id: spiffe://td/y
  - id: spiffe://td/y/z
    upstream: review
  - id: spiffe://td/z/*
    upstream: coder
  - id: spiffe://td/tenant/acme/agent/reviewer
    canInvoke: [review]
grants:
  - agent: spiffe://td/tenant/acme/agent/planner
    server: file
    tool: a*b
    permissions: []
  - agent: spiffe://td/tenant/acme/agent/planner
    server: file
    tool: a*b
    permissions: [read]
  - agent: spiffe://td/yy
    server: files
    tool: ''
    permissions: [read]
  - agent: spiffe://td/y
    server: files
    tool: x
    permissions: [read, reed]
  - agent: spiffe://td/y
    server: files
    tool: 7
    permissions: [read]
  - server: files
---
delegation:
  - {tenant: acme, maxDepth: 99}
  - {tenant: acme, mode: none}
  - {tenant: a}
  - {tenant: a}
grant: []
agents:
";

#[test]
fn all_faults_are_told_at_once_with_their_lines() {
    let found = told(load(&[
        ("a.grants.yaml", FAULTY),
        ("b.grants.yaml", "agents: [\n"),
        ("c.grants.yaml", "agents: []\nagents: []\n"),
        ("d.grants.yaml", "- 1\n"),
        ("e.cedar", "permit(principal, action resource);"),
    ]));
    let expected = [
        "a.grants.yaml:3: agents[0].status: `paused` is none of active, suspended, deprecated",
        "a.grants.yaml:5: agents[1].canInvok: unknown key (hint: did you mean `canInvoke`?)",
        "a.grants.yaml:6: agents[2].id: `td/x` is no SPIFFE ID",
        "a.grants.yaml:9: agents[3].canInvoke[0]: there is no upstream `codr` (hint: did you mean `coder`?)",
        "a.grants.yaml:10: agents[3].canInvoke[1]: `spiffe://td/other` is declared by no document",
        "a.grants.yaml:13: agents[3].invocableBy: says nothing, since no upstream leads to this agent",
        "a.grants.yaml:13: agents[3].invocableBy[0]: there is no group `writer`; did you mean `writers`?",
        "a.grants.yaml:14: agents[4].id: `spiffe://td/y` is declared twice (hint: the first is at a.grants.yaml:7)",
        "a.grants.yaml:16: agents[5].upstream: upstream `review` has to prove that it is `spiffe://td/tenant/acme/agent/reviewer`",
        "a.grants.yaml:18: agents[6].upstream: an upstream leads to one agent",
        "a.grants.yaml:20: agents[7].canInvoke[0]: an agent doesn't invoke itself",
        "a.grants.yaml:25: grants[0].permissions: is empty",
        "a.grants.yaml:27: grants[1].server: there is no upstream `file` (hint: did you mean `files`?)",
        "a.grants.yaml:28: grants[1].tool: `a*b` names no tool",
        "a.grants.yaml:30: grants[2].agent: `spiffe://td/yy` is declared by no document",
        "a.grants.yaml:32: grants[2].tool: `` names no tool",
        "a.grants.yaml:37: grants[3].permissions[1]: `reed` is none of read, write, execute (hint: did you mean `read`?)",
        "a.grants.yaml:40: grants[4].tool: expected text, found a number",
        "a.grants.yaml:42: grants[5]: agent is missing",
        "a.grants.yaml:42: grants[5]: permissions is missing",
        "a.grants.yaml:42: grants[5]: tool is missing",
        "a.grants.yaml:45: delegation[0].maxDepth: has to be at most 16",
        "a.grants.yaml:46: delegation[1].mode: `none` is none of full, readwrite, readonly",
        "a.grants.yaml:48: delegation[3].tenant: tenant `a` stands a second time",
        "a.grants.yaml:49: grant: unknown key (hint: did you mean `grants`?)",
        "a.grants.yaml:50: agents: has no value",
        "b.grants.yaml:1: no valid YAML: ",
        "c.grants.yaml:2: no valid YAML: duplicate mapping key",
        "d.grants.yaml:1: expected a map, found a list",
        "e.cedar:1: ",
    ];
    for expected in expected {
        assert!(found.iter().any(|fault| fault.starts_with(expected)), "{expected}\n{found:#?}");
    }
    // `spiffe://td/y/z` has an upstream, a wrong one; the entry of the planner is there, if faulty.
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_nothing_keeps_yet_is_a_fault() {
    for (key, why) in [
        ("requireApproval: true", "approvals don't exist yet"),
        ("approvalPolicy: managers", "approvals don't exist yet"),
        ("trust: ask", "approvals don't exist yet"),
    ] {
        let document = format!(
            "agents: [{{id: '{PLANNER}'}}]\ngrants:\n- agent: '{PLANNER}'\n  server: files\n  tool: echo\n  \
             permissions: [read]\n  {key}\n"
        );
        let found = told(load(&[("a.grants.yaml", &document)]));
        let name = key.split(':').next().expect("a key");
        let start = format!("a.grants.yaml:7: grants[0].{name}: {why}");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&start) && found[0].contains("remove the key"), "{found:?}");
    }
}

#[test]
fn a_file_that_would_be_left_out_is_a_fault() {
    let found = told(load(&[("team.grants.yml", "agents: []")]));
    assert_eq!(found, ["team.grants.yml: is not read by this name (hint: call it `.grants.yaml`)"]);
    let others = [("notes.yaml", "a: 1"), ("grants.yaml", "a: 1"), (".x.grants.yaml", "a: 1")];
    assert!(load(&others).is_ok());
}

#[test]
fn what_permits_nothing_is_a_warning_that_tells_what_lacks() {
    let document = format!(
        "agents:\n\
         - id: '{PLANNER}'\n\
         \x20 canInvoke:\n\
         \x20   - coder\n\
         \x20   - review\n\
         - id: '{CODER}'\n\
         \x20 upstream: coder\n\
         \x20 invocableBy:\n\
         \x20   - '{READER}'\n\
         \x20   - '{REVIEWER}'\n\
         - id: '{READER}'\n\
         grants:\n\
         - {{agent: '{PLANNER}', server: files, tool: wipe, permissions: [read]}}\n\
         - {{agent: '{PLANNER}', server: files, tool: save, permissions: [read]}}\n\
         - {{agent: '{PLANNER}', server: files, tool: read_file, permissions: [write]}}\n"
    );
    let policies = granted(&document);
    let warnings: Vec<String> = policies.warnings().iter().map(ToString::to_string).collect();
    let expected = [
        format!(
            "team.grants.yaml:4: agents[0].canInvoke[0]: permits nothing: `{CODER}` doesn't agree \
             (hint: add `{PLANNER}` to `invocableBy` at team.grants.yaml:6)"
        ),
        "team.grants.yaml:5: agents[0].canInvoke[1]: permits nothing: no document says who may invoke \
         `review` (hint: declare its agent, with `upstream: review`)"
            .to_owned(),
        format!(
            "team.grants.yaml:9: agents[1].invocableBy[0]: permits nothing: {READER} names no `{CODER}` \
             (hint: add it to `canInvoke` at team.grants.yaml:11)"
        ),
        format!(
            "team.grants.yaml:10: agents[1].invocableBy[1]: permits nothing: {REVIEWER} names no `{CODER}` \
             (hint: declare that agent, with this one in its `canInvoke`)"
        ),
        "team.grants.yaml:13: grants[0].permissions: permits nothing: `wipe` is of class `execute`, since \
         nobody classed it (hint: tell its class in the configuration (`upstreams[].tools.wipe.class`))"
            .to_owned(),
        "team.grants.yaml:14: grants[1].permissions: permits nothing: `save` is of class `write` (hint: \
         add `write` to `permissions`)"
            .to_owned(),
        "team.grants.yaml:15: grants[2].permissions: permits nothing: `read_file` is of class `read` \
         (hint: add `read` to `permissions`)"
            .to_owned(),
    ];
    assert_eq!(warnings, expected);
}

/// Policies alone, as on a developer's machine, know no upstreams and groups.
#[test]
fn without_a_configuration_names_are_taken_as_they_are() {
    let document = format!(
        "agents:\n\
         - {{id: '{PLANNER}', canInvoke: [anywhere]}}\n\
         - {{id: '{CODER}', upstream: anywhere, invocableBy: [some-group]}}\n\
         grants: [{{agent: '{PLANNER}', server: any, tool: t, permissions: [execute]}}]\n\
         delegation: [{{tenant: acme}}]\n"
    );
    let directory = directory(&[("a.grants.yaml", &document)]);
    let settings = Settings { directory: directory.path().to_owned(), ..Settings::default() };
    let policies = Policies::load(&settings).expect("loads");
    assert!(Ask::call(PLANNER, "t").on("any").permitted(&policies));
    assert!(!message(PLANNER, "anywhere").permitted(&policies), "it is in no group");
    let text = policies.warnings().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text, Vec::<String>::new());
}

#[test]
fn a_document_is_part_of_the_version() {
    let version = |status: &str| {
        granted(&format!("agents: [{{id: '{PLANNER}', status: {status}}}]")).version().clone()
    };
    assert_ne!(version("active"), version("suspended"));
}

#[test]
fn the_schema_is_published() {
    let published = include_str!("../../../../docs/grants.schema.json");
    assert!(schema() == published, "`lictor check --grants-schema > docs/grants.schema.json`");
}

#[test]
fn the_examples_of_the_page_load() {
    let page = include_str!("../../../../docs/grants.md");
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let document = blocks.collect::<Vec<_>>().join("---\n");
    let policies = granted(&document);
    assert_eq!(policies.warnings(), [], "{:?}", policies.warnings());
    let planner = "spiffe://example.org/tenant/acme/agent/planner";
    assert!(Ask::call(planner, "read_file").permitted(&policies));
    assert!(message(planner, "coder").permitted(&policies));
    let bound = policies.delegation_for(&principal(planner), "coder", &Target::Server);
    assert_eq!(bound, Some(Delegation { max_depth: 3, mode: DelegationMode::ReadWrite }));
}

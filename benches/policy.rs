//! What a decision costs, by number of policies: remembered, with arguments, unseen; and loading.

#![expect(clippy::expect_used, reason = "a benchmark that can't be set up has to stop")]

use std::{collections::BTreeMap, fmt::Write as _, fs, hint::black_box, path::Path};

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use lictor::{
    identity::{Principal, Proof, SpiffeId},
    policy::{Policies, Question, Settings},
    protocol::{Era, Method, Target, json},
};

const FRAGMENT: &str = r#"
action "server-1/read_file" in ["tools/call", "read"] appliesTo {
  principal: Agent, resource: Tool, context: { input: { path: String, lines?: Long } },
};
"#;

/// A set as a platform team would have it: a few rules for all, one for each agent and tool.
fn policies(count: usize) -> String {
    let mut text = String::from(
        r#"permit(principal in TrustDomain::"td", action in Action::"control", resource);
permit(principal in TrustDomain::"td", action in Action::"list", resource);
forbid(principal, action in Action::"execute", resource)
  unless { principal has tenant && principal.tenant == "ops" };
forbid(principal, action == Action::"server-1/read_file", resource)
  when { context.input.path like "/etc/*" };
"#,
    );
    for number in 4..count {
        let (agent, server) = (number % 500, number % 20);
        let line = match number % 4 {
            0 => format!(
                "permit(principal == Agent::\"spiffe://td/tenant/t{agent}/agent/a\", \
                 action in Action::\"read\", resource in Server::\"server-{server}\");"
            ),
            1 => format!(
                "permit(principal in Path::\"spiffe://td/tenant/t{agent}\", action in \
                 Action::\"tools/call\", resource == Tool::\"server-{server}/tool-{number}\");"
            ),
            2 => format!(
                "permit(principal in Group::\"group-{agent}\", action in [Action::\"read\", \
                 Action::\"write\"], resource in Server::\"server-{server}\") \
                 when {{ principal has tenant && principal.tenant == \"t{agent}\" }};"
            ),
            _ => format!(
                "forbid(principal in Path::\"spiffe://td/tenant/t{agent}\", action, resource == \
                 Tool::\"server-{server}/tool-{number}\") when {{ context.era == \"legacy\" }};"
            ),
        };
        writeln!(text, "{line}").expect("written");
    }
    text.push_str(
        "permit(principal == Agent::\"spiffe://td/tenant/t1/agent/a\", \
         action in Action::\"read\", resource in Server::\"server-1\");",
    );
    text
}

fn settings(directory: &Path, count: usize) -> Settings {
    fs::write(directory.join("policies.cedar"), policies(count)).expect("written");
    fs::write(directory.join("tools.cedarschema"), FRAGMENT).expect("written");
    Settings {
        directory: directory.to_owned(),
        groups: (0..500)
            .map(|agent| (format!("group-{agent}"), vec![format!("spiffe://td/tenant/t{agent}/*")]))
            .collect(),
        path_template: Some("/tenant/{tenant}/agent/{agent}".to_owned()),
        runs: false,
        servers: BTreeMap::new(),
    }
}

fn decide(criterion: &mut Criterion) {
    let principal = Principal {
        id: SpiffeId::parse("spiffe://td/tenant/t1/agent/a").expect("valid"),
        proof: Proof::Svid,
    };
    let method = Method::parse("tools/call");
    let arguments = format!(r#"{{"path":"/srv/notes/a.txt","text":"{}"}}"#, "x".repeat(1_800));
    let document = json::scan(arguments.as_bytes(), json::Limits::default()).expect("JSON");
    let ask = |target, arguments| Question {
        principal: &principal,
        server: "server-1",
        listener: "inbound",
        method: &method,
        target,
        arguments,
        asks: None,
        a2a: None,
        web: None,
        era: Era::Modern,
        delegation: None,
    };
    let (typed, plain) = (Target::Tool("read_file".into()), Target::Tool("tool-1".into()));
    let unseen: Vec<Target> =
        (0..100_000).map(|number| Target::Tool(format!("unseen-{number}").into())).collect();

    let mut group = criterion.benchmark_group("policy");
    for count in [10, 1_000, 10_000] {
        let directory = tempfile::TempDir::new().expect("a directory");
        let settings = settings(directory.path(), count);
        let policies = Policies::load(&settings).expect("loads");
        let permitted = policies.decide(&ask(&typed, Some(document.root())));
        assert!(permitted.permit, "{permitted:?}");
        group.bench_function(BenchmarkId::new("decide, arguments of 1.8 KB", count), |bencher| {
            let question = ask(&typed, Some(document.root()));
            bencher.iter(|| policies.decide(black_box(&question)));
        });
        group.bench_function(BenchmarkId::new("decide, no arguments read", count), |bencher| {
            bencher.iter(|| policies.decide(black_box(&ask(&plain, None))));
        });
        let mut next = unseen.iter().cycle();
        group.bench_function(BenchmarkId::new("decide, unseen tool", count), |bencher| {
            bencher.iter_batched(
                || next.next().expect("endless"),
                |target| policies.decide(&ask(target, None)),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(BenchmarkId::new("list 1,000 tools again", count), |bencher| {
            let items = unseen.get(..1_000).unwrap_or_default();
            let list = Method::parse("tools/list");
            bencher.iter(|| {
                let listed = items.iter().filter(|target| {
                    policies.may_list(&Question { method: &list, ..ask(target, None) })
                });
                listed.count()
            });
        });
        group.sample_size(10);
        group.bench_function(BenchmarkId::new("load", count), |bencher| {
            bencher.iter(|| Policies::load(&settings).expect("loads"));
        });
        group.sample_size(100);
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);

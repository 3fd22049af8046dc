//! Documents mean what a plain reading of them says.

use proptest::prelude::*;

use super::*;

const PRINCIPALS: [&str; 4] = [PLANNER, CODER, REVIEWER, "spiffe://td/tenant/b/agent/z"];
const WHO: [&str; 5] = [PLANNER, CODER, REVIEWER, "spiffe://td/tenant/acme/*", "spiffe://td/*"];
const UPSTREAMS: [&str; 3] = ["files", "coder", "review"];
const PATTERNS: [&str; 6] = ["echo", "save", "wipe", "e*", "*", "other"];
const TOOLS: [(&str, &str); 3] = [("echo", "read"), ("save", "write"), ("wipe", "execute")];

#[derive(Clone, Debug)]
struct Agent {
    id: &'static str,
    status: &'static str,
    can: Vec<&'static str>,
    by: Vec<&'static str>,
    card: bool,
    dynamic: bool,
}

#[derive(Clone, Debug)]
struct Grant {
    agent: &'static str,
    server: &'static str,
    tool: &'static str,
    permissions: Vec<&'static str>,
}

#[derive(Clone, Debug)]
struct Document {
    agents: Vec<Agent>,
    grants: Vec<Grant>,
}

impl Agent {
    fn upstream(&self) -> Option<&'static str> {
        match self.id {
            CODER => Some("coder"),
            REVIEWER => Some("review"),
            _ => None,
        }
    }
}

impl Document {
    fn text(&self) -> String {
        let list = |names: &[&str]| {
            format!(
                "[{}]",
                names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
            )
        };
        let mut text = if self.agents.is_empty() { "agents: []\n" } else { "agents:\n" }.to_owned();
        for agent in &self.agents {
            let Agent { id, status, can, by, card, dynamic } = agent;
            let (can, by) = (list(can), list(by));
            text.push_str(&format!(
                "- {{id: '{id}', status: {status}, canInvoke: {can}, dynamicDiscovery: {dynamic}"
            ));
            if let Some(upstream) = agent.upstream() {
                let card = if *card { "everybody" } else { "invokers" };
                text.push_str(&format!(", upstream: {upstream}, invocableBy: {by}, card: {card}"));
            }
            text.push_str("}\n");
        }
        text.push_str("grants:\n");
        if self.grants.is_empty() {
            text.push_str("  []\n");
        }
        for Grant { agent, server, tool, permissions } in &self.grants {
            let permissions = list(permissions);
            text.push_str(&format!(
                "- {{agent: '{agent}', server: {server}, tool: '{tool}', permissions: {permissions}}}\n"
            ));
        }
        text
    }

    /// What the document says of a call, if everything else is permitted, or nothing.
    fn permits(
        &self,
        principal: &str,
        server: &str,
        method: &str,
        target: &Target,
        others: bool,
    ) -> bool {
        let fits = |id: &str| match id.strip_suffix('*') {
            Some(start) => principal.starts_with(start),
            None => principal == id,
        };
        let own: Vec<&Agent> = self.agents.iter().filter(|agent| fits(agent.id)).collect();
        let target_agent = self.agents.iter().find(|agent| agent.upstream() == Some(server));
        let is = |agent: &Agent, status: &str| agent.status == status;
        if own.iter().any(|agent| is(agent, "suspended"))
            || target_agent.is_some_and(|agent| is(agent, "suspended"))
        {
            return false;
        }
        let deprecated = target_agent.is_some_and(|agent| is(agent, "deprecated"));
        let names = own.iter().any(|agent| agent.can.contains(&server));
        let agrees = target_agent.is_some_and(|agent| agent.by.iter().any(|who| fits(who)));
        let connected = self.grants.iter().any(|grant| fits(grant.agent) && grant.server == server);
        match (method, target) {
            ("tools/call", Target::Tool(tool)) => {
                let class = TOOLS.iter().find(|(name, _)| server == "files" && *name == &**tool);
                let class = class.map_or("execute", |(_, class)| class);
                let granted = self.grants.iter().any(|grant| {
                    let named = match grant.tool.strip_suffix('*') {
                        Some(start) => tool.starts_with(start),
                        None => grant.tool == &**tool,
                    };
                    fits(grant.agent)
                        && grant.server == server
                        && named
                        && grant.permissions.contains(&class)
                });
                let open = own.iter().all(|agent| agent.dynamic);
                !deprecated && (granted || (others && open))
            }
            ("initialize", _) => others || connected,
            ("GetAgentCard", _) => {
                let everybody = target_agent.is_some_and(|agent| agent.card);
                others || connected || everybody || (names && agrees)
            }
            _ => {
                let sends = method.starts_with("Send");
                let itself = target_agent.is_some_and(|agent| agent.id == principal);
                let both = names && agrees;
                let refused = (!own.is_empty() && !names)
                    || (target_agent.is_some() && !both)
                    || (sends && itself)
                    || (sends && deprecated && *target == Target::Server);
                !refused && (others || both || (connected && method == "GetExtendedAgentCard"))
            }
        }
    }
}

fn some<T: Clone + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    proptest::sample::subsequence(all, 0..=all.len())
}

fn document() -> impl Strategy<Value = Document> {
    let agents = some(&WHO).prop_flat_map(|ids| {
        let entries: Vec<_> = ids.into_iter().map(agent).collect();
        entries
    });
    agents.prop_flat_map(|agents| {
        let ids: Vec<&'static str> = agents.iter().map(|agent| agent.id).collect();
        let most = if ids.is_empty() { 0 } else { 4 };
        let grants = proptest::collection::vec(any::<proptest::sample::Index>(), 0..=most);
        let grants = grants.prop_flat_map(move |indices| {
            indices.iter().map(|index| grant(ids[index.index(ids.len())])).collect::<Vec<_>>()
        });
        (Just(agents), grants).prop_map(|(agents, grants)| Document { agents, grants })
    })
}

fn agent(id: &'static str) -> impl Strategy<Value = Agent> {
    let status = prop_oneof![6 => Just("active"), 1 => Just("suspended"), 1 => Just("deprecated")];
    let can = some(&UPSTREAMS);
    (status, can, some(&WHO), any::<bool>(), any::<bool>()).prop_map(
        move |(status, can, by, card, dynamic)| {
            let mut agent = Agent { id, status, can, by, card, dynamic };
            let own = agent.upstream();
            agent.can.retain(|upstream| Some(*upstream) != own);
            if own.is_none() && status == "deprecated" {
                agent.status = "active";
            }
            agent
        },
    )
}

fn grant(agent: &'static str) -> impl Strategy<Value = Grant> {
    let permissions = proptest::sample::subsequence(vec!["read", "write", "execute"], 1..=3);
    (
        proptest::sample::select(&UPSTREAMS[..2]),
        proptest::sample::select(&PATTERNS[..]),
        permissions,
    )
        .prop_map(move |(server, tool, permissions)| Grant {
            agent,
            server,
            tool,
            permissions,
        })
}

fn every_call() -> Vec<(&'static str, &'static str, &'static str, Target)> {
    let mut calls = vec![
        ("initialize", Target::Server),
        ("GetAgentCard", Target::Server),
        ("SendMessage", Target::Task("t".into())),
    ];
    calls.extend(invocations());
    calls.extend(TOOLS.iter().map(|(name, _)| ("tools/call", tool(name))));
    let mut all = vec![];
    for principal in PRINCIPALS {
        for upstream in UPSTREAMS {
            let on = |(method, target): &(&'static str, Target)| {
                (principal, upstream, *method, target.clone())
            };
            all.extend(calls.iter().map(on));
        }
    }
    all
}

fn permitted(
    policies: &Policies,
    (id, upstream, method, target): &(&str, &str, &str, Target),
) -> bool {
    let ask = Ask::method(id, method, target.clone()).on(upstream);
    ask.ask(|question| policies.decide(question).permit)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn documents_mean_what_they_say(document in document()) {
        let text = document.text();
        for (others, policies) in [(false, granted(&text)), (true, granted_beside_all(&text))] {
            for call in every_call() {
                let (principal, upstream, method, target) = &call;
                let expected = document.permits(principal, upstream, method, target, others);
                prop_assert_eq!(permitted(&policies, &call), expected, "{:?} {}\n{}", call, others, text);
            }
        }
    }

    #[test]
    fn what_is_taken_away_permits_nothing_more(
        document in document(),
        at in any::<proptest::sample::Index>(),
        others in any::<bool>(),
    ) {
        let load = |document: &Document| {
            let text = document.text();
            if others { granted_beside_all(&text) } else { granted(&text) }
        };
        let mut less = document.clone();
        // Every name in a list and every grant is something that can be taken away.
        let names = less.agents.iter_mut().flat_map(|agent| [&mut agent.can, &mut agent.by]);
        let mut names: Vec<_> = names.filter(|list| !list.is_empty()).collect();
        let (lists, grants) = (names.len(), less.grants.len());
        prop_assume!(lists + grants > 0);
        let at = at.index(lists + grants);
        match at.checked_sub(lists) {
            None => drop(names[at].pop()),
            Some(grant) => drop(less.grants.remove(grant)),
        }
        let (before, after) = (load(&document), load(&less));
        for call in every_call() {
            prop_assert!(permitted(&before, &call) || !permitted(&after, &call), "{:?}", call);
        }
    }
}

//! Declared agents → who may invoke whom, by the word of both, and who may take part at all.
//!
//! An invocation is permitted where the caller's `canInvoke` and the target's `invocableBy` meet. Each
//! side also closes what it is about: whatever other policies permit, a declared agent invokes only
//! whom it names, and is invoked only by those that it names and that name it.

use std::collections::BTreeMap;

use super::{
    Compiler, Row,
    document::Place,
    shape::{Agent, Card, Status},
    statement::{Condition, Statement, any, entities, entity, reason},
    who::Who,
};
use crate::policy::vocabulary::types;

/// To give an agent something to do.
pub(super) const SEND: [&str; 2] = ["SendMessage", "SendStreamingMessage"];
/// To see to it afterwards, and what only invokers are told.
const MANAGE: [&str; 9] = [
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
];
const CARD: &str = "GetAgentCard";

/// An agent that is right in itself.
#[derive(Debug)]
pub(super) struct Declared<'a> {
    pub(super) place: Place<'a>,
    pub(super) who: Who,
    pub(super) entry: &'a Agent,
    /// Upstreams that lead to it.
    upstreams: Vec<String>,
    invocable_by: Vec<(usize, Who)>,
    /// Upstreams of those that it names, with the position of the name.
    can_invoke: Vec<(usize, String)>,
}

impl<'a> Compiler<'a> {
    /// Checks the entries, first each for itself, then what they say of each other.
    pub(super) fn declared(&mut self, entries: &[(Place<'a>, &'a Agent)]) -> Vec<Declared<'a>> {
        let mut agents: Vec<Declared<'a>> = vec![];
        for &(place, entry) in entries {
            let Some(agent) = self.declare(place, entry) else { continue };
            if let Some(first) = agents.iter().find(|other| other.who == agent.who) {
                let problem = format!("`{}` is declared twice", entry.id);
                let hint = format!("the first is at {}", first.place);
                self.fault(place.fault("/id", problem).with_hint(hint));
                continue;
            }
            for upstream in &agent.upstreams {
                let taken = agents.iter().find(|other| other.upstreams.contains(upstream));
                if let Some(first) = taken {
                    let problem = format!("upstream `{upstream}` leads to `{}`", first.entry.id);
                    let hint = format!("so says {}", first.place);
                    self.fault(place.fault("/upstream", problem).with_hint(hint));
                }
            }
            agents.push(agent);
        }
        let named: Vec<Vec<(usize, String)>> =
            agents.iter().map(|agent| self.named(agent, &agents)).collect();
        for (agent, named) in agents.iter_mut().zip(named) {
            agent.can_invoke = named;
        }
        agents
    }

    fn declare(&mut self, place: Place<'a>, entry: &'a Agent) -> Option<Declared<'a>> {
        let who = match Who::agents(&entry.id) {
            Ok(who) => who,
            Err(problem) => {
                self.fault(place.fault("/id", problem));
                return None;
            }
        };
        let proven = self.settings.servers.iter();
        let proven = proven.filter(|(_, server)| server.agent.as_ref() == Some(&entry.id));
        let mut upstreams: Vec<String> = proven.map(|(name, _)| name.clone()).collect();
        if let Some(name) = &entry.upstream {
            let at = "/upstream";
            self.check_server(place, at, name);
            let agent = self.settings.servers.get(name).and_then(|server| server.agent.as_ref());
            match (&who, agent) {
                (Who::Below(_) | Who::Group(..), _) => {
                    let problem = "an upstream leads to one agent, and this entry is about several";
                    let hint = "declare the agent that it leads to in an entry of its own";
                    self.fault(place.fault(at, problem).with_hint(hint));
                }
                (Who::Agent(id), Some(agent)) if agent != id => {
                    let problem = format!("upstream `{name}` has to prove that it is `{agent}`");
                    let hint = "so says its `spiffeId` in the configuration";
                    self.fault(place.fault(at, problem).with_hint(hint));
                }
                (Who::Agent(_), _) if !upstreams.contains(name) => upstreams.push(name.clone()),
                (Who::Agent(_), _) => {}
            }
        }
        let mut invocable_by = vec![];
        for (index, text) in entry.invocable_by.iter().enumerate() {
            match Who::agents_or_group(text, self.settings) {
                Ok(who) => invocable_by.push((index, who)),
                Err(problem) => self.fault(place.fault(&by(index), problem)),
            }
        }
        if upstreams.is_empty() && super::is_configured(self.settings) {
            for (key, given) in [
                ("/invocableBy", !entry.invocable_by.is_empty()),
                ("/card", entry.card != Card::default()),
                ("/status", entry.status == Status::Deprecated),
            ] {
                if given && entry.upstream.is_none() {
                    let problem = "says nothing, since no upstream leads to this agent";
                    let hint = "name the upstream with `upstream`, or leave the key out";
                    self.fault(place.fault(key, problem).with_hint(hint));
                }
            }
        }
        Some(Declared { place, who, entry, upstreams, invocable_by, can_invoke: vec![] })
    }

    /// The upstreams that `canInvoke` means.
    fn named(&mut self, agent: &Declared<'a>, agents: &[Declared<'a>]) -> Vec<(usize, String)> {
        let mut named = vec![];
        let place = agent.place;
        for (index, text) in agent.entry.can_invoke.iter().enumerate() {
            let at = can(index);
            let upstreams = if text.contains(':') {
                match agents.iter().find(|other| other.entry.id == *text) {
                    Some(other) if other.upstreams.is_empty() && other.entry.upstream.is_none() => {
                        let problem = format!("no upstream leads to `{text}`");
                        let hint = format!("name one with `upstream` at {}", other.place);
                        self.fault(place.fault(&at, problem).with_hint(hint));
                        continue;
                    }
                    Some(other) => other.upstreams.clone(),
                    // It is told already what is wrong with that entry.
                    None if self.ids.contains(text.as_str()) => continue,
                    None => {
                        let problem = format!("`{text}` is declared by no document");
                        let hint = "declare it in `agents`, written alike";
                        self.fault(place.fault(&at, problem).with_hint(hint));
                        continue;
                    }
                }
            } else if self.check_server(place, &at, text) {
                vec![text.clone()]
            } else {
                continue;
            };
            for upstream in upstreams {
                if agent.upstreams.contains(&upstream) {
                    self.fault(place.fault(&at, "an agent doesn't invoke itself"));
                } else {
                    named.push((index, upstream));
                }
            }
        }
        named
    }

    /// Suspended agents neither call nor are called, in either direction.
    pub(super) fn suspend(&mut self, agents: &[Declared<'a>]) {
        for agent in agents.iter().filter(|agent| agent.entry.status == Status::Suspended) {
            let mut forbid = |what: &str, principal: String, resource: String| {
                let because = "This agent is suspended.";
                let scope = (principal, "action".to_owned(), resource);
                self.add(agent.place, agent.forbid(what, because, scope, Condition::None));
            };
            let (all, none) = (|| "principal".to_owned(), || "resource".to_owned());
            forbid("suspended", agent.who.test("principal"), none());
            forbid("suspended.asked", all(), agent.who.test("resource"));
            for upstream in &agent.upstreams {
                let server = entity(types::SERVER, upstream);
                forbid(
                    &format!("suspended.called:{upstream}"),
                    all(),
                    format!("resource in {server}"),
                );
                forbid(
                    &format!("suspended.asks:{upstream}"),
                    format!("principal == {server}"),
                    none(),
                );
            }
            self.rows.push(Row {
                who: agent.who.to_string(),
                may: "nothing".to_owned(),
                what: "suspended".to_owned(),
                place: agent.place.to_string(),
            });
        }
    }

    /// What each declared agent forbids, as caller and as target.
    pub(super) fn close_agents(&mut self, agents: &[Declared<'a>]) {
        for agent in agents {
            self.add(agent.place, agent.closed_as_caller(agents));
            for upstream in &agent.upstreams {
                self.add(agent.place, agent.closed_as_target(upstream, agents));
                let server = format!("resource in {}", entity(types::SERVER, upstream));
                let scope = (agent.who.test("principal"), sends(), server.clone());
                let because = "An agent doesn't invoke itself.";
                let what = format!("self:{upstream}");
                self.add(agent.place, agent.forbid(&what, because, scope, Condition::None));
                if agent.entry.status == Status::Deprecated {
                    let actions = SEND.into_iter().chain(["tools/call"]);
                    let action = format!("action in {}", entities(types::ACTION, actions));
                    let scope = ("principal".to_owned(), action, server);
                    let going_on = Condition::Unless("resource is Task".to_owned());
                    let because = "This agent is deprecated and takes nothing new.";
                    let what = format!("deprecated:{upstream}");
                    self.add(agent.place, agent.forbid(&what, because, scope, going_on));
                }
            }
        }
    }

    /// Where the words of both sides meet.
    pub(super) fn permit_invocations(&mut self, agents: &[Declared<'a>]) {
        let targets: BTreeMap<&String, &Declared<'a>> = agents
            .iter()
            .flat_map(|agent| agent.upstreams.iter().map(move |upstream| (upstream, agent)))
            .collect();
        for caller in agents {
            for (index, upstream) in &caller.can_invoke {
                let Some(target) = targets.get(upstream) else {
                    let problem =
                        format!("permits nothing: no document says who may invoke `{upstream}`");
                    let hint = format!("declare its agent, with `upstream: {upstream}`");
                    self.warn(caller.place.fault(&can(*index), problem).with_hint(hint));
                    continue;
                };
                self.permit_invocation(caller, *index, upstream, target);
            }
        }
        for target in agents {
            self.warn_of_silent_callers(target, agents);
            for upstream in target.upstreams.iter().filter(|_| target.entry.card == Card::Everybody)
            {
                let permit = Statement {
                    id: format!("{}.card:{upstream}", target.place.id()),
                    reason: None,
                    line: target.place.line("/card"),
                    effect: "permit",
                    principal: "principal is Agent".to_owned(),
                    action: format!("action == {}", entity(types::ACTION, CARD)),
                    resource: format!("resource == {}", entity(types::SERVER, upstream)),
                    condition: Condition::None,
                };
                self.add(target.place, permit);
                self.rows.push(Row {
                    who: "everybody".to_owned(),
                    may: "see the card of".to_owned(),
                    what: upstream.clone(),
                    place: target.place.to_string(),
                });
            }
        }
    }

    fn permit_invocation(
        &mut self,
        caller: &Declared<'a>,
        index: usize,
        upstream: &str,
        target: &Declared<'a>,
    ) {
        let agreed: Vec<&Who> = target.callers().filter(|who| who.meets(&caller.who)).collect();
        if agreed.is_empty() {
            let problem = format!("permits nothing: `{}` doesn't agree", target.entry.id);
            let hint = format!("add `{}` to `invocableBy` at {}", caller.entry.id, target.place);
            self.warn(caller.place.fault(&can(index), problem).with_hint(hint));
            return;
        }
        let condition = if agreed.iter().any(|who| who.covers(&caller.who)) {
            Condition::None
        } else {
            let tests: Vec<String> = agreed.iter().map(|who| who.test("principal")).collect();
            any(&tests).map_or(Condition::None, Condition::When)
        };
        let permit = Statement {
            id: format!("{}.canInvoke:{upstream}", caller.place.id()),
            reason: None,
            line: caller.place.line(&can(index)),
            effect: "permit",
            principal: caller.who.test("principal"),
            action: format!(
                "action in {}",
                entities(types::ACTION, SEND.into_iter().chain(MANAGE).chain([CARD]))
            ),
            resource: format!("resource in {}", entity(types::SERVER, upstream)),
            condition,
        };
        self.add(caller.place, permit);
        self.rows.push(Row {
            who: caller.who.to_string(),
            may: "invoke".to_owned(),
            what: format!("{upstream} ({})", target.entry.id),
            place: caller.place.to_string(),
        });
    }

    fn warn_of_silent_callers(&mut self, target: &Declared<'a>, agents: &[Declared<'a>]) {
        for (index, who) in &target.invocable_by {
            let names = |caller: &&Declared<'_>| {
                caller.can_invoke.iter().any(|(_, upstream)| target.upstreams.contains(upstream))
            };
            let mut callers = agents.iter().filter(names);
            if !callers.any(|caller| caller.who.meets(who)) {
                let problem = format!("permits nothing: {who} names no `{}`", target.entry.id);
                let declared = agents.iter().find(|agent| agent.who.meets(who));
                let hint = match declared {
                    Some(caller) => format!("add it to `canInvoke` at {}", caller.place),
                    None => "declare that agent, with this one in its `canInvoke`".to_owned(),
                };
                self.warn(target.place.fault(&by(*index), problem).with_hint(hint));
            }
        }
    }
}

impl Declared<'_> {
    fn callers(&self) -> impl Iterator<Item = &Who> {
        self.invocable_by.iter().map(|(_, who)| who)
    }

    fn forbid(
        &self,
        what: &str,
        because: &str,
        (principal, action, resource): (String, String, String),
        condition: Condition,
    ) -> Statement {
        Statement {
            id: format!("{}.{what}", self.place.id()),
            reason: reason(self.entry.reason.as_ref(), because),
            line: self.place.line(""),
            effect: "forbid",
            principal,
            action,
            resource,
            condition,
        }
    }

    /// It invokes nobody but those that it, or an entry that fits it as well, names.
    fn closed_as_caller(&self, agents: &[Self]) -> Statement {
        let named: Vec<String> = agents
            .iter()
            .filter(|other| other.who.meets(&self.who) && !other.can_invoke.is_empty())
            .map(|other| {
                let upstreams = other.can_invoke.iter().map(|(_, upstream)| upstream);
                let targets = format!("resource in {}", entities(types::SERVER, upstreams));
                if other.who.covers(&self.who) {
                    targets
                } else {
                    format!("{} && {targets}", other.who.test("principal"))
                }
            })
            .collect();
        let scope = (self.who.test("principal"), invocations(), "resource".to_owned());
        let condition = any(&named).map_or(Condition::None, Condition::Unless);
        self.forbid("canInvoke", "This agent may not invoke that one.", scope, condition)
    }

    /// Nobody invokes it but those that it names and that name it.
    fn closed_as_target(&self, upstream: &String, agents: &[Self]) -> Statement {
        let names = |caller: &&Self| caller.can_invoke.iter().any(|(_, name)| name == upstream);
        let sources: Vec<String> =
            agents.iter().filter(names).map(|caller| caller.who.test("principal")).collect();
        let callers: Vec<String> = self.callers().map(|who| who.test("principal")).collect();
        let condition = match (any(&sources), any(&callers)) {
            (Some(sources), Some(callers)) => {
                Condition::Unless(format!("({sources}) && ({callers})"))
            }
            _ => Condition::None,
        };
        let server = format!("resource in {}", entity(types::SERVER, upstream));
        let scope = ("principal".to_owned(), invocations(), server);
        let what = format!("invocableBy:{upstream}");
        self.forbid(&what, "This agent may not be invoked by that one.", scope, condition)
    }
}

fn sends() -> String {
    format!("action in {}", entities(types::ACTION, SEND))
}

fn invocations() -> String {
    format!("action in {}", entities(types::ACTION, SEND.into_iter().chain(MANAGE)))
}

fn can(index: usize) -> String {
    format!("/canInvoke/{index}")
}

fn by(index: usize) -> String {
    format!("/invocableBy/{index}")
}

//! Grants of tools → permits, and one forbid an agent that leaves out what is granted.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Compiler, Row,
    agents::Declared,
    document::Place,
    shape::{Grant, Permission},
    statement::{Condition, Statement, any, entities, entity, quoted, reason},
    who::Who,
};
use crate::{policy::vocabulary::types, protocol::Class};

/// What whoever may call a tool needs beside the call itself.
const ON_SERVER: [&str; 4] = ["control", "tools/list", "tasks/list", "subscriptions/listen"];
/// Managing the tasks that calls became; a task belongs to whoever it was given to.
const ON_TASKS: [&str; 5] =
    ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update", "subscriptions/listen"];

/// A grant that is right in itself.
#[derive(Debug)]
pub(super) struct Granted<'a> {
    pub(super) place: Place<'a>,
    pub(super) who: Who,
    pub(super) tools: Tools,
    pub(super) classes: BTreeSet<Permission>,
    pub(super) entry: &'a Grant,
}

/// Tools of one server.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) server: String,
    pub(super) name: Name,
}

/// How tools are named.
#[derive(Clone, Debug)]
pub(super) enum Name {
    /// Byte for byte.
    Exact(String),
    /// All that start so; an empty text stands for every tool.
    Starting(String),
}

impl Tools {
    pub(super) fn hold(&self, server: &str, tool: &str) -> bool {
        self.server == server
            && match &self.name {
                Name::Exact(name) => name == tool,
                Name::Starting(start) => tool.starts_with(start),
            }
    }

    fn scope(&self) -> String {
        let Self { server, name } = self;
        match name {
            Name::Exact(name) => format!("resource == {}", tool(server, name)),
            Name::Starting(_) => format!("resource is Tool in {}", entity(types::SERVER, server)),
        }
    }

    /// What the scope can't say.
    fn pattern(&self) -> Option<String> {
        match &self.name {
            Name::Exact(_) => None,
            Name::Starting(start) if start.is_empty() => None,
            Name::Starting(start) => {
                let pattern = quoted(start);
                let open = pattern.strip_suffix('"').unwrap_or(&pattern);
                Some(format!("resource.name like {open}*\""))
            }
        }
    }
}

impl<'a> Compiler<'a> {
    /// Checks one grant.
    pub(super) fn granted(&mut self, place: Place<'a>, entry: &'a Grant) -> Option<Granted<'a>> {
        let mut sound = true;
        let who = Who::agents(&entry.agent);
        match &who {
            Err(problem) => {
                self.fault(place.fault("/agent", problem));
                sound = false;
            }
            Ok(_) if !self.ids.contains(entry.agent.as_str()) => {
                let problem = format!("`{}` is declared by no document", entry.agent);
                let hint = "declare it in `agents`, written alike";
                self.fault(place.fault("/agent", problem).with_hint(hint));
                sound = false;
            }
            Ok(_) => {}
        }
        sound &= self.check_server(place, "/server", &entry.server);
        let name = match entry.tool.strip_suffix('*') {
            Some(start) => Name::Starting(start.to_owned()),
            None => Name::Exact(entry.tool.clone()),
        };
        let (Name::Exact(text) | Name::Starting(text)) = &name;
        if text.contains('*') || entry.tool.is_empty() {
            let problem = format!("`{}` names no tool", entry.tool);
            let hint = "a name, with `*` at most at its end";
            self.fault(place.fault("/tool", problem).with_hint(hint));
            sound = false;
        }
        let tools = Tools { server: entry.server.clone(), name };
        let classes: BTreeSet<Permission> = entry.permissions.iter().copied().collect();
        if let (true, Name::Exact(name)) = (sound, &tools.name) {
            self.warn_of_class(place, &entry.server, name, &classes);
        }
        let who = who.ok().filter(|_| sound)?;
        Some(Granted { place, who, tools, classes, entry })
    }

    fn warn_of_class(
        &mut self,
        place: Place<'a>,
        server: &str,
        name: &str,
        classes: &BTreeSet<Permission>,
    ) {
        let (class, told) = match self.vocabulary.tool_class(server, name) {
            Some(class) => (class, true),
            None => match self.settings.tool_class(server, name) {
                Some(class) => (class, true),
                None => (Class::Execute, false),
            },
        };
        if classes.iter().any(|permission| permission.class() == class) {
            return;
        }
        let why = if told { "" } else { ", since nobody classed it" };
        let problem = format!("permits nothing: `{name}` is of class `{}`{why}", class.as_str());
        let hint = if told {
            format!("add `{}` to `permissions`", class.as_str())
        } else {
            format!("tell its class in the configuration (`upstreams[].tools.{name}.class`)")
        };
        self.warn(place.fault("/permissions", problem).with_hint(hint));
    }

    /// The permits of grants, in their order.
    pub(super) fn permit_tools(&mut self, grants: &[Granted<'a>]) {
        let mut reached = BTreeSet::new();
        for grant in grants {
            let &Granted { place, ref who, ref tools, ref classes, entry } = grant;
            let parts: Vec<String> =
                class_test(classes).into_iter().chain(tools.pattern()).collect();
            let permit = Statement {
                id: place.id(),
                reason: entry.reason.clone(),
                line: place.line(""),
                effect: "permit",
                principal: who.test("principal"),
                action: format!("action in {}", entity(types::ACTION, "tools/call")),
                resource: tools.scope(),
                condition: match parts.is_empty() {
                    true => Condition::None,
                    false => Condition::When(parts.join(" && ")),
                },
            };
            self.add(place, permit);
            self.rows.push(Row {
                who: who.to_string(),
                may: names(classes).join(", "),
                what: format!("{}/{}", entry.server, entry.tool),
                place: place.to_string(),
            });
            if reached.insert((&entry.agent, &entry.server)) {
                self.permit_connection(grant);
            }
        }
    }

    fn permit_connection(&mut self, grant: &Granted<'a>) {
        let &Granted { place, ref who, ref tools, .. } = grant;
        let server = entity(types::SERVER, &tools.server);
        let mut permit = |what: &str, actions: &[&str], resource: String| {
            let permit = Statement {
                id: format!("{}.{what}", place.id()),
                reason: None,
                line: place.line(""),
                effect: "permit",
                principal: who.test("principal"),
                action: format!("action in {}", entities(types::ACTION, actions)),
                resource,
                condition: Condition::None,
            };
            self.add(place, permit);
        };
        permit("connect", &ON_SERVER, format!("resource == {server}"));
        permit("tasks", &ON_TASKS, format!("resource is Task in {server}"));
    }

    /// What isn't granted to an agent is forbidden, whatever other policies permit.
    pub(super) fn close_tools(&mut self, agents: &[Declared<'a>], grants: &[Granted<'a>]) {
        for agent in agents.iter().filter(|agent| !agent.entry.dynamic_discovery) {
            let &Declared { place, ref who, entry, .. } = agent;
            let granted: Vec<String> = agents
                .iter()
                .filter(|other| other.who.meets(who))
                .filter_map(|other| {
                    let own = grants.iter().filter(|grant| grant.who == other.who);
                    let tools = any(&tests(own))?;
                    Some(if other.who.covers(who) {
                        tools
                    } else {
                        format!("{} && ({tools})", other.who.test("principal"))
                    })
                })
                .collect();
            let forbid = Statement {
                id: format!("{}.tools", place.id()),
                reason: reason(entry.reason.as_ref(), "This tool is not granted to this agent."),
                line: place.line(""),
                effect: "forbid",
                principal: who.test("principal"),
                action: format!("action in {}", entity(types::ACTION, "tools/call")),
                resource: "resource is Tool".to_owned(),
                condition: any(&granted).map_or(Condition::None, Condition::Unless),
            };
            self.add(place, forbid);
        }
    }
}

impl Permission {
    pub(super) fn class(self) -> Class {
        match self {
            Self::Read => Class::Read,
            Self::Write => Class::Write,
            Self::Execute => Class::Execute,
        }
    }
}

fn tool(server: &str, name: &str) -> String {
    entity(types::TOOL, &format!("{server}/{name}"))
}

fn names(classes: &BTreeSet<Permission>) -> Vec<&'static str> {
    classes.iter().map(|permission| permission.class().as_str()).collect()
}

/// That the tool's class is among these; `None` where they are all that there are. The attribute tells
/// the worst class that a tool is in, its groups would tell each.
fn class_test(classes: &BTreeSet<Permission>) -> Option<String> {
    let all = [Permission::Read, Permission::Write, Permission::Execute];
    if all.iter().all(|permission| classes.contains(permission)) {
        return None;
    }
    let classes: Vec<String> = names(classes).into_iter().map(quoted).collect();
    Some(format!("[{}].contains(resource.class)", classes.join(", ")))
}

/// That the resource is granted, in few parts: what has the same classes stands together.
fn tests<'b, 'a: 'b>(grants: impl Iterator<Item = &'b Granted<'a>>) -> Vec<String> {
    let mut exact: BTreeMap<&BTreeSet<Permission>, Vec<String>> = BTreeMap::new();
    let mut patterns: BTreeMap<(&BTreeSet<Permission>, &str), Vec<Option<String>>> =
        BTreeMap::new();
    for Granted { tools, classes, .. } in grants {
        let Tools { server, name } = tools;
        match name {
            Name::Exact(name) => {
                exact.entry(classes).or_default().push(format!("{server}/{name}"));
            }
            Name::Starting(_) => {
                patterns.entry((classes, server)).or_default().push(tools.pattern());
            }
        }
    }
    let exact = exact.into_iter().map(|(classes, names)| {
        let named = format!("resource in {}", entities(types::TOOL, names));
        class_test(classes).into_iter().chain([named]).collect::<Vec<_>>().join(" && ")
    });
    let patterns = patterns.into_iter().map(|((classes, server), patterns)| {
        let server = format!("resource in {}", entity(types::SERVER, server));
        // One without a pattern is every tool of the server.
        let named = patterns.into_iter().collect::<Option<Vec<_>>>();
        let named = named.and_then(|named| any(&named)).map(|named| format!("({named})"));
        class_test(classes)
            .into_iter()
            .chain([server])
            .chain(named)
            .collect::<Vec<_>>()
            .join(" && ")
    });
    exact.chain(patterns).collect()
}

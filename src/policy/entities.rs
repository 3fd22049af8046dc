//! From a question to Cedar entities: who calls, what is touched, and what each of them is in.
//!
//! Only facts that Lictor itself holds become entities: the proven identity, the configuration, and
//! bare names as they stand in the call. Nothing is normalised, so a name matches byte for byte.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    str::FromStr,
};

use cedar_policy::{Entities, Entity, EntityTypeName, EntityUid, RestrictedExpression};

use super::{
    Settings,
    source::Fault,
    vocabulary::{Action, types, uid},
};
use crate::{
    identity::{Principal, SpiffeId},
    protocol::{Class, Target},
};

/// Type names, parsed once.
#[derive(Debug)]
pub(crate) struct TypeNames {
    pub(crate) agent: EntityTypeName,
    pub(crate) group: EntityTypeName,
    pub(crate) path: EntityTypeName,
    pub(crate) prompt: EntityTypeName,
    pub(crate) resource: EntityTypeName,
    pub(crate) server: EntityTypeName,
    pub(crate) task: EntityTypeName,
    pub(crate) tool: EntityTypeName,
    pub(crate) trust_domain: EntityTypeName,
}

impl TypeNames {
    pub(crate) fn new() -> Result<Self, Fault> {
        let parse = |name: &str| {
            EntityTypeName::from_str(name)
                .map_err(|_| Fault::of_settings(format!("`{name}` is no name of a type")))
        };
        Ok(Self {
            agent: parse(types::AGENT)?,
            group: parse(types::GROUP)?,
            path: parse(types::PATH)?,
            prompt: parse(types::PROMPT)?,
            resource: parse(types::RESOURCE)?,
            server: parse(types::SERVER)?,
            task: parse(types::TASK)?,
            tool: parse(types::TOOL)?,
            trust_domain: parse(types::TRUST_DOMAIN)?,
        })
    }

    pub(crate) fn of(&self, target: &Target) -> &EntityTypeName {
        match target {
            Target::Server => &self.server,
            Target::Tool(_) => &self.tool,
            Target::Prompt(_) => &self.prompt,
            Target::Resource(_) | Target::Template(_) => &self.resource,
            Target::Task(_) => &self.task,
            Target::Caller => &self.agent,
        }
    }
}

/// One entity of a request, with all that it is in.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) uid: EntityUid,
    pub(crate) ancestors: Vec<EntityUid>,
}

impl Node {
    /// Cedar's `in`: the entity itself or something that it is in.
    pub(crate) fn is_in(&self, group: &EntityUid) -> bool {
        self.uid == *group || self.ancestors.contains(group)
    }

    /// Cedar's `is`.
    pub(crate) fn is(&self, name: &EntityTypeName) -> bool {
        self.uid.type_name() == name
    }
}

/// Who does what to what.
#[derive(Clone, Debug)]
pub(crate) struct Triple {
    pub(crate) principal: Node,
    pub(crate) action: Node,
    pub(crate) resource: Node,
}

/// Makes entities of principals and targets.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) types: TypeNames,
    groups: Vec<Group>,
    template: Option<PathTemplate>,
    servers: BTreeMap<String, super::settings::Server>,
}

#[derive(Debug)]
struct Group {
    uid: EntityUid,
    exact: HashSet<String>,
    prefixes: Vec<String>,
}

impl World {
    /// Takes over what the configuration tells, and tells everything that is wrong with it.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Vec<Fault>> {
        let types = TypeNames::new().map_err(|fault| vec![fault])?;
        let mut faults = vec![];
        let mut groups = vec![];
        for (name, members) in &settings.groups {
            let mut group =
                Group { uid: uid(&types.group, name), exact: HashSet::new(), prefixes: vec![] };
            for member in members {
                let stem = member.strip_suffix("/*");
                let parsed = match stem {
                    // A trust domain alone is a fine prefix; a path makes it a workload's ID.
                    Some(stem) => SpiffeId::parse(&format!("{stem}/x")),
                    None => SpiffeId::parse(member),
                };
                match (parsed, stem) {
                    (Ok(_), Some(stem)) => group.prefixes.push(format!("{stem}/")),
                    (Ok(_), None) => drop(group.exact.insert(member.clone())),
                    (Err(error), _) => faults.push(Fault::of_settings(format!(
                        "group `{name}`: `{member}` is no SPIFFE ID: {error}"
                    ))),
                }
            }
            groups.push(group);
        }
        let template = match settings.path_template.as_deref().map(PathTemplate::parse) {
            Some(Ok(template)) => Some(template),
            Some(Err(message)) => {
                faults.push(Fault::of_settings(message));
                None
            }
            None => None,
        };
        for name in settings.servers.keys().filter(|name| name.contains('/')) {
            let message = format!("the name of server `{name}` must not contain a slash");
            faults.push(Fault::of_settings(message));
        }
        let servers = settings.servers.clone();
        if faults.is_empty() { Ok(Self { types, groups, template, servers }) } else { Err(faults) }
    }

    /// The class that the configuration gives a tool.
    pub(crate) fn tool_class(&self, server: &str, tool: &str) -> Class {
        let tools = self.servers.get(server).map(|server| &server.tools);
        tools.and_then(|tools| tools.get(tool)).map_or(Class::Execute, |tool| tool.class)
    }

    /// The tenant that an ID tells by the path template.
    pub(crate) fn tenant<'a>(&'a self, id: &'a SpiffeId) -> Option<&'a str> {
        let captured = self.template.as_ref()?.captures(id.path());
        captured.into_iter().find(|(name, _)| *name == "tenant").map(|(_, value)| value)
    }

    /// Whether the path template names tenants.
    pub(crate) fn knows_tenants(&self) -> bool {
        self.template.as_ref().is_some_and(|template| template.names().any(|name| name == "tenant"))
    }

    /// The three nodes of a request, which is all that scopes look at.
    pub(crate) fn triple(
        &self,
        principal: &Principal,
        action: &Action,
        server: &str,
        target: &Target,
    ) -> Triple {
        let server_uid = uid(&self.types.server, server);
        let resource = match target.name() {
            None => Node { uid: server_uid, ancestors: vec![] },
            Some(name) => Node {
                uid: uid(self.types.of(target), format!("{server}/{name}")),
                ancestors: vec![server_uid],
            },
        };
        let agent = Node {
            uid: uid(&self.types.agent, principal.id.as_str()),
            ancestors: self.memberships(&principal.id),
        };
        // What a server asks is a call in the other direction.
        let (principal, resource) = match target {
            Target::Caller => (resource, agent),
            Target::Server
            | Target::Tool(_)
            | Target::Prompt(_)
            | Target::Resource(_)
            | Target::Template(_)
            | Target::Task(_) => (agent, resource),
        };
        let action = Node { uid: action.uid.clone(), ancestors: action.groups.clone() };
        Triple { principal, action, resource }
    }

    /// Trust domain, path prefixes (the ID itself is none) and groups.
    fn memberships(&self, id: &SpiffeId) -> Vec<EntityUid> {
        let text = id.as_str();
        let mut all = vec![uid(&self.types.trust_domain, id.trust_domain())];
        let domain_end = text.len() - id.path().len();
        let slashes =
            text.bytes().enumerate().filter(|(at, byte)| *byte == b'/' && *at > domain_end);
        let prefixes = slashes.filter_map(|(at, _)| text.get(..at));
        all.extend(prefixes.map(|prefix| uid(&self.types.path, prefix)));
        all.extend(self.groups_of(id).map(|group| group.uid.clone()));
        all
    }

    fn groups_of(&self, id: &SpiffeId) -> impl Iterator<Item = &Group> {
        let text = id.as_str();
        self.groups.iter().filter(move |group| {
            group.exact.contains(text)
                || group.prefixes.iter().any(|prefix| text.starts_with(prefix.as_str()))
        })
    }

    /// The entities of one request.
    pub(crate) fn entities(
        &self,
        principal: &Principal,
        action: &Action,
        server: &str,
        target: &Target,
        triple: &Triple,
    ) -> Result<Entities, String> {
        let text = |value: &str| RestrictedExpression::new_string(value.to_owned());
        let settings = self.servers.get(server);
        let mut tags: Vec<&String> = settings.iter().flat_map(|server| &server.tags).collect();
        let server_tags = RestrictedExpression::new_set(tags.iter().map(|tag| text(tag)));
        if let Target::Tool(name) = target {
            let tool = settings.and_then(|server| server.tools.get(&**name));
            tags.extend(tool.iter().flat_map(|tool| &tool.tags));
        }
        let tags = RestrictedExpression::new_set(tags.iter().map(|tag| text(tag)));

        let id = &principal.id;
        let mut agent = vec![("trustDomain", text(id.trust_domain())), ("path", text(id.path()))];
        let groups = self.groups_of(id).map(|group| text(group.uid.id().unescaped()));
        agent.push(("tags", RestrictedExpression::new_set(groups)));
        let captured = self.template.as_ref().map(|template| template.captures(id.path()));
        agent.extend(captured.iter().flatten().map(|(name, value)| (*name, text(value))));

        let name = target.name().unwrap_or(server);
        let (agent_node, object_node) = match target {
            Target::Caller => (&triple.resource, &triple.principal),
            Target::Server
            | Target::Tool(_)
            | Target::Prompt(_)
            | Target::Resource(_)
            | Target::Template(_)
            | Target::Task(_) => (&triple.principal, &triple.resource),
        };
        let object = match target {
            Target::Server | Target::Caller => vec![("name", text(server)), ("tags", tags)],
            Target::Tool(_) => vec![
                ("name", text(name)),
                ("server", text(server)),
                ("class", text(action.class.as_str())),
                ("tags", tags),
            ],
            Target::Prompt(_) => {
                vec![("name", text(name)), ("server", text(server)), ("tags", tags)]
            }
            Target::Resource(_) | Target::Template(_) => vec![
                ("uri", text(name)),
                ("scheme", text(name.split_once(':').map_or("", |(scheme, _)| scheme))),
                ("server", text(server)),
                ("tags", tags),
            ],
            Target::Task(_) => vec![("server", text(server)), ("tags", tags)],
        };
        let mut all = vec![entity(agent_node, agent)?, entity(object_node, object)?];
        if !matches!(target, Target::Server | Target::Caller) {
            let node = Node { uid: uid(&self.types.server, server), ancestors: vec![] };
            all.push(entity(&node, vec![("name", text(server)), ("tags", server_tags)])?);
        }
        all.push(entity(&triple.action, vec![])?);
        Entities::from_entities(all, None).map_err(|error| error.to_string())
    }
}

fn entity(node: &Node, attributes: Vec<(&str, RestrictedExpression)>) -> Result<Entity, String> {
    let attributes: HashMap<_, _> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let parents = node.ancestors.iter().cloned().collect();
    Entity::new(node.uid.clone(), attributes, parents).map_err(|error| error.to_string())
}

/// `/tenant/{tenant}/agent/{agent}`: a segment in braces matches one segment and names it.
#[derive(Debug)]
pub(crate) struct PathTemplate {
    segments: Vec<Segment>,
}

#[derive(Debug)]
enum Segment {
    Literal(String),
    Named(String),
}

impl PathTemplate {
    /// Checks a template; names are letters and digits, and can't hide the built-in attributes.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let fault = |why: &str| format!("path template `{text}`: {why}");
        let rest = text.strip_prefix('/').ok_or_else(|| fault("starts with a slash"))?;
        let mut segments = vec![];
        let mut names = HashSet::new();
        for segment in rest.split('/') {
            let inner = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            segments.push(match inner {
                Some(name) => {
                    let legal = name.starts_with(|first: char| first.is_ascii_lowercase())
                        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
                    if !legal || matches!(name, "path" | "tags" | "trustDomain") {
                        return Err(fault("a name is letters and digits, and none of our own"));
                    }
                    if !names.insert(name) {
                        return Err(fault("a name stands twice"));
                    }
                    Segment::Named(name.to_owned())
                }
                None if segment.is_empty() || segment.contains(['{', '}']) => {
                    return Err(fault("a segment is plain text or one name in braces"));
                }
                None => Segment::Literal(segment.to_owned()),
            });
        }
        Ok(Self { segments })
    }

    /// The names in it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Named(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        })
    }

    /// What the names stand for in a path; empty where the path doesn't fit as a whole.
    fn captures<'a>(&'a self, path: &'a str) -> Vec<(&'a str, &'a str)> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if parts.len() != self.segments.len() {
            return vec![];
        }
        let mut captured = vec![];
        for (segment, part) in self.segments.iter().zip(parts) {
            match segment {
                Segment::Named(name) => captured.push((name.as_str(), part)),
                Segment::Literal(literal) if literal == part => {}
                Segment::Literal(_) => return vec![],
            }
        }
        captured
    }
}

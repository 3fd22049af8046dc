//! What policies can speak of: the actions of the schema, and which of them a call is.
//!
//! A tool is looked up by server and name among the tools that a fragment declares, and nowhere else, so
//! that `tools/call` of a server `resources` on a tool `read` is not the action `resources/read`. In the
//! same way only declared methods of vendors are methods, each of one side; a group of actions never is.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    str::FromStr,
    sync::Arc,
};

use cedar_policy::{Entities, EntityId, EntityTypeName, EntityUid, Schema, ffi::DetailedError};

use super::{
    Settings,
    fragments::{self, Joined},
    operations::{Operation, Operations},
    source::{Fault, Source},
};
use crate::protocol::{Class, Method, Target, method::Governs};

/// The built-in schema, as text.
pub const SCHEMA: &str = include_str!("../../policies/lictor.cedarschema");

/// Type names of the schema.
pub(crate) mod types {
    pub(crate) const ACTION: &str = "Action";
    pub(crate) const AGENT: &str = "Agent";
    pub(crate) const GROUP: &str = "Group";
    pub(crate) const PATH: &str = "Path";
    pub(crate) const PROMPT: &str = "Prompt";
    pub(crate) const RESOURCE: &str = "Resource";
    pub(crate) const SERVER: &str = "Server";
    pub(crate) const TASK: &str = "Task";
    pub(crate) const TOOL: &str = "Tool";
    pub(crate) const TRUST_DOMAIN: &str = "TrustDomain";
}

/// Classes that an action's groups can tell, from harmless to dangerous.
pub(crate) const CLASSES: [Class; 5] =
    [Class::Control, Class::List, Class::Read, Class::Write, Class::Execute];

/// The group of everything that servers ask.
pub(crate) const ASKS: &str = "asks";
/// What stands before a class in the names of the groups within [`ASKS`].
pub(crate) const ASKS_OF_CLASS: &str = "asks.";

/// An action of the schema, as the decision point needs it.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) uid: EntityUid,
    /// All groups that it is in, directly or not.
    pub(crate) groups: Vec<EntityUid>,
    pub(crate) class: Class,
    /// Type names of what it can be done to.
    resources: Vec<EntityTypeName>,
    /// Type of `context.input`, where declared.
    pub(crate) input: Option<Shape>,
    /// The operation of a web API that it is.
    pub(crate) operation: Option<Operation>,
}

impl Action {
    /// Whether the schema lets this be done to entities of a type.
    pub(crate) fn applies_to(&self, resource: &EntityTypeName) -> bool {
        self.resources.contains(resource)
    }
}

/// Type of an argument, as far as JSON can fill it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    Long,
    Bool,
    Decimal,
    Set(Box<Self>),
    Record(BTreeMap<String, Self>),
}

/// The schema and the actions in it.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) schema: Schema,
    actions: HashMap<String, Arc<Action>>,
    /// Names among `actions` that are tools with an action of their own.
    tools: HashSet<String>,
    /// Those among `actions` that are operations of web APIs.
    operations: Operations,
    /// Names among `actions` that are methods of vendors, for agents to call.
    vendors: HashSet<String>,
    /// Names among `actions` that are methods of vendors, for servers to send.
    vendors_ask: HashSet<String>,
}

impl Vocabulary {
    /// Builds it from the built-in schema and the fragments.
    pub(crate) fn build(
        settings: &Settings,
        fragments: &[Source],
        warnings: &mut Vec<Fault>,
    ) -> Result<Self, Vec<Fault>> {
        let mut joined = fragments::join(settings, fragments, warnings)?;
        let fault = |message: String| vec![Fault::of_settings(format!("schema: {message}"))];
        let entities = joined.schema.action_entities().map_err(|error| fault(error.to_string()))?;
        let mut actions = HashMap::new();
        for (name, resources) in &joined.actions {
            let input = joined.inputs.remove(name);
            let mut action = action(&entities, name, resources, input).map_err(fault)?;
            // A name that is none was refused before.
            action.operation = Operation::parse(name).ok().flatten().map(|(_, it)| it);
            actions.insert(name.clone(), Arc::new(action));
        }
        let Joined { schema, tools, operations, vendors, vendors_ask, .. } = joined;
        Ok(Self { schema, actions, tools, operations, vendors, vendors_ask })
    }

    /// Whether a method that an agent sent has an action.
    pub(crate) fn knows(&self, method: &Method) -> bool {
        match method {
            Method::Known(rule) if rule.governs == Governs::Caller => false,
            Method::Known(rule) => {
                rule.name == "tools/call" || self.actions.contains_key(rule.action)
            }
            Method::Vendor(name) => self.vendors.contains(&**name),
        }
    }

    /// Whether a method that a server sent is one that servers may send.
    pub(crate) fn knows_asked(&self, method: &Method) -> bool {
        match method {
            Method::Known(rule) => rule.governs == Governs::Caller,
            Method::Vendor(name) => self.vendors_ask.contains(&**name),
        }
    }

    /// The class of a tool that has an action of its own.
    pub(crate) fn tool_class(&self, server: &str, tool: &str) -> Option<Class> {
        let name = format!("{server}/{tool}");
        self.tools.contains(&name).then(|| self.actions.get(&name))?.map(|action| action.class)
    }

    /// The action of a method on a target. `class` is the class of a tool without an action, `path` that of a request
    /// of plain HTTP.
    pub(crate) fn action(
        &self,
        method: &Method,
        server: &str,
        target: &Target,
        class: Class,
        path: Option<&str>,
    ) -> Option<&Arc<Action>> {
        match (method, target) {
            (Method::Known(rule), Target::Tool(tool)) if rule.name == "tools/call" => {
                let name = format!("{server}/{tool}");
                let own = self.tools.contains(&name).then(|| self.actions.get(&name)).flatten();
                own.or_else(|| self.actions.get(&format!("tools/call.{}", class.as_str())))
            }
            (Method::Known(rule), _) => {
                let operation = path.and_then(|path| self.operations.find(server, rule, path));
                self.actions.get(operation.map_or(rule.action, |it| it.action.as_str()))
            }
            (Method::Vendor(name), Target::Caller) if self.knows_asked(method) => {
                self.actions.get(&**name)
            }
            (Method::Vendor(name), _) if self.knows(method) => self.actions.get(&**name),
            (Method::Vendor(_), _) => None,
        }
    }
}

/// The class that an action's groups tell, whichever direction it is of; the worst, if several.
pub(crate) fn class<'a>(groups: impl Iterator<Item = &'a str>) -> Option<Class> {
    let named = groups.map(|group| group.strip_prefix(ASKS_OF_CLASS).unwrap_or(group));
    named.filter_map(|name| CLASSES.into_iter().find(|class| class.as_str() == name)).max()
}

/// The UID of an entity; type names are constants of this module's `types`.
pub(crate) fn uid(type_name: &EntityTypeName, id: impl AsRef<str>) -> EntityUid {
    EntityUid::from_type_name_and_id(type_name.clone(), EntityId::new(id))
}

fn action(
    entities: &Entities,
    name: &str,
    resources: &[String],
    input: Option<Shape>,
) -> Result<Action, String> {
    let type_name = |name: &str| {
        EntityTypeName::from_str(name).map_err(|_| format!("`{name}` is no name of a type"))
    };
    let uid = uid(&type_name(types::ACTION)?, name);
    let groups: Vec<EntityUid> = entities.ancestors(&uid).into_iter().flatten().cloned().collect();
    let class = class(groups.iter().map(|group| group.id().unescaped()))
        .ok_or_else(|| format!("action `{name}` is in no class"))?;
    let resources = resources.iter().map(|name| type_name(name)).collect::<Result<_, _>>()?;
    Ok(Action { uid, groups, class, resources, input, operation: None })
}

/// Turns an error of Cedar into a fault; offsets in the error are relative to `at`.
pub(crate) fn located(source: &Source, at: usize, error: DetailedError) -> Fault {
    let offset = error.source_locations.first().map_or(0, |label| label.loc.start);
    let label = error.source_locations.first().and_then(|label| label.label.clone());
    let fault = source.fault(Some(source.line(at + offset)), error.message);
    match error.help.or(label) {
        Some(hint) => fault.with_hint(hint),
        None => fault,
    }
}

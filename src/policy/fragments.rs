//! The schema in the making: the built-in one, and the fragments of the user that are joined to it.
//!
//! A fragment declares tools with typed arguments, operations of web APIs with typed bodies, and methods of
//! vendors (for agents to call, or for servers to send), nothing else. It names only
//! `input`; what every context holds is added here, so that a fragment can't miss it and a policy can
//! read it everywhere. Every fragment is read before any action is looked at, so that groups can be used
//! before they are declared, and in other files.
//!
//! INVARIANT: nothing can be declared that [`super::entities`] or [`super::input`] doesn't fill; what a
//! policy can't read on any call fails validation instead of never matching.

use std::collections::{HashMap, HashSet};

use cedar_policy::{Schema, SchemaFragment, ffi::DetailedError};
use serde_json::{Map, Value, json};

use super::{
    Settings,
    operations::{Operation, Operations},
    source::{Fault, Source},
    vocabulary::{ASKS, ASKS_OF_CLASS, CLASSES, SCHEMA, Shape, class, located, types},
    web,
};
use crate::protocol::Class;

const TWICE: &str = "is declared twice, or is one of Lictor's own";

/// The whole schema, and what Cedar doesn't keep of it.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) schema: Schema,
    /// Actions that can be done, with the names of types that they can be done to.
    pub(crate) actions: Vec<(String, Vec<String>)>,
    /// Types of `context.input`, by action.
    pub(crate) inputs: HashMap<String, Shape>,
    /// Actions of tools.
    pub(crate) tools: HashSet<String>,
    /// Actions that are operations of web APIs.
    pub(crate) operations: Operations,
    /// Actions that are methods of vendors, for agents to call.
    pub(crate) vendors: HashSet<String>,
    /// Actions that are methods of vendors, for servers to send.
    pub(crate) vendors_ask: HashSet<String>,
}

/// Joins the built-in schema with the fragments; tells all faults, and warnings beside them.
pub(crate) fn join(
    settings: &Settings,
    fragments: &[Source],
    warnings: &mut Vec<Fault>,
) -> Result<Joined, Vec<Fault>> {
    let mut draft = Draft::base(settings)?;
    let mut actions = vec![];
    for source in fragments {
        let declared = draft.declare(source);
        actions.extend(declared.into_iter().map(|(name, action)| (source, name, action)));
    }
    for (source, name, action) in actions {
        let line = line_of(source, &name);
        let warn = |message: String, hint: &str| {
            warnings.push(source.fault(line, message).with_hint(hint));
        };
        if let Err(message) = draft.add_action(settings, &name, action, warn) {
            draft.faults.push(source.fault(line, format!("action `{name}`: {message}")));
        }
    }
    draft.finish()
}

fn line_of(source: &Source, name: &str) -> Option<usize> {
    source.line_of(&format!("\"{name}\"")).or(source.line_of(name))
}

/// The schema in the making, in Cedar's JSON form.
struct Draft {
    common: Map<String, Value>,
    entities: Value,
    actions: Map<String, Value>,
    inputs: HashMap<String, Shape>,
    tools: HashSet<String>,
    operations: Operations,
    vendors: HashSet<String>,
    vendors_ask: HashSet<String>,
    faults: Vec<Fault>,
}

impl Draft {
    fn base(settings: &Settings) -> Result<Self, Vec<Fault>> {
        let builtin = |message: String| {
            vec![Fault::of_settings(format!("the built-in schema is broken: {message}"))]
        };
        let mut base = parse(SCHEMA).map_err(|error| builtin(error.message))?;
        let mut take =
            |key: &str| base.get_mut("").and_then(|all| all.get_mut(key)).map(Value::take);
        let (Some(Value::Object(common)), Some(mut entities), Some(Value::Object(actions))) =
            (take("commonTypes"), take("entityTypes"), take("actions"))
        else {
            return Err(builtin("a section is missing".to_owned()));
        };
        // What the template of paths doesn't name is never filled, so policies mustn't read it.
        if let Some(Value::Object(attributes)) = entities.pointer_mut("/Agent/shape/attributes") {
            attributes.retain(|_, attribute| attribute.get("required") != Some(&json!(false)));
            for name in settings.path_names() {
                let attribute =
                    json!({"type": "EntityOrCommon", "name": "String", "required": false});
                attributes.entry(name).or_insert(attribute);
            }
        }
        Ok(Self {
            common,
            entities,
            actions,
            inputs: HashMap::new(),
            tools: HashSet::new(),
            operations: Operations::default(),
            vendors: HashSet::new(),
            vendors_ask: HashSet::new(),
            faults: vec![],
        })
    }

    /// Takes over types and groups of a fragment, and hands out its other actions.
    fn declare(&mut self, source: &Source) -> Vec<(String, Value)> {
        let namespaces = match parse(&source.text) {
            Ok(Value::Object(namespaces)) => namespaces,
            Ok(_) => Map::new(),
            Err(error) => {
                self.faults.push(located(source, 0, *error));
                Map::new()
            }
        };
        let mut actions = vec![];
        for (namespace, mut content) in namespaces {
            if !namespace.is_empty() {
                let message = format!("namespace `{namespace}` is not used by any call");
                let fault = source.fault(source.line_of(&namespace), message);
                self.faults.push(fault.with_hint("declare actions outside of a namespace"));
                continue;
            }
            let mut section = |key: &str| match content.get_mut(key).map(Value::take) {
                Some(Value::Object(section)) => section,
                Some(_) | None => Map::new(),
            };
            for name in section("entityTypes").keys() {
                let message = format!("entity type `{name}` would never be filled");
                let fault = source.fault(source.line_of(&format!("entity {name}")), message);
                self.faults.push(fault.with_hint("only actions and types can be declared"));
            }
            for (name, common) in section("commonTypes") {
                if self.common.contains_key(&name) {
                    let line = source.line_of(&format!("type {name}"));
                    let message = format!("type `{name}` is declared twice");
                    self.faults.push(source.fault(line, message));
                } else {
                    self.common.insert(name, common);
                }
            }
            for (name, action) in section("actions") {
                if !resource_types(&action).is_empty() {
                    actions.push((name, action));
                } else if self.actions.contains_key(&name) {
                    let message = format!("action `{name}`: {TWICE}");
                    self.faults.push(source.fault(line_of(source, &name), message));
                } else {
                    self.actions.insert(name, action);
                }
            }
        }
        actions
    }

    fn add_action(
        &mut self,
        settings: &Settings,
        name: &str,
        mut action: Value,
        mut warn: impl FnMut(String, &str),
    ) -> Result<(), String> {
        if self.actions.contains_key(name) {
            return Err(TWICE.to_owned());
        }
        let applies = action.get("appliesTo");
        let mut of = Declared::of(
            &strings(applies.and_then(|applies| applies.get("principalTypes"))),
            &resource_types(&action),
        )?;
        let input = self.declared_input(applies.and_then(|applies| applies.get("context")))?;
        let groups = self.groups(&action, 0);
        let is_asks = |group: &String| group == ASKS || group.starts_with(ASKS_OF_CLASS);
        if of != Declared::Asked && groups.iter().any(is_asks) {
            return Err("only what a server asks of an agent is in `asks`".to_owned());
        }
        let class = class(groups.iter().map(String::as_str));
        let operation = match of {
            Declared::Vendor => Operation::parse(name)?,
            Declared::Tool | Declared::Asked | Declared::Operation => None,
        };
        let mut context = self.common.get("Call").cloned().unwrap_or_default();
        if let Some((server, operation)) = operation {
            of = Declared::Operation;
            context = self.context_of(&operation);
            self.add_operation(server, operation, &mut action, input.is_some(), class)?;
        }
        if of == Declared::Tool {
            let Some((server, bare)) = name.split_once('/') else {
                return Err("the action of a tool is named `server/tool`".to_owned());
            };
            if !groups.iter().any(|group| group == "tools/call") {
                return Err("the action of a tool has to be in `tools/call`".to_owned());
            }
            let told = settings.tool_class(server, bare);
            match (class, told) {
                (Some(class), Some(told)) if class != told => warn(
                    format!("`{name}` is `{}` here, `{}` elsewhere", class.as_str(), told.as_str()),
                    "the schema wins; say it in one place",
                ),
                (None, _) => {
                    let class = told.unwrap_or(Class::Execute);
                    if told.is_none() {
                        warn(
                            format!("`{name}` has no class, so it is of class `execute`"),
                            "put it in `read`, `write` or `execute`",
                        );
                    }
                    if let Some(Value::Array(groups)) = action.get_mut("memberOf") {
                        groups.push(json!({"id": class.as_str()}));
                    }
                }
                (Some(_), _) => {}
            }
            self.tools.insert(name.to_owned());
        } else if of != Declared::Operation {
            if input.is_some() {
                return Err(
                    "only a tool has arguments, and an operation of a web API a body, so `input` would \
                     never be filled"
                        .to_owned(),
                );
            }
            match (of, class) {
                (Declared::Asked, _) if !only_asks(&groups) => {
                    return Err("what a server asks has to be in `asks.control`, `asks.read`, \
                                `asks.write` or `asks.execute`, and in no group of calls"
                        .to_owned());
                }
                (_, None) => {
                    return Err("a method of a vendor has to be in a class: `control`, `list`, \
                                `read`, `write` or `execute`"
                        .to_owned());
                }
                (Declared::Asked, Some(_)) => self.vendors_ask.insert(name.to_owned()),
                (Declared::Tool | Declared::Operation | Declared::Vendor, Some(_)) => {
                    self.vendors.insert(name.to_owned())
                }
            };
        }
        if let (Some((shape, declared)), Some(Value::Object(attributes))) =
            (input, context.get_mut("attributes"))
        {
            attributes.insert("input".to_owned(), declared);
            self.inputs.insert(name.to_owned(), shape);
        }
        if let Some(Value::Object(applies)) = action.get_mut("appliesTo") {
            applies.insert("context".to_owned(), context);
        }
        self.actions.insert(name.to_owned(), action);
        Ok(())
    }

    /// An operation of a web API belongs to its method, and to a class of its own.
    fn add_operation(
        &mut self,
        server: &str,
        operation: Operation,
        action: &mut Value,
        has_input: bool,
        class: Option<Class>,
    ) -> Result<(), String> {
        if class.is_none() {
            return Err(
                "an operation has to be in a class: `read`, `write` or `execute`".to_owned()
            );
        }
        let method = operation.rule.name;
        if has_input && !matches!(method, "POST" | "PUT" | "PATCH") {
            return Err(format!("a {method} has no body, so `input` would never be filled"));
        }
        if let Some(Value::Array(groups)) = action.get_mut("memberOf") {
            groups.retain(|group| group.get("id") != Some(&json!(method)));
            groups.push(json!({"id": method}));
        }
        self.operations.add(server, operation)
    }

    /// What the context of an operation holds beside `input`.
    fn context_of(&self, operation: &Operation) -> Value {
        let common = |name: &str| self.common.get(name).cloned().unwrap_or_default();
        let (mut context, mut http) = (common("HttpCall"), common("Http"));
        let text = || json!({"type": "EntityOrCommon", "name": "String"});
        let named: Map<_, _> = operation.names().map(|name| (name.to_owned(), text())).collect();
        if let Some(Value::Object(attributes)) = http.get_mut("attributes") {
            let named = json!({"type": "Record", "attributes": named});
            attributes.insert(web::NAMED.to_owned(), named);
        }
        if let Some(Value::Object(attributes)) = context.get_mut("attributes") {
            attributes.insert(web::NAME.to_owned(), http);
        }
        context
    }

    /// `input` of a declared context: its shape, and the declaration as it goes into the schema.
    fn declared_input(&self, context: Option<&Value>) -> Result<Option<(Shape, Value)>, String> {
        let Some(context) = context else { return Ok(None) };
        let context = self.resolve(context, 0)?;
        let Some(Value::Object(attributes)) = context.get("attributes") else { return Ok(None) };
        let shared = self.common.get("Call").and_then(|call| call.get("attributes"));
        for (name, attribute) in attributes {
            let known = shared.and_then(|shared| shared.get(name)) == Some(attribute);
            if name != "input" && !known {
                return Err(format!("`context.{name}` would never be filled; declare `input`"));
            }
        }
        let Some(input) = attributes.get("input") else { return Ok(None) };
        let shape = self.shape(input, 0)?;
        if !matches!(shape, Shape::Record(_)) {
            return Err("`input` has to be a record".to_owned());
        }
        let mut declared = input.clone();
        if let Some(declared) = declared.as_object_mut() {
            // An absent object of arguments counts as an empty one.
            declared.insert("required".to_owned(), json!(true));
        }
        Ok(Some((shape, declared)))
    }

    fn shape(&self, declared: &Value, depth: usize) -> Result<Shape, String> {
        let resolved = self.resolve(declared, depth)?;
        let kind = resolved.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = resolved.get("name").and_then(Value::as_str).unwrap_or(kind);
        match name {
            "String" => Ok(Shape::String),
            "Long" => Ok(Shape::Long),
            "Bool" | "Boolean" => Ok(Shape::Bool),
            "decimal" => Ok(Shape::Decimal),
            "Set" => {
                let element = resolved.get("element").unwrap_or(&Value::Null);
                Ok(Shape::Set(Box::new(self.shape(element, depth + 1)?)))
            }
            "Record" => {
                let attributes = resolved.get("attributes").and_then(Value::as_object);
                let attributes = attributes.into_iter().flatten();
                attributes
                    .map(|(name, declared)| Ok((name.clone(), self.shape(declared, depth + 1)?)))
                    .collect::<Result<_, _>>()
                    .map(Shape::Record)
            }
            other => Err(format!(
                "an argument can't be of type `{other}`; use String, Long, Bool, decimal, Set or a \
                 record"
            )),
        }
    }

    /// Follows names of declared types.
    fn resolve<'a>(&'a self, declared: &'a Value, depth: usize) -> Result<&'a Value, String> {
        if depth > 32 {
            return Err("types nest deeper than 32".to_owned());
        }
        let kind = declared.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = declared.get("name").and_then(Value::as_str).unwrap_or(kind);
        match self.common.get(name) {
            Some(common) => self.resolve(common, depth + 1),
            None => Ok(declared),
        }
    }

    /// Names of all groups that an action is in. The depth bounds a cycle; Cedar refuses it later.
    fn groups(&self, action: &Value, depth: usize) -> Vec<String> {
        let mut groups = vec![];
        let parents = action.get("memberOf").and_then(Value::as_array);
        for parent in parents.into_iter().flatten() {
            let Some(name) = parent.get("id").and_then(Value::as_str) else { continue };
            groups.push(name.to_owned());
            if let Some(parent) = self.actions.get(name).filter(|_| depth < 32) {
                groups.extend(self.groups(parent, depth + 1));
            }
        }
        groups
    }

    fn finish(self) -> Result<Joined, Vec<Fault>> {
        if !self.faults.is_empty() {
            return Err(self.faults);
        }
        let actions =
            self.actions.iter().map(|(name, action)| (name.clone(), resource_types(action)));
        let actions = actions.filter(|(_, resources)| !resources.is_empty()).collect();
        let json = json!({"": {
            "commonTypes": self.common,
            "entityTypes": self.entities,
            "actions": self.actions,
        }});
        let schema = Schema::from_json_value(json).map_err(|error| {
            let message = DetailedError::from(&error).message;
            vec![Fault::of_settings(format!("schema: {message}"))]
        })?;
        let Self { inputs, tools, operations, vendors, vendors_ask, .. } = self;
        Ok(Joined { schema, actions, inputs, tools, operations, vendors, vendors_ask })
    }
}

/// Whether groups hold one of what servers ask, and none of calls.
fn only_asks(groups: &[String]) -> bool {
    let of_calls = |group: &String| {
        group == "tools/call" || CLASSES.iter().any(|class| class.as_str() == group)
    };
    groups.iter().any(|group| group.starts_with(ASKS_OF_CLASS)) && !groups.iter().any(of_calls)
}

/// What a fragment's action is, by the types that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared {
    /// A tool with arguments of its own.
    Tool,
    /// An operation of a web API; it applies to the same types as a method of a vendor, and its name tells.
    Operation,
    /// A method of a vendor that agents call.
    Vendor,
    /// A method of a vendor that servers send.
    Asked,
}

impl Declared {
    fn of(principals: &[String], resources: &[String]) -> Result<Self, String> {
        match (principals, resources) {
            ([who], [what]) if who == types::AGENT && what == types::TOOL => Ok(Self::Tool),
            ([who], [what]) if who == types::AGENT && what == types::SERVER => Ok(Self::Vendor),
            ([who], [what]) if who == types::SERVER && what == types::AGENT => Ok(Self::Asked),
            ([who], _) if who == types::AGENT => {
                Err("`resource` has to be `Tool` (a tool with arguments of its own) or `Server` \
                     (a method of a vendor)"
                    .to_owned())
            }
            _ => Err("`principal` has to be `Agent`: every caller is one; or a `Server` that \
                      asks something of an `Agent`"
                .to_owned()),
        }
    }
}

/// Names of the types that an action can be done to; a group has none.
fn resource_types(action: &Value) -> Vec<String> {
    strings(action.get("appliesTo").and_then(|applies| applies.get("resourceTypes")))
}

fn parse(text: &str) -> Result<Value, Box<DetailedError>> {
    let fragment = match SchemaFragment::from_cedarschema_str(text) {
        Ok((fragment, _)) => fragment,
        Err(error) => return Err(Box::new(DetailedError::from(&error))),
    };
    fragment.to_json_value().map_err(|error| Box::new(DetailedError::from(&error)))
}

fn strings(array: Option<&Value>) -> Vec<String> {
    let items = array.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

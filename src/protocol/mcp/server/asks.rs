//! The parameters of what a server asks, as far as policies look at them.

use std::collections::BTreeSet;

use super::{Detail, check, present, text};
use crate::protocol::{
    Method,
    address::Address,
    json::{Kind, Member, Value},
};

/// Most names of one kind that a request may have, and most bytes in all of them: policies are given
/// each, and a server chooses them.
const MAX_NAMES: usize = 1_024;
const MAX_NAME_BYTES: usize = 64 << 10;

/// What a server asks for. Texts that are shown to a user or a model are not in it: nothing can be
/// decided from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// `sampling/createMessage`
    Sampling(Sampling),
    /// `elicitation/create`
    Elicitation(Elicitation),
    /// Roots, `ping`, tasks and methods of vendors: the method says it all.
    Plain,
}

/// A completion by the client's model (MCP 2025-11-25 `client/sampling`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// `maxTokens`, not negative.
    pub max_tokens: i64,
    /// `modelPreferences.hints[].name`
    pub hints: BTreeSet<Box<str>>,
    /// `tools[].name`: what the model may call.
    pub tools: BTreeSet<Box<str>>,
    /// `includeContext`; `none` where it was left out, as the specification has it.
    pub include_context: Box<str>,
}

/// Input of the client's user (MCP 2025-11-25 `client/elicitation`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elicitation {
    /// Mode `form`.
    Form {
        /// Every name below some `properties` of `requestedSchema`, at any depth, so that a field
        /// that the specification doesn't allow there isn't overlooked either.
        fields: BTreeSet<Box<str>>,
    },
    /// Mode `url`: the user is sent to an address.
    Url {
        /// `https` or `http`.
        scheme: Box<str>,
        /// Host of the address, in lower case; an IPv6 address in brackets.
        host: Box<str>,
    },
}

impl Asks {
    /// Reads the parameters of a request.
    pub(super) fn read(method: &Method, params: Option<Value<'_>>) -> Result<Self, Detail> {
        match (method.name(), params) {
            ("sampling/createMessage", Some(params)) => sampling(params).map(Self::Sampling),
            ("elicitation/create", Some(params)) => elicitation(params).map(Self::Elicitation),
            ("sampling/createMessage" | "elicitation/create", None) => Err("no `params`"),
            _ => Ok(Self::Plain),
        }
    }
}

fn sampling(params: Value<'_>) -> Result<Sampling, Detail> {
    const NAMES: &[&str] = &["includeContext", "maxTokens", "modelPreferences", "task", "tools"];
    let (mut max_tokens, mut include_context) = (None, None);
    let (mut hints, mut tools) = (BTreeSet::new(), BTreeSet::new());
    for Member { name, value, .. } in present(params) {
        match &*name {
            "maxTokens" => max_tokens = value.as_number().and_then(|token| token.parse().ok()),
            "includeContext" => {
                include_context = Some(text(value, "`includeContext` is not a string")?);
            }
            "tools" => tools = names(value, "`tools` has an element without a name")?,
            "modelPreferences" => hints = hinted(value)?,
            "task" => {}
            other => check(other, NAMES)?,
        }
    }
    Ok(Sampling {
        max_tokens: max_tokens
            .filter(|tokens| *tokens >= 0)
            .ok_or("`maxTokens` is no integer literal of 0 to 2^63 − 1")?,
        hints: bounded(hints)?,
        tools: bounded(tools)?,
        include_context: include_context.unwrap_or_else(|| "none".into()),
    })
}

/// `hints[].name` of `modelPreferences`; a hint may lack a name.
fn hinted(preferences: Value<'_>) -> Result<BTreeSet<Box<str>>, Detail> {
    let mut hints = BTreeSet::new();
    for Member { name, value, .. } in present(object(preferences)?) {
        match &*name {
            "hints" => {
                for hint in array(value)?.elements() {
                    hints.extend(name_of(hint)?);
                }
            }
            other => check(other, &["hints"])?,
        }
    }
    Ok(hints)
}

fn names(list: Value<'_>, nameless: Detail) -> Result<BTreeSet<Box<str>>, Detail> {
    array(list)?.elements().map(|element| name_of(element)?.ok_or(nameless)).collect()
}

fn name_of(element: Value<'_>) -> Result<Option<Box<str>>, Detail> {
    let mut found = None;
    for Member { name, value, .. } in present(object(element)?) {
        match &*name {
            "name" => found = Some(text(value, "a `name` is not a string")?),
            other => check(other, &["name"])?,
        }
    }
    Ok(found)
}

fn bounded(names: BTreeSet<Box<str>>) -> Result<BTreeSet<Box<str>>, Detail> {
    let bytes: usize = names.iter().map(|name| name.len()).sum();
    if names.len() > MAX_NAMES || bytes > MAX_NAME_BYTES {
        return Err("more than 1,024 names of one kind, or more than 64 KiB of them");
    }
    Ok(names)
}

fn elicitation(params: Value<'_>) -> Result<Elicitation, Detail> {
    const NAMES: &[&str] = &["elicitationId", "mode", "requestedSchema", "task", "url"];
    let (mut mode, mut schema, mut address) = (None, None, None);
    for Member { name, value, .. } in present(object(params)?) {
        match &*name {
            "mode" => mode = Some(text(value, "`mode` is not a string")?),
            "requestedSchema" => schema = Some(value),
            "url" => address = Some(text(value, "`url` is not a string")?),
            other => check(other, NAMES)?,
        }
    }
    match (mode.as_deref(), schema, address) {
        (Some("form") | None, Some(schema), None) => {
            let mut fields = BTreeSet::new();
            collect_fields(object(schema)?, &mut fields)?;
            Ok(Elicitation::Form { fields: bounded(fields)? })
        }
        (Some("url"), None, Some(address)) => visited(&address),
        (Some("form" | "url") | None, _, _) => {
            Err("an elicitation has either a `requestedSchema` or, in mode `url`, a `url`")
        }
        (Some(_), _, _) => Err("an unknown `mode` of elicitation"),
    }
}

/// Adds the names of all members of each object called `properties`. Recurses as deep as the
/// scanner let a text be nested.
fn collect_fields(schema: Value<'_>, fields: &mut BTreeSet<Box<str>>) -> Result<(), Detail> {
    for element in schema.elements() {
        collect_fields(element, fields)?;
    }
    for Member { name, value, .. } in schema.members() {
        if name == "properties" {
            fields.extend(value.members().map(|field| Box::from(&*field.name)));
        } else {
            check(&name, &["properties"])?;
        }
        collect_fields(value, fields)?;
    }
    Ok(())
}

fn visited(address: &str) -> Result<Elicitation, Detail> {
    let Address { scheme, host } =
        Address::parse(address).ok_or("`url` is not a plain http or https address")?;
    Ok(Elicitation::Url { scheme, host })
}

fn object(value: Value<'_>) -> Result<Value<'_>, Detail> {
    if value.kind() == Kind::Object { Ok(value) } else { Err("an object was expected") }
}

fn array(value: Value<'_>) -> Result<Value<'_>, Detail> {
    if value.kind() == Kind::Array { Ok(value) } else { Err("an array was expected") }
}

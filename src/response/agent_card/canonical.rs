//! What the signatures of a card cover.
//!
//! A2A 1.0 §8.4.1 has the card canonicalised by RFC 8785, without `signatures` and without fields that hold
//! the default of their type, unless they are required or say whether they are there. Signers differ in what
//! they make of that: some sign the document as served; the Python SDK knows only the fields of 1.0, although it
//! serves those of 0.3 beside them, and drops whatever is empty. So there are up to five forms of a card.
//!
//! INVARIANT: two cards with a common form differ in empty and default values and in the fields of 0.3 only. The
//! addresses and demands among those are never taken from a card, but set or removed.

use serde_json::{Map, Value};

use super::Error;

type Object = Map<String, Value>;

/// Fields of 0.2 and 0.3 that 1.0 doesn't have.
const ONLY_V0: [&str; 6] = [
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "supportsAuthenticatedExtendedCard",
    "security",
];

/// Required fields, and those that say whether they are there.
const OF_CARD: &[&str] = &[
    "name",
    "description",
    "version",
    "supportedInterfaces",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "documentationUrl",
    "iconUrl",
    "url",
];
const OF_INTERFACE: &[&str] = &["url", "protocolBinding", "protocolVersion", "transport"];
const OF_PROVIDER: &[&str] = &["url", "organization"];
const OF_SKILL: &[&str] = &["id", "name", "description", "tags"];
const OF_CAPABILITIES: &[&str] =
    &["streaming", "pushNotifications", "extendedAgentCard", "stateTransitionHistory"];
const OF_SCHEME: &[&str] =
    &["location", "name", "scheme", "flows", "openIdConnectUrl", "type", "in"];
const OF_FLOW: &[&str] = &["authorizationUrl", "tokenUrl", "deviceAuthorizationUrl", "scopes"];

/// Every form of a card, each once. `card` passed the strict scan.
pub(super) fn forms(card: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    // The one thing that the scan takes and this doesn't is a number out of range.
    let mut served: Object =
        serde_json::from_slice(card).map_err(|_| Error::Malformed("number"))?;
    served.remove("signatures");
    let mut views = vec![served.clone()];
    if served.contains_key("supportedInterfaces") {
        views.push(as_v1(served.clone()));
    }
    let mut trees = vec![served];
    for mut view in views {
        drop_defaults_of_card(&mut view);
        trees.extend(match emptied(Value::Object(view.clone())) {
            Some(Value::Object(emptied)) => vec![view, emptied],
            Some(_) | None => vec![view],
        });
    }
    let mut forms = Vec::new();
    for tree in trees {
        let form = serde_json_canonicalizer::to_vec(&tree);
        let form = form.map_err(|_| Error::Malformed("number"))?;
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    Ok(forms)
}

/// What a reader of 1.0 sees of a card with both sets of fields.
fn as_v1(mut card: Object) -> Object {
    card.retain(|name, _| !ONLY_V0.contains(&&**name));
    for scheme in objects(card.get_mut("securitySchemes")) {
        scheme.retain(|name, _| name.ends_with("SecurityScheme"));
    }
    for capabilities in object(card.get_mut("capabilities")) {
        capabilities.remove("stateTransitionHistory");
    }
    for skill in objects(card.get_mut("skills")) {
        skill.remove("security");
    }
    card
}

fn drop_defaults_of_card(card: &mut Object) {
    drop_defaults(card, OF_CARD);
    for list in ["supportedInterfaces", "additionalInterfaces"] {
        for interface in objects(card.get_mut(list)) {
            drop_defaults(interface, OF_INTERFACE);
        }
    }
    for provider in object(card.get_mut("provider")) {
        drop_defaults(provider, OF_PROVIDER);
    }
    for capabilities in object(card.get_mut("capabilities")) {
        drop_defaults(capabilities, OF_CAPABILITIES);
        for extension in objects(capabilities.get_mut("extensions")) {
            drop_defaults(extension, &[]);
        }
    }
    for skill in objects(card.get_mut("skills")) {
        drop_defaults(skill, OF_SKILL);
        drop_defaults_of_requirements(skill.get_mut("securityRequirements"));
    }
    drop_defaults_of_requirements(card.get_mut("securityRequirements"));
    for scheme in objects(card.get_mut("securitySchemes")) {
        for kind in scheme.values_mut().filter_map(Value::as_object_mut) {
            drop_defaults(kind, OF_SCHEME);
            for flow in objects(kind.get_mut("flows")) {
                drop_defaults(flow, OF_FLOW);
            }
        }
    }
}

fn drop_defaults_of_requirements(requirements: Option<&mut Value>) {
    for requirement in objects(requirements) {
        for scopes in objects(requirement.get_mut("schemes")) {
            drop_defaults(scopes, &[]);
        }
    }
}

/// Objects in a field are messages, which are there or not; an empty one is no default.
fn drop_defaults(message: &mut Object, kept: &[&str]) {
    message.retain(|name, value| {
        kept.contains(&&**name)
            || match value {
                Value::Null | Value::Bool(false) => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
            }
    });
}

/// Without whatever is empty, at any depth; nothing, if nothing is left.
fn emptied(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) => {
            let items: Vec<_> = items.into_iter().filter_map(emptied).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = members.into_iter();
            let members: Object =
                members.filter_map(|(name, value)| Some((name, emptied(value)?))).collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}

fn object(value: Option<&mut Value>) -> impl Iterator<Item = &mut Object> {
    value.and_then(Value::as_object_mut).into_iter()
}

/// The objects in an array or in an object.
fn objects(value: Option<&mut Value>) -> impl Iterator<Item = &mut Object> {
    let values: Vec<&mut Value> = match value {
        Some(Value::Array(items)) => items.iter_mut().collect(),
        Some(Value::Object(members)) => members.values_mut().collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {
            Vec::new()
        }
    };
    values.into_iter().filter_map(Value::as_object_mut)
}

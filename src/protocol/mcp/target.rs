//! From a method and its parameters to what they touch.

use super::params::{Params, Refusal};
use crate::protocol::{
    Fault, Method, Target,
    json::{Kind, Member, Value},
    method::Governs,
    spelling,
};

/// Each target costs a policy decision, so one message can't ask for any number of them.
const MAX_TARGETS: usize = 256;

/// Every target of a call; at least one.
pub(super) fn all(method: &Method, params: &Params<'_>) -> Result<Vec<Target>, Refusal> {
    let Some(rule) = method.rule() else { return Ok(vec![Target::Server]) };
    let one = match rule.governs {
        Governs::Server | Governs::Message => Target::Server,
        Governs::Caller => Target::Caller,
        Governs::Tool => Target::Tool(text(params.name, "`params.name` is not a string")?),
        Governs::Prompt => Target::Prompt(text(params.name, "`params.name` is not a string")?),
        Governs::Resource => Target::Resource(text(params.uri, "`params.uri` is not a string")?),
        Governs::Task => Target::Task(text(params.task_id, "`params.taskId` is not a string")?),
        Governs::Reference => reference(params.reference)?,
        Governs::Subscriptions => return subscriptions(params.notifications),
    };
    Ok(vec![one])
}

fn text(value: Option<Value<'_>>, detail: &'static str) -> Result<Box<str>, Refusal> {
    let text = value.and_then(Value::as_str).ok_or((Fault::Params, detail))?;
    Ok(text.into())
}

/// `params.ref` of `completion/complete`.
fn reference(reference: Option<Value<'_>>) -> Result<Target, Refusal> {
    const NAMES: &[&str] = &["name", "type", "uri"];
    let object = object(reference, "`params.ref` is not an object")?;
    let (mut kind, mut prompt, mut uri) = (None, None, None);
    for Member { name, value, .. } in object.members() {
        match &*name {
            "type" => kind = value.as_str(),
            "name" => prompt = Some(value),
            "uri" => uri = Some(value),
            other => check_spelling(other, NAMES)?,
        }
    }
    match kind.as_deref() {
        Some("ref/prompt") => text(prompt, "`params.ref.name` is not a string").map(Target::Prompt),
        Some("ref/resource") => text(uri, "`params.ref.uri` is not a string").map(Target::Resource),
        Some(_) | None => {
            Err((Fault::Params, "`params.ref.type` is neither `ref/prompt` nor `ref/resource`"))
        }
    }
}

/// `params.notifications` of `subscriptions/listen`: each resource and task, and the server if
/// anything else is asked for (changes of its lists) or nothing at all.
fn subscriptions(notifications: Option<Value<'_>>) -> Result<Vec<Target>, Refusal> {
    const NAMES: &[&str] = &[
        "promptsListChanged",
        "resourceSubscriptions",
        "resourcesListChanged",
        "taskIds",
        "toolsListChanged",
    ];
    let object = object(notifications, "`params.notifications` is not an object")?;
    let mut targets = Vec::new();
    let mut server = false;
    for Member { name, value, .. } in object.members() {
        let make: fn(Box<str>) -> Target = match &*name {
            "resourceSubscriptions" => Target::Resource,
            "taskIds" => Target::Task,
            other => {
                check_spelling(other, NAMES)?;
                server |= value.as_bool() != Some(false);
                continue;
            }
        };
        if value.kind() != Kind::Array {
            return Err((Fault::Params, "subscriptions are not an array"));
        }
        for element in value.elements() {
            targets.push(make(text(Some(element), "a subscription is not a string")?));
            if targets.len() > MAX_TARGETS {
                return Err((Fault::Params, "more than 256 subscriptions in one request"));
            }
        }
    }
    if server || targets.is_empty() {
        targets.push(Target::Server);
    }
    Ok(targets)
}

fn object<'a>(value: Option<Value<'a>>, detail: &'static str) -> Result<Value<'a>, Refusal> {
    value.filter(|value| value.kind() == Kind::Object).ok_or((Fault::Params, detail))
}

pub(super) fn check_spelling(key: &str, names: &[&str]) -> Result<(), Refusal> {
    if names.contains(&key) || !spelling::is_variant(key, names) {
        return Ok(());
    }
    Err((Fault::Invalid, "a governed member in another spelling"))
}

//! Members of objects that have several spellings.
//!
//! ProtoJSON readers take the name of a field in camelCase and as it stands in the `.proto` file, and
//! so do the Python models of version 0.3. Whoever forwards both lets every reader choose, so only
//! one of them may be there; what a lenient reader could take for one (see [`spelling`]) never may.

use super::Refusal;
use crate::protocol::{
    Fault,
    json::{Kind, Member, Value},
    spelling,
};

/// The spellings of one member, in any of the versions.
pub(super) type Field = &'static [&'static str];

pub(super) const ARTIFACT_UPDATE: Field = &["artifactUpdate", "artifact_update"];
pub(super) const BYTES: Field = &["bytes", "fileWithBytes", "file_with_bytes"];
pub(super) const CONFIG: Field = &["config"];
pub(super) const CONFIGURATION: Field = &["configuration"];
/// What version 0.3 has over REST in place of `parts`.
pub(super) const CONTENT: Field = &["content"];
pub(super) const CONTEXT: Field = &["contextId", "context_id"];
pub(super) const DATA: Field = &["data"];
pub(super) const ERROR: Field = &["error"];
pub(super) const EXTENSIONS: Field = &["extensions"];
pub(super) const FILE: Field = &["file"];
pub(super) const FORM: Field = &["form"];
pub(super) const ID: Field = &["id"];
pub(super) const KIND: Field = &["kind"];
pub(super) const MESSAGE: Field = &["message"];
pub(super) const METADATA: Field = &["metadata"];
pub(super) const METHOD: Field = &["method"];
pub(super) const NAME: Field = &["name"];
pub(super) const PARENT: Field = &["parent"];
pub(super) const PARTS: Field = &["parts"];
pub(super) const PUSH: Field = &[
    "pushNotification",
    "pushNotificationConfig",
    "push_notification",
    "push_notification_config",
    "taskPushNotificationConfig",
    "task_push_notification_config",
];
pub(super) const RAW: Field = &["raw"];
pub(super) const REFERENCES: Field = &["referenceTaskIds", "reference_task_ids"];
pub(super) const REPLY: Field = &["message", "msg"];
/// What version 0.3 may have over REST in place of `message`.
pub(super) const REQUEST: Field = &["request"];
pub(super) const RESULT: Field = &["result"];
pub(super) const SPAWNED: Field = &["spawned"];
pub(super) const STATUS_UPDATE: Field = &["statusUpdate", "status_update"];
pub(super) const TASK: Field = &["taskId", "task_id"];
pub(super) const TASKS: Field = &["tasks"];
pub(super) const TENANT: Field = &["tenant"];
pub(super) const TEXT: Field = &["text"];
pub(super) const TOTAL_SIZE: Field = &["totalSize", "total_size"];
pub(super) const URI: Field = &["uri", "fileWithUri", "file_with_uri"];
pub(super) const URL: Field = &["url"];
pub(super) const WRAPPED_TASK: Field = &["task"];

/// The fields of an object, those that are `null` included.
pub(super) fn fields<'a, const N: usize>(
    object: Value<'a>,
    wanted: [Field; N],
) -> Result<[Option<Value<'a>>; N], Refusal> {
    if object.kind() != Kind::Object {
        return Err((Fault::Params, "an object was expected"));
    }
    let mut found = [None; N];
    for Member { name, value, .. } in object.members() {
        for (field, slot) in wanted.iter().zip(&mut found) {
            if field.contains(&&*name) {
                if slot.replace(value).is_some() {
                    return Err((Fault::Invalid, "a governed member in two spellings"));
                }
            } else if spelling::is_variant(&name, field) {
                return Err((Fault::Invalid, "a governed member in another spelling"));
            }
        }
    }
    Ok(found)
}

/// A member that isn't `null`, which all readers take for none.
pub(super) fn present(value: Option<Value<'_>>) -> Option<Value<'_>> {
    value.filter(|value| value.kind() != Kind::Null)
}

/// A text, unless it is absent or empty: to ProtoJSON that is the same.
pub(super) fn text(value: Option<Value<'_>>) -> Result<Option<Box<str>>, Refusal> {
    let Some(value) = present(value) else { return Ok(None) };
    let text = value.as_str().ok_or((Fault::Params, "a string was expected"))?;
    Ok((!text.is_empty()).then(|| text.into()))
}

/// The elements of an array, if it is there.
pub(super) fn elements<'a>(
    value: Option<Value<'a>>,
) -> Result<impl Iterator<Item = Value<'a>>, Refusal> {
    let value = present(value);
    if value.is_some_and(|value| value.kind() != Kind::Array) {
        return Err((Fault::Params, "an array was expected"));
    }
    Ok(value.into_iter().flat_map(Value::elements))
}

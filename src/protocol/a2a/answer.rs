//! What an agent's answer hands to the caller: tasks and contexts, which are the caller's from then
//! on; and the places of the tasks in a list, which are other callers', too.
//!
//! Reads one JSON document: a response of JSON-RPC, a bare result of the REST binding, or the data of
//! one event of a stream of either. Version 0.3 has task, message and updates bare in JSON-RPC;
//! version 1.0, and 0.3 over REST, has them wrapped. Whichever way a reader goes, it finds the ids that
//! are told here, or the answer is refused. Tasks that a message only refers to, and those within a
//! task's history, are not handed over.
//!
//! Refused: what [`json`] refuses, a governed name in two spellings or in another one, two different
//! ids in one place, more than one content, and what should be an object or a text and isn't.

use std::{borrow::Cow, collections::BTreeSet, ops::Range};

use bytes::Bytes;

use super::fields::{
    ARTIFACT_UPDATE, CONTEXT, ERROR, Field, ID, METHOD, REPLY, RESULT, STATUS_UPDATE, TASK, TASKS,
    TOTAL_SIZE, WRAPPED_TASK, elements, fields, present, text,
};
use crate::protocol::{
    Call, Kind,
    json::{self, Edits, Value},
    method::operation,
};

#[cfg(test)]
mod tests;

/// What an answer hands to the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Ids of tasks.
    pub tasks: BTreeSet<Box<str>>,
    /// Ids of contexts.
    pub contexts: BTreeSet<Box<str>>,
    /// Whether the last state that is told of a task is one in which it goes on; nothing is decided by it.
    pub runs: Option<bool>,
    /// The tasks of a list, none of which is handed over by being listed.
    pub listed: Option<Listed>,
}

/// The tasks of a list, where they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Each task: its id, and its place in the message, in bytes.
    pub tasks: Vec<(Box<str>, Range<usize>)>,
    /// The place of `totalSize`, which counts the tasks of everybody.
    total: Option<Range<usize>>,
}

/// An answer that can't be judged, and so can't be passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Unreadable {
    /// What was wrong; never quotes the answer's content.
    pub detail: Cow<'static, str>,
}

/// Reads one document of the answer to a call: the whole body, or the data of one event.
///
/// # Errors
/// Everything in which two readers could find two ids; see the module.
pub fn read(call: &Call, message: &[u8]) -> Result<Given, Unreadable> {
    let document = json::scan(message, json::Limits::default())
        .map_err(|error| Unreadable { detail: error.to_string().into() })?;
    let given = match call.kind {
        Kind::Operation => result(call, document.root()),
        Kind::Request(_) | Kind::Notification | Kind::Response(_) | Kind::Stream | Kind::End => {
            response(call, document.root())
        }
    };
    given.map_err(|(_, detail)| Unreadable { detail: detail.into() })
}

/// States in which a task ends, of both versions.
const ENDED: [&str; 8] = [
    "TASK_STATE_CANCELED",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_REJECTED",
    "canceled",
    "completed",
    "failed",
    "rejected",
];

type Read<T> = Result<T, super::Refusal>;

/// A response of JSON-RPC. Some servers write down as `null` what others leave out.
fn response(call: &Call, root: Value<'_>) -> Read<Given> {
    let [method, answer, error] = fields(root, [METHOD, RESULT, ERROR])?;
    match (method, answer, present(error)) {
        (Some(_), _, _) => Err(odd("an agent sends no requests")),
        (None, answer, Some(_)) if present(answer).is_some() => {
            Err(odd("a response with a result and an error"))
        }
        (None, _, Some(_)) => Ok(Given::default()),
        (None, Some(answer), None) => result(call, answer),
        // Some servers leave out a result that is `null`.
        (None, None, None) => Ok(Given::default()),
    }
}

/// A result, by what was called. What a vendor's method answers is not known.
fn result(call: &Call, result: Value<'_>) -> Read<Given> {
    let action = call.method.rule().map_or("", |rule| rule.action);
    let handing = [
        operation::SEND.action,
        operation::STREAM.action,
        operation::GET.action,
        operation::CANCEL.action,
        operation::SUBSCRIBE.action,
    ];
    if action == operation::LIST.action {
        listed(result)
    } else if handing.contains(&action) {
        handed(result)
    } else {
        Ok(Given::default())
    }
}

/// A task, a message or an update, bare or wrapped. The error of the REST binding is none.
fn handed(result: Value<'_>) -> Read<Given> {
    const WRAPPED: [Field; 4] = [WRAPPED_TASK, REPLY, STATUS_UPDATE, ARTIFACT_UPDATE];
    let mut given = Given::default();
    collect(result, &mut given)?;
    let bare = !given.tasks.is_empty() || !given.contexts.is_empty();
    let mut contents =
        fields(result, WRAPPED)?.into_iter().flatten().filter_map(|content| present(Some(content)));
    match (contents.next(), contents.next()) {
        (Some(_), Some(_)) => Err(odd("an answer with more than one content")),
        (Some(_), None) if bare => Err(odd("an answer that is both bare and wrapped")),
        (Some(content), None) => {
            collect(content, &mut given)?;
            Ok(given)
        }
        (None, _) => Ok(given),
    }
}

/// The ids of a task (`id`), or of a message or update (`taskId`).
fn collect(object: Value<'_>, given: &mut Given) -> Read<()> {
    let [id, task, context] = fields(object, [ID, TASK, CONTEXT])?;
    match (text(id)?, text(task)?) {
        (Some(id), Some(task)) if id != task => Err(odd("two different tasks in one place")),
        (id, task) => {
            given.tasks.extend(id.or(task));
            given.contexts.extend(text(context)?);
            let state = object.member("status").and_then(|status| status.member("state"));
            given.runs =
                state.and_then(Value::as_str).map(|state| !ENDED.contains(&&*state)).or(given.runs);
            Ok(())
        }
    }
}

fn listed(result: Value<'_>) -> Read<Given> {
    let [tasks, total] = fields(result, [TASKS, TOTAL_SIZE])?;
    // Without tasks it is a list of none, or an error of the REST binding.
    let Some(array) = present(tasks) else { return Ok(Given::default()) };
    let mut tasks = vec![];
    for task in elements(Some(array))? {
        let mut given = Given::default();
        collect(task, &mut given)?;
        let id = given.tasks.pop_first().ok_or_else(|| odd("a task without an id"))?;
        tasks.push((id, task.span()));
    }
    let total = present(total).map(Value::span);
    Ok(Given { listed: Some(Listed { tasks, total }), ..Given::default() })
}

impl Listed {
    /// The message that this was read from, with those tasks only that `shows` takes; their bytes
    /// stay as they were sent. `totalSize` becomes the number of tasks that are left: how many others
    /// have is nothing that the caller should learn, and how many pages there are nobody knows.
    pub fn only(&self, message: &[u8], shows: impl Fn(&str) -> bool) -> Bytes {
        let mut edits = Edits::default();
        let tasks = self.tasks.iter().map(|(id, place)| (place.clone(), shows(id)));
        let mut count = 0;
        edits.retain(tasks.inspect(|(_, shown)| count += usize::from(*shown)));
        if let Some(total) = &self.total {
            edits.replace(total.clone(), count.to_string());
        }
        edits.apply(message)
    }
}

fn odd(detail: &'static str) -> super::Refusal {
    (crate::protocol::Fault::Invalid, detail)
}

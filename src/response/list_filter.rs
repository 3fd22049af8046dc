//! Lists, reduced to what the caller may use.
//!
//! The filter cuts whole items out of the upstream's own bytes; what is kept stays as it was sent, in its
//! order, with its pages. A list that was looked at for one caller is that caller's, so `cacheScope` becomes
//! `private` (MCP 2026-07-28, "Caching"). Works on JSON documents and, event by event, on event streams;
//! events without a list pass untouched and at once. Tasks are cut like the other lists, down to those whose
//! owner the caller is; whose they are has to be looked up first, so it is asked for and handed in.
//!
//! Refuses: a message that may hold a list and can't be read strictly. An item whose name can't be read is
//! left out.

use std::collections::HashSet;

use bytes::Bytes;
use memchr::memmem;

use super::{Listed, Unreadable};
use crate::{
    governance::Visibility,
    protocol::{
        json::{self, Edits, Kind, Value},
        method::ListOf,
        sse::Event,
    },
};

/// Every list there is; all are looked for, whichever was asked for.
const LISTS: [ListOf; 4] = [ListOf::Tools, ListOf::Prompts, ListOf::Resources, ListOf::Templates];

/// Most tasks of a list that are looked up; those beyond are left out.
const MAX_TASKS: usize = 1024;

/// The filter of one answer.
#[derive(Debug)]
pub struct ListFilter<'a> {
    /// What the caller may see of lists.
    pub visibility: Visibility<'a>,
    /// Takes note of what the server lists.
    pub listed: &'a Listed,
}

/// Those of the tasks in a list that are the caller's.
pub type OwnTasks = HashSet<Box<str>>;

impl ListFilter<'_> {
    /// A whole JSON document without what the caller may not see.
    pub fn document(&self, whole: Bytes, own: &OwnTasks) -> Result<Bytes, Unreadable> {
        Ok(match self.edit(&whole, own)? {
            Some(edited) => edited,
            None => whole,
        })
    }

    /// An event without what the caller may not see.
    pub fn event(&self, event: &Event, own: &OwnTasks) -> Result<Bytes, Unreadable> {
        let edited = match event.data() {
            Some(data) if Self::may_hold_list(&data) => self.edit(&data, own)?,
            Some(_) | None => None,
        };
        Ok(match edited {
            Some(data) => event.with_data(&data),
            None => event.raw().clone(),
        })
    }

    /// The tasks that a message lists; nothing if it can't be read, and then it can't be edited either.
    pub fn tasks(message: &[u8]) -> Vec<Box<str>> {
        if memmem::find(message, b"\"tasks\"").is_none() && memmem::find(message, b"\\u").is_none()
        {
            return Vec::new();
        }
        let Ok(document) = json::scan(message, json::Limits::default()) else { return Vec::new() };
        let listed = document.root().member("result").and_then(|result| result.member("tasks"));
        let tasks = listed.into_iter().flat_map(Value::elements);
        let ids = tasks.filter_map(|task| Some(task.member("taskId")?.as_str()?.into()));
        ids.take(MAX_TASKS).collect()
    }

    /// A cheap look that is never wrong when it says no: a key is spelled out or has an escape in it.
    fn may_hold_list(data: &[u8]) -> bool {
        memchr::memchr(b'\\', data).is_some_and(|_| memmem::find(data, b"\\u").is_some())
            || LISTS.iter().any(|list| memmem::find(data, key(*list).as_bytes()).is_some())
            || memmem::find(data, b"tasks").is_some()
    }

    /// The message without what the caller may not see; `None` if nothing has to change.
    fn edit(&self, message: &[u8], own: &OwnTasks) -> Result<Option<Bytes>, Unreadable> {
        let document = json::scan(message, json::Limits::default()).map_err(|_| Unreadable)?;
        let root = document.root();
        if root.kind() != Kind::Object {
            return Err(Unreadable);
        }
        let Some(result) = root.member("result") else { return Ok(None) };
        let mut edits = Edits::default();
        let mut listed = false;
        for list in LISTS {
            if let Some(items) = result.member(key(list)) {
                listed = true;
                let shows = |name: &str| {
                    self.listed.note(self.visibility.server, list, name);
                    self.visibility.shows(list, name)
                };
                cut(items, name_key(list), shows, &mut edits)?;
            }
        }
        if let Some(tasks) = result.member("tasks") {
            cut(tasks, "taskId", |id| own.contains(id), &mut edits)?;
        }
        if let Some(scope) = result.member("cacheScope").filter(|_| listed)
            && scope.as_str().as_deref() != Some("private")
        {
            edits.replace(scope.span(), "\"private\"");
        }
        Ok((!edits.is_empty()).then(|| edits.apply(message)))
    }
}

/// Marks what has to go.
fn cut(
    items: Value<'_>,
    name_key: &str,
    shows: impl Fn(&str) -> bool,
    edits: &mut Edits,
) -> Result<(), Unreadable> {
    if items.kind() != Kind::Array {
        return Err(Unreadable);
    }
    edits.retain(items.elements().map(|item| {
        let name = item.member(name_key).and_then(Value::as_str);
        (item.span(), name.is_some_and(|name| shows(&name)))
    }));
    Ok(())
}

fn key(list: ListOf) -> &'static str {
    match list {
        ListOf::Tools => "tools",
        ListOf::Prompts => "prompts",
        ListOf::Resources => "resources",
        ListOf::Templates => "resourceTemplates",
    }
}

fn name_key(list: ListOf) -> &'static str {
    match list {
        ListOf::Tools | ListOf::Prompts => "name",
        ListOf::Resources => "uri",
        ListOf::Templates => "uriTemplate",
    }
}

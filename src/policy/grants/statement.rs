//! The Cedar that entries become, as text: the same that people read, write and are told of.
//!
//! INVARIANT: whatever a document names goes through [`entity`] or [`quoted`], so that no name can end a
//! text and go on as policy.

use std::fmt;

/// One policy, with the line of the entry that it comes from.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(super) id: String,
    pub(super) reason: Option<String>,
    pub(crate) line: usize,
    pub(super) effect: &'static str,
    pub(super) principal: String,
    pub(super) action: String,
    pub(super) resource: String,
    pub(super) condition: Condition,
}

/// What has to hold beside the scope.
#[derive(Debug)]
pub(super) enum Condition {
    None,
    When(String),
    Unless(String),
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, reason, line: _, effect, principal, action, resource, condition } = self;
        writeln!(f, "@id({})", quoted(id))?;
        if let Some(reason) = reason {
            writeln!(f, "@reason({})", quoted(reason))?;
        }
        write!(f, "{effect} (\n  {principal},\n  {action},\n  {resource}\n)")?;
        match condition {
            Condition::None => f.write_str(";\n"),
            Condition::When(what) => write!(f, "\nwhen {{ {what} }};\n"),
            Condition::Unless(what) => write!(f, "\nunless {{ {what} }};\n"),
        }
    }
}

/// `Type::"id"`
pub(super) fn entity(type_name: &str, id: &str) -> String {
    format!("{type_name}::{}", quoted(id))
}

/// `Type::"one", Type::"other"`, in brackets.
pub(super) fn entities<T: AsRef<str>>(type_name: &str, ids: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = ids.into_iter().map(|id| entity(type_name, id.as_ref())).collect();
    format!("[{}]", all.join(", "))
}

/// A text in Cedar's syntax; what isn't printable ASCII is escaped. Without a `*` in it, it is a
/// pattern as well.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            other => quoted.push_str(&format!("\\u{{{:x}}}", u32::from(other))),
        }
    }
    quoted.push('"');
    quoted
}

/// Alternatives; `None` if there are none.
///
/// INVARIANT: many are cut into halves, and these again: Cedar reads `a || b || c` with a call of a
/// function for each, and a thousand of them end the process.
pub(super) fn any(parts: &[String]) -> Option<String> {
    match parts {
        [] => None,
        [one] => Some(one.clone()),
        few if few.len() <= 4 => {
            let few: Vec<String> = few.iter().map(|part| format!("({part})")).collect();
            Some(few.join(" || "))
        }
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            Some(format!("({}) || ({})", any(left)?, any(right)?))
        }
    }
}

/// A reason as the author gave it, or ours.
pub(super) fn reason(given: Option<&String>, otherwise: &str) -> Option<String> {
    Some(given.map_or_else(|| otherwise.to_owned(), String::clone))
}

//! YAML → plain values, and the line of each.

use std::{collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};

use crate::written::{Bounds, unreadable, yaml_options};

const BOUNDS: Bounds = Bounds { depth: 16, nodes: 500_000, documents: 1_000 };

/// Lines, from 1, by JSON pointer.
#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<String, usize>);

impl Lines {
    /// The line of a value, or of the nearest value around it.
    pub(super) fn of(&self, pointer: &str) -> usize {
        let mut pointer = pointer;
        loop {
            if let Some(line) = self.0.get(pointer) {
                return *line;
            }
            match pointer.rsplit_once('/') {
                Some((above, _)) => pointer = above,
                None => return 1,
            }
        }
    }
}

/// What is no YAML, or YAML that can be read in two ways.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// The line, if it can be told.
    pub(super) line: Option<usize>,
    pub(super) told: String,
}

/// Reads all documents of a file.
pub(super) fn read(text: &str) -> Result<Vec<(Value, Lines)>, Unreadable> {
    let read = serde_saphyr::from_multiple_with_options(text, yaml_options(&BOUNDS));
    let nodes: Vec<Spanned<Node>> = read.map_err(|error| {
        let line = error.location().map(line_of);
        Unreadable { line, told: unreadable(&error) }
    })?;
    let documents = nodes.into_iter().map(|node| {
        let mut lines = Lines::default();
        lines.0.insert(String::new(), line_of(node.referenced));
        let value = node.value.flatten("", &mut lines);
        (value, lines)
    });
    Ok(documents.collect())
}

/// A key as a step of a JSON pointer (RFC 6901 §3).
pub(super) fn step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn line_of(at: Location) -> usize {
    usize::try_from(at.line()).unwrap_or_default()
}

/// Any value.
#[derive(Debug)]
enum Node {
    Plain(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    fn flatten(self, pointer: &str, lines: &mut Lines) -> Value {
        match self {
            Self::Plain(value) => value,
            Self::List(items) => {
                let items = items.into_iter().enumerate().map(|(index, item)| {
                    let pointer = format!("{pointer}/{index}");
                    lines.0.insert(pointer.clone(), line_of(item.referenced));
                    item.value.flatten(&pointer, lines)
                });
                Value::Array(items.collect())
            }
            Self::Map(members) => {
                let members = members.into_iter().map(|(key, member)| {
                    let pointer = format!("{pointer}/{}", step(&key.value));
                    lines.0.insert(pointer.clone(), line_of(key.referenced));
                    (key.value, member.value.flatten(&pointer, lines))
                });
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Plain(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("no finite number"))?;
        Ok(Node::Plain(number.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = vec![];
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut members = vec![];
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Node::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_has_its_line() {
        let text = "# first\nagents:\n  - id: a\n    canInvoke:\n      - x\n      - y\n  - {id: b,\n     status: c}\n---\ngrants: []\n";
        let documents = read(text).expect("YAML");
        let [(one, lines), (two, others)] = documents.as_slice() else { panic!("two documents") };
        assert_eq!(
            *one,
            json!({"agents": [{"id": "a", "canInvoke": ["x", "y"]}, {"id": "b", "status": "c"}]})
        );
        assert_eq!(*two, json!({"grants": []}));
        for (pointer, line) in [
            ("/agents", 2),
            ("/agents/0", 3),
            ("/agents/0/id", 3),
            ("/agents/0/canInvoke", 4),
            ("/agents/0/canInvoke/1", 6),
            ("/agents/1/status", 8),
            ("/agents/1/none", 7),
        ] {
            assert_eq!(lines.of(pointer), line, "{pointer}");
        }
        assert_eq!(others.of("/grants"), 10);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for (text, at) in [
            ("a: 1\na: 2\n", Some(2)),
            ("a: &x 1\nb: {<<: *x}\n", Some(2)),
            ("a: !!python/none x\n", Some(1)),
            ("a: [1\n", None),
        ] {
            let Unreadable { line, told } = read(text).expect_err(text);
            assert!(
                !told.is_empty() && at.is_none_or(|at| line == Some(at)),
                "{text}: {line:?} {told}"
            );
        }
        assert_eq!(read("a: no\n").expect("YAML")[0].0, json!({"a": "no"}));
    }
}

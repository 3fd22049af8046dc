//! `Mcp-Param-*`: arguments that a tool wants to see in headers as well (MCP 2026-07-28
//! `basic/transports/streamable-http`, "Custom Headers from Tool Parameters").
//!
//! A client on stdio knows nothing of headers, so the bridge reads from the lists that pass which arguments those
//! are. A tool that was never listed is called without; so is one whose annotations are against the rules,
//! which clients over HTTP leave out of their lists.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::message::mirrored;

/// Tools with such arguments that are remembered.
const TOOLS: usize = 10_000;
/// How deep schemas are looked into.
const DEPTH: usize = 16;

/// What is known of the tools of one server.
#[derive(Default)]
pub(super) struct Mirrors(Mutex<HashMap<Box<str>, Arc<[Mirror]>>>);

struct Mirror {
    header: HeaderName,
    path: Vec<String>,
}

#[derive(Deserialize)]
struct Listed {
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Tool {
    name: Box<str>,
    #[serde(rename = "inputSchema")]
    schema: Value,
}

#[derive(Deserialize)]
struct Called {
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    name: Box<str>,
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl Mirrors {
    /// Takes note of a list of tools: the result of `tools/list`.
    pub(super) fn learn(&self, result: &RawValue) {
        let Ok(listed) = serde_json::from_str::<Listed>(result.get()) else { return };
        let mut known = self.known();
        for tool in listed.tools {
            let mut found = Vec::new();
            let fits = find(&tool.schema, &mut Vec::new(), &mut found).is_some();
            let names: BTreeSet<&str> = found.iter().map(|it| it.header.as_str()).collect();
            let fits = fits && names.len() == found.len();
            if fits && !found.is_empty() && known.len() < TOOLS {
                known.insert(tool.name, found.into());
            } else {
                known.remove(&tool.name);
            }
        }
    }

    /// Adds what a `tools/call` needs.
    pub(super) fn add(&self, headers: &mut HeaderMap, call: &[u8]) {
        if self.known().is_empty() {
            return;
        }
        let Ok(Called { params }) = serde_json::from_slice(call) else { return };
        let Some(mirrors) = self.known().get(&params.name).cloned() else { return };
        for mirror in mirrors.iter() {
            let mut path = mirror.path.iter();
            let first = path.next().and_then(|name| params.arguments.get(name));
            let value = first.and_then(|value| path.try_fold(value, |value, name| value.get(name)));
            if let Some(value) = value.and_then(spelled) {
                headers.insert(mirror.header.clone(), value);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<[Mirror]>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds the annotated properties that `properties` alone lead to; `None` if one is against the rules.
fn find(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirror>) -> Option<()> {
    if let Some(name) = schema.get("x-mcp-header") {
        let header = format!("mcp-param-{}", name.as_str().filter(|name| !name.is_empty())?);
        let header = HeaderName::from_bytes(header.as_bytes()).ok()?;
        let kind = schema.get("type").and_then(Value::as_str)?;
        if path.is_empty() || !matches!(kind, "string" | "integer" | "boolean") {
            return None;
        }
        found.push(Mirror { header, path: path.clone() });
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.filter(|_| path.len() < DEPTH);
    for (name, property) in properties.into_iter().flatten() {
        path.push(name.clone());
        find(property, path, found)?;
        path.pop();
    }
    Some(())
}

/// An argument as a header spells it; none where it is missing, null or of another type.
fn spelled(value: &Value) -> Option<HeaderValue> {
    match value {
        Value::String(text) => mirrored(text),
        Value::Number(number) => HeaderValue::from_str(&number.to_string()).ok(),
        Value::Bool(truth) => Some(HeaderValue::from_static(if *truth { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(schema: &str, arguments: &str) -> Vec<(String, String)> {
        let mirrors = Mirrors::default();
        let list = format!(
            r#"{{"tools":[{{"name":"t","inputSchema":{schema}}},{{"name":"u","inputSchema":{{}}}}]}}"#
        );
        mirrors.learn(&serde_json::from_str::<Box<RawValue>>(&list).expect("JSON"));
        let call = format!(r#"{{"params":{{"name":"t","arguments":{arguments}}}}}"#);
        let mut headers = HeaderMap::new();
        mirrors.add(&mut headers, call.as_bytes());
        let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    #[test]
    fn annotated_arguments_are_mirrored() {
        let schema = r#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "limits":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
            "dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
            "note":{"type":"string"}}}"#;
        let pair = |name: &str, value: &str| (format!("mcp-param-{name}"), value.to_owned());
        for (arguments, expected) in [
            (r#"{"region":"eu","note":"x"}"#, vec![pair("region", "eu")]),
            (r#"{"region":"é"}"#, vec![pair("region", "=?base64?w6k=?=")]),
            (r#"{"limits":{"n":42}}"#, vec![pair("n", "42")]),
            (r#"{"dry":false,"region":null}"#, vec![pair("dry-run", "false")]),
            (r#"{"limits":7,"region":["eu"]}"#, vec![]),
            ("{}", vec![]),
        ] {
            assert_eq!(headers(schema, arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn annotations_against_the_rules_count_for_nothing() {
        for property in [
            r#"{"type":"number","x-mcp-header":"A"}"#,
            r#"{"type":"object","x-mcp-header":"A"}"#,
            r#"{"x-mcp-header":"A"}"#,
            r#"{"type":"string","x-mcp-header":""}"#,
            r#"{"type":"string","x-mcp-header":"A B"}"#,
            r#"{"type":"string","x-mcp-header":7}"#,
            r#"{"type":"string","x-mcp-header":"b"}"#,
            r#"{"type":"array","items":{"type":"string","x-mcp-header":"A"}}"#,
        ] {
            let schema = format!(
                r#"{{"properties":{{"a":{property},"b":{{"type":"string","x-mcp-header":"B"}}}}}}"#
            );
            let expected = if property.contains("items") { 1 } else { 0 };
            assert_eq!(headers(&schema, r#"{"a":"x","b":"y"}"#).len(), expected, "{property}");
        }
    }
}

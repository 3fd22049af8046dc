//! Files of grants → entries whose form is right, with the line of each value.
//!
//! YAML becomes plain values and a table of lines; the published JSON schema judges the values, and what
//! it refuses is told with its line. An entry with a fault is left out, so that the faults of the others
//! are found as well; the id that it declares still counts.

use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    super::source::{Fault, Source},
    shape::{self, Agent, Grant, TenantDelegation},
    yaml::{self, Lines},
};
use crate::written::{choices, expected, kind_of, nearest};

/// Keys that documents of other systems have, and why they can't be kept here.
///
/// INVARIANT: a condition that nothing enforces is a fault, never a key without effect.
const NOT_YET: &[(&str, &str)] = &[
    ("requireApproval", "approvals don't exist yet"),
    ("requiresApproval", "approvals don't exist yet"),
    ("approvalPolicy", "approvals don't exist yet"),
    ("trust", "approvals don't exist yet"),
];

/// The published schema.
pub(super) fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<shape::Document>());
    // Otherwise the order depends on a feature of `serde_json` that other crates turn on or off.
    schema.sort_all_objects();
    schema
}

/// One document of a file.
#[derive(Debug)]
pub(super) struct Document<'a> {
    source: &'a Source,
    /// Position in its file, from 0.
    number: usize,
    lines: Lines,
    /// Every `id` of an agent, also of entries with a fault.
    pub(super) ids: Vec<String>,
    agents: Vec<(usize, Agent)>,
    grants: Vec<(usize, Grant)>,
    delegation: Vec<(usize, TenantDelegation)>,
}

/// Where an entry stands, such as the third of `grants`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    source: &'a Source,
    number: usize,
    lines: &'a Lines,
    list: &'static str,
    index: usize,
}

impl Document<'_> {
    pub(super) fn agents(&self) -> impl Iterator<Item = (Place<'_>, &Agent)> {
        self.placed("agents", &self.agents)
    }

    pub(super) fn grants(&self) -> impl Iterator<Item = (Place<'_>, &Grant)> {
        self.placed("grants", &self.grants)
    }

    pub(super) fn delegation(&self) -> impl Iterator<Item = (Place<'_>, &TenantDelegation)> {
        self.placed("delegation", &self.delegation)
    }

    fn placed<'a, T>(
        &'a self,
        list: &'static str,
        entries: &'a [(usize, T)],
    ) -> impl Iterator<Item = (Place<'a>, &'a T)> {
        let &Self { source, number, ref lines, .. } = self;
        entries.iter().map(move |(index, entry)| {
            (Place { source, number, lines, list, index: *index }, entry)
        })
    }
}

impl<'a> Place<'a> {
    /// The file.
    pub(super) fn source(self) -> &'a Source {
        self.source
    }

    /// The line of the entry itself (`below` is empty), or of a value in it such as `/canInvoke/0`.
    pub(super) fn line(self, below: &str) -> usize {
        let &Self { list, index, .. } = &self;
        self.lines.of(&format!("/{list}/{index}{below}"))
    }

    /// Tells file and entry: `team.grants.yaml#grants[2]`. The first document of a file has no number.
    pub(super) fn id(self) -> String {
        let Self { source, number, list, index, .. } = self;
        let file = source.file.display();
        match number {
            0 => format!("{file}#{list}[{index}]"),
            later => format!("{file}#{}.{list}[{index}]", later + 1),
        }
    }

    pub(super) fn fault(self, below: &str, problem: impl std::fmt::Display) -> Fault {
        let Self { source, list, index, .. } = self;
        let place = in_words(&format!("/{list}/{index}{below}"));
        source.fault(Some(self.line(below)), format!("{place}: {problem}"))
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.source.file.display(), self.line(""))
    }
}

/// Judges the form of documents.
pub(super) struct Reader {
    validator: Validator,
    schema: Value,
}

impl Reader {
    pub(super) fn new() -> Result<Self, Fault> {
        let schema = schema();
        let validator = jsonschema::validator_for(&schema).map_err(|error| {
            Fault::of_settings(format!("the built-in schema of grants can't be used: {error}"))
        })?;
        Ok(Self { validator, schema })
    }

    /// The documents of a file; those without content are left out.
    pub(super) fn read<'a>(
        &self,
        source: &'a Source,
        faults: &mut Vec<Fault>,
    ) -> Vec<Document<'a>> {
        let documents = match yaml::read(&source.text) {
            Ok(documents) => documents,
            Err(yaml::Unreadable { line, told }) => {
                faults.push(source.fault(line, told));
                return vec![];
            }
        };
        let filled = documents.into_iter().enumerate().filter(|(_, (value, _))| !value.is_null());
        filled
            .map(|(number, (value, lines))| self.document(source, number, &value, lines, faults))
            .collect()
    }

    fn document<'a>(
        &self,
        source: &'a Source,
        number: usize,
        value: &Value,
        lines: Lines,
        faults: &mut Vec<Fault>,
    ) -> Document<'a> {
        let mut found = vec![];
        let mut refused = vec![];
        for error in self.validator.iter_errors(value) {
            let pointer = error.instance_path().as_str().to_owned();
            for (at, problem, hint) in self.told(&pointer, &error) {
                let place = in_words(&at);
                let separator = if place.is_empty() { "" } else { ": " };
                let line = Some(lines.of(&at));
                let fault = source.fault(line, format!("{place}{separator}{problem}"));
                found.push(Fault { hint, ..fault });
            }
            refused.push(pointer);
        }
        let ids = value.get("agents").and_then(Value::as_array).into_iter().flatten();
        let ids = ids.filter_map(|agent| agent.get("id").and_then(Value::as_str));
        let mut document = Document {
            source,
            number,
            ids: ids.map(str::to_owned).collect(),
            agents: vec![],
            grants: vec![],
            delegation: vec![],
            lines,
        };
        let mut take = Take { value, refused: &refused, wrong: vec![] };
        document.agents = take.entries("agents");
        document.grants = take.entries("grants");
        document.delegation = take.entries("delegation");
        let wrong = take.wrong.into_iter();
        found.extend(wrong.map(|(at, told)| source.fault(Some(document.lines.of(&at)), told)));
        found.sort_by_key(|fault| fault.line);
        found.dedup();
        faults.extend(found);
        document
    }

    /// What an error of the schema means: place, problem, hint.
    fn told(
        &self,
        pointer: &str,
        error: &ValidationError<'_>,
    ) -> Vec<(String, String, Option<String>)> {
        let schema = self.below(pointer);
        let found = error.instance().as_ref();
        let (problem, hint) = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let keys = schema.get("properties").and_then(Value::as_object);
                let known: Vec<&str> =
                    keys.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                let told = |key: &String| {
                    let (problem, hint) = unknown_key(key, &known);
                    (format!("{pointer}/{}", yaml::step(key)), problem, Some(hint))
                };
                return unexpected.iter().map(told).collect();
            }
            ValidationErrorKind::Required { property } => {
                (format!("{} is missing", property.as_str().unwrap_or_default()), None)
            }
            ValidationErrorKind::MinItems { .. } | ValidationErrorKind::MinProperties { .. } => {
                ("is empty".to_owned(), Some("at least one entry is needed".to_owned()))
            }
            ValidationErrorKind::Minimum { limit } => (format!("has to be at least {limit}"), None),
            ValidationErrorKind::Maximum { limit } => (format!("has to be at most {limit}"), None),
            _ if found.is_null() => {
                ("has no value".to_owned(), Some("give it one or leave the key out".to_owned()))
            }
            _ => {
                let choices = choices(schema);
                if choices.is_empty() {
                    let (expected, found) = (expected(schema), kind_of(found));
                    (format!("expected {expected}, found {found}"), None)
                } else {
                    let shown = found.as_str().map_or_else(|| kind_of(found).to_owned(), quoted);
                    let problem = format!("{shown} is none of {}", choices.join(", "));
                    (problem, nearest(found.as_str().unwrap_or_default(), choices))
                }
            }
        };
        vec![(pointer.to_owned(), problem, hint)]
    }

    /// The part of the schema that a value is held against.
    fn below(&self, pointer: &str) -> &Value {
        let resolve = |schema: &'_ Value| -> Option<String> {
            let reference = schema.get("$ref").and_then(Value::as_str)?;
            reference.strip_prefix('#').map(str::to_owned)
        };
        let mut at = &self.schema;
        for step in pointer.split('/').skip(1) {
            let properties = at.get("properties").and_then(|properties| properties.get(step));
            at = properties.or_else(|| at.get("items")).unwrap_or(&Value::Null);
            if let Some(target) = resolve(at).and_then(|target| self.schema.pointer(&target)) {
                at = target;
            }
        }
        at
    }
}

/// Takes the entries out of a document that the schema didn't refuse.
struct Take<'a> {
    value: &'a Value,
    refused: &'a [String],
    wrong: Vec<(String, String)>,
}

impl Take<'_> {
    fn entries<T: DeserializeOwned>(&mut self, list: &str) -> Vec<(usize, T)> {
        let entries = self.value.get(list).and_then(Value::as_array).into_iter().flatten();
        let mut taken = vec![];
        for (index, entry) in entries.enumerate() {
            let at = format!("/{list}/{index}");
            let within = |pointer: &String| {
                pointer
                    .strip_prefix(&at)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if self.refused.iter().any(within) {
                continue;
            }
            match T::deserialize(entry) {
                Ok(entry) => taken.push((index, entry)),
                // The schema accepts nothing that the shape doesn't.
                Err(error) => self.wrong.push((at, error.to_string())),
            }
        }
        taken
    }
}

fn unknown_key(key: &str, known: &[&str]) -> (String, String) {
    match NOT_YET.iter().find(|(name, _)| *name == key) {
        Some((_, why)) => (why.to_string(), "remove the key".to_owned()),
        None => {
            let hint = nearest(key, known.iter().copied());
            let known = || format!("known keys: {}", known.join(", "));
            ("unknown key".to_owned(), hint.unwrap_or_else(known))
        }
    }
}

fn quoted(text: &str) -> String {
    format!("`{text}`")
}

/// `/grants/0/tool` as `grants[0].tool`.
fn in_words(pointer: &str) -> String {
    let mut words = String::new();
    for step in pointer.split('/').skip(1) {
        let is_index = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
        match (is_index, words.is_empty()) {
            (true, _) => words.push_str(&format!("[{step}]")),
            (false, true) => words.push_str(step),
            (false, false) => words.push_str(&format!(".{step}")),
        }
    }
    words
}

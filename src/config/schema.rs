//! The JSON schema of the file, and its faults in plain words.

use jsonschema::{ValidationError, error::ValidationErrorKind};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::{
    fault::{Faults, Place},
    shape::Document,
};
use crate::written::{choices, expected, kind_of, nearest};

/// The published schema.
pub(super) fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<Document>());
    refuse_null(&mut schema);
    // Otherwise the order depends on a feature of `serde_json` that other crates turn on or off.
    schema.sort_all_objects();
    schema
}

/// Reports what of `document` the schema refuses, and takes it out, so that the rest can be read.
/// What is merely missing is left to the conversion, which knows what it needs.
pub(super) fn check(document: &mut Value, faults: &mut Faults) {
    let schema = schema();
    let validator = match jsonschema::validator_for(&schema) {
        Ok(validator) => validator,
        Err(error) => {
            let problem = format!("the built-in schema can't be used: {error}");
            return faults.push(&Place::default(), problem);
        }
    };
    let mut refused = Vec::new();
    for error in validator.iter_errors(document) {
        let path = Path::of(&error);
        report(&error, &path, path.subschema(&schema), faults);
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                refused.extend(unexpected.iter().map(|key| path.child(key)));
            }
            ValidationErrorKind::Required { .. }
            | ValidationErrorKind::MinItems { .. }
            | ValidationErrorKind::MinProperties { .. } => {}
            _ => refused.push(path),
        }
    }
    for path in refused {
        path.remove_from(document);
    }
}

/// Optional keys are left out or have a value; `null` is most likely a value that was forgotten.
fn refuse_null(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    object.remove("anyOf");
                    object.extend(only);
                }
            }
            object.values_mut().for_each(refuse_null);
        }
        Value::Array(values) => values.iter_mut().for_each(refuse_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn report(error: &ValidationError<'_>, path: &Path, schema: Subschema<'_>, faults: &mut Faults) {
    let place = path.place();
    let found = error.instance().as_ref();
    match error.kind() {
        // Told by the conversion, at the place of what is missing.
        ValidationErrorKind::Required { .. } => {}
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known = schema.keys();
            for key in unexpected {
                let hint = nearest(key, known.iter().copied())
                    .unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
                faults.push_with(&place.key(key), "unknown key", hint);
            }
        }
        ValidationErrorKind::MinItems { .. } | ValidationErrorKind::MinProperties { .. } => {
            faults.push_with(&place, "is empty", "at least one entry is needed");
        }
        ValidationErrorKind::MaxItems { limit } => {
            faults.push(&place, format!("has more than {limit} entries"));
        }
        ValidationErrorKind::Minimum { limit } => {
            faults.push(&place, format!("has to be at least {limit}"));
        }
        ValidationErrorKind::Maximum { limit } => {
            faults.push(&place, format!("has to be at most {limit}"));
        }
        _ if found.is_null() => {
            faults.push_with(&place, "has no value", "give it one or leave the key out");
        }
        ValidationErrorKind::Type { .. } if choices(schema.definition).is_empty() => {
            let problem =
                format!("expected {}, found {}", expected(schema.definition), kind_of(found));
            match schema.form() {
                Some(form) => faults.push_with(&place, problem, form),
                None => faults.push(&place, problem),
            }
        }
        _ => {
            let choices = choices(schema.definition);
            let given = found.as_str().unwrap_or_default();
            let shown = if found.is_string() { found.to_string() } else { kind_of(found).into() };
            let hint = nearest(given, choices.iter().copied());
            match (choices.is_empty(), hint.or_else(|| schema.form())) {
                (false, Some(hint)) => {
                    let problem = format!("{shown} is none of {}", choices.join(", "));
                    faults.push_with(&place, problem, hint);
                }
                (false, None) => {
                    faults.push(&place, format!("{shown} is none of {}", choices.join(", ")));
                }
                (true, Some(hint)) => {
                    faults.push_with(&place, format!("{shown} has the wrong form"), hint);
                }
                (true, None) => faults.push(&place, format!("{shown} is not accepted here")),
            }
        }
    }
}

/// A part of the schema, and the definition that it refers to.
#[derive(Clone, Copy)]
struct Subschema<'a> {
    own: &'a Value,
    definition: &'a Value,
}

impl<'a> Subschema<'a> {
    fn new(root: &'a Value, own: &'a Value) -> Self {
        let reference = own.get("$ref").and_then(Value::as_str);
        let target = reference
            .and_then(|reference| reference.strip_prefix('#'))
            .and_then(|pointer| root.pointer(pointer));
        Self { own, definition: target.unwrap_or(own) }
    }

    fn keys(self) -> Vec<&'a str> {
        let properties = self.definition.get("properties").and_then(Value::as_object);
        properties.into_iter().flat_map(Map::keys).map(String::as_str).collect()
    }

    /// How a text has to look.
    fn form(self) -> Option<String> {
        let example = |schema: &Value| match schema.pointer("/examples/0") {
            Some(Value::String(text)) => Some(format!("such as `{text}`")),
            _ => None,
        };
        let example = example(self.own).or_else(|| example(self.definition));
        let words = self.definition.get("patternErrorMessage").and_then(Value::as_str);
        match (words, example) {
            (Some(words), Some(example)) => Some(format!("{words}, {example}")),
            (Some(words), None) => Some(words.to_owned()),
            (None, example) => example,
        }
    }
}

/// The way to a value of the document.
#[derive(Clone, Debug)]
struct Path(Vec<Step>);

#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    fn of(error: &ValidationError<'_>) -> Self {
        use jsonschema::paths::LocationSegment;
        let steps = error.instance_path().into_iter().map(|segment| match segment {
            LocationSegment::Property(key) => Step::Key(key.into_owned()),
            LocationSegment::Index(index) => Step::Index(index),
        });
        Self(steps.collect())
    }

    fn child(&self, key: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        Self(steps)
    }

    fn place(&self) -> Place {
        self.0.iter().fold(Place::default(), |place, step| match step {
            Step::Key(key) => place.key(key),
            Step::Index(index) => place.index(*index),
        })
    }

    fn subschema<'a>(&self, root: &'a Value) -> Subschema<'a> {
        self.0.iter().fold(Subschema::new(root, root), |schema, step| {
            let inner = match step {
                Step::Key(key) => schema
                    .definition
                    .get("properties")
                    .and_then(|properties| properties.get(key))
                    .or_else(|| schema.definition.get("additionalProperties")),
                Step::Index(_) => schema.definition.get("items"),
            };
            Subschema::new(root, inner.unwrap_or(&Value::Null))
        })
    }

    /// Takes the value out of its map. An element of a list would leave its neighbours with other
    /// indexes, so the whole list goes.
    fn remove_from(&self, document: &mut Value) {
        let last_key = self.0.iter().rposition(|step| matches!(step, Step::Key(_)));
        let Some((above, Some(Step::Key(key)))) =
            last_key.map(|at| (self.0.iter().take(at), self.0.get(at)))
        else {
            return;
        };
        let mut value = document;
        for step in above {
            let inner = match step {
                Step::Key(key) => value.get_mut(key),
                Step::Index(index) => value.get_mut(index),
            };
            match inner {
                Some(inner) => value = inner,
                // A part that holds it was taken out before.
                None => return,
            }
        }
        if let Value::Object(map) = value {
            map.remove(key);
        }
    }
}

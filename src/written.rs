//! What people write down for Lictor, read strictly, and what is wrong with it told in their words.
//!
//! The configuration and the documents of grants are YAML files, each with a published JSON schema. What such a
//! file may not do is said here once, so that none of them can be read in two ways.

use serde_json::Value;

/// How much a file may hold.
pub(crate) struct Bounds {
    pub(crate) depth: usize,
    pub(crate) nodes: usize,
    pub(crate) documents: usize,
}

/// YAML without its traps: `no` and `on` are text, no key twice, nothing is pulled in from elsewhere in the
/// file, no tags.
pub(crate) fn yaml_options(bounds: &Bounds) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: bounds.depth,
            max_nodes: bounds.nodes,
            max_documents: bounds.documents,
        },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 8,
        },
        strict_booleans: true,
        with_snippet: false,
        reject_unsupported_tags: true,
    }
}

/// Why a text is no YAML that could be read.
pub(crate) fn unreadable(error: &serde_saphyr::Error) -> String {
    let told = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    format!("no valid YAML: {told}")
}

/// The values of an enumeration, whether they are described one by one or not.
pub(crate) fn choices(schema: &Value) -> Vec<&str> {
    fn each(schema: &Value) -> impl Iterator<Item = &str> {
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        listed.chain(schema.get("const")).filter_map(Value::as_str)
    }
    let described = schema.get("oneOf").and_then(Value::as_array);
    each(schema).chain(described.into_iter().flatten().flat_map(each)).collect()
}

/// What a schema wants, in words.
pub(crate) fn expected(schema: &Value) -> &'static str {
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => "a list",
        Some("object") => "a map",
        Some("boolean") => "true or false",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        _ => "text",
    }
}

/// What a value is, in words.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// The candidate that `given` was most likely meant to be, as a hint.
pub(crate) fn nearest<'a>(
    given: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let lower = given.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

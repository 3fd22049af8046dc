//! The features, and what a client sees of each when it works.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a client saw, by feature: `seen`, `detail`, or `error`.
pub(super) type Report = BTreeMap<String, Value>;

/// A feature: its name in the drivers' reports, what it is, and what a client sees of it.
pub(super) struct Feature {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    seen: &'static str,
}

const fn feature(name: &'static str, title: &'static str, seen: &'static str) -> Feature {
    Feature { name, title, seen }
}

pub(super) const FEATURES: &[Feature] = &[
    feature("connect", "connect: revision, capabilities, names", "true"),
    feature("ping", "ping", "0"),
    feature("list_tools", "list tools", "true"),
    feature("call", "call a tool", r#""This is a simple text response for testing.""#),
    feature("arguments", "arguments and results beyond ASCII", r#""Grüße, 世界 🌍""#),
    feature("large", "arguments and results of 512 KiB", "true"),
    feature(
        "many",
        "twelve calls at once",
        r#"["call 0","call 1","call 2","call 3","call 4","call 5","call 6","call 7","call 8","call 9",
            "call 10","call 11"]"#,
    ),
    feature("content", "text, image and embedded resource", r#"["text","image","resource"]"#),
    feature("audio", "audio", r#"["audio"]"#),
    feature("structured", "structured results", r#"{"answer":42}"#),
    feature("tool_error", "error inside a result", "true"),
    feature("protocol_error", "error instead of a result", "-32602"),
    feature("progress", "progress", "[0,50,100]"),
    feature(
        "logging",
        "log messages",
        r#"["Tool execution started","Tool processing data","Tool execution completed"]"#,
    ),
    feature("mirrored_headers", "arguments mirrored in headers", r#""Nürnberg""#),
    feature(
        "list_resources",
        "list resources",
        r#"["static-binary","static-text","watched-resource"]"#,
    ),
    feature("list_templates", "list resource templates", r#"["template"]"#),
    feature("read_text", "read a text", "[48]"),
    feature("read_binary", "read bytes", "[96]"),
    feature("read_template", "read by a template", "[61]"),
    feature("resource_error", "read what isn't there", "-32602"),
    feature(
        "list_prompts",
        "list prompts",
        r#"["test_input_required_result_prompt","test_prompt_with_arguments",
            "test_prompt_with_embedded_resource","test_prompt_with_image","test_simple_prompt"]"#,
    ),
    feature("get_prompt", "fetch a prompt", r#"["Prompt with arguments: arg1='one', arg2='two'"]"#),
    feature(
        "complete",
        "completion, of prompts and templates",
        r#"[["paris","park","party"],["paris","park","party"]]"#,
    ),
    feature("sampling", "sampling", "true"),
    feature("elicitation_form", "elicitation by form", "true"),
    feature("elicitation_url", "elicitation by URL", r#""URL response: action=accept""#),
    feature("roots", "roots", "true"),
    feature("rounds", "several rounds of input, with state", "true"),
    feature("prompt_rounds", "input for a prompt", r#"["The context was given."]"#),
    feature("server_ping", "ping by the server", r#""The client answered.""#),
    feature("cancel", "cancellation, seen by the tool", r#"["raised","cancelled"]"#),
    feature("resume", "resumption of a stream that the server closed", r#""Reconnected.""#),
    feature("tools_changed", "news: tools changed", "1"),
    feature("prompts_changed", "news: prompts changed", "1"),
    feature("resource_changed", "news: a subscribed resource changed", "1"),
    feature("end_session", "end of the session by the client", "true"),
];

impl Feature {
    fn expected(&self) -> Value {
        serde_json::from_str(self.seen).expect("what a feature promises is JSON")
    }

    /// What is wrong with what a client saw of it, directly and through the chain. Nothing is, where it isn't
    /// offered directly.
    pub(super) fn fault(&self, [direct, governed]: [Option<&Value>; 2]) -> Option<String> {
        if direct?["seen"] != self.expected() {
            return Some(format!("doesn't work without the chain: {}", show(direct, 0)));
        }
        difference(direct, governed)
    }
}

/// Where what was seen directly and through the chain differs.
pub(super) fn difference(direct: Option<&Value>, governed: Option<&Value>) -> Option<String> {
    (direct != governed).then(|| {
        let [one, two] =
            [direct, governed].map(|seen| seen.map(Value::to_string).unwrap_or_default());
        let same = one.chars().zip(two.chars()).take_while(|(one, two)| one == two).count();
        let (direct, governed) = (show(direct, same), show(governed, same));
        format!("directly {direct}\n    but through the chain {governed}")
    })
}

/// A part of what was seen, from shortly before the character at `from`: a list of tools is long.
fn show(seen: Option<&Value>, from: usize) -> String {
    const BEFORE: usize = 60;
    const SHOWN: usize = 400;
    let Some(seen) = seen else { return "nothing".to_owned() };
    seen.to_string().chars().skip(from.saturating_sub(BEFORE)).take(SHOWN).collect()
}

//! What a server asks → the part of the context that policies read.
//!
//! The decoder has read it strictly; nothing is lifted by path here, because there is little of it and
//! servers ask rarely. Texts that a user or a model is shown aren't part of it: a policy on the wording
//! of a question would be a promise that nobody can keep.

use std::{collections::BTreeSet, mem};

use cedar_policy::RestrictedExpression;

use crate::protocol::mcp::server::{Asks, Elicitation, Sampling};

/// Name and value of an attribute of the context.
pub(super) type Attribute = (&'static str, RestrictedExpression);

const SAMPLING: &str = "sampling";
const ELICITATION: &str = "elicitation";

/// Names of all attributes of the context that only what servers ask can fill.
pub(super) const NAMES: [&str; 2] = [SAMPLING, ELICITATION];

/// What the context holds beside what every context holds.
pub(super) fn attribute(asks: &Asks) -> Option<Attribute> {
    match asks {
        Asks::Plain => None,
        Asks::Sampling(asked) => Some((SAMPLING, sampling(asked)?)),
        Asks::Elicitation(asked) => Some((ELICITATION, elicitation(asked)?)),
    }
}

fn sampling(asked: &Sampling) -> Option<RestrictedExpression> {
    let Sampling { max_tokens, hints, tools, include_context } = asked;
    record(vec![
        ("maxTokens", RestrictedExpression::new_long(*max_tokens)),
        ("hints", set(hints)),
        ("tools", set(tools)),
        ("includeContext", text(include_context)),
    ])
}

fn elicitation(asked: &Elicitation) -> Option<RestrictedExpression> {
    let none = BTreeSet::<&str>::new();
    record(match asked {
        Elicitation::Form { fields } => {
            let words: BTreeSet<String> = fields.iter().flat_map(|field| words(field)).collect();
            vec![("mode", text("form")), ("fields", set(fields)), ("words", set(&words))]
        }
        Elicitation::Url { scheme, host } => vec![
            ("mode", text("url")),
            ("fields", set(&none)),
            ("words", set(&none)),
            ("url", record(vec![("scheme", text(scheme)), ("host", text(host))])?),
        ],
    })
}

/// The words of a name in lower case, and each two neighbours as one word. A word ends where a capital
/// follows a small letter, and at everything that is no letter.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word = String::new();
    let mut was_small = false;
    for character in name.chars() {
        if !character.is_alphabetic() || (character.is_uppercase() && was_small) {
            words.push(mem::take(&mut word));
        }
        was_small = character.is_lowercase();
        word.extend(character.to_lowercase().filter(|_| character.is_alphabetic()));
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    let pairs = words.iter().zip(words.iter().skip(1));
    let pairs: Vec<String> = pairs.map(|(left, right)| format!("{left}{right}")).collect();
    words.extend(pairs);
    words
}

/// Fails only for a name that stands twice; then policies miss the attribute, which denies.
pub(super) fn record(pairs: Vec<Attribute>) -> Option<RestrictedExpression> {
    let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value));
    RestrictedExpression::new_record(pairs).ok()
}

pub(super) fn set<T: AsRef<str>>(items: &BTreeSet<T>) -> RestrictedExpression {
    RestrictedExpression::new_set(items.iter().map(|item| text(item.as_ref())))
}

pub(super) fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn names_fall_into_words() {
        for (name, expected) in [
            ("", &[][..]),
            ("password", &["password"]),
            ("PASSWORD", &["password"]),
            ("apiKey", &["api", "key", "apikey"]),
            ("API_KEY", &["api", "key", "apikey"]),
            ("userApiKey", &["user", "api", "key", "userapi", "apikey"]),
            ("user-password2", &["user", "password", "userpassword"]),
            ("one time.pin", &["one", "time", "pin", "onetime", "timepin"]),
            ("2fa", &["fa"]),
            ("\u{c9}tatCivil", &["\u{e9}tat", "civil", "\u{e9}tatcivil"]),
            ("__", &[]),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }
}

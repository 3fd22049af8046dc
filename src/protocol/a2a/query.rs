//! The query of a request, taken apart once and put together anew.

use super::Refusal;
use crate::protocol::{
    Fault,
    target::{decoded, encode},
};

const VERSION: &str = "A2A-Version";

/// The parameters in the order in which they came, each once, by its name in camelCase.
pub(super) struct Query {
    pairs: Vec<(&'static str, Box<str>)>,
}

impl Query {
    /// Reads a query in which only `allowed` parameters and the version may be. Each may come in
    /// camelCase or as in the `.proto` file; it goes on in camelCase, which all readers take.
    pub(super) fn read(
        query: Option<&str>,
        allowed: &'static [&'static str],
    ) -> Result<Self, Refusal> {
        let mut pairs: Vec<(&'static str, Box<str>)> = vec![];
        for pair in query.into_iter().filter(|query| !query.is_empty()).flat_map(|q| q.split('&')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |text: &str| decoded(&text.replace('+', " ")).ok_or(ODD);
            let (name, value) = (text(name)?, text(value)?);
            let known = match name.eq_ignore_ascii_case(VERSION) {
                true => VERSION,
                false => *allowed
                    .iter()
                    .find(|known| **known == name || snake_case(known) == name)
                    .ok_or((Fault::Invalid, "a query parameter that the operation doesn't have"))?,
            };
            if pairs.iter().any(|(other, _)| *other == known) {
                return Err((Fault::Invalid, "a query parameter is repeated"));
            }
            pairs.push((known, value.into()));
        }
        Ok(Self { pairs })
    }

    /// What it says of the version.
    pub(super) fn version(&self) -> Option<&str> {
        self.find(VERSION)
    }

    /// A parameter, unless it is absent or empty.
    pub(super) fn value(&self, name: &str) -> Option<Box<str>> {
        self.find(name).filter(|value| !value.is_empty()).map(Into::into)
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// The query to send; `None` where there is none.
    pub(super) fn encoded(&self) -> Option<Box<str>> {
        let mut query = String::new();
        for (name, value) in &self.pairs {
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(name);
            query.push('=');
            encode(value, &mut query);
        }
        (!query.is_empty()).then(|| query.into())
    }
}

const ODD: Refusal = (Fault::Invalid, "the query could be read in two ways");

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

//! The query of a request, taken apart once and put together anew.

use std::collections::BTreeSet;

use super::Refusal;
use crate::protocol::{
    Fault,
    target::{decoded, encode},
};

/// Most parameters.
const MOST: usize = 256;

/// What frameworks take for the method that a `POST` stands for.
const METHOD: &str = "_method";

const ODD: Refusal = (Fault::Invalid, "the query could be read in two ways");

/// The parameters in the order in which they came.
pub(super) struct Query {
    pairs: Vec<(String, Option<String>)>,
}

impl Query {
    /// Reads a query as forms write it. A name may be there again only if it says itself that it is a list
    /// (`ids[]`), or `may_repeat` does.
    pub(super) fn read(
        query: Option<&str>,
        may_repeat: impl Fn(&str) -> bool,
    ) -> Result<Self, Refusal> {
        let mut pairs: Vec<(String, Option<String>)> = Vec::new();
        let written = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in written {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (pair, None),
            };
            let text = |text: &str| decoded(&text.replace('+', " ")).ok_or(ODD);
            let (name, value) = (text(name)?, value.map(text).transpose()?);
            if name.is_empty() {
                return Err((Fault::Invalid, "a query parameter without a name"));
            }
            if name.eq_ignore_ascii_case(METHOD) {
                return Err((Fault::Invalid, "the query names another method"));
            }
            let is_list = name.ends_with("[]") || may_repeat(&name);
            if !is_list && pairs.iter().any(|(other, _)| *other == name) {
                return Err((Fault::Invalid, "a query parameter is repeated"));
            }
            pairs.push((name, value));
            if pairs.len() > MOST {
                return Err((Fault::Invalid, "more than 256 query parameters"));
            }
        }
        Ok(Self { pairs })
    }

    /// The names.
    pub(super) fn names(&self) -> BTreeSet<Box<str>> {
        self.pairs.iter().map(|(name, _)| name.as_str().into()).collect()
    }

    /// Names with their values.
    pub(super) fn texts(&self) -> BTreeSet<Box<str>> {
        let text = |(name, value): &(String, Option<String>)| match value {
            Some(value) => format!("{name}={value}").into(),
            None => name.as_str().into(),
        };
        self.pairs.iter().map(text).collect()
    }

    /// The query to send; `None` where there is none.
    pub(super) fn encoded(&self) -> Option<Box<str>> {
        let mut query = String::new();
        for (name, value) in &self.pairs {
            if !query.is_empty() {
                query.push('&');
            }
            encode(name, &mut query);
            if let Some(value) = value {
                query.push('=');
                encode(value, &mut query);
            }
        }
        (!query.is_empty()).then(|| query.into())
    }
}

//! What a call of plain HTTP tells beside method and target.

use std::collections::BTreeSet;

use crate::protocol::Rest;

/// What a call of plain HTTP tells beside what every [`Call`](crate::protocol::Call) tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What policies can tell such calls apart by.
    pub traits: Traits,
    /// Where the request goes, below the base of the API. In the path, what RFC 3986 §3.3 lets stand in a segment
    /// stands for itself, but `+` and `;`.
    pub rest: Rest,
}

/// What policies can tell calls of plain HTTP apart by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Traits {
    /// The path below the route, decoded; it starts with a slash, and ends with none unless it is `/`.
    pub path: Box<str>,
    /// The number of segments in it.
    pub depth: usize,
    /// The names of the query's parameters, decoded.
    pub parameters: BTreeSet<Box<str>>,
    /// The parameters, decoded: `name=value`, or `name` where no `=` was sent.
    pub query: BTreeSet<Box<str>>,
    /// The media type of the body, in lower case and without parameters.
    pub content_type: Option<Box<str>>,
    /// Whether there is a body that isn't read: it doesn't call itself JSON.
    pub opaque: bool,
}

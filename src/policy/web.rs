//! What a call of plain HTTP tells → the part of the context that policies read: `context.http`.
//!
//! Every such call has it, so that a policy on paths can't be met by a call that just lacks the attribute.

use cedar_policy::RestrictedExpression;

use super::{
    asked::{Attribute, record, set, text},
    operations::Operation,
};
use crate::protocol::web::Traits;

/// Name of the attribute.
pub(super) const NAME: &str = "http";

/// What of it the template of an operation has names for.
pub(super) const NAMED: &str = "named";

/// What the context holds beside what every context holds.
pub(super) fn attribute(traits: &Traits, operation: Option<&Operation>) -> Option<Attribute> {
    let Traits { path, depth, parameters, query, content_type, opaque: _ } = traits;
    let depth = i64::try_from(*depth).unwrap_or(i64::MAX);
    let mut pairs = vec![
        ("path", text(path)),
        ("depth", RestrictedExpression::new_long(depth)),
        ("parameters", set(parameters)),
        ("query", set(query)),
    ];
    pairs.extend(content_type.as_deref().map(|name| ("contentType", text(name))));
    if let Some(operation) = operation {
        let named = operation.named(path).map(|(name, value)| (name.to_owned(), text(value)));
        pairs.push((NAMED, RestrictedExpression::new_record(named).ok()?));
    }
    Some((NAME, record(pairs)?))
}

//! What an agent sends to another → the part of the context that policies read: `context.a2a`.
//!
//! Every call of A2A has it, so that a policy on the hosts of push addresses can't be met by a call
//! that just lacks the attribute.

use cedar_policy::RestrictedExpression;

use super::asked::{Attribute, record, set, text};
use crate::protocol::a2a::Traits;

/// Name of the attribute.
pub(super) const NAME: &str = "a2a";

/// What the context holds beside what every context holds.
pub(super) fn attribute(traits: &Traits) -> Option<Attribute> {
    let Traits { tenant, parts, extensions, push_hosts, form, spawned, streaming } = traits;
    let mut pairs = vec![
        ("parts", set(parts)),
        ("extensions", set(extensions)),
        ("pushHosts", set(push_hosts)),
        ("spawned", RestrictedExpression::new_bool(*spawned)),
        ("streaming", RestrictedExpression::new_bool(*streaming)),
    ];
    pairs.extend(tenant.as_deref().map(|tenant| ("tenant", text(tenant))));
    pairs.extend(form.as_deref().map(|form| ("form", text(form))));
    Some((NAME, record(pairs)?))
}

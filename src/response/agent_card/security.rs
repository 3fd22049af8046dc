//! What a card says of the credentials that callers need.
//!
//! The agent's own schemes are void for callers, since no credential of theirs reaches it; those of
//! the listener are stated in their place.

use serde_json::{Value as Tree, json};

use super::{Demands, Draft, Error, interfaces::Shown, member};
use crate::protocol::json::{Kind, Value};

const SCHEMES: &[&str] = &["securitySchemes", "security_schemes"];
const REQUIREMENTS: &[&str] = &["securityRequirements", "security_requirements"];

/// What skills demand beyond the card, in both sets of fields.
const OF_SKILLS: [&str; 3] = ["security", "securityRequirements", "security_requirements"];

/// States what the listener demands.
pub(super) fn state(draft: &mut Draft<'_>, demands: Demands, shown: Shown) -> Result<(), Error> {
    let v0 = shown.v0 && knows_mutual_tls(draft.root, shown)?;
    let (mut schemes, mut security, mut requirements) = (None, None, None);
    match demands {
        Demands::Nothing => {}
        Demands::MutualTls => {
            let mut scheme = serde_json::Map::new();
            if v0 {
                scheme.insert("type".to_owned(), json!("mutualTLS"));
                security = Some(json!([{ "mtls": [] }]));
            }
            // Clients of 0.3 read the card that REST answers in the form of 1.0, or give up.
            if v0 || shown.v1 {
                scheme.insert("mtlsSecurityScheme".to_owned(), json!({}));
            }
            if shown.v1 {
                requirements = Some(json!([{ "schemes": { "mtls": { "list": [] } } }]));
            }
            schemes = (!scheme.is_empty()).then(|| json!({ "mtls": scheme }));
        }
    }
    put(draft, SCHEMES, schemes.as_ref())?;
    put(draft, &["security"], security.as_ref())?;
    put(draft, REQUIREMENTS, requirements.as_ref())?;
    let skills = draft.root.member("skills");
    skills.into_iter().flat_map(Value::elements).for_each(|skill| free(draft, skill));
    Ok(())
}

/// Whether readers of the fields of 0.2 and 0.3 know the scheme: it came with 0.3, and those of 0.2 refuse
/// a whole card for it. A card of 0.2 may leave its version out.
fn knows_mutual_tls(root: Value<'_>, shown: Shown) -> Result<bool, Error> {
    let version = member(root, &["protocolVersion", "protocol_version"])?;
    Ok(match version.and_then(|version| version.value.as_str()) {
        Some(version) => !version.starts_with("0.2") && !version.starts_with("0.1"),
        None => shown.v1,
    })
}

fn put(
    draft: &mut Draft<'_>,
    names: &'static [&'static str],
    wanted: Option<&Tree>,
) -> Result<(), Error> {
    let found = member(draft.root, names)?;
    match (found, wanted) {
        (Some(found), Some(wanted)) => {
            let said = serde_json::from_slice::<Tree>(found.value.raw());
            if said.map_or(true, |said| said != *wanted) {
                draft.set_member(names, &wanted.to_string());
            }
        }
        (None, Some(wanted)) => draft.set_member(names, &wanted.to_string()),
        (Some(found), None) if !is_empty(found.value) => draft.drop_member(&found),
        (Some(_) | None, None) => {}
    }
    Ok(())
}

/// Takes out what a skill demands by itself.
fn free(draft: &mut Draft<'_>, skill: Value<'_>) {
    draft.edits.retain(skill.members().map(|member| {
        let stays = !OF_SKILLS.contains(&&*member.name) || is_empty(member.value);
        (member.key_span.start..member.value.span().end, stays)
    }));
}

fn is_empty(value: Value<'_>) -> bool {
    match value.kind() {
        Kind::Null => true,
        Kind::Array => value.elements().next().is_none(),
        Kind::Object => value.members().next().is_none(),
        Kind::Bool | Kind::Number | Kind::String => false,
    }
}

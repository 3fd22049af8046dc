//! Agent cards of A2A, rewritten so that every way to call the agent leads through Lictor.
//!
//! A card names the addresses at which the agent is called, in the fields of A2A 0.2 and 0.3 (`url`,
//! `preferredTransport`, `additionalInterfaces`), in those of 1.0 (`supportedInterfaces`), or in both at once.
//! Clients take any of them, so each one is pointed at Lictor or taken out. What callers have to prove is
//! stated as the listener really demands it, since the agent's own credentials never reach it. The rest stays
//! byte for byte as it was sent; a card that needs no change passes with its signatures.
//!
//! INVARIANT: a card that comes out names no callable address but Lictor's, and carries no signature that
//! doesn't fit it.
//!
//! Refuses: what isn't strict JSON or longer than 1 MiB, a card without a name or skills, a governed name
//! in two spellings or in one that some reader folds into it, a card on which no address is left, and, where
//! keys are configured, a card that none of them signed.

mod canonical;
mod interfaces;
mod key_set;
mod publisher;
mod security;
mod signature;
mod signer;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use url::Url;

use crate::protocol::{
    json::{self, Edits, Kind, Value},
    spelling,
};

pub use key_set::{KeyError, KeySet};
pub use publisher::{Published, Publisher, cache_control};
pub use signer::Signer;

/// Longest card in bytes.
pub const MAX_CARD: usize = 1 << 20;

/// Names whose other spellings are refused at the root of a card.
const GOVERNED: &[&str] = &[
    "name",
    "skills",
    "url",
    "preferredTransport",
    "preferred_transport",
    "additionalInterfaces",
    "additional_interfaces",
    "supportedInterfaces",
    "supported_interfaces",
    "security",
    "securitySchemes",
    "security_schemes",
    "securityRequirements",
    "security_requirements",
    "signatures",
];

/// What a card is rewritten with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where callers reach the route: endpoint of JSON-RPC and base of HTTP+JSON in one.
    pub public_url: Url,
    /// Endpoints of JSON-RPC that are the agent's; empty if the route doesn't carry that.
    pub json_rpc: Vec<Url>,
    /// Bases of HTTP+JSON that are the agent's; empty if the route doesn't carry that.
    pub rest: Vec<Url>,
    /// What the listener demands of callers.
    pub demands: Demands,
    /// Keys of which one has to have signed the agent's card; without them, nobody looks.
    pub keys: Option<Arc<KeySet>>,
    /// Signs what was rewritten; without it, such a card has no signatures.
    pub signer: Option<Arc<Signer>>,
}

/// What a listener demands of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demands {
    /// Nothing that a card could state.
    Nothing,
    /// A certificate.
    MutualTls,
}

/// Why a card can't be shown to callers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than [`MAX_CARD`].
    #[error("an agent card of more than {MAX_CARD} bytes")]
    TooLong,
    /// No strict JSON.
    #[error("an agent card that is no JSON")]
    Json(#[from] json::ScanError),
    /// A part that isn't what A2A says it is.
    #[error("an agent card without a usable `{0}`")]
    Malformed(&'static str),
    /// A governed name in two spellings, or in one that only some readers know.
    #[error("an agent card that readers understand differently: `{0}`")]
    Ambiguous(String),
    /// Nothing on it leads through us.
    #[error(
        "an agent card on which no address is the upstream's, with a binding that the route carries"
    )]
    NoInterface,
    /// Keys are configured, and it isn't signed.
    #[error("an agent card without signatures")]
    Unsigned,
    /// Keys are configured, and none of them has signed it.
    #[error("an agent card that no known key has signed: {0}")]
    Untrusted(&'static str),
    /// Our own key failed.
    #[error("an agent card can't be signed")]
    Signing,
}

/// Rewrites a card.
///
/// # Errors
/// Whatever the [module](self) refuses; the card must not reach a caller then.
pub fn rewrite(card: &Bytes, settings: &Settings) -> Result<Bytes, Error> {
    if card.len() > MAX_CARD {
        return Err(Error::TooLong);
    }
    let document = json::scan(card, json::Limits::default())?;
    let root = checked(document.root())?;
    if let Some(keys) = &settings.keys {
        signature::verify(root, keys)?;
    }
    let mut draft = Draft { root, edits: Edits::default(), dropped: Vec::new() };
    let shown = interfaces::point(&mut draft, settings)?;
    security::state(&mut draft, settings.demands, shown)?;
    if draft.is_untouched() {
        return Ok(card.clone());
    }
    if root.member("signatures").is_some() {
        draft.dropped.push("signatures");
    }
    let unsigned = draft.finish(card);
    match &settings.signer {
        Some(signer) => signature::sign(&unsigned, signer),
        None => Ok(unsigned),
    }
}

/// Rewrites the card that is the result of a JSON-RPC answer (`GetExtendedAgentCard`,
/// `agent/getAuthenticatedExtendedCard`); an answer without a result passes as it is.
///
/// # Errors
/// As [`rewrite`].
pub fn rewrite_result(answer: &Bytes, settings: &Settings) -> Result<Bytes, Error> {
    let document = json::scan(answer, json::Limits::default())?;
    if document.root().kind() != Kind::Object {
        return Err(Error::Malformed("result"));
    }
    let Some(result) = member(document.root(), &["result"])? else { return Ok(answer.clone()) };
    let card = rewrite(&answer.slice(result.value.span()), settings)?;
    let text = String::from_utf8(card.into()).map_err(|_| Error::Malformed("result"))?;
    let mut edits = Edits::default();
    edits.replace(result.value.span(), text);
    Ok(edits.apply(answer))
}

fn checked(root: Value<'_>) -> Result<Value<'_>, Error> {
    if root.kind() != Kind::Object {
        return Err(Error::Malformed("name"));
    }
    refuse_variants(root, GOVERNED)?;
    let name = root.member("name").and_then(Value::as_str);
    if name.is_none_or(|name| name.trim().is_empty()) {
        return Err(Error::Malformed("name"));
    }
    let skills = root.member("skills").filter(|skills| skills.kind() == Kind::Array);
    let skills = skills.ok_or(Error::Malformed("skills"))?;
    if skills.elements().any(|skill| skill.kind() != Kind::Object) {
        return Err(Error::Malformed("skills"));
    }
    Ok(root)
}

/// Go reads `Url` as `url`; what one client would call must not pass us as a stranger.
fn refuse_variants(object: Value<'_>, names: &[&str]) -> Result<(), Error> {
    match object.members().find(|member| spelling::is_variant(&member.name, names)) {
        Some(variant) => Err(Error::Ambiguous(variant.name.into_owned())),
        None => Ok(()),
    }
}

/// A member that is there and not `null`.
#[derive(Clone, Debug)]
struct Found<'a> {
    name: &'static str,
    value: Value<'a>,
}

/// The member of an object that has one of these names: ProtoJSON readers take both spellings of a
/// field, and which of two they take is theirs.
fn member<'a>(object: Value<'a>, names: &[&'static str]) -> Result<Option<Found<'a>>, Error> {
    let found = |name: &&'static str| Some(Found { name, value: object.member(name)? });
    let mut all = names.iter().filter_map(found);
    let first = all.next();
    if let Some(second) = all.next() {
        return Err(Error::Ambiguous(second.name.to_owned()));
    }
    Ok(first.filter(|found| found.value.kind() != Kind::Null))
}

/// A card on its way to being another.
struct Draft<'a> {
    root: Value<'a>,
    edits: Edits,
    dropped: Vec<&'static str>,
}

impl Draft<'_> {
    fn is_untouched(&self) -> bool {
        self.edits.is_empty() && self.dropped.is_empty()
    }

    fn replace(&mut self, value: Value<'_>, with: &str) {
        self.edits.replace(value.span(), with);
    }

    fn drop_member(&mut self, member: &Found<'_>) {
        self.dropped.push(member.name);
    }

    /// Sets the member of one of these names: where it is, also as `null`, or else behind `name`, which every
    /// card has.
    fn set_member(&mut self, names: &[&'static str], value: &str) {
        if let Some(old) = names.iter().find_map(|name| self.root.member(name)) {
            return self.replace(old, value);
        }
        if let (Some(before), Some(name)) = (self.root.member("name"), names.first()) {
            let end = before.span().end;
            self.edits.replace(end..end, format!(",\"{name}\":{value}"));
        }
    }

    fn finish(mut self, card: &[u8]) -> Bytes {
        let stays = |name: &str| !self.dropped.contains(&name);
        let members = self.root.members();
        self.edits.retain(
            members.map(|member| {
                (member.key_span.start..member.value.span().end, stays(&member.name))
            }),
        );
        self.edits.apply(card)
    }
}

/// A string as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

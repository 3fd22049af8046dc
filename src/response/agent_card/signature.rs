//! Signatures of cards: detached JWS over a [canonical form](super::canonical) (A2A 1.0 §8.4).

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use serde_json::json;

use super::{Error, KeySet, Signer, canonical, member};
use crate::protocol::json::{self, Edits, Kind, Value};

/// Most signatures of a card that are looked at; a card with more is refused.
const MAX_SIGNATURES: usize = 8;

/// Longest encoded header of a signature.
const MAX_HEADER: usize = 4096;

/// Whether one of the keys has signed the card.
pub(super) fn verify(card: Value<'_>, keys: &KeySet) -> Result<(), Error> {
    let signatures = member(card, &["signatures"])?.ok_or(Error::Unsigned)?.value;
    let count = signatures.elements().take(MAX_SIGNATURES + 1).count();
    if signatures.kind() != Kind::Array || count > MAX_SIGNATURES {
        return Err(Error::Malformed("signatures"));
    }
    if count == 0 {
        return Err(Error::Unsigned);
    }
    let forms = canonical::forms(card.raw())?;
    let forms: Vec<_> = forms.iter().map(|form| BASE64URL_NOPAD.encode(form)).collect();
    let mut last = Error::Unsigned;
    for signature in signatures.elements() {
        match verify_one(signature, &forms, keys) {
            Ok(()) => return Ok(()),
            Err(reason) => last = Error::Untrusted(reason),
        }
    }
    Err(last)
}

/// Adds signatures over every form of a card that has none, so that each kind of verifier finds one.
pub(super) fn sign(card: &Bytes, signer: &Signer) -> Result<Bytes, Error> {
    let mut signatures = Vec::new();
    for form in canonical::forms(card)? {
        let (protected, signature) = signer.sign(&form)?;
        signatures.push(json!({ "protected": protected, "signature": signature }));
    }
    let document = json::scan(card, json::Limits::default())?;
    let name = document.root().member("name").ok_or(Error::Malformed("name"))?;
    let end = name.span().end;
    let mut edits = Edits::default();
    edits.replace(end..end, format!(",\"signatures\":{}", json!(signatures)));
    Ok(edits.apply(card))
}

/// `forms` are encoded. The unprotected `header` is never looked at.
fn verify_one(signature: Value<'_>, forms: &[String], keys: &KeySet) -> Result<(), &'static str> {
    let text = |name: &str| signature.member(name).and_then(Value::as_str);
    let protected = text("protected").ok_or("a signature has no `protected`")?;
    if protected.len() > MAX_HEADER {
        return Err("the header of a signature is too long");
    }
    let header = BASE64URL_NOPAD.decode(protected.as_bytes());
    let header = header.map_err(|_| "the header of a signature isn't base64url")?;
    let header = json::scan(&header, json::Limits::default());
    let header = header.map_err(|_| "the header of a signature is no JSON")?;
    // Extensions that have to be understood (RFC 7515 §4.1.11); none is.
    if header.root().member("crit").is_some() || header.root().member("b64").is_some() {
        return Err("a signature needs an extension that isn't known");
    }
    let said = |name: &str| header.root().member(name).and_then(Value::as_str);
    let algorithm = said("alg").ok_or("a signature names no algorithm")?;
    let id = said("kid").ok_or("a signature names no key")?;
    let bytes = text("signature").ok_or("a signature has no `signature`")?;
    let bytes = BASE64URL_NOPAD.decode(bytes.as_bytes());
    let bytes = bytes.map_err(|_| "a signature isn't base64url")?;
    let mut reason = "a signature is by a key that isn't known";
    for key in keys.named(&id) {
        reason = "a signature doesn't fit the card, its key or its algorithm";
        let fits = |form: &String| {
            key.verifies(&algorithm, format!("{protected}.{form}").as_bytes(), &bytes)
        };
        if forms.iter().any(fits) {
            return Ok(());
        }
    }
    Err(reason)
}

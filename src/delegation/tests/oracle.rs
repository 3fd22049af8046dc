//! A second reader of chains, plain and slow, that shares no code with the first: `serde_json`,
//! `x509-parser` and `ring`. It knows leaves of P-256 right below a root, ten hops of no settings but one
//! origin, and nothing of replays.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::{
    digest,
    signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_FIXED, UnparsedPublicKey},
};
use serde_json::{Map, Value};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

pub(super) struct Oracle<'a> {
    /// Trust domain and DER of its root.
    pub(super) roots: Vec<(&'a str, Vec<u8>)>,
    /// The one who may begin chains.
    pub(super) origin: &'a str,
    pub(super) peer: &'a str,
    pub(super) own: &'a str,
    pub(super) body: &'a [u8],
    pub(super) now: u64,
}

struct Read {
    claims: Map<String, Value>,
    leaf_ends: u64,
}

impl Oracle<'_> {
    pub(super) fn takes(&self, header: &str) -> bool {
        header.len() <= 16 * 1024 && self.holds(header).is_some()
    }

    fn holds(&self, header: &str) -> Option<()> {
        let texts: Vec<&str> = header.split('~').collect();
        let hops: Vec<Read> = texts.iter().map(|text| self.read(text)).collect::<Option<_>>()?;
        require(hops.len() <= 5)?;
        for (at, hop) in hops.iter().enumerate() {
            self.alone(at, hop)?;
            let first = &hops.first()?.claims;
            for same in ["sub", "usr", "ten", "run"] {
                require(hop.claims.get(same) == first.get(same))?;
            }
            if at > 0 {
                let before = texts.get(at - 1)?;
                let digest = digest::digest(&digest::SHA256, before.as_bytes());
                let expected = BASE64URL_NOPAD.encode(digest.as_ref());
                require(text(&hop.claims, "prv")? == expected)?;
                let parent = &hops.get(at - 1)?.claims;
                require(text(&hop.claims, "iss")? == text(parent, "aud")?)?;
                require(number(&hop.claims, "exp")? <= number(parent, "exp")?)?;
                require(rank(&hop.claims)? <= rank(parent)?)?;
            } else {
                require(!hop.claims.contains_key("prv"))?;
                require(text(&hop.claims, "iss")? == text(&hop.claims, "sub")?)?;
                require(text(&hop.claims, "sub")? == self.origin)?;
            }
            for earlier in hops.iter().take(at) {
                if let (Some(outer), Some(inner)) = (caps(earlier)?, caps(hop)?) {
                    require(inner.iter().all(|cap| outer.iter().any(|wide| within(cap, wide))))?;
                }
            }
        }
        let last = &hops.last()?.claims;
        require(text(last, "iss")? == self.peer && text(last, "aud")? == self.own)?;
        require(number(last, "iat")? + 60 >= self.now)?;
        require(text(last, "htm")? == "POST" && text(last, "mth")? == "tools/call")?;
        let digest = digest::digest(&digest::SHA256, self.body);
        require(text(last, "bh")? == BASE64URL_NOPAD.encode(digest.as_ref()))?;
        let mut members: Vec<&str> =
            hops.iter().map(|hop| text(&hop.claims, "iss")).collect::<Option<_>>()?;
        members.push(self.own);
        let count = members.len();
        members.sort_unstable();
        members.dedup();
        require(members.len() == count)
    }

    fn alone(&self, at: usize, hop: &Read) -> Option<()> {
        let claims = &hop.claims;
        require(number(claims, "dep")? == u64::try_from(at).ok()?)?;
        require(number(claims, "iat")? <= self.now + 5)?;
        require(number(claims, "exp")? > self.now && number(claims, "exp")? <= hop.leaf_ends)?;
        let domain = |id: &str| Some(id.strip_prefix("spiffe://")?.split_once('/')?.0.to_owned());
        require(domain(text(claims, "iss")?)? == domain(text(claims, "aud")?)?)?;
        domain(text(claims, "sub")?)?;
        let bytes = |name| Some(BASE64URL_NOPAD.decode(text(claims, name)?.as_bytes()).ok()?.len());
        require(bytes("jti")? == 16 && bytes("bh")? == 32)?;
        let run = text(claims, "run")?;
        let parts: Vec<usize> = run.split('-').map(str::len).collect();
        let digits = run.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        require(parts == [8, 4, 4, 4, 12] && digits && run.as_bytes().get(14) == Some(&b'7'))?;
        for name in ["usr", "ten"] {
            if let Some(named) = claims.get(name) {
                require((1..=256).contains(&named.as_str()?.len()))?;
            }
        }
        text(claims, "htm")?;
        text(claims, "mth")?;
        rank(claims)?;
        caps(hop)?;
        let known = [
            "iss", "aud", "sub", "usr", "ten", "run", "dep", "prv", "mode", "cap", "iat", "exp",
            "jti", "bh", "htm", "mth",
        ];
        require(claims.keys().all(|name| known.contains(&name.as_str())))
    }

    fn read(&self, text_: &str) -> Option<Read> {
        let parts: Vec<&str> = text_.split('.').collect();
        let [header, claims, signature] = parts[..] else { return None };
        let input = format!("{header}.{claims}");
        let object = |part: &str| -> Option<Map<String, Value>> {
            serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).ok()?).ok()
        };
        let (header, claims) = (object(header)?, object(claims)?);
        require(header.len() == 3 && text(&header, "typ")? == "agent-delegation+jwt")?;
        require(text(&header, "alg")? == "ES256")?;
        let x5c = header.get("x5c")?.as_array()?;
        require(x5c.len() == 1)?;
        let der = BASE64.decode(x5c.first()?.as_str()?.as_bytes()).ok()?;
        let (rest, leaf) = X509Certificate::from_der(&der).ok()?;
        require(rest.is_empty())?;
        let names = leaf.subject_alternative_name().ok()??;
        let [GeneralName::URI(id)] = names.value.general_names[..] else { return None };
        require(id == text(&claims, "iss")?)?;
        let domain = id.strip_prefix("spiffe://")?.split_once('/')?.0;
        let (_, root) = self.roots.iter().find(|(name, _)| *name == domain)?;
        let (_, root) = X509Certificate::from_der(root).ok()?;
        let key = &root.public_key().subject_public_key.data;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
            .verify(leaf.tbs_certificate.as_ref(), &leaf.signature_value.data)
            .ok()?;
        let leaf_ends = u64::try_from(leaf.validity().not_after.timestamp()).ok()?;
        require(self.now < leaf_ends)?;
        let key = &leaf.public_key().subject_public_key.data;
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key)
            .verify(input.as_bytes(), &signature)
            .ok()?;
        Some(Read { claims, leaf_ends })
    }
}

fn require(holds: bool) -> Option<()> {
    holds.then_some(())
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

fn number(object: &Map<String, Value>, name: &str) -> Option<u64> {
    object.get(name)?.as_u64()
}

fn rank(claims: &Map<String, Value>) -> Option<usize> {
    ["readonly", "readwrite", "full"].iter().position(|mode| Some(*mode) == text(claims, "mode"))
}

/// `Some(None)` without a limit, `None` where it isn't well-formed.
#[expect(clippy::option_option, reason = "there are three cases")]
fn caps(hop: &Read) -> Option<Option<Vec<&str>>> {
    let Some(caps) = hop.claims.get("cap") else { return Some(None) };
    let caps: Vec<&str> = caps.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    require((1..=32).contains(&caps.len()))?;
    let fine = |cap: &str| {
        let parts: Vec<&str> = cap.splitn(3, '|').collect();
        let star = |part: &&str| !part.trim_end_matches('*').contains('*') && !part.ends_with("**");
        parts.len() == 3 && !parts[0].is_empty() && !parts[1].is_empty() && parts.iter().all(star)
    };
    require(caps.iter().all(|cap| fine(cap)))?;
    Some(Some(caps))
}

fn within(narrow: &str, wide: &str) -> bool {
    narrow.splitn(3, '|').zip(wide.splitn(3, '|')).all(|(narrow, wide)| {
        match wide.strip_suffix('*') {
            Some(beginning) => narrow.starts_with(beginning),
            None => narrow == wide,
        }
    })
}

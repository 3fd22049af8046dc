//! The stored form: one line an entry, `canonical_json TAB hex(hash) LF`.
//!
//! The canonical form is JCS (RFC 8785). Canonicalising costs ten times what writing does, so members are
//! written in sorted order to begin with, without a general serialiser, which took longer than hashing what
//! it wrote; tests prove that the bytes equal what a canonicaliser makes of them.
//!
//! INVARIANT: `hash_n = SHA-256(hash_{n-1} ‖ canonical_n)` over exactly the bytes that are stored.
//! INVARIANT: no floats, no null, integers below 2^53, ASCII keys, so that no reader can round them.

use std::{borrow::Cow, fmt::Write as _, io, sync::Arc};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    entry::{Entry, Revocation},
    genesis::{GenesisLine, Previous},
    stamp::Stamp,
};

/// Version of the format, in every entry.
pub(super) const VERSION: u64 = 1;
/// No line is longer; bounds what a reader has to hold.
pub(super) const MAX_LINE: usize = 64 * 1024;
/// Every kind of entry that version 1 knows. `approval`, `lease`, `checkpoint`, `segment_open` and
/// `segment_seal` are reserved.
pub(super) const KINDS: [&str; 15] = [
    "approval",
    "checkpoint",
    "config",
    "denied",
    "gap",
    "genesis",
    "intent",
    "lease",
    "outcome",
    "recovered",
    "replaced",
    "revocation",
    "segment_open",
    "segment_seal",
    "settled",
];

const MAX_INTEGER: u64 = (1 << 53) - 1;
const MAX_NAME: usize = 128;
const MAX_PEER: usize = 2048;
const MAX_NAMES: usize = 32;
const CUT: &str = "\\cut";

/// A link of the chain: SHA-256.
pub type Hash = [u8; 32];

/// What can be written.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them are calls, and a box would cost each an allocation"
)]
pub(super) enum Body {
    /// A record of a call.
    Call(Entry),
    /// What is in force from here on.
    Config { policy_version: Arc<str>, config_sha256: Option<[u8; 32]> },
    /// Something was revoked, or a revocation lifted.
    Revocation(Box<Revocation>),
    /// An intent that no closing entry followed when the ledger was opened.
    Recovered { call_id: String },
    /// A half-written end that was set aside.
    Torn { file: String, bytes: u64, sha256: [u8; 32] },
    /// The ledger could not write between `first` and this entry, and lost `count` entries meanwhile.
    Gap { count: u64, first: Stamp },
    /// How a chain before this one ended.
    Settled { previous: Previous },
    /// Another chain than this one was put aside, and how much of it verified.
    Replaced { previous: Previous },
}

/// Where the chain stands: what the next entry needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    /// Sequence number of the next entry.
    pub(super) next: u64,
    /// Hash of the entry before it, or zeros.
    pub(super) head: Hash,
    /// Time of the entry before it; the next one is not older.
    pub(super) ts: Stamp,
}

impl Tip {
    /// Before the first entry.
    pub(super) const GENESIS: Self = Self { next: 0, head: [0; 32], ts: Stamp::EPOCH };

    /// Appends one line to `out`.
    pub(super) fn extend(
        &mut self,
        chain: &str,
        at: Stamp,
        body: &Body,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let (seq, ts) = (self.next, self.ts.max(at));
        self.link(ts, out, |out| {
            let mut line = Object::begin(out);
            Place { chain, seq, ts }.write(body, &mut line);
            line.end();
            Ok(())
        })
    }

    /// Appends the genesis line to `out`.
    pub(super) fn begin(&mut self, genesis: &GenesisLine<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        self.link(genesis.ts, out, |out| serde_json::to_writer(out, genesis))
    }

    fn link(
        &mut self,
        ts: Stamp,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> io::Result<()> {
        let start = out.len();
        write(out)?;
        let canonical = out.get(start..).unwrap_or_default();
        if canonical.len() + 66 > MAX_LINE {
            out.truncate(start);
            return Err(io::Error::other("an entry is longer than a line may be"));
        }
        let hash = link_hash(&self.head, canonical);
        out.push(b'\t');
        push_hex(&hash, out);
        out.push(b'\n');
        *self = Self { next: self.next + 1, head: hash, ts };
        Ok(())
    }
}

/// The hash of an entry: SHA-256 over its predecessor's hash (zeros for the first) and its canonical form.
pub fn link_hash(previous: &Hash, canonical: &[u8]) -> Hash {
    Sha256::new().chain_update(previous).chain_update(canonical).finalize().into()
}

/// What the line of any entry says.
struct Place<'a> {
    chain: &'a str,
    seq: u64,
    ts: Stamp,
}

impl Place<'_> {
    /// Every member in the order of their names.
    fn write(&self, body: &Body, line: &mut Object<'_>) {
        match body {
            Body::Call(entry) => return self.write_call(entry, line),
            Body::Config { policy_version, config_sha256 } => {
                line.text("chain", self.chain);
                line.hex("config_sha256", config_sha256.as_ref());
                line.label("kind", "config");
                line.name("policy_version", &**policy_version, MAX_NAME);
                line.number("seq", self.seq);
            }
            Body::Revocation(revocation) => {
                line.text("by", &revocation.by);
                line.text("chain", self.chain);
                line.label("kind", "revocation");
                line.text("reason", &revocation.reason);
                line.id("revocation", &revocation.id);
                line.number("seq", self.seq);
                line.label("status", if revocation.lifted { "lifted" } else { "revoked" });
                line.label("subject", revocation.what);
                line.name("target", &*revocation.value, MAX_PEER);
                line.stamp("ts", self.ts);
                line.number("until", revocation.until);
                line.number("v", VERSION);
                return;
            }
            Body::Recovered { call_id } => {
                line.text("call_id", call_id.as_str());
                line.text("chain", self.chain);
                line.label("kind", "recovered");
                line.number("seq", self.seq);
                line.label("status", "unknown");
            }
            Body::Torn { file, bytes, sha256 } => {
                line.text("chain", self.chain);
                line.label("kind", "recovered");
                line.number("seq", self.seq);
                line.label("status", "torn");
                line.number("torn_bytes", *bytes);
                line.name("torn_file", file.as_str(), MAX_NAME);
                line.hex("torn_sha256", sha256);
            }
            Body::Gap { count, first } => {
                line.text("chain", self.chain);
                line.number("count", *count);
                line.stamp("first_ts", *first);
                line.label("kind", "gap");
                line.number("seq", self.seq);
            }
            Body::Settled { previous } => self.write_of("settled", previous, line),
            Body::Replaced { previous } => self.write_of("replaced", previous, line),
        }
        line.stamp("ts", self.ts);
        line.number("v", VERSION);
    }

    /// What is said of another chain.
    fn write_of(&self, kind: &'static str, previous: &Previous, line: &mut Object<'_>) {
        line.text("chain", self.chain);
        line.label("kind", kind);
        line.previous("previous", previous);
        line.number("seq", self.seq);
    }

    fn write_call(&self, entry: &Entry, line: &mut Object<'_>) {
        line.id("call_id", &entry.call_id);
        if let Some(cause) = &entry.cause {
            line.id("cause", cause);
        }
        line.text("chain", self.chain);
        line.label("class", entry.class);
        line.flag("complete", entry.complete);
        line.label("decision", entry.decision.as_str());
        line.label("direction", entry.direction);
        line.label("era", entry.era);
        let behalf = entry.behalf.as_ref();
        if let Some((hop, peer)) = behalf.and_then(|behalf| behalf.objection.as_ref()) {
            line.number("hop", *hop);
            line.name("hop_peer", &**peer, MAX_PEER);
        }
        line.number("hops", behalf.and_then(|behalf| behalf.hops));
        line.name("host", entry.host.as_deref(), MAX_NAME);
        line.number("http_status", entry.http_status.map(u64::from));
        line.label("kind", entry.event.kind());
        line.number("latency_us", entry.latency_us);
        line.names("limits", &entry.limits);
        line.label("limits_mode", entry.limits_mode);
        line.label("link", behalf.and_then(|behalf| behalf.link));
        line.name("listener", &*entry.listener, MAX_NAME);
        line.name("method", entry.method.as_deref(), MAX_NAME);
        line.label("mode", entry.mode.as_str());
        line.number("own_us", entry.own_us);
        line.name("peer", &*entry.peer, MAX_PEER);
        if let Some(call) = behalf.and_then(|behalf| behalf.peer_call.as_ref()) {
            line.id("peer_call", call);
        }
        line.name("peer_denied", entry.peer_denied.as_deref(), MAX_NAME);
        line.names("policies", &entry.policies);
        line.name("policy_version", entry.policy_version.as_deref(), MAX_NAME);
        line.label("protocol", entry.protocol);
        line.hex("req_sha256", entry.req_sha256.as_ref());
        line.number("resp_bytes", entry.resp_bytes);
        line.hex("resp_sha256", entry.resp_sha256.as_ref());
        if let Some(revocation) = &entry.revocation {
            line.id("revocation", revocation);
        }
        line.name("root", behalf.and_then(|behalf| behalf.root.as_deref()), MAX_PEER);
        if let Some(run) = behalf.and_then(|behalf| behalf.run.as_ref()) {
            line.id("run", run);
        }
        line.number("seq", self.seq);
        line.name("server", entry.server.as_deref(), MAX_NAME);
        line.label("stage", entry.stage);
        line.label("status", entry.status);
        line.name("target", entry.target.as_deref(), MAX_NAME);
        line.name("tenant", behalf.and_then(|behalf| behalf.tenant.as_deref()), MAX_NAME);
        line.stamp("ts", self.ts);
        line.name("user", behalf.and_then(|behalf| behalf.user.as_deref()), MAX_NAME);
        line.number("v", VERSION);
        line.label("would_deny", entry.would_deny);
    }
}

/// A JSON object that is being written. Members that aren't known are left out.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    /// What stands before the next member.
    before: u8,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        Self { out, before: b'{' }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    fn key(&mut self, key: &'static str) {
        self.out.push(self.before);
        self.before = b',';
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// A constant of the program, of plain characters.
    fn label(&mut self, key: &'static str, label: impl Into<Option<&'static str>>) {
        if let Some(label) = label.into() {
            self.key(key);
            quote(label, self.out);
        }
    }

    fn id(&mut self, key: &'static str, id: &Uuid) {
        self.key(key);
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        quote(id.hyphenated().encode_lower(&mut text), self.out);
    }

    fn text(&mut self, key: &'static str, text: &str) {
        self.key(key);
        string(text, self.out);
    }

    /// A text that others may have chosen.
    fn name<'t>(&mut self, key: &'static str, text: impl Into<Option<&'t str>>, limit: usize) {
        if let Some(text) = text.into() {
            self.key(key);
            name(text, limit, self.out);
        }
    }

    /// At most [`MAX_NAMES`], and a marker where there are more.
    fn names(&mut self, key: &'static str, names: &[Arc<str>]) {
        if names.is_empty() {
            return;
        }
        self.key(key);
        let mut before = b'[';
        for one in names.iter().take(MAX_NAMES) {
            self.out.push(before);
            before = b',';
            name(one, MAX_NAME, self.out);
        }
        if names.len() > MAX_NAMES {
            self.out.push(b',');
            string(CUT, self.out);
        }
        self.out.push(b']');
    }

    /// An integer that every JSON reader keeps.
    fn number(&mut self, key: &'static str, number: impl Into<Option<u64>>) {
        let Some(number) = number.into() else { return };
        self.key(key);
        let start = self.out.len();
        let mut rest = number.min(MAX_INTEGER);
        loop {
            self.out.push(b'0' + u8::try_from(rest % 10).unwrap_or_default());
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if let Some(digits) = self.out.get_mut(start..) {
            digits.reverse();
        }
    }

    fn flag(&mut self, key: &'static str, flag: Option<bool>) {
        if let Some(flag) = flag {
            self.key(key);
            self.out.extend_from_slice(if flag { b"true" } else { b"false" });
        }
    }

    fn previous(&mut self, key: &'static str, previous: &Previous) {
        self.key(key);
        let mut inner = Object::begin(self.out);
        inner.text("chain", &previous.chain);
        inner.number("entries", previous.entries);
        inner.text("head", &previous.head);
        inner.end();
    }

    fn hex<'t>(&mut self, key: &'static str, bytes: impl Into<Option<&'t [u8; 32]>>) {
        if let Some(bytes) = bytes.into() {
            self.key(key);
            self.out.push(b'"');
            push_hex(bytes, self.out);
            self.out.push(b'"');
        }
    }

    fn stamp(&mut self, key: &'static str, stamp: Stamp) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(&stamp.text());
        self.out.push(b'"');
    }
}

fn quote(plain: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(plain.as_bytes());
    out.push(b'"');
}

fn name(text: &str, limit: usize, out: &mut Vec<u8>) {
    match escape(text, limit) {
        // Nearly all of them; nothing in it has to be escaped for JSON either.
        Cow::Borrowed(plain) => quote(plain, out),
        Cow::Owned(escaped) => string(&escaped, out),
    }
}

/// A string in the form of RFC 8785 §3.2.2.2.
fn string(text: &str, out: &mut Vec<u8>) {
    if text.bytes().all(plain) {
        return quote(text, out);
    }
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..32 => {
                out.extend_from_slice(b"\\u00");
                let mut hex = [0; 2];
                HEXLOWER.encode_mut(&[byte], &mut hex);
                out.extend_from_slice(&hex);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

fn push_hex(bytes: &[u8; 32], out: &mut Vec<u8>) {
    let mut hex = [0; 64];
    HEXLOWER.encode_mut(bytes, &mut hex);
    out.extend_from_slice(&hex);
}

/// Makes a text safe to store, print and compare by eye. A backslash is itself escaped, so that no two
/// texts that fit become the same.
pub(super) fn escape(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit && text.bytes().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(limit + 16);
    let mut keep = 0;
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) if plain(byte) => out.push(character),
            Ok(_) | Err(_) => {
                // Writing to a String can't fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
            }
        }
        if out.len() > limit {
            out.truncate(keep);
            out.push_str(CUT);
            break;
        }
        if out.len() + CUT.len() <= limit {
            keep = out.len();
        }
    }
    Cow::Owned(out)
}

/// Reads back what was escaped to be stored; `false` where it was cut, or isn't what a writer makes.
pub fn unescape(stored: &str) -> (String, bool) {
    let cut = stored.strip_suffix(CUT);
    let mut whole = cut.is_none();
    let mut pieces = cut.unwrap_or(stored).split("\\u{");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let escaped = piece.split_once('}').and_then(|(hex, rest)| {
            let character = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)?;
            Some((character, rest))
        });
        match escaped {
            Some((character, rest)) => {
                text.push(character);
                text.push_str(rest);
            }
            None => {
                whole = false;
                text.push_str(piece);
            }
        }
    }
    (text, whole)
}

/// The unreserved and reserved characters of RFC 3986 §2, and `%`.
fn plain(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~'
    )
}

#[cfg(test)]
mod tests;

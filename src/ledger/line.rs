//! The stored form: one line an entry, `canonical_json TAB hex(hash) LF`.
//!
//! The canonical form is JCS (RFC 8785). Canonicalising costs ten times what serialising does, so each
//! struct here declares its fields in sorted order and is serialised directly; tests prove that the
//! bytes equal what a canonicaliser makes of them.
//!
//! INVARIANT: `hash_n = SHA-256(hash_{n-1} ‖ canonical_n)` over exactly the bytes that are stored.
//! INVARIANT: no floats, no null, integers below 2^53, ASCII keys, so that no reader can round them.

use std::{borrow::Cow, fmt::Write as _, io, sync::Arc};

use data_encoding::HEXLOWER;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{entry::Entry, genesis::GenesisLine, stamp::Stamp};

/// Version of the format, in every entry.
pub(super) const VERSION: u64 = 1;
/// No line is longer; bounds what a reader has to hold.
pub(super) const MAX_LINE: usize = 64 * 1024;
/// Every kind of entry that version 1 knows. `approval`, `lease`, `checkpoint`, `segment_open` and
/// `segment_seal` are reserved.
pub(super) const KINDS: [&str; 12] = [
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
    "segment_open",
    "segment_seal",
];

const MAX_INTEGER: u64 = (1 << 53) - 1;
const MAX_NAME: usize = 128;
const MAX_PEER: usize = 2048;
const MAX_POLICIES: usize = 32;
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
    /// An intent that no closing entry followed when the ledger was opened.
    Recovered { call_id: String },
    /// A half-written end that was set aside.
    Torn { file: String, bytes: u64, sha256: [u8; 32] },
    /// The ledger could not write between `first` and this entry, and lost `count` entries meanwhile.
    Gap { count: u64, first: Stamp },
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
        self.link(ts, out, |out| match body {
            Body::Call(entry) => {
                serde_json::to_writer(out, &CallLine::new(entry, Place { chain, seq, ts }))
            }
            Body::Config { policy_version, config_sha256 } => {
                let line = ConfigLine {
                    chain,
                    config_sha256: config_sha256.as_ref().map(Hex),
                    kind: "config",
                    policy_version: Name(policy_version),
                    seq: Int(seq),
                    ts,
                    v: VERSION,
                };
                serde_json::to_writer(out, &line)
            }
            Body::Recovered { call_id } => {
                let line = RecoveredLine {
                    call_id,
                    chain,
                    kind: "recovered",
                    seq: Int(seq),
                    status: "unknown",
                    ts,
                    v: VERSION,
                };
                serde_json::to_writer(out, &line)
            }
            Body::Torn { file, bytes, sha256 } => {
                let line = TornLine {
                    chain,
                    kind: "recovered",
                    seq: Int(seq),
                    status: "torn",
                    torn_bytes: Int(*bytes),
                    torn_file: Name(file),
                    torn_sha256: Hex(sha256),
                    ts,
                    v: VERSION,
                };
                serde_json::to_writer(out, &line)
            }
            Body::Gap { count, first } => {
                let line = GapLine {
                    chain,
                    count: Int(*count),
                    first_ts: *first,
                    kind: "gap",
                    seq: Int(seq),
                    ts,
                    v: VERSION,
                };
                serde_json::to_writer(out, &line)
            }
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
        let mut hex = [0; 64];
        HEXLOWER.encode_mut(&hash, &mut hex);
        out.extend_from_slice(&hex);
        out.push(b'\n');
        *self = Self { next: self.next + 1, head: hash, ts };
        Ok(())
    }
}

/// The hash of an entry: SHA-256 over its predecessor's hash (zeros for the first) and its canonical form.
pub fn link_hash(previous: &Hash, canonical: &[u8]) -> Hash {
    Sha256::new().chain_update(previous).chain_update(canonical).finalize().into()
}

struct Place<'a> {
    chain: &'a str,
    seq: u64,
    ts: Stamp,
}

/// The fields of [`Entry`] and of every entry, sorted.
#[derive(Serialize)]
struct CallLine<'a> {
    call_id: Id<'a>,
    chain: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
    decision: &'a str,
    direction: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    era: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<Int>,
    listener: Name<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Name<'a>>,
    mode: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    own_us: Option<Int>,
    peer: Peer<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<Names<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_version: Option<Name<'a>>,
    protocol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    req_sha256: Option<Hex<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resp_bytes: Option<Int>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resp_sha256: Option<Hex<'a>>,
    seq: Int,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Name<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Name<'a>>,
    ts: Stamp,
    v: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_deny: Option<&'a str>,
}

impl<'a> CallLine<'a> {
    fn new(entry: &'a Entry, place: Place<'a>) -> Self {
        Self {
            call_id: Id(&entry.call_id),
            chain: place.chain,
            class: entry.class,
            complete: entry.complete,
            decision: entry.decision.as_str(),
            direction: entry.direction,
            era: entry.era,
            http_status: entry.http_status,
            kind: entry.event.kind(),
            latency_us: entry.latency_us.map(Int),
            listener: Name(&entry.listener),
            method: entry.method.as_deref().map(Name),
            mode: entry.mode.as_str(),
            own_us: entry.own_us.map(Int),
            peer: Peer(&entry.peer),
            policies: (!entry.policies.is_empty()).then_some(Names(&entry.policies)),
            policy_version: entry.policy_version.as_deref().map(Name),
            protocol: entry.protocol,
            req_sha256: entry.req_sha256.as_ref().map(Hex),
            resp_bytes: entry.resp_bytes.map(Int),
            resp_sha256: entry.resp_sha256.as_ref().map(Hex),
            seq: Int(place.seq),
            server: entry.server.as_deref().map(Name),
            stage: entry.stage,
            status: entry.status,
            target: entry.target.as_deref().map(Name),
            ts: place.ts,
            v: VERSION,
            would_deny: entry.would_deny,
        }
    }
}

#[derive(Serialize)]
struct ConfigLine<'a> {
    chain: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_sha256: Option<Hex<'a>>,
    kind: &'static str,
    policy_version: Name<'a>,
    seq: Int,
    ts: Stamp,
    v: u64,
}

#[derive(Serialize)]
struct RecoveredLine<'a> {
    call_id: &'a str,
    chain: &'a str,
    kind: &'static str,
    seq: Int,
    status: &'static str,
    ts: Stamp,
    v: u64,
}

#[derive(Serialize)]
struct TornLine<'a> {
    chain: &'a str,
    kind: &'static str,
    seq: Int,
    status: &'static str,
    torn_bytes: Int,
    torn_file: Name<'a>,
    torn_sha256: Hex<'a>,
    ts: Stamp,
    v: u64,
}

#[derive(Serialize)]
struct GapLine<'a> {
    chain: &'a str,
    count: Int,
    first_ts: Stamp,
    kind: &'static str,
    seq: Int,
    ts: Stamp,
    v: u64,
}

/// An integer that every JSON reader keeps.
struct Int(u64);

impl Serialize for Int {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.min(MAX_INTEGER))
    }
}

struct Id<'a>(&'a Uuid);

impl Serialize for Id<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        serializer.serialize_str(self.0.hyphenated().encode_lower(&mut text))
    }
}

/// Bytes as lower-case hex.
pub(super) struct Hex<'a>(pub(super) &'a [u8; 32]);

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&HEXLOWER.encode_display(self.0))
    }
}

struct Name<'a>(&'a str);

impl Serialize for Name<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(self.0, MAX_NAME))
    }
}

struct Peer<'a>(&'a str);

impl Serialize for Peer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(self.0, MAX_PEER))
    }
}

struct Names<'a>(&'a [Arc<str>]);

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.0.iter().take(MAX_POLICIES).map(|name| escape(name, MAX_NAME));
        let marker = (self.0.len() > MAX_POLICIES).then_some(Cow::Borrowed(CUT));
        serializer.collect_seq(names.chain(marker))
    }
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

/// The unreserved and reserved characters of RFC 3986 §2, and `%`.
fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests;

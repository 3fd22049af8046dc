//! Follows a chain line by line: the one place that says when a stored line is good.
//!
//! INVARIANT: the stored bytes are hashed before anything is made of them, so that no parser stands
//! between what was written and what is proven.

use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde_json::Value;

use super::{
    genesis,
    line::{Hash, KINDS, Tip, VERSION, link_hash},
    list::Row,
    segment::Piece,
    stamp::Stamp,
};

/// Why a line is not what the writer wrote there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Longer than any entry.
    #[error("longer than any entry")]
    TooLong,
    /// A piece without line end, with entries after it.
    #[error("torn line with entries after it")]
    Torn,
    /// Not `json TAB hash`.
    #[error("not an entry and its hash")]
    Shape,
    /// The stored hash is not that of the stored bytes after their predecessor.
    #[error("hash does not follow from the entry and the one before it")]
    Hash,
    /// The hash holds, but the entry is no JSON object with the fields of every entry.
    #[error("not a JSON entry: {0}")]
    Json(String),
    /// The hash holds, but the bytes are not in canonical form.
    #[error("not in canonical form")]
    NotCanonical,
    /// Written by a version of the format that is not known here.
    #[error("version `{0}` of the format is not known")]
    Version(u64),
    /// An entry of a kind that is not known here.
    #[error("kind `{0}` is not known")]
    Kind(String),
    /// Another sequence number than the place in the chain.
    #[error("carries sequence number {0}")]
    Sequence(u64),
    /// Belongs to another chain.
    #[error("belongs to chain `{0}`")]
    Chain(String),
    /// Not a timestamp, or older than the entry before it.
    #[error("time `{0}` is malformed or older than the entry before it")]
    Time(String),
    /// The first entry is no genesis, or a later one is.
    #[error("a genesis belongs at the start, and only there")]
    Genesis,
    /// The signature of the genesis does not hold.
    #[error("the signature of the genesis does not hold")]
    Signature,
    /// A segment starts with another entry than its name says, or one is missing before it.
    #[error("segment `{0}` is not the one that follows; one is missing or renamed")]
    Segment(String),
    /// What the entry says of the chain before this one isn't what is there.
    #[error("chain `{0}` doesn't reach, or isn't, what this entry says of it")]
    Previous(String),
    /// The entry says where a chain ended, and that isn't where it ends: nobody who may write does so after that.
    #[error("chain `{0}` goes on after the end that this entry says it had")]
    Outgrown(String),
    /// The chain that the entry names isn't in the ledger.
    #[error("chain `{0}`, which this entry names, is not there")]
    PreviousMissing(String),
    /// The directory of a later chain, without a chain and without one that was put aside.
    #[error("a chain began in this directory, and nothing of it is left")]
    Emptied,
    /// The directory once held a chain, and its segments are gone.
    #[error("the segments of chain `{0}` are gone")]
    Missing(String),
}

/// What every entry has, and what recovery needs of some.
#[derive(Debug, Deserialize)]
pub(super) struct Head {
    v: u64,
    seq: u64,
    ts: String,
    chain: String,
    pub(super) kind: String,
    pub(super) call_id: Option<String>,
    pub(super) torn_file: Option<String>,
    pub(super) count: Option<u64>,
    /// Public key of the ledger, in a genesis.
    pub(super) key: Option<String>,
    pub(super) previous: Option<genesis::Previous>,
}

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Hashes and the order of entries; what a start can afford.
    Links,
    /// Also the canonical form and the signature of the genesis.
    Everything,
}

/// The chain up to the last good line.
#[derive(Debug)]
pub(super) struct Follower {
    depth: Depth,
    pub(super) tip: Tip,
    pub(super) chain: Option<String>,
    pub(super) signed_by: Option<genesis::SignedBy>,
}

impl Follower {
    pub(super) fn new(depth: Depth) -> Self {
        Self { depth, tip: Tip::GENESIS, chain: None, signed_by: None }
    }

    /// Takes the next line, without its LF; only a good one moves the tip.
    pub(super) fn follow(&mut self, piece: Piece, line: &[u8]) -> Result<Head, Fault> {
        match piece {
            Piece::Whole => {}
            Piece::Torn => return Err(Fault::Torn),
            Piece::TooLong => return Err(Fault::TooLong),
        }
        let (canonical, stored) = split(line).ok_or(Fault::Shape)?;
        let hash = link_hash(&self.tip.head, canonical);
        if hash != stored {
            return Err(Fault::Hash);
        }
        let head: Head =
            serde_json::from_slice(canonical).map_err(|error| Fault::Json(error.to_string()))?;
        let ts = self.check(&head)?;
        if self.depth == Depth::Everything {
            self.check_form(canonical)?;
        }
        self.tip = Tip { next: self.tip.next + 1, head: hash, ts };
        self.chain.get_or_insert_with(|| head.chain.clone());
        Ok(head)
    }

    fn check(&self, head: &Head) -> Result<Stamp, Fault> {
        if head.v != VERSION {
            return Err(Fault::Version(head.v));
        }
        if head.seq != self.tip.next {
            return Err(Fault::Sequence(head.seq));
        }
        if self.chain.as_ref().is_some_and(|chain| *chain != head.chain) {
            return Err(Fault::Chain(head.chain.clone()));
        }
        if !KINDS.contains(&head.kind.as_str()) {
            return Err(Fault::Kind(head.kind.clone()));
        }
        if (head.kind == "genesis") != (head.seq == 0) {
            return Err(Fault::Genesis);
        }
        Stamp::parse(&head.ts)
            .filter(|ts| *ts >= self.tip.ts)
            .ok_or_else(|| Fault::Time(head.ts.clone()))
    }

    fn check_form(&mut self, canonical: &[u8]) -> Result<(), Fault> {
        let json = |error: serde_json::Error| Fault::Json(error.to_string());
        let entry: Value = serde_json::from_slice(canonical).map_err(json)?;
        if serde_json_canonicalizer::to_vec(&entry).map_err(json)? != canonical {
            return Err(Fault::NotCanonical);
        }
        // What verifies can be listed.
        Row::deserialize(&entry).map_err(json)?;
        if self.tip.next == 0 {
            self.signed_by = Some(genesis::check(&entry).ok_or(Fault::Signature)?);
        }
        Ok(())
    }
}

/// Takes a line apart: the canonical entry and its hash.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], Hash)> {
    let (rest, hex) = line.split_last_chunk::<64>()?;
    let (tab, canonical) = rest.split_last()?;
    let mut hash = [0; 32];
    let decoded = HEXLOWER.decode_mut(hex, &mut hash);
    (*tab == b'\t' && decoded == Ok(32)).then_some((canonical, hash))
}

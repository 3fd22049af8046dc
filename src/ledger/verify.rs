//! Replays a chain offline and says how far it can be trusted.
//!
//! Takes no lock, so it can run beside a live writer; a half-written end is then a piece that is still
//! being written. A chain alone can't show that its newest entries were cut off, so the report says how
//! far the chain is complete and never just that it is valid.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs, io, mem,
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;

use super::{
    chains::directories,
    check::{Depth, Fault, Follower, Head},
    genesis::{Previous, SignedBy},
    line::{Hash, Tip},
    recovery::CHAIN_FILE,
    replace,
    segment::{Piece, Pieces, Segment, segments},
};

/// What a replay found.
#[derive(Debug)]
pub struct Report {
    /// Id of the chain, from its first entry.
    pub chain: Option<String>,
    /// Entries that verified, from the genesis on; the last one has this sequence number minus one.
    pub entries: u64,
    /// Hash of the last entry that verified.
    pub head: Option<Hash>,
    /// Who signed the genesis; `None` if there is none, or its signature wasn't looked at.
    pub signed_by: Option<SignedBy>,
    /// The chain that this one took the place of.
    pub previous: Option<Previous>,
    /// Chains that it names and that were put aside, so that nothing shows whether they were as it says.
    pub put_aside: BTreeSet<String>,
    /// Where verification ended, if before the end. Nothing after it is reported.
    pub damage: Option<Damage>,
    /// Ids of calls with an intent and no closing entry, oldest first.
    pub dangling: Vec<String>,
    /// Times during which the ledger could not write.
    pub gaps: Vec<Gap>,
    /// A half-written end of the last segment.
    pub torn: Option<Torn>,
    pub(super) tip: Tip,
    pub(super) key: Option<String>,
    pub(super) torn_files: Vec<String>,
    claims: Vec<Claim>,
    /// The hashes at the places that were asked for.
    heads: HashMap<u64, Hash>,
}

/// What an entry says of another chain.
#[derive(Clone, Debug)]
struct Claim {
    seq: u64,
    segment: String,
    offset: u64,
    previous: Previous,
    /// Whether it says that the chain ends there, and not only that it got there.
    settles: bool,
}

/// The first line that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq} (`{segment}`, byte {offset}): {fault}")]
pub struct Damage {
    /// The sequence number that the line should have.
    pub seq: u64,
    /// Name of the file, a segment or `chain`.
    pub segment: String,
    /// Where the line starts in it, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl Damage {
    /// What is wrong with a directory as a whole.
    pub(super) fn whole(fault: Fault) -> Self {
        Self { seq: 0, segment: CHAIN_FILE.to_owned(), offset: 0, fault }
    }
}

/// A `gap` entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its sequence number.
    pub seq: u64,
    /// How many entries were lost.
    pub count: u64,
}

/// A piece without line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// File name of the segment.
    pub segment: String,
    /// Where the piece starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Verifies the one chain in `directory`, and no other that belongs to its ledger: hashes, order,
/// canonical form, and the signature of the genesis.
///
/// # Errors
/// Only if the files can't be read; damage is part of the report.
pub fn verify(directory: &Path) -> io::Result<Report> {
    walk(directory, Depth::Everything)
}

/// Verifies all chains of a ledger, in the order in which they began, each with its directory. Each has to be
/// sound in itself, and what one says of another has to be so: a chain that was cut off before the place
/// that its successor names, or goes on after its successor said how it ended, is damage of the entry that says so.
///
/// # Errors
/// Only if the files can't be read; damage is part of the reports.
pub fn verify_all(ledger: &Path) -> io::Result<Vec<(PathBuf, Report)>> {
    let directories = directories(ledger)?;
    let mut reports: Vec<(PathBuf, Report)> = Vec::new();
    let mut put_aside = HashSet::new();
    // From the newest on: what a chain says of an older one was true when it was said, and is true for good.
    for (index, directory) in directories.iter().enumerate().rev() {
        let claims = || reports.iter().flat_map(|(_, report)| &report.claims);
        let wanted = claims().map(|claim| claim.previous.entries).collect();
        let mut report = walk_noting(directory, Depth::Everything, wanted)?;
        for (_, newer) in &mut reports {
            newer.compare(&report);
        }
        let put_aside_here = replace::put_aside(directory)?;
        if index == 0 {
            // It follows nothing but what was put aside, which may have been taken elsewhere since.
            report.claims.clear();
        } else if report.chain.is_none() && put_aside_here.is_empty() {
            report.damage.get_or_insert(Damage::whole(Fault::Emptied));
        }
        put_aside.extend(put_aside_here);
        reports.push((directory.clone(), report));
    }
    for (_, report) in &mut reports {
        report.compare_with_nothing(&put_aside);
    }
    reports.reverse();
    Ok(reports)
}

impl Report {
    /// Whether it says how that chain ended.
    pub(super) fn settles(&self, chain: &str) -> bool {
        self.claims.iter().any(|claim| claim.settles && claim.previous.chain == chain)
    }

    /// Whether it says of another chain that it was put aside.
    pub(super) fn tells_of(&self, put_aside: &Previous) -> bool {
        let told = |claim: &Claim| claim.seq > 0 && !claim.settles && claim.previous == *put_aside;
        self.claims.iter().any(told)
    }

    /// Holds what was said of an older chain against it.
    fn compare(&mut self, older: &Report) {
        let Some(chain) = &older.chain else { return };
        let claims = mem::take(&mut self.claims);
        for claim in claims {
            if claim.previous.chain != *chain {
                self.claims.push(claim);
                continue;
            }
            let found = match claim.previous.entries {
                0 => Some(&Tip::GENESIS.head),
                entries => older.heads.get(&entries),
            };
            if found.map(|head| HEXLOWER.encode(head)).as_ref() != Some(&claim.previous.head) {
                self.object(claim, Fault::Previous);
            } else if claim.settles && older.goes_on_after(claim.previous.entries) {
                self.object(claim, Fault::Outgrown);
            }
        }
    }

    /// Whether anything follows so many entries. Half a line counts: the next start would write of it.
    fn goes_on_after(&self, entries: u64) -> bool {
        self.entries > entries || self.torn.is_some()
    }

    /// What is left was said of chains that aren't there. Of one that was put aside nothing can be held against
    /// it: it was damaged.
    fn compare_with_nothing(&mut self, put_aside: &HashSet<String>) {
        for claim in mem::take(&mut self.claims) {
            if put_aside.contains(&claim.previous.chain) {
                self.put_aside.insert(claim.previous.chain);
            } else {
                self.object(claim, Fault::PreviousMissing);
            }
        }
    }

    fn object(&mut self, claim: Claim, fault: impl FnOnce(String) -> Fault) {
        let Claim { seq, segment, offset, previous, settles: _ } = claim;
        let damage = Damage { seq, segment, offset, fault: fault(previous.chain) };
        self.damage.get_or_insert(damage);
    }
}

pub(super) fn walk(directory: &Path, depth: Depth) -> io::Result<Report> {
    walk_noting(directory, depth, HashSet::new())
}

/// Also notes the hashes of those entries after which the chain had one of these lengths.
fn walk_noting(directory: &Path, depth: Depth, wanted: HashSet<u64>) -> io::Result<Report> {
    let segments = segments(directory)?;
    let mut walk = Walk::new(depth, wanted);
    let last = segments.len().saturating_sub(1);
    for (index, segment) in segments.iter().enumerate() {
        if let Err(damage) = walk.segment(segment, index == last)? {
            walk.damage = Some(damage);
            break;
        }
    }
    if walk.damage.is_none()
        && let Some(fault) = walk.contradicts(recorded_chain(directory)?)
    {
        walk.damage = Some(Damage::whole(fault));
    }
    Ok(walk.finish())
}

/// The chain that the directory holds, according to the note written beside it.
pub(super) fn recorded_chain(directory: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(directory.join(CHAIN_FILE)) {
        Ok(chain) => Ok(Some(chain.trim_end().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct Walk {
    follower: Follower,
    open: HashMap<String, u64>,
    gaps: Vec<Gap>,
    torn: Option<Torn>,
    torn_files: Vec<String>,
    key: Option<String>,
    claims: Vec<Claim>,
    wanted: HashSet<u64>,
    heads: HashMap<u64, Hash>,
    damage: Option<Damage>,
}

impl Walk {
    fn new(depth: Depth, wanted: HashSet<u64>) -> Self {
        Self {
            follower: Follower::new(depth),
            open: HashMap::new(),
            gaps: Vec::new(),
            torn: None,
            torn_files: Vec::new(),
            key: None,
            claims: Vec::new(),
            wanted,
            heads: HashMap::new(),
            damage: None,
        }
    }

    fn segment(&mut self, segment: &Segment, last: bool) -> io::Result<Result<(), Damage>> {
        let damage = |seq, offset, fault| Damage { seq, segment: segment.name(), offset, fault };
        let expected = self.follower.tip.next;
        if segment.first != expected {
            return Ok(Err(damage(expected, 0, Fault::Segment(segment.name()))));
        }
        let mut pieces = Pieces::open(&segment.path)?;
        while let Some(piece) = pieces.read()? {
            if piece == Piece::Torn && last {
                let bytes = pieces.bytes.len() as u64;
                self.torn = Some(Torn { segment: segment.name(), offset: pieces.offset, bytes });
                break;
            }
            let seq = self.follower.tip.next;
            match self.follower.follow(piece, &pieces.bytes) {
                Ok(head) => {
                    if let Some(previous) = head.previous.clone() {
                        let (segment, offset) = (segment.name(), pieces.offset);
                        let settles = head.kind == "settled";
                        self.claims.push(Claim { seq, segment, offset, previous, settles });
                    }
                    self.note(seq, head);
                }
                Err(fault) => return Ok(Err(damage(seq, pieces.offset, fault))),
            }
        }
        Ok(Ok(()))
    }

    /// Compares what was found with what the directory is known to hold.
    fn contradicts(&self, recorded: Option<String>) -> Option<Fault> {
        let recorded = recorded?;
        match &self.follower.chain {
            None => Some(Fault::Missing(recorded)),
            Some(found) if *found != recorded => Some(Fault::Chain(found.clone())),
            Some(_) => None,
        }
    }

    fn note(&mut self, seq: u64, head: Head) {
        match (head.kind.as_str(), head.call_id) {
            ("intent", Some(call_id)) => {
                self.open.insert(call_id, seq);
            }
            ("outcome" | "denied" | "recovered", Some(call_id)) => {
                self.open.remove(&call_id);
            }
            _ => {}
        }
        self.torn_files.extend(head.torn_file);
        self.gaps.extend(head.count.map(|count| Gap { seq, count }));
        if seq == 0 {
            self.key = head.key;
        }
        let tip = &self.follower.tip;
        if self.wanted.contains(&tip.next) {
            self.heads.insert(tip.next, tip.head);
        }
    }

    fn finish(self) -> Report {
        let tip = self.follower.tip;
        let mut dangling: Vec<_> = self.open.into_iter().collect();
        dangling.sort_by_key(|(_, seq)| *seq);
        let genesis = self.claims.iter().find(|claim| claim.seq == 0);
        Report {
            chain: self.follower.chain,
            entries: tip.next,
            head: (tip.next > 0).then_some(tip.head),
            signed_by: self.follower.signed_by,
            previous: genesis.map(|claim| claim.previous.clone()),
            put_aside: BTreeSet::new(),
            damage: self.damage,
            dangling: dangling.into_iter().map(|(call_id, _)| call_id).collect(),
            gaps: self.gaps,
            torn: self.torn,
            tip,
            key: self.key,
            torn_files: self.torn_files,
            claims: self.claims,
            heads: self.heads,
        }
    }
}

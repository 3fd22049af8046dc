//! Opens a directory for writing: the lock, the key, the first entry or the way back into an old chain.
//!
//! Every segment is replayed. A half-written end is what a crash leaves; it is set aside, and said so in
//! the chain. Anything else that doesn't follow is damage or tampering, and the ledger does not start on
//! it: going on would bury it. Intents without a closing entry get `recovered` with status `unknown`,
//! which is the honest answer for a call that may or may not have run.
//!
//! A start takes every chain of the ledger in this way, and goes on with the newest, which says how the others
//! ended, or that they were put aside. While somebody writes one of them, only a process that takes over from it starts: it
//! begins a chain of its own.

use std::{
    error::Error,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use data_encoding::HEXLOWER;
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use sha2::{Digest as _, Sha256};

use super::{
    chains::{self, directories},
    check::{Depth, Fault},
    genesis::{Genesis, GenesisLine, Previous, new_chain},
    line::{Body, Tip},
    replace,
    segment::{Segments, Store as _, file_name, segments, sync_directory},
    stamp::Stamp,
    verify::{Damage, Report, Torn, recorded_chain, walk},
    writer::Writer,
};

/// Names the chain, so that the loss of all its segments is seen.
pub(super) const CHAIN_FILE: &str = "chain";
const KEY_FILE: &str = "ledger.key";
const LOCK_FILE: &str = "lock";

/// Why a ledger can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, writes there.
    #[error("ledger `{0}` is in use by another writer")]
    InUse(PathBuf),
    /// The chain is broken at the place given, not by a crash.
    #[error("ledger `{directory}` is damaged; see `lictor ledger verify` and `replace`")]
    Damaged {
        /// The ledger's directory.
        directory: PathBuf,
        /// The first line that is wrong.
        source: Damage,
    },
    /// The chain belongs to another identity.
    #[error("ledger `{directory}` holds chain `{chain}`, which is not of `{spiffe_id}`")]
    OtherIdentity {
        /// The ledger's directory.
        directory: PathBuf,
        /// The chain found.
        chain: String,
        /// The identity given.
        spiffe_id: String,
    },
    /// The chain to follow isn't in this ledger.
    #[error("ledger `{directory}` doesn't hold chain `{chain}`, which is to be followed")]
    OtherLedger {
        /// The ledger's directory.
        directory: PathBuf,
        /// The chain to follow.
        chain: String,
    },
    /// The key file can't be used.
    #[error("ledger key `{path}`: {reason}")]
    Key {
        /// The key file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The identity's key didn't sign the first entry.
    #[error("the first entry can't be signed")]
    Sign(#[source] Box<dyn Error + Send + Sync>),
    /// The file system refused.
    #[error("ledger `{directory}` can't be {verb}")]
    Io {
        /// The ledger's directory.
        directory: PathBuf,
        /// What was tried.
        verb: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// A chain that is ready to go on.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) chain: Arc<str>,
    pub(super) tip: Tip,
    pub(super) segments: Segments,
    /// Held for as long as somebody writes.
    pub(super) lock: File,
    /// What has to be written before anything else.
    pub(super) owed: Vec<Body>,
    /// Where a chain was put aside, and the note of it can go when `owed` is written.
    pub(super) noted: Vec<PathBuf>,
    /// Where the chain is that this one follows, while somebody still writes it.
    pub(super) predecessor: Option<PathBuf>,
}

/// Opens the newest chain of a ledger, or begins the first. What the others were left with is closed.
pub(super) fn open(ledger: &Path, genesis: &Genesis) -> Result<Opened, OpenError> {
    make_directory(ledger).map_err(io(ledger, "created"))?;
    let mut chains = directories(ledger).map_err(io(ledger, "read"))?;
    let newest = chains.pop().unwrap_or_else(|| ledger.to_owned());
    let (mut ended, mut reports, mut aside) = (Vec::new(), Vec::new(), Vec::new());
    for chain in &chains {
        match settle(chain)? {
            Some((previous, report)) => {
                ended.push(previous);
                reports.push(report);
            }
            None => aside.extend(put_aside(chain)?),
        }
    }
    let (mut opened, report) = go_on(ledger, &newest, genesis)?;
    opened.tell(aside, &report);
    // Also of one that nobody follows, and of one of which only a chain told that was put aside since.
    reports.push(report);
    ended.retain(|previous| !reports.iter().any(|report| report.settles(&previous.chain)));
    opened.owed.extend(ended.into_iter().map(|previous| Body::Settled { previous }));
    Ok(opened)
}

/// Begins a chain that follows another one of the ledger, which somebody else still writes.
pub(super) fn succeed(
    ledger: &Path,
    genesis: &Genesis,
    previous: &Previous,
) -> Result<Opened, OpenError> {
    let chains = directories(ledger).map_err(io(ledger, "read"))?;
    let (mut predecessor, mut aside) = (None, Vec::new());
    for chain in &chains {
        let recorded = recorded_chain(chain).map_err(io(chain, "read"))?;
        if recorded.as_ref() == Some(&previous.chain) {
            predecessor = Some(chain.clone());
            continue;
        }
        // One that somebody writes is none of ours.
        match settle(chain) {
            Ok(None) => aside.extend(put_aside(chain)?),
            Ok(Some(_)) | Err(OpenError::InUse(_)) => {}
            Err(error) => return Err(error),
        }
    }
    if predecessor.is_none() {
        let (directory, chain) = (ledger.to_owned(), previous.chain.clone());
        return Err(OpenError::OtherLedger { directory, chain });
    }
    let (place, draft) = chains::place(ledger, &chains);
    // What a crash has left of an earlier one.
    match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io(&draft, "created")(error));
        }
        Ok(()) | Err(_) => make_directory(&draft).map_err(io(&draft, "created"))?,
    }
    begin(&draft, genesis, Some(previous))?;
    fs::rename(&draft, &place)
        .and_then(|()| sync_directory(ledger))
        .map_err(io(&place, "created"))?;
    let (mut opened, report) = go_on(ledger, &place, genesis)?;
    opened.tell(aside, &report);
    Ok(Opened { predecessor, ..opened })
}

/// What no chain says yet of one that was put aside in a directory.
fn put_aside(directory: &Path) -> Result<Option<(PathBuf, Previous)>, OpenError> {
    let noted = replace::noted(directory).map_err(io(directory, "read"))?;
    Ok(noted.map(|previous| (directory.to_owned(), previous)))
}

impl Opened {
    /// Records what was put aside, unless a start did that was cut short before it forgot the notes.
    fn tell(&mut self, aside: Vec<(PathBuf, Previous)>, report: &Report) {
        for (directory, previous) in aside {
            if !report.tells_of(&previous) {
                self.owed.push(Body::Replaced { previous });
            }
            self.noted.push(directory);
        }
    }
}

/// Closes what the last writer of a chain left open, and says how far the chain goes, and what was found in it
/// before. `None` if there is none.
pub(super) fn settle(directory: &Path) -> Result<Option<(Previous, Report)>, OpenError> {
    let lock = lock(directory)?;
    let report = sound(directory)?;
    let Some(chain) = report.chain.clone() else { return Ok(None) };
    replace::forget(directory).map_err(io(directory, "written"))?;
    let owed = owed(directory, &report).map_err(io(directory, "read"))?;
    let mut tip = report.tip;
    if !owed.is_empty() {
        let segments = last_segment(directory)?;
        let mut writer = Writer::new(chain.as_str().into(), tip, segments, lock);
        let now = Stamp::now();
        writer.append(owed.iter().map(|body| (now, body))).map_err(io(directory, "written"))?;
        tip = writer.tip();
    }
    Ok(Some((Previous::at(&chain, tip), report)))
}

/// Opens the chain in a directory, or begins one that follows nothing but a chain that was put aside.
fn go_on(
    ledger: &Path,
    directory: &Path,
    genesis: &Genesis,
) -> Result<(Opened, Report), OpenError> {
    let lock = lock(directory)?;
    let mut report = sound(directory)?;
    let chain = match &report.chain {
        Some(chain) => {
            same_identity(directory, chain, genesis)?;
            key(directory, report.key.as_deref())?;
            record_chain(directory, chain).map_err(io(directory, "written"))?;
            chain.clone()
        }
        None => {
            let previous = replace::noted(directory).map_err(io(directory, "read"))?;
            if previous.is_none() && directory != ledger {
                let source = Damage::whole(Fault::Emptied);
                return Err(OpenError::Damaged { directory: directory.to_owned(), source });
            }
            let (chain, tip) = begin(directory, genesis, previous.as_ref())?;
            report.tip = tip;
            chain
        }
    };
    replace::forget(directory).map_err(io(directory, "written"))?;
    let segments = last_segment(directory)?;
    let owed = owed(directory, &report).map_err(io(directory, "read"))?;
    let (chain, tip) = (chain.into(), report.tip);
    let noted = Vec::new();
    Ok((Opened { chain, tip, segments, lock, owed, noted, predecessor: None }, report))
}

/// Replays a chain, and sets a half-written end aside.
fn sound(directory: &Path) -> Result<Report, OpenError> {
    let report = walk(directory, Depth::Links).map_err(io(directory, "read"))?;
    if let Some(source) = report.damage {
        return Err(OpenError::Damaged { directory: directory.to_owned(), source });
    }
    if let Some(torn) = &report.torn {
        set_aside(directory, torn).map_err(io(directory, "repaired"))?;
    }
    Ok(report)
}

/// Writes the first entry of a new chain; its id, and where it stands then.
fn begin(
    directory: &Path,
    genesis: &Genesis,
    previous: Option<&Previous>,
) -> Result<(String, Tip), OpenError> {
    let key = key(directory, None)?;
    let chain = new_chain(genesis);
    let line = GenesisLine::new(&chain, genesis, &key, previous).map_err(OpenError::Sign)?;
    let (mut tip, mut bytes) = (Tip::GENESIS, Vec::new());
    let mut segments = last_segment(directory)?;
    tip.begin(&line, &mut bytes)
        .and_then(|()| segments.append(&bytes))
        .and_then(|()| segments.sync())
        .and_then(|()| record_chain(directory, &chain))
        .map_err(io(directory, "written"))?;
    Ok((chain, tip))
}

/// The segment that the next entry belongs in.
fn last_segment(directory: &Path) -> Result<Segments, OpenError> {
    let last = segments(directory).map_err(io(directory, "read"))?.pop();
    let path = last.map_or_else(|| directory.join(file_name(0)), |last| last.path);
    Segments::open(directory, path).map_err(io(directory, "written"))
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn io(directory: &Path, verb: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io { directory: directory.to_owned(), verb, source }
}

/// Takes the directory. The lock belongs to the open file, so it keeps out threads as well as processes,
/// and a crash releases it.
pub(super) fn lock(directory: &Path) -> Result<File, OpenError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join(LOCK_FILE))
        .map_err(io(directory, "locked"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(io(directory, "locked")(source)),
    }
}

fn same_identity(directory: &Path, chain: &str, genesis: &Genesis) -> Result<(), OpenError> {
    let owner = chain.rsplit_once('#').map(|(owner, _)| owner);
    match &genesis.spiffe_id {
        Some(spiffe_id) if owner != Some(spiffe_id) => Err(OpenError::OtherIdentity {
            directory: directory.to_owned(),
            chain: chain.to_owned(),
            spiffe_id: spiffe_id.clone(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Moves a half-written end into a file of its own. The copy is durable before the segment is cut, so a
/// crash in between leaves both.
fn set_aside(directory: &Path, torn: &Torn) -> io::Result<()> {
    let path = directory.join(&torn.segment);
    let mut segment = OpenOptions::new().read(true).write(true).open(&path)?;
    let mut piece = Vec::new();
    segment.seek(SeekFrom::Start(torn.offset))?;
    segment.read_to_end(&mut piece)?;
    // Colons are no characters for file names everywhere.
    let now = Stamp::now().to_string().replace(':', "-");
    write_new(directory, &format!("{}.torn-{now}", torn.segment), &piece)?;
    segment.set_len(torn.offset)?;
    segment.sync_all()
}

/// Writes a file that is there completely or not at all.
pub(super) fn write_new(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (draft, path) = (directory.join(format!("{name}.new")), directory.join(name));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(draft, path)?;
    sync_directory(directory)
}

pub(super) fn record_chain(directory: &Path, chain: &str) -> io::Result<()> {
    match recorded_chain(directory)? {
        Some(recorded) if recorded == chain => Ok(()),
        Some(_) | None => write_new(directory, CHAIN_FILE, format!("{chain}\n").as_bytes()),
    }
}

/// The ledger's key: made at the first start, later the one that the genesis names.
fn key(directory: &Path, expected: Option<&str>) -> Result<Ed25519KeyPair, OpenError> {
    let path = directory.join(KEY_FILE);
    let io = || io(directory, "keyed");
    let fail = |reason| OpenError::Key { path: path.clone(), reason };
    let pkcs8 = match fs::read(&path) {
        Ok(pkcs8) => pkcs8,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io()(error)),
        Err(_) if expected.is_some() => return Err(fail("it is gone")),
        Err(_) => {
            let fresh = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
                .map_err(|_| fail("no random numbers"))?;
            write_new(directory, KEY_FILE, fresh.as_ref()).map_err(io())?;
            fresh.as_ref().to_vec()
        }
    };
    let mode = fs::metadata(&path).map_err(io())?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(fail("others can read it; set its mode to 600"));
    }
    let key = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| fail("not an Ed25519 key"))?;
    match expected {
        Some(expected) if expected != HEXLOWER.encode(key.public_key().as_ref()) => {
            Err(fail("not the key that the first entry names"))
        }
        Some(_) | None => Ok(key),
    }
}

/// What earlier runs left unsaid: pieces set aside and calls without an end.
fn owed(directory: &Path, report: &Report) -> io::Result<Vec<Body>> {
    let mut owed = Vec::new();
    for file in fs::read_dir(directory)? {
        let file = file?;
        let Ok(name) = file.file_name().into_string() else { continue };
        let torn = name.contains(".jsonl.torn-") && !name.ends_with(".new");
        if torn && !report.torn_files.contains(&name) {
            let piece = fs::read(file.path())?;
            owed.push(Body::Torn {
                bytes: piece.len() as u64,
                sha256: Sha256::digest(&piece).into(),
                file: name,
            });
        }
    }
    let calls = report.dangling.iter().cloned();
    owed.extend(calls.map(|call_id| Body::Recovered { call_id }));
    Ok(owed)
}

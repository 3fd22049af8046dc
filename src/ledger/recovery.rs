//! Opens a directory for writing: the lock, the key, the first entry or the way back into an old chain.
//!
//! Every segment is replayed. A half-written end is what a crash leaves; it is set aside, and said so in
//! the chain. Anything else that doesn't follow is damage or tampering, and the ledger does not start on
//! it: going on would bury it. Intents without a closing entry get `recovered` with status `unknown`,
//! which is the honest answer for a call that may or may not have run.

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
    check::Depth,
    genesis::{Genesis, GenesisLine, new_chain},
    line::{Body, Tip},
    replace,
    segment::{Segments, Store as _, file_name, segments, sync_directory},
    stamp::Stamp,
    verify::{Damage, Report, Torn, recorded_chain, walk},
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
}

/// Opens or begins the chain in `directory`.
pub(super) fn open(directory: &Path, genesis: &Genesis) -> Result<Opened, OpenError> {
    let io = |verb| move |source| OpenError::Io { directory: directory.to_owned(), verb, source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io("created"))?;
    let lock = lock(directory)?;
    let report = walk(directory, Depth::Links).map_err(io("read"))?;
    if let Some(source) = report.damage {
        return Err(OpenError::Damaged { directory: directory.to_owned(), source });
    }
    if let Some(torn) = &report.torn {
        set_aside(directory, torn).map_err(io("repaired"))?;
    }
    let key = key(directory, report.key.as_deref())?;
    let last = segments(directory).map_err(io("read"))?.pop();
    let path = last.map_or_else(|| directory.join(file_name(0)), |last| last.path);
    let mut segments = Segments::open(directory, path).map_err(io("written"))?;
    let mut tip = report.tip;
    let chain = match &report.chain {
        Some(chain) => {
            same_identity(directory, chain, genesis)?;
            chain.clone()
        }
        None => {
            let chain = new_chain(genesis);
            let previous = replace::noted(directory).map_err(io("read"))?;
            let line = GenesisLine::new(&chain, genesis, &key, previous.as_ref())
                .map_err(OpenError::Sign)?;
            let mut bytes = Vec::new();
            tip.begin(&line, &mut bytes)
                .and_then(|()| segments.append(&bytes))
                .and_then(|()| segments.sync())
                .map_err(io("written"))?;
            chain
        }
    };
    record_chain(directory, &chain)
        .and_then(|()| replace::forget(directory))
        .map_err(io("written"))?;
    let owed = owed(directory, &report).map_err(io("read"))?;
    Ok(Opened { chain: chain.into(), tip, segments, lock, owed })
}

/// Takes the directory. The lock belongs to the open file, so it keeps out threads as well as processes,
/// and a crash releases it.
pub(super) fn lock(directory: &Path) -> Result<File, OpenError> {
    let io = |source| OpenError::Io { directory: directory.to_owned(), verb: "locked", source };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join(LOCK_FILE))
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(io(source)),
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

fn record_chain(directory: &Path, chain: &str) -> io::Result<()> {
    match recorded_chain(directory)? {
        Some(recorded) if recorded == chain => Ok(()),
        Some(_) | None => write_new(directory, CHAIN_FILE, format!("{chain}\n").as_bytes()),
    }
}

/// The ledger's key: made at the first start, later the one that the genesis names.
fn key(directory: &Path, expected: Option<&str>) -> Result<Ed25519KeyPair, OpenError> {
    let path = directory.join(KEY_FILE);
    let io = |source| OpenError::Io { directory: directory.to_owned(), verb: "keyed", source };
    let fail = |reason| OpenError::Key { path: path.clone(), reason };
    let pkcs8 = match fs::read(&path) {
        Ok(pkcs8) => pkcs8,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        Err(_) if expected.is_some() => return Err(fail("it is gone")),
        Err(_) => {
            let fresh = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
                .map_err(|_| fail("no random numbers"))?;
            write_new(directory, KEY_FILE, fresh.as_ref()).map_err(io)?;
            fresh.as_ref().to_vec()
        }
    };
    let mode = fs::metadata(&path).map_err(io)?.permissions().mode();
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

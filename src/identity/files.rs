//! Identity from PEM files, watched by reading them.
//!
//! They are read four times a second and compared by content: notifications of the file system don't fire for
//! every way in which a mounted volume is replaced, and a look costs microseconds. A change counts once
//! two reads in a row saw the same bytes, since a file that is half written can be a well-formed bundle
//! with a root missing.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path, time::Duration};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    Files, SpiffeId,
    keeper::{Keeper, Material, Observation},
    source::StartError,
};
use crate::telemetry::Causes;

const EVERY: Duration = Duration::from_millis(250);

/// Largest file that is read; real ones have a few kilobytes.
const MAX_LEN: u64 = 1024 * 1024;

/// The bytes of every file, in a fixed order.
type Contents = Vec<Vec<u8>>;

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("`{path}` can't be read")]
    Read { path: String, source: std::io::Error },
    #[error("`{path}` is larger than {MAX_LEN} bytes")]
    TooLarge { path: String },
    #[error("`{path}` is no PEM file of the expected kind")]
    Pem { path: String, source: rustls::pki_types::pem::Error },
    #[error("`{path}` holds no certificate")]
    Empty { path: String },
}

/// Refuses settings that no change of a file can mend.
pub(super) fn check(files: &Files) -> Result<(), StartError> {
    match files.bundles.keys().find(|domain| !is_trust_domain(domain)) {
        Some(domain) => Err(StartError::TrustDomain(domain.clone())),
        None => Ok(()),
    }
}

/// Looks at the files once.
pub(super) fn look(files: &Files) -> Observation {
    match read(files).and_then(|contents| parse(files, &contents)) {
        Ok(material) => Observation::Present(material),
        Err(error) => Observation::Unavailable(Causes(&error).to_string()),
    }
}

/// Looks at the files for as long as the task lives.
pub(super) async fn watch(files: Files, mut keeper: Keeper) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Contents> = None;
    loop {
        ticks.tick().await;
        let to_read = files.clone();
        let Ok(contents) = tokio::task::spawn_blocking(move || read(&to_read)).await else {
            continue;
        };
        match contents {
            Ok(contents) if last.as_ref() == Some(&contents) => {
                keeper.observe(match parse(&files, &contents) {
                    Ok(material) => Observation::Present(material),
                    Err(error) => Observation::Unavailable(Causes(&error).to_string()),
                });
            }
            Ok(contents) => {
                last = Some(contents);
                keeper.tick();
            }
            Err(error) => {
                last = None;
                keeper.observe(Observation::Unavailable(Causes(&error).to_string()));
            }
        }
    }
}

fn is_trust_domain(name: &str) -> bool {
    SpiffeId::parse(&format!("spiffe://{name}/w")).is_ok_and(|id| id.trust_domain() == name)
}

fn read(files: &Files) -> Result<Contents, FileError> {
    let paths = [&files.certificate, &files.key];
    paths.into_iter().chain(files.bundles.values()).map(|path| read_file(path)).collect()
}

fn read_file(path: &Path) -> Result<Vec<u8>, FileError> {
    let name = || path.display().to_string();
    let failed = |source| FileError::Read { path: name(), source };
    let mut content = vec![];
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_LEN + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > MAX_LEN {
        return Err(FileError::TooLarge { path: name() });
    }
    Ok(content)
}

fn parse(files: &Files, contents: &Contents) -> Result<Material, FileError> {
    let mut contents = contents.iter();
    let mut next = || contents.next().map(Vec::as_slice).unwrap_or_default();
    let chain = certificates(&files.certificate, next())?;
    let key = PrivateKeyDer::from_pem_slice(next())
        .map_err(|source| FileError::Pem { path: files.key.display().to_string(), source })?;
    let mut roots = BTreeMap::new();
    for (domain, path) in &files.bundles {
        roots.insert(domain.clone(), certificates(path, next())?);
    }
    Ok(Material { chain, key, roots })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let path = || path.display().to_string();
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| FileError::Pem { path: path(), source })?;
    if certificates.is_empty() {
        return Err(FileError::Empty { path: path() });
    }
    Ok(certificates)
}

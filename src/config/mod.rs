//! The configuration: the file as written, its conversion into each module's settings, its faults.
//!
//! A file is read in three steps: YAML into plain values (duplicate keys, aliases, merge keys and
//! tags are refused), the values against the published JSON schema, and what the schema let through
//! into [`Config`]. Faults of all steps are told at once, each with its place and, where there is
//! one, a hint; a part that is at fault doesn't hide the faults of the others.
//!
//! INVARIANT: a [`Config`] exists only if there was no fault, and everything in it was said in the
//! file or is a documented default (of which one looks at the environment); an unknown key is a fault and never ignored.

mod change;
mod convert;
mod drop_in;
mod fault;
mod names;
mod schema;
mod shape;
mod units;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    admin, delegation, identity, ledger, limits, listener, policy,
    proxy::settings as proxy_settings,
    state, telemetry, upstream,
    written::{Bounds, unreadable, yaml_options},
};

pub use drop_in::{Governed, drop_in, state_directory};
pub use fault::{Fault, Faults, Place};
pub(crate) use names::{check_endpoint, is_loopback};

/// Largest configuration file in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Nothing that a configuration needs comes near them.
const BOUNDS: Bounds = Bounds { depth: 32, nodes: 100_000, documents: 1 };

/// A configuration without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Lictor's own identity; present whenever a listener or an upstream needs it.
    pub identity: Option<identity::Settings>,
    /// Where callers connect; never empty.
    pub listeners: Vec<Listener>,
    /// The servers behind Lictor; every route leads to one of them.
    pub upstreams: Vec<upstream::Settings>,
    /// What callers may do.
    pub policy: policy::Settings,
    /// What chains of delegation may be. `None`: everybody calls for themselves.
    pub delegation: Option<delegation::Settings>,
    /// The record of every call.
    pub ledger: ledger::Settings,
    /// Where it is kept what belongs to whom.
    pub state: state::Settings,
    /// Health and metrics.
    pub admin: admin::Settings,
    /// How many calls there may be; names are unique.
    pub rate_limits: Vec<limits::Limit>,
    /// Bounds on what is held in memory.
    pub limits: proxy_settings::Limits,
    /// How long calls in flight may take to finish once the process is told to stop.
    pub drain: Duration,
    /// Logs.
    pub telemetry: telemetry::Settings,
}

/// A listener and what it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The door.
    pub settings: listener::Settings,
    /// What is behind it; never empty.
    pub routes: Vec<proxy_settings::Route>,
}

impl Config {
    /// The settings in force that weaken what Lictor enforces, and how often each occurs; to be
    /// logged at start and shown in metrics.
    pub fn weakened(&self) -> Vec<(&'static str, usize)> {
        let routes = self.listeners.iter().flat_map(|listener| &listener.routes);
        let shadow = routes.filter(|route| route.shadow).count();
        let deny_writes = usize::from(self.ledger.on_failure == ledger::OnFailure::DenyWrites);
        let plaintext = usize::from(match &self.state {
            state::Settings::Memory | state::Settings::Directory(_) => false,
            state::Settings::Redis(redis) => redis.is_exposed(),
        });
        let allows = |limit: &&limits::Limit| limit.allows_on_store_failure();
        let unlimited = self.rate_limits.iter().filter(allows).count();
        let all = [
            ("mode: shadow", shadow),
            ("onFailure: denyWrites", deny_writes),
            ("onStoreFailure: unsafeAllow", unlimited),
            ("unsafePlaintext", plaintext),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// Reads a configuration file; relative paths in it start from its folder.
pub fn load(path: &Path) -> Result<Config, Faults> {
    File::read(path)?.parse()
}

/// A configuration file as it was read.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    text: String,
}

impl File {
    /// Reads the file and understands nothing of it yet.
    pub fn read(path: &Path) -> Result<Self, Faults> {
        let text = read(path).map_err(|error| {
            let mut faults = Faults::default();
            let problem = format!("`{}` can't be read: {error}", path.display());
            faults.push(&Place::default(), problem);
            faults
        })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// What it says; relative paths in it start from its folder.
    pub fn parse(&self) -> Result<Config, Faults> {
        parse(&self.text, self.path.parent().unwrap_or(Path::new("")))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The SHA-256 of its bytes.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.text).into()
    }
}

/// Reads a configuration from its text; relative paths in it start from `base`.
pub fn parse(text: &str, base: &Path) -> Result<Config, Faults> {
    let mut faults = Faults::default();
    let written: Value = match serde_saphyr::from_str_with_options(text, yaml_options(&BOUNDS)) {
        Ok(value) => value,
        Err(error) => {
            faults.push(&Place::default(), unreadable(&error));
            return Err(faults);
        }
    };
    if written.is_null() {
        faults.push(&Place::default(), "the file is empty");
        return Err(faults);
    }
    let mut readable = written.clone();
    schema::check(&mut readable, &mut faults);
    let document = match serde_json::from_value(readable) {
        Ok(document) => document,
        // The schema accepts nothing that the shape doesn't, so this follows from faults told
        // before.
        Err(_) if !faults.is_empty() => return Err(faults),
        Err(error) => {
            faults.push(&Place::default(), error.to_string());
            return Err(faults);
        }
    };
    match convert::config(document, &written, base, &mut faults) {
        Some(config) if faults.is_empty() => Ok(config),
        _ => Err(faults),
    }
}

/// The published JSON schema of the file, as text.
pub fn schema() -> String {
    format!("{:#}\n", schema::schema())
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if u64::try_from(read).is_ok_and(|read| read <= MAX_FILE) {
        Ok(text)
    } else {
        Err(std::io::Error::other(format!("longer than {MAX_FILE} bytes")))
    }
}

#[cfg(test)]
mod tests;

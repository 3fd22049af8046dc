//! Follows configuration and policies: what changes in their files comes into force, or it is told why not.
//!
//! Files are looked at twice a second, first by their sizes and times. Once they have changed and stay the same for
//! a look, they are read: what is half written can be well formed, and say less than it will. On SIGHUP they are
//! read at once. Configuration and policies that have changed come into force together.
//!
//! A configuration that can't be taken over doesn't hold up policies: under the old one, they still come into
//! force. Who has to forbid something in a hurry must not be stopped by a file that waits for a restart.
//!
//! Policies that can't be read are refused as those that are wrong: out loud, once for each state of their directory.
//! As long as what is there isn't in force, readiness and metrics say so.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    signal::unix::Signal,
    time::{MissedTickBehavior, interval},
};

use super::{
    StartError,
    plan::{self, fingerprint},
    site::{Policing, Refused, Site},
};
use crate::{
    admin::Readiness,
    config::{Config, File},
    policy::{self, Glance, Policies},
    telemetry::Causes,
};

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Looks after which files are read that won't stop changing.
const RESTLESS: usize = 10;

/// Tells what is odd about policies that are in force all the same, such as a set that permits nothing.
pub(super) fn warn_of(policies: &Policies) {
    for warning in policies.warnings() {
        tracing::warn!(%warning, "the policies are in force, but look at this");
    }
}

/// Follows policies and, where there is one, the configuration file.
pub(super) async fn follow(
    site: Arc<Site>,
    file: Option<PathBuf>,
    hangup: Signal,
    readiness: Arc<Readiness>,
) {
    let mut hangup = hangup;
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = Seen {
        fingerprint: site.in_force().fingerprint,
        policies: site.shared().policies.load().version().to_string(),
        current: true,
    };
    let (mut last, mut changes) = (None, 0);
    loop {
        let asked = tokio::select! {
            _ = ticks.tick() => false,
            asked = hangup.recv() => asked.is_some(),
        };
        let (at, path) = (Arc::clone(&site), file.clone());
        let now = aside(move || Look::at(path.as_deref(), &at.in_force().config)).await;
        let Some(now) = now else { continue };
        let changed = last.as_ref() != Some(&now);
        last = Some(now);
        changes += usize::from(changed);
        let settled = changes > 0 && (!changed || changes >= RESTLESS);
        if !settled && !asked {
            continue;
        }
        changes = 0;
        let (at, path, before) = (Arc::clone(&site), file.clone(), seen.clone());
        match aside(move || before.update(&at, path.as_deref(), asked)).await {
            Some(after) => seen = after,
            None => site.shared().record.metrics.config_reload(false),
        }
        readiness.set_policies_current(seen.current);
        site.shared().record.metrics.set_policies_current(seen.current);
    }
}

/// Does what may wait for a disk, or keeps a processor busy, away from the threads that serve calls. `None`,
/// with a line in the log, if it panicked.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work)
        .await
        .inspect_err(|error| tracing::error!(%error, "files can't be looked at"))
        .ok()
}

/// The files that something is made from with their sizes and times of change.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    policies: Glance,
    files: Vec<Option<(u64, u64, i64, i64)>>,
}

impl Look {
    fn at(file: Option<&Path>, config: &Config) -> Self {
        let seen = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            // The time of change can't be set back, as that of modification can.
            Some((metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
        };
        // Without a file there is nothing to make from the others.
        let named = plan::files(config).filter(|_| file.is_some());
        let files = file.into_iter().chain(named).map(seen).collect();
        Self { policies: Glance::at(&config.policy.directory), files }
    }
}

/// What was last tried to take over, be it in force or not.
#[derive(Clone, Debug)]
struct Seen {
    fingerprint: [u8; 32],
    policies: String,
    /// Whether those policies are in force.
    current: bool,
}

impl Seen {
    /// Takes over what has changed, or everything if somebody `asked`.
    fn update(mut self, site: &Site, file: Option<&Path>, asked: bool) -> Self {
        if file.is_some_and(|path| self.configuration(site, path, asked)) {
            return self;
        }
        let now = policy::version_on_disk(&site.in_force().config.policy);
        if now == self.policies && !asked {
            return self;
        }
        self.policies = now;
        let renewed = site.turn_to_policies(asked);
        self.current = renewed.is_ok();
        match renewed {
            Ok(policing) => tell(site, policing),
            Err(error) => {
                site.shared().record.metrics.policy_reload(false);
                for fault in error.faults {
                    tracing::error!(%fault, "policies not reloaded; the old ones stay in force");
                }
            }
        }
        self
    }

    /// Takes over the configuration and whatever policies there are now, if it has changed; whether it did.
    fn configuration(&mut self, site: &Site, path: &Path, asked: bool) -> bool {
        let metrics = &site.shared().record.metrics;
        let file = match File::read(path) {
            Ok(file) => file,
            Err(faults) => {
                metrics.config_reload(false);
                complain(&faults.into());
                return false;
            }
        };
        let now = fingerprint(Some(file.sha256()), &site.in_force().config);
        if now == self.fingerprint && !asked {
            return false;
        }
        self.fingerprint = now;
        let parsed = file.parse().map_err(Refused::from);
        match parsed.and_then(|config| site.turn_to(config, file.sha256(), asked)) {
            Ok(policing) => {
                let in_force = site.in_force();
                self.fingerprint = in_force.fingerprint;
                self.policies = site.shared().policies.load().version().to_string();
                self.current = true;
                metrics.config_reload(true);
                tracing::info!("configuration reloaded");
                tell(site, policing);
                true
            }
            Err(refused) => {
                metrics.config_reload(false);
                complain(&refused);
                false
            }
        }
    }
}

/// Tells that policies have come into force.
fn tell(site: &Site, policing: Policing) {
    if policing == Policing::Renewed {
        let version = Arc::clone(site.shared().policies.load().version());
        tracing::info!(version = &*version, "policies reloaded");
        site.shared().record.metrics.policy_reload(true);
    }
}

/// Tells why a configuration isn't taken over, each reason by itself.
fn complain(refused: &Refused) {
    match refused {
        Refused::Faults(faults) => faults.iter().for_each(not_reloaded),
        Refused::Start(StartError::Policies(error)) => error.faults.iter().for_each(not_reloaded),
        Refused::Start(error) => not_reloaded(&Causes(error)),
    }
}

fn not_reloaded(fault: &impl fmt::Display) {
    tracing::error!(%fault, "configuration not reloaded; the old one stays in force");
}

//! What a running Lictor can't take over from another configuration.

use super::{
    Config, Listener,
    fault::{Faults, Place},
};
use crate::listener::Settings;

/// What an operator does about it.
const RESTART: &str = "restart Lictor for it";

impl Config {
    /// Whether a process that runs by this configuration can go on by `next`.
    ///
    /// # Errors
    /// A fault for each key that has changed and is only read at the start.
    pub fn admits(&self, next: &Self) -> Result<(), Faults> {
        // All keys are named, so that nobody adds one without saying here whether it can change.
        let Self {
            identity,
            listeners,
            upstreams: _,
            policy: _,
            delegation: _,
            ledger,
            state,
            admin,
            rate_limits: _,
            limits: _,
            drain: _,
            telemetry,
        } = next;
        let root = Place::default();
        let mut faults = Faults::default();
        let mut fixed = |same: bool, place: Place| {
            if !same {
                faults.push_with(&place, "can't change while Lictor runs", RESTART);
            }
        };
        fixed(self.identity == *identity, root.key("identity"));
        fixed(self.ledger == *ledger, root.key("ledger"));
        fixed(self.state == *state, root.key("state"));
        fixed(self.admin.admin == admin.admin, root.key("admin").key("bind"));
        let token = self.admin.token_file == admin.token_file;
        fixed(token, root.key("admin").key("tokenFile"));
        fixed(self.admin.health == admin.health, root.key("health").key("bind"));
        fixed(self.telemetry == *telemetry, root.key("telemetry"));
        let at = root.key("listeners");
        for (index, listener) in listeners.iter().enumerate() {
            let place = at.index(index);
            let name = &listener.settings.name;
            let Some(old) = self.listeners.iter().find(|old| old.settings.name == *name) else {
                faults.push_with(&place, format!("the listener `{name}` is new"), RESTART);
                continue;
            };
            changed_keys(&old.settings, &listener.settings, &place, &mut faults);
        }
        let gone = |old: &&Listener| {
            !listeners.iter().any(|listener| listener.settings.name == old.settings.name)
        };
        for old in self.listeners.iter().filter(gone) {
            let problem = format!("the listener `{}` is gone", old.settings.name);
            faults.push_with(&at, problem, RESTART);
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

fn changed_keys(old: &Settings, new: &Settings, place: &Place, faults: &mut Faults) {
    let Settings {
        name: _,
        direction,
        bind,
        door,
        public_url: _,
        hosts: _,
        origins: _,
        max_connections,
        shield,
        head_timeout,
        body_timeout,
        stall_timeout,
        idle_timeout,
        keep_alive,
    } = new;
    let timeouts = place.key("timeouts");
    for (same, place) in [
        (old.direction == *direction, place.key("direction")),
        (old.bind == *bind, place.key("bind")),
        (old.door == *door, place.key("tls")),
        (old.max_connections == *max_connections, place.key("maxConnections")),
        (old.shield == *shield, place.key("shield")),
        (old.head_timeout == *head_timeout, timeouts.key("head")),
        (old.body_timeout == *body_timeout, timeouts.key("body")),
        (old.stall_timeout == *stall_timeout, timeouts.key("stall")),
        (old.idle_timeout == *idle_timeout, timeouts.key("idle")),
        (old.keep_alive == *keep_alive, timeouts.key("keepAlive")),
    ] {
        if !same {
            faults.push_with(&place, "can't change while Lictor runs", RESTART);
        }
    }
}

//! Servers that are processes.

use std::collections::BTreeMap;

use super::{Reader, shape};
use crate::{
    config::fault::Place,
    upstream::settings::{Command, Environment, Processes},
};

impl Reader<'_> {
    /// `command` is what is run: a program and its arguments.
    pub(super) fn command(
        &mut self,
        it: shape::Upstream,
        command: Vec<String>,
        place: &Place,
    ) -> Option<Command> {
        let at = place.key("timeouts");
        self.only_for(
            "a `url`",
            &[
                (it.health_check.is_some(), place.key("healthCheck")),
                (it.transport.is_some(), place.key("transport")),
                (it.spiffe_id.is_some(), place.key("spiffeId")),
                (it.roots.is_some(), place.key("roots")),
                (it.host.is_some(), place.key("host")),
                (it.card.is_some(), place.key("card")),
                (it.rest.is_some(), place.key("rest")),
                (it.agent_card.is_some(), place.key("agentCard")),
                (it.push_notifications.is_some(), place.key("pushNotifications")),
                (it.timeouts.connect.is_some(), at.key("connect")),
                (it.timeouts.pool_idle.is_some(), at.key("poolIdle")),
            ],
        );
        let start = self.span(it.timeouts.start.as_ref(), 60, &at.key("start"));
        let unused = self.span(it.timeouts.unused.as_ref(), 30 * 60, &at.key("unused"));
        let env = it.env.unwrap_or_default();
        let environment = self.environment(env, &place.key("env"));
        let directory = it.directory.unwrap_or_else(|| ".".to_owned());
        let directory = self.path(&directory, &place.key("directory"));
        let at = place.key("command");
        for (index, word) in command.iter().enumerate() {
            if word.contains('\0') {
                self.faults.push(&at.index(index), "holds a NUL, which no argument can");
            }
        }
        let mut words = command.into_iter();
        let Some(program) = words.next().filter(|program| !program.is_empty()) else {
            self.faults.push(&at, "names no program");
            return None;
        };
        let processes = match it.processes.unwrap_or_default() {
            shape::Processes::PerSession => Processes::PerSession,
            shape::Processes::Shared => Processes::Shared,
        };
        Some(Command {
            program,
            arguments: words.collect(),
            directory: directory?,
            environment: environment?,
            processes,
            max_processes: it.max_processes.unwrap_or(64),
            max_processes_per_caller: it.max_processes_per_caller.unwrap_or(16),
            start_timeout: start?,
            unused_timeout: unused?,
        })
    }

    /// INVARIANT: a value is never echoed; it may be a secret that doesn't belong here.
    fn environment(&mut self, it: shape::Env, place: &Place) -> Option<Environment> {
        let names = it.allow.iter().enumerate().map(|(index, name)| (name, index));
        for (name, index) in names {
            self.variable(name, &place.key("allow").index(index));
        }
        for (name, value) in &it.set {
            let at = place.key("set").key(name);
            self.variable(name, &at);
            if value.contains('\0') {
                self.faults.push(&at, "holds a NUL, which no value can");
            }
            if it.files.contains_key(name) {
                self.faults.push(&at, "is in `files` too; keep one");
            }
        }
        let mut files = BTreeMap::new();
        for (name, path) in it.files {
            let at = place.key("files").key(&name);
            self.variable(&name, &at);
            files.insert(name, self.file(Some(path), &at)?);
        }
        Some(Environment { allow: it.allow.into_iter().collect(), set: it.set, files })
    }

    fn variable(&mut self, name: &str, place: &Place) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.faults.push(place, "is no name of an environment variable");
        }
    }

    /// Refuses keys that mean something for the other kind of server only.
    pub(super) fn only_for(&mut self, other: &str, keys: &[(bool, Place)]) {
        for (given, place) in keys {
            if *given {
                self.faults.push(place, format!("is for servers with {other} only"));
            }
        }
    }
}

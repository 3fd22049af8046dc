//! How often and when agents may call: what documents say of it, as limits.
//!
//! Policies can't count, and don't know the time. So these keys become limits, which a call has to be within
//! after the policies have permitted it. A limit counts each agent that its entry fits for itself, and is about every
//! call that the entry covers, whichever entry or policy permits it: of several, all hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::civil::Weekday;

use super::{
    Compiler, Row,
    agents::{Declared, SEND},
    document::Place,
    tools::{Granted, Name},
    who::Who,
};
use crate::{
    identity::SpiffeId,
    limits::{
        Callers, Hours, Limit, ToolName, When,
        settings::{Count, Dimension, Measure, Quota},
    },
};

const HOUR: Duration = Duration::from_secs(3_600);

impl<'a> Compiler<'a> {
    /// The limits of all entries. Their names are told to those whom they hold up, so they say nothing else than what
    /// these know: themselves, and what they called.
    pub(super) fn limits(&mut self, agents: &[Declared<'a>], grants: &[Granted<'a>]) -> Vec<Limit> {
        let mut limits = Limits::default();
        for agent in agents {
            let calls = agent.entry.max_tool_calls_per_execution;
            let delegations = agent.entry.max_delegations_per_execution;
            for (key, most, methods, what) in [
                ("maxToolCallsPerExecution", calls, &["tools/call"][..], "tool calls"),
                ("maxDelegationsPerExecution", delegations, &SEND[..], "delegations"),
            ] {
                let Some(most) = most else { continue };
                self.check_runs(agent.place, key);
                let methods = methods.iter().map(|name| (*name).into()).collect();
                let when = When { principals: callers(&agent.who), methods, ..When::default() };
                let quota = Quota::Budget { tokens: most, period: None };
                let per = [Dimension::Principal, Dimension::Run];
                limits.add(&format!("{}/{what}/run", agent.who), when, count(quota, per));
                self.rows.push(Row {
                    who: agent.who.to_string(),
                    may: format!("at most {most} a run"),
                    what: what.to_owned(),
                    place: agent.place.to_string(),
                });
            }
        }
        for grant in grants {
            let &Granted { place, ref who, ref tools, ref classes, entry } = grant;
            let tool = match &tools.name {
                Name::Exact(name) => ToolName::Exact(name.as_str().into()),
                Name::Starting(start) => ToolName::Starting(start.as_str().into()),
            };
            let when = || When {
                principals: callers(who),
                tools: vec![tool.clone()],
                upstreams: [tools.server.as_str().into()].into(),
                classes: classes.iter().map(|permission| permission.class()).collect(),
                ..When::default()
            };
            let what = format!("{}/{}", entry.server, entry.tool);
            let mut row = |may: String| {
                self.rows.push(Row {
                    who: who.to_string(),
                    may,
                    what: what.clone(),
                    place: place.to_string(),
                });
            };
            if let Some(most) = entry.max_calls_per_hour {
                let quota = Quota::Budget { tokens: most, period: Some(HOUR) };
                let count = count(quota, [Dimension::Principal]);
                limits.add(&format!("{who}/{what}/hour"), when(), count);
                row(format!("at most {most} an hour"));
            }
            if let Some(window) = &entry.time_window {
                let every_day = Weekday::Monday.cycle_forward().take(7).collect();
                row(format!("only {} to {} {}", window.start, window.end, window.timezone));
                match Hours::read(every_day, &window.start, &window.end, &window.timezone) {
                    Ok(hours) => {
                        limits.add(&format!("{who}/{what}/hours"), when(), Measure::Hours(hours));
                    }
                    Err(error) => self.fault(place.fault("/timeWindow", error)),
                }
            }
        }
        limits.all
    }

    /// A limit on runs counts nothing where calls don't tell theirs.
    fn check_runs(&mut self, place: Place<'a>, key: &str) {
        if super::is_configured(self.settings) && !self.settings.runs {
            let problem = "nothing tells the run of a call";
            let hint = "add `delegation` to the configuration, whose chains tell their run";
            self.fault(place.fault(&format!("/{key}"), problem).with_hint(hint));
        }
    }
}

fn count(quota: Quota, per: impl Into<BTreeSet<Dimension>>) -> Measure {
    Measure::Count(Count { quota, per: per.into(), cost: BTreeMap::new(), sharing: None })
}

/// Whom an entry speaks of, as limits name callers.
fn callers(who: &Who) -> Vec<Callers> {
    match who {
        // What is no ID has been told as a fault.
        Who::Agent(id) => SpiffeId::parse(id).ok().map(Callers::One).into_iter().collect(),
        Who::Below(stem) => vec![Callers::Below(format!("{stem}/").into())],
        Who::Group(_, members) => members.iter().flatten().flat_map(callers).collect(),
    }
}

/// Limits, each by a name of its own.
#[derive(Default)]
struct Limits {
    all: Vec<Limit>,
    names: BTreeSet<String>,
}

impl Limits {
    /// Names go into headers and metrics, so they have letters, digits and a few marks only. Two that are alike then,
    /// or stand for two entries about the same, are told apart by a number.
    fn add(&mut self, name: &str, when: When, measure: Measure) {
        let name = name.strip_prefix("spiffe://").unwrap_or(name);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '*');
        let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        let mut unique = name.clone();
        let mut number = 1;
        while !self.names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}/{number}");
        }
        self.all.push(Limit { name: unique.into(), when, measure });
    }
}

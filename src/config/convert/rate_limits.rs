//! Limits on calls.

use std::{collections::BTreeSet, num::NonZeroU32, time::Duration};

use jiff::civil::Weekday;

use super::{Reader, shape};
use crate::{
    config::{fault::Place, units::Amount},
    limits::{
        Callers, Hours, Limit, ToolName, When,
        hours::HoursError,
        settings::{Count, Dimension, Measure, OnStoreFailure, Quota, Sharing},
    },
    protocol::Class,
    written::nearest,
};

/// What other parts of the file make possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    /// A Redis that replicas share.
    pub(super) redis: bool,
    /// A template that tells tenants.
    pub(super) tenants: bool,
}

impl Reader<'_> {
    pub(super) fn rate_limits(
        &mut self,
        all: Vec<shape::RateLimit>,
        offered: Offered,
        place: &Place,
    ) -> Option<Vec<Limit>> {
        let mut seen = BTreeSet::new();
        let mut limits = Vec::new();
        let mut whole = true;
        for (index, it) in all.into_iter().enumerate() {
            let at = place.index(index);
            self.unique(it.name.as_ref().map(|name| &name.0), &mut seen, &at);
            let limit = self.rate_limit(it, offered, &at);
            whole &= limit.is_some();
            limits.extend(limit);
        }
        whole.then_some(limits)
    }

    fn rate_limit(
        &mut self,
        mut it: shape::RateLimit,
        offered: Offered,
        place: &Place,
    ) -> Option<Limit> {
        let name = self.required(it.name.take(), &place.key("name"));
        let when = self.when(std::mem::take(&mut it.when), &place.key("when"));
        let measure = match (it.rate.take(), it.budget.take(), it.hours.take()) {
            (Some(rate), None, None) => {
                let quota = self.rate(&rate, it.burst, place);
                quota.and_then(|quota| self.counting(it, quota, offered, place))
            }
            (None, Some(budget), None) => {
                self.none(it.burst.is_some(), "burst", "is for a `rate`", place);
                let quota = self.budget(&budget, &place.key("budget"));
                quota.and_then(|quota| self.counting(it, quota, offered, place))
            }
            (None, None, Some(hours)) => {
                for (given, key) in [
                    (it.burst.is_some(), "burst"),
                    (it.per.is_some(), "per"),
                    (!it.cost.is_empty(), "cost"),
                    (it.shared, "shared"),
                    (it.on_store_failure.is_some(), "onStoreFailure"),
                    (it.replicas.is_some(), "replicas"),
                ] {
                    self.none(given, key, "says nothing about `hours`, which count nothing", place);
                }
                self.hours(hours, &place.key("hours")).map(Measure::Hours)
            }
            // One that was refused is there.
            (None, None, None) if self.faults.any_within(place) => None,
            (None, None, None) => {
                let hint = "such as `rate: 100/1m`";
                self.faults.push_with(place, "needs `rate`, `budget` or `hours`", hint);
                None
            }
            (_, _, _) => {
                let hint = "give each a limit of its own; a call has to be within all of them";
                self.faults.push_with(
                    place,
                    "has more than one of `rate`, `budget`, `hours`",
                    hint,
                );
                None
            }
        };
        Some(Limit { name: name?.0.into(), when: when?, measure: measure? })
    }

    fn rate(&mut self, rate: &Amount, burst: Option<u32>, place: &Place) -> Option<Quota> {
        let at = place.key("rate");
        let (tokens, period) = self.amount(rate, &at)?;
        let Some(period) = period else {
            self.faults.push_with(&at, "has a period, and no run", "a `budget` is for runs");
            return None;
        };
        let burst = burst.and_then(NonZeroU32::new).unwrap_or(tokens);
        Some(Quota::Rate { tokens, period, burst })
    }

    fn budget(&mut self, budget: &Amount, place: &Place) -> Option<Quota> {
        let (tokens, period) = self.amount(budget, place)?;
        Some(Quota::Budget { tokens, period })
    }

    fn amount(&mut self, amount: &Amount, place: &Place) -> Option<(NonZeroU32, Option<Duration>)> {
        amount.read().map_err(|problem| self.faults.push(place, problem)).ok()
    }

    fn counting(
        &mut self,
        it: shape::RateLimit,
        quota: Quota,
        offered: Offered,
        place: &Place,
    ) -> Option<Measure> {
        let per = it.per.unwrap_or_else(|| vec![shape::Dimension::Principal]);
        let mut per: BTreeSet<_> = per.into_iter().map(dimension).collect();
        if matches!(quota, Quota::Budget { period: None, .. }) {
            per.insert(Dimension::Run);
        }
        if per.contains(&Dimension::Tenant) && !offered.tenants {
            let hint = "give `policy.pathTemplate` a segment `{tenant}`";
            self.faults.push_with(&place.key("per"), "nothing tells the tenant of a caller", hint);
        }
        if per.contains(&Dimension::Run) && !self.has_delegation {
            let hint = "add `delegation`, whose chains tell their run";
            self.faults.push_with(place, "nothing tells the run of a call", hint);
        }
        let at = place.key("cost");
        for (tool, cost) in &it.cost {
            if *cost > quota.capacity() {
                let problem = "is more than there ever is, so no such call would be let through";
                self.faults.push(&at.key(tool), problem);
            }
        }
        let sharing = self.sharing((it.shared, it.on_store_failure, it.replicas), offered, place);
        let cost = it.cost.into_iter().map(|(tool, cost)| (tool.into(), cost)).collect();
        Some(Measure::Count(Count { quota, per, cost, sharing }))
    }

    fn sharing(
        &mut self,
        (shared, on_failure, replicas): (bool, Option<shape::OnStoreFailure>, Option<u32>),
        offered: Offered,
        place: &Place,
    ) -> Option<Sharing> {
        if !shared {
            let why = "is for limits that are `shared`";
            self.none(on_failure.is_some(), "onStoreFailure", why, place);
            self.none(replicas.is_some(), "replicas", why, place);
            return None;
        }
        if !offered.redis {
            let hint = "add `state: { redis: … }`, or leave it out";
            self.faults.push_with(&place.key("shared"), "there is no store to share it in", hint);
        }
        let on_store_failure = match on_failure.unwrap_or_default() {
            shape::OnStoreFailure::Local => OnStoreFailure::Local,
            shape::OnStoreFailure::Deny => OnStoreFailure::Deny,
            shape::OnStoreFailure::UnsafeAllow => OnStoreFailure::UnsafeAllow,
        };
        let replicas = replicas.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        Some(Sharing { on_store_failure, replicas })
    }

    fn when(&mut self, it: shape::When, place: &Place) -> Option<When> {
        let mut principals = Vec::new();
        let mut whole = true;
        let at = place.key("principals");
        for (index, text) in it.principals.iter().flatten().enumerate() {
            match Callers::parse(text) {
                Ok(callers) => principals.push(callers),
                Err(error) => {
                    let hint = "a SPIFFE ID, or a prefix of IDs that ends in `/*`";
                    self.faults.push_with(&at.index(index), format!("`{text}`: {error}"), hint);
                    whole = false;
                }
            }
        }
        let mut tools = Vec::new();
        let at = place.key("tools");
        for (index, text) in it.tools.iter().flatten().enumerate() {
            match ToolName::parse(text) {
                Some(name) => tools.push(name),
                None => {
                    let hint = "a name, with `*` at most at its end";
                    self.faults.push_with(
                        &at.index(index),
                        format!("`{text}` names no tool"),
                        hint,
                    );
                }
            }
        }
        let at = place.key("upstreams");
        for (index, name) in it.upstreams.iter().flatten().enumerate() {
            if !self.upstreams.contains(name) {
                let hint = nearest(name, self.upstreams.iter().map(String::as_str));
                let problem = format!("there is no upstream `{name}`");
                match hint {
                    Some(hint) => self.faults.push_with(&at.index(index), problem, hint),
                    None => self.faults.push(&at.index(index), problem),
                }
            }
        }
        let set = |names: Option<Vec<String>>| {
            names.into_iter().flatten().map(String::into_boxed_str).collect()
        };
        let classes = it.classes.map(|classes| classes.into_iter().map(class).collect());
        whole.then(|| When {
            principals,
            tools,
            upstreams: set(it.upstreams),
            methods: set(it.methods),
            classes: classes.unwrap_or_else(|| When::default().classes),
        })
    }

    fn hours(&mut self, it: shape::Hours, place: &Place) -> Option<Hours> {
        let from = self.required(it.from, &place.key("from"));
        let to = self.required(it.to, &place.key("to"));
        let at = place.key("zone");
        let zone = self.required(it.zone, &at);
        let days = it.days.map_or_else(
            || Weekday::Monday.cycle_forward().take(7).collect(),
            |days| days.into_iter().map(weekday).collect(),
        );
        match Hours::read(days, &from?.0, &to?.0, &zone?) {
            Ok(hours) => Some(hours),
            Err(error @ HoursError::Zone(_)) => {
                self.faults.push_with(&at, error.to_string(), "such as `Europe/Berlin` or `UTC`");
                None
            }
            Err(error @ (HoursError::Time(_) | HoursError::Days | HoursError::Minutes)) => {
                self.faults.push(place, error.to_string());
                None
            }
        }
    }

    /// A key that does nothing here.
    fn none(&mut self, given: bool, key: &str, why: &str, place: &Place) {
        if given {
            self.faults.push_with(&place.key(key), why, "leave the key out");
        }
    }
}

fn dimension(it: shape::Dimension) -> Dimension {
    match it {
        shape::Dimension::Principal => Dimension::Principal,
        shape::Dimension::Tenant => Dimension::Tenant,
        shape::Dimension::Tool => Dimension::Tool,
        shape::Dimension::Upstream => Dimension::Upstream,
        shape::Dimension::Class => Dimension::Class,
        shape::Dimension::Method => Dimension::Method,
        shape::Dimension::Listener => Dimension::Listener,
        shape::Dimension::Run => Dimension::Run,
    }
}

fn class(it: shape::Class) -> Class {
    match it {
        shape::Class::List => Class::List,
        shape::Class::Read => Class::Read,
        shape::Class::Write => Class::Write,
        shape::Class::Execute => Class::Execute,
    }
}

fn weekday(it: shape::Day) -> Weekday {
    match it {
        shape::Day::Mon => Weekday::Monday,
        shape::Day::Tue => Weekday::Tuesday,
        shape::Day::Wed => Weekday::Wednesday,
        shape::Day::Thu => Weekday::Thursday,
        shape::Day::Fri => Weekday::Friday,
        shape::Day::Sat => Weekday::Saturday,
        shape::Day::Sun => Weekday::Sunday,
    }
}

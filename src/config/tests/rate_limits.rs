//! Limits on calls, and what is wrong about them.

use std::num::NonZeroU32;

use serde_json::json;

use super::*;
use crate::limits::{
    Limit,
    settings::{Count, Dimension, Measure, OnStoreFailure, Quota},
};
use crate::protocol::Class;

/// The page with everything that limits can refer to.
fn with_limits(limits: Value) -> Result<Config, Faults> {
    let folder = folder();
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    page["policy"]["pathTemplate"] = json!("/tenant/{tenant}/agent/{agent}");
    page["delegation"] = json!({ "mayOriginate": [] });
    page["state"] = json!({ "redis": { "url": "redis://127.0.0.1:6379" } });
    page["rateLimits"] = limits;
    parse(&page.to_string(), folder.path())
}

fn limits(limits: Value) -> Vec<Limit> {
    with_limits(limits).expect("no faults").rate_limits
}

fn count(limit: &Limit) -> &Count {
    match &limit.measure {
        Measure::Count(count) => count,
        Measure::Hours(hours) => panic!("{hours:?}"),
    }
}

#[test]
fn little_needs_to_be_said() {
    let all = limits(json!([
        { "name": "a", "rate": "100/1m" },
        { "name": "b", "budget": "20/run" },
        { "name": "c", "budget": "1000/1h30m", "per": [], "shared": true },
        { "name": "d", "hours": { "from": "08:00", "to": "24:00", "zone": "Europe/Berlin" } },
    ]));
    let number = |number| NonZeroU32::new(number).expect("more than zero");
    let [a, b, c, d] = &*all else { panic!("{all:?}") };
    let minute = Duration::from_secs(60);
    let rate = Quota::Rate { tokens: number(100), period: minute, burst: number(100) };
    assert_eq!(count(a).quota, rate);
    assert_eq!(count(a).per, [Dimension::Principal].into());
    assert_eq!(count(a).sharing, None);
    assert_eq!(a.when.classes, [Class::Read, Class::Write, Class::Execute]);
    assert_eq!(count(b).quota, Quota::Budget { tokens: number(20), period: None });
    assert_eq!(count(b).per, [Dimension::Principal, Dimension::Run].into());
    let period = Some(Duration::from_secs(5_400));
    assert_eq!(count(c).quota, Quota::Budget { tokens: number(1_000), period });
    assert!(count(c).per.is_empty());
    let sharing = count(c).sharing.expect("it is shared");
    assert_eq!(sharing.on_store_failure, OnStoreFailure::Local);
    assert_eq!(sharing.replicas, number(1));
    assert!(matches!(d.measure, Measure::Hours(_)), "{d:?}");
}

#[test]
fn limits_that_can_be_left_out_by_a_failure_are_told() {
    let config = with_limits(json!([
        { "name": "a", "rate": "1/1s", "shared": true, "onStoreFailure": "unsafeAllow" },
        { "name": "b", "rate": "1/1s", "shared": true, "onStoreFailure": "deny", "replicas": 3 },
    ]));
    let weakened = config.expect("no faults").weakened();
    assert_eq!(weakened, [("onStoreFailure: unsafeAllow", 1)]);
}

#[test]
fn faults_of_limits() {
    let hours = json!({ "from": "08:00", "to": "18:00", "zone": "UTC" });
    for (limit, fault) in [
        (json!({ "rate": "1/1s" }), "rateLimits[0].name: is missing"),
        (json!({ "name": "A", "rate": "1/1s" }), "name: \"A\" has the wrong form"),
        (json!({ "name": "a" }), "rateLimits[0]: needs `rate`, `budget` or `hours`"),
        (
            json!({ "name": "a", "rate": "1/1s", "budget": "1/1s" }),
            "rateLimits[0]: has more than one of `rate`, `budget`, `hours`",
        ),
        (json!({ "name": "a", "rate": "1" }), "rate: \"1\" has the wrong form (a number, a slash"),
        (json!({ "name": "a", "rate": "0/1s" }), "rate: `0` is no number from 1 to 4294967295"),
        (json!({ "name": "a", "rate": "9999999999/1s" }), "rate: `9999999999` is no number"),
        (json!({ "name": "a", "rate": "1/0s" }), "rate: has to be longer than zero"),
        (json!({ "name": "a", "rate": "1/run" }), "rate: has a period, and no run"),
        (json!({ "name": "a", "rate": "1/1s", "burst": 0 }), "burst: has to be at least 1"),
        (json!({ "name": "a", "budget": "1/1s", "burst": 1 }), "burst: is for a `rate`"),
        (json!({ "name": "a", "rate": "1/1s", "per": ["user"] }), "per[0]: \"user\" is none of"),
        (
            json!({ "name": "a", "rate": "9/1s", "burst": 2, "cost": { "echo": 3 } }),
            "cost.echo: is more than there ever is",
        ),
        (
            json!({ "name": "a", "rate": "1/1s", "onStoreFailure": "deny" }),
            "onStoreFailure: is for limits that are `shared`",
        ),
        (json!({ "name": "a", "rate": "1/1s", "replicas": 2 }), "replicas: is for limits"),
        (json!({ "name": "a", "hours": hours, "shared": true }), "shared: says nothing about"),
        (json!({ "name": "a", "hours": hours, "per": [] }), "per: says nothing about `hours`"),
        (
            json!({ "name": "a", "hours": { "from": "8:00", "to": "18:00", "zone": "UTC" } }),
            "hours.from: \"8:00\" has the wrong form (hours and minutes, from 00:00 to 24:00",
        ),
        (
            json!({ "name": "a", "hours": { "from": "08:00", "to": "08:00", "zone": "UTC" } }),
            "hours: has to begin and end within a day, and not at the same minute",
        ),
        (
            json!({ "name": "a", "hours": { "from": "08:00", "to": "18:00", "zone": "Berlin" } }),
            "hours.zone: `Berlin` is no time zone (such as `Europe/Berlin` or `UTC`)",
        ),
        (
            json!({ "name": "a", "hours": { "from": "08:00", "to": "18:00" } }),
            "hours.zone: is missing",
        ),
        (
            json!({ "name": "a", "rate": "1/1s", "when": { "upstreams": ["fils"] } }),
            "when.upstreams[0]: there is no upstream `fils` (did you mean `files`?)",
        ),
        (
            json!({ "name": "a", "rate": "1/1s", "when": { "principals": ["spiffe://td/a*"] } }),
            "when.principals[0]: `spiffe://td/a*`: ",
        ),
        (
            json!({ "name": "a", "rate": "1/1s", "when": { "classes": ["control"] } }),
            "when.classes[0]: \"control\" is none of",
        ),
        (
            json!({ "name": "a", "rate": "1/1s", "when": { "tools": ["a*b"] } }),
            "when.tools[0]: `a*b` names no tool (a name, with `*` at most at its end)",
        ),
        (json!({ "name": "a", "rate": "1/1s", "when": { "tools": [] } }), "when.tools: is empty"),
    ] {
        let faults = with_limits(json!([limit])).expect_err("a fault").to_string();
        assert!(faults.contains(fault), "{limit}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
    let twice = json!([{ "name": "a", "rate": "1/1s" }, { "name": "a", "budget": "1/1s" }]);
    let faults = with_limits(twice).expect_err("a fault").to_string();
    assert_eq!(faults, "rateLimits[1].name: the name `a` is taken");
}

#[test]
fn what_a_limit_counts_by_has_to_be_told_somewhere() {
    for (limit, fault) in [
        (
            json!({ "name": "a", "rate": "1/1s", "per": ["tenant"] }),
            "rateLimits[0].per: nothing tells the tenant of a caller (give `policy.pathTemplate` a \
             segment `{tenant}`)",
        ),
        (
            json!({ "name": "a", "budget": "1/run" }),
            "rateLimits[0]: nothing tells the run of a call (add `delegation`, whose chains tell \
             their run)",
        ),
        (
            json!({ "name": "a", "rate": "1/1s", "shared": true }),
            "rateLimits[0].shared: there is no store to share it in (add `state: { redis: … }`, or \
             leave it out)",
        ),
    ] {
        assert_eq!(faults_with("/rateLimits", json!([limit])), [fault]);
    }
}

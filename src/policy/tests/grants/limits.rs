//! How often and when agents may call, by documents.

use std::time::Duration;

use super::*;
use crate::limits::{
    Limit,
    settings::{Dimension, Measure, Quota},
};

const DOCUMENT: &str = "\
agents:
  - id: spiffe://td/tenant/acme/agent/planner
    canInvoke: [coder]
    maxToolCallsPerExecution: 20
    maxDelegationsPerExecution: 2
  - id: spiffe://td/tenant/acme/agent/coder
    upstream: coder
    invocableBy: [spiffe://td/tenant/acme/agent/planner]
  - id: spiffe://td/tenant/b/*
grants:
  - agent: spiffe://td/tenant/acme/agent/planner
    server: files
    tool: re*
    permissions: [read, write]
    maxCallsPerHour: 10
  - agent: spiffe://td/tenant/b/*
    server: files
    tool: echo
    permissions: [read]
    maxCallsPerHour: 5
    timeWindow: {start: '08:00', end: '18:00', timezone: Europe/Berlin}
  - agent: spiffe://td/tenant/b/*
    server: files
    tool: echo
    permissions: [read]
    maxCallsPerHour: 7
";

/// With chains of delegation.
fn told(document: &str, runs: bool) -> Result<Vec<Limit>, Vec<String>> {
    let directory = directory(&[("a.grants.yaml", document), ("files.cedarschema", FRAGMENT)]);
    let settings = Settings { runs, ..configured(directory.path()) };
    match Policies::load(&settings) {
        Ok(policies) => Ok(policies.limits().to_vec()),
        Err(error) => Err(error.faults.iter().map(ToString::to_string).collect()),
    }
}

#[test]
fn entries_become_limits() {
    let limits = told(DOCUMENT, true).expect("loads");
    let planner = "td/tenant/acme/agent/planner";
    let names: Vec<String> = limits.iter().map(|limit| limit.name.to_string()).collect();
    let tools = format!("{planner}/tool_calls/run");
    let delegations = format!("{planner}/delegations/run");
    let reads = format!("{planner}/files/re*/hour");
    let b = "td/tenant/b/*/files/echo";
    let (echo, hours, again) = (format!("{b}/hour"), format!("{b}/hours"), format!("{b}/hour/2"));
    assert_eq!(names, [tools, delegations, reads, echo, hours, again]);
    let count = |at: usize| match &limits[at].measure {
        Measure::Count(count) => (count.quota, count.per.iter().copied().collect::<Vec<_>>()),
        Measure::Hours(hours) => panic!("{hours:?}"),
    };
    let budget = |tokens: u32, seconds: Option<u64>| Quota::Budget {
        tokens: tokens.try_into().expect("more than zero"),
        period: seconds.map(Duration::from_secs),
    };
    let run = vec![Dimension::Principal, Dimension::Run];
    assert_eq!((count(0), count(1)), ((budget(20, None), run.clone()), (budget(2, None), run)));
    assert_eq!(count(2), (budget(10, Some(3_600)), vec![Dimension::Principal]));
    assert!(matches!(limits[4].measure, Measure::Hours(_)), "{:?}", limits[4]);
    assert!(limits[0].when.methods.contains("tools/call"));
    assert!(limits[1].when.methods.contains("SendStreamingMessage"));
    assert_eq!(limits[2].when.classes, [Class::Read, Class::Write]);
    for limit in &limits {
        assert_eq!(limit.when.principals.len(), 1, "each is about its agents: {limit:?}");
    }
}

#[test]
fn what_is_shown_tells_limits() {
    let directory = directory(&[("a.grants.yaml", DOCUMENT), ("files.cedarschema", FRAGMENT)]);
    let settings = Settings { runs: true, ..configured(directory.path()) };
    let shown = show(&settings).expect("compiles");
    let rows: Vec<String> =
        shown.rows.iter().map(|row| format!("{} {} {}", row.who, row.may, row.what)).collect();
    for row in [
        "spiffe://td/tenant/acme/agent/planner at most 20 a run tool calls",
        "spiffe://td/tenant/acme/agent/planner at most 2 a run delegations",
        "spiffe://td/tenant/acme/agent/planner at most 10 an hour files/re*",
        "spiffe://td/tenant/b/* only 08:00 to 18:00 Europe/Berlin files/echo",
    ] {
        assert!(rows.iter().any(|shown| shown == row), "{row}\n{rows:#?}");
    }
}

#[test]
fn limits_that_would_hold_nothing_are_faults() {
    let faults = told(DOCUMENT, false).expect_err("faults");
    let told_of = |key: &str| {
        let fault = format!("agents[0].{key}: nothing tells the run of a call (hint: add");
        faults.iter().any(|told| told.contains(&fault))
    };
    assert!(told_of("maxToolCallsPerExecution"), "{faults:?}");
    assert!(told_of("maxDelegationsPerExecution"), "{faults:?}");
    assert_eq!(faults.len(), 2, "{faults:?}");
    for (from, to, fault) in [
        ("start: '08:00'", "start: '8'", "timeWindow: `8` is no time from"),
        ("end: '18:00'", "end: '08:00'", "timeWindow: has to begin and end within a day"),
        ("Europe/Berlin", "Berlin", "timeWindow: `Berlin` is no time zone"),
        ("start: '08:00', ", "", "timeWindow: start is missing"),
        ("maxCallsPerHour: 10", "maxCallsPerHour: 0", "maxCallsPerHour: has to be at least 1"),
        ("maxCallsPerHour: 10", "maxCallsPerHour: ten", "maxCallsPerHour: expected a whole number"),
    ] {
        let faults = told(&DOCUMENT.replacen(from, to, 1), true).expect_err("a fault");
        assert!(faults.len() == 1 && faults[0].contains(fault), "{to}: {faults:?}");
    }
}

//! When an upstream is spared calls, and how long it may take.

use serde_json::json;

use super::*;
use crate::upstream::settings::{Breaker, Bulkhead, Timeouts};

/// An upstream with more keys.
fn upstream(more: Value) -> upstream::Settings {
    let folder = folder();
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    let upstream = page["upstreams"][0].as_object_mut().expect("an upstream");
    upstream.extend(more.as_object().expect("keys").clone());
    let mut config = parse(&page.to_string(), folder.path()).expect("no faults");
    config.upstreams.remove(0)
}

#[test]
fn every_key_is_read() {
    let read = upstream(json!({
        "breaker": {
            "failures": 3, "failurePercent": 20, "open": "1s", "maxOpen": "2s", "perTool": true,
        },
        "bulkhead": {
            "calls": 10, "callsPerCaller": 3, "streams": 20, "streamsPerCaller": 4, "queue": 0,
            "queueTime": "5ms",
        },
        "timeouts": { "firstByte": "1s", "idle": "2s", "call": "3s", "streamIdle": "4s" },
    }));
    let seconds = Duration::from_secs;
    let breaker = Breaker {
        failures: 3,
        failure_percent: 20,
        open: seconds(1),
        max_open: seconds(2),
        per_tool: true,
    };
    assert_eq!(read.breaker, Some(breaker));
    let bulkhead = Bulkhead {
        calls: 10,
        calls_per_caller: 3,
        streams: 20,
        streams_per_caller: 4,
        queue: 0,
        queue_time: Duration::from_millis(5),
    };
    assert_eq!(read.bulkhead, bulkhead);
    let timeouts = Timeouts {
        first_byte: seconds(1),
        idle: seconds(2),
        call: seconds(3),
        stream_idle: Some(seconds(4)),
    };
    assert_eq!(read.timeouts, timeouts);
}

#[test]
fn a_caller_has_half_of_what_there_is_and_the_queue_is_as_long() {
    let read = upstream(json!({ "bulkhead": { "calls": 5, "streams": 1 } })).bulkhead;
    assert_eq!((read.calls_per_caller, read.streams_per_caller, read.queue), (3, 1, 5));
}

#[test]
fn a_breaker_can_be_switched_off() {
    assert_eq!(upstream(json!({ "breaker": { "enabled": false } })).breaker, None);
}

#[test]
fn what_does_not_fit_is_a_fault() {
    for (key, value, told) in [
        ("breaker", json!({ "open": "2m" }), "is longer than `maxOpen`, which is 60s by default"),
        ("breaker", json!({ "open": "2s", "maxOpen": "1s" }), "is longer than `maxOpen`"),
        ("breaker", json!({ "failures": 0 }), "failures"),
        ("breaker", json!({ "failurePercent": 101 }), "failurePercent"),
        ("bulkhead", json!({ "calls": 0 }), "calls"),
        ("bulkhead", json!({ "calls": 2, "queue": 3 }), "is 3, more than the 2 calls"),
        ("bulkhead", json!({ "queueTime": "0s" }), "has to be longer than zero"),
        ("timeouts", json!({ "streamIdle": "0s" }), "has to be longer than zero"),
        ("breaker", json!({ "failure": 1 }), "failure"),
    ] {
        let faults = faults_with(&format!("/upstreams/0/{key}"), value);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains(told), "{faults:?}");
    }
}

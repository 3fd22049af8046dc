//! The text that a scraper sees.

use super::*;

/// The samples of one family, without comments.
fn samples(metrics: &Metrics, name: &str) -> Vec<String> {
    let text = metrics.render(Duration::from_secs(1_000)).expect("text");
    text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

fn finished(method: Option<&'static str>, verdict: Verdict, outcome: &'static str) -> Finished {
    let (total, own) = (Duration::from_millis(30), Duration::from_micros(300));
    Finished { protocol: "mcp", method, verdict, outcome, total, own }
}

#[test]
fn calls_are_counted_by_what_they_were() {
    let metrics = Metrics::new();
    let files = metrics.calls("files");
    files.observe(&finished(Some("tools/call"), Verdict::Permit, "ok"));
    files.observe(&finished(Some("tools/call"), Verdict::Permit, "ok"));
    files.clone().observe(&finished(Some("tools/call"), Verdict::Permit, "upstream_failed"));
    metrics.calls("files").observe(&finished(None, Verdict::Deny, "unknown_method"));
    metrics.unrouted().observe(&finished(None, Verdict::Deny, "no_route"));
    let row = |decision, method, outcome, upstream, count| {
        format!(
            "lictor_calls_total{{decision=\"{decision}\",method=\"{method}\",outcome=\"{outcome}\",\
             protocol=\"mcp\",upstream=\"{upstream}\"}} {count}"
        )
    };
    assert_eq!(
        samples(&metrics, "lictor_calls_total"),
        [
            row("deny", "other", "no_route", "", 1),
            row("deny", "other", "unknown_method", "files", 1),
            row("permit", "tools/call", "ok", "files", 2),
            row("permit", "tools/call", "upstream_failed", "files", 1),
        ]
    );
    let labels = "decision=\"permit\",method=\"tools/call\",protocol=\"mcp\",upstream=\"files\"";
    for (name, bucket, below, from) in [
        ("lictor_call_duration_seconds", "bucket", "0.025", "0.05"),
        ("lictor_own_duration_seconds", "bucket", "0.0002", "0.00035"),
    ] {
        let samples = samples(&metrics, name);
        for (le, count) in [(below, 0), (from, 3)] {
            let line = format!("{name}_{bucket}{{{labels},le=\"{le}\"}} {count}");
            assert!(samples.contains(&line), "{line} in {samples:#?}");
        }
    }
}

#[test]
fn gauges_follow_their_guards() {
    let metrics = Metrics::new();
    metrics.set_bodies_in_flight(15);
    for (running, crashed) in [(3, 2), (1, 1)] {
        metrics.set_processes("files", running, crashed);
    }
    let processes = |name, count| [format!("{name}{{upstream=\"files\"}} {count}")];
    for (name, count) in
        [("lictor_upstream_processes", 1), ("lictor_upstream_process_crashes_total", 3)]
    {
        assert_eq!(samples(&metrics, name), processes(name, count));
    }
    let stream = metrics.open_stream();
    let connection = metrics.open_connection("inbound");
    assert_eq!(
        samples(&metrics, "lictor_bodies_in_flight_bytes"),
        ["lictor_bodies_in_flight_bytes 15"]
    );
    assert_eq!(samples(&metrics, "lictor_open_streams"), ["lictor_open_streams 1"]);
    let open = |count| [format!("lictor_open_connections{{listener=\"inbound\"}} {count}")];
    assert_eq!(samples(&metrics, "lictor_open_connections"), open(1));
    drop((stream, connection));
    assert_eq!(samples(&metrics, "lictor_open_streams"), ["lictor_open_streams 0"]);
    assert_eq!(samples(&metrics, "lictor_open_connections"), open(0));
}

#[test]
fn identity_is_in_one_state_and_counts_down() {
    let metrics = Metrics::new();
    assert_eq!(samples(&metrics, "lictor_svid"), ["lictor_svid_remaining_seconds 0"]);
    metrics.set_identity("ready", Some(1_060));
    metrics.set_identity("stale", Some(1_060));
    assert_eq!(samples(&metrics, "lictor_svid"), ["lictor_svid_remaining_seconds 60"]);
    let row = |state, value| format!("lictor_identity_state{{state=\"{state}\"}} {value}");
    assert_eq!(
        samples(&metrics, "lictor_identity_state"),
        [
            row("expired", 0),
            row("ready", 0),
            row("stale", 1),
            row("starting", 0),
            row("withdrawn", 0)
        ]
    );
    metrics.set_identity("expired", Some(900));
    assert_eq!(samples(&metrics, "lictor_svid"), ["lictor_svid_remaining_seconds 0"]);
}

/// A name that isn't documented is a name that nobody looks at.
#[test]
fn every_metric_is_documented() {
    let metrics = Metrics::new();
    let calls = metrics.calls("files");
    calls.observe(&finished(None, Verdict::Shadow, "ok"));
    metrics.refuse_connection("inbound", "limit");
    metrics.shadow_denial("files", "policy_denied");
    metrics.server_request("files", None, Verdict::Deny, "policy_denied");
    metrics.server_reply("files", "delivered");
    metrics.withheld("files", "refused");
    metrics.token_exchange("files", "issued");
    metrics.limit("per-agent", "taken");
    metrics.set_limit_keys("per-agent", 1);
    metrics.policy_reload(true);
    metrics.policy_reload(false);
    metrics.config_reload(true);
    metrics.set_unsafe_setting("mode: shadow", 1);
    metrics.set_identity("ready", None);
    metrics.set_state(&STATE);
    let in_force = ["a", "b", "c", "d", "e", "f"].map(|kind| (kind, 1));
    metrics.set_revocations(&RevocationReading { in_force, current: true });
    metrics.set_processes("files", 1, 0);
    let endpoint = metrics.endpoint("files", "127.0.0.1:9000");
    endpoint.set_up(false);
    let admissions = metrics.admissions("files");
    admissions.set_breaker("open");
    admissions.refuse("full");
    metrics.server_request("files", None, Verdict::Permit, "ok");
    metrics.server_reply("files", "delivered");
    metrics.withheld("files", "refused");
    drop(metrics.open_connection("inbound"));
    let text = metrics.render(Duration::ZERO).expect("text");
    let names: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/observability.md");
    let documentation = std::fs::read_to_string(path).expect("the documentation");
    for name in &names {
        assert!(documentation.contains(&format!("| `{name}` |")), "{name} is not documented");
    }
    let documented = documentation.lines().filter(|line| line.starts_with("| `lictor_")).count();
    assert_eq!(documented, names.len());
}

#[test]
fn the_ledger_is_read_and_its_totals_only_grow() {
    let metrics = Metrics::new();
    let reading = LedgerReading {
        durable: 12,
        backlog: 2,
        commits: 5,
        last_commit: Duration::from_millis(4),
        lost: 1,
        writable: true,
    };
    metrics.set_ledger(&reading);
    metrics.clone().set_ledger(&LedgerReading { durable: 15, writable: false, ..reading });
    metrics.set_ledger(&LedgerReading { durable: 14, writable: false, ..reading });
    assert_eq!(
        samples(&metrics, "lictor_ledger"),
        [
            "lictor_ledger_commits_total 5",
            "lictor_ledger_entries_total 15",
            "lictor_ledger_last_commit_seconds 0.004",
            "lictor_ledger_lost_entries_total 1",
            "lictor_ledger_queued_entries 2",
            "lictor_ledger_writable 0",
        ]
    );
}

const STATE: StateReading = StateReading {
    bindings: [("session", 3), ("task", 0), ("continuation", 1), ("context", 2)],
    available: false,
    failures: 4,
};

#[test]
fn state_is_in_order_until_told_otherwise() {
    let metrics = Metrics::new();
    assert_eq!(samples(&metrics, "lictor_state_available"), ["lictor_state_available 1"]);
    metrics.set_state(&STATE);
    metrics.set_state(&StateReading { failures: 2, ..STATE });
    assert_eq!(
        samples(&metrics, "lictor_state"),
        [
            "lictor_state_available 0",
            "lictor_state_bindings{kind=\"context\"} 2",
            "lictor_state_bindings{kind=\"continuation\"} 1",
            "lictor_state_bindings{kind=\"session\"} 3",
            "lictor_state_bindings{kind=\"task\"} 0",
            "lictor_state_failures_total 4",
        ]
    );
}

#[test]
fn series_are_found_by_many_at_once() {
    let metrics = Metrics::new();
    let calls = metrics.calls("files");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for method in ["ping", "tools/call", "tools/list"].iter().cycle().take(300) {
                    calls.observe(&finished(Some(method), Verdict::Permit, "ok"));
                }
            });
        }
    });
    let total: u64 = samples(&metrics, "lictor_calls_total")
        .iter()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(total, 1_200);
}

/// What replaces something may have its name.
#[test]
fn series_go_with_the_last_who_tells_them() {
    let metrics = Metrics::new();
    let (old, new) = (metrics.endpoint("files", "a:1"), metrics.endpoint("files", "a:1"));
    let other = metrics.endpoint("files", "b:1");
    let (before, after) = (metrics.admissions("files"), metrics.admissions("files"));
    for admissions in [&before, &after, &metrics.admissions("gone")] {
        admissions.set_breaker("open");
        drop(admissions.hold_call());
    }
    new.set_up(false);
    drop((old, before));
    let up = || samples(&metrics, "lictor_upstream_endpoint_");
    let told = |endpoint: &str| up().iter().filter(|line| line.contains(endpoint)).count();
    assert_eq!((told("a:1"), told("b:1")), (5, 5), "{:#?}", up());
    assert!(up().contains(
        &"lictor_upstream_endpoint_up{endpoint=\"a:1\",upstream=\"files\"} 0".to_owned()
    ));
    let states = samples(&metrics, "lictor_upstream_breaker_state");
    assert_eq!(states.len(), 3, "{states:#?}");
    assert_eq!(samples(&metrics, "lictor_upstream_places_taken").len(), 2);
    // What was counted is counted.
    assert_eq!(samples(&metrics, "lictor_upstream_breaker_openings_total").len(), 2);
    drop((new, after));
    assert_eq!((told("a:1"), told("b:1")), (0, 5));
    drop(other);
    assert_eq!(up(), [""; 0]);
    for gauge in ["lictor_upstream_breaker_state", "lictor_upstream_places_taken"] {
        assert_eq!(samples(&metrics, gauge), [""; 0]);
    }
}

#[test]
fn limits_that_are_in_force_no_more_are_told_of_no_more() {
    let metrics = Metrics::new();
    for limit in ["stays", "goes"] {
        metrics.limit(limit, "taken");
        metrics.limit(limit, "refused");
        metrics.set_limit_keys(limit, 1);
    }
    metrics.limit("hours", "refused");
    metrics.retain_limits(&["stays", "hours"].into());
    assert_eq!(samples(&metrics, "lictor_limit_").len(), 1);
    let told = samples(&metrics, "lictor_limits_total");
    assert_eq!(told.len(), 3, "{told:#?}");
    assert!(told.iter().all(|line| !line.contains("goes")));
}

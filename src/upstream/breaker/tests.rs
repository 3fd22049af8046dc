//! The states, and what leads from one to the next.

use super::*;
use crate::telemetry::Clock;
use Verdict::{Alive, Failed, Succeeded, Unreachable};

const OPEN: Duration = Duration::from_secs(5);
const MAX_OPEN: Duration = Duration::from_secs(60);

/// A breaker on a clock of its own.
struct Bench {
    breaker: Breaker,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self::seeded(7)
    }

    fn seeded(seed: u64) -> Self {
        let now = Clock.instant();
        Self { breaker: Breaker::new(settings::Breaker::default(), seed, now), now }
    }

    fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    fn admit(&mut self, class: Class) -> Result<Pass, Duration> {
        self.breaker.admit(class, self.now)
    }

    fn settle(&mut self, pass: &Pass, verdict: impl Into<Option<Verdict>>) {
        self.breaker.settle(pass, verdict.into(), self.now);
    }

    fn call(&mut self, verdict: impl Into<Option<Verdict>>) -> &mut Self {
        let pass = self.admit(Class::Read).expect("let through");
        self.settle(&pass, verdict);
        self
    }

    fn trip(&mut self) -> &mut Self {
        for _ in 0..5 {
            self.call(Failed);
        }
        assert_eq!(self.phase(), Phase::Open);
        self
    }

    /// Waits until it may be tried again.
    fn rest(&mut self) -> Duration {
        let time = self.breaker.opens_for(self.now).expect("open");
        self.after(time);
        assert_eq!(self.phase(), Phase::HalfOpen);
        time
    }

    fn phase(&self) -> Phase {
        self.breaker.phase(self.now)
    }
}

#[test]
fn failures_in_a_row_open_it_and_nothing_else_does() {
    for (what, calls, phase) in [
        ("five", &[Some(Failed); 5][..], Phase::Open),
        (
            "of both kinds",
            &[Some(Failed), Some(Unreachable), Some(Failed), Some(Unreachable), Some(Failed)],
            Phase::Open,
        ),
        ("four", &[Some(Failed); 4], Phase::Closed),
        (
            "a success between",
            &[
                Some(Failed),
                Some(Failed),
                Some(Failed),
                Some(Failed),
                Some(Succeeded),
                Some(Failed),
            ],
            Phase::Closed,
        ),
        (
            "a refusal between",
            &[Some(Failed), Some(Failed), Some(Failed), Some(Failed), Some(Alive), Some(Failed)],
            Phase::Open,
        ),
        (
            "a caller that leaves between",
            &[Some(Failed), Some(Failed), Some(Failed), Some(Failed), None, Some(Failed)],
            Phase::Open,
        ),
        ("refusals", &[Some(Alive); 100], Phase::Closed),
        ("callers that leave", &[None; 100], Phase::Closed),
    ] {
        let mut bench = Bench::new();
        for verdict in calls {
            bench.call(*verdict);
        }
        assert_eq!(bench.phase(), phase, "{what}");
    }
}

#[test]
fn half_of_enough_calls_open_it() {
    for (pairs, spread, phase) in [
        (10, Duration::ZERO, Phase::Open),
        (9, Duration::ZERO, Phase::Closed),
        // Within half a minute.
        (10, Duration::from_secs(2), Phase::Open),
        (40, Duration::from_secs(4), Phase::Closed),
    ] {
        let mut bench = Bench::new();
        for _ in 0..pairs {
            bench.call(Succeeded).call(Failed).after(spread);
        }
        assert_eq!(bench.phase(), phase, "{pairs} pairs, one each {spread:?}");
    }
    let mut bench = Bench::new();
    for _ in 0..40 {
        bench.call(Succeeded).call(Alive).call(Failed);
    }
    assert_eq!(bench.phase(), Phase::Closed, "a third");
}

#[test]
fn it_refuses_while_it_is_open_and_tells_for_how_long() {
    let mut bench = Bench::new();
    bench.trip();
    let whole = bench.admit(Class::Control).expect_err("open");
    assert!((OPEN * 4 / 5..=OPEN).contains(&whole), "{whole:?}");
    let part = Duration::from_millis(300);
    assert_eq!(bench.after(part).admit(Class::Read).expect_err("open"), whole - part);
    let rest = bench.rest();
    assert_eq!(rest, whole - part);
    bench.admit(Class::Read).expect("a probe").probe.expect("is one");
}

#[test]
fn late_results_do_not_keep_it_open() {
    let mut bench = Bench::new();
    let late: Vec<_> = (0..10).map(|_| bench.admit(Class::Read).expect("let through")).collect();
    bench.trip();
    let left = bench.breaker.opens_for(bench.now).expect("open");
    for pass in &late {
        bench.after(Duration::from_millis(100)).settle(pass, Failed);
    }
    assert_eq!(bench.breaker.opens_for(bench.now), Some(left - Duration::from_secs(1)));
    bench.rest();
    let probe = bench.admit(Class::Read).expect("a probe");
    // One from before knows nothing of now.
    for (pass, verdict) in [(&late[0], Failed), (&late[1], Succeeded)] {
        bench.settle(pass, verdict);
    }
    assert_eq!(bench.phase(), Phase::HalfOpen);
    bench.settle(&probe, Succeeded);
    bench.call(Succeeded).call(Succeeded);
    assert_eq!(bench.phase(), Phase::Closed);
}

#[test]
fn three_probes_at_once_and_three_successes_close_it() {
    let mut bench = Bench::new();
    bench.trip().rest();
    let probes: Vec<_> = (0..3).map(|_| bench.admit(Class::List).expect("a probe")).collect();
    assert_eq!(bench.admit(Class::Read).expect_err("three are under way"), SHORTLY);
    // F-20: a refusal shows that it lives.
    bench.settle(&probes[0], Alive);
    bench.settle(&probes[1], Succeeded);
    assert_eq!(bench.phase(), Phase::HalfOpen);
    bench.settle(&probes[2], Alive);
    assert_eq!(bench.phase(), Phase::Closed);
    // What came before is forgotten.
    for _ in 0..4 {
        bench.call(Failed);
    }
    assert_eq!(bench.phase(), Phase::Closed);
}

#[test]
fn a_probe_that_nobody_waits_for_gives_its_place_back() {
    let mut bench = Bench::new();
    bench.trip().rest();
    for _ in 0..100 {
        bench.call(None);
    }
    assert_eq!(bench.phase(), Phase::HalfOpen);
    bench.call(Succeeded).call(None).call(Succeeded).call(Succeeded);
    assert_eq!(bench.phase(), Phase::Closed);
}

#[test]
fn a_probe_that_fails_opens_it_and_the_others_do_not_count() {
    let mut bench = Bench::new();
    bench.trip().rest();
    let probes: Vec<_> = (0..3).map(|_| bench.admit(Class::Read).expect("a probe")).collect();
    bench.settle(&probes[0], Failed);
    assert_eq!(bench.phase(), Phase::Open);
    bench.rest();
    for probe in &probes[1..] {
        bench.settle(probe, Succeeded);
    }
    bench.call(Succeeded);
    assert_eq!(bench.phase(), Phase::HalfOpen, "one of three");
}

#[test]
fn a_probe_that_hangs_loses_its_place_but_not_its_say() {
    let mut bench = Bench::new();
    bench.trip().rest();
    let hanging: Vec<_> = (0..3).map(|_| bench.admit(Class::Read).expect("a probe")).collect();
    bench.after(PATIENCE - Duration::from_millis(1)).admit(Class::Read).expect_err("full");
    let others: Vec<_> = {
        bench.after(Duration::from_millis(1));
        (0..3).map(|_| bench.admit(Class::Read).expect("a probe")).collect()
    };
    // The place of a newer one is not given back for an older one.
    bench.settle(&hanging[0], None);
    bench.admit(Class::Read).expect_err("full");
    for pass in [&hanging[1], &others[0], &others[1]] {
        bench.settle(pass, Succeeded);
    }
    assert_eq!(bench.phase(), Phase::Closed);
}

#[test]
fn what_may_change_something_is_a_probe_only_where_nobody_reads() {
    for class in [Class::Write, Class::Execute] {
        let mut bench = Bench::new();
        bench.trip().rest();
        let wait = bench.admit(class).expect_err("others first");
        assert_eq!(wait, OPEN);
        bench.after(wait);
        let probe = bench.admit(class).expect("a probe");
        bench.admit(class).expect_err("one at a time");
        let read = bench.admit(Class::Read).expect("reads are welcome");
        bench.settle(&probe, Succeeded);
        bench.admit(class).expect_err("somebody reads");
        bench.settle(&read, Succeeded);
        let probe = bench.admit(class).expect("a probe");
        bench.settle(&probe, Succeeded);
        assert_eq!(bench.phase(), Phase::Closed);
    }
}

#[test]
fn the_time_doubles_up_to_a_bound_and_starts_again_after_calm() {
    let mut bench = Bench::new();
    bench.trip();
    for seconds in [5, 10, 20, 40, 60, 60, 60] {
        let longest = Duration::from_secs(seconds);
        let time = bench.rest();
        assert!((longest * 4 / 5..=longest).contains(&time), "{time:?} of {seconds} s");
        bench.call(Failed);
    }
    bench.rest();
    bench.call(Succeeded).call(Succeeded).call(Succeeded);
    // It has closed, but not for long.
    bench.trip();
    assert!(bench.rest() > MAX_OPEN / 2);
    bench.call(Succeeded).call(Succeeded).call(Succeeded);
    bench.after(CALM).trip();
    assert!(bench.rest() <= OPEN);
    assert_eq!(bench.breaker.openings(), 10);
}

#[test]
fn replicas_do_not_come_back_all_at_once() {
    let times: std::collections::BTreeSet<_> =
        (0..50).map(|seed| Bench::seeded(seed).trip().rest()).collect();
    assert!(times.len() > 40, "{times:?}");
    let spread = *times.last().expect("times") - *times.first().expect("times");
    assert!(spread > OPEN / 10, "{spread:?}");
}

#[test]
fn a_reset_closes_it_and_forgets() {
    let mut bench = Bench::new();
    bench.trip().rest();
    bench.call(Failed);
    let pass = Pass { entry: bench.breaker.entry(), probe: None };
    bench.breaker.reset(bench.now);
    assert_eq!((bench.phase(), bench.breaker.failures_in_a_row()), (Phase::Closed, Some(0)));
    bench.settle(&pass, Failed);
    assert_eq!(bench.breaker.failures_in_a_row(), Some(0));
    bench.trip();
    assert!(bench.rest() <= OPEN);
}

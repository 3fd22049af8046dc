//! Random callers, failures, hangs and callers that leave, on a clock of its own.
//!
//! What must hold whatever happens: no more places are taken than there are, none stays taken, and soon after
//! the server works again the breaker is closed, as long as anybody calls.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use proptest::{prelude::ProptestConfig, proptest};

use super::*;

const CALLS: usize = 8;
const STREAMS: usize = 4;

/// How long calls last that were sent before the server worked again.
const LATE: Duration = Duration::from_secs(40);

/// How long after that a breaker may be anything but closed: the longest that it is open, the wait for somebody
/// who reads, and some probes, one after the other, whose callers leave.
const RECOVERY: Duration = Duration::from_secs(60 + 5 + 12 * 10);

struct Random(u64);

impl Random {
    /// Marsaglia's xorshift.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn index(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).expect("small")
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

struct InFlight {
    ends: Instant,
    passed: Option<Passed>,
    verdict: Option<Verdict>,
    place: Place,
    is_stream: bool,
    caller: usize,
}

struct Simulation {
    random: Random,
    now: Instant,
    breakers: Breakers,
    bulkhead: Bulkhead,
    calls: Vec<InFlight>,
    /// Whether all tools are of class `execute`.
    nobody_reads: bool,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed | 1);
        let now = Clock.instant();
        let per_tool = random.below(2) == 0;
        let breaker = settings::Breaker { per_tool, ..settings::Breaker::default() };
        let bulkhead = settings::Bulkhead {
            calls: CALLS,
            calls_per_caller: CALLS / 2,
            streams: STREAMS,
            streams_per_caller: STREAMS / 2,
            queue: 0,
            queue_time: Duration::from_secs(1),
        };
        Self {
            nobody_reads: random.below(3) == 0,
            random,
            now,
            breakers: Breakers::new(breaker, now),
            bulkhead: Bulkhead::new(&bulkhead),
            calls: vec![],
        }
    }

    /// Some time passes, and somebody calls.
    fn step(&mut self, works: bool) {
        self.now += self.random.millis(1, 800);
        self.end_calls();
        let caller = self.random.index(3);
        let listens = self.random.below(10) == 0;
        let kind = if listens { Kind::Stream } else { Kind::Call };
        let name = format!("caller-{caller}");
        let entered = {
            let mut entering = pin!(self.bulkhead.enter(kind, name.into()));
            entering.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let Poll::Ready(entered) = entered else { panic!("there is no queue") };
        let Ok(place) = entered else { return };
        let class = match (self.nobody_reads, self.random.below(3)) {
            (true, _) | (false, 2) => Class::Execute,
            (false, 1) => Class::Write,
            (false, _) => Class::Read,
        };
        let tool = ["a", "b"].get(self.random.index(2)).copied();
        let Ok(passed) = self.breakers.admit(class, tool, self.now) else { return };
        let (verdict, lasts) = match (works, self.random.below(10)) {
            // The caller leaves.
            (_, 0) => (None, self.random.millis(0, 20_000)),
            (_, 1) => (Some(Verdict::Alive), self.random.millis(0, 500)),
            (true, _) | (false, 2) => (Some(Verdict::Succeeded), self.random.millis(0, 3_000)),
            (false, 3) => (Some(Verdict::Failed), self.random.millis(10_000, 40_000)),
            (false, 4..=6) => (Some(Verdict::Unreachable), self.random.millis(0, 2_000)),
            (false, _) => (Some(Verdict::Failed), self.random.millis(0, 2_000)),
        };
        let mut call = InFlight {
            ends: self.now + lasts,
            passed: Some(passed),
            verdict,
            place,
            is_stream: listens,
            caller,
        };
        if verdict == Some(Verdict::Succeeded) && self.random.below(3) == 0 {
            // It is answered by a stream, which goes on.
            if let Some(passed) = call.passed.take() {
                self.breakers.settle(passed, verdict, self.now);
            }
            call.is_stream = listens || self.bulkhead.become_stream(&mut call.place);
            call.ends += self.random.millis(0, 20_000);
        }
        self.calls.push(call);
        self.check();
    }

    fn end_calls(&mut self) {
        let now = self.now;
        let (ended, live): (Vec<_>, _) = self.calls.drain(..).partition(|call| call.ends <= now);
        self.calls = live;
        for InFlight { passed, verdict, place, .. } in ended {
            if let Some(passed) = passed {
                self.breakers.settle(passed, verdict, now);
            }
            drop(place);
        }
    }

    fn check(&self) {
        for (kind, most) in [(Kind::Call, CALLS), (Kind::Stream, STREAMS)] {
            let streams = kind == Kind::Stream;
            let live = || self.calls.iter().filter(|call| call.is_stream == streams);
            let taken = live().count();
            assert!(taken <= most, "{taken} of {most}");
            assert_eq!(self.bulkhead.taken(kind), (taken, most));
            for caller in 0..3 {
                let own = live().filter(|call| call.caller == caller).count();
                assert!(own <= most / 2, "{own} of one caller");
            }
        }
    }

    fn is_closed(&self) -> bool {
        let reading = self.breakers.reading(self.now);
        reading.phase == Phase::Closed && reading.tools.is_empty()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn places_come_back_and_the_breaker_recovers(seed: u64) {
        let mut simulation = Simulation::new(seed);
        for _ in 0..5 {
            for _ in 0..simulation.random.below(200) {
                simulation.step(false);
            }
            let recovered = simulation.now + LATE + RECOVERY;
            while simulation.now < recovered {
                simulation.step(true);
            }
            assert!(simulation.is_closed(), "{:?}", simulation.breakers);
        }
        simulation.now += Duration::from_secs(120);
        simulation.end_calls();
        simulation.check();
        assert_eq!(simulation.bulkhead.taken(Kind::Call), (0, CALLS));
        assert_eq!(simulation.bulkhead.taken(Kind::Stream), (0, STREAMS));
    }
}

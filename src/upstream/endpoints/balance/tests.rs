use proptest::prelude::*;

use super::*;
use crate::telemetry::Clock;

const SECOND: Duration = Duration::from_secs(1);

/// Endpoints, and a clock that is turned by hand.
struct World {
    balance: Balance,
    now: Instant,
}

impl World {
    fn new(count: usize) -> Self {
        Self { balance: Balance::new(count), now: Clock.instant() }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn pick(&mut self) -> Taken {
        self.balance.pick(Set::default(), self.now).expect("somebody is there")
    }

    /// A call to one endpoint that ends at once.
    fn call(&mut self, index: usize, outcome: Outcome) -> Option<Change> {
        let call = self.balance.take(index, self.now).expect("it is there");
        self.end(&call, outcome)
    }

    fn end(&mut self, call: &Taken, outcome: Outcome) -> Option<Change> {
        let change = self.balance.report(call, outcome, self.now);
        self.balance.finish(call);
        change
    }

    fn eject(&mut self, index: usize) -> Duration {
        for _ in 1..FAILURES {
            assert_eq!(self.call(index, Outcome::Failed), None);
        }
        match self.call(index, Outcome::Failed) {
            Some(Change::Ejected(length)) => length,
            other => panic!("{other:?}"),
        }
    }

    fn ejected(&self) -> Vec<bool> {
        self.balance.members.iter().map(|member| member.is_ejected(self.now)).collect()
    }
}

#[test]
fn calls_go_where_fewest_are_under_way_and_in_turn() {
    let mut world = World::new(3);
    let first: Vec<_> = (0..3).map(|_| world.pick()).collect();
    assert_eq!(first.iter().map(|call| call.index).collect::<Vec<_>>(), [0, 1, 2]);
    world.balance.finish(&first[1]);
    assert_eq!(world.pick().index, 1);
    let turns: Vec<_> = (0..6).map(|_| world.pick().index).collect();
    assert_eq!(turns, [2, 0, 1, 2, 0, 1]);
}

#[test]
fn whoever_was_tried_isnt_taken_again() {
    let mut world = World::new(2);
    let mut tried = Set::default();
    for _ in 0..2 {
        let call = world.balance.pick(tried, world.now).expect("one is left");
        assert!(!tried.contains(call.index));
        tried.insert(call.index);
    }
    assert_eq!(world.balance.pick(tried, world.now), None);
}

#[test]
fn failures_in_a_row_leave_one_out_for_longer_each_time() {
    let mut world = World::new(2);
    assert_eq!(world.call(0, Outcome::Failed), None);
    assert_eq!(world.call(0, Outcome::Failed), None);
    assert_eq!(world.call(0, Outcome::Answered), None);
    let mut lengths = vec![world.eject(0).as_secs()];
    for _ in 0..7 {
        world.wait(LONGEST_ABSENCE);
        // One failure is enough now.
        match world.call(0, Outcome::Failed) {
            Some(Change::Ejected(length)) => lengths.push(length.as_secs()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lengths, [5, 10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn an_absence_is_forgotten_once_it_has_stood_for_as_long() {
    let mut world = World::new(2);
    assert_eq!(world.eject(0), FIRST_ABSENCE);
    world.wait(FIRST_ABSENCE);
    assert_eq!(world.call(0, Outcome::Answered), Some(Change::Returned));
    world.wait(FIRST_ABSENCE);
    assert_eq!(world.call(0, Outcome::Answered), None);
    assert_eq!(world.eject(0), FIRST_ABSENCE);
    world.wait(FIRST_ABSENCE);
    assert_eq!(world.call(0, Outcome::Answered), Some(Change::Returned));
    assert_eq!(world.eject(0), FIRST_ABSENCE * 2);
}

#[test]
fn whoever_comes_back_answers_one_call_first() {
    let mut world = World::new(2);
    world.eject(0);
    assert!((0..9).all(|_| world.pick().index == 1));
    world.wait(FIRST_ABSENCE);
    let trial = world.pick();
    assert_eq!(trial.index, 0);
    assert!((0..9).all(|_| world.pick().index == 1));
    // A call that was dropped tells nothing; the next one is the trial.
    world.balance.finish(&trial);
    let trial = world.pick();
    assert_eq!(trial.index, 0);
    assert_eq!(world.end(&trial, Outcome::Answered), Some(Change::Returned));
    assert!((0..9).all(|_| world.pick().index == 0));
}

#[test]
fn calls_of_before_dont_speak_for_or_against_whoever_comes_back() {
    let mut world = World::new(2);
    let old: Vec<_> =
        (0..4).map(|_| world.balance.take(0, world.now).expect("it is there")).collect();
    world.wait(SECOND);
    world.eject(0);
    assert_eq!(world.end(&old[0], Outcome::Answered), None);
    assert_eq!(world.ejected(), [true, false]);
    world.wait(FIRST_ABSENCE);
    assert_eq!(world.end(&old[1], Outcome::Failed), None);
    assert_eq!(world.ejected(), [false, false]);
    let trial = world.pick();
    assert_eq!(trial.index, 0);
    // The end of an old stream doesn't end the trial.
    world.balance.finish(&old[2]);
    world.balance.finish(&old[3]);
    assert_eq!(world.pick().index, 1);
}

#[test]
fn at_most_half_are_left_out() {
    for (count, most) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        let mut world = World::new(count);
        for index in 0..count {
            for _ in 0..9 {
                world.call(index, Outcome::Failed);
            }
        }
        let out = world.ejected().into_iter().filter(|out| *out).count();
        assert_eq!(out, most, "{count}");
    }
}

#[test]
fn one_failed_probe_says_nothing_and_one_good_one_ends_it() {
    let mut world = World::new(2);
    let now = world.now;
    assert_eq!(world.balance.probed(0, false, now), None);
    assert_eq!(world.balance.probed(0, true, now), None);
    assert_eq!(world.balance.probed(0, false, now), None);
    assert_eq!(world.balance.probed(0, false, now), Some(Change::Down));
    assert_eq!(world.balance.probed(0, false, now), None);
    assert!((0..9).all(|_| world.pick().index == 1));
    assert_eq!(world.balance.probed(0, true, now), Some(Change::Up));
    assert!((0..9).all(|_| world.pick().index == 0));
}

#[test]
fn if_all_are_out_the_least_bad_are_in() {
    let mut world = World::new(3);
    let now = world.now;
    world.eject(0);
    for index in [1, 2] {
        world.balance.probed(index, false, now);
        world.balance.probed(index, false, now);
    }
    assert!((0..9).all(|_| world.pick().index == 0));
    world.balance.probed(0, false, now);
    world.balance.probed(0, false, now);
    let picked: Vec<_> = (0..4).map(|_| world.pick().index).collect();
    assert_eq!(picked, [1, 2, 1, 2]);
}

#[test]
fn whoever_answers_out_of_its_time_is_back() {
    let mut world = World::new(2);
    world.eject(0);
    world.wait(SECOND);
    assert_eq!(world.call(0, Outcome::Answered), Some(Change::Returned));
    assert_eq!(world.ejected(), [false, false]);
}

#[test]
fn sessions_are_given_up_after_a_while() {
    let mut world = World::new(2);
    world.eject(0);
    assert!(!world.balance.is_given_up(0, world.now));
    world.wait(GIVEN_UP);
    // Its time is over: it is tried.
    assert!(!world.balance.is_given_up(0, world.now));
    world.call(0, Outcome::Failed);
    assert!(world.balance.is_given_up(0, world.now));
    world.call(0, Outcome::Answered);
    assert!(!world.balance.is_given_up(0, world.now));
    world.balance.probed(1, false, world.now);
    world.balance.probed(1, false, world.now);
    assert!(!world.balance.is_given_up(1, world.now));
    world.wait(GIVEN_UP);
    assert!(world.balance.is_given_up(1, world.now));
}

/// What may happen; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Begin,
    BeginAt(usize),
    End(usize, Option<bool>),
    Probe(usize, bool),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Begin),
        1 => any::<usize>().prop_map(Step::BeginAt),
        4 => (any::<usize>(), any::<Option<bool>>()).prop_map(|(at, how)| Step::End(at, how)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(at, how)| Step::Probe(at, how)),
        2 => (0..20_000_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..200)
}

fn outcome(answered: bool) -> Outcome {
    if answered { Outcome::Answered } else { Outcome::Failed }
}

proptest! {
    /// Whatever happens: somebody is there for each call, nothing that is well is passed over for something that
    /// isn't, no call is forgotten, and at most half are left out where there are no probes. And once all is
    /// well again, all of them serve again.
    #[test]
    fn laws(count in 1_usize..6, probes: bool, steps in steps()) {
        let mut world = World::new(count);
        let mut calls: Vec<Taken> = Vec::new();
        for step in steps {
            match step {
                Step::Begin => {
                    let out: Vec<_> =
                        world.balance.members.iter().map(|it| it.is_out(world.now)).collect();
                    let call = world.pick();
                    prop_assert!(!out[call.index] || out.iter().all(|out| *out));
                    calls.push(call);
                }
                Step::BeginAt(at) => {
                    calls.push(world.balance.take(at % count, world.now).expect("is there"));
                }
                Step::End(at, how) if !calls.is_empty() => {
                    let call = calls.swap_remove(at % calls.len());
                    if let Some(answered) = how {
                        world.balance.report(&call, outcome(answered), world.now);
                    }
                    world.balance.finish(&call);
                }
                Step::End(..) => {}
                Step::Probe(at, alive) if probes => {
                    world.balance.probed(at % count, alive, world.now);
                }
                Step::Probe(..) => {}
                Step::Wait(millis) => world.wait(Duration::from_millis(millis)),
            }
            let under_way = world.balance.members.iter().map(|member| member.outstanding);
            prop_assert_eq!(under_way.sum::<usize>(), calls.len());
            let out = world.ejected().into_iter().filter(|out| *out).count();
            prop_assert!(probes || out <= count / 2);
        }
        for call in calls.drain(..) {
            world.balance.finish(&call);
        }
        world.wait(LONGEST_ABSENCE);
        let mut served = vec![0; count];
        for index in 0..count {
            world.balance.probed(index, true, world.now);
        }
        for _ in 0..2 * count {
            let call = world.pick();
            served[call.index] += 1;
            world.end(&call, Outcome::Answered);
        }
        prop_assert_eq!(served, vec![2; count]);
        prop_assert!((0..count).all(|index| world.balance.serves(index)));
    }
}

use std::num::NonZeroU32;

use super::*;
use crate::limits::settings::Quota;

const SECOND: u64 = 1_000_000_000;

fn laws(block: u32, on_store_failure: OnStoreFailure) -> Laws {
    let replicas = NonZeroU32::new(2).expect("two");
    let tokens = NonZeroU32::new(10).expect("ten");
    let quota = Quota::Budget { tokens, period: Some(Duration::from_secs(60)) };
    let part = (&quota.share(replicas)).into();
    let sharing = Sharing { on_store_failure, replicas };
    Laws { whole: (&quota).into(), shared: Some(Shared { sharing, part, block, span: SECOND }) }
}

fn granted(tokens: u32, seconds: u64) -> Outcome {
    Outcome::Granted(Lease { tokens, valid_for: Duration::from_secs(seconds) })
}

/// A replica that serves so many calls a second, evenly, whose store has as many tokens as it wants; how many it
/// asked for, how many it used, how many calls had to wait, and how often it asked ahead.
fn serve(calls: u64, seconds: u64, block: u32) -> (u32, u32, u32, u32) {
    let laws = laws(block, OnStoreFailure::Local);
    let mut cell = Cell::default();
    let (mut leased, mut used, mut waited, mut ahead) = (0, 0, 0, 0);
    for call in 0..calls * seconds {
        let now = SECOND + call * SECOND / calls;
        let took = loop {
            match cell.take(&laws, now, 1) {
                Ok(took) => break took,
                Err(Lack::Short(want)) => {
                    waited += 1;
                    leased += want;
                    cell.feed(granted(want, 1), now);
                }
                Err(lack) => panic!("{lack:?}"),
            }
        };
        cell = took.cell;
        used += 1;
        if let Some(want) = took.ahead {
            ahead += 1;
            leased += want;
            cell.feed(granted(want, 1), now);
            cell = cell.told();
        }
    }
    (leased, used, waited, ahead)
}

#[test]
fn blocks_are_as_large_as_the_use_of_late_allows() {
    // (calls a second, largest block, most that is lost in per cent, most that wait in per cent)
    for (calls, block, lost, waits) in [
        (5, 1_000, 1, 100),
        (10_000, 1_000, 5, 3),
        (10_000, 5, 1, 3),
        (200, 50, 5, 10),
        (200, 0, 0, 100),
    ] {
        let (leased, used, waited, ahead) = serve(calls, 5, block);
        assert!(leased >= used && leased - used <= used * lost / 100, "{leased} for {used}");
        assert!(waited <= used * waits / 100, "{calls}: {waited} of {used} waited");
        // Where blocks are of one token there is no half of one.
        assert_eq!(ahead == 0, calls == 5 || block == 0, "{calls} {block}");
    }
}

#[test]
fn who_seldom_comes_loses_nothing() {
    let laws = laws(1_000, OnStoreFailure::Local);
    let mut cell = Cell::default();
    // A crowd, and then one call every three seconds.
    for now in 0..10_000 {
        cell.feed(granted(1, 1), now);
        cell = cell.take(&laws, now, 1).expect("a token").cell;
    }
    for call in 1..100 {
        let now = call * 3 * SECOND;
        let Err(Lack::Short(want)) = cell.take(&laws, now, 1) else { panic!("nothing is left") };
        assert_eq!(want, 1);
        cell.feed(granted(want, 1), now);
        let took = cell.take(&laws, now, 1).expect("a token");
        assert_eq!((took.ahead, took.cell.left(now)), (None, 0));
        cell = took.cell;
    }
}

#[test]
fn the_store_is_asked_ahead_once_and_not_while_it_says_no() {
    let laws = laws(100, OnStoreFailure::Local);
    let mut cell = Cell::default();
    let now = SECOND;
    cell.feed(granted(2_000, 1), now);
    let mut asked = Vec::new();
    for call in 1..=2_000 {
        let took = cell.take(&laws, now, 1).expect("a token");
        asked.extend(took.ahead.map(|want| (call, want)));
        cell = took.cell;
    }
    // When half a block is left, and then it is waited for.
    assert_eq!(asked, [(1_952, 97)]);
    let took = |outcome| {
        let mut cell = cell;
        cell.feed(granted(2, 1), now);
        cell.feed(outcome, now);
        cell.told().take(&laws, now, 1).expect("a token")
    };
    assert_eq!(took(granted(1, 1)).ahead, Some(100));
    let wait = Some(Duration::from_secs(1));
    assert_eq!(took(Outcome::Refused { retry_after: wait }).ahead, None);
    assert_eq!(took(Outcome::Unavailable).ahead, None);
    // What was leased is used first, whatever the store says then.
    assert_eq!(took(Outcome::Unavailable).instead, None);
    // If no answer ever came, it is asked again.
    let later = now + ASKED;
    cell.feed(granted(1, 1), later);
    assert!(cell.take(&laws, later, 1).is_ok());
}

#[test]
fn without_the_store_its_part_holds_or_what_was_said() {
    let now = SECOND;
    for (on_failure, served) in
        [(OnStoreFailure::Local, 5), (OnStoreFailure::Deny, 0), (OnStoreFailure::UnsafeAllow, 20)]
    {
        let laws = laws(1, on_failure);
        let mut cell = Cell::default();
        cell.feed(granted(2, 1), now);
        cell.feed(Outcome::Unavailable, now);
        let mut instead = Vec::new();
        for _ in 0..22 {
            match cell.take(&laws, now, 1) {
                Ok(took) => {
                    instead.push(took.instead);
                    cell = took.cell;
                }
                Err(Lack::Unknown(wait)) => {
                    assert_eq!((on_failure, wait), (OnStoreFailure::Deny, DOWN));
                }
                Err(Lack::Empty(_)) => assert_eq!(on_failure, OnStoreFailure::Local),
                Err(Lack::Short(_)) => panic!("it doesn't answer"),
            }
        }
        let mut expected = vec![None; 2];
        expected.extend(vec![Some(on_failure); served]);
        assert_eq!(instead, expected);
        // A second later it is asked again.
        assert!(matches!(cell.take(&laws, now + DOWN, 1), Err(Lack::Short(1))));
    }
}

#[test]
fn what_is_left_of_a_window_is_not_used_in_the_next() {
    let laws = laws(10, OnStoreFailure::Local);
    let mut cell = Cell::default();
    cell.feed(granted(5, 3), SECOND);
    assert_eq!(cell.left(4 * SECOND - 1), 5);
    // The window ends soon, and with it all that was leased in it.
    cell.feed(granted(1, 1), 2 * SECOND);
    assert_eq!((cell.left(3 * SECOND - 1), cell.left(3 * SECOND)), (6, 0));
    cell.feed(granted(1, 1), 3 * SECOND);
    assert_eq!(cell.left(3 * SECOND), 1);
    let took = cell.take(&laws, 3 * SECOND, 1).expect("a token");
    assert_eq!(took.cell.left(3 * SECOND), 0);
}

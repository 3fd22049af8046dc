//! Limits that replicas share: what a store says to one of them, and what it does without.

use std::time::Duration;

use super::{
    super::{
        Lease, Limit, Outcome, Shortage, Untaken,
        settings::{Dimension, OnStoreFailure, Sharing},
    },
    Call, Site, budget, changed, limit, number, rate,
};

fn shared(limit: Limit, on_store_failure: OnStoreFailure, replicas: u32) -> Limit {
    let sharing = Sharing { on_store_failure, replicas: number(replicas) };
    changed(limit, |count| count.sharing = Some(sharing))
}

#[test]
fn a_shared_limit_lives_on_leases() {
    let few = limit("few", rate(20, 60, 20), &[Dimension::Principal]);
    let mut site = Site::new([shared(few, OnStoreFailure::Deny, 1)]);
    let call = Call::of("echo");
    let short = |site: &Site| match site.try_take(&call) {
        Err(Untaken::Short(shortages)) => shortages,
        other => panic!("{other:?}"),
    };
    let shortages = short(&site);
    let [shortage] = &*shortages else { panic!("{shortages:?}") };
    assert_eq!((&**shortage.limit(), shortage.need(), shortage.want()), ("few", 1, 1));
    assert_eq!(*shortage.quota(), rate(20, 60, 20));
    let lease = Lease { tokens: 2, valid_for: Duration::from_secs(1) };
    shortage.feed(Outcome::Granted(lease), site.instant());
    assert_eq!((site.served(&call), short(&site).len()), (2, 1));
    // Two that ask at once each get what they asked for.
    shortage.feed(Outcome::Granted(lease), site.instant());
    shortage.feed(Outcome::Granted(lease), site.instant());
    assert_eq!(site.served(&call), 4);
    // What isn't used in time is lost.
    shortage.feed(Outcome::Granted(lease), site.instant());
    site.now += Duration::from_secs(1);
    short(&site);
    // There are none: nobody asks again before there are.
    let wait = Duration::from_secs(3);
    shortage.feed(Outcome::Refused { retry_after: Some(wait) }, site.instant());
    site.now += Duration::from_secs(1);
    assert_eq!(site.limited(&call).retry_after(), Some(Duration::from_secs(2)));
    site.now += Duration::from_secs(2);
    short(&site);
    shortage.feed(Outcome::Refused { retry_after: None }, site.instant());
    site.now += Duration::from_secs(10_000);
    assert_eq!(site.limited(&call).retry_after(), None);
}

#[test]
fn of_many_calls_that_wait_one_asks_for_a_block() {
    let many = limit("many", budget(1_000, Some(60)), &[]);
    let mut site = Site::new([shared(many, OnStoreFailure::Deny, 1)]);
    let call = Call::of("echo");
    let ask = |site: &Site| match site.try_take(&call) {
        Err(Untaken::Short(shortages)) => shortages.into_iter().next().expect("one limit"),
        other => panic!("{other:?}"),
    };
    let wants = |site: &Site| ask(site).want();
    let feed = |site: &Site, shortage: &Shortage| {
        let lease = Lease { tokens: shortage.want(), valid_for: Duration::from_secs(10) };
        shortage.feed(Outcome::Granted(lease), site.instant());
    };
    // A crowd that makes blocks of ten worth while.
    while site.served(&call) < 200 {
        let lease = Lease { tokens: 200, valid_for: Duration::from_secs(10) };
        ask(&site).feed(Outcome::Granted(lease), site.instant());
    }
    // The one that was asked for ahead of them never came, and isn't waited for any more.
    site.now += Duration::from_secs(1);
    let (block, single) = (ask(&site), ask(&site));
    assert_eq!((block.want(), single.want(), wants(&site)), (10, 1, 1));
    // What one call asked for itself is not the block.
    feed(&site, &single);
    assert_eq!((site.served(&call), wants(&site)), (1, 1));
    feed(&site, &block);
    // Half way through it the next one was asked for; when there is none, a call asks again.
    assert_eq!((site.served(&call), wants(&site)), (10, 1));
    block.feed(Outcome::Refused { retry_after: Some(Duration::ZERO) }, site.instant());
    assert_eq!(wants(&site), 10);
}

#[test]
fn a_store_that_is_down_never_means_unlimited() {
    for (on_failure, replicas, served) in [
        (OnStoreFailure::Local, 1, 6),
        (OnStoreFailure::Local, 2, 3),
        (OnStoreFailure::Local, 100, 1),
        (OnStoreFailure::Deny, 1, 0),
        (OnStoreFailure::UnsafeAllow, 1, 1_000),
    ] {
        let few = limit("few", budget(6, Some(60)), &[]);
        let mut site = Site::new([shared(few, on_failure, replicas)]);
        let mut total = 0;
        let call = Call::of("echo");
        // Within the period, the store is asked now and then, and never answers.
        for second in 0..59 {
            site.now = Duration::from_secs(second);
            if let Err(Untaken::Short(shortages)) = site.try_take(&call) {
                shortages.iter().for_each(|it| it.feed(Outcome::Unavailable, site.instant()));
            }
            total += site.served(&call);
            if on_failure == OnStoreFailure::UnsafeAllow {
                break;
            }
        }
        assert_eq!(total, served, "{on_failure:?} {replicas}");
    }
}

#[test]
fn a_limit_that_refuses_here_asks_no_store() {
    let few = limit("few", rate(1, 3_600, 1), &[]);
    let many = shared(limit("many", rate(100, 60, 5), &[]), OnStoreFailure::Local, 1);
    let site = Site::new([few, many]);
    let call = Call::of("echo");
    let Err(Untaken::Short(shortages)) = site.try_take(&call) else { panic!("it is short") };
    let lease = Lease { tokens: 1, valid_for: Duration::from_secs(60) };
    shortages[0].feed(Outcome::Granted(lease), site.instant());
    assert_eq!(site.take(&call), Ok(()));
    assert_eq!(site.take(&call), Err(vec!["few".to_owned()]));
}

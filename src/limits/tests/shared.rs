//! Limits that replicas share: what a store says to one of them, and what it does without.

use std::time::Duration;

use super::{
    super::{
        Lease, Limit, Outcome, Untaken,
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

//! No order of calls gets past the limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;

use super::{
    super::{
        Limit, Now, Untaken,
        settings::{Dimension, Measure, Quota},
    },
    Call, Site, budget, changed, limit, rate,
};
use crate::protocol::Class;

/// One step of a simulation: how long after the last one (ms), who, which tool, how many targets.
type Step = (u64, u8, u8, usize);

/// Tokens that a step takes of a limit, and of which share of it.
fn taken(limit: &Limit, (_, agent, tool, targets): Step) -> (String, u64) {
    let Measure::Count(count) = &limit.measure else { panic!("it counts") };
    let values: BTreeSet<_> = count.per.iter().collect();
    let share = values.into_iter().map(|dimension| match dimension {
        Dimension::Principal => format!("p{agent}"),
        Dimension::Tool => format!("t{tool}"),
        other => panic!("{other:?}"),
    });
    let cost = count.cost.get(TOOLS[usize::from(tool)]).copied().unwrap_or(1);
    (share.collect(), u64::from(cost) * u64::try_from(targets).expect("small"))
}

const TOOLS: [&str; 3] = ["echo", "look", "dear"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Calls of several agents at any times: no share of any limit ever gets more than it may, and whoever is
    /// refused is over what the refusal names, gets nothing taken, and is served when it said.
    #[test]
    fn no_order_of_calls_gets_past_limits(
        steps in prop::collection::vec((0..2_000_u64, 0..3_u8, 0..3_u8, 1..4_usize), 1..150),
    ) {
        let limits = [
            limit("a", rate(5, 10, 4), &[Dimension::Principal]),
            changed(limit("b", rate(3, 2, 9), &[Dimension::Tool]), |count| {
                count.cost = [("dear".into(), 3)].into();
            }),
            limit("c", budget(10, Some(20)), &[]),
            limit("d", budget(4, Some(5)), &[Dimension::Principal, Dimension::Tool]),
        ];
        let mut site = Site::new(limits.clone());
        // Limit and share → when how much was taken.
        let mut history: BTreeMap<(usize, String), Vec<(u64, u64)>> = BTreeMap::new();
        for step in steps {
            let (pause, agent, tool, targets) = step;
            site.now += Duration::from_millis(pause);
            let now = u64::try_from(site.now.as_millis()).expect("small");
            let target = (Class::Execute, Some(TOOLS[usize::from(tool)]));
            let call = Call { targets: vec![target; targets], ..Call::of("echo") };
            let call = call.by(&format!("agent-{agent}"));
            let refusal = match site.try_take(&call) {
                Ok(()) => {
                    for (at, limit) in limits.iter().enumerate() {
                        let (share, tokens) = taken(limit, step);
                        history.entry((at, share)).or_default().push((now, tokens));
                    }
                    continue;
                }
                Err(Untaken::Limited(limited)) => limited,
                Err(Untaken::Short(shortages)) => panic!("{shortages:?}"),
            };
            // Where nobody else comes first, the wait is enough and not too long.
            let Some(wait) = refusal.retry_after() else { continue };
            let later = |wait| {
                let now = Now { instant: site.instant() + wait, unix: site.now };
                matches!(call.counted(&site.limiter).take(now), Err(Untaken::Limited(_)))
            };
            prop_assert!(later(wait - Duration::from_nanos(1)), "{refusal:?} waits too long");
        }
        for ((at, share), taken) in &history {
            let Measure::Count(count) = &limits[*at].measure else { panic!("it counts") };
            for (from, (start, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for (end, tokens) in &taken[from..] {
                    sum += tokens;
                    let span = end - start;
                    let most = match count.quota {
                        Quota::Rate { tokens, period, burst } => {
                            let period = u64::try_from(period.as_millis()).expect("small");
                            u64::from(burst.get()) + span * u64::from(tokens.get()) / period
                        }
                        // Two windows may meet within one period.
                        Quota::Budget { tokens, period } => {
                            let period = period.expect("one").as_millis();
                            let windows = u128::from(span) / period + 2;
                            u64::from(tokens.get()) * u64::try_from(windows).expect("small")
                        }
                    };
                    prop_assert!(sum <= most, "{} of {} {}: {}", sum, limits[*at].name, share, most);
                }
            }
        }
    }
}

//! All limits together: what they are about, and what is taken.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    limited::Kind,
    settings::{Count, Dimension, Measure, Quota},
    *,
};
use crate::{
    identity::SpiffeId,
    protocol::{Class, Method},
    telemetry::Clock,
};

mod laws;
mod shared;

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("more than zero")
}

fn rate(tokens: u32, seconds: u64, burst: u32) -> Quota {
    let period = Duration::from_secs(seconds);
    Quota::Rate { tokens: number(tokens), period, burst: number(burst) }
}

fn budget(tokens: u32, seconds: Option<u64>) -> Quota {
    Quota::Budget { tokens: number(tokens), period: seconds.map(Duration::from_secs) }
}

fn limit(name: &str, quota: Quota, per: &[Dimension]) -> Limit {
    let per = per.iter().copied().collect();
    let count = Count { quota, per, cost: BTreeMap::new(), sharing: None };
    Limit { name: name.into(), when: When::default(), measure: Measure::Count(count) }
}

fn changed(mut limit: Limit, change: impl FnOnce(&mut Count)) -> Limit {
    let Measure::Count(count) = &mut limit.measure else { panic!("it counts") };
    change(count);
    limit
}

/// A call as a test describes it.
#[derive(Clone, Debug)]
struct Call {
    principal: SpiffeId,
    tenant: Option<String>,
    runs: Vec<Uuid>,
    method: &'static str,
    upstream: &'static str,
    targets: Vec<(Class, Option<&'static str>)>,
}

impl Call {
    fn of(tool: &'static str) -> Self {
        Self {
            principal: id("a"),
            tenant: None,
            runs: vec![],
            method: "tools/call",
            upstream: "files",
            targets: vec![(Class::Execute, Some(tool))],
        }
    }

    fn by(self, agent: &str) -> Self {
        Self { principal: id(agent), ..self }
    }

    fn counted(&self, limiter: &Limiter) -> Counted {
        let touched =
            |(class, tool): &(Class, Option<&'static str>)| Touched { class: *class, tool: *tool };
        let targets: Vec<_> = self.targets.iter().map(touched).collect();
        limiter.count(&Subject {
            principal: &self.principal,
            tenant: self.tenant.as_deref(),
            runs: &self.runs,
            method: &Method::parse(self.method),
            upstream: self.upstream,
            listener: "inbound",
            targets: &targets,
        })
    }
}

fn id(agent: &str) -> SpiffeId {
    SpiffeId::parse(&format!("spiffe://td/{agent}")).expect("an ID")
}

/// A limiter with a clock of the test's own.
struct Site {
    limiter: Limiter,
    began: Instant,
    now: Duration,
}

impl Site {
    fn new(limits: impl Into<Vec<Limit>>) -> Self {
        let began = Clock.instant();
        Self { limiter: Limiter::new(limits.into(), began), began, now: Duration::ZERO }
    }

    fn instant(&self) -> Instant {
        self.began + self.now
    }

    fn try_take(&self, call: &Call) -> Result<(), Untaken> {
        let now = Now { instant: self.instant(), unix: self.now };
        call.counted(&self.limiter).take(now).map(drop)
    }

    /// The names of the limits that it is over; the store isn't asked.
    fn take(&self, call: &Call) -> Result<(), Vec<String>> {
        self.try_take(call).map_err(|untaken| match untaken {
            Untaken::Limited(limited) => {
                limited.exceeded().map(|it| it.limit.to_string()).collect()
            }
            Untaken::Short(shortages) => panic!("{shortages:?}"),
        })
    }

    fn limited(&self, call: &Call) -> Limited {
        match self.try_take(call) {
            Err(Untaken::Limited(limited)) => limited,
            other => panic!("{other:?}"),
        }
    }

    /// How many calls in a row are served.
    fn served(&self, call: &Call) -> usize {
        (0..1_000).take_while(|_| self.try_take(call).is_ok()).count()
    }
}

#[test]
fn a_limit_is_about_what_it_says() {
    let when = |change: fn(&mut When)| {
        let mut limit = limit("few", rate(1, 3_600, 1), &[]);
        change(&mut limit.when);
        limit
    };
    let echo = Call::of("echo");
    for (what, limit, call, about) in [
        ("anything", when(|_| {}), echo.clone(), true),
        (
            "another tool",
            when(|it| it.tools = ToolName::parse("look").into_iter().collect()),
            echo.clone(),
            false,
        ),
        (
            "the tool",
            when(|it| it.tools = ToolName::parse("ec*").into_iter().collect()),
            echo.clone(),
            true,
        ),
        (
            "the beginning of it",
            when(|it| it.tools = ToolName::parse("ech").into_iter().collect()),
            echo.clone(),
            false,
        ),
        ("another upstream", when(|it| it.upstreams = ["mail".into()].into()), echo.clone(), false),
        ("the upstream", when(|it| it.upstreams = ["files".into()].into()), echo.clone(), true),
        ("another class", when(|it| it.classes = vec![Class::Read]), echo.clone(), false),
        ("the method", when(|it| it.methods = ["tools/call".into()].into()), echo.clone(), true),
        ("another method", when(|it| it.methods = ["a".into()].into()), echo.clone(), false),
        (
            "the caller",
            when(|it| it.principals = vec![Callers::parse("spiffe://td/a").expect("an ID")]),
            echo.clone(),
            true,
        ),
        (
            "a caller whose name begins alike",
            when(|it| it.principals = vec![Callers::parse("spiffe://td/a/*").expect("IDs")]),
            echo.clone().by("ab"),
            false,
        ),
        (
            "callers below",
            when(|it| it.principals = vec![Callers::parse("spiffe://td/a/*").expect("IDs")]),
            echo.clone().by("a/b"),
            true,
        ),
        (
            "lists, unless they are named",
            when(|_| {}),
            Call { targets: vec![(Class::List, None)], ..echo.clone() },
            false,
        ),
        (
            "lists that are named",
            when(|it| it.classes = vec![Class::List]),
            Call { targets: vec![(Class::List, None)], ..echo.clone() },
            true,
        ),
        (
            "what holds a connection together, even if it is named",
            when(|it| it.classes = vec![Class::Control]),
            Call { targets: vec![(Class::Control, None)], ..echo.clone() },
            false,
        ),
    ] {
        let site = Site::new([limit]);
        assert_eq!(site.take(&call), Ok(()), "{what}");
        assert_eq!(site.take(&call).is_err(), about, "{what}");
    }
}

#[test]
fn what_is_counted_apart() {
    let echo = Call::of("echo");
    let runs = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let tenant = |name: &str| Some(name.to_owned());
    for (per, one, other, apart) in [
        (Dimension::Principal, echo.clone(), echo.clone().by("b"), true),
        (Dimension::Principal, echo.clone(), Call::of("look"), false),
        (Dimension::Tool, echo.clone(), Call::of("look"), true),
        (Dimension::Tool, echo.clone(), echo.clone().by("b"), false),
        (Dimension::Upstream, echo.clone(), Call { upstream: "mail", ..echo.clone() }, true),
        (Dimension::Method, echo.clone(), Call { method: "other", ..echo.clone() }, true),
        (
            Dimension::Class,
            echo.clone(),
            Call { targets: vec![(Class::Read, Some("echo"))], ..echo.clone() },
            true,
        ),
        (
            Dimension::Tenant,
            Call { tenant: tenant("x"), ..echo.clone() },
            Call { tenant: tenant("y"), ..echo.clone() },
            true,
        ),
        (
            Dimension::Tenant,
            Call { tenant: tenant("x"), ..echo.clone() },
            Call { tenant: tenant("x"), ..echo.clone() }.by("b"),
            false,
        ),
        // Those who tell none count together.
        (Dimension::Tenant, echo.clone(), echo.clone().by("b"), false),
        (
            Dimension::Tenant,
            Call { tenant: tenant("x"), ..echo.clone() },
            Call {
                tenant: tenant("x"),
                principal: SpiffeId::parse("spiffe://other/a").expect("an ID"),
                ..echo.clone()
            },
            true,
        ),
        (
            Dimension::Run,
            Call { runs: vec![runs[0]], ..echo.clone() },
            Call { runs: vec![runs[1]], ..echo.clone() },
            true,
        ),
        // A call of two runs takes of both.
        (
            Dimension::Run,
            Call { runs: runs.to_vec(), ..echo.clone() },
            Call { runs: vec![runs[1]], ..echo.clone() },
            false,
        ),
        // A call of no run begins one.
        (Dimension::Run, echo.clone(), echo.clone(), true),
    ] {
        let site = Site::new([limit("one", rate(1, 3_600, 1), &[per])]);
        assert_eq!(site.take(&one), Ok(()), "{per:?}");
        assert_eq!(site.take(&other).is_ok(), apart, "{per:?} {one:?} {other:?}");
    }
}

/// Names that run together as text are no other name.
#[test]
fn no_two_callers_can_be_put_together_as_one() {
    let site =
        Site::new([limit("one", rate(1, 3_600, 1), &[Dimension::Tool, Dimension::Upstream])]);
    let named = |tool, upstream| Call { upstream, ..Call::of(tool) };
    for (tool, upstream) in [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")] {
        assert_eq!(site.take(&named(tool, upstream)), Ok(()), "{tool} {upstream}");
    }
}

#[test]
fn all_are_checked_before_any_is_charged() {
    let few = limit("few", rate(2, 3_600, 2), &[]);
    let some = limit("some", budget(3, Some(60)), &[]);
    let many = limit("many", rate(100, 60, 5), &[]);
    let mut site = Site::new([some, many, few]);
    let call = Call::of("echo");
    assert_eq!(site.served(&call), 2);
    for _ in 0..10 {
        assert_eq!(site.take(&call), Err(vec!["few".to_owned()]));
    }
    // The budget has one left, and the refusals took nothing of it.
    site.now = Duration::from_secs(59);
    let two = Call { targets: vec![(Class::Read, None), (Class::Read, None)], ..call.clone() };
    let limited = site.limited(&two);
    assert_eq!((&*limited.worst.limit, limited.others.len()), ("few", 1));
    assert_eq!(&*limited.others[0].limit, "some");
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(3_600 - 59)));
    assert_eq!(limited.others[0].retry_after, Some(Duration::from_secs(1)));
    let Kind::Budget(level) = limited.others[0].kind else { panic!("{limited:?}") };
    assert_eq!((level.quota, level.remaining), (3, 1));
    let told = "too many calls for the limit `few` and over `some`";
    assert_eq!(limited.to_string(), told);
}

#[test]
fn a_budget_comes_back_all_at_once() {
    let mut site = Site::new([limit("daily", budget(3, Some(60)), &[Dimension::Principal])]);
    let call = Call::of("echo");
    site.now = Duration::from_secs(1_000);
    assert_eq!(site.served(&call), 3);
    site.now += Duration::from_millis(59_999);
    let limited = site.limited(&call);
    assert_eq!((limited.retry_after(), site.served(&call)), (Some(Duration::from_millis(1)), 0));
    site.now += Duration::from_millis(1);
    assert_eq!(site.served(&call), 3);
}

#[test]
fn a_run_has_its_budget_once() {
    let mut site = Site::new([limit("run", budget(3, None), &[Dimension::Run])]);
    let call = Call { runs: vec![Uuid::from_u128(1)], ..Call::of("echo") };
    let two = Call { targets: vec![(Class::Execute, None); 2], ..call.clone() };
    assert_eq!(site.take(&two), Ok(()));
    for hour in 0..48 {
        site.now = Duration::from_secs(hour * 1_800);
        let limited = site.limited(&two);
        assert_eq!(limited.retry_after(), None);
        assert!(limited.to_string().ends_with("trying again doesn't help"), "{limited}");
    }
}

#[test]
fn tools_cost_what_they_cost() {
    let cost = [("dear".into(), 5), ("free".into(), 0)];
    let dear = changed(limit("all", rate(6, 3_600, 6), &[]), |count| count.cost = cost.into());
    let site = Site::new([dear]);
    assert_eq!(site.served(&Call::of("free")), 1_000);
    assert_eq!(site.served(&Call::of("dear")), 1);
    assert_eq!(site.served(&Call::of("echo")), 1);
    assert_eq!(site.served(&Call::of("free")), 1_000);
    // More than there ever is.
    let seven = Call { targets: vec![(Class::Read, None); 7], ..Call::of("echo") };
    assert_eq!(site.limited(&seven).retry_after(), None);
}

#[test]
fn limits_that_stay_keep_their_counts() {
    let stays = || limit("stays", rate(1, 3_600, 1), &[]);
    let grows = |burst| limit("grows", rate(5, 3_600, burst), &[]);
    let mut site = Site::new([stays(), grows(2)]);
    let call = Call::of("echo");
    assert_eq!(site.take(&call), Ok(()));
    let in_flight = call.counted(&site.limiter);
    site.limiter = site.limiter.renewed(vec![grows(3), stays()], site.instant());
    assert_eq!(site.take(&call), Err(vec!["stays".to_owned()]));
    let now = Now { instant: site.instant(), unix: site.now };
    assert!(in_flight.take(now).is_err(), "calls of before take of the same count");
    // One that was changed begins anew, as does one that was gone.
    site.limiter = site.limiter.renewed(vec![grows(3)], site.instant());
    assert_eq!(site.served(&call), 3);
    site.limiter = site.limiter.renewed(vec![grows(3), stays()], site.instant());
    assert_eq!(site.take(&call), Err(vec!["grows".to_owned()]));
    site.limiter = site.limiter.renewed(vec![stays()], site.instant());
    assert_eq!(site.served(&call), 1);
}

#[test]
fn two_limiters_are_one_to_a_call() {
    let site = Site::new([limit("m", rate(1, 3_600, 1), &[])]);
    let other = Site::new([limit("a", rate(2, 3_600, 2), &[]), limit("z", rate(2, 3_600, 2), &[])]);
    let call = Call::of("echo");
    let take = || {
        let both = call.counted(&site.limiter).and(call.counted(&other.limiter));
        both.take(Now { instant: site.instant(), unix: site.now }).is_ok()
    };
    assert_eq!([take(), take(), take()], [true, false, false]);
    assert_eq!(other.served(&call), 1, "what one refuses takes nothing of the other");
}

//! Everything at once, for a while: calls of every kind and hundreds of open streams, while policies reload,
//! identities rotate, the upstream dies and comes back, one process takes over from another, and the last
//! one is told to stop. Prints what it saw, and fails if anything was lost.
//!
//! `LICTOR_SOAK_SECONDS` says for how long (`make soak`: five minutes).

mod load;
mod upstream;

use std::{
    collections::BTreeMap,
    env, fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lictor::telemetry::Clock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use tokio::{
    sync::oneshot,
    time::{Instant, interval, sleep, sleep_until},
};

use self::{load::Load, upstream::Upstream};
use crate::subject::{CA, Lictor, Setup};

/// What has to have happened, or the test means nothing.
const SEEN: [&str; 6] = [
    "calls answered",
    "calls denied",
    "calls refused: upstream_unreachable",
    "streams told: \"draining\"",
    "streams told: \"upstream_failed\"",
    "streams without a request that ended well",
];

/// How much is going on at once.
struct Weight {
    seconds: u64,
    streams: usize,
    /// Most that memory may have grown since the process was warm.
    growth: f64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_twenty_seconds() {
    // Too short for memory to have settled.
    soak(Weight { seconds: 20, streams: 200, growth: 1.5 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; `make soak`"]
async fn nothing_is_lost_in_minutes() {
    let seconds =
        env::var("LICTOR_SOAK_SECONDS").map_or(300, |text| text.parse().expect("seconds"));
    soak(Weight { seconds, streams: 500, growth: 1.1 }).await;
}

async fn soak(weight: Weight) {
    allow_many();
    let mut upstream = Upstream::start().await;
    let keys = "timeouts: { idle: 1s }, breaker: { open: 200ms, maxOpen: 400ms }";
    let setup = Setup::to(&upstream.url()).upstream(keys).with("drain: 10s");
    let old = setup.start().await;
    let files = old.descriptors(usize::MAX).await;
    let start = Instant::from_std(Clock.instant());
    let after = |share: f64| start + Duration::from_secs(weight.seconds).mul_f64(share);
    let load = Load::begin(old.places(), weight.streams);
    let changes = tokio::spawn(change(old.directory().to_owned()));
    let deaths = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&deaths);
    let (enough, mut over) = oneshot::channel::<()>();
    let dying = tokio::spawn(async move {
        let mut deaths = 0;
        loop {
            tokio::select! {
                () = sleep(Duration::from_secs(6)) => {}
                // The sender says nothing; that it has gone is the signal.
                _ = &mut over => return upstream,
            }
            upstream.die();
            deaths += 1;
            sleep(Duration::from_millis(700)).await;
            upstream.revive().await;
            told.store(deaths, Ordering::Relaxed);
        }
    });
    let mut table = Table::default();
    sleep_until(after(0.25)).await;
    let warm = old.resident();
    sleep_until(after(0.45)).await;
    table.grown("memory of the first process", warm, old.resident(), weight.growth);
    let mut old = old;
    let new = old.upgrade().await;
    assert!(old.ended().await.success(), "{:#?}", old.logs());
    sleep_until(after(0.7)).await;
    let warm = new.resident();
    sleep_until(after(1.0)).await;
    table.grown("memory of the second process", warm, new.resident(), weight.growth);
    drop(enough);
    let upstream = dying.await.expect("it lives");
    changes.abort();
    let _ = changes.await;
    let busy = new.descriptors(usize::MAX).await;
    let mut tally = load.end().await;
    table.row("descriptors: at first, under load", format!("{files}, {busy}"));
    let after = new.descriptors(files).await;
    table.row("descriptors afterwards", after);
    drain(new, &mut tally, &mut table).await;
    drop(upstream);
    table.row("deaths of the upstream", deaths.load(Ordering::Relaxed));
    for (what, count) in &tally.seen {
        table.row(what, count);
    }
    table.print();
    assert!(after <= files + 2, "{files} descriptors at first, {after} afterwards");
    assert_eq!(tally.lost, Vec::<String>::new());
    for what in SEEN {
        assert!(tally.seen.contains_key(what), "never seen: {what}");
    }
    assert_eq!(table.faults, Vec::<String>::new());
}

/// The test has two descriptors for each stream, as the callers and as the upstream.
fn allow_many() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("raised");
}

/// Told to stop under load: what is under way is answered, streams end in words.
async fn drain(new: Lictor, tally: &mut load::Tally, table: &mut Table) {
    let mut new = new;
    let load = Load::begin_last(new.places()).await;
    new.terminate().await;
    assert!(new.ended().await.success(), "{:#?}", new.logs());
    let last = load.end().await;
    tally.add(last);
    let closings = new.closings(tally.answered).await.len();
    table.row("answered, and on record", format!("{}, {closings}", tally.answered));
    let entries = new.entries().await;
    let of = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).count();
    table.row("entries of the ledger", entries.len());
    let policies = of("config");
    table.row("policies in force, one after another", policies);
    assert!(policies > 5, "policies didn't change");
    assert_eq!((of("genesis"), of("settled"), of("recovered"), of("gap")), (2, 1, 0, 0));
    let wiped = |entry: &&serde_json::Value| entry["target"] == "wipe" && entry["kind"] != "denied";
    assert_eq!(entries.iter().filter(wiped).count(), 0, "what is forbidden went through");
}

/// New policies every second, a new identity every five.
async fn change(directory: std::path::PathBuf) {
    let path = directory.join("policies/all.cedar");
    let policies = fs::read_to_string(&path).expect("policies");
    let mut seconds = interval(Duration::from_secs(1));
    for second in 0.. {
        seconds.tick().await;
        let more = format!(
            "{policies}\n@id(\"s{second}\")\nforbid (principal, action, resource == Tool::\"files/t{second}\");\n"
        );
        let draft = directory.join("all.cedar");
        fs::write(&draft, more).and_then(|()| fs::rename(draft, &path)).expect("written");
        if second % 5 == 4 {
            CA.svid_for("/lictor", 3600).write(&directory, &[&CA]);
        }
    }
}

/// What is printed in the end.
#[derive(Default)]
struct Table {
    rows: Vec<(String, String)>,
    faults: Vec<String>,
}

impl Table {
    fn row(&mut self, what: &str, seen: impl ToString) {
        self.rows.push((what.to_owned(), seen.to_string()));
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn grown(&mut self, what: &str, warm: u64, now: u64, most: f64) {
        let grown = now as f64 / warm as f64;
        self.row(what, format!("{warm} KiB when warm, {now} KiB later ({grown:.2})"));
        if grown > most {
            self.faults.push(format!("{what} has grown to {grown:.2} of what it was"));
        }
    }

    fn print(&self) {
        for (what, seen) in &self.rows {
            println!("{what:44} {seen}");
        }
    }
}

type Counts = BTreeMap<String, usize>;

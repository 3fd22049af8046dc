//! The processes behind upstreams that are commands: counted while Lictor runs, ended with it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use super::site::Site;
use crate::{telemetry::Metrics, upstream::Upstream};

/// How often they are counted.
const LOOK: Duration = Duration::from_secs(1);

/// Tells metrics how many run and how many have crashed.
pub(super) async fn follow(site: Arc<Site>, metrics: Metrics) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for standing in &site.in_force().upstreams {
            let upstream = &standing.upstream;
            let Some(census) = upstream.processes() else { continue };
            let told = standing.crashes_told.swap(census.crashed, Ordering::Relaxed);
            let crashed = census.crashed.saturating_sub(told);
            metrics.set_processes(&upstream.settings().name, census.running, crashed);
        }
    }
}

/// Ends what an upstream has running that is in force no more: as soon as nobody has a call at it, or when
/// `patience` is over. `metrics` is told where no other has its name.
pub(super) async fn let_go(upstream: Arc<Upstream>, patience: Duration, metrics: Option<Metrics>) {
    let unused = async {
        let mut ticks = interval(LOOK);
        // Whoever has a call at it holds it.
        while Arc::strong_count(&upstream) > 1 {
            ticks.tick().await;
        }
    };
    // What isn't over by then is ended like anything else that doesn't end in time.
    let _ = timeout(patience, unused).await;
    upstream.close().await;
    if let (Some(metrics), true) = (metrics, upstream.settings().server.is_command()) {
        metrics.set_processes(&upstream.settings().name, 0, 0);
    }
}

/// Ends those of all upstreams at once, and waits for it.
pub(super) async fn end(upstreams: Vec<Arc<Upstream>>) {
    let mut ending = JoinSet::new();
    for upstream in upstreams {
        ending.spawn(async move { upstream.close().await });
    }
    ending.join_all().await;
}

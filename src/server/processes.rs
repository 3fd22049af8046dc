//! The processes behind upstreams that are commands: counted while Lictor runs, ended with it.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{telemetry::Metrics, upstream::Upstream};

/// How often they are counted.
const LOOK: Duration = Duration::from_secs(1);

/// Tells metrics how many run and how many have crashed.
pub(super) async fn follow(upstreams: Vec<(String, Arc<Upstream>)>, metrics: Metrics) {
    let mut commands: Vec<_> = upstreams
        .into_iter()
        .filter(|(_, upstream)| upstream.settings().server.is_command())
        .map(|(name, upstream)| (name, upstream, 0))
        .collect();
    if commands.is_empty() {
        return;
    }
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (name, upstream, told) in &mut commands {
            let Some(census) = upstream.processes() else { continue };
            metrics.set_processes(name, census.running, census.crashed.saturating_sub(*told));
            *told = census.crashed;
        }
    }
}

/// Ends those of all upstreams at once, and waits for it.
pub(super) async fn end(upstreams: Vec<(String, Arc<Upstream>)>) {
    let mut ending = JoinSet::new();
    for (_, upstream) in upstreams {
        ending.spawn(async move { upstream.close().await });
    }
    ending.join_all().await;
}

//! Tokens of limits that replicas share, from the store that counts them.
//!
//! A call waits for the store only if it has no tokens left here, for 20 ms at most, and if the store stands still
//! three calls at once do; then nobody waits. What a limit does without the store is for its configuration to
//! say. The next block is asked for while the last one serves.

use std::{sync::Arc, time::Duration};

use crate::{
    limits::{Lease, Outcome, Shortage, settings::Quota},
    proxy::Shared,
    state::{Allowance, Block, Unavailable},
};

/// Asks for each, and tells the limits what came of it only when all have answered: a call that needs tokens of
/// several can then take them before others do.
pub(super) async fn lease_all(shared: &Shared, shortages: &[Shortage]) {
    let mut outcomes = Vec::with_capacity(shortages.len());
    for shortage in shortages {
        outcomes.push(lease(shared, shortage).await);
    }
    let now = shared.record.clock.instant();
    for (shortage, outcome) in shortages.iter().zip(outcomes) {
        shortage.feed(outcome, now);
    }
}

/// Asks for the next blocks while calls go on.
pub(super) fn lease_ahead(shared: &Arc<Shared>, low: Vec<Shortage>) {
    if low.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move { lease_all(&shared, &low).await });
}

async fn lease(shared: &Shared, shortage: &Shortage) -> Outcome {
    let allowance = allowance(shortage.quota());
    let key = shortage.key().to_string();
    let clock = shared.record.clock;
    let asked = clock.instant();
    let whose = (&**shortage.limit(), &*key);
    match shared.owners.tokens(whose, &allowance, shortage.need(), shortage.want()).await {
        Ok(Block::Granted { tokens, ends_in }) => {
            // Counted from when it was asked for: the store counted at some time since.
            let elapsed = clock.instant().saturating_duration_since(asked);
            let valid_for = ends_in.unwrap_or(Duration::MAX).min(shortage.span());
            Outcome::Granted(Lease { tokens, valid_for: valid_for.saturating_sub(elapsed) })
        }
        Ok(Block::Refused { retry_after }) => Outcome::Refused { retry_after },
        Err(Unavailable) => Outcome::Unavailable,
    }
}

fn allowance(quota: &Quota) -> Allowance {
    match *quota {
        Quota::Rate { tokens, period, burst } => Allowance::Rate { tokens, period, burst },
        Quota::Budget { tokens, period: Some(period) } => Allowance::Window { tokens, period },
        Quota::Budget { tokens, period: None } => Allowance::Once { tokens },
    }
}

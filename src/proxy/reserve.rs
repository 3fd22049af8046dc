//! What a permitted call takes of limits, before anybody hears of it.
//!
//! A call that was denied takes nothing. One that is over a limit takes nothing of the others either, and is refused;
//! on a route in shadow mode it goes on and is counted as what it would have been refused for. What is taken stays
//! taken when a later step ends the call: whoever fails often is to wait as well.
//!
//! Only what is asked is counted. Notifications, answers to a server's requests, streams that listen and ends of
//! sessions are not, for there is no way to tell a client to send them later, and neither is what holds a
//! connection together (`initialize`, `ping` …), without which clients give up.

mod shared;

use std::sync::Arc;

use super::{Proxy, Read};
use crate::{
    delegation::Hop,
    denial::Denial,
    exchange::Exchange,
    limits::{
        Counted, Limited, Now, Outcome, Subject, Taken, Touched, Untaken, settings::OnStoreFailure,
    },
    protocol::{Class, Kind},
};

/// How often the store is asked for one call: others may take what came of it. Each brings as many tokens as it
/// needs, so that many rounds are rare even among many callers.
const ROUNDS: usize = 8;

impl Proxy {
    /// Takes from all limits that the call meets, or from none.
    pub(super) async fn reserve(
        &self,
        exchange: &mut Exchange,
        read: &Read,
    ) -> Result<Taken, Denial> {
        let counted = self.counted(exchange, read)?;
        let metrics = &self.shared.record.metrics;
        let limited = match self.take(&counted).await {
            Ok(mut taken) => {
                shared::lease_ahead(&self.shared, taken.take_low());
                for limit in counted.names() {
                    let instead = taken.instead().iter().find(|(name, _)| **name == *limit);
                    metrics.limit(limit, instead.map_or("taken", |(_, it)| mode(*it)));
                }
                exchange.limits_mode = taken.instead().iter().map(|(_, it)| mode(*it)).max();
                return Ok(taken);
            }
            Err(limited) => Arc::new(limited),
        };
        let shadow = exchange.taken.as_ref().is_some_and(|taken| taken.shadow);
        let outcome = if shadow { "shadow" } else { "refused" };
        limited.exceeded().for_each(|one| metrics.limit(&one.limit, outcome));
        exchange.over = Some(Arc::clone(&limited));
        if shadow {
            return Ok(Taken::unenforced(&limited));
        }
        exchange.stage = Some("limits");
        Err(Denial::Limited(limited))
    }

    async fn take(&self, counted: &Counted) -> Result<Taken, Limited> {
        let clock = self.shared.record.clock;
        let mut round = 0;
        loop {
            let now = Now { instant: clock.instant(), unix: clock.unix() };
            let shortages = match counted.take(now) {
                Ok(taken) => return Ok(taken),
                Err(Untaken::Limited(limited)) => return Err(limited),
                Err(Untaken::Short(shortages)) => shortages,
            };
            round += 1;
            if round <= ROUNDS {
                shared::lease_all(&self.shared, &shortages).await;
            } else {
                shortages.iter().for_each(|it| it.feed(Outcome::Unavailable, clock.instant()));
            }
        }
    }

    fn counted(&self, exchange: &Exchange, read: &Read) -> Result<Counted, Denial> {
        let (Some(call), Some(principal), Some(permit)) =
            (&exchange.call, &exchange.principal, &exchange.permit)
        else {
            return Err(Denial::NoRoute);
        };
        let (limiter, granted) = (self.shared.limiter.load(), self.shared.granted.load());
        if limiter.is_empty() && granted.is_empty() {
            return Ok(Counted::default());
        }
        match call.kind {
            Kind::Request(_) | Kind::Operation => {}
            Kind::Notification | Kind::Response(_) | Kind::Stream | Kind::End => {
                return Ok(Counted::default());
            }
        }
        // The chain judges targets in their order. What it didn't come to, in shadow mode, is of the widest class.
        let classes = permit.decisions().iter().map(|decision| decision.class);
        let targets = call.targets.iter().zip(classes.chain(std::iter::repeat(Class::Execute)));
        let targets: Vec<_> =
            targets.map(|(target, class)| Touched { class, tool: target.tool() }).collect();
        let chains = exchange.behalf.chains().iter();
        let runs: Vec<_> = chains.filter_map(|chain| chain.hops().last()).map(Hop::run).collect();
        let policies = self.shared.policies.load();
        let subject = Subject {
            principal: &principal.id,
            tenant: policies.tenant(&principal.id),
            runs: &runs,
            method: &call.method,
            upstream: &read.served.server,
            listener: &self.name,
            targets: &targets,
        };
        Ok(limiter.count(&subject).and(granted.count(&subject)))
    }
}

/// How a limit was held without its store. The weakest has the last name, by which a call is known that met several.
fn mode(instead: OnStoreFailure) -> &'static str {
    match instead {
        OnStoreFailure::Deny => "denied",
        OnStoreFailure::Local => "local",
        OnStoreFailure::UnsafeAllow => "unlimited",
    }
}

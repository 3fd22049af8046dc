//! From a permit to a ticket: whether the upstream can take the call now.
//!
//! It comes before anything that a refused call would have to give back. Where denials are only recorded, so
//! is this one.

use std::pin::pin;

use pingora::protocols::http::ServerSession;

use super::{Halt, Proxy, Read, caller, drain::Phase};
use crate::{
    denial::Denial,
    exchange::{End, Exchange},
    upstream::{Reason, Refused},
};

impl Proxy {
    /// Takes a place at the upstream, for which the call may have to wait shortly.
    pub(super) async fn admit(
        &self,
        session: &mut ServerSession,
        exchange: &Exchange,
        read: &mut Read,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal), Some(permit)) =
            (&exchange.call, &exchange.principal, &exchange.permit)
        else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        let mut admitting = pin!(served.upstream.admit(permit, principal, call));
        let mut phase = self.shared.drain.watch();
        let mut watching = true;
        let admitted = loop {
            tokio::select! { biased;
                admitted = &mut admitting => break admitted,
                gone = caller::gone(session, &mut watching) => if gone {
                    return Err(Halt::Caller(End::CallerGone));
                },
                _ = phase.wait_for(|phase| *phase == Phase::Ending) => {
                    return Err(Denial::Draining.into());
                }
            }
        };
        let ticket = match admitted {
            Ok(ticket) => ticket,
            Err(refused) if served.route.shadow => {
                let kind = denial(refused).row(call.era).kind;
                self.shared.record.metrics.shadow_denial(&served.server, kind);
                served.upstream.admit_in_shadow(permit, &refused)
            }
            Err(refused) => return Err(denial(refused).into()),
        };
        read.ticket = Some(ticket);
        Ok(())
    }
}

fn denial(refused: Refused) -> Denial {
    let retry_after = refused.retry_after;
    match refused.reason {
        Reason::BreakerOpen => Denial::BreakerOpen { retry_after },
        Reason::CallerFull | Reason::Full | Reason::Waited => Denial::UpstreamBusy { retry_after },
    }
}

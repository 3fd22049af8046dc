//! From a permit to a ticket: whether the upstream can take the call now.
//!
//! It comes before anything that a refused call would have to give back. Where denials are only recorded, so
//! is this one. A card that is in memory needs no place: nothing is sent for it.

use std::pin::pin;

use pingora::protocols::http::ServerSession;

use super::{Halt, Proxy, Read, card};
use crate::{
    denial::Denial,
    exchange::Exchange,
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
        if card::is_card(call) {
            read.card = served.upstream.kept_card(permit);
            if read.card.is_some() {
                return Ok(());
            }
        }
        let admitting = pin!(served.upstream.admit(permit, principal, call));
        let ticket = match self.while_wanted(session, admitting).await? {
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

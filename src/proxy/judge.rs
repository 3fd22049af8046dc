//! From a decoded call to a permit with its intent on record.

use std::sync::Arc;

use super::{Proxy, Read, Served};
use crate::{
    denial::Denial,
    exchange::Exchange,
    governance::{Facts, Permit, Refusal, Request},
    identity::Principal,
    ledger::Event,
    policy::Policies,
    protocol::Call,
};

impl Proxy {
    /// Fetches the facts that the chain needs and asks it.
    pub(super) fn judge(&self, exchange: &mut Exchange, read: &Read) -> Result<(), Denial> {
        let (Some(call), Some(principal), Some(served)) =
            (&exchange.call, &exchange.principal, self.routes.get(read.route))
        else {
            return Err(Denial::NoRoute);
        };
        let policies = self.shared.policies.load_full();
        exchange.policy_version = Some(Arc::clone(policies.version()));
        match self.evaluate(call, principal, served, policies) {
            Ok(permit) => {
                let now = self.shared.record.clock.unix();
                let sessions = &self.shared.sessions;
                if call.opens_session() && !sessions.admits(principal.id.as_str(), now) {
                    return Err(Denial::TooManySessions);
                }
                exchange.permit = Some(permit);
                Ok(())
            }
            Err(refusal) => {
                exchange.stage = Some(refusal.stage);
                exchange.refused_decisions = refusal.decisions;
                Err(refusal.denial)
            }
        }
    }

    /// Whether the policies in force still permit a call that was judged by those of another version.
    /// For streams that only listen: they may be open for days, and nothing of what they ask is in a body.
    pub(super) fn still_permitted(
        &self,
        call: &Call,
        principal: &Principal,
        served: &Served,
        judged_by: &str,
    ) -> Result<(), Denial> {
        let policies = self.shared.policies.load_full();
        if **policies.version() == *judged_by {
            return Ok(());
        }
        match self.evaluate(call, principal, served, policies) {
            Ok(_permit) => Ok(()),
            Err(refusal) => Err(refusal.denial),
        }
    }

    fn evaluate(
        &self,
        call: &Call,
        principal: &Principal,
        served: &Served,
        policies: Arc<Policies>,
    ) -> Result<Permit, Refusal> {
        let shared = &self.shared;
        let now = shared.record.clock.unix();
        let session_owner = shared
            .chain
            .needs(call)
            .session
            .and_then(|session| shared.sessions.owner(&served.server, session.expose(), now));
        let facts = Facts { policies, session_owner };
        let request = Request {
            principal,
            call,
            server: &served.server,
            listener: &self.name,
            shadow: served.route.shadow,
        };
        shared.chain.evaluate(&request, &facts)
    }

    /// No entry, no forward: what may change state is on disk before the upstream hears of it, and
    /// nothing is forwarded whose closing entry could not be kept.
    pub(super) async fn write_intent(&self, exchange: &mut Exchange) -> Result<(), Denial> {
        let Some(permit) = &exchange.permit else { return Err(Denial::LedgerUnavailable) };
        let changes = permit.class().may_change_state();
        let ledger = &self.shared.record.ledger;
        ledger.admits(changes).map_err(|_| Denial::LedgerUnavailable)?;
        if ledger.needs_intent(changes) {
            let intent = exchange.entry(Event::Intent);
            let started = self.shared.record.clock.instant();
            ledger.intent(intent).await.map_err(|_| Denial::LedgerUnavailable)?;
            let waited = self.shared.record.clock.instant().saturating_duration_since(started);
            exchange.intent_wait = waited;
        }
        Ok(())
    }
}

//! From a decoded call to a permit with its intent on record.

use std::{pin::pin, sync::Arc};

use pingora::protocols::http::ServerSession;

use super::{Halt, Proxy, Read, Served, settled::Address, sse_endpoint::cancelled};
use crate::{
    delegation::Behalf,
    denial::Denial,
    exchange::Exchange,
    governance::{Facts, Owned, Owner, Permit, Refusal, Request},
    identity::Principal,
    ledger::Event,
    limits::Taken,
    policy::Policies,
    protocol::{self, Call, SessionId, method::Governs},
    state::{BindError, Kind, Unavailable},
    upstream::push_url,
};

impl Proxy {
    /// Fetches the facts that the chain needs and asks it.
    pub(super) async fn judge(
        &self,
        exchange: &mut Exchange,
        read: &mut Read,
    ) -> Result<(), Denial> {
        let (Some(call), Some(principal)) = (&exchange.call, &exchange.principal) else {
            return Err(Denial::NoRoute);
        };
        let served = &read.served;
        let behalf = &exchange.behalf;
        let owned = self.owned(call, principal, served).await;
        let push_refused = Self::push_refused(call, served).await;
        // Not before: the policies that judge are those in force now, not those of before a wait.
        let policies = self.shared.policies.load_full();
        exchange.policy_version = Some(Arc::clone(policies.version()));
        let revocations = self.shared.revocations.current();
        let facts = Facts { policies, owned, push_refused, revocations };
        match self.evaluate((call, principal, behalf), served, &facts) {
            Ok(permit) => match self.begins(call, principal, &facts.owned, served).await {
                Ok(()) => {
                    exchange.permit = Some(permit);
                    read.owned = facts.owned;
                    Ok(())
                }
                Err((stage, denial)) => {
                    let decisions = permit.decisions().to_vec();
                    Err(exchange.refused(Refusal { denial, stage, decisions }))
                }
            },
            Err(refusal) => Err(exchange.refused(refusal)),
        }
    }

    /// What is left once a call is permitted: whether what it begins can be the caller's, whether what it answers is
    /// still asked, and which call it cancels. What objects, and why.
    async fn begins(
        &self,
        call: &Call,
        principal: &Principal,
        owned: &Owned,
        served: &Served,
    ) -> Result<(), (&'static str, Denial)> {
        let claim = |denial| ("claim", denial);
        if call.opens_session() {
            self.admit_session(principal).map_err(claim)?;
        }
        let session = call.session.as_ref().map(SessionId::expose);
        let address = |id: &str| Address::new(&served.server, session, principal.id.as_str(), id);
        if let protocol::Kind::Response(id) = &call.kind
            && self.shared.answered.contains(&address(id.as_json()))
        {
            return Err(("answered", Denial::NotAsked));
        }
        if let Some(id) = cancelled(call) {
            self.shared.cancelled.note(address(&id));
        }
        if !served.route.shadow {
            let claimed = self.claim_contexts(call, principal, owned, &served.server).await;
            claimed.map_err(claim)?;
        }
        Ok(())
    }

    /// Whether the policies in force still permit a call that was judged by those of another version; if not, what
    /// those say, and which they are. Whose things are doesn't change.
    pub(super) fn still_permitted(
        &self,
        (call, principal, behalf): (&Call, &Principal, &Behalf),
        served: &Served,
        owned: &Owned,
        judged_by: &str,
    ) -> Result<(), (Arc<str>, Refusal)> {
        let policies = self.shared.policies.load_full();
        if **policies.version() == *judged_by {
            return Ok(());
        }
        let version = Arc::clone(policies.version());
        let permitted = self.permits((call, principal, behalf), served, owned, policies);
        permitted.map_err(|refusal| (version, refusal))
    }

    /// Whether these policies permit a call that was judged before.
    pub(super) fn permits(
        &self,
        (call, principal, behalf): (&Call, &Principal, &Behalf),
        served: &Served,
        owned: &Owned,
        policies: Arc<Policies>,
    ) -> Result<(), Refusal> {
        let revocations = self.shared.revocations.current();
        let facts = Facts { policies, owned: owned.clone(), push_refused: None, revocations };
        self.evaluate((call, principal, behalf), served, &facts).map(|_permit| ())
    }

    fn evaluate(
        &self,
        (call, principal, behalf): (&Call, &Principal, &Behalf),
        served: &Served,
        facts: &Facts,
    ) -> Result<Permit, Refusal> {
        let request = self.request((call, principal, behalf), served);
        served.terms.chain.evaluate(&request, facts)
    }

    /// A call in the place where it is judged.
    pub(super) fn request<'a>(
        &'a self,
        (call, principal, behalf): (&'a Call, &'a Principal, &'a Behalf),
        served: &'a Served,
    ) -> Request<'a> {
        Request {
            principal,
            call,
            asked: None,
            server: &served.server,
            callee: served.upstream.settings().identity(),
            listener: &self.name,
            behalf,
            shadow: served.route.shadow,
        }
    }

    /// Looks up whether an agent may be told to push to the addresses that a call names.
    async fn push_refused(call: &Call, served: &Served) -> Option<&'static str> {
        let targets = served.upstream.settings().push_targets();
        for url in served.terms.chain.needs(call).push_urls {
            let admitted = targets.admit(url, push_url::look_up).await;
            if let Err(refused) = admitted {
                return Some(refused.detail());
            }
        }
        None
    }

    /// Looks up who owns what a call names.
    async fn owned(&self, call: &Call, principal: &Principal, served: &Served) -> Owned {
        let server = &*served.server;
        let needs = served.terms.chain.needs(call);
        let mut owned = Owned::default();
        if let Some(session) = needs.session {
            owned.session = self.owner(Kind::Session, server, session).await;
        }
        for task in needs.tasks {
            owned.tasks.push(self.owner(Kind::Task, server, task).await);
        }
        if let Some(continuation) = needs.continuation {
            let id = Self::continuation_of(principal.id.as_str(), continuation);
            owned.continuation = self.owner(Kind::Continuation, server, &id).await;
        }
        for context in needs.contexts {
            owned.contexts.push(self.owner(Kind::Context, server, context).await);
        }
        owned
    }

    /// What a continuation is known by. Two callers may be given the same `requestState`, and each has its own.
    pub(super) fn continuation_of(owner: &str, continuation: &str) -> String {
        format!("{owner} {continuation}")
    }

    async fn owner(&self, kind: Kind, server: &str, id: &str) -> Owner {
        let now = self.shared.record.clock.unix();
        match self.shared.owners.owner(kind, server, id, now).await {
            Ok(Some(owner)) => Owner::Is(owner),
            Ok(None) => Owner::Nobody,
            Err(Unavailable) => Owner::Unavailable,
        }
    }

    /// Asked before the upstream opens a session that couldn't be given to anybody.
    fn admit_session(&self, principal: &Principal) -> Result<(), Denial> {
        let now = self.shared.record.clock.unix();
        self.shared.owners.admits(Kind::Session, principal.id.as_str(), now).map_err(Self::unbound)
    }

    /// Conversations that a message names and that are nobody's are the caller's from here on. Of two callers that
    /// name the same at once, one is told that there is none.
    async fn claim_contexts(
        &self,
        call: &Call,
        principal: &Principal,
        owned: &Owned,
        server: &str,
    ) -> Result<(), Denial> {
        let Some(facts) = call.a2a.as_ref().filter(|_| names_conversation(call)) else {
            return Ok(());
        };
        let now = self.shared.record.clock.unix();
        let owner = principal.id.shared();
        let unowned = facts.contexts.iter().zip(&owned.contexts);
        for (context, _) in unowned.filter(|(_, owner)| **owner == Owner::Nobody) {
            let bound = self.shared.owners.bind(Kind::Context, server, context, &owner, now).await;
            bound.map_err(|error| match error {
                BindError::Taken => Denial::UnknownTask,
                BindError::Full | BindError::Unavailable(Unavailable) => Denial::StateUnavailable,
            })?;
        }
        Ok(())
    }

    /// What the caller is told when a session can't be bound to it. Another one can be opened.
    pub(super) fn unbound(error: BindError) -> Denial {
        match error {
            BindError::Full => Denial::TooManySessions,
            BindError::Taken => Denial::UpstreamUnreadable,
            BindError::Unavailable(Unavailable) => Denial::StateUnavailable,
        }
    }

    /// What the caller is told when what a call has brought can't be bound to it. Never that it may call again:
    /// the call may have run.
    pub(super) fn undeliverable(error: BindError) -> Denial {
        match error {
            BindError::Taken => Denial::UpstreamUnreadable,
            BindError::Full | BindError::Unavailable(Unavailable) => Denial::Undeliverable,
        }
    }

    /// No entry, no forward: what may change state is on disk before the upstream hears of it, and
    /// nothing is forwarded whose closing entry could not be kept.
    /// What it takes of limits was taken before.
    pub(super) async fn write_intent(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        _taken: Taken,
    ) -> Result<(), Halt> {
        let Some(permit) = &exchange.permit else { return Err(Denial::LedgerUnavailable.into()) };
        let changes = permit.class().may_change_state();
        let ledger = &self.shared.record.ledger;
        ledger.admits(changes).map_err(|_| Denial::LedgerUnavailable)?;
        if ledger.needs_intent(changes) {
            let started = self.shared.record.clock.instant();
            // Whatever ends the wait, the entry may still be written; the exchange's own closes it.
            let written = pin!(ledger.intent(exchange.entry(Event::Intent)));
            let written = self.while_wanted(session, written).await?;
            written.map_err(|_| Denial::LedgerUnavailable)?;
            let waited = self.shared.record.clock.instant().saturating_duration_since(started);
            exchange.intent_wait = waited;
        }
        Ok(())
    }
}

/// Whether a call is a message, which may begin a conversation.
fn names_conversation(call: &Call) -> bool {
    call.method.rule().is_some_and(|rule| rule.governs == Governs::Message)
}

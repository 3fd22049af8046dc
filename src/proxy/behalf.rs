//! On whose behalf a call is made.
//!
//! Inbound, a chain of delegation comes in a header: it is verified, and never seen by the workload, which gets a
//! handle of the call in its trace instead. Outbound, the call's cause is found among the inbound calls that are
//! live, and the header of the next hop is made from the chain that came with it. What a chain permits is asked in
//! [`crate::governance`], in both directions alike.
//!
//! INVARIANT: a caller whose chain can't be verified is refused, never taken for one without. What leaves here
//! permits no more than every chain that the call may come from.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::protocols::http::ServerSession;
use uuid::Uuid;

use super::{Proxy, Read, Served, listening::listens};
use crate::{
    delegation::{
        Ambiguous, Arrival, Behalf, Capabilities, ChainError, HEADER, MintError, Mode, Next,
        Presented, Rule, SKEW, Settings, Site, Verifier, extend,
        link::{Cause, Inbound, Links, MEMBER, Marks},
        opaque, originate,
    },
    denial::Denial,
    exchange::Exchange,
    governance::delegation::mode,
    identity::{Peer, Principal, source::Svid},
    listener::Direction,
    protocol::Call,
    state::{Unavailable, Use},
};

/// What is shared of delegation, whatever the terms of a route are.
#[derive(Debug)]
pub struct Delegation {
    /// Verifies chains.
    pub verifier: Verifier,
    /// The inbound calls that are live.
    pub links: Arc<Links>,
}

impl Default for Delegation {
    /// Nothing has come yet.
    fn default() -> Self {
        Self { verifier: Verifier::new(), links: Arc::default() }
    }
}

impl Proxy {
    /// Learns on whose behalf a decoded call is made.
    pub(super) async fn behalf(
        &self,
        session: &ServerSession,
        served: &Served,
        principal: &Principal,
        call: &Call,
        peer: Option<&Peer>,
    ) -> Result<Behalf, Denial> {
        let headers = &session.req_header().headers;
        match (&served.terms.delegation, self.settings.direction) {
            (None, Direction::Inbound) if headers.contains_key(HEADER) => {
                Err(Denial::Framing("chains of delegation aren't taken here"))
            }
            (None, _) => Ok(Behalf::default()),
            (Some(settings), Direction::Inbound) => {
                self.arrived(settings, session, principal, call, peer).await
            }
            (Some(_), Direction::Outbound) => {
                let now = self.shared.record.clock.unix();
                let linked = self.shared.delegation.links.trace_back(&marks(headers, call), now);
                Ok(Behalf::linked(&linked))
            }
        }
    }

    /// What comes with an inbound call.
    async fn arrived(
        &self,
        settings: &Settings,
        session: &ServerSession,
        principal: &Principal,
        call: &Call,
        peer: Option<&Peer>,
    ) -> Result<Behalf, Denial> {
        let request = session.req_header();
        let mut values = request.headers.get_all(HEADER).iter();
        let header = match (values.next(), values.next()) {
            (None, _) => {
                let own = settings.origin(&principal.id);
                return Ok(own.map(Behalf::itself).unwrap_or_default());
            }
            (Some(header), None) => header.to_str().ok(),
            (Some(_), Some(_)) => None,
        };
        let header = header.ok_or(Denial::Framing("exactly one chain of delegation is taken"))?;
        let (Some(source), Some(peer)) = (&self.identity, peer) else {
            let detail = "only a caller that proves its identity can show a chain of delegation";
            return Err(Denial::Framing(detail));
        };
        let arrival = Arrival {
            header,
            peer: peer.id(),
            http_method: request.method.as_str(),
            method: call.method.name(),
            body: &call.body,
        };
        let now = self.shared.record.clock.unix();
        let refused = |error: ChainError| {
            tracing::warn!(peer = peer.id().as_str(), %error, "refused a chain of delegation");
            Denial::from(error)
        };
        let presented = {
            let site = Site { snapshot: &source.snapshot(), settings, now: now.as_secs() };
            self.shared.delegation.verifier.verify(&arrival, &site).map_err(refused)?
        };
        let first = self.is_first(&presented, now).await?;
        presented.taken(first).map(Behalf::of).map_err(refused)
    }

    /// Whether nobody was shown the last hop of a chain before: not this process, nor one before it, nor a replica.
    async fn is_first(&self, presented: &Presented, now: Duration) -> Result<bool, Denial> {
        let Some(shown) = presented.shown() else { return Ok(false) };
        // No SPIFFE ID has a space in it.
        let id = format!("{} {}", shown.issuer, shown.id);
        let times = Duration::from_secs(shown.from)..Duration::from_secs(shown.until);
        match self.shared.owners.claim_once(&id, times, now).await {
            Ok(Use::First) => Ok(true),
            Ok(Use::Again) => Ok(false),
            Ok(Use::Unknown { since }) => {
                // A hop tells its time in whole seconds.
                let known = since.saturating_add(Duration::from_secs(SKEW + 1));
                Err(Denial::DelegationUnknown { retry_after: known.saturating_sub(now) })
            }
            Err(Unavailable) => Err(Denial::StateUnavailable),
        }
    }

    /// Makes what has to go with a permitted call: inbound, a handle; outbound, the header of the next hop.
    pub(super) fn delegate(
        &self,
        session: &ServerSession,
        exchange: &Exchange,
        read: &mut Read,
    ) -> Result<(), Denial> {
        let served = &read.served;
        let (Some(settings), Some(call), Some(principal)) =
            (&served.terms.delegation, &exchange.call, &exchange.principal)
        else {
            return Ok(());
        };
        let request = session.req_header();
        match self.settings.direction {
            // It makes nobody do anything, and may be open for days.
            Direction::Inbound if listens(call) => {}
            Direction::Inbound => {
                let behalf = exchange.behalf.clone();
                let cause = Cause { call_id: exchange.id, caller: principal.id.clone(), behalf };
                let live = self.shared.delegation.links.enter(cause, marks(&request.headers, call));
                read.live = Some(live.map_err(|_| Denial::NotReady)?);
            }
            Direction::Outbound => {
                let Some(to) = served.upstream.settings().identity() else { return Ok(()) };
                let source = self.identity.as_ref().ok_or(Denial::NotReady)?;
                let now = self.shared.record.clock.unix().as_secs();
                let snapshot = source.snapshot();
                let svid = snapshot.usable(now).map_err(|_| Denial::NotReady)?;
                if call.method.introduces() && !has_root(svid, &exchange.behalf, settings) {
                    return Ok(());
                }
                let policies = self.shared.policies.load();
                let terms = call.targets.iter().filter_map(|target| {
                    let terms = policies.delegation_for(principal, &served.server, target)?;
                    Some(mode(terms.mode))
                });
                let granted = narrower(terms.min(), served.route.delegate);
                let next = Next {
                    id: exchange.id,
                    to,
                    mode: narrower(exchange.behalf.mode(), granted),
                    capabilities: &Capabilities::UNLIMITED,
                    http_method: request.method.as_str(),
                    method: call.method.name(),
                    body: &call.body,
                };
                let user = user(&request.headers)?.map(|user| opaque(user, svid));
                let behalf = &exchange.behalf;
                read.hop = Some(hop(svid, behalf, settings, user.as_deref(), &next, now)?);
            }
        }
        Ok(())
    }
}

/// Where a workload says for which user it calls.
const USER_HEADER: &str = "lictor-user";

/// Longest name of a user, in bytes.
const LONGEST_USER: usize = 256;

/// Whether there is one who speaks for a call: the root of its only chain, or we ourselves.
fn has_root(svid: &Svid, behalf: &Behalf, settings: &Settings) -> bool {
    match behalf.single() {
        Ok(Some(_)) => true,
        Ok(None) => settings.origin(&svid.id).is_some(),
        Err(Ambiguous) => false,
    }
}

/// The narrower of two modes, of which none may be said.
fn narrower(one: Option<Mode>, other: Option<Mode>) -> Option<Mode> {
    one.into_iter().chain(other).min()
}

/// The user that a workload names for a call that it makes by itself. For whoever works for others, the chain says
/// who it is, and this says nothing.
fn user(headers: &HeaderMap) -> Result<Option<&str>, Denial> {
    let mut values = headers.get_all(USER_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=LONGEST_USER).contains(&text.len()));
    match (text, values.next()) {
        (Some(text), None) => Ok(Some(text)),
        (_, _) => Err(Denial::Framing("`Lictor-User` is one name of 1 to 256 visible characters")),
    }
}

/// The header of the next hop.
fn hop(
    svid: &Svid,
    behalf: &Behalf,
    settings: &Settings,
    user: Option<&str>,
    next: &Next<'_>,
    now: u64,
) -> Result<HeaderValue, Denial> {
    let chain = behalf.single().map_err(|_| Denial::DelegationAmbiguous)?;
    let made = match chain {
        None => {
            // Nobody who calls by itself lets it go further than it may go itself.
            let widest = settings.origin(&svid.id);
            let next = Next { mode: narrower(widest, next.mode), ..*next };
            originate(svid, settings, Uuid::now_v7(), user, &next, now)
        }
        Some(chain) => extend(svid, chain, settings, next, now),
    };
    let depth = chain.map_or(0, |chain| chain.depth());
    let header = made.map_err(|error| {
        tracing::warn!(decision = %next.id, %error, "no hop of delegation can be made");
        match error {
            MintError::Rule(Rule::Origin) => Denial::DelegationRequired,
            MintError::Loop(id) => ChainError::Loop { hop: depth, id }.into(),
            MintError::TooDeep(limit) => ChainError::TooDeep { limit }.into(),
            MintError::Rule(rule) => ChainError::Hop { hop: depth, rule }.into(),
            MintError::TooLong => ChainError::TooLong.into(),
            MintError::NotOurs(_) | MintError::Key | MintError::Write(_) => Denial::NotReady,
        }
    })?;
    HeaderValue::try_from(header).map_err(|_| Denial::NotReady)
}

/// What a message carries of its trace, in its head and, where MCP has a place for it, in its body, and the
/// conversations that it names.
fn marks(headers: &HeaderMap, call: &Call) -> Marks {
    let mut marks = Marks::default();
    for (name, value) in headers {
        if let Ok(value) = value.to_str() {
            mark_one(&mut marks, name.as_str(), value);
        }
    }
    for name in ["traceparent", "tracestate", "baggage"] {
        if let Some(value) = call.meta(name) {
            mark_one(&mut marks, name, &value);
        }
    }
    for id in call.conversations() {
        marks.name(id);
    }
    marks
}

fn mark_one(marks: &mut Marks, name: &str, value: &str) {
    match name {
        "traceparent" => marks.trace_parent(value),
        "tracestate" | "baggage" => marks.members(value),
        _ => {}
    }
}

/// Puts what goes with a call on its way. Handles of ours that came with it end here: they are of use between this
/// Lictor and its workload only.
pub(super) fn send_along(
    headers: &mut HeaderMap,
    live: Option<&Inbound>,
    hop: Option<HeaderValue>,
) {
    for name in ["tracestate", "baggage"] {
        let ours = live.map(|live| format!("{MEMBER}={}", live.handle()));
        let others = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let others = others
            .flat_map(|value| value.split(','))
            .filter(|member| member.split('=').next().is_some_and(|key| key.trim() != MEMBER));
        let members: Vec<_> = ours.into_iter().chain(others.map(str::to_owned)).collect();
        headers.remove(name);
        if let Ok(value) = HeaderValue::try_from(members.join(","))
            && !members.is_empty()
        {
            headers.insert(name, value);
        }
    }
    if let Some(live) = live.filter(|_| !headers.contains_key("traceparent")) {
        // Without one, `tracestate` has no meaning and is dropped. Sampled by nobody.
        let span = live.handle().get(..16).unwrap_or_default();
        if let Ok(parent) = HeaderValue::try_from(format!("00-{}-{span}-00", live.handle())) {
            headers.insert("traceparent", parent);
        }
    }
    headers.extend(hop.map(|hop| (HeaderName::from_static(HEADER), hop)));
}

//! From a connection to a decoded call: head, identity, route, body, decode.
//!
//! The order is from cheap to dear and from the stranger to the known: nothing of a body is read for a
//! caller without a valid identity or a path without a route.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use pingora::{http::RequestHeader, protocols::http::ServerSession};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::{Halt, Proxy, Read, body, head, listening::Wanted, route::Way, sse_endpoint::Leg};
use crate::{
    denial::Denial,
    exchange::{Exchange, Taken},
    governance::Owned,
    identity::{Peer, PeerError, Principal, Proof, Source},
    listener::{self, Door},
    protocol::{Call, Protocol, a2a, mcp, web},
};

impl Proxy {
    /// Reads one message and learns who sent it, which way it takes and what it asks for.
    pub(super) async fn read(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        way: &mut Option<Way>,
    ) -> Result<Read, Halt> {
        let target = head::check(session)?;
        let (principal, peer) = self.identify(session)?;
        let owner = principal.id.shared();
        exchange.principal = Some(principal);
        self.check_names(session)?;
        let request = session.req_header();
        let way = way.insert(self.inside.load().find(&target)?);
        let served = &way.served;
        exchange.taken = Some(Taken {
            server: Arc::clone(&served.server),
            protocol: served.route.protocol,
            host: served.host.clone(),
            shadow: served.route.shadow,
            calls: served.calls.clone(),
        });
        let leg = self.leg(served, &way.path, &request.method, &owner)?;
        let reading = body::read(session, served.terms.limits.body, &self.shared.budget);
        let (bytes, reservation) = timeout(self.settings.body_timeout, reading)
            .await
            .map_err(|_| Denial::RequestTimeout)??;
        // The body may have taken longer than the identity was believed.
        self.still_believed(peer.as_deref())?;
        exchange.fully_read();
        let call = decode(session.req_header(), way, &leg, &bytes);
        // What decodes has made its digest on the way, in less time than it takes by itself.
        exchange.request_digest = Some(match &call {
            Ok(call) => call.digest(),
            Err(_) => Sha256::digest(&bytes).into(),
        });
        let call = call?;
        if served.route.message_forms {
            a2a::check_form(&call).map_err(Denial::Undecodable)?;
        }
        leg.expect(&call);
        let call = exchange.call.insert(call);
        if let Some(principal) = &exchange.principal {
            exchange.behalf =
                self.behalf(session, served, principal, call, peer.as_deref()).await?;
        }
        let wanted = Wanted::by(call);
        let served = Arc::clone(served);
        Ok(Read {
            served,
            leg,
            peer,
            owned: Owned::default(),
            ticket: None,
            card: None,
            wanted,
            on_behalf: None,
            live: None,
            hop: None,
            reservation: Some(reservation),
        })
    }

    /// Whether the request is for a host of this listener, and from an origin that may call it.
    pub(super) fn check_names(&self, session: &ServerSession) -> Result<(), Denial> {
        let request = session.req_header();
        let authority = request.uri.authority().filter(|_| session.is_http2());
        self.inside.load().doorplate.check(&request.headers, authority.map(|name| name.as_str()))
    }

    /// Who is calling. On a warm connection the proof is checked anew for every message: expiry, our own
    /// state, and the chain once more when a bundle has changed.
    fn identify(&self, session: &ServerSession) -> Result<(Principal, Option<Arc<Peer>>), Denial> {
        match (&self.settings.door, &self.identity) {
            (Door::PlainLoopback(id), _) => {
                Ok((Principal { id: id.clone(), proof: Proof::Configured }, None))
            }
            (Door::MutualTls, Some(source)) => {
                let peer = listener::peer(session).ok_or(Denial::Unauthenticated)?;
                self.recheck(source, &peer)?;
                Ok((Principal { id: peer.id().clone(), proof: Proof::Svid }, Some(peer)))
            }
            (Door::Workload, Some(source)) => {
                let now = self.shared.record.clock.unix().as_secs();
                let snapshot = source.snapshot();
                let svid = snapshot.usable(now).map_err(|_| Denial::NotReady)?;
                Ok((Principal { id: svid.id.clone(), proof: Proof::Own }, None))
            }
            (Door::MutualTls | Door::Workload, None) => Err(Denial::NotReady),
        }
    }

    fn recheck(&self, source: &Source, peer: &Peer) -> Result<(), Denial> {
        let now = self.shared.record.clock.unix().as_secs();
        source.recheck(peer, now).map_err(|error| match error {
            PeerError::NotReady => Denial::NotReady,
            PeerError::NoCertificate
            | PeerError::ChainLength
            | PeerError::Svid(_)
            | PeerError::Expired
            | PeerError::UntrustedDomain(_)
            | PeerError::WrongId { .. }
            | PeerError::Chain(_) => Denial::IdentityExpired,
        })
    }

    /// Whether a caller is still believed; asked when its body has come, and from time to time while its
    /// answer goes on.
    pub(super) fn still_believed(&self, peer: Option<&Peer>) -> Result<(), Denial> {
        match (&self.identity, peer) {
            (Some(source), Some(peer)) => self.recheck(source, peer),
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// What the bytes say on the way that they came.
fn decode(request: &RequestHeader, way: &Way, leg: &Leg, bytes: &Bytes) -> Result<Call, Denial> {
    let protocol = way.served.route.protocol;
    if request.method != Method::POST && !bytes.is_empty() && protocol != Protocol::Http {
        return Err(Denial::Framing("only POST has a body here"));
    }
    let (method, headers, bytes) = (&request.method, &request.headers, bytes.clone());
    let call = match (protocol, leg) {
        (Protocol::Mcp, Leg::Whole | Leg::Stream) => mcp::decode(method, headers, bytes),
        (Protocol::Mcp, Leg::Message(_)) => mcp::decode_posted(headers, bytes),
        (Protocol::A2a, _) => a2a::decode(method, &way.below, way.query.as_deref(), headers, bytes),
        (Protocol::Http, _) => {
            let repeats = |name: &str| way.served.route.repeats(name);
            web::decode(method, &way.below, way.query.as_deref(), headers, bytes, repeats)
        }
    };
    call.map_err(Denial::Undecodable)
}

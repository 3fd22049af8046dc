//! The policy enforcement point: what happens to a call, from its first byte to its last.
//!
//! This file is the table of contents. `Proxy::steps` reads top to bottom in the order in which things
//! happen; each step is one call into the room that knows how. No policy, parsing or cryptography is in here.
//!
//! | step | who | what it adds to the exchange |
//! |---|---|---|
//! | head | `head`, `origin`, [`crate::listener`] | principal, route |
//! | body | `body`, [`crate::protocol`], `behalf` | digest, call, by whose authority |
//! | judge | [`crate::governance`] | permit |
//! | admit | [`crate::upstream`] | – |
//! | reserve | [`crate::limits`] | what it is over, where that only counts |
//! | user's token | `user_token`, [`crate::upstream`] | – |
//! | delegate | `behalf`, [`crate::delegation`] | – |
//! | intent | [`crate::ledger`] | – |
//! | forward | [`crate::upstream`] | status |
//! | answer | `relay`, [`crate::response`] | what was delivered |
//! | close | [`Exchange`]'s `Drop` | – |
//!
//! INVARIANT: the upstream hears of a call only through [`Upstream::open`], which takes the [`Ticket`] that
//! [`Upstream::admit`] gives for the [`Permit`](crate::governance::Permit) that only the end of the governance
//! chain can make, and the bytes it sends are those that were judged.

mod admit;
mod agent;
mod answer;
mod asked;
mod behalf;
mod body;
mod caller;
mod card;
mod collect;
mod document;
pub mod drain;
mod events;
mod forward;
mod head;
mod headers;
mod judge;
mod listening;
mod origin;
mod patience;
mod read;
mod ready;
mod recall;
mod refusal;
mod relay;
mod reply;
mod reserve;
mod respond;
mod route;
pub mod settings;
mod settled;
mod sse_endpoint;
mod user_token;
mod web;

use std::{pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use bytes::BytesMut;
use http::{HeaderValue, Method};
use pingora::{
    apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream},
    protocols::http::ServerSession,
    server::ShutdownWatch,
};
use tokio::time::timeout;
use tracing::Instrument;

pub use self::{
    behalf::Delegation, body::Budget, route::Inside, settled::Settled, sse_endpoint::Streams,
};
use self::{
    body::Reservation,
    drain::Drain,
    listening::Wanted,
    route::Way,
    settings::{Limits, Route},
    sse_endpoint::Leg,
};
use crate::{
    delegation::{self, link::Inbound},
    denial::Denial,
    exchange::{End, Exchange, Record},
    governance::{Chain, Owned},
    identity::{Peer, Source},
    limits::Limiter,
    listener::{self, Idle},
    policy::Policies,
    response::{Listed, agent_card::Publisher},
    revocation::Register,
    state::Owners,
    telemetry::metrics::Calls,
    upstream::{AgentCard, OnBehalf, Ticket, Upstream},
};

/// What every listener shares.
#[derive(Debug)]
pub struct Shared {
    /// Where exchanges are written down.
    pub record: Arc<Record>,
    /// The policies in force.
    pub policies: ArcSwap<Policies>,
    /// Rate limits, budgets and hours of the configuration.
    pub limiter: ArcSwap<Limiter>,
    /// Those of grants. Their names are never those of the configuration's.
    pub granted: ArcSwap<Limiter>,
    /// What was revoked.
    pub revocations: Arc<Register>,
    /// Whose sessions, tasks and continuations are whose.
    pub owners: Owners,
    /// The streams of clients of the HTTP+SSE transport.
    pub streams: Streams,
    /// Requests of servers that were answered here.
    pub answered: Settled,
    /// Calls that their callers have cancelled.
    pub cancelled: Settled,
    /// On whose behalf calls are made.
    pub delegation: Delegation,
    /// Bytes of bodies in flight.
    pub budget: Arc<Budget>,
    /// What servers have listed.
    pub listed: Listed,
    /// What runs, and when it has to stop.
    pub drain: Arc<Drain>,
}

/// One listener's exchange loop.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    name: Arc<str>,
    settings: listener::Settings,
    identity: Option<Arc<Source>>,
    inside: ArcSwap<Inside>,
    options: HttpServerOptions,
}

/// A route with what it leads to.
#[derive(Debug)]
pub struct Served {
    /// Its settings.
    pub route: Route,
    /// The upstream's name.
    pub server: Arc<str>,
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Host of the web API, on a route of plain HTTP.
    pub host: Option<Arc<str>>,
    /// Who publishes the agent's card, on an A2A route.
    pub card: Option<Publisher>,
    /// The metrics of its calls.
    pub calls: Calls,
    /// What its calls are held to.
    pub terms: Arc<Terms>,
}

/// What calls are held to: the same on all routes of one configuration.
#[derive(Debug)]
pub struct Terms {
    /// The checks a call has to pass.
    pub chain: Chain,
    /// What may be done on somebody's behalf; `None` where nobody says.
    pub delegation: Option<delegation::Settings>,
    /// Bounds.
    pub limits: Limits,
}

/// What reading a message found besides the call itself.
struct Read {
    /// The route it takes, as it was when it was read.
    served: Arc<Served>,
    leg: Leg,
    peer: Option<Arc<Peer>>,
    /// Whose the things are that the call names, as it was judged.
    owned: Owned,
    /// The right to send it, until it is used.
    ticket: Option<Ticket>,
    /// The agent's card, where it is asked for and nothing has to be sent for it.
    card: Option<AgentCard>,
    /// Which lists it wants to hear of.
    wanted: Wanted,
    /// For whom it goes out; known once it was judged.
    on_behalf: Option<OnBehalf>,
    /// An inbound call, as long as it is live.
    live: Option<Inbound>,
    /// The header of the next hop of an outbound one.
    hop: Option<HeaderValue>,
    /// Held until the upstream answers. It has taken the body then, unless it answers early: what it reads later is
    /// kept for it and not counted, which can't be more than one body of each stream that is open.
    reservation: Option<Reservation>,
}

/// Why an exchange ends before an answer is under way.
enum Halt {
    /// The caller is told no.
    Refuse(Denial),
    /// There is nobody left to tell.
    Caller(End),
}

impl From<Denial> for Halt {
    fn from(denial: Denial) -> Self {
        Self::Refuse(denial)
    }
}

impl From<End> for Halt {
    fn from(end: End) -> Self {
        Self::Caller(end)
    }
}

impl Proxy {
    /// A loop for one listener; `identity` is needed where the listener's door is mutual TLS.
    pub fn new(
        shared: Arc<Shared>,
        settings: listener::Settings,
        identity: Option<Arc<Source>>,
        inside: Inside,
    ) -> Self {
        let mut options = HttpServerOptions::default();
        options.h2_idle_timeout = Some(settings.idle_timeout);
        Self {
            shared,
            name: settings.name.as_str().into(),
            identity,
            inside: ArcSwap::from_pointee(inside),
            settings,
            options,
        }
    }

    /// Lets messages from now on take these routes. Those in flight end on the routes that they took.
    pub fn open(&self, inside: Inside) {
        self.inside.store(Arc::new(inside));
    }

    /// One message on a connection; the connection, if it can serve another.
    async fn message(&self, mut session: Box<ServerSession>) -> Option<ReusedHttpStream> {
        let head = self.head(&mut session).await?;
        let _ticket = self.shared.drain.enter();
        let mut exchange =
            Exchange::begin(&self.shared.record, &self.name, self.settings.direction.as_str());
        if let Err(denial) = head {
            self.refuse_unparsed(&mut session, &mut exchange, &denial).await;
            return None;
        }
        let span = exchange.span.clone();
        let cut = tokio::select! { biased;
            () = self.exchange(&mut session, &mut exchange).instrument(span) => false,
            () = self.shared.drain.over() => true,
        };
        if cut {
            exchange.end = Some(End::Cut);
            return None;
        }
        let whole = exchange.delivered.is_complete();
        drop(exchange);
        if !whole {
            return None;
        }
        self.announce_end(&mut session);
        let settings = HttpPersistentSettings::for_session(&session);
        // It may have to write, to tell the end of TLS.
        let finished = timeout(self.settings.stall_timeout, session.finish()).await;
        let stream = finished.ok()?.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
    }

    /// The message itself, from its head to the end of its answer.
    async fn exchange(&self, session: &mut ServerSession, exchange: &mut Exchange) {
        let mut way = None;
        match self.steps(session, exchange, &mut way).await {
            Ok(()) => {}
            Err(Halt::Caller(end)) => exchange.end = Some(end),
            Err(Halt::Refuse(denial)) => self.refuse(session, exchange, way, &denial).await,
        }
    }

    /// The steps in their order. Each adds what it learned to `exchange`; the first that objects ends it. A
    /// refusal has to fit the way that was taken, which is why `way` outlives them.
    async fn steps(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        way: &mut Option<Way>,
    ) -> Result<(), Halt> {
        if session.req_header().method == Method::OPTIONS {
            return self.preflight(session, exchange).await;
        }
        let mut read = self.read(session, exchange, way).await?;
        self.judge(exchange, &mut read).await?;
        self.admit(session, exchange, &mut read).await?;
        let taken = self.reserve(exchange, &read).await?;
        self.exchange_user_token(session, exchange, &mut read).await?;
        self.delegate(session, exchange, &mut read)?;
        self.write_intent(session, exchange, taken).await?;
        if exchange.call.as_ref().is_some_and(card::is_card) {
            return self.card(session, exchange, &mut read).await;
        }
        let answer = self.forward(session, exchange, &mut read).await?;
        self.answer(session, exchange, &read, answer).await
    }

    /// Reads the head of a message that has begun; `None` when there is nobody to answer.
    async fn head(&self, session: &mut ServerSession) -> Option<Result<(), Denial>> {
        listener::begun(session);
        match timeout(self.settings.head_timeout, session.read_request()).await {
            Ok(Ok(true)) => Some(Ok(())),
            Ok(Ok(false)) | Err(_) => None,
            Ok(Err(_)) => Some(Err(Denial::Framing("the request head can't be parsed"))),
        }
    }
}

impl listener::Application for Proxy {
    type Held = drain::Ticket;

    async fn arrival(&self, idle: &mut Idle) -> Option<(BytesMut, drain::Ticket)> {
        let warm = idle.is_warm();
        let limit = if warm { self.settings.idle_timeout } else { self.settings.head_timeout };
        // The process doesn't end before whoever has just connected was heard.
        let _ticket = (!warm).then(|| self.shared.drain.enter());
        tokio::select! { biased;
            first = timeout(limit, idle.first_bytes()) => {
                Some((first.ok()??, self.shared.drain.enter()))
            }
            () = self.shared.drain.idle_over(warm) => None,
        }
    }
}

impl HttpServerApp for Proxy {
    // What `async_trait` would make of it has room for the session twice.
    fn process_new_http<'proxy, 'watch, 'both>(
        self: &'proxy Arc<Self>,
        session: ServerSession,
        _shutdown: &'watch ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'both>>
    where
        'proxy: 'both,
        'watch: 'both,
    {
        Box::pin(self.message(Box::new(session)))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

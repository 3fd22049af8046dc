//! The way out: the servers behind Lictor, over HTTP or as processes of ours.
//!
//! Both kinds answer through one interface, so that the exchange loop doesn't know the difference: a head,
//! and a body that arrives in parts. Where users' tokens are exchanged for an upstream, `token_exchange` does it.

mod admission;
mod breaker;
mod bulkhead;
mod card;
mod client;
mod connector;
mod endpoint;
mod endpoints;
mod error;
mod http1;
mod pool;
pub mod push_url;
mod resolver;
pub mod settings;
mod stdio;
#[cfg(test)]
mod tests;
mod tls;
mod token_exchange;
mod unjudged;

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;

use crate::{
    governance::Permit,
    identity::{Principal, Source},
    protocol::{Call, Rest, mcp},
    telemetry::Metrics,
};
use admission::Gate;
use endpoints::Endpoints;
use settings::Processes;
use token_exchange::TokenExchange;

pub use admission::{BreakerReading, Reading, Reason, Refused, Ticket};
pub use breaker::Phase;
pub use card::{AgentCard, CardError};
pub use endpoint::Endpoint;
pub use error::{Error, SetupError};
pub use push_url::{PushRefused, PushTargets};
pub use settings::{Settings, Transport, Verification};
pub use stdio::Census;
pub use tls::spiffe as client_config;
pub use token_exchange::{Head, OnBehalf, TokenError, UserToken};
pub use unjudged::Unjudged;

/// One server behind Lictor.
#[derive(Debug)]
pub struct Upstream {
    settings: Settings,
    gate: Arc<Gate>,
    way: Way,
    token_exchange: Option<Arc<TokenExchange>>,
}

#[derive(Debug)]
enum Way {
    Http(Endpoints, card::Cards),
    Stdio(Arc<stdio::Bridge>),
}

/// What an upstream answered: the head, and a body that is still arriving.
pub type Answer = http::Response<Body>;

/// The body of an answer. Dropping it before its end tells the server that nobody listens any more, in the
/// way of its kind.
#[derive(Debug)]
pub struct Body {
    arriving: Arriving,
    /// None where nothing was judged.
    ticket: Option<Ticket>,
}

#[derive(Debug)]
enum Arriving {
    Http(endpoints::Body),
    Stdio(stdio::Body),
}

impl Upstream {
    /// Sets up the way to an upstream; connects to nothing and starts nothing yet. `source` is needed for
    /// [`Verification::Spiffe`].
    pub fn new(
        settings: Settings,
        source: Option<Arc<Source>>,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, SetupError> {
        let way = match &settings.server {
            settings::Server::Http(http) => {
                let source = source.as_ref();
                let endpoints = Endpoints::new(&settings.name, http, source, metrics)?;
                let cards = card::Cards::new(&endpoints, &http.url, http.agent.card.as_ref());
                Way::Http(endpoints, cards)
            }
            settings::Server::Command(command) => {
                Way::Stdio(stdio::Bridge::new(&settings.name, command.clone())?)
            }
        };
        let token_exchange = match &settings.token_exchange {
            Some(exchange) => Some(TokenExchange::new(&settings.name, exchange, metrics)?),
            None => None,
        };
        let gate = Gate::new(&settings, metrics);
        Ok(Arc::new(Self { settings, gate, way, token_exchange }))
    }

    /// The settings it was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// For whom calls go out to an upstream that no tokens are exchanged for. `None` for one with an exchange:
    /// each call needs [`Self::on_behalf`].
    pub fn on_behalf_of_nobody(&self) -> Option<OnBehalf> {
        match &self.token_exchange {
            Some(_) => None,
            None => Some(OnBehalf::nobody()),
        }
    }

    /// For whom a permitted call of `principal` goes out that carries this user's token, or none. Takes up to five seconds
    /// where the token service has to be asked. Dropping the future is fine.
    pub async fn on_behalf(
        &self,
        _permit: &Permit,
        principal: &Principal,
        user: Option<UserToken>,
    ) -> Result<OnBehalf, TokenError> {
        match &self.token_exchange {
            Some(exchange) => exchange.on_behalf(principal.id.shared(), user).await,
            None => Ok(OnBehalf::nobody()),
        }
    }

    /// Tells that it doesn't accept the token of a call, so that it isn't used for others.
    pub fn doubt(&self, user: &OnBehalf) {
        if let Some(exchange) = &self.token_exchange {
            exchange.doubt(user);
        }
    }

    /// Lets a permitted call of `principal` through, or says why it has to wait. Takes time only where a place
    /// is waited for, at most [`settings::Bulkhead::queue_time`]. Dropping the future is fine.
    pub async fn admit(
        &self,
        permit: &Permit,
        principal: &Principal,
        call: &Call,
    ) -> Result<Ticket, Refused> {
        self.gate.admit(permit.class(), principal.id.shared(), call).await
    }

    /// A ticket for a permitted call that goes out although [`Self::admit`] said no, which it may where
    /// refusals are only recorded. It holds no place, and tells the breaker nothing.
    pub fn admit_in_shadow(&self, _permit: &Permit, _refused: &Refused) -> Ticket {
        self.gate.overrule()
    }

    /// Sends a call that was let through, and waits for the head of the answer.
    ///
    /// `head` and `body` are those of `call`; the head is freed of hop-by-hop headers, credentials and
    /// identity headers of the caller. Its method and headers are used; the target is that of the settings.
    ///
    /// Dropping the future drops the call: the connection is closed, the stream reset, or what waits for the
    /// process's answer forgotten. It ends by itself with the time that a head may take.
    pub async fn open(
        &self,
        mut ticket: Ticket,
        principal: &Principal,
        call: &Call,
        at: Option<&Endpoint>,
        Head(head): Head,
        body: Bytes,
    ) -> Result<Answer, Error> {
        let settings::Timeouts { first_byte, call: whole, .. } = self.settings.timeouts;
        let patience = first_byte.min(whole);
        let sending = async {
            Ok(match &self.way {
                Way::Http(http, _) => {
                    let patience = (!call.follows()).then_some(patience);
                    http.send(at, head, body, patience).await?.map(Arriving::Http)
                }
                Way::Stdio(bridge) => {
                    let owner = principal.id.as_str();
                    bridge.send(owner, call, &head.headers, body).await?.map(Arriving::Stdio)
                }
            })
        };
        let sent = timeout(patience, sending).await.unwrap_or(Err(Error::Late));
        match sent {
            Ok(answer) => Ok(self.answered(ticket, answer)),
            // Some servers begin a stream with its first event, however late that is.
            Err(Error::Late) if call.follows() => Err(Error::Late),
            Err(error) => {
                self.failed(&mut ticket, &error);
                Err(error)
            }
        }
    }

    /// Sends a message that goes with a permitted call of `caller`, such as the answer to a request of the
    /// server that came with the call's answer. As [`Self::open`], but the future can outlive the permit,
    /// and there is no time limit.
    pub fn open_beside(
        self: &Arc<Self>,
        _permit: &Permit,
        caller: Arc<str>,
        at: Option<Endpoint>,
        Head(head): Head,
        body: Bytes,
    ) -> Result<impl Future<Output = Result<Answer, Error>> + Send + use<>, Refused> {
        let upstream = Arc::clone(self);
        let mut ticket = self.gate.admit_beside()?;
        Ok(async move {
            let sent = upstream.send_beside(&caller, at.as_ref(), head, body).await;
            match sent {
                Ok(answer) => Ok(upstream.answered(ticket, answer)),
                Err(error) => {
                    upstream.failed(&mut ticket, &error);
                    Err(error)
                }
            }
        })
    }

    async fn send_beside(
        &self,
        caller: &str,
        at: Option<&Endpoint>,
        head: http::request::Parts,
        body: Bytes,
    ) -> Result<http::Response<Arriving>, Error> {
        Ok(match &self.way {
            Way::Http(http, _) => http.send(at, head, body, None).await?.map(Arriving::Http),
            Way::Stdio(bridge) => {
                let call = mcp::decode(&head.method, &head.headers, body.clone());
                let call = call.map_err(|error| Error::Failed(error.detail.into()))?;
                bridge.send(caller, &call, &head.headers, body).await?.map(Arriving::Stdio)
            }
        })
    }

    fn answered(&self, mut ticket: Ticket, answer: http::Response<Arriving>) -> Answer {
        let (head, arriving) = answer.into_parts();
        ticket.answered(&head, self.settings.identity().is_some());
        http::Response::from_parts(head, Body { arriving, ticket: Some(ticket) })
    }

    /// Tells the breaker, unless it is one caller's process that failed.
    fn failed(&self, ticket: &mut Ticket, error: &Error) {
        let own = match &self.settings.server {
            settings::Server::Http(_) => false,
            settings::Server::Command(command) => match command.processes {
                Processes::PerSession => true,
                Processes::Shared => false,
            },
        };
        match error {
            Error::Failed(_) | Error::Late if own => {}
            Error::NoIdentity
            | Error::Unreachable(_)
            | Error::Full
            | Error::Silent
            | Error::SessionGone
            | Error::Late
            | Error::Failed(_) => ticket.failed(error),
        }
    }

    /// How its breaker is doing, and how many places are taken.
    pub fn admission(&self) -> Reading {
        self.gate.reading()
    }

    /// Closes its breaker, and those of its tools.
    pub fn reset_breaker(&self) {
        self.gate.reset();
    }

    /// Where it takes messages, as it announced on a stream of its own; `None` if it names another origin, or
    /// has no such streams.
    pub fn endpoint(&self, announced: &[u8]) -> Option<Endpoint> {
        match &self.way {
            Way::Http(http, _) => http.endpoint(announced),
            Way::Stdio(_) => None,
        }
    }

    /// A place below the base of its HTTP+JSON binding. `None` if it leads elsewhere, or the upstream is a process.
    pub fn beneath(&self, rest: &Rest) -> Option<Endpoint> {
        match &self.way {
            Way::Http(http, _) => http.beneath(&rest.path, rest.query.as_deref()),
            Way::Stdio(_) => None,
        }
    }

    /// The agent's card, if it is in memory and may still be used: nothing is sent, so it takes no ticket. As with
    /// [`Self::card`], callers get it only rewritten.
    pub fn kept_card(&self, _permit: &Permit) -> Option<AgentCard> {
        match &self.way {
            Way::Http(_, cards) => cards.kept(),
            Way::Stdio(_) => None,
        }
    }

    /// The agent's card as the agent serves it, from memory while it may be used; see [`AgentCard`]. Whoever
    /// asks has to be permitted to, and may get it only rewritten.
    ///
    /// # Errors
    /// If there is none, or none that may still be used.
    pub async fn card(&self, ticket: Ticket) -> Result<AgentCard, CardError> {
        match &self.way {
            Way::Http(http, cards) => cards.card(http, ticket).await,
            Way::Stdio(_) => Err(CardError::NoAgent),
        }
    }

    /// The processes that were started for it; `None` if it is no command.
    pub fn processes(&self) -> Option<Census> {
        match &self.way {
            Way::Http(..) => None,
            Way::Stdio(bridge) => Some(bridge.census()),
        }
    }

    /// Ends what was started for it, and waits for that. Nothing is started any more.
    pub async fn close(&self) {
        match &self.way {
            Way::Http(..) => {}
            Way::Stdio(bridge) => bridge.close().await,
        }
    }
}

impl Body {
    /// The next piece of the body; `None` at its end. Trailers are dropped. Cancel-safe.
    pub async fn frame(&mut self) -> Option<Result<Bytes, Error>> {
        let piece = match &mut self.arriving {
            Arriving::Http(body) => body.frame().await,
            Arriving::Stdio(body) => body.frame().await,
        };
        if let (Some(Err(error)), Some(ticket)) = (&piece, &mut self.ticket) {
            ticket.failed(error);
        }
        piece
    }

    /// Takes note that the rest of it is too late to be waited for.
    pub fn give_up(&mut self) {
        if let Some(ticket) = &mut self.ticket {
            ticket.failed(&Error::Late);
        }
    }
}

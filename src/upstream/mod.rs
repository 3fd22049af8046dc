//! The way out: the servers behind Lictor, over HTTP or as processes of ours.
//!
//! Both kinds answer through one interface, so that the exchange loop doesn't know the difference: a head,
//! and a body that arrives in parts. Where users' tokens are exchanged for an upstream, `token_exchange` does it.

mod card;
mod client;
mod connector;
mod endpoint;
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

use crate::{
    governance::Permit,
    identity::{Principal, Source},
    protocol::{Call, a2a::Rest, mcp},
    telemetry::Metrics,
};
use token_exchange::TokenExchange;

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
    way: Way,
    token_exchange: Option<Arc<TokenExchange>>,
}

#[derive(Debug)]
enum Way {
    Http(Arc<client::Upstream>, card::Cards),
    Stdio(Arc<stdio::Bridge>),
}

/// What an upstream answered: the head, and a body that is still arriving.
pub type Answer = http::Response<Body>;

/// The body of an answer. Dropping it before its end tells the server that nobody listens any more, in the
/// way of its kind.
#[derive(Debug)]
pub struct Body(Arriving);

#[derive(Debug)]
enum Arriving {
    Http(client::Body),
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
                let client = client::Upstream::new(http.clone(), source)?;
                let cards = card::Cards::new(&client, &http.url, http.agent.card.as_ref());
                Way::Http(client, cards)
            }
            settings::Server::Command(command) => {
                Way::Stdio(stdio::Bridge::new(&settings.name, command.clone())?)
            }
        };
        let token_exchange = match &settings.token_exchange {
            Some(exchange) => Some(TokenExchange::new(&settings.name, exchange, metrics)?),
            None => None,
        };
        Ok(Arc::new(Self { settings, way, token_exchange }))
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

    /// Sends a permitted call of `principal`, and waits for the head of the answer.
    ///
    /// `head` and `body` are those of `call`; the head is freed of hop-by-hop headers, credentials and
    /// identity headers of the caller. Its method and headers are used; the target is that of the settings.
    ///
    /// Dropping the future drops the call: the connection is closed, the stream reset, or what waits for the
    /// process's answer forgotten. There is no time limit but that of connecting, or of starting a process;
    /// the caller races this against its own timers.
    pub async fn open(
        &self,
        _permit: &Permit,
        principal: &Principal,
        call: &Call,
        at: Option<&Endpoint>,
        Head(head): Head,
        body: Bytes,
    ) -> Result<Answer, Error> {
        match &self.way {
            Way::Http(http, _) => {
                Ok(http.send(at, head, body).await?.map(|body| Body(Arriving::Http(body))))
            }
            Way::Stdio(bridge) => {
                let owner = principal.id.as_str();
                let answer = bridge.send(owner, call, &head.headers, body).await?;
                Ok(answer.map(|body| Body(Arriving::Stdio(body))))
            }
        }
    }

    /// Sends a message that goes with a permitted call of `caller`, such as the answer to a request of the
    /// server that came with the call's answer. As [`Self::open`], but the future can outlive the permit.
    pub fn open_beside(
        self: &Arc<Self>,
        _permit: &Permit,
        caller: Arc<str>,
        at: Option<Endpoint>,
        Head(head): Head,
        body: Bytes,
    ) -> impl Future<Output = Result<Answer, Error>> + Send + use<> {
        let upstream = Arc::clone(self);
        async move {
            match &upstream.way {
                Way::Http(http, _) => {
                    let answer = http.send(at.as_ref(), head, body).await?;
                    Ok(answer.map(|body| Body(Arriving::Http(body))))
                }
                Way::Stdio(bridge) => {
                    let call = mcp::decode(&head.method, &head.headers, body.clone());
                    let call = call.map_err(|error| Error::Failed(error.detail.into()))?;
                    let answer = bridge.send(&caller, &call, &head.headers, body).await?;
                    Ok(answer.map(|body| Body(Arriving::Stdio(body))))
                }
            }
        }
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

    /// The agent's card as the agent serves it, from memory while it may be used; see [`AgentCard`]. Whoever
    /// asks has to be permitted to, and may get it only rewritten.
    ///
    /// # Errors
    /// If there is none, or none that may still be used.
    pub async fn card(&self, _permit: &Permit) -> Result<AgentCard, CardError> {
        match &self.way {
            Way::Http(http, cards) => cards.card(http).await,
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
        match &mut self.0 {
            Arriving::Http(body) => body.frame().await,
            Arriving::Stdio(body) => body.frame().await,
        }
    }
}

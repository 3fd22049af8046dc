//! Tokens on behalf of users: one that a caller brought is exchanged for one that the upstream accepts
//! (OAuth 2.0 Token Exchange, RFC 8693).
//!
//! A caller's token is for Lictor, or for whoever the agent got it from, and never for the upstream: passed
//! on, it would be of use there and to whoever reads it there. So it ends here, and what goes out is made for
//! that upstream, with its audience and scopes, by a token service that both sides believe.
//!
//! INVARIANT: a message goes out in a [`Head`], which only an [`OnBehalf`] makes, and an upstream with an
//! exchange hands that out only after it: a call can't go without the token that its upstream is owed, and a
//! step that is forgotten doesn't compile. Tokens are [`Secret`]s from where they are read to where they are
//! written; a token that a caller brought is kept by its digest only.
//!
//! Refused: an answer of the service that isn't exactly what was asked for, redirects, long answers, slow ones.
//! Nothing is asked twice: many calls with one token wait for one exchange, also for one that fails. A service
//! that fails is left alone for a while, by a breaker as upstreams have.

mod answer;
mod memory;
mod request;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use tracing::Instrument as _;

use super::{
    Body, SetupError,
    breaker::{self, Breaker, Verdict},
    settings::{self, Http, Transport},
    unjudged::Unjudged,
};
use crate::{
    protocol::Class,
    telemetry::{Causes, Clock, Metrics, Secret},
};
use answer::Issued;
use memory::{Found, Memory, Place};
use request::Request;

/// Time for an exchange from end to end, connecting included.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time to connect to the service.
const CONNECT: Duration = Duration::from_secs(3);
/// How long an unused connection to the service is kept.
const IDLE: Duration = Duration::from_secs(4);
/// Longest answer of the service in bytes.
const LONGEST_ANSWER: usize = 64 << 10;
/// Longest token of a caller in bytes.
const LONGEST_TOKEN: usize = 16 << 10;
/// Longest time for which an issued token is used again, however long it is valid: a user who was shut out
/// is shut out here after this long at the latest.
const LONGEST_USE: Duration = Duration::from_secs(5 * 60);
/// How long before its end a token is used no more, so that it doesn't end on its way.
const MARGIN: Duration = Duration::from_secs(30);

/// A token that a caller brought for its user.
pub struct UserToken(Secret<Box<str>>);

impl UserToken {
    /// A token as `Authorization: Bearer` has it (RFC 6750 §2.1), of at most 16 KiB; `None` for anything else.
    pub fn new(token: &str) -> Option<Self> {
        let fits = token.len() <= LONGEST_TOKEN && is_bearer_token(token);
        fits.then(|| Self(Secret::new(token.into())))
    }

    /// What it is known by.
    fn digest(&self) -> Digest {
        Sha256::digest(self.0.expose().as_bytes()).into()
    }
}

/// SHA-256 of a caller's token.
type Digest = [u8; 32];

/// An issued token, as the value of `Authorization`, and the digest of the one that it was issued for.
#[derive(Clone)]
struct Bearer {
    value: Secret<HeaderValue>,
    of: Digest,
}

/// For whom messages go out: a user, by the token that was issued for one upstream, or nobody.
#[derive(Clone)]
pub struct OnBehalf(Option<Bearer>);

impl OnBehalf {
    /// Of nobody. For upstreams that no tokens are exchanged for.
    pub(super) const fn nobody() -> Self {
        Self(None)
    }

    /// Completes the head of a message to the upstream that this is for.
    pub fn head(&self, mut parts: Parts) -> Head {
        // Whatever stands there, it is never the caller's.
        parts.headers.remove(AUTHORIZATION);
        if let Some(bearer) = &self.0 {
            parts.headers.insert(AUTHORIZATION, bearer.value.expose().clone());
        }
        Head(parts)
    }

    /// The same for a workload that proves itself to a web API by `own` credentials. A user's token takes their
    /// place.
    pub fn head_with(&self, parts: Parts, own: HeaderValue) -> Head {
        let Head(mut parts) = self.head(parts);
        let mut own = own;
        own.set_sensitive(true);
        parts.headers.entry(AUTHORIZATION).or_insert(own);
        Head(parts)
    }
}

impl fmt::Debug for OnBehalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnBehalf(a user)" } else { "OnBehalf(nobody)" })
    }
}

/// The head of a message as it goes out, with the token that its upstream is owed.
///
/// ```compile_fail,E0423
/// let forged = lictor::upstream::Head(http::Request::new(()).into_parts().0);
/// ```
pub struct Head(pub(super) Parts);

/// Why there is no token for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The call brings no user's token, and the upstream needs one.
    #[error("the call has no user's token")]
    Missing,
    /// The token service doesn't give one for this user, or not for what was asked.
    #[error("the token service refused")]
    Refused,
    /// The token service can't be asked, doesn't answer in time, or not in a way that can be read.
    #[error("the token service can't be used")]
    Unavailable,
}

/// Exchanges users' tokens for those of one upstream.
pub(super) struct TokenExchange {
    upstream: Box<str>,
    service: Unjudged,
    request: Request,
    required: bool,
    memory: Arc<Memory>,
    breaker: Mutex<Breaker>,
    metrics: Metrics,
}

impl TokenExchange {
    /// Sets up the way to the token service of the upstream of this name; connects to nothing yet.
    pub(super) fn new(
        upstream: &str,
        settings: &settings::TokenExchange,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, SetupError> {
        let service = Http {
            agent: Box::default(),
            url: settings.url.clone(),
            others: Vec::new(),
            health: None,
            transport: Transport::StreamableHttp,
            verification: settings.verification.clone(),
            host: None,
            connect_timeout: CONNECT,
            pool_idle_timeout: IDLE,
        };
        Ok(Arc::new(Self {
            upstream: upstream.into(),
            service: Unjudged::new(service, None)?,
            request: Request::new(settings)?,
            required: settings.required,
            memory: Arc::default(),
            breaker: Mutex::new(breaker::with_defaults(Clock.instant())),
            metrics: metrics.clone(),
        }))
    }

    /// For whom a call of `caller` goes out that carries this.
    pub(super) async fn on_behalf(
        self: &Arc<Self>,
        caller: Arc<str>,
        user: Option<UserToken>,
    ) -> Result<OnBehalf, TokenError> {
        match user {
            Some(user) => Ok(OnBehalf(Some(self.issued(caller, user).await?))),
            None if self.required => Err(TokenError::Missing),
            None => Ok(OnBehalf::nobody()),
        }
    }

    /// The upstream doesn't accept it: the next call with the same user's token asks the service anew.
    pub(super) fn doubt(&self, user: &OnBehalf) {
        if let Some(bearer) = &user.0 {
            self.memory.forget(bearer);
        }
    }

    /// From memory, from an exchange that is under way, or from one of its own. That goes on when the caller
    /// leaves, since others may wait for it, and never for longer than [`PATIENCE`].
    async fn issued(
        self: &Arc<Self>,
        caller: Arc<str>,
        user: UserToken,
    ) -> Result<Bearer, TokenError> {
        let coming = match self.memory.find(user.digest(), caller, Clock.instant()) {
            Found::Issued(bearer) => return Ok(bearer),
            Found::Coming(coming) => coming,
            Found::Nothing(place, coming) => {
                let this = Arc::clone(self);
                tokio::spawn(async move { this.exchange(place, user).await }.in_current_span());
                coming
            }
            Found::Full => {
                self.metrics.token_exchange(&self.upstream, "busy");
                tracing::warn!(upstream = &*self.upstream, "too many token exchanges at once");
                return Err(TokenError::Unavailable);
            }
        };
        coming.outcome().await
    }

    async fn exchange(&self, place: Place, user: UserToken) {
        let begun = Clock.instant();
        let pass = self.breaker().admit(Class::Read, begun);
        let asked = match &pass {
            Ok(_) => timeout(PATIENCE, self.ask(&user)).await.unwrap_or(Err(Problem::Late)),
            Err(_) => Err(Problem::LeftAlone),
        };
        if let Ok(pass) = pass {
            self.breaker().settle(&pass, verdict(&asked), Clock.instant());
        }
        let took_ms = Clock.instant().saturating_duration_since(begun).as_millis();
        let upstream = &*self.upstream;
        let (outcome, counted) = match asked {
            Ok(issued) => {
                tracing::debug!(upstream, took_ms, "a token was issued");
                // From before the service was asked, so never for too long.
                let until = issued.usable_for().map(|usable| begun + usable);
                (Ok((issued.token, until)), "issued")
            }
            Err(Problem::Refused(code)) => {
                tracing::info!(upstream, took_ms, code, "the token service refused");
                (Err(TokenError::Refused), "refused")
            }
            Err(Problem::LeftAlone) => (Err(TokenError::Unavailable), "left_alone"),
            Err(problem) => {
                let reason = Causes(&problem).to_string();
                tracing::warn!(upstream, took_ms, reason, "no token");
                (Err(TokenError::Unavailable), "failed")
            }
        };
        self.metrics.token_exchange(upstream, counted);
        place.finish(outcome);
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        // Nothing panics half-way while it is held.
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, user: &UserToken) -> Result<Issued, Problem> {
        let (head, body) = self.request.write(user).await.map_err(Problem::Secret)?;
        let answer = self.service.send(head, body).await.map_err(Problem::Unreachable)?;
        let (head, mut body) = answer.into_parts();
        let document = read(&mut body).await?;
        match head.status {
            StatusCode::OK if !is_json(&head.headers) => Err(Problem::NoJson),
            StatusCode::OK => answer::issued(&document).map_err(Problem::Unreadable),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(answer::refusal(head.status, &document))
            }
            status => Err(Problem::Status(status.as_u16())),
        }
    }
}

impl fmt::Debug for TokenExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenExchange").field("service", &self.service).finish_non_exhaustive()
    }
}

/// Why an exchange brought no token. For the log: none holds anything that the service wrote.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("the token service fails too often, and is left alone")]
    LeftAlone,
    #[error("the client secret can't be read")]
    Secret(#[source] std::io::Error),
    #[error("the token service gives no answer")]
    Unreachable(#[source] super::Error),
    #[error("the token service did not answer within {PATIENCE:?}")]
    Late,
    #[error("the token service's answer is longer than {LONGEST_ANSWER} bytes")]
    Long,
    #[error("the token service answers {0}")]
    Status(u16),
    #[error("the token service answers in something else than JSON")]
    NoJson,
    #[error("the token service's answer can't be used")]
    Unreadable(#[source] answer::Unreadable),
    #[error("the token service doesn't accept Lictor as its client: `{0}`")]
    Client(&'static str),
    #[error("the token service refuses: `{0}`")]
    Refused(&'static str),
}

/// What it tells of the service.
fn verdict(asked: &Result<Issued, Problem>) -> Option<Verdict> {
    match asked {
        Ok(_) | Err(Problem::Refused(_)) => Some(Verdict::Succeeded),
        Err(Problem::LeftAlone | Problem::Secret(_)) => None,
        Err(Problem::Unreachable(_) | Problem::Late) => Some(Verdict::Failed),
        Err(Problem::Status(500..)) => Some(Verdict::Failed),
        Err(
            Problem::Status(_)
            | Problem::Long
            | Problem::NoJson
            | Problem::Unreadable(_)
            | Problem::Client(_),
        ) => Some(Verdict::Alive),
    }
}

async fn read(body: &mut Body) -> Result<Vec<u8>, Problem> {
    let mut whole = Vec::new();
    while let Some(part) = body.frame().await {
        let part = part.map_err(Problem::Unreachable)?;
        if whole.len() + part.len() > LONGEST_ANSWER {
            return Err(Problem::Long);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = media.and_then(|value| value.split(';').next()).unwrap_or_default();
    media.trim().eq_ignore_ascii_case("application/json")
}

/// The `b64token` of RFC 6750 §2.1.
fn is_bearer_token(token: &str) -> bool {
    let bare = token.trim_end_matches('=');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !bare.is_empty() && bare.bytes().all(fits)
}

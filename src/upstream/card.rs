//! [`Cards`]: the agent's own card, as the upstream serves it.
//!
//! A card stands at a well-known place: below the agent's endpoint, where one server holds several agents,
//! or at the root of its origin, and under an older name until A2A 0.2. All four are tried, in this order, unless the
//! place is configured. Cards are kept for as long as the agent allows, at most five minutes, and asked for
//! again with what was known of them; where several endpoints serve, up to three of them, as long as each says that it
//! can't serve now.
//!
//! INVARIANT: a card comes over the upstream's own connections, verified as those are, and from no other place: redirects
//! aren't followed. One that may not be used any longer is never handed out, also when no newer one can be had.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, IF_NONE_MATCH},
};
use tokio::{sync::Mutex, time::timeout};
use url::Url;

use super::{
    Endpoint, Error, Ticket,
    endpoints::{Answer, Endpoints, unserved},
};
use crate::telemetry::Clock;

/// Where cards are, since A2A 0.3 and before.
const NAMES: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// Longest card in bytes.
const LONGEST: usize = 1 << 20;

/// How long it may take to get a card, from all places together.
const FETCH: Duration = Duration::from_secs(10);

/// How long a card is used at most.
const MAX_AGE: Duration = Duration::from_secs(300);

/// How long a card is used that doesn't say how long it may be.
const DEFAULT_AGE: Duration = Duration::from_secs(60);

/// How long others are told of a failure, in place of waiting for one of their own.
const FAILURE_AGE: Duration = Duration::from_secs(1);

/// A card as it was sent, and how long it may still be used.
#[derive(Clone, Debug)]
pub struct AgentCard {
    /// The document.
    pub bytes: Bytes,
    /// How long it may still be used.
    pub fresh_for: Duration,
}

/// Why there is no card.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CardError {
    /// The agent has none, at none of the places.
    #[error("the upstream has no agent card")]
    Missing,
    /// It can't be reached, or breaks off.
    #[error("the agent card can't be fetched")]
    Unreachable(#[source] Arc<Error>),
    /// It took too long.
    #[error("the agent card didn't arrive in time")]
    Late,
    /// It is somewhere else, which isn't followed.
    #[error("the agent card is behind a redirect, which is not followed; configure its URL")]
    Redirect,
    /// An answer that is no card.
    #[error("the upstream answers {0} when it is asked for its agent card")]
    Status(StatusCode),
    /// More than a card may have.
    #[error("the agent card is longer than {LONGEST} bytes")]
    TooLong,
    /// An encoding that wasn't asked for.
    #[error("the agent card is encoded in a way that wasn't asked for")]
    Encoded,
    /// A server that is no A2A agent at a URL.
    #[error("the upstream is a process, which has no agent card")]
    NoAgent,
}

/// The card of one upstream.
#[derive(Debug)]
pub(super) struct Cards {
    places: Vec<Endpoint>,
    /// The last one. Only whoever fetches puts another in its place.
    kept: ArcSwapOption<Kept>,
    /// When fetching failed, if it was the last time. Whoever holds it fetches; the others wait for what comes of it.
    failure: Mutex<Option<(CardError, Instant)>>,
}

#[derive(Clone, Debug)]
struct Kept {
    bytes: Bytes,
    tag: Option<HeaderValue>,
    /// Index of the place that it is from.
    place: usize,
    since: Instant,
    age: Duration,
}

impl Cards {
    /// `at` is where the configuration says that the card is.
    pub(super) fn new(client: &Endpoints, url: &Url, at: Option<&Url>) -> Self {
        let paths = match at {
            Some(at) => vec![at.as_str().to_owned()],
            None => well_known(url.path()),
        };
        let places = paths.iter().filter_map(|path| client.endpoint(path.as_bytes())).collect();
        Self { places, kept: ArcSwapOption::empty(), failure: Mutex::default() }
    }

    /// The card in memory, if it may still be used.
    pub(super) fn kept(&self) -> Option<AgentCard> {
        let now = Clock.instant();
        self.kept.load().as_ref().filter(|kept| kept.is_fresh(now)).map(|kept| kept.card(now))
    }

    /// The card, from memory while it may be used.
    /// `ticket` is for the messages that it takes if it can't.
    pub(super) async fn card(
        &self,
        client: &Endpoints,
        mut ticket: Ticket,
    ) -> Result<AgentCard, CardError> {
        let mut failure = self.failure.lock().await;
        if let Some(card) = self.kept() {
            return Ok(card);
        }
        if let Some((error, at)) = &*failure
            && Clock.instant().saturating_duration_since(*at) < FAILURE_AGE
        {
            return Err(error.clone());
        }
        let old = self.kept.load_full();
        let fetched =
            timeout(FETCH, self.fetch_anywhere(client, old.as_deref(), &mut ticket)).await;
        let fetched = fetched.unwrap_or_else(|_| {
            ticket.failed(&Error::Late);
            Err(CardError::Late)
        });
        match fetched {
            Ok(kept) => {
                let card = kept.card(Clock.instant());
                self.kept.store(Some(Arc::new(kept)));
                *failure = None;
                Ok(card)
            }
            Err(error) => {
                *failure = Some((error.clone(), Clock.instant()));
                Err(error)
            }
        }
    }

    /// Fetches it, from another endpoint if the one that was asked can't serve. Each time another is due.
    async fn fetch_anywhere(
        &self,
        client: &Endpoints,
        old: Option<&Kept>,
        ticket: &mut Ticket,
    ) -> Result<Kept, CardError> {
        let mut left = client.offers();
        loop {
            left = left.saturating_sub(1);
            match self.fetch(client, old, ticket).await {
                Err(error) if left > 0 && error.is_of_endpoint() => {}
                fetched => return fetched,
            }
        }
    }

    async fn fetch(
        &self,
        client: &Endpoints,
        old: Option<&Kept>,
        ticket: &mut Ticket,
    ) -> Result<Kept, CardError> {
        let mut error = CardError::Missing;
        for (place, endpoint) in self.places.iter().enumerate() {
            let old = old.filter(|old| old.place == place);
            let tag = old.and_then(|old| old.tag.clone());
            let answer = ask(client, endpoint, tag, ticket).await?;
            let since = Clock.instant();
            let headers = answer.headers();
            let age = lifetime(headers);
            match (answer.status(), old) {
                (StatusCode::OK, _) => {
                    if headers.get(CONTENT_ENCODING).is_some_and(|it| it != "identity") {
                        return Err(CardError::Encoded);
                    }
                    let tag = headers.get(ETAG).cloned();
                    let bytes = read(answer, ticket).await?;
                    return Ok(Kept { bytes, tag, place, since, age });
                }
                (StatusCode::NOT_MODIFIED, Some(old)) if old.tag.is_some() => {
                    return Ok(Kept { since, age, ..old.clone() });
                }
                (StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::METHOD_NOT_ALLOWED, _) => {}
                (status, _) if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
                    return Err(CardError::Redirect);
                }
                // What guards one place says nothing of the next.
                (status, _) if status.is_client_error() => error = CardError::Status(status),
                (status, _) => return Err(CardError::Status(status)),
            }
        }
        Err(error)
    }
}

impl CardError {
    /// Whether it tells of the endpoint that was asked, and nothing of the others. Those that no connection led to have
    /// been passed over already.
    fn is_of_endpoint(&self) -> bool {
        match self {
            Self::Unreachable(error) => matches!(**error, Error::Failed(_)),
            Self::Status(status) => unserved(*status),
            Self::Missing
            | Self::Late
            | Self::Redirect
            | Self::TooLong
            | Self::Encoded
            | Self::NoAgent => false,
        }
    }
}

impl Kept {
    fn is_fresh(&self, now: Instant) -> bool {
        !self.left(now).is_zero()
    }

    fn left(&self, now: Instant) -> Duration {
        self.age.saturating_sub(now.saturating_duration_since(self.since))
    }

    fn card(&self, now: Instant) -> AgentCard {
        AgentCard { bytes: self.bytes.clone(), fresh_for: self.left(now) }
    }
}

/// Below an endpoint, and at the root of its origin.
pub(super) fn well_known(endpoint: &str) -> Vec<String> {
    let below = endpoint.trim_end_matches('/');
    let mut bases = vec![below, ""];
    bases.dedup();
    bases.iter().flat_map(|base| NAMES.map(|name| format!("{base}{name}"))).collect()
}

async fn ask(
    client: &Endpoints,
    endpoint: &Endpoint,
    tag: Option<HeaderValue>,
    ticket: &mut Ticket,
) -> Result<Answer, CardError> {
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.method = Method::GET;
    head.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(tag) = tag {
        head.headers.insert(IF_NONE_MATCH, tag);
    }
    match client.send(Some(endpoint), head, Bytes::new(), None).await {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            ticket.answered(&head, false);
            Ok(http::Response::from_parts(head, body))
        }
        Err(error) => Err(unreachable(error, ticket)),
    }
}

fn unreachable(error: Error, ticket: &mut Ticket) -> CardError {
    ticket.failed(&error);
    CardError::Unreachable(Arc::new(error))
}

async fn read(answer: Answer, ticket: &mut Ticket) -> Result<Bytes, CardError> {
    let (head, mut body) = answer.into_parts();
    let length = head.headers.get(CONTENT_LENGTH).and_then(number);
    if length.is_some_and(|length| length > LONGEST as u64) {
        return Err(CardError::TooLong);
    }
    let mut whole = BytesMut::new();
    while let Some(part) = body.frame().await {
        let part = part.map_err(|error| unreachable(error, ticket))?;
        if whole.len() + part.len() > LONGEST {
            return Err(CardError::TooLong);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// How long an answer may be used by a cache that several callers share (RFC 9111 §4.2, §5.2.2).
fn lifetime(headers: &HeaderMap) -> Duration {
    let mut age = None;
    let mut shared = None;
    for value in headers.get_all(CACHE_CONTROL) {
        let Ok(text) = value.to_str() else { return Duration::ZERO };
        for directive in text.split(',') {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            let seconds = || value.trim().trim_matches('"').parse::<u64>().unwrap_or(0);
            match &*name.trim().to_ascii_lowercase() {
                "no-store" | "no-cache" | "private" => return Duration::ZERO,
                "max-age" => age = Some(seconds()),
                "s-maxage" => shared = Some(seconds()),
                _ => {}
            }
        }
    }
    let whole = shared.or(age).map_or(DEFAULT_AGE, Duration::from_secs).min(MAX_AGE);
    let spent = headers.get(AGE).and_then(number).map(Duration::from_secs).unwrap_or_default();
    whole.saturating_sub(spent)
}

fn number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let root = NAMES.map(str::to_owned);
        assert_eq!(well_known("/"), root);
        assert_eq!(well_known(""), root);
        let below = NAMES.map(|name| format!("/in/agent{name}"));
        assert_eq!(well_known("/in/agent"), [below.clone(), root.clone()].concat());
        assert_eq!(well_known("/in/agent/"), [below, root].concat());
    }

    #[test]
    fn lifetimes() {
        for (control, age, seconds) in [
            (&[][..], None, 60),
            (&["max-age=10"][..], None, 10),
            (&["public, max-age=10"], Some("4"), 6),
            (&["public, max-age=10"], Some("40"), 0),
            (&["max-age=100000"], None, 300),
            (&["max-age=100000"], Some("290"), 10),
            (&["max-age=10, s-maxage=20"], None, 20),
            (&["Max-Age=\"10\""], None, 10),
            (&["must-revalidate"], None, 60),
            (&["max-age=0"], None, 0),
            (&["max-age=-1"], None, 0),
            (&["max-age"], None, 0),
            (&["max-age=10, no-cache"], None, 0),
            (&["max-age=10", "no-store"], None, 0),
            (&["private, max-age=10"], None, 0),
        ] {
            let mut headers = HeaderMap::new();
            for value in control {
                headers.append(CACHE_CONTROL, HeaderValue::from_static(value));
            }
            if let Some(age) = age {
                headers.insert(AGE, HeaderValue::from_static(age));
            }
            assert_eq!(lifetime(&headers), Duration::from_secs(seconds), "{control:?} {age:?}");
        }
    }
}

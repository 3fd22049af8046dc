//! [`Endpoints`]: the servers at several URLs that are one upstream.
//!
//! A call goes to the endpoint that [`balance`] picks. A legacy session goes on where it was opened: what it is
//! about is in the memory of one server. Which one that is stands in the session's id itself, see [`tag`], so
//! nothing has to be remembered, and another replica or the next process of Lictor knows it as well. What is in
//! no session may be served by any of them, as behind every balancer: servers that keep such things have to
//! share them.
//!
//! INVARIANT: a call is sent at most once. It goes on to another endpoint only if no connection to the one that
//! was picked came about, and never if it belongs to a session.
//!
//! Refused are calls of sessions whose endpoint isn't configured any more, or has been out for long: their
//! callers are told that there is no such session, and open another.

mod balance;
mod health;
mod tag;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE, request::Parts};
use tokio::task::JoinSet;
use url::Url;

use self::{
    balance::{Balance, Change, Outcome, Set, Taken},
    tag::Tag,
};
use super::{Endpoint, Error, SetupError, client, settings::Http};
use crate::{
    identity::Source,
    telemetry::{Clock, Metrics, metrics},
};

/// How many endpoints one call is offered to.
const OFFERS: usize = 3;

/// The servers of one upstream.
pub(super) struct Endpoints {
    /// The only one, or the first.
    first: Arc<client::Upstream>,
    /// Where there is something to choose or to watch.
    several: Option<Arc<Several>>,
    /// End with this.
    _probes: JoinSet<()>,
}

struct Several {
    upstream: Box<str>,
    members: Box<[Member]>,
    balance: Mutex<Balance>,
}

struct Member {
    client: Arc<client::Upstream>,
    tag: Tag,
    metrics: metrics::Endpoint,
}

/// What an endpoint answered.
pub(super) type Answer = http::Response<Body>;

/// The body of an answer. Its endpoint is busy with it until it is dropped.
#[derive(Debug)]
pub(super) struct Body {
    body: client::Body,
    call: Option<Call>,
}

/// A call under way at one of several endpoints.
struct Call {
    several: Arc<Several>,
    taken: Taken,
    /// How long the endpoint has for the head of the answer, as long as that is awaited.
    patience: Option<Duration>,
    /// Whether it is to blame if the body breaks off. It isn't for streams: those end somehow, one day.
    is_whole: bool,
}

impl Endpoints {
    /// Sets up the way to all of them; connects to nothing yet, except for probes, if those are configured.
    pub(super) fn new(
        upstream: &str,
        settings: &Http,
        source: Option<&Arc<Source>>,
        metrics: &Metrics,
    ) -> Result<Self, SetupError> {
        let mut probes = JoinSet::new();
        let first = client::Upstream::new(settings.clone(), source.cloned())?;
        if settings.others.is_empty() && settings.health.is_none() {
            return Ok(Self { first, several: None, _probes: probes });
        }
        let member = |client, url| {
            let metrics = metrics.endpoint(upstream, &authority(url));
            Member { client, tag: Tag::of(url), metrics }
        };
        let mut members = vec![member(Arc::clone(&first), &settings.url)];
        for other in &settings.others {
            let client = client::Upstream::new(settings.at(other), source.cloned())?;
            members.push(member(client, other));
        }
        let several = Arc::new(Several {
            upstream: upstream.into(),
            balance: Mutex::new(Balance::new(members.len())),
            members: members.into(),
        });
        if let Some(health) = &settings.health {
            for (index, url) in settings.urls().enumerate() {
                let probe = health::Probe::new(health, settings.at(url), source.cloned())?;
                let told = Arc::clone(&several);
                probes.spawn(probe.run(move |alive| told.probed(index, alive)));
            }
        }
        Ok(Self { first, several: Some(several), _probes: probes })
    }

    /// Sends a permitted call; see [`client::Upstream::send`]. An endpoint is to blame if nothing has come from it
    /// when the future is dropped after `patience`.
    pub(super) async fn send(
        &self,
        at: Option<&Endpoint>,
        head: Parts,
        body: Bytes,
        patience: Option<Duration>,
    ) -> Result<Answer, Error> {
        match &self.several {
            None => {
                let answer = self.first.send(at, head, body).await?;
                Ok(answer.map(Body::from))
            }
            Some(several) => several.send(at, head, body, patience).await,
        }
    }

    /// How many of them one call is offered to, at most.
    pub(super) fn offers(&self) -> usize {
        self.several.as_ref().map_or(1, |several| several.members.len().min(OFFERS))
    }

    /// Where the upstream takes messages, as it announced on a stream of its own.
    pub(super) fn endpoint(&self, announced: &[u8]) -> Option<Endpoint> {
        self.first.endpoint(announced)
    }

    /// A place below the base of the HTTP+JSON binding.
    pub(super) fn beneath(&self, path: &str, query: Option<&str>) -> Option<Endpoint> {
        self.first.beneath(path, query)
    }
}

impl Several {
    async fn send(
        self: &Arc<Self>,
        at: Option<&Endpoint>,
        mut head: Parts,
        body: Bytes,
        patience: Option<Duration>,
    ) -> Result<Answer, Error> {
        let bound = self.bound(&mut head.headers)?;
        let mut tried = Set::default();
        let mut offers = 0;
        let mut refused = Error::Unreachable("there is no endpoint".into());
        while let Some((mut call, member)) = self.take(bound, tried) {
            call.patience = patience;
            tried.insert(call.taken.index);
            offers += 1;
            let at = match at {
                Some(at) => Some(member.client.own(at)?),
                None => None,
            };
            match member.client.send(at.as_ref(), head.clone(), body.clone()).await {
                Ok(mut answer) => {
                    call.report(outcome(answer.status()));
                    call.is_whole = !is_stream(answer.headers());
                    if self.members.len() > 1 {
                        member.tag.put_on(answer.headers_mut());
                    }
                    return Ok(answer.map(|body| Body { body, call: Some(call) }));
                }
                // That is ours.
                Err(Error::NoIdentity) => return Err(Error::NoIdentity),
                Err(error) => {
                    call.report(Outcome::Failed);
                    let elsewhere = bound.is_none() && offers < OFFERS;
                    if !(elsewhere && matches!(error, Error::Unreachable(_))) {
                        return Err(error);
                    }
                    refused = error;
                }
            }
            member.metrics.passed_over();
        }
        Err(refused)
    }

    /// The endpoint that a session is bound to, if the call belongs to one. The session's id is made to what the
    /// server knows it by.
    fn bound(&self, headers: &mut HeaderMap) -> Result<Option<usize>, Error> {
        if self.members.len() < 2 {
            return Ok(None);
        }
        let Some(tag) = tag::take_off(headers) else { return Ok(None) };
        let index = match tag {
            // It was opened when there was one endpoint only, which is the first now.
            None => Some(0),
            Some(tag) => self.members.iter().position(|member| member.tag == tag),
        };
        let there = index.filter(|index| !self.lock().is_given_up(*index, Clock.instant()));
        there.map(Some).ok_or(Error::SessionGone)
    }

    fn take(self: &Arc<Self>, bound: Option<usize>, tried: Set) -> Option<(Call, &Member)> {
        let now = Clock.instant();
        let taken = match bound {
            Some(index) => self.lock().take(index, now),
            None => self.lock().pick(tried, now),
        }?;
        let call = Call { several: Arc::clone(self), taken, patience: None, is_whole: false };
        Some((call, self.members.get(taken.index)?))
    }

    fn probed(&self, index: usize, alive: bool) {
        let change = self.lock().probed(index, alive, Clock.instant());
        if let Some(member) = self.members.get(index) {
            member.metrics.probed(alive);
        }
        self.tell(index, change);
    }

    /// Tells the operator what has changed.
    fn tell(&self, index: usize, change: Option<Change>) {
        let (Some(change), Some(member)) = (change, self.members.get(index)) else { return };
        let (upstream, endpoint) = (&*self.upstream, member.metrics.name());
        match change {
            Change::Ejected(time) => {
                tracing::warn!(upstream, endpoint, ?time, "it fails calls and is left out");
                member.metrics.ejected();
            }
            Change::Returned => tracing::info!(upstream, endpoint, "it answers calls again"),
            Change::Down => tracing::warn!(upstream, endpoint, "its probes fail; it is left out"),
            Change::Up => tracing::info!(upstream, endpoint, "its probes succeed again"),
        }
        let balance = self.lock();
        member.metrics.set_up(balance.serves(index));
    }

    fn lock(&self) -> MutexGuard<'_, Balance> {
        // Nothing in there panics half-way.
        self.balance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an answer says of whoever gave it.
fn outcome(status: StatusCode) -> Outcome {
    if unserved(status) { Outcome::Failed } else { Outcome::Answered }
}

/// Whether a status says that nobody is there to serve; all others are for the caller.
pub(super) fn unserved(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Host and port, which tell the endpoints of one upstream apart.
fn authority(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

impl Call {
    fn report(&mut self, outcome: Outcome) {
        self.patience = None;
        let change = self.several.lock().report(&self.taken, outcome, Clock.instant());
        self.several.tell(self.taken.index, change);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Whoever waited gave up. If that took about as long as anybody would wait, it was the endpoint: the
        // wait began somewhat earlier than this call.
        let waited = Clock.instant().saturating_duration_since(self.taken.at);
        if self.patience.is_some_and(|patience| waited >= patience.mul_f32(0.9)) {
            self.report(Outcome::Failed);
        }
        self.several.lock().finish(&self.taken);
    }
}

impl Body {
    /// The next piece of the body; see [`client::Body::frame`].
    pub(super) async fn frame(&mut self) -> Option<Result<Bytes, Error>> {
        let frame = self.body.frame().await;
        if let (Some(Err(_)), Some(call)) = (&frame, &mut self.call)
            && call.is_whole
        {
            call.report(Outcome::Failed);
        }
        frame
    }
}

impl From<client::Body> for Body {
    fn from(body: client::Body) -> Self {
        Self { body, call: None }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("first", &self.first).finish_non_exhaustive()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.taken).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::{Transport, Verification};

    #[test]
    fn a_session_whose_endpoint_has_long_been_away_is_gone() {
        let urls =
            [1, 2].map(|port| format!("http://127.0.0.1:{port}/mcp").parse().expect("a URL"));
        let [url, other] = urls.clone();
        let second = Duration::from_secs(1);
        let settings = Http {
            url,
            others: vec![other],
            health: None,
            transport: Transport::default(),
            verification: Verification::Loopback,
            host: None,
            connect_timeout: second,
            pool_idle_timeout: second,
            agent: Box::default(),
        };
        let endpoints = Endpoints::new("files", &settings, None, &Metrics::new()).expect("set up");
        let several = endpoints.several.expect("two of them");
        let bound = |url: &Url| {
            let mut headers = HeaderMap::new();
            headers.insert("mcp-session-id", "s".parse().expect("a value"));
            Tag::of(url).put_on(&mut headers);
            several.bound(&mut headers)
        };
        for (ago, gone) in [(10, false), (60, true)] {
            let since = Clock.instant().checked_sub(second * ago).expect("the machine is up");
            several.probed(0, true);
            several.lock().probed(0, false, since);
            several.probed(0, false);
            match bound(&urls[0]) {
                Err(Error::SessionGone) => assert!(gone, "{ago}"),
                other => assert!(!gone && matches!(other, Ok(Some(0))), "{ago}: {other:?}"),
            }
            assert!(matches!(bound(&urls[1]), Ok(Some(1))));
        }
    }
}

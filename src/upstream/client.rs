//! [`Upstream`]: sends permitted calls to one server over HTTP.
//!
//! Plain connections, which are of this host and speak HTTP/1.1, have a client of their own in
//! [`http1`]. With TLS, hyper speaks HTTP/1.1 or HTTP/2. There, one pool serves one rotation epoch: it ends when our SVID or the bundles change, and when the first SVID
//! that an upstream connection was verified with expires, and when a connection leads to an address that isn't the
//! host's any more. The next call makes a new pool; the old one's
//! idle connections close, and calls in flight on it run to their end. So no call ever uses a
//! connection that was verified under other bundles, with another SVID of ours, or with an expired one.
//!
//! INVARIANT: a call is sent at most once. hyper hands a request back only if not one byte of it was
//! written (a pooled connection that the server had closed); only then it goes out on another connection.
//! This is so for any method and any body, and nothing else here repeats anything.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode, Uri, Version,
    header::{ACCEPT_ENCODING, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    request::Parts,
    uri::{Authority, Scheme},
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rustls::pki_types::ServerName;

use super::{
    Error, SetupError, Verification,
    connector::{Connector, Dialer},
    endpoint::Endpoint,
    http1,
    pool::{Client, Place, Pool},
    resolver::Resolver,
    settings::Http,
    tls,
};
use crate::{identity::Source, telemetry::Clock};

/// One HTTP server behind Lictor.
pub(super) struct Upstream {
    settings: Http,
    /// Scheme, host, path and query of every request.
    uri: Uri,
    way: Way,
}

enum Way {
    Plain { client: http1::Client, host: HeaderValue },
    Secured(Secured),
}

/// Connections with TLS.
struct Secured {
    /// Where our SVID is from, if the upstream wants to see it.
    source: Option<Arc<Source>>,
    connector: Connector,
    idle: Duration,
    pool: ArcSwap<Pool>,
}

/// What the server answered: the head, and a body that is still arriving.
pub(super) type Answer = http::Response<Body>;

/// The body of an answer. Dropping it closes the HTTP/1.1 connection, or resets the HTTP/2 stream, unless
/// the body has been read to its end.
#[derive(Debug)]
pub(super) enum Body {
    Plain(http1::Body),
    Secured(Incoming, Place),
}

impl Upstream {
    /// Sets up the way to an upstream; connects to nothing yet. `source` is needed for
    /// [`Verification::Spiffe`].
    pub(super) fn new(
        settings: Http,
        source: Option<Arc<Source>>,
    ) -> Result<Arc<Self>, SetupError> {
        let url = &settings.url;
        let fault = || SetupError::Url(url.host_str().unwrap_or_default().to_owned());
        // Brackets around an IPv6 address belong to the URL.
        let host = url.host_str().ok_or_else(fault)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fault());
        }
        let tls = match (&settings.verification, url.scheme()) {
            (Verification::Loopback, "http") => None,
            (Verification::Spiffe(id), "https") => {
                let source = source.as_ref().ok_or(SetupError::NoSource)?;
                Some(tls::spiffe(source, id.clone())?)
            }
            (Verification::WebPki { roots }, "https") => Some(tls::web_pki(roots.as_deref())?),
            (Verification::Loopback | Verification::Spiffe(_) | Verification::WebPki { .. }, _) => {
                return Err(fault());
            }
        };
        let authority: Authority = match &settings.host {
            Some(host) => host.parse().map_err(|_| SetupError::Host(host.clone()))?,
            None => url.authority().parse().map_err(|_| fault())?,
        };
        let dialer = Dialer {
            resolver: Resolver::new(host, url.port_or_known_default().ok_or_else(fault)?),
            timeout: settings.connect_timeout,
            loopback_only: tls.is_none(),
        };
        let idle = settings.pool_idle_timeout;
        let (scheme, way) = match tls {
            None => {
                let host = host_of(&authority).ok_or_else(fault)?;
                (Scheme::HTTP, Way::Plain { client: http1::Client::new(dialer, idle), host })
            }
            Some(config) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_| fault())?;
                let config = Arc::new(config);
                let (valid_until, used) = (Arc::default(), Arc::default());
                let connector = Connector { dialer, config, name, valid_until, used };
                let spiffe = matches!(settings.verification, Verification::Spiffe(_));
                let pool = ArcSwap::from_pointee(Pool::new(0, &connector, idle));
                let source = source.filter(|_| spiffe);
                (Scheme::HTTPS, Way::Secured(Secured { source, connector, idle, pool }))
            }
        };
        let target =
            url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target).build();
        let uri = uri.map_err(|_| fault())?;
        Ok(Arc::new(Self { settings, uri, way }))
    }

    /// Sends a permitted call, and waits for the head of the answer.
    ///
    /// `head` is the caller's, already freed of hop-by-hop headers, credentials and identity headers. Its
    /// method and headers are used; the target is that of the settings, or `at`, which this upstream has
    /// announced. `Host`, framing and `Accept-Encoding` are set here.
    ///
    /// Dropping the future drops the call: the connection is closed, or the stream reset. There is no time
    /// limit but that of connecting; the caller races this against its own timers.
    pub(super) async fn send(
        &self,
        at: Option<&Endpoint>,
        head: Parts,
        body: Bytes,
    ) -> Result<Answer, Error> {
        let mut head = head;
        frame(&mut head, body.len());
        let target = at.map_or(&self.uri, Endpoint::uri);
        match &self.way {
            Way::Plain { client, host } => {
                head.headers.insert(HOST, host.clone());
                Ok(client.send(target, &head, body).await?.map(Body::Plain))
            }
            Way::Secured(secured) => secured.send(target, head, body).await,
        }
    }

    /// Where it takes messages, as it announced on a stream of its own; `None` if it names another origin.
    pub(super) fn endpoint(&self, announced: &[u8]) -> Option<Endpoint> {
        Endpoint::resolve(announced, &self.settings.url, &self.uri)
    }

    /// The same place as `at`, which another server of the same upstream has, at this one.
    pub(super) fn own(&self, at: &Endpoint) -> Result<Endpoint, Error> {
        at.moved_to(&self.uri).map_err(|error| Error::Failed(Box::new(error)))
    }

    /// A place below the base of a web API or the HTTP+JSON binding, or with nothing below, the endpoint with another
    /// query.
    pub(super) fn beneath(&self, suffix: &str, query: Option<&str>) -> Option<Endpoint> {
        let rest = self.settings.agent.rest.as_ref().filter(|_| !suffix.is_empty());
        let base = rest.unwrap_or(&self.settings.url);
        Endpoint::beneath(base.path(), suffix, query, &self.uri)
    }
}

impl Secured {
    async fn send(&self, target: &Uri, head: Parts, body: Bytes) -> Result<Answer, Error> {
        let (client, place) = self.place()?;
        let mut request = http::Request::from_parts(head, Full::new(body));
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = target.clone();
        // hyper makes it, or `:authority`, from the URI.
        request.headers_mut().remove(HOST);
        let answer = client.request(request).await.map_err(|error| {
            let sent_nothing = error.is_connect();
            let source = Box::new(error);
            if sent_nothing { Error::Unreachable(source) } else { Error::Failed(source) }
        })?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::Failed("an upgrade that nobody asked for".into()));
        }
        Ok(answer.map(|incoming| Body::Secured(incoming, place)))
    }

    /// A place in the pool of this moment's epoch. Two calls that find the epoch over may both make a
    /// pool; the connections of the one that loses serve its own call and close.
    fn place(&self) -> Result<(Client, Place), Error> {
        let pool = self.pool.load();
        let resolver = &self.connector.dialer.resolver;
        resolver.refresh();
        let (generation, expired) = match &self.source {
            None => (pool.generation, false),
            Some(source) => {
                let now = Clock.unix().as_secs();
                let snapshot = source.snapshot();
                snapshot.usable(now).map_err(|_| Error::NoIdentity)?;
                (snapshot.generation(), pool.expired(now))
            }
        };
        if pool.generation == generation && !expired && !pool.stranded(resolver) {
            return Ok(pool.place());
        }
        let next = Pool::new(generation, &self.connector, self.idle);
        let place = next.place();
        self.pool.store(Arc::new(next));
        Ok(place)
    }
}

/// Says of which length the body is, and, unless the caller may say otherwise, that the answer's may not be encoded.
fn frame(head: &mut Parts, length: usize) {
    // RFC 9110 §8.6: an empty body is announced where the method gives a body a meaning.
    let framed = length > 0 || matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
    head.headers.remove(TRANSFER_ENCODING);
    if framed {
        head.headers.insert(CONTENT_LENGTH, length.into());
    } else {
        head.headers.remove(CONTENT_LENGTH);
    }
    let identity = HeaderValue::from_static("identity");
    head.headers.entry(ACCEPT_ENCODING).or_insert(identity);
}

/// `Host` for plain HTTP: without user and default port (RFC 9110 §7.2).
fn host_of(authority: &Authority) -> Option<HeaderValue> {
    let host = match authority.port_u16().filter(|port| *port != 80) {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    host.try_into().ok()
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Body {
    /// The next piece of the body; `None` at its end. Trailers are dropped. Cancel-safe.
    pub(super) async fn frame(&mut self) -> Option<Result<Bytes, Error>> {
        let incoming = match self {
            Self::Plain(body) => return body.frame().await,
            Self::Secured(incoming, _place) => incoming,
        };
        loop {
            match incoming.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(Error::Failed(Box::new(error)))),
            }
        }
    }
}

#[cfg(test)]
impl Upstream {
    /// Who knows the addresses.
    pub(super) fn resolver(&self) -> &Resolver {
        match &self.way {
            Way::Plain { .. } => panic!("an upstream with TLS"),
            Way::Secured(secured) => &secured.connector.dialer.resolver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_requests_name_their_host() {
        for (authority, host) in [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("[::1]:9000", "[::1]:9000"),
            ("localhost", "localhost"),
            ("localhost:80", "localhost"),
            ("files.internal:443", "files.internal:443"),
            ("user@files.internal", "files.internal"),
        ] {
            assert_eq!(host_of(&authority.parse().unwrap()).unwrap(), host);
        }
    }
}

//! What a web API answers: passed on as it comes, whatever its status, and read by nobody.
//!
//! What an answer leads to is the exception. A caller that follows it would go round the proxy, so a place below the
//! base of an API that a route of this listener leads to is told by that route, and a redirect to any other place is
//! refused. Where nobody has to follow, as with what was created, other places are left out.
//!
//! INVARIANT: no `Location` and no target of a `Link` passes that names another place than one of our routes.

use http::{HeaderMap, HeaderValue, StatusCode, header, response::Parts};
use pingora::protocols::http::ServerSession;
use url::Url;

use super::{
    Halt, Proxy, Read, Served,
    answer::{self, Passing},
    headers::{DECISION, DENIAL},
    patience::Shape,
};
use crate::{
    denial::Denial,
    exchange::Exchange,
    listener::Direction,
    protocol::{Call, Protocol, web},
    upstream::{
        Body,
        settings::{Http, Server},
    },
};

impl Proxy {
    /// Passes the answer of a web API on.
    pub(super) async fn web_answer(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &Read,
        (mut head, body): (Parts, Body),
    ) -> Result<(), Halt> {
        let Some(call) = &exchange.call else { return Err(Denial::NoRoute.into()) };
        let served = &read.served;
        if head.status.is_informational() {
            return Err(Denial::UpstreamUnreadable.into());
        }
        self.lead(served, call, &mut head)?;
        if served.upstream.settings().identity().is_none() {
            // Only another Lictor says why it refused.
            head.headers.remove(DENIAL);
            head.headers.remove(DECISION);
        }
        let passing = match answer::shape(&head.headers) {
            Shape::Document => Passing::Document(None),
            Shape::Events | Shape::Flow => Passing::Events,
        };
        let coming = self.coming(exchange, served, (head, body));
        self.pass(session, exchange, read, coming, passing).await
    }

    /// What a workload proves itself to a web API with: that is between the two of them. An inbound caller's
    /// credentials are for us, and so is a token that is exchanged for another one.
    pub(super) fn own_credentials(
        &self,
        served: &Served,
        headers: &HeaderMap,
    ) -> Option<HeaderValue> {
        let own = match (served.route.protocol, self.settings.direction) {
            (Protocol::Http, Direction::Outbound) => {
                served.upstream.on_behalf_of_nobody().is_some()
            }
            (Protocol::Http, Direction::Inbound) | (Protocol::Mcp | Protocol::A2a, _) => false,
        };
        // There is one at most; the decoder sees to that.
        headers.get(header::AUTHORIZATION).filter(|_| own).cloned()
    }

    /// Makes places that an answer leads to those of our routes.
    fn lead(&self, served: &Served, call: &Call, head: &mut Parts) -> Result<(), Denial> {
        let mut values = head.headers.get_all(header::LOCATION).iter();
        let (first, second) = (values.next(), values.next());
        let followed = head.status.is_redirection() && head.status != StatusCode::NOT_MODIFIED;
        let led = first
            .filter(|_| second.is_none())
            .and_then(|value| self.led(served, call, value.to_str().ok()?))
            .and_then(|place| HeaderValue::try_from(place).ok());
        match (first.is_some(), led) {
            (_, Some(place)) => drop(head.headers.insert(header::LOCATION, place)),
            (true, None) if followed => {
                tracing::warn!(upstream = &*served.server, "it redirects to where no route leads");
                return Err(Denial::Redirect);
            }
            (true, None) => drop(head.headers.remove(header::LOCATION)),
            (false, None) => {}
        }
        let links = head.headers.get_all(header::LINK).iter();
        let links = links.filter_map(|value| links_of(value.to_str().ok()?)).flatten();
        let links: Vec<_> = links
            .filter_map(|(target, rest)| {
                let link = format!("<{}>{rest}", self.led(served, call, target)?);
                HeaderValue::try_from(link).ok()
            })
            .collect();
        head.headers.remove(header::LINK);
        for link in links {
            head.headers.append(header::LINK, link);
        }
        Ok(())
    }

    /// The place of ours that leads to where a reference in the answer to a call leads.
    fn led(&self, served: &Served, call: &Call, reference: &str) -> Option<String> {
        // Some readers take a backslash for a slash.
        let plain = reference.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let place = asked(served, call)?.join(reference).ok().filter(|_| plain)?;
        if !place.username().is_empty() || place.password().is_some() {
            return None;
        }
        let inside = self.inside.load();
        let others = inside.webs().filter_map(|other| Some((other, below(other, &place)?)));
        let (route, below) = match below(served, &place) {
            Some(below) => (&served.route, below),
            None => {
                let (other, below) = others.min_by_key(|(_, below)| below.len())?;
                (&other.route, below)
            }
        };
        let rest = web::target(below, place.query(), |name| route.repeats(name)).ok()?;
        let public = self.settings.url_of(&route.path);
        let base = public.as_ref().map_or(route.path.as_str(), Url::path).trim_end_matches('/');
        let mut ours = format!("{base}{}", rest.path);
        if ours.is_empty() {
            ours.push('/');
        }
        for (mark, text) in [('?', rest.query.as_deref()), ('#', place.fragment())] {
            if let Some(text) = text {
                ours.push(mark);
                ours.push_str(text);
            }
        }
        Some(ours)
    }
}

/// Where a call went.
fn asked(served: &Served, call: &Call) -> Option<Url> {
    let Server::Http(http) = &served.upstream.settings().server else { return None };
    let mut url = http.url.clone();
    let rest = call.rest()?;
    url.set_path(&format!("{}{}", url.path().trim_end_matches('/'), rest.path));
    url.set_query(rest.query.as_deref());
    Some(url)
}

/// What of a place lies below the base of the API that a route leads to.
fn below<'a>(served: &Served, place: &'a Url) -> Option<&'a str> {
    let Server::Http(http) = &served.upstream.settings().server else { return None };
    addresses(http).find_map(|base| {
        let below = place.path().strip_prefix(base.path().trim_end_matches('/'))?;
        let within = below.is_empty() || below.starts_with('/');
        (within && place.origin() == base.origin()).then_some(below)
    })
}

/// What the API calls itself: its URLs, by the name that it hears in `Host`.
fn addresses(http: &Http) -> impl Iterator<Item = Url> {
    let named = |url: &Url| {
        let host = http.host.as_deref()?;
        Url::parse(&format!("{}://{host}{}", url.scheme(), url.path())).ok()
    };
    http.urls().flat_map(move |url| [Some(url.clone()), named(url)]).flatten()
}

/// The elements of a `Link` (RFC 8288 §3): the target, and what follows it.
fn links_of(value: &str) -> Option<Vec<(&str, &str)>> {
    let mut all = Vec::new();
    let mut rest = value.trim();
    while !rest.is_empty() {
        let (target, after) = rest.strip_prefix('<')?.split_once('>')?;
        let mut quoted = false;
        let end = after.find(|character: char| {
            quoted ^= character == '"';
            character == ',' && !quoted
        });
        let (parameters, more) = match end {
            Some(end) => after.split_at_checked(end)?,
            None => (after, ""),
        };
        all.push((target, parameters.trim_end()));
        rest = more.trim_start_matches(',').trim_start();
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_taken_apart() {
        for (value, expected) in [
            ("", Some(&[][..])),
            ("</a>", Some(&[("/a", "")])),
            (
                r#"<https://a.example/b?c=1,2>; rel="next", </d>; title="x, <y>"; rel=last"#,
                Some(&[
                    ("https://a.example/b?c=1,2", r#"; rel="next""#),
                    ("/d", r#"; title="x, <y>"; rel=last"#),
                ]),
            ),
            ("/a", None),
            ("</a", None),
            ("</a>, b", None),
        ] {
            assert_eq!(links_of(value).as_deref(), expected, "{value}");
        }
    }
}

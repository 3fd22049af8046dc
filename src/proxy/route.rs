//! Which route a request takes, and what of its path is the protocol's own.
//!
//! An MCP endpoint is one path. An A2A agent is all that lies below one, since its REST binding names operations
//! and tasks in the path, and so is a web API; what lies there is read by [`crate::protocol::a2a`] and
//! [`crate::protocol::web`]. The card that callers look for at the root of a host is read as if it were asked for
//! below the route that answers for it.

use std::{borrow::Cow, sync::Arc};

use super::{Served, origin::Doorplate};
use crate::{denial::Denial, listener, protocol::Protocol};

/// Where callers look for a card that know only the host: since A2A 0.3, and before.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The target of a request: nothing in it is decoded yet.
#[derive(Debug)]
pub(super) struct Target {
    path: String,
    query: Option<String>,
}

/// What is behind a listener, and by which names it is reached, as of one moment.
#[derive(Debug)]
pub struct Inside {
    /// The names.
    pub(super) doorplate: Doorplate,
    routes: Vec<Arc<Served>>,
}

/// The route that a request takes.
#[derive(Debug)]
pub(super) struct Way {
    /// The route, which stays what it is for this request when others come into force.
    pub(super) served: Arc<Served>,
    /// The path as it came.
    pub(super) path: String,
    /// What of it lies below the route: empty, or with its leading slash.
    pub(super) below: String,
    /// The query, without its question mark.
    pub(super) query: Option<String>,
}

impl Target {
    /// A target of visible ASCII that begins with a slash.
    pub(super) fn parse(target: &str) -> Result<Self, Denial> {
        let visible = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        if !target.starts_with('/') || !visible {
            return Err(Denial::Framing("the path is not in plain form"));
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        Ok(Self { path: path.to_owned(), query })
    }

    /// Whether nobody behind us could read the path as another: it is made of plain segments, one trailing
    /// slash at most, and there is no query.
    fn check_plain(&self) -> Result<(), Denial> {
        if self.query.as_ref().is_some_and(|query| !query.is_empty()) {
            return Err(Denial::Framing("queries are not served; configure them on the upstream"));
        }
        let path = &self.path;
        let bare = bare(path);
        let segments_are_plain =
            bare.split('/').skip(1).all(|segment| !matches!(segment, "" | "." | ".."));
        let bytes_are_plain = path.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~')
        });
        if !segments_are_plain || !bytes_are_plain {
            return Err(Denial::Framing("the path is not in plain form"));
        }
        Ok(())
    }
}

impl Inside {
    /// The inside of a listener with these settings and routes, no two of which have the same path.
    pub fn new(settings: &listener::Settings, routes: Vec<Served>) -> Self {
        let routes = routes.into_iter().map(Arc::new).collect();
        Self { doorplate: Doorplate::new(settings), routes }
    }

    /// The route of this path, as it is written in the configuration.
    pub(super) fn at(&self, path: &str) -> Option<Arc<Served>> {
        self.routes.iter().find(|served| served.route.path == path).map(Arc::clone)
    }

    /// The routes of plain HTTP.
    pub(super) fn webs(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.routes.iter().filter(|served| served.route.protocol == Protocol::Http)
    }

    /// `/mcp` and `/mcp/` are the same path, so that no redirect is needed. A path that is a route's wins over
    /// one that lies below a route, and of those the longest. Below a route to an upstream with the HTTP+SSE
    /// transport are the places to post to.
    pub(super) fn find(&self, target: &Target) -> Result<Way, Denial> {
        if let Some((served, below)) = self.above(&target.path) {
            let (served, below) = (Arc::clone(served), below.into_owned());
            let query = target.query.clone();
            return Ok(Way { served, path: target.path.clone(), below, query });
        }
        target.check_plain()?;
        let wanted = bare(&target.path);
        let served = self
            .routes
            .iter()
            .find(|served| bare(&served.route.path) == wanted)
            .or_else(|| self.routes.iter().find(|served| served.token(wanted).is_some()))
            .ok_or(Denial::NoRoute)?;
        let served = Arc::clone(served);
        let (path, below, query) = (target.path.clone(), String::new(), None);
        Ok(Way { served, path, below, query })
    }

    /// The route of plain HTTP or A2A that a path lies in, unless it is another route's own.
    fn above<'a>(&self, path: &'a str) -> Option<(&Arc<Served>, Cow<'a, str>)> {
        if self.routes.iter().any(|served| {
            served.route.protocol == Protocol::Mcp && bare(&served.route.path) == bare(path)
        }) {
            return None;
        }
        let wide = self.routes.iter().filter(|served| served.route.protocol != Protocol::Mcp);
        let within = wide.filter_map(|served| {
            let below = path.strip_prefix(bare(&served.route.path))?;
            (below.is_empty() || below.starts_with('/')).then_some((served, below))
        });
        let within = within.min_by_key(|(_, below)| below.len());
        let rooted = self.routes.iter().find(|served| served.route.at_root);
        match (within, rooted) {
            (Some((served, below)), _) => {
                let own = below == "/" && served.route.protocol == Protocol::A2a;
                Some((served, if own { "" } else { below }.into()))
            }
            (None, Some(served)) if CARDS.contains(&path) => Some((served, path.into())),
            (None, _) => None,
        }
    }
}

/// A path without the slash at its end.
fn bare(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

//! Listeners and their routes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    num::NonZeroU32,
};

use super::{Reader, names, shape};
use crate::{
    config::{Listener, fault::Place},
    delegation,
    listener::{self, Direction},
    protocol::Protocol,
    proxy::settings::{Refusals, Route},
    written::nearest,
};

impl Reader<'_> {
    pub(super) fn listeners(&mut self, all: Vec<shape::Listener>, place: &Place) -> Vec<Listener> {
        let mut names = BTreeSet::new();
        let mut listeners = Vec::new();
        for (index, it) in all.into_iter().enumerate() {
            let place = place.index(index);
            self.unique(it.name.as_ref().map(|name| &name.0), &mut names, &place);
            listeners.extend(self.listener(it, &place));
        }
        listeners
    }

    fn listener(&mut self, it: shape::Listener, place: &Place) -> Option<Listener> {
        let direction = match it.direction {
            shape::Direction::Inbound => Direction::Inbound,
            shape::Direction::Outbound => Direction::Outbound,
        };
        let name = self.required(it.name, &place.key("name"));
        let bind = self.required(it.bind, &place.key("bind"));
        let bind = bind.and_then(|text| self.bind(&text, &place.key("bind")));
        let tls = self.required(it.tls, &place.key("tls"));
        let door =
            tls.and_then(|tls| self.door((tls, direction), it.identity.as_deref(), bind, place));
        let at = place.key("publicUrl");
        let public_url = match it.public_url {
            None => Some(None),
            Some(text) => self.public_url(&text, &at).map(Some),
        };
        let hosts = self.each(&it.hosts, &place.key("hosts"), names::host, "mcp.example.org:8443");
        let at = place.key("origins");
        let origins = self.each(&it.origins, &at, names::origin, "https://app.example.org");
        let at = place.key("timeouts");
        let head = self.span(it.timeouts.head.as_ref(), 10, &at.key("head"));
        let body = self.span(it.timeouts.body.as_ref(), 30, &at.key("body"));
        let stall = self.span(it.timeouts.stall.as_ref(), 30, &at.key("stall"));
        let idle = self.span(it.timeouts.idle.as_ref(), 75, &at.key("idle"));
        let keep_alive = self.span(it.timeouts.keep_alive.as_ref(), 15, &at.key("keepAlive"));
        let routes = self.required(it.routes, &place.key("routes"));
        let routes = routes.map(|all| self.routes(all, direction, &place.key("routes")));
        let settings = listener::Settings {
            name: name?.0,
            direction,
            bind: bind?,
            door: door?,
            public_url: public_url?,
            hosts,
            origins,
            max_connections: it.max_connections.unwrap_or(10_000),
            shield: shield(&it.shield),
            head_timeout: head?,
            body_timeout: body?,
            stall_timeout: stall?,
            idle_timeout: idle?,
            keep_alive: keep_alive?,
        };
        Some(Listener { settings, routes: routes? })
    }

    fn door(
        &mut self,
        (tls, direction): (shape::Tls, Direction),
        caller: Option<&str>,
        bind: Option<SocketAddr>,
        place: &Place,
    ) -> Option<listener::Door> {
        let at = place.key("identity");
        match (tls, caller) {
            (shape::Tls::Mutual, _) if direction == Direction::Outbound => {
                let problem = "calls of the workload beside come in over loopback";
                self.faults.push_with(&place.key("tls"), problem, "say `tls: none`");
                None
            }
            (shape::Tls::Mutual, caller) => {
                self.needs_identity("mutual TLS", &place.key("tls"));
                if caller.is_some() {
                    let problem = "with mutual TLS, callers prove their identity";
                    self.faults.push_with(&at, problem, "leave the key out");
                }
                Some(listener::Door::MutualTls)
            }
            (shape::Tls::None, caller) => {
                if bind.is_some_and(|address| !address.ip().is_loopback()) {
                    let problem = "a listener without TLS has to bind a loopback address";
                    self.faults.push_with(
                        &place.key("bind"),
                        problem,
                        "such as `127.0.0.1:8080`, or say `tls: mutual`",
                    );
                }
                let Some(caller) = caller else {
                    if direction == Direction::Outbound {
                        self.needs_identity("an outbound listener without `identity`", &at);
                        return Some(listener::Door::Workload);
                    }
                    let hint = "the SPIFFE ID of every caller of a listener with `tls: none`";
                    self.faults.push_with(&at, "is missing", hint);
                    return None;
                };
                self.spiffe_id(caller, &at).map(listener::Door::PlainLoopback)
            }
        }
    }

    fn routes(
        &mut self,
        all: Vec<shape::Route>,
        direction: Direction,
        place: &Place,
    ) -> Vec<Route> {
        let mut paths: BTreeMap<String, usize> = BTreeMap::new();
        let mut routes: Vec<Route> = Vec::new();
        let mut asked = Vec::new();
        for (index, it) in all.into_iter().enumerate() {
            let place = place.index(index);
            if let Some(path) = &it.path {
                let first = *paths.entry(path.to_ascii_lowercase()).or_insert(index);
                if first != index {
                    let problem = format!("`{path}` is the path of routes[{first}] already");
                    let hint = "paths that differ in case only count as the same";
                    self.faults.push_with(&place.key("path"), problem, hint);
                }
            }
            let at_root = it.card_at_root;
            if let Some(route) = self.route(it, direction, &place) {
                asked.push((at_root, place));
                routes.push(route);
            }
        }
        self.card_at_root(&mut routes, &asked);
        routes
    }

    fn route(&mut self, it: shape::Route, direction: Direction, place: &Place) -> Option<Route> {
        let path = self.required(it.path, &place.key("path"));
        let path = path.and_then(|path| {
            self.check(names::check_path(&path), &place.key("path"))?;
            Some(path)
        });
        let protocol = self.required(it.protocol, &place.key("protocol"));
        let upstream = self.required(it.upstream, &place.key("upstream"));
        if let Some(name) = upstream.as_deref().filter(|name| !self.upstreams.contains(*name)) {
            let at = place.key("upstream");
            let problem = format!("no upstream is named `{name}`");
            match nearest(name, self.upstreams.iter().map(String::as_str)) {
                Some(hint) => self.faults.push_with(&at, problem, hint),
                None => self.faults.push(&at, problem),
            }
        }
        let shadow = match it.mode {
            shape::Mode::Enforce => false,
            shape::Mode::Shadow => true,
        };
        let refusals = match it.denials {
            shape::Denials::JsonRpc => Refusals::JsonRpc,
            shape::Denials::HttpStatus => Refusals::HttpStatus,
        };
        let protocol = match protocol? {
            shape::Protocol::Mcp => Protocol::Mcp,
            shape::Protocol::A2a => Protocol::A2a,
            shape::Protocol::Http => Protocol::Http,
        };
        if it.delegate.is_some() && direction == Direction::Inbound {
            let problem = "is for outbound listeners; inbound, chains say how far they reach";
            self.faults.push(&place.key("delegate"), problem);
        }
        let delegate = it.delegate.map(|mode| match mode {
            shape::DelegationMode::Full => delegation::Mode::Full,
            shape::DelegationMode::ReadWrite => delegation::Mode::ReadWrite,
            shape::DelegationMode::ReadOnly => delegation::Mode::ReadOnly,
        });
        if it.message_forms && protocol != Protocol::A2a {
            let problem = "is for routes with `protocol: a2a`; nobody else has such messages";
            self.faults.push(&place.key("messageForms"), problem);
        }
        let message_forms = it.message_forms;
        let headers = self.web_headers(&it.headers, protocol, place);
        let repeatable = self.repeatable(it.repeatable, protocol, place);
        if let Some(name) = upstream.as_deref().filter(|_| protocol == Protocol::Http) {
            self.only_web(name, &place.key("upstream"));
        }
        let (path, upstream) = (path?, upstream?);
        Some(Route {
            path,
            protocol,
            at_root: false,
            message_forms,
            headers,
            repeatable,
            delegate,
            upstream,
            shadow,
            refusals,
        })
    }

    /// Settles whose card is found at the root of a listener.
    fn card_at_root(&mut self, routes: &mut [Route], asked: &[(Option<bool>, Place)]) {
        let agents = routes.iter().filter(|route| route.protocol == Protocol::A2a).count();
        let mut rooted = false;
        for (route, (asked, place)) in routes.iter_mut().zip(asked) {
            let at = place.key("cardAtRoot");
            match (route.protocol, asked) {
                (Protocol::Mcp | Protocol::Http, Some(_)) => {
                    self.faults
                        .push(&at, "is for routes with `protocol: a2a`; only an agent has a card");
                }
                (Protocol::A2a, Some(true)) if rooted => {
                    self.faults.push(&at, "another route has its card at the root already");
                }
                (Protocol::A2a, asked) => route.at_root = asked.unwrap_or(agents == 1),
                (Protocol::Mcp | Protocol::Http, None) => {}
            }
            rooted |= route.at_root;
        }
    }
}

fn shield(it: &shape::Shield) -> listener::shield::Settings {
    const NEW_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
    listener::shield::Settings {
        connections: it.connections.unwrap_or(1000),
        new_per_second: it.new_per_second.unwrap_or(NEW_PER_SECOND),
        loopback: it.loopback,
    }
}

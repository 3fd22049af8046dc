//! Upstreams, and what policies are told of them.

use std::collections::{BTreeMap, BTreeSet};

use url::Url;

use super::{Reader, endpoints::Endpoints, names, shape};
use crate::{
    config::fault::Place,
    policy,
    protocol::Class,
    upstream::{self, settings::Server},
};

impl Reader<'_> {
    pub(super) fn upstreams(
        &mut self,
        all: Vec<shape::Upstream>,
        servers: &mut BTreeMap<String, policy::settings::Server>,
        place: &Place,
    ) -> Vec<upstream::Settings> {
        let mut names = BTreeSet::new();
        let mut upstreams = Vec::new();
        for (index, mut it) in all.into_iter().enumerate() {
            let place = place.index(index);
            self.unique(it.name.as_ref().map(|name| &name.0), &mut names, &place);
            if it.name.as_ref().is_some_and(|name| self.webs.contains(&name.0)) {
                self.web_api(&it, &place);
            }
            let mut server = server(std::mem::take(&mut it.tags), std::mem::take(&mut it.tools));
            server.agent = it.spiffe_id.clone();
            if let Some(upstream) = self.upstream(it, &place) {
                servers.insert(upstream.name.clone(), server);
                upstreams.push(upstream);
            }
        }
        upstreams
    }

    fn upstream(&mut self, mut it: shape::Upstream, place: &Place) -> Option<upstream::Settings> {
        // The one degree of trust there is.
        let shape::Trust::Trusted = it.trust;
        let name = self.required(it.name.take(), &place.key("name"));
        let timeouts = self.timeouts(&it.timeouts, &place.key("timeouts"));
        let breaker = self.breaker(&it.breaker, &place.key("breaker"));
        let bulkhead = self.bulkhead(&it.bulkhead, &place.key("bulkhead"));
        let token_exchange = match it.token_exchange.take() {
            None => Some(None),
            Some(exchange) => {
                let at = place.key("tokenExchange");
                self.only_for("a `url`", &[(it.command.is_some(), at.clone())]);
                self.token_exchange(exchange, &at).map(Some)
            }
        };
        let has_url = it.url.is_some() || it.urls.is_some();
        let server = match (has_url, it.command.take()) {
            (true, Some(_)) => {
                self.faults.push(place, "has both `url` and `command`; keep one");
                None
            }
            (false, Some(command)) => self.command(it, command, place).map(Server::Command),
            (true, None) => {
                let name = name.as_ref().map(|name| name.0.as_str());
                self.http(it, name, place).map(Server::Http)
            }
            (false, None) => {
                let hint = "such as `url: http://127.0.0.1:9000/mcp` or `command: [npx, -y, NAME]`";
                self.faults.push_with(place, "has neither `url` nor `command`", hint);
                None
            }
        };
        Some(upstream::Settings {
            name: name?.0,
            server: server?,
            token_exchange: token_exchange?,
            timeouts: timeouts?,
            breaker: breaker?,
            bulkhead: bulkhead?,
        })
    }

    fn http(
        &mut self,
        mut it: shape::Upstream,
        name: Option<&str>,
        place: &Place,
    ) -> Option<upstream::settings::Http> {
        let at = place.key("timeouts");
        self.only_for(
            "a `command`",
            &[
                (it.directory.is_some(), place.key("directory")),
                (it.env.is_some(), place.key("env")),
                (it.processes.is_some(), place.key("processes")),
                (it.max_processes.is_some(), place.key("maxProcesses")),
                (it.max_processes_per_caller.is_some(), place.key("maxProcessesPerCaller")),
                (it.timeouts.start.is_some(), at.key("start")),
                (it.timeouts.unused.is_some(), at.key("unused")),
            ],
        );
        let endpoints = self.endpoints(&mut it, place);
        let several = endpoints.as_ref().is_some_and(|endpoints| !endpoints.others.is_empty());
        let (url, others) = match endpoints {
            Some(Endpoints { url, others }) => (Some(url), others),
            None => (None, Vec::new()),
        };
        let health = self.health(it.health_check.take(), several, name, place);
        let agent = self.agent(&mut it, url.as_ref(), place);
        let transport = match it.transport {
            None | Some(shape::Transport::StreamableHttp) => upstream::Transport::StreamableHttp,
            Some(shape::Transport::Sse) => upstream::Transport::Sse,
        };
        let verification =
            url.as_ref().and_then(|url| self.verification(url, it.spiffe_id, it.roots, place));
        let host = it.host.and_then(|text| {
            let host = names::host(&text);
            if host.is_none() {
                let problem = format!("`{text}` is no host");
                self.faults.push_with(&place.key("host"), problem, "such as `files.example.org`");
            }
            host
        });
        let connect = self.span(it.timeouts.connect.as_ref(), 5, &at.key("connect"));
        // Node's HTTP server and uvicorn close after 5 s.
        let pool_idle = self.span(it.timeouts.pool_idle.as_ref(), 4, &at.key("poolIdle"));
        Some(upstream::settings::Http {
            url: url?,
            others,
            health: health?,
            transport,
            verification: verification?,
            host,
            connect_timeout: connect?,
            pool_idle_timeout: pool_idle?,
            agent: Box::new(agent?),
        })
    }

    /// INVARIANT: a URL that was refused is never echoed; it may hold a password.
    pub(super) fn url(&mut self, text: &str, place: &Place) -> Option<Url> {
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => {
                let hint = "such as `http://127.0.0.1:9000/mcp`";
                self.faults.push_with(place, format!("is no URL: {error}"), hint);
                return None;
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            self.faults.push(place, "has user information; credentials don't belong in a URL");
            return None;
        }
        let problem = match url.scheme() {
            "http" | "https" if url.fragment().is_some() => "has a fragment, which is never sent",
            "http" | "https" => return Some(url),
            _ => "has to start with `http://` or `https://`",
        };
        self.faults.push(place, problem);
        None
    }

    pub(super) fn verification(
        &mut self,
        url: &Url,
        spiffe_id: Option<String>,
        roots: Option<String>,
        place: &Place,
    ) -> Option<upstream::Verification> {
        let at = place.key("spiffeId");
        if spiffe_id.is_some() {
            self.needs_identity("an upstream with a SPIFFE ID", &at);
        }
        if url.scheme() == "http" {
            let problem = "needs `https`; nothing proves who answers plain HTTP";
            for (given, key) in [(spiffe_id.is_some(), "spiffeId"), (roots.is_some(), "roots")] {
                if given {
                    self.faults.push(&place.key(key), problem);
                }
            }
            if !names::is_loopback(url) {
                let problem = "plain HTTP is for loopback addresses only";
                let hint = "say `https://`, with `spiffeId` or `roots` where it has no public name";
                self.faults.push_with(&place.key("url"), problem, hint);
                return None;
            }
            return Some(upstream::Verification::Loopback);
        }
        match (spiffe_id, roots) {
            (Some(_), Some(_)) => {
                let problem = "has both `spiffeId` and `roots`; keep one";
                self.faults.push(place, problem);
                None
            }
            (Some(id), None) => self.spiffe_id(&id, &at).map(upstream::Verification::Spiffe),
            (None, Some(path)) => {
                let roots = self.file(Some(path), &place.key("roots"))?;
                Some(upstream::Verification::WebPki { roots: Some(roots) })
            }
            (None, None) => Some(upstream::Verification::WebPki { roots: None }),
        }
    }
}

fn server(tags: Vec<String>, tools: BTreeMap<String, shape::Tool>) -> policy::settings::Server {
    let tools = tools.into_iter().map(|(name, it)| {
        let class = match it.class {
            shape::ToolClass::Read => Class::Read,
            shape::ToolClass::Write => Class::Write,
            shape::ToolClass::Execute => Class::Execute,
        };
        (name, policy::settings::Tool { class, tags: it.tags })
    });
    policy::settings::Server { agent: None, tags, tools: tools.collect() }
}

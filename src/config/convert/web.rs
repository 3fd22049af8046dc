//! Routes of plain HTTP, and the web APIs that they lead to.

use http::HeaderName;

use super::{Reader, shape};
use crate::{config::fault::Place, protocol::Protocol, proxy::settings::may_be_named};

impl Reader<'_> {
    /// The headers that a route of plain HTTP lets pass.
    pub(super) fn web_headers(
        &mut self,
        given: &[String],
        protocol: Protocol,
        place: &Place,
    ) -> Vec<HeaderName> {
        let at = place.key("headers");
        self.for_webs(given, protocol, &at);
        let mut headers = Vec::new();
        for (index, text) in given.iter().enumerate() {
            match text.parse::<HeaderName>().ok().filter(may_be_named) {
                Some(name) => headers.push(name),
                None => {
                    let problem = format!("`{text}` is no header that can pass");
                    let hint = "such as `x-github-api-version`; some decide too much to be passed";
                    self.faults.push_with(&at.index(index), problem, hint);
                }
            }
        }
        headers
    }

    /// The parameters that are lists on a route of plain HTTP.
    pub(super) fn repeatable(
        &mut self,
        given: Vec<String>,
        protocol: Protocol,
        place: &Place,
    ) -> Vec<String> {
        let at = place.key("repeatable");
        self.for_webs(&given, protocol, &at);
        if given.iter().any(String::is_empty) {
            self.faults.push(&at, "has a name that is empty");
        }
        given
    }

    fn for_webs(&mut self, given: &[String], protocol: Protocol, place: &Place) {
        if !given.is_empty() && protocol != Protocol::Http {
            let problem = "is for routes with `protocol: http`; other protocols have their own";
            self.faults.push(place, problem);
        }
    }

    /// An upstream that speaks another protocol, too, could be told anything on a route that takes its messages for
    /// bodies of plain HTTP.
    pub(super) fn only_web(&mut self, upstream: &str, place: &Place) {
        if self.others.contains(upstream) {
            let problem = format!("another route speaks another protocol with `{upstream}`");
            let hint = "what is said in that protocol would pass here without being read";
            self.faults.push_with(place, problem, hint);
        }
    }

    /// Keys that say nothing of a web API.
    pub(super) fn web_api(&mut self, it: &shape::Upstream, place: &Place) {
        let problem = "is nothing that a web API has; the routes to it have `protocol: http`";
        for (given, key) in [
            (it.command.is_some(), "command"),
            (it.transport.is_some(), "transport"),
            (it.card.is_some(), "card"),
            (it.rest.is_some(), "rest"),
            (it.agent_card.is_some(), "agentCard"),
            (it.push_notifications.is_some(), "pushNotifications"),
            (!it.tools.is_empty(), "tools"),
        ] {
            if given {
                self.faults.push(&place.key(key), problem);
            }
        }
        let urls = it.url.iter().chain(it.urls.iter().flatten());
        if urls.into_iter().any(|url| url.contains('?')) {
            let key = if it.url.is_some() { "url" } else { "urls" };
            let problem = "is a base that paths are added to, and has a query";
            self.faults.push(&place.key(key), problem);
        }
    }
}

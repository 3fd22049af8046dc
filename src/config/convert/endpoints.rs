//! Where an upstream is, and how its endpoints are watched.

use std::time::Duration;

use url::Url;

use super::{Reader, names, shape};
use crate::{
    config::fault::Place,
    upstream::settings::{Asked, Health},
};

/// The URLs of an upstream.
pub(super) struct Endpoints {
    pub(super) url: Url,
    pub(super) others: Vec<Url>,
}

impl Reader<'_> {
    /// One of the two keys is there.
    pub(super) fn endpoints(
        &mut self,
        it: &mut shape::Upstream,
        place: &Place,
    ) -> Option<Endpoints> {
        let at = place.key("urls");
        let urls = match (it.url.take(), it.urls.take()) {
            (Some(_), Some(_)) => {
                self.faults.push(place, "has both `url` and `urls`; keep one");
                return None;
            }
            (Some(url), None) => {
                let url = self.url(&url, &place.key("url"))?;
                return Some(Endpoints { url, others: Vec::new() });
            }
            (None, urls) => urls?,
        };
        if urls.len() > 1 && matches!(it.transport, Some(shape::Transport::Sse)) {
            let problem = "a client's messages have to go where its event stream is";
            self.faults.push_with(&at, problem, "say `url`; with `transport: sse` it is only one");
            return None;
        }
        let mut all: Vec<Url> = Vec::new();
        let mut is_whole = true;
        for (index, text) in urls.iter().enumerate() {
            let at = at.index(index);
            let url = self.url(text, &at).and_then(|url| self.member(url, &all, &at));
            is_whole &= url.is_some();
            all.extend(url);
        }
        let mut all = all.into_iter();
        let endpoints = Endpoints { url: all.next()?, others: all.collect() };
        is_whole.then_some(endpoints)
    }

    /// One of several endpoints, `others` being those before it.
    fn member(&mut self, url: Url, others: &[Url], place: &Place) -> Option<Url> {
        if url.scheme() == "http" && !names::is_loopback(&url) {
            let problem = "plain HTTP is for loopback addresses only";
            let hint = "say `https://`, with `spiffeId` or `roots` where it has no public name";
            self.faults.push_with(place, problem, hint);
            return None;
        }
        let same = |first: &Url| {
            (first.scheme(), first.path(), first.query()) == (url.scheme(), url.path(), url.query())
        };
        if others.first().is_some_and(|first| !same(first)) {
            let problem = "differs from the first one in more than host and port";
            self.faults.push_with(place, problem, "all endpoints of an upstream serve the same");
            return None;
        }
        if others.contains(&url) {
            self.faults.push(place, "is there twice");
            return None;
        }
        Some(url)
    }

    /// `Some(None)` if nobody is asked.
    pub(super) fn health(
        &mut self,
        it: Option<shape::HealthCheck>,
        several: bool,
        name: Option<&str>,
        place: &Place,
    ) -> Option<Option<Health>> {
        let enabled = it.as_ref().map_or(several, |it| it.enabled.unwrap_or(true));
        let it = it.unwrap_or_default();
        let place = place.key("healthCheck");
        let interval = self.span(it.interval.as_ref(), 10, &place.key("interval"));
        let at = place.key("timeout");
        let timeout = self.span(it.timeout.as_ref(), 2, &at);
        let (interval, timeout) = (interval?, timeout?);
        if interval < Duration::from_millis(100) {
            self.faults.push(&place.key("interval"), "has to be at least 100ms");
        }
        if timeout > interval {
            self.faults.push(&at, "has to be at most as long as `interval`");
        }
        let asked = match name {
            Some(name) if self.agents.contains(name) => Asked::Card,
            Some(name) if self.webs.contains(name) => Asked::Base,
            Some(_) | None => Asked::Discover,
        };
        Some(enabled.then_some(Health { interval, timeout, asked }))
    }
}

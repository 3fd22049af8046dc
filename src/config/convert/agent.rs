//! A2A agents.

use url::Url;

use super::{Reader, names, shape};
use crate::{
    config::fault::Place,
    upstream::{
        PushTargets,
        settings::{Agent, Signing},
    },
};

impl Reader<'_> {
    /// `url` is the upstream's own, if that has no fault.
    pub(super) fn agent(
        &mut self,
        it: &mut shape::Upstream,
        url: Option<&Url>,
        place: &Place,
    ) -> Option<Agent> {
        let card = self.beside(it.card.take(), url, &place.key("card"));
        let at = place.key("rest");
        let rest = self.beside(it.rest.take(), url, &at);
        if rest.as_ref().is_some_and(|rest| rest.as_ref().is_some_and(|it| it.query().is_some())) {
            self.faults.push(&at, "is a base that paths are added to, and has a query");
        }
        let push = match it.push_notifications.take() {
            None => Some(PushTargets::default()),
            Some(push) => self.push(push, &place.key("pushNotifications")),
        };
        let place = place.key("agentCard");
        let shape::AgentCard { urls, keys, sign } = it.agent_card.take().unwrap_or_default();
        let at = place.key("urls");
        let urls = urls.iter().enumerate();
        let known_as = urls.filter_map(|(index, text)| self.url(text, &at.index(index))).collect();
        let keys = match keys {
            None => Some(None),
            given => self.file(given, &place.key("keys")).map(Some),
        };
        let signing = match sign {
            None => Some(None),
            Some(sign) => self.signing(sign, &place.key("sign")).map(Some),
        };
        Some(Agent {
            card: card?,
            rest: rest?,
            known_as,
            keys: keys?,
            signing: signing?,
            push: push?,
        })
    }

    /// A URL of the origin of `url`: the upstream's connections lead nowhere else.
    fn beside(
        &mut self,
        given: Option<String>,
        url: Option<&Url>,
        place: &Place,
    ) -> Option<Option<Url>> {
        let Some(given) = given else { return Some(None) };
        let given = self.url(&given, place)?;
        if url.is_some_and(|url| url.origin() != given.origin()) {
            let problem = "has to have scheme, host and port of the upstream's `url`";
            self.faults.push(place, problem);
            return None;
        }
        Some(Some(given))
    }

    fn signing(&mut self, it: shape::Sign, place: &Place) -> Option<Signing> {
        let key = self.file(it.key, &place.key("key"));
        let at = place.key("keyId");
        let key_id = self.required(it.key_id, &at);
        if key_id.as_deref().is_some_and(str::is_empty) {
            self.faults.push(&at, "is empty");
        }
        let at = place.key("keysUrl");
        let keys_url = match it.keys_url {
            None => Some(None),
            Some(text) => self.url(&text, &at).map(Some),
        };
        if keys_url
            .as_ref()
            .is_some_and(|url| url.as_ref().is_some_and(|it| it.scheme() != "https"))
        {
            self.faults.push(&at, "has to start with `https://`: whoever changes it signs cards");
        }
        Some(Signing { key: key?, key_id: key_id?, keys_url: keys_url? })
    }

    fn push(&mut self, it: shape::PushNotifications, place: &Place) -> Option<PushTargets> {
        let at = place.key("hosts");
        let hosts = self.required(it.hosts, &at)?;
        match PushTargets::new(&hosts, it.ports) {
            Ok(targets) => Some(targets),
            Err((index, error)) => {
                let text = hosts.get(index).map(String::as_str).unwrap_or_default();
                let hint = "such as `hooks.example.org` or `*.push.example.org`";
                self.faults.push_with(&at.index(index), format!("`{text}` is {error}"), hint);
                None
            }
        }
    }

    /// How callers reach a listener.
    pub(super) fn public_url(&mut self, text: &str, place: &Place) -> Option<Url> {
        let url = self.url(text, place)?;
        if url.scheme() == "http" && !names::is_loopback(&url) {
            let problem = "plain HTTP is for loopback addresses only";
            self.faults.push_with(place, problem, "such as `https://agents.example.org`");
            return None;
        }
        if url.query().is_some() {
            self.faults.push(place, "has a query; routes serve none");
            return None;
        }
        self.check(names::check_path(url.path()), place)?;
        Some(url)
    }
}

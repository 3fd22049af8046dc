//! Streams that only listen: whether they may go on, and what they are told of a reload.
//!
//! They may be open for days, so they follow what is in force, unlike calls, which end on what they began with: a
//! stream that would be refused now ends, and so does one whose route leads elsewhere now or in another manner,
//! so that its caller begins anew under what is in force. Where the change shows or hides something that the
//! server has listed, the caller is told that the list has changed, once a change (MCP 2025-11-25
//! `server/tools`, "List Changed Notification", and its likes): clients that keep a list ask again, others ignore
//! it. Who subscribed (MCP 2026-07-28 `subscriptions/listen`) is told only of what it asked for.

use std::sync::Arc;

use bytes::Bytes;

use super::{Proxy, Read, Served, refusal};
use crate::{
    delegation::Behalf,
    denial::Denial,
    governance::{Owned, Visibility, delegation},
    identity::Principal,
    policy::Policies,
    protocol::{Call, Era, Kind, json, method::ListOf},
};

/// The lists whose changes a caller wants to hear of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
}

impl Wanted {
    /// What a message asks for. Who opens a stream of a session, asks for whatever comes.
    pub(super) fn by(call: &Call) -> Self {
        if matches!(call.kind, Kind::Stream) {
            return Self { tools: true, prompts: true, resources: true };
        }
        if !listens(call) {
            return Self::default();
        }
        let Ok(message) = json::scan(&call.body, json::Limits::default()) else {
            return Self::default();
        };
        let wants = |key| {
            let asked = message.root().member("params")?.member("notifications")?.member(key)?;
            Some(asked.raw() == b"true")
        };
        let wants = |key| wants(key).unwrap_or_default();
        Self {
            tools: wants("toolsListChanged"),
            prompts: wants("promptsListChanged"),
            resources: wants("resourcesListChanged"),
        }
    }

    /// What is wanted, with the notification that tells of it.
    fn lists(self) -> impl Iterator<Item = (&'static str, &'static [ListOf])> {
        let all: [(bool, &str, &[ListOf]); 3] = [
            (self.tools, "notifications/tools/list_changed", &[ListOf::Tools]),
            (self.prompts, "notifications/prompts/list_changed", &[ListOf::Prompts]),
            (
                self.resources,
                "notifications/resources/list_changed",
                &[ListOf::Resources, ListOf::Templates],
            ),
        ];
        all.into_iter().filter_map(|(wanted, method, lists)| wanted.then_some((method, lists)))
    }
}

/// Streams that answer no call but only listen; they end as soon as the process is told to stop, and when
/// what is in force permits them no longer.
pub(super) fn listens(call: &Call) -> bool {
    matches!(call.kind, Kind::Stream) || call.method.name() == "subscriptions/listen"
}

/// How an answer stands at a look.
#[derive(Debug)]
pub(super) struct Standing {
    /// What its caller has to be told, as events.
    pub(super) tell: Bytes,
    /// Whether it may go on.
    pub(super) verdict: Result<(), Denial>,
}

impl From<Result<(), Denial>> for Standing {
    fn from(verdict: Result<(), Denial>) -> Self {
        Self { tell: Bytes::new(), verdict }
    }
}

/// One stream that only listens.
pub(super) struct Listening<'a> {
    proxy: &'a Proxy,
    call: &'a Call,
    principal: &'a Principal,
    behalf: &'a Behalf,
    owned: &'a Owned,
    wanted: Wanted,
    /// By what it was last judged.
    served: Arc<Served>,
    judged_by: Arc<str>,
    /// What its caller's lists were last cut down by.
    policies: Arc<Policies>,
    /// Whether its route is another by now.
    over: bool,
}

impl<'a> Listening<'a> {
    /// A stream that begins, and was judged by policies of a version.
    pub(super) fn new(
        proxy: &'a Proxy,
        (call, principal, behalf): (&'a Call, &'a Principal, &'a Behalf),
        read: &'a Read,
        judged_by: Arc<str>,
    ) -> Self {
        let policies = proxy.shared.policies.load_full();
        let (served, owned, wanted) = (Arc::clone(&read.served), &read.owned, read.wanted);
        let over = false;
        Self { proxy, call, principal, behalf, owned, wanted, served, judged_by, policies, over }
    }

    /// Follows what is in force. Once its route is another it says so at every look, and tells nothing any more.
    pub(super) fn look(&mut self) -> Standing {
        let policies = self.proxy.shared.policies.load_full();
        let Some(served) = self.proxy.inside.load().at(&self.served.route.path) else {
            return Err(Denial::RouteChanged).into();
        };
        let judged = **policies.version() == *self.judged_by && Arc::ptr_eq(&served, &self.served);
        if judged {
            return self.verdict().into();
        }
        let parties = (self.call, self.principal, self.behalf);
        let permitted = self.proxy.permits(parties, &served, self.owned, Arc::clone(&policies));
        if let Err(refusal) = permitted {
            return Err(refusal.denial).into();
        }
        let tell = if self.over { Bytes::new() } else { self.notices(&served, &policies) };
        self.over |= served.route != self.served.route
            || !Arc::ptr_eq(&served.upstream, &self.served.upstream);
        self.judged_by = Arc::clone(policies.version());
        (self.served, self.policies) = (served, policies);
        Standing { tell, verdict: self.verdict() }
    }

    fn verdict(&self) -> Result<(), Denial> {
        if self.over { Err(Denial::RouteChanged) } else { Ok(()) }
    }

    /// What the caller has to be told, once this route and these policies are in force.
    fn notices(&self, served: &Served, policies: &Arc<Policies>) -> Bytes {
        let (before, now) = (self.visibility(&self.policies), self.visibility(policies));
        let (all_before, all_now) = (self.served.route.shadow, served.route.shadow);
        let mut events = Vec::new();
        for (method, lists) in self.wanted.lists() {
            // In shadow mode nobody looks what is listed.
            let differs = all_before != all_now
                || lists.iter().any(|list| {
                    !all_now
                        && self.proxy.shared.listed.any(&served.server, *list, |name| {
                            before.shows(*list, name) != now.shows(*list, name)
                        })
                });
            if differs {
                events.extend_from_slice(&self.notice(method));
            }
        }
        events.into()
    }

    fn visibility<'b>(&'b self, policies: &Arc<Policies>) -> Visibility<'b> {
        Visibility {
            delegation: delegation::of_caller(self.behalf),
            policies: Arc::clone(policies),
            revocations: self.proxy.shared.revocations.current(),
            principal: self.principal,
            server: &self.served.server,
            listener: &self.proxy.name,
            era: self.call.era,
        }
    }

    fn notice(&self, method: &str) -> Bytes {
        let message = match (self.call.era, self.call.id()) {
            (Era::Modern, Some(id)) => format!(
                r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}}}}}"#,
                id.as_json()
            ),
            (Era::Modern | Era::Legacy | Era::V03 | Era::V10 | Era::Http, _) => {
                format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
            }
        };
        refusal::event(message.as_bytes())
    }
}

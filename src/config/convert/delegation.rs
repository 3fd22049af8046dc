//! Chains of delegation.

use std::{collections::BTreeSet, time::Duration};

use super::{Reader, names, shape};
use crate::{
    config::fault::Place,
    delegation::{Mode, Origin, Settings, Who},
};

impl Reader<'_> {
    pub(super) fn delegation(&mut self, it: shape::Delegation, place: &Place) -> Option<Settings> {
        self.needs_identity("a chain of delegation", place);
        let default = Settings::default();
        let at = place.key("mayOriginate");
        let origins = self.required(it.may_originate, &at)?;
        let origins = self.origins(origins, &at);
        let at = place.key("lifetime");
        let lifetime = match &it.lifetime {
            None => Some(default.lifetime),
            given => self.span(given.as_ref(), 0, &at),
        };
        if lifetime.is_some_and(|lifetime| lifetime < Duration::from_secs(1)) {
            self.faults.push(&at, "is at least a second");
        }
        let mut revisits = Vec::new();
        for (from, to, at) in self.pairs(it.allow_revisit, &place.key("allowRevisit")) {
            let ids = (self.spiffe_id(&from, &at.key("from")), self.spiffe_id(&to, &at.key("to")));
            if let (Some(from), Some(to)) = ids {
                revisits.push((from, to));
            }
        }
        let mut domains = Vec::new();
        for (from, to, at) in self.pairs(it.domains, &place.key("domains")) {
            for (name, at) in [(&from, at.key("from")), (&to, at.key("to"))] {
                if let Err(error) = names::check_trust_domain(name) {
                    self.faults.push(&at, format!("`{name}`: {error}"));
                }
            }
            domains.push((from.into(), to.into()));
        }
        let tenant = it.tenant.map(String::into_boxed_str);
        let fits = |tenant: &str| {
            (1..=64).contains(&tenant.len()) && tenant.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if tenant.as_deref().is_some_and(|tenant| !fits(tenant)) {
            self.faults.push(&place.key("tenant"), "is 1 to 64 visible ASCII characters");
        }
        Some(Settings {
            ambient: it.ambient == shape::Ambient::All,
            tenant,
            origins,
            max_depth: it.max_depth.unwrap_or(default.max_depth),
            lifetime: lifetime?,
            revisits,
            domains,
        })
    }

    fn origins(&mut self, given: Vec<shape::Origin>, place: &Place) -> Vec<Origin> {
        let mut seen = BTreeSet::new();
        let mut origins = Vec::new();
        for (index, it) in given.into_iter().enumerate() {
            let at = place.index(index);
            let (id, mode) =
                (self.required(it.id, &at.key("id")), self.required(it.mode, &at.key("mode")));
            let (Some(id), Some(mode)) = (id, mode) else { continue };
            let Some(who) = Who::parse(&id) else {
                let problem = format!("`{id}` names nobody");
                let hint = "a SPIFFE ID, or a prefix of IDs that ends in `/*`";
                self.faults.push_with(&at.key("id"), problem, hint);
                continue;
            };
            let mode = match mode {
                shape::DelegationMode::ReadOnly => Mode::ReadOnly,
                shape::DelegationMode::ReadWrite => Mode::ReadWrite,
                shape::DelegationMode::Full => Mode::Full,
            };
            if !seen.insert(id.clone()) {
                self.faults.push(&at.key("id"), format!("`{id}` is there twice"));
            }
            origins.push(Origin { who, mode });
        }
        origins
    }

    /// Both sides of each pair, with its place.
    fn pairs(&mut self, given: Vec<shape::Pair>, place: &Place) -> Vec<(String, String, Place)> {
        let mut pairs = Vec::new();
        for (index, it) in given.into_iter().enumerate() {
            let at = place.index(index);
            let (from, to) =
                (self.required(it.from, &at.key("from")), self.required(it.to, &at.key("to")));
            let (Some(from), Some(to)) = (from, to) else { continue };
            if from == to {
                self.faults.push(&at, "goes from somebody to itself");
            }
            pairs.push((from, to, at));
        }
        pairs
    }
}

//! Whom an entry speaks of: one agent, all agents below a path, a group of the configuration.

use super::{super::Settings, statement::entity};
use crate::{identity::SpiffeId, policy::vocabulary::types, written::nearest};

/// Some agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// One SPIFFE ID.
    Agent(String),
    /// Everything below: without the `/*`, so a trust domain or a path of whole segments.
    Below(String),
    /// The name of a group, and its members where the configuration is known.
    Group(String, Option<Vec<Who>>),
}

impl Who {
    /// A SPIFFE ID, or a prefix that ends in `/*`.
    pub(super) fn agents(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_suffix("/*") {
            // A trust domain alone is a fine prefix; a path makes it a workload's ID.
            Some(stem) => SpiffeId::parse(&format!("{stem}/x")).map(|_| Self::Below(stem.into())),
            None => SpiffeId::parse(text).map(|_| Self::Agent(text.into())),
        };
        parsed.map_err(|error| format!("`{text}` is no SPIFFE ID: {error}"))
    }

    /// The same, or the name of a group.
    pub(super) fn agents_or_group(text: &str, settings: &Settings) -> Result<Self, String> {
        if text.contains(':') {
            return Self::agents(text);
        }
        match settings.groups.get(text) {
            Some(members) => {
                // What is no SPIFFE ID is told as a fault of the group.
                let members = members.iter().filter_map(|member| Self::agents(member).ok());
                Ok(Self::Group(text.into(), Some(members.collect())))
            }
            None if super::is_configured(settings) => {
                let names = settings.groups.keys().map(String::as_str);
                let hint = nearest(text, names).map(|hint| format!("; {hint}"));
                Err(format!("there is no group `{text}`{}", hint.unwrap_or_default()))
            }
            None => Ok(Self::Group(text.into(), None)),
        }
    }

    /// Cedar: that a variable is one of these.
    pub(super) fn test(&self, variable: &str) -> String {
        match self {
            Self::Agent(id) => format!("{variable} == {}", entity(types::AGENT, id)),
            Self::Below(stem) => {
                let domain = stem.strip_prefix("spiffe://").filter(|rest| !rest.contains('/'));
                let above = match domain {
                    Some(domain) => entity(types::TRUST_DOMAIN, domain),
                    None => entity(types::PATH, stem),
                };
                format!("{variable} in {above}")
            }
            Self::Group(name, _) => format!("{variable} in {}", entity(types::GROUP, name)),
        }
    }

    /// Whether an agent is one of these; a group without known members holds nobody.
    pub(super) fn holds(&self, id: &str) -> bool {
        match self {
            Self::Agent(own) => own == id,
            Self::Below(stem) => is_below(id, stem),
            Self::Group(_, members) => members.iter().flatten().any(|member| member.holds(id)),
        }
    }

    /// Whether everybody in `other` is surely one of these.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Agent(id)) => self.holds(id),
            (Self::Below(own), Self::Below(stem)) => own == stem || is_below(stem, own),
            (Self::Group(own, _), Self::Group(name, _)) => own == name,
            (Self::Group(_, members), Self::Below(_)) => {
                members.iter().flatten().any(|member| member.covers(other))
            }
            (Self::Below(_), Self::Group(_, members)) => {
                let covered = |members: &Vec<_>| members.iter().all(|member| self.covers(member));
                members.as_ref().is_some_and(covered)
            }
            (Self::Agent(_), Self::Below(_) | Self::Group(..)) => false,
        }
    }

    /// Whether somebody may be in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Group(_, None), _) | (_, Self::Group(_, None)) => true,
            (Self::Group(_, Some(members)), other) | (other, Self::Group(_, Some(members))) => {
                members.iter().any(|member| member.meets(other))
            }
            (Self::Agent(_) | Self::Below(_), Self::Agent(_) | Self::Below(_)) => {
                self.covers(other) || other.covers(self)
            }
        }
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Agent(id) => f.write_str(id),
            Self::Below(stem) => write!(f, "{stem}/*"),
            Self::Group(name, _) => write!(f, "group {name}"),
        }
    }
}

fn is_below(id: &str, stem: &str) -> bool {
    id.strip_prefix(stem).is_some_and(|rest| rest.starts_with('/'))
}

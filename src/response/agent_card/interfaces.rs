//! The addresses on a card.

use std::{collections::HashSet, net::IpAddr};

use url::{Host, Url};

use super::{Draft, Error, Found, Settings, member, quoted, refuse_variants};
use crate::protocol::json::{Kind, Value};

const ADDITIONAL: &[&str] = &["additionalInterfaces", "additional_interfaces"];
const PREFERRED: &[&str] = &["preferredTransport", "preferred_transport"];
const SUPPORTED: &[&str] = &["supportedInterfaces", "supported_interfaces"];
const BINDING: &[&str] = &["protocolBinding", "protocol_binding"];

/// Names whose other spellings are refused in an interface.
const GOVERNED: &[&str] = &["url", "transport", "protocolBinding", "protocol_binding"];

/// What 0.3 takes an absent `preferredTransport` for (A2A 0.3.0 §5.6.1).
const DEFAULT_BINDING: &str = "JSONRPC";

/// Which sets of fields still name an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// Those of 0.2 and 0.3.
    pub(super) v0: bool,
    /// Those of 1.0.
    pub(super) v1: bool,
}

/// What becomes of an address.
enum Fate {
    /// It is Lictor's already.
    Stays,
    Moves,
    Goes,
}

/// Points every address at Lictor, or takes it out.
pub(super) fn point(draft: &mut Draft<'_>, settings: &Settings) -> Result<Shown, Error> {
    let places = Places { settings, public: quoted(&public_url(&settings.public_url)) };
    let root = draft.root;
    let v1 = match member(root, SUPPORTED)? {
        Some(list) => !places.list(draft, &list, BINDING)?.is_empty(),
        None => false,
    };
    let additional = match member(root, ADDITIONAL)? {
        Some(list) => places.list(draft, &list, &["transport"])?,
        None => Vec::new(),
    };
    let v0 = places.main(draft, &additional)?;
    if v0 || v1 { Ok(Shown { v0, v1 }) } else { Err(Error::NoInterface) }
}

struct Places<'a> {
    settings: &'a Settings,
    /// Lictor's address as JSON.
    public: String,
}

impl Places<'_> {
    /// Goes through a list of interfaces; the bindings of those that are left.
    fn list(
        &self,
        draft: &mut Draft<'_>,
        list: &Found<'_>,
        binding: &[&'static str],
    ) -> Result<Vec<String>, Error> {
        if list.value.kind() != Kind::Array {
            return Err(Error::Malformed(list.name));
        }
        let mut left = Vec::new();
        let mut seen = HashSet::new();
        let mut items = Vec::new();
        for interface in list.value.elements() {
            if interface.kind() != Kind::Object {
                return Err(Error::Malformed(list.name));
            }
            refuse_variants(interface, GOVERNED)?;
            let url = member(interface, &["url"])?;
            let binding = member(interface, binding)?.and_then(|found| found.value.as_str());
            let (fate, url) = match (&url, &binding) {
                (Some(url), Some(binding)) => (self.fate(url.value, binding), url.value),
                (None, _) | (_, None) => (Fate::Goes, interface),
            };
            // Two that differed in their address only are one now.
            let rest = apart_from(interface, url);
            let stays = match fate {
                Fate::Stays => true,
                Fate::Moves => !seen.contains(&rest),
                Fate::Goes => false,
            };
            items.push((interface.span(), stays));
            if !stays {
                continue;
            }
            if let Fate::Moves = fate {
                draft.replace(url, &self.public);
            }
            seen.insert(rest);
            left.extend(binding.map(std::borrow::Cow::into_owned));
        }
        if left.is_empty() && !items.is_empty() {
            draft.drop_member(list);
        } else {
            draft.edits.retain(items);
        }
        Ok(left)
    }

    /// The address of 0.2 and 0.3 at the root; `additional` are the bindings of those beside it.
    fn main(&self, draft: &mut Draft<'_>, additional: &[String]) -> Result<bool, Error> {
        let preferred = member(draft.root, PREFERRED)?;
        let Some(url) = member(draft.root, &["url"])? else {
            // Without an address it says nothing, and must not name what we don't carry.
            preferred.iter().for_each(|preferred| draft.drop_member(preferred));
            return Ok(!additional.is_empty());
        };
        let binding = match &preferred {
            None => DEFAULT_BINDING.into(),
            Some(named) => named.value.as_str().ok_or(Error::Malformed(named.name))?,
        };
        match (self.fate(url.value, &binding), additional.first()) {
            (Fate::Stays, _) => {}
            (Fate::Moves, _) => draft.replace(url.value, &self.public),
            (Fate::Goes, None) => {
                draft.drop_member(&url);
                preferred.iter().for_each(|preferred| draft.drop_member(preferred));
                return Ok(false);
            }
            (Fate::Goes, Some(other)) => {
                draft.replace(url.value, &self.public);
                draft.set_member(PREFERRED, &quoted(other));
            }
        }
        Ok(true)
    }

    fn fate(&self, url: Value<'_>, binding: &str) -> Fate {
        let own = match binding {
            "JSONRPC" => &self.settings.json_rpc,
            "HTTP+JSON" => &self.settings.rest,
            _ => return Fate::Goes,
        };
        let Some(url) = url.as_str().and_then(|text| Url::parse(&text).ok()) else {
            return Fate::Goes;
        };
        let public = &self.settings.public_url;
        if own.is_empty() {
            Fate::Goes
        } else if url == *public {
            Fate::Stays
        } else if own.iter().chain([public]).any(|own| is_same_place(own, &url)) {
            Fate::Moves
        } else {
            Fate::Goes
        }
    }
}

/// Lictor's address as it stands on cards: clients append paths to it, so a bare origin has no slash.
fn public_url(url: &Url) -> String {
    match url.path() {
        "/" => url.as_str().trim_end_matches('/').to_owned(),
        _ => url.as_str().to_owned(),
    }
}

/// Whether `said` is what the agent calls its own place `own`. Queries and user information don't matter:
/// they never reach the agent from a card.
fn is_same_place(own: &Url, said: &Url) -> bool {
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    own.scheme() == said.scheme()
        && own.port_or_known_default() == said.port_or_known_default()
        && path(own) == path(said)
        && (own.host() == said.host() || is_here(own, false) && is_here(said, true))
}

/// Whether it is this machine: agents beside us call it by any of its names, and also by the address that
/// they bind (`unspecified`).
fn is_here(url: &Url, unspecified: bool) -> bool {
    let is_ours = |ip: IpAddr| ip.is_loopback() || unspecified && ip.is_unspecified();
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => is_ours(ip.into()),
        Some(Host::Ipv6(ip)) => is_ours(ip.into()),
        None => false,
    }
}

/// An interface without its address.
fn apart_from(interface: Value<'_>, url: Value<'_>) -> Vec<u8> {
    let start = interface.span().start;
    let (from, to) = (url.span().start - start, url.span().end - start);
    let raw = interface.raw();
    let before = raw.get(..from).unwrap_or_default();
    [before, raw.get(to..).unwrap_or_default()].concat()
}

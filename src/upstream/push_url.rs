//! [`PushTargets`]: which addresses an agent may be told to send push notifications to.
//!
//! A caller chooses the address, and the agent calls it from inside: without a check, callers reach whatever the
//! agent reaches (metadata services, its own loopback, its neighbours). The agent resolves the name
//! again when it calls, so the list of hosts is what holds; looking addresses up finds names on the list
//! that lead inside, when they do so now.
//!
//! INVARIANT: what is admitted is read alike by every parser: plain ASCII, with the host and port written as
//! they are understood.
//!
//! Refuses: everything, unless hosts are listed.

mod address;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, io, net::IpAddr, time::Duration};

use tokio::{net::lookup_host, time::timeout};
use url::{Host, Url};

/// The port of `https`, which is always allowed.
const PORT: u16 = 443;

/// Longest URL in bytes.
const LONGEST: usize = 2048;

/// Most addresses that a name may have; with more, not all of them would be looked at.
const MOST_ADDRESSES: usize = 64;

/// How long a look-up may take.
const LOOK_UP: Duration = Duration::from_secs(2);

/// Where push notifications may go; nowhere by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushTargets {
    hosts: Vec<Pattern>,
    ports: BTreeSet<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(Host),
    /// With its dot in front.
    Below(String),
}

/// A list entry that is neither a host nor `*.` and a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no host, and no `*.` with a domain of two labels or more")]
pub struct BadPattern;

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.detail())]
pub enum PushRefused {
    /// No hosts are listed.
    NotAllowed,
    /// No URL, or one that two parsers may read differently.
    Form,
    /// A scheme that isn't `https`.
    Scheme,
    /// Credentials in front of the host.
    UserInformation,
    /// Neither 443 nor a listed port.
    Port,
    /// The host isn't listed.
    Host,
    /// An address that isn't public.
    Address,
    /// No answer in time, or none at all.
    Unresolved,
}

impl PushRefused {
    /// A sentence for the caller; it doesn't tell what a name resolves to.
    pub fn detail(self) -> &'static str {
        match self {
            Self::NotAllowed => "push notifications are not allowed",
            Self::Form => "the push notification URL has to be a plain `https` URL in ASCII",
            Self::Scheme => "the push notification URL has to start with `https://`",
            Self::UserInformation => "the push notification URL has user information",
            Self::Port => "the port of the push notification URL is not allowed",
            Self::Host | Self::Address => "the host of the push notification URL is not allowed",
            Self::Unresolved => "the host of the push notification URL can't be resolved now",
        }
    }
}

impl PushTargets {
    /// No address may be called.
    pub const NOWHERE: Self = Self { hosts: Vec::new(), ports: BTreeSet::new() };

    /// `hosts` are names, addresses, or `*.` with a domain below which every name is allowed; `ports` are
    /// those beside 443.
    ///
    /// # Errors
    /// The index of the first host that is none of these.
    pub fn new(
        hosts: &[String],
        ports: impl IntoIterator<Item = u16>,
    ) -> Result<Self, (usize, BadPattern)> {
        let read =
            |(index, text): (usize, &String)| Pattern::parse(text).map_err(|error| (index, error));
        let hosts = hosts.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { hosts, ports: ports.into_iter().collect() })
    }

    /// Whether an agent may be told this URL. `look_up` gives the addresses of a host and a port, such as
    /// [`look_up`]; it is asked only for names that are listed, and given two seconds.
    ///
    /// # Errors
    /// Whatever isn't certain is refused.
    pub async fn admit<F>(
        &self,
        url: &str,
        look_up: impl FnOnce(String, u16) -> F,
    ) -> Result<(), PushRefused>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>>,
    {
        let (host, port) = self.listed(url)?;
        let addresses = match host {
            Host::Ipv4(ip) => vec![ip.into()],
            Host::Ipv6(ip) => vec![ip.into()],
            Host::Domain(name) => match timeout(LOOK_UP, look_up(name, port)).await {
                Ok(Ok(addresses)) => addresses,
                Ok(Err(_)) | Err(_) => return Err(PushRefused::Unresolved),
            },
        };
        if addresses.is_empty() {
            return Err(PushRefused::Unresolved);
        }
        let few = addresses.len() <= MOST_ADDRESSES;
        if few && addresses.into_iter().all(address::is_public) {
            Ok(())
        } else {
            Err(PushRefused::Address)
        }
    }

    /// The host and port of a URL, if both are listed.
    fn listed(&self, text: &str) -> Result<(Host, u16), PushRefused> {
        if self.hosts.is_empty() {
            return Err(PushRefused::NotAllowed);
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        if !plain || text.len() > LONGEST {
            return Err(PushRefused::Form);
        }
        let url = Url::parse(text).map_err(|_| PushRefused::Form)?;
        if url.scheme() != "https" {
            return Err(PushRefused::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(PushRefused::UserInformation);
        }
        let host = url.host().ok_or(PushRefused::Form)?.to_owned();
        match host {
            Host::Ipv4(ip) if !address::is_public(ip.into()) => return Err(PushRefused::Address),
            Host::Ipv6(ip) if !address::is_public(ip.into()) => return Err(PushRefused::Address),
            Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_) => {}
        }
        if url.fragment().is_some() || !is_written_as_read(text, &url) {
            return Err(PushRefused::Form);
        }
        if !self.hosts.iter().any(|pattern| pattern.takes(&host)) {
            return Err(PushRefused::Host);
        }
        let port = url.port_or_known_default().ok_or(PushRefused::Form)?;
        if port != PORT && !self.ports.contains(&port) {
            return Err(PushRefused::Port);
        }
        Ok((host, port))
    }
}

/// Asks the system's resolver.
///
/// # Errors
/// Those of the system.
pub async fn look_up(host: String, port: u16) -> io::Result<Vec<IpAddr>> {
    Ok(lookup_host((host, port)).await?.map(|address| address.ip()).collect())
}

/// Whether the text spells the authority out that was read: integers and octal numbers for addresses, a
/// stray `@`, escapes in the host and a port in front of another are read in several ways.
fn is_written_as_read(text: &str, url: &Url) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let written = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Some(host) = url.host_str() else { return false };
    let spelled = [
        url.port().map(|port| format!("{host}:{port}")),
        Some(host.to_owned()).filter(|_| url.port().is_none()),
        Some(format!("{host}:{PORT}")).filter(|_| url.port().is_none()),
    ];
    scheme.eq_ignore_ascii_case(url.scheme())
        && spelled.into_iter().flatten().any(|spelled| spelled.eq_ignore_ascii_case(written))
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, BadPattern> {
        let (wild, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        match (Host::parse(name).map_err(|_| BadPattern)?, wild) {
            (Host::Domain(domain), _) if domain.is_empty() || domain.contains('*') => {
                Err(BadPattern)
            }
            (Host::Domain(domain), true) if domain.contains('.') && !domain.ends_with('.') => {
                Ok(Self::Below(format!(".{domain}")))
            }
            (Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_), true) => Err(BadPattern),
            (host, false) => Ok(Self::Exact(host)),
        }
    }

    fn takes(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(listed), host) => listed == host,
            (Self::Below(suffix), Host::Domain(name)) => {
                name.strip_suffix(suffix.as_str()).is_some_and(|below| !below.is_empty())
            }
            (Self::Below(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
        }
    }
}

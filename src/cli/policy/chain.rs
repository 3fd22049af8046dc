//! The chain of delegation that a case comes with, as whoever asks supposes it.
//!
//! Nobody has signed it, so it never becomes a [`crate::delegation::Chain`]: nothing can be forwarded by it. What
//! can be told of it without tokens is told by the functions that judge real ones.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    delegation::{
        Capabilities, ChainError, Mode, Settings, Step, check_steps, token::LONGEST_TEXT,
    },
    governance::delegation::Member,
    identity::{Principal, Proof, SpiffeId},
    policy::Delegation,
};

/// `delegation` of a case, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    /// The root's first.
    hops: Vec<Value>,
    user: Option<String>,
    tenant: Option<String>,
    /// Whether it is an agent's own call, and the chain that of its cause.
    #[serde(default)]
    outbound: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHop {
    id: String,
    mode: Option<String>,
    capabilities: Option<Vec<String>>,
}

/// A chain that nobody has shown.
#[derive(Debug)]
pub(super) struct Supposed {
    root: SpiffeId,
    /// Never empty.
    hops: Vec<Hop>,
    user: Option<String>,
    tenant: Option<String>,
    outbound: bool,
}

#[derive(Debug)]
struct Hop {
    principal: Principal,
    mode: Mode,
    capabilities: Capabilities,
}

/// The flags that tell of a chain.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Flags {
    /// A hop of the chain that the call comes by, the root's first, the caller's last: who made it, and its mode
    /// (`full` without one, `readwrite` or `readonly`).
    #[arg(long, value_name = "ID[=MODE]", conflicts_with = "decision")]
    pub(super) via: Vec<String>,
    /// What the hop of this number restricts calls to; the root's is 0.
    #[arg(long, value_name = "HOP=SERVER|METHOD|NAME", requires = "via")]
    capability: Vec<String>,
    /// For which user, as chains and the ledger name them.
    #[arg(long, requires = "via")]
    user: Option<String>,
    /// For which tenant.
    #[arg(long, requires = "via")]
    tenant: Option<String>,
    /// It is the principal's own call, on an outbound listener, and the chain that of the call behind it.
    #[arg(long, requires = "via")]
    outbound: bool,
}

impl Flags {
    /// The chain that they tell of; `None` without hops.
    pub(super) fn chain(&self) -> Result<Option<Supposed>, String> {
        if self.via.is_empty() {
            return Ok(None);
        }
        let mut hops: Vec<_> = self
            .via
            .iter()
            .map(|text| {
                let (id, mode) = match text.split_once('=') {
                    Some((id, mode)) => (id, Some(mode.to_owned())),
                    None => (text.as_str(), None),
                };
                WrittenHop { id: id.to_owned(), mode, capabilities: None }
            })
            .collect();
        for text in &self.capability {
            let (hop, capability) = text
                .split_once('=')
                .and_then(|(hop, rest)| Some((hops.get_mut(hop.parse::<usize>().ok()?)?, rest)))
                .ok_or_else(|| {
                    let hint = "the number of a hop, `=`, and `server|method|name`";
                    format!("--capability `{text}`: is of no hop (hint: {hint})")
                })?;
            hop.capabilities.get_or_insert_default().push(capability.to_owned());
        }
        let (user, tenant) = (self.user.clone(), self.tenant.clone());
        Supposed::new(hops, user, tenant, self.outbound, "").map(Some)
    }
}

impl Supposed {
    /// Reads `delegation` of a case.
    pub(super) fn read(value: Value) -> Result<Self, String> {
        let Written { hops, user, tenant, outbound } =
            Written::deserialize(value).map_err(|error| format!("delegation: {error}"))?;
        let hops: Result<Vec<_>, _> = (0..)
            .zip(hops)
            .map(|(at, hop)| {
                let told = |error| format!("delegation.hops[{at}]: {error}");
                WrittenHop::deserialize(hop).map_err(told)
            })
            .collect();
        Self::new(hops?, user, tenant, outbound, "delegation.")
    }

    fn new(
        written: Vec<WrittenHop>,
        user: Option<String>,
        tenant: Option<String>,
        outbound: bool,
        place: &str,
    ) -> Result<Self, String> {
        let mut hops = vec![];
        for (at, hop) in (0..).zip(written) {
            hops.push(hop.read().map_err(|fault| format!("{place}hops[{at}].{fault}"))?);
        }
        let root = hops.first().map(|hop| hop.principal.id.clone());
        let root = root.ok_or_else(|| {
            format!("{place}hops: names nobody (hint: the root's hop first, the caller's last)")
        })?;
        for (name, text) in [("user", &user), ("tenant", &tenant)] {
            if text.as_ref().is_some_and(|text| !(1..=LONGEST_TEXT).contains(&text.len())) {
                return Err(format!("{place}{name}: is 1 to {LONGEST_TEXT} bytes"));
            }
        }
        Ok(Self { root, hops, user, tenant, outbound })
    }

    /// Who calls: inbound whoever made the last hop, outbound the agent, which made none yet.
    pub(super) fn caller(&self, given: Option<SpiffeId>) -> Result<SpiffeId, String> {
        let last = self.hops.last().map_or(&self.root, |hop| &hop.principal.id);
        match given {
            None if self.outbound => {
                let hint = "the agent whose call it is; the hops end with who called it";
                Err(format!("principal: is missing (hint: {hint})"))
            }
            Some(given) if !self.outbound && given != *last => Err(format!(
                "principal: `{given}` didn't make the last hop, `{last}` did (hint: name the caller's hop \
                 last, or say `outbound` if it is the agent's own call)"
            )),
            Some(given) => Ok(given),
            None => Ok(last.clone()),
        }
    }

    /// Everybody in it.
    pub(super) fn members(&self) -> impl Iterator<Item = Member<'_>> {
        (0..).zip(&self.hops).map(|(at, hop)| Member {
            principal: &hop.principal,
            mode: hop.mode,
            capabilities: &hop.capabilities,
            place: Delegation {
                depth: self.hops.len(),
                hop: at,
                mode: hop.mode.as_str(),
                root: &self.root,
                user: self.user.as_deref(),
                tenant: self.tenant.as_deref(),
            },
        })
    }

    /// Whether a proxy would take it for a chain, as far as can be told of what nobody has signed.
    pub(super) fn check(
        &self,
        caller: &SpiffeId,
        settings: Option<&Settings>,
    ) -> Result<(), ChainError> {
        check_steps(self.steps(), self.outbound.then_some(caller), settings)
    }

    /// Whether the caller of an outbound call can add its own hop, to the one that it calls.
    pub(super) fn go_on(
        &self,
        caller: &SpiffeId,
        callee: &SpiffeId,
        settings: &Settings,
    ) -> Result<(), ChainError> {
        if !self.outbound {
            return Ok(());
        }
        // It is as wide as may be: what routes and grants make narrower is no reason to refuse.
        let mode = self.hops.last().map_or(Mode::Full, |hop| hop.mode);
        let own = Step { id: caller, mode, capabilities: &Capabilities::UNLIMITED };
        check_steps(self.steps().chain([own]), Some(callee), Some(settings))
    }

    fn steps(&self) -> impl Iterator<Item = Step<'_>> + Clone {
        self.hops.iter().map(|Hop { principal, mode, capabilities }| Step {
            id: &principal.id,
            mode: *mode,
            capabilities,
        })
    }
}

impl WrittenHop {
    fn read(self) -> Result<Hop, String> {
        let Self { id, mode, capabilities } = self;
        let id = SpiffeId::parse(&id).map_err(|error| format!("id: `{id}`: {error}"))?;
        let mode = match mode {
            None => Mode::Full,
            Some(mode) => Mode::parse(&mode).ok_or_else(|| {
                let names = Mode::ALL.map(Mode::as_str).join("`, `");
                format!("mode: `{mode}` is no mode (hint: one of `{names}`)")
            })?,
        };
        let capabilities = match capabilities {
            None => Capabilities::UNLIMITED,
            Some(texts) => Capabilities::parse(&texts).map_err(|error| {
                format!("capabilities: {error} (hint: leave it out for no further limit)")
            })?,
        };
        Ok(Hop { principal: Principal { id, proof: Proof::Configured }, mode, capabilities })
    }
}

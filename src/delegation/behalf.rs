//! [`Behalf`]: by whose authority a call is made.

use std::sync::Arc;

use super::{
    Capabilities, Chain, Hop, Mode,
    link::{Linked, Rung},
};
use crate::identity::SpiffeId;

/// By whose authority a call is made. An outbound call can come from several inbound ones, and is then made by
/// the authority of all of them at once.
#[derive(Clone, Debug, Default)]
pub struct Behalf {
    chains: Vec<Arc<Chain>>,
    own: Option<Mode>,
    rung: Option<Rung>,
}

/// The call is made under several chains, of which none says what all of them say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call may come from several callers, and one chain can't speak for all of them")]
pub struct Ambiguous;

impl Behalf {
    /// A caller that acts as itself, as far as it may.
    pub fn itself(mode: Mode) -> Self {
        Self { own: Some(mode), ..Self::default() }
    }

    /// A caller that shows this chain.
    pub fn of(chain: Chain) -> Self {
        Self { chains: vec![Arc::new(chain)], ..Self::default() }
    }

    /// A workload whose call has these causes.
    pub fn linked(linked: &Linked) -> Self {
        let causes = || linked.causes.iter().map(|cause| &cause.behalf);
        let chains = causes().flat_map(|cause| &cause.chains).map(Arc::clone).collect();
        let own = causes().filter_map(|cause| cause.own).min();
        Self { chains, own, rung: Some(linked.rung) }
    }

    /// Whether it is anybody's own call, who then has to be somebody that may begin a chain.
    pub fn is_own(&self) -> bool {
        self.chains.is_empty() || self.own.is_some()
    }

    /// The chains that it is made under; all of them have to permit it.
    pub fn chains(&self) -> &[Arc<Chain>] {
        &self.chains
    }

    /// How far callers that act as themselves let it reach.
    pub fn own(&self) -> Option<Mode> {
        self.own
    }

    /// How its cause was found, where it is a workload's.
    pub fn rung(&self) -> Option<Rung> {
        self.rung
    }

    /// When the first of its chains ends, Unix seconds; `None` without one.
    pub fn expires(&self) -> Option<u64> {
        self.chains.iter().map(|chain| chain.expires()).min()
    }

    /// The narrowest mode of all; `None` if nothing says one.
    pub fn mode(&self) -> Option<Mode> {
        let chains = self.chains.iter().filter_map(|chain| chain.hops().last());
        chains.map(Hop::mode).chain(self.own).min()
    }

    /// The chain that speaks for all of them: everybody in any of them is in it, and it is restricted to no more
    /// than each. `None` if there is none at all.
    ///
    /// # Errors
    /// If no chain does; to go on with one of them would forget the others.
    pub fn single(&self) -> Result<Option<&Chain>, Ambiguous> {
        match self.chains.as_slice() {
            [] => Ok(None),
            [chain] => Ok(Some(chain)),
            several => {
                let speaks = |chain: &&Arc<Chain>| several.iter().all(|other| covers(other, chain));
                several.iter().find(speaks).map(|chain| Some(&**chain)).ok_or(Ambiguous)
            }
        }
    }
}

/// Whether what `narrow` permits is permitted by `wide` too, whatever the modes.
fn covers(wide: &Chain, narrow: &Chain) -> bool {
    let is_in = |id: &SpiffeId| narrow.hops().any(|hop| hop.principal().id == *id);
    wide.hops().all(|hop| is_in(&hop.principal().id)) && limit(wide).covers(limit(narrow))
}

/// The narrowest restriction of a chain, which is the last that restricts at all.
fn limit(chain: &Chain) -> &Capabilities {
    const NONE: &Capabilities = &Capabilities::UNLIMITED;
    chain.hops().map(Hop::capabilities).filter(|limit| limit.limit()).last().unwrap_or(NONE)
}

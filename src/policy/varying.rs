//! The policies of a slice that look at arguments: what is left to do on every call.
//!
//! INVARIANT: of these policies, without their scopes, [`Varying::holding`] and Cedar's answer to
//! [`Varying::rest`] tell what Cedar's answer to [`Varying::all`] would.

use cedar_policy::{Effect, Policy, PolicySet, PolicySetError};

use super::{
    analysis::{InputPath, without_scope},
    condition::Condition,
    input::{Lifted, Wanted},
};

/// Policies that look at arguments and whose scopes are known to fit.
#[derive(Debug)]
pub(crate) struct Varying {
    pub(crate) all: PolicySet,
    /// Those whose conditions are of a form that needs no Cedar.
    plain: Vec<Plain>,
    /// What these conditions hang on besides the arguments.
    pub(crate) facts: Vec<PolicySet>,
    /// The others.
    pub(crate) rest: PolicySet,
    /// Where they look.
    pub(crate) wanted: Wanted,
    /// Whether one looks at more of the context than the arguments.
    pub(crate) past_input: bool,
}

#[derive(Debug)]
struct Plain {
    position: usize,
    effect: Effect,
    condition: Condition,
}

impl Varying {
    /// Takes policies apart, each with its position.
    pub(crate) fn new(
        policies: &[(usize, &Policy, &[InputPath])],
        past_input: bool,
    ) -> Result<Self, Box<PolicySetError>> {
        let mut all = PolicySet::new();
        let (mut plain, mut facts, mut rest) = (vec![], vec![], PolicySet::new());
        let mut wanted = Wanted::default();
        for &(position, policy, inputs) in policies {
            // Either form says the same here; the one without scope is cheaper.
            let unscoped = without_scope(policy).unwrap_or_else(|_| policy.clone());
            match Condition::of(policy, &mut facts) {
                Some(condition) => {
                    plain.push(Plain { position, effect: policy.effect(), condition });
                }
                None => rest.add(unscoped.clone())?,
            }
            all.add(unscoped)?;
            inputs.iter().for_each(|path| wanted.add(path));
        }
        Ok(Self { all, plain, facts, rest, wanted, past_input })
    }

    /// Which of those that need no Cedar hold; `None` where Cedar has to be asked about all.
    pub(crate) fn holding(
        &self,
        input: Option<&Lifted<'_>>,
        facts: &[Option<bool>],
    ) -> Option<Vec<(usize, Effect)>> {
        let mut holding = vec![];
        for Plain { position, effect, condition } in &self.plain {
            if condition.holds(input, facts)? {
                holding.push((*position, *effect));
            }
        }
        Some(holding)
    }
}

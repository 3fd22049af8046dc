//! The revocation stage: what was revoked is refused first, whatever the other stages would say.
//!
//! A call is held against the snapshot by whom it goes to and by everybody it comes from: the caller, and each
//! issuer, user, tenant, run and hop of every chain that it is made under, so that a chain ends with any of its
//! links. So it is by what it touches.
//!
//! INVARIANT: it is enforced on routes in shadow mode too. Those try out policies, and nobody tries out a brake.

use super::chain::{Facts, Findings, Request, Stage, Verdict};
use crate::{
    denial::Denial,
    identity::SpiffeId,
    policy::Policies,
    protocol::{Era, Target},
    revocation::{Revocations, What},
};

/// Refuses what was revoked.
#[derive(Debug)]
pub struct RevocationStage;

impl Stage for RevocationStage {
    fn name(&self) -> &'static str {
        "revocation"
    }

    fn is_enforced_in_shadow(&self) -> bool {
        true
    }

    fn judge(&self, request: &Request<'_>, facts: &Facts, _: &mut Findings) -> Verdict {
        match check(request, &facts.policies, &facts.revocations) {
            Ok(()) => Verdict::Continue,
            Err(denial) => Verdict::Deny(denial),
        }
    }
}

/// Whether nothing of a request is revoked. Asked again whenever that may have changed while it goes on; `policies`
/// say what a tenant is.
///
/// # Errors
/// The first that is.
pub fn check(
    request: &Request<'_>,
    policies: &Policies,
    revocations: &Revocations,
) -> Result<(), Denial> {
    if !revocations.is_known() {
        return Err(Denial::RevocationsUnknown);
    }
    if revocations.is_empty() {
        return Ok(());
    }
    let refuse =
        |what, found: Option<_>| found.map_or(Ok(()), |id| Err(Denial::Revoked { id, what }));
    let workload = |id: &SpiffeId| {
        refuse(What::Spiffe, revocations.workload(id.as_str()))?;
        let tenant = policies.tenant(id).and_then(|tenant| revocations.tenant(tenant));
        refuse(What::Tenant, tenant)
    };
    workload(&request.principal.id)?;
    request.callee.map_or(Ok(()), workload)?;
    for hop in request.behalf.chains().iter().flat_map(|chain| chain.hops()) {
        workload(&hop.principal().id)?;
        refuse(What::Tenant, hop.tenant().and_then(|tenant| revocations.tenant(tenant)))?;
        refuse(What::User, hop.user().and_then(|user| revocations.user(user)))?;
        let made = hop.call().and_then(|id| revocations.delegation(id));
        refuse(What::Delegation, made.or_else(|| revocations.delegation(hop.run())))?;
    }
    let session = request.call.session.as_ref().filter(|_| request.call.era == Era::Legacy);
    refuse(What::Session, session.and_then(|id| revocations.session(id.expose())))?;
    for target in &request.call.targets {
        if let Target::Tool(tool) = target {
            refuse(What::Tool, revocations.tool(request.server, tool))?;
        }
    }
    Ok(())
}

//! Why a call of the past was decided as it was: its ledger entries, and what the policies say of it now.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use crate::{
    delegation::Mode,
    identity::{Principal, Proof, SpiffeId},
    ledger::{self, Row},
    policy::{Delegation, Policies, Question, Recorded},
    protocol::{Era, Method, Protocol, Target, method::Governs, web::Traits},
};

/// Explains the decision of this id. 0: permitted, 1: denied, 2: there is no such decision, or its record
/// is about no policy.
pub(super) fn explain(
    policies: &Policies,
    ledger: &Path,
    decision_id: &str,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let rows = match ledger::find(ledger, decision_id) {
        Ok(rows) => rows,
        Err(error) => {
            writeln!(out, "the ledger in `{}`: {error}", ledger.display())?;
            return Ok(ExitCode::from(2));
        }
    };
    let Some(row) = rows.last() else {
        writeln!(out, "no decision `{decision_id}` in `{}`", ledger.display())?;
        return Ok(ExitCode::from(2));
    };
    let told = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    writeln!(out, "decision  {decision_id} of {}", row.ts)?;
    writeln!(out, "caller    {}", told(&row.peer))?;
    writeln!(out, "call      {} {}", told(&row.method), row.target.as_deref().unwrap_or_default())?;
    writeln!(out, "server    {}", told(&row.server))?;
    let delegated = Delegated::of(row);
    if let Some(hops) = row.hops {
        writeln!(out, "chain     of {hops} hops, begun by {}", told(&row.root))?;
        for (name, text) in [("user", &row.user), ("tenant", &row.tenant), ("link", &row.link)] {
            if let Some(text) = text {
                writeln!(out, "{name:<9} {text}")?;
            }
        }
    }
    writeln!(out, "ended     {} ({})", told(&row.status), told(&row.decision))?;
    if row.stage.as_deref() == Some("limits") {
        let limits = row.limits.join(", ");
        writeln!(out, "\nThe policies permitted it; it was over the limits: {limits}")?;
        return Ok(ExitCode::FAILURE);
    }
    if row.stage.as_deref() == Some("delegation") {
        return explain_objection(policies, row, delegated.as_ref(), out);
    }
    let asked_policies = row.stage.as_deref().is_none_or(|stage| stage == "policy");
    let Some(asked) = Asked::of(row, policies).filter(|_| asked_policies) else {
        let stage = row.stage.as_deref().unwrap_or("no stage");
        writeln!(out, "\nThe policies were not asked: it was ended by {stage}.")?;
        return Ok(ExitCode::from(2));
    };
    let permit = row.decision.as_deref() == Some("permit") && row.would_deny.is_none();
    let recorded = Recorded {
        version: row.policy_version.as_deref().unwrap_or_default(),
        permit,
        policies: &row.policies,
    };
    let place = delegated.as_ref().and_then(|it| it.place(it.hops.checked_sub(1)?));
    let question = asked.question(&asked.principal, place);
    let explanation = policies.explain_recorded(&question, &recorded);
    write!(out, "\n{explanation}")?;
    if row.hops.is_some() {
        tell_unrecorded(permit, out)?;
    }
    Ok(if permit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why somebody in the chain objected, or why there had to be one.
fn explain_objection(
    policies: &Policies,
    row: &Row,
    delegated: Option<&Delegated>,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let (Some(hop), Some(id)) = (row.hop, row.hop_peer.as_deref()) else {
        writeln!(
            out,
            "\nThe policies permitted it to the caller, the rules of delegation did not."
        )?;
        return Ok(ExitCode::FAILURE);
    };
    writeln!(out, "\nHop {hop} of its chain objected: {id}")?;
    let member = SpiffeId::parse(id).ok().map(|id| Principal { id, proof: Proof::Svid });
    let place = delegated.and_then(|it| it.place(hop));
    let (Some(asked), Some(member)) = (Asked::of(row, policies), member) else {
        return Ok(ExitCode::FAILURE);
    };
    let question = asked.question(&member, place);
    // What is on record beside it are the policies that permitted the call to whoever made it.
    let now = policies.decide(&question);
    let cited: Vec<String> = now.policies.iter().map(ToString::to_string).collect();
    let version = row.policy_version.as_deref().unwrap_or_default();
    let recorded = Recorded { version, permit: now.permit, policies: &cited };
    writeln!(out, "the policies of now, with it for principal:")?;
    write!(out, "{}", policies.explain_recorded(&question, &recorded))?;
    if now.permit {
        let which = "its mode, its capabilities, grants to it, or the policies of then";
        writeln!(out, "note: it objected by {which}; which of them is not recorded")?;
    }
    tell_unrecorded(false, out)?;
    Ok(ExitCode::FAILURE)
}

/// What nobody can tell from the record of a call with a chain.
fn tell_unrecorded(permit: bool, out: &mut dyn Write) -> io::Result<()> {
    let told = "modes and capabilities of hops are not recorded";
    writeln!(out, "note: {told}; where policies look at a mode, `full` is assumed")?;
    if permit {
        writeln!(out, "note: everybody in the chain was asked; these are the caller's policies")?;
    }
    Ok(())
}

/// What is on record of the chain that a call came by.
struct Delegated {
    hops: usize,
    root: SpiffeId,
    user: Option<String>,
    tenant: Option<String>,
}

impl Delegated {
    /// `None` without a chain, or where its root was too long to be kept.
    fn of(row: &Row) -> Option<Self> {
        Some(Self {
            hops: usize::try_from(row.hops?).ok()?,
            root: SpiffeId::parse(row.root.as_deref()?).ok()?,
            user: row.user.clone(),
            tenant: row.tenant.clone(),
        })
    }

    /// The place of a hop.
    fn place(&self, hop: impl TryInto<usize>) -> Option<Delegation<'_>> {
        Some(Delegation {
            depth: self.hops,
            hop: hop.try_into().ok()?,
            mode: Mode::Full.as_str(),
            root: &self.root,
            user: self.user.as_deref(),
            tenant: self.tenant.as_deref(),
        })
    }
}

/// A question read back from its record.
struct Asked<'a> {
    principal: Principal,
    server: &'a str,
    listener: &'a str,
    method: Method,
    target: Target,
    web: Option<Traits>,
    era: Era,
}

impl<'a> Asked<'a> {
    /// `None` where the record tells too little.
    fn of(row: &'a Row, policies: &Policies) -> Option<Self> {
        let id = SpiffeId::parse(row.peer.as_deref()?).ok()?;
        let era = Era::ALL.into_iter().find(|era| row.era.as_deref() == Some(era.as_str()));
        let era = era.unwrap_or(Era::Modern);
        let method = method(row.method.as_deref()?, era.protocol(), row.cause.is_some());
        let name = || row.target.as_deref().map(Into::into);
        let governs = match method.rule() {
            Some(rule) => rule.governs,
            None if policies.knows_asked(&method) => Governs::Caller,
            None => Governs::Server,
        };
        let target = match governs {
            Governs::Server | Governs::Subscriptions => None,
            Governs::Caller => Some(Target::Caller),
            Governs::Tool => name().map(Target::Tool),
            Governs::Prompt => name().map(Target::Prompt),
            Governs::Resource | Governs::Reference => name().map(Target::Resource),
            Governs::Task | Governs::Message => name().map(Target::Task),
        };
        Some(Self {
            principal: Principal { id, proof: Proof::Svid },
            server: row.server.as_deref()?,
            listener: row.listener.as_deref()?,
            method,
            target: target.unwrap_or(Target::Server),
            web: web(row).filter(|_| era.protocol() == Protocol::Http),
            era,
        })
    }

    fn question<'b>(
        &'b self,
        principal: &'b Principal,
        delegation: Option<Delegation<'b>>,
    ) -> Question<'b> {
        Question {
            principal,
            server: self.server,
            listener: self.listener,
            method: &self.method,
            target: &self.target,
            arguments: None,
            asks: None,
            a2a: None,
            web: self.web.as_ref(),
            era: self.era,
            delegation,
        }
    }
}

/// What of a request of plain HTTP is on record. A path that had to be escaped or cut isn't what was judged.
fn web(row: &Row) -> Option<Traits> {
    let path = row.target.as_deref().filter(|path| !path.contains('\\'))?;
    let depth = path.split('/').filter(|segment| !segment.is_empty()).count();
    Some(Traits { path: path.into(), depth, ..Traits::default() })
}

/// The method of a row, of the protocol and side that sent it.
fn method(name: &str, protocol: Protocol, asked: bool) -> Method {
    let method = match (protocol, asked) {
        (Protocol::A2a, _) => Method::of_agent(name),
        (Protocol::Http, _) => Method::of_web(name),
        (Protocol::Mcp, true) => Method::of_server(name),
        (Protocol::Mcp, false) => return Method::named(name),
    };
    if method.rule().is_some() { method } else { Method::named(name) }
}

#[cfg(test)]
mod tests {
    use super::{Method, Protocol, method};

    #[test]
    fn a_method_is_of_the_side_that_sent_it() {
        for (name, protocol, asked, action) in [
            ("ping", Protocol::Mcp, false, "ping"),
            ("ping", Protocol::Mcp, true, "client/ping"),
            ("roots/list", Protocol::Mcp, true, "roots/list"),
            ("session/stream", Protocol::Mcp, false, "session/stream"),
            ("acme/ask", Protocol::Mcp, true, "acme/ask"),
            ("tasks/get", Protocol::Mcp, false, "tasks/get"),
            ("tasks/get", Protocol::A2a, false, "GetTask"),
        ] {
            let found = method(name, protocol, asked);
            assert_eq!(found.action(), action, "{name} {protocol:?}");
            let known = !name.starts_with("acme");
            assert_eq!(matches!(found, Method::Known(_)), known, "{name}");
        }
        for (name, action) in [
            ("tasks/get", "GetTask"),
            ("SendMessage", "SendMessage"),
            ("GetAgentCard", "GetAgentCard"),
        ] {
            let found = method(name, Protocol::A2a, false);
            assert_eq!(found.action(), action, "{name}");
        }
    }
}

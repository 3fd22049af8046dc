//! Why a call of the past was decided as it was: its ledger entries, and what the policies say of it now.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use crate::{
    delegation::Mode,
    identity::{Principal, Proof, SpiffeId},
    ledger::{self, Row, printable, unescape},
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
    // Behind an intent that a crash has left there is only an entry that says so, without anything of the call.
    let told_last = rows.iter().rev().find(|row| row.peer.is_some());
    let (Some(stored), Some(last)) = (told_last, rows.last()) else {
        writeln!(out, "no decision `{decision_id}` in `{}`", ledger.display())?;
        return Ok(ExitCode::from(2));
    };
    describe(decision_id, stored, last.status.as_deref(), out)?;
    let (row, lost) = restored(stored);
    if let Some(kind) = &row.would_deny {
        let kind = printable(kind);
        writeln!(out, "\nIn shadow mode it went on; it would have been refused as {kind}.")?;
    }
    let code = match objector(&row) {
        Objector::Chain => explain_objection(policies, &row, Delegated::of(&row).as_ref(), out)?,
        Objector::Later(stage) => {
            let over = row.limits.join(", ");
            let told = match stage {
                "limits" => format!("it was over the limits: {}", printable(&over)),
                stage => format!("it was ended by {}", printable(stage)),
            };
            writeln!(out, "\nThe policies permitted it; {told}")?;
            cite(stored, out)?;
            ExitCode::FAILURE
        }
        Objector::Nobody | Objector::Policies => explain_policies(policies, &row, out)?,
        Objector::Earlier if row.would_deny.is_some() => {
            writeln!(out, "The policies were asked all the same; what they said isn't recorded.")?;
            cite(stored, out)?;
            ExitCode::from(2)
        }
        Objector::Earlier => {
            let (how, what) = match &row.stage {
                Some(stage) => ("was ended by", stage),
                None => ("ended as", row.status.as_ref().unwrap_or(&row.kind)),
            };
            writeln!(out, "\nThe policies were not asked: it {how} {}.", printable(what))?;
            ExitCode::from(2)
        }
    };
    for note in lost {
        writeln!(out, "note: {note}")?;
    }
    Ok(code)
}

/// The call, as it is on record.
fn describe(
    decision_id: &str,
    row: &Row,
    ended: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let told = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), printable);
    writeln!(out, "decision  {decision_id} of {}", printable(&row.ts))?;
    writeln!(out, "caller    {}", told(&row.peer))?;
    let target = row.target.as_deref().unwrap_or_default();
    writeln!(out, "call      {} {}", told(&row.method), printable(target))?;
    writeln!(out, "server    {}", told(&row.server))?;
    if let Some(hops) = row.hops {
        writeln!(out, "chain     of {hops} hops, begun by {}", told(&row.root))?;
        for (name, text) in [("user", &row.user), ("tenant", &row.tenant), ("link", &row.link)] {
            if let Some(text) = text {
                writeln!(out, "{name:<9} {}", printable(text))?;
            }
        }
    }
    writeln!(out, "ended     {} ({})", printable(ended.unwrap_or("-")), told(&row.decision))
}

/// Who objected to a call, or would have in shadow mode, as seen from the policies.
#[derive(Debug, PartialEq, Eq)]
enum Objector<'a> {
    Nobody,
    Policies,
    /// Somebody on whose behalf it was made.
    Chain,
    /// A stage that comes after the policies have permitted it.
    Later(&'a str),
    /// A stage that comes before them, or something that isn't a stage.
    Earlier,
}

fn objector(row: &Row) -> Objector<'_> {
    let stage = row.stage.as_deref().or_else(|| row.would_deny.as_deref().map(stage_of));
    match (stage, row.decision.as_deref()) {
        (Some("policy"), _) => Objector::Policies,
        (Some("delegation"), _) => Objector::Chain,
        (Some(stage @ ("push_url" | "claim" | "answered" | "limits")), _) => Objector::Later(stage),
        (None, Some("permit")) => Objector::Nobody,
        (Some(_) | None, _) => Objector::Earlier,
    }
}

/// The stage that gives a denial of this kind. In shadow mode its name isn't recorded.
pub(super) fn stage_of(would_deny: &str) -> &'static str {
    match would_deny {
        "policy_denied" | "unknown_method" => "policy",
        "delegation_denied" | "delegation_ambiguous" | "delegation_required" => "delegation",
        "push_url_refused" => "push_url",
        "rate_limited" | "budget_exhausted" | "outside_hours" | "limits_unavailable" => "limits",
        _ => "ownership",
    }
}

/// The policies on record.
fn cite(stored: &Row, out: &mut dyn Write) -> io::Result<()> {
    if stored.policies.is_empty() {
        return Ok(());
    }
    writeln!(out, "policies on record: {}", printable(&stored.policies.join(", ")))
}

/// A row with its names as they were before they were escaped, and what of them is lost.
fn restored(stored: &Row) -> (Row, Vec<&'static str>) {
    const TARGET: &str =
        "the target was too long to be kept whole; what follows from it is a guess";
    let mut row = stored.clone();
    let mut lost = Vec::new();
    for (name, note) in [
        (
            &mut row.method,
            "the method was too long to be kept whole; what follows from it is a guess",
        ),
        (&mut row.target, TARGET),
        (&mut row.root, "who began the chain was too long to be kept whole"),
        (&mut row.user, "the user was too long to be kept whole"),
        (&mut row.tenant, "the tenant was too long to be kept whole"),
    ] {
        if let Some(stored) = name {
            let (text, whole) = unescape(stored);
            *stored = text;
            lost.extend((!whole).then_some(note));
        }
    }
    if lost.contains(&TARGET) && row.era.as_deref() == Some(Era::Http.as_str()) {
        // Half a path leads elsewhere.
        row.target = None;
    }
    let policies = stored.policies.iter().map(|id| unescape(id));
    row.policies = policies.filter_map(|(id, whole)| whole.then_some(id)).collect();
    if row.policies.len() < stored.policies.len() {
        lost.push("more policies decided than are kept with their whole ids");
    }
    (row, lost)
}

/// What the policies said, and say now.
fn explain_policies(policies: &Policies, row: &Row, out: &mut dyn Write) -> io::Result<ExitCode> {
    let Some(asked) = Asked::of(row, policies) else {
        writeln!(out, "\nThe policies were asked; the record tells too little to ask them again.")?;
        return Ok(ExitCode::from(2));
    };
    let permit = objector(row) == Objector::Nobody;
    let recorded = Recorded {
        version: row.policy_version.as_deref().unwrap_or_default(),
        permit,
        policies: &row.policies,
    };
    let delegated = Delegated::of(row);
    let place = delegated.as_ref().and_then(|it| it.place(it.hops.checked_sub(1)?));
    let question = asked.question(&asked.principal, place);
    let explanation = policies.explain_recorded(&question, &recorded);
    write!(out, "\n{explanation}")?;
    if let Some(note) = asked.note {
        writeln!(out, "note: {note}")?;
    }
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
    writeln!(out, "\nHop {hop} of its chain objected: {}", printable(id))?;
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
    /// What is a guess.
    note: Option<&'static str>,
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
        let note = match governs {
            Governs::Reference => {
                Some("whether it names a prompt or a resource isn't recorded; a URI is taken for one")
            }
            Governs::Subscriptions => row.target.as_ref().map(|_| {
                "of what it listens to one name is recorded, and not of what; the server is asked about"
            }),
            Governs::Server
            | Governs::Caller
            | Governs::Tool
            | Governs::Prompt
            | Governs::Resource
            | Governs::Task
            | Governs::Message => None,
        };
        let target = match governs {
            Governs::Server | Governs::Subscriptions => None,
            Governs::Caller => Some(Target::Caller),
            Governs::Tool => name().map(Target::Tool),
            Governs::Prompt => name().map(Target::Prompt),
            Governs::Resource => name().map(Target::Resource),
            // The URI of a resource has a scheme.
            Governs::Reference => name().map(|name: Box<str>| {
                if name.contains(':') { Target::Resource(name) } else { Target::Prompt(name) }
            }),
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
            note,
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

/// What of a request of plain HTTP is on record.
fn web(row: &Row) -> Option<Traits> {
    let path = row.target.as_deref()?;
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

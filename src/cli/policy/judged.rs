//! What a proxy would say to a call, by the functions that it says it by, and how that is told.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::chain::Supposed;
use crate::{
    delegation::{ChainError, Limit, Objection, Settings},
    governance::delegation::{Member, judge_members, judge_root},
    identity::SpiffeId,
    policy::{Decision, Policies, Question},
};

/// What is known of how a proxy takes chains.
#[derive(Clone, Debug)]
pub(super) enum Rules {
    /// Nothing: no configuration was named.
    Unknown,
    /// It takes none.
    Without,
    /// These rules, and who stands behind an upstream, where that has to be proven.
    Set {
        /// The rules.
        settings: Settings,
        /// Name of an upstream → who that is.
        callees: BTreeMap<String, SpiffeId>,
    },
}

/// The end that a call would come to.
#[derive(Debug)]
pub(super) struct Judged {
    /// What the policies said: of the one who objects, or else of the caller.
    pub(super) decision: Decision,
    /// Why it would be refused, if so.
    pub(super) refused: Option<Refused>,
}

/// Why a call would be refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Refused {
    /// By the policies, with the caller for principal.
    Policies,
    /// It comes with a chain where none is taken.
    NotTaken,
    /// The chain breaks a rule.
    Chain(ChainError),
    /// The caller may not make it by itself.
    Required(SpiffeId),
    /// Somebody in the chain objects.
    Hop(Objection),
}

/// Judges a call in the order in which a proxy does.
pub(super) fn judge(
    policies: &Policies,
    rules: &Rules,
    chain: Option<&Supposed>,
    question: &Question<'_>,
) -> Judged {
    let decision = policies.decide(question);
    let taken = chain.map_or(Ok(()), |chain| take(chain, &question.principal.id, rules));
    if let Err(refused) = taken {
        return Judged { decision, refused: Some(refused) };
    }
    if !decision.permit {
        return Judged { decision, refused: Some(Refused::Policies) };
    }
    let questions = std::iter::once(Question { delegation: None, ..*question });
    let Some(chain) = chain else {
        let settings = match rules {
            Rules::Unknown | Rules::Without => None,
            Rules::Set { settings, .. } => Some(settings),
        };
        let judged = judge_root(settings, None, policies, questions);
        let refused = judged.err().map(|_denial| Refused::Required(question.principal.id.clone()));
        return Judged { decision, refused };
    };
    match judge_members(chain.members(), policies, questions) {
        Ok(()) => {
            let refused = go_on(chain, question, rules).err();
            Judged { decision, refused }
        }
        Err(refused) => Judged {
            decision: refused.decision.unwrap_or(decision),
            refused: Some(Refused::Hop(refused.objection)),
        },
    }
}

fn take(chain: &Supposed, caller: &SpiffeId, rules: &Rules) -> Result<(), Refused> {
    let settings = match rules {
        Rules::Unknown => None,
        Rules::Without => return Err(Refused::NotTaken),
        Rules::Set { settings, .. } => Some(settings),
    };
    chain.check(caller, settings).map_err(Refused::Chain)
}

/// Whether an outbound call could take its own hop along, which is made once everything else was asked.
fn go_on(chain: &Supposed, question: &Question<'_>, rules: &Rules) -> Result<(), Refused> {
    let Rules::Set { settings, callees } = rules else { return Ok(()) };
    let Some(callee) = callees.get(question.server) else { return Ok(()) };
    chain.go_on(&question.principal.id, callee, settings).map_err(Refused::Chain)
}

impl Refused {
    /// Which hop it is about, if it is about one, the root's being 0.
    pub(super) fn hop(&self) -> Option<usize> {
        match self {
            Self::Policies | Self::NotTaken | Self::Required(_) => None,
            Self::Hop(objection) => Some(objection.hop),
            Self::Chain(error) => match error {
                ChainError::Hop { hop, .. }
                | ChainError::Loop { hop, .. }
                | ChainError::Replayed { hop } => Some(*hop),
                ChainError::NotReady
                | ChainError::TooLong
                | ChainError::Empty
                | ChainError::TooDeep { .. } => None,
            },
        }
    }

    /// Why, in a line; `None` where the policies themselves tell.
    pub(super) fn told(&self) -> Option<String> {
        match self {
            Self::Policies => None,
            Self::NotTaken => {
                Some("the configuration has no `delegation`: no chain is taken".into())
            }
            Self::Chain(error) => Some(format!("the chain doesn't hold: {error}")),
            Self::Required(id) => {
                Some(format!("`{id}` may not call like that by itself (`delegation.mayOriginate`)"))
            }
            Self::Hop(objection) => Some(objection.to_string()),
        }
    }
}

/// Tells what would become of a call, and why. Whether it would be permitted.
pub(super) fn explain(
    policies: &Policies,
    rules: &Rules,
    chain: Option<&Supposed>,
    question: &Question<'_>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let Judged { refused, .. } = judge(policies, rules, chain, question);
    let told = refused.as_ref().and_then(Refused::told);
    if let Some(told) = &told {
        writeln!(out, "denied: {told}")?;
    }
    let Some(chain) = chain else {
        if told.is_some() {
            writeln!(out, "the policies, with the caller for principal:")?;
        }
        write!(out, "{}", policies.explain(question))?;
        return Ok(refused.is_none());
    };
    match (&refused, told) {
        (None, _) => writeln!(out, "permitted to everybody in the chain")?,
        (Some(_), None) => writeln!(out, "denied: the policies for the caller")?,
        (Some(_), Some(_)) => {}
    }
    let objecting = match &refused {
        Some(Refused::Hop(objection)) => {
            let member = chain.members().find(|member| member.place.hop == objection.hop);
            member.map(|member| (member, objection.to))
        }
        Some(Refused::Policies | Refused::NotTaken | Refused::Chain(_) | Refused::Required(_))
        | None => None,
    };
    if let Some((member, to)) = &objecting {
        tell_limit(policies, member, *to, question, out)?;
    }
    tell_chain(chain, out)?;
    let (who, asked) = match &objecting {
        Some((member, _)) => {
            let asked = Question {
                principal: member.principal,
                delegation: Some(member.place),
                ..*question
            };
            (format!("hop {}", member.place.hop), asked)
        }
        None => ("the caller".to_owned(), *question),
    };
    writeln!(out, "the policies, with {who} for principal:")?;
    write!(out, "{}", policies.explain(&asked))?;
    if matches!(rules, Rules::Unknown) {
        let told = "who may begin chains, and where they may go";
        writeln!(out, "note: {told}, is told by the configuration; name it with -f")?;
    }
    writeln!(out, "note: signatures, times, replays and revocations are those of real calls")?;
    Ok(refused.is_none())
}

/// What a hop, or grants to it, would let pass.
fn tell_limit(
    policies: &Policies,
    member: &Member<'_>,
    to: Limit,
    question: &Question<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Member { principal, mode, capabilities, place } = member;
    let class =
        policies.decide(&Question { principal, delegation: Some(*place), ..*question }).class;
    match to {
        Limit::Policies => Ok(()),
        Limit::Mode => {
            writeln!(out, "  its mode is `{}`, the call of class {}", mode.as_str(), class.as_str())
        }
        Limit::Capabilities => {
            let texts = capabilities.to_texts().unwrap_or_default().join("`, `");
            writeln!(out, "  it restricts calls to `{texts}`")
        }
        Limit::Grants => {
            let Some(terms) = policies.delegation_for(principal, question.server, question.target)
            else {
                return Ok(());
            };
            let widest = crate::governance::delegation::mode(terms.mode).as_str();
            let depth = terms.max_depth;
            writeln!(
                out,
                "  grants to it let calls of mode `{widest}` come through {depth} hops; this one is of class \
                 {} and comes through {}",
                class.as_str(),
                place.depth
            )
        }
    }
}

fn tell_chain(chain: &Supposed, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "the chain:")?;
    for Member { principal, mode, capabilities, place } in chain.members() {
        let texts = capabilities.to_texts().unwrap_or_default();
        let only = if texts.is_empty() { String::new() } else { format!("  {}", texts.join(" ")) };
        writeln!(out, "  hop {}  {}  {}{only}", place.hop, principal.id, mode.as_str())?;
    }
    let place = chain.members().next().map(|member| member.place);
    for (name, text) in [
        ("user", place.and_then(|place| place.user)),
        ("tenant", place.and_then(|place| place.tenant)),
    ] {
        if let Some(text) = text {
            writeln!(out, "  {name}  {text}")?;
        }
    }
    Ok(())
}

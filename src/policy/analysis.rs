//! What a policy looks at, and what is left of it when a list is asked for.
//!
//! A list knows no arguments. Its law: whatever some call permits is listed. So, of each policy,
//!
//! - a `permit` keeps the conjuncts that don't look at arguments. If a call satisfies the whole
//!   condition it satisfies each conjunct, and the value of a kept one depends on nothing that differs
//!   between list and call, so the rest is satisfied too;
//! - a `forbid` that looks at arguments is left out; some other arguments may escape it. Any other
//!   `forbid` is kept whole, and what it does to the list it does to every call.
//!
//! The same goes, one step further, for templates of resources: there the resource itself is open too.

use std::{collections::BTreeSet, sync::Arc};

use cedar_policy::pst::{
    ActionConstraint, BinaryOp, Clause, Effect, EntityOrSlot, EntityUID, Expr, Literal,
    PrincipalConstraint, PstConstructionError, ResourceConstraint, StaticPolicy, Template, Var,
};

use super::vocabulary::types;

/// A place below `context.input` that a policy looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InputPath {
    pub(crate) segments: Vec<String>,
    /// Whether it takes the value, and not only asks whether there is one.
    pub(crate) value: bool,
}

/// Every place below `context.input` that an expression looks at.
pub(crate) fn input_paths(expr: &Expr) -> BTreeSet<InputPath> {
    let everything = InputPath { segments: vec![], value: true };
    expr.reduce(
        &|expr| {
            let (path, value) = match expr {
                Expr::GetAttr { .. } => (context_path(expr)?, true),
                Expr::HasAttr { expr, attrs } => {
                    let mut path = context_path(expr)?;
                    path.extend(attrs.iter().map(|attr| attr.as_str()));
                    (path, false)
                }
                Expr::Var(Var::Context) => return Some(BTreeSet::from([everything.clone()])),
                _ => return None,
            };
            Some(match path.split_first() {
                Some((&"input", below)) => {
                    let segments = below.iter().map(|&segment| segment.to_owned()).collect();
                    BTreeSet::from([InputPath { segments, value }])
                }
                Some(_) => BTreeSet::new(),
                None => BTreeSet::from([everything.clone()]),
            })
        },
        &|left, right| left.into_iter().chain(right).collect(),
        BTreeSet::new(),
    )
}

/// Whether an expression looks at more of the context than `context.input`.
pub(crate) fn looks_past_input(expr: &Expr) -> bool {
    expr.reduce(
        &|expr| {
            let path = match expr {
                Expr::GetAttr { .. } => context_path(expr)?,
                Expr::HasAttr { expr, attrs } => {
                    let mut path = context_path(expr)?;
                    path.extend(attrs.iter().map(|attr| attr.as_str()));
                    path
                }
                Expr::Var(Var::Context) => vec![],
                _ => return None,
            };
            Some(path.first() != Some(&"input"))
        },
        &|left, right| left || right,
        false,
    )
}

/// The attributes of a chain `context.a.b`; `None` if the chain starts elsewhere.
pub(super) fn context_path(expr: &Expr) -> Option<Vec<&str>> {
    match expr {
        Expr::Var(Var::Context) => Some(vec![]),
        Expr::GetAttr { expr, attr } => {
            let mut path = context_path(expr)?;
            path.push(attr.as_str());
            Some(path)
        }
        _ => None,
    }
}

/// Names of all attributes that an expression looks at, such as `principal.tenant`.
pub(crate) fn attributes(expr: &Expr) -> BTreeSet<String> {
    fn chain(expr: &Expr) -> Option<String> {
        match expr {
            Expr::Var(Var::Principal) => Some("principal".to_owned()),
            Expr::Var(Var::Action) => Some("action".to_owned()),
            Expr::Var(Var::Resource) => Some("resource".to_owned()),
            Expr::Var(Var::Context) => Some("context".to_owned()),
            Expr::GetAttr { expr, attr } => Some(format!("{}.{attr}", chain(expr)?)),
            Expr::HasAttr { expr, attrs } => {
                let attrs: Vec<&str> = attrs.iter().map(|attr| attr.as_str()).collect();
                Some(format!("{}.{}", chain(expr)?, attrs.join(".")))
            }
            _ => None,
        }
    }
    expr.reduce(
        &|expr| chain(expr).map(|name| BTreeSet::from([name])),
        &|left, right| left.into_iter().chain(right).collect(),
        BTreeSet::new(),
    )
}

/// Whether an expression looks at more of the resource than its server.
fn looks_at_resource(expr: &Expr) -> bool {
    let is_resource = |expr: &Expr| matches!(expr, Expr::Var(Var::Resource));
    let is_server = |expr: &Expr| matches!(expr, Expr::Literal(Literal::EntityUID(uid)) if is_of_type(uid, types::SERVER));
    let of_server = |attr: &str| matches!(attr, "server" | "tags");
    expr.reduce(
        &|expr| match expr {
            Expr::GetAttr { expr, attr } if is_resource(expr) => Some(!of_server(attr)),
            Expr::HasAttr { expr, attrs } if is_resource(expr) => {
                Some(!attrs.iter().next().is_some_and(|attr| of_server(attr)))
            }
            Expr::Is { expr, in_expr, .. } if is_resource(expr) => {
                Some(!in_expr.as_deref().is_none_or(is_server))
            }
            Expr::BinaryOp { op: BinaryOp::In, left, right } if is_resource(left) => {
                Some(!is_server(right))
            }
            Expr::Var(Var::Resource) => Some(true),
            _ => None,
        },
        &|left, right| left || right,
        false,
    )
}

fn is_of_type(uid: &EntityUID, name: &str) -> bool {
    uid.ty.0.namespace.is_empty() && uid.ty.0.id.as_str() == name
}

/// Cuts conditions into the parts that all have to hold, in the order of their evaluation.
pub(crate) fn conjuncts(clauses: &[Clause]) -> Vec<Clause> {
    let mut parts = vec![];
    for clause in clauses {
        match clause {
            Clause::When(expr) => split(expr, BinaryOp::And, &Clause::When, &mut parts),
            // Unless a or b: unless a, and unless b.
            Clause::Unless(expr) => split(expr, BinaryOp::Or, &Clause::Unless, &mut parts),
        }
    }
    parts
}

fn split(
    expr: &Arc<Expr>,
    at: BinaryOp,
    wrap: &dyn Fn(Arc<Expr>) -> Clause,
    parts: &mut Vec<Clause>,
) {
    match &**expr {
        Expr::BinaryOp { op, left, right } if *op == at => {
            split(left, at, wrap, parts);
            split(right, at, wrap, parts);
        }
        _ => parts.push(wrap(expr.clone())),
    }
}

pub(crate) fn expr_of(clause: &Clause) -> &Expr {
    match clause {
        Clause::When(expr) | Clause::Unless(expr) => expr,
    }
}

/// What is left of a policy when the arguments are open.
pub(crate) fn for_lists(policy: &Template) -> Result<Option<Template>, PstConstructionError> {
    without(policy, |expr| !input_paths(expr).is_empty())
}

/// What is left of a policy when the arguments are open and the resource is any one of its server.
pub(crate) fn for_templates(policy: &Template) -> Result<Option<Template>, PstConstructionError> {
    let server = match &policy.resource {
        ResourceConstraint::Eq(EntityOrSlot::Entity(uid))
        | ResourceConstraint::In(EntityOrSlot::Entity(uid))
        | ResourceConstraint::IsIn(_, EntityOrSlot::Entity(uid))
            if is_of_type(uid, types::RESOURCE) =>
        {
            uid.eid.split_once('/').map(|(server, _)| (uid, server))
        }
        _ => None,
    };
    let open = without(policy, |expr| !input_paths(expr).is_empty() || looks_at_resource(expr))?;
    Ok(match (open, server) {
        (Some(mut open), Some((uid, server))) => match open.effect {
            Effect::Permit => {
                let mut of = uid.clone();
                of.eid = server.into();
                of.ty.0.id = cedar_policy::pst::Id::new(types::SERVER)?;
                open.resource = ResourceConstraint::In(EntityOrSlot::Entity(of));
                Some(open)
            }
            Effect::Forbid => None,
        },
        (open, _) => open,
    })
}

fn without(
    policy: &Template,
    open: impl Fn(&Expr) -> bool,
) -> Result<Option<Template>, PstConstructionError> {
    let parts = conjuncts(policy.clauses());
    let kept: Vec<_> = parts.iter().filter(|part| !open(expr_of(part))).cloned().collect();
    if kept.len() == parts.len() {
        return Ok(Some(policy.clone()));
    }
    match policy.effect {
        Effect::Permit => policy.clone().try_with_clauses(kept).map(Some),
        Effect::Forbid => Ok(None),
    }
}

/// The conditions of a policy whose scope is known to fit, under its own id: Cedar would try the scope again
/// on every call.
pub(crate) fn without_scope(
    policy: &cedar_policy::Policy,
) -> Result<cedar_policy::Policy, PstConstructionError> {
    let mut template = policy.to_pst()?.body().clone();
    template.principal = PrincipalConstraint::Any;
    template.action = ActionConstraint::Any;
    template.resource = ResourceConstraint::Any;
    to_policy(template)
}

/// Back to a policy that Cedar evaluates.
pub(crate) fn to_policy(template: Template) -> Result<cedar_policy::Policy, PstConstructionError> {
    cedar_policy::Policy::from_pst(StaticPolicy::try_from(template)?.into())
}

//! Conditions on arguments that can be evaluated without Cedar.
//!
//! Most conditions on arguments are of a few forms: one is there, equals a literal, is like a pattern, is
//! above a bound. For these Cedar's evaluator costs a hundred times what the comparison itself does, on
//! each call. They are taken apart once, when their slice is made; the parts that don't look at arguments
//! are facts, of which Cedar is asked once for each kind of call.
//!
//! INVARIANT: where [`Condition::holds`] answers, Cedar gives the same answer, and without an error. What
//! is of another form is not taken apart, and what could fail is not answered; Cedar is asked then.

use std::sync::Arc;

use cedar_policy::{
    Policy, PolicySet,
    pst::{
        self, ActionConstraint, BinaryOp, Clause, Expr, PatternElem, PrincipalConstraint,
        ResourceConstraint, UnaryOp,
    },
};

use super::{
    analysis::{context_path, input_paths, to_policy},
    input::Lifted,
};

/// A condition, taken apart.
#[derive(Debug)]
pub(crate) enum Condition {
    /// What doesn't look at arguments: the position of the fact.
    Fact(usize),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    If(Box<[Self; 3]>),
    Has(Has),
    Argument(Vec<String>, Test),
}

/// `context.input has a.b`
#[derive(Debug)]
pub(crate) struct Has {
    /// The way below `context.input`.
    path: Vec<String>,
    /// How many steps from `context` are taken for granted: none in `context has input.a`, two in
    /// `context.input.a has b`.
    granted: usize,
}

/// What is asked of one argument.
#[derive(Debug)]
pub(crate) enum Test {
    IsTrue,
    Is(Literal),
    IsOneOf(Vec<Literal>),
    Contains(Literal),
    Like(Pattern),
    Below(i64),
    UpTo(i64),
}

#[derive(Debug)]
pub(crate) enum Literal {
    Bool(bool),
    Long(i64),
    String(Box<str>),
}

/// A pattern of `like`: the texts between its wildcards.
#[derive(Debug)]
pub(crate) struct Pattern {
    first: String,
    /// The others; empty where there is no wildcard.
    more: Vec<String>,
}

impl Condition {
    /// What the clauses of a policy say together; `None` where they are not all of a known form. Facts that
    /// they hang on are added to `facts`.
    pub(crate) fn of(policy: &Policy, facts: &mut Vec<PolicySet>) -> Option<Self> {
        let tree = policy.to_pst().ok()?;
        let known = facts.len();
        let clauses = tree.body().clauses().iter().map(|clause| match clause {
            Clause::When(expr) => take_apart(expr, facts)?.into_condition(facts),
            Clause::Unless(expr) => take_apart(expr, facts)?.into_condition(facts).map(Self::not),
        });
        // A policy of no clauses looks at no arguments.
        let parts: Option<Vec<Self>> = clauses.collect();
        let whole = parts.and_then(|parts| parts.into_iter().reduce(Self::and));
        if whole.is_none() {
            facts.truncate(known);
        }
        whole
    }

    /// Whether it holds for these arguments; `None` stands for: ask Cedar. `facts` are the answers to
    /// those that it hangs on.
    pub(crate) fn holds(&self, input: Option<&Lifted<'_>>, facts: &[Option<bool>]) -> Option<bool> {
        match self {
            Self::Fact(at) => facts.get(*at).copied().flatten(),
            Self::Not(inner) => inner.holds(input, facts).map(|holds| !holds),
            // In the order of Cedar's evaluation: what it doesn't reach can't fail.
            Self::And(left, right) => {
                if left.holds(input, facts)? {
                    right.holds(input, facts)
                } else {
                    Some(false)
                }
            }
            Self::Or(left, right) => {
                if left.holds(input, facts)? {
                    Some(true)
                } else {
                    right.holds(input, facts)
                }
            }
            Self::If(parts) => {
                let [condition, then, otherwise] = &**parts;
                if condition.holds(input, facts)? { then } else { otherwise }.holds(input, facts)
            }
            Self::Has(has) => has.holds(input),
            Self::Argument(path, test) => {
                test.holds(path.iter().try_fold(input?, |at, name| at.attribute(name)?)?)
            }
        }
    }

    fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }
}

/// A part of a condition.
enum Part<'a> {
    /// Doesn't look at arguments.
    Fixed(&'a Arc<Expr>),
    Open(Condition),
}

impl Part<'_> {
    fn into_condition(self, facts: &mut Vec<PolicySet>) -> Option<Condition> {
        match self {
            Self::Open(condition) => Some(condition),
            Self::Fixed(expr) => {
                facts.push(asks(expr)?);
                Some(Condition::Fact(facts.len() - 1))
            }
        }
    }
}

fn take_apart<'a>(expr: &'a Arc<Expr>, facts: &mut Vec<PolicySet>) -> Option<Part<'a>> {
    let open = match &**expr {
        Expr::UnaryOp { op: UnaryOp::Not, expr: inner } => match take_apart(inner, facts)? {
            Part::Fixed(_) => None,
            Part::Open(inner) => Some(inner.not()),
        },
        Expr::BinaryOp { op: op @ (BinaryOp::And | BinaryOp::Or), left, right } => {
            let join = if *op == BinaryOp::And { Condition::and } else { Condition::or };
            match (take_apart(left, facts)?, take_apart(right, facts)?) {
                (Part::Fixed(_), Part::Fixed(_)) => None,
                (left, right) => {
                    Some(join(left.into_condition(facts)?, right.into_condition(facts)?))
                }
            }
        }
        Expr::IfThenElse { cond, then_expr, else_expr } => {
            let mut part = |expr| take_apart(expr, facts);
            match (part(cond)?, part(then_expr)?, part(else_expr)?) {
                (Part::Fixed(_), Part::Fixed(_), Part::Fixed(_)) => None,
                (condition, then, otherwise) => Some(Condition::If(Box::new([
                    condition.into_condition(facts)?,
                    then.into_condition(facts)?,
                    otherwise.into_condition(facts)?,
                ]))),
            }
        }
        leaf if input_paths(leaf).is_empty() => None,
        leaf => Some(about_argument(leaf)?),
    };
    Some(open.map_or(Part::Fixed(expr), Part::Open))
}

/// A comparison of one argument with literals.
fn about_argument(expr: &Expr) -> Option<Condition> {
    let argument = |expr, test| Some(Condition::Argument(input_path(expr)?, test));
    match expr {
        Expr::GetAttr { .. } => argument(expr, Test::IsTrue),
        Expr::HasAttr { expr, attrs } => {
            let before = context_path(expr)?;
            let granted = before.len();
            let path = below_input(before.into_iter().chain(attrs.iter().map(|attr| &**attr)))?;
            Some(Condition::Has(Has { path, granted }))
        }
        Expr::Like { expr, pattern } => argument(expr, Test::Like(Pattern::of(pattern))),
        Expr::BinaryOp { op: BinaryOp::Contains, left, right } => match &**left {
            Expr::Set(elements) => {
                let literals = elements.iter().map(|element| Literal::of(element));
                argument(right, Test::IsOneOf(literals.collect::<Option<_>>()?))
            }
            _ => argument(left, Test::Contains(Literal::of(right)?)),
        },
        Expr::BinaryOp { op, left, right } => match (Literal::of(left), Literal::of(right)) {
            (None, Some(literal)) => compared(left, *op, literal),
            (Some(literal), None) => compared(right, mirrored(*op), literal),
            (Some(_), Some(_)) | (None, None) => None,
        },
        _ => None,
    }
}

fn compared(argument: &Expr, op: BinaryOp, literal: Literal) -> Option<Condition> {
    let (test, negated) = match (op, literal) {
        (BinaryOp::Eq, literal) => (Test::Is(literal), false),
        (BinaryOp::NotEq, literal) => (Test::Is(literal), true),
        (BinaryOp::Less, Literal::Long(bound)) => (Test::Below(bound), false),
        (BinaryOp::GreaterEq, Literal::Long(bound)) => (Test::Below(bound), true),
        (BinaryOp::LessEq, Literal::Long(bound)) => (Test::UpTo(bound), false),
        (BinaryOp::Greater, Literal::Long(bound)) => (Test::UpTo(bound), true),
        _ => return None,
    };
    let condition = Condition::Argument(input_path(argument)?, test);
    Some(if negated { condition.not() } else { condition })
}

/// The operator between swapped operands.
fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Less => BinaryOp::Greater,
        BinaryOp::LessEq => BinaryOp::GreaterEq,
        BinaryOp::Greater => BinaryOp::Less,
        BinaryOp::GreaterEq => BinaryOp::LessEq,
        other => other,
    }
}

/// The steps of `context.input.a.b` below `context.input`.
fn input_path(expr: &Expr) -> Option<Vec<String>> {
    below_input(context_path(expr)?.into_iter())
}

fn below_input<'a>(mut path: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    path.next().filter(|first| *first == "input")?;
    Some(path.map(str::to_owned).collect())
}

/// A policy that is satisfied where `expr` is true, and fails where it isn't a truth value.
fn asks(expr: &Arc<Expr>) -> Option<PolicySet> {
    let blank = pst::Template::new(
        "fact",
        pst::Effect::Forbid,
        PrincipalConstraint::Any,
        ActionConstraint::Any,
        ResourceConstraint::Any,
    );
    let template = blank.try_with_clauses([Clause::When(Arc::clone(expr))]).ok()?;
    PolicySet::from_policies([to_policy(template).ok()?]).ok()
}

impl Has {
    fn holds(&self, input: Option<&Lifted<'_>>) -> Option<bool> {
        // What isn't there is a `no` only where it is asked for.
        let Some(mut at) = input else { return (self.granted == 0).then_some(false) };
        for (step, name) in (2_usize..).zip(&self.path) {
            match at.attribute(name)? {
                Some(below) => at = below,
                None => return (step > self.granted).then_some(false),
            }
        }
        Some(true)
    }
}

impl Test {
    /// `None` where the argument is of another type.
    fn holds(&self, argument: &Lifted<'_>) -> Option<bool> {
        match (self, argument) {
            (Self::IsTrue, Lifted::Bool(value)) => Some(*value),
            (Self::Is(literal), argument) => literal.is(argument),
            (Self::IsOneOf(literals), argument) => {
                one_of(literals.iter().map(|literal| literal.is(argument)))
            }
            (Self::Contains(literal), Lifted::Set(elements)) => {
                one_of(elements.iter().map(|element| literal.is(element)))
            }
            (Self::Like(pattern), Lifted::String(text)) => Some(pattern.matches(text)),
            (Self::Below(bound), Lifted::Long(value)) => Some(value < bound),
            (Self::UpTo(bound), Lifted::Long(value)) => Some(value <= bound),
            (
                Self::IsTrue | Self::Contains(_) | Self::Like(_) | Self::Below(_) | Self::UpTo(_),
                _,
            ) => None,
        }
    }
}

/// Whether one is true; `None` if one can't be told.
fn one_of(mut answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    answers.try_fold(false, |any, answer| Some(any | answer?))
}

impl Literal {
    fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Literal(pst::Literal::Bool(value)) => Some(Self::Bool(*value)),
            Expr::Literal(pst::Literal::Long(value)) => Some(Self::Long(*value)),
            Expr::Literal(pst::Literal::String(text)) => Some(Self::String(text.as_str().into())),
            _ => None,
        }
    }

    /// `None` where the types differ.
    fn is(&self, argument: &Lifted<'_>) -> Option<bool> {
        match (self, argument) {
            (Self::Bool(literal), Lifted::Bool(value)) => Some(literal == value),
            (Self::Long(literal), Lifted::Long(value)) => Some(literal == value),
            (Self::String(literal), Lifted::String(text)) => Some(**literal == **text),
            (Self::Bool(_) | Self::Long(_) | Self::String(_), _) => None,
        }
    }
}

impl Pattern {
    fn of(elements: &[PatternElem]) -> Self {
        let mut texts = vec![String::new()];
        for element in elements {
            match (element, texts.last_mut()) {
                (PatternElem::Char(char), Some(text)) => text.push(*char),
                (PatternElem::Wildcard, _) | (PatternElem::Char(_), None) => {
                    texts.push(String::new());
                }
            }
        }
        let mut texts = texts.into_iter();
        Self { first: texts.next().unwrap_or_default(), more: texts.collect() }
    }

    fn matches(&self, text: &str) -> bool {
        let Some((last, middle)) = self.more.split_last() else { return text == self.first };
        let inside = text.strip_prefix(&*self.first).and_then(|rest| rest.strip_suffix(&**last));
        // The first place that fits leaves most room for the others.
        let found = inside.and_then(|inside| {
            middle.iter().try_fold(inside, |rest, text| Some(rest.split_once(&**text)?.1))
        });
        found.is_some()
    }
}

#[cfg(test)]
mod tests;

//! Strict validation by Cedar, with the place of each finding.
//!
//! Cedar checks a policy's types once for each kind of request that the schema knows, which takes ten times
//! as long as parsing it. Most policies of a large set are nothing but a scope, and many scopes differ in
//! ids alone: of these one is checked for all.
//!
//! INVARIANT: policies of one [`Kind`] have the same faults, their ids aside. Cedar types an entity by its
//! type alone, except actions and entities of enumerated types; actions are part of the kind, and no schema
//! here can have an enumerated type. It looks at the letters of an id, too, but finds nothing in plain ASCII.

use std::collections::HashMap;

use cedar_policy::{
    ActionConstraint, EntityTypeName, EntityUid, Policy, PolicyId, PolicySet, PrincipalConstraint,
    ResourceConstraint, ValidationMode, Validator, ffi::DetailedError, pst,
};

use super::{
    analysis,
    load::{Parsed, in_parallel},
    source::Fault,
    vocabulary::{Vocabulary, located},
};

const FOR_CALLS: &str =
    "this is about what servers ask, too: for calls alone, write `principal is Agent`";

pub(super) fn validate(
    vocabulary: &Vocabulary,
    parsed: &[Parsed<'_>],
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) {
    let validator = Validator::new(vocabulary.schema.clone());
    let (firsts, stand_for) = representatives(parsed);
    let sound = in_parallel(&firsts, |chunk| {
        if is_sound(&validator, chunk) {
            return vec![true; chunk.len()];
        }
        chunk.iter().map(|first| is_sound(&validator, &[first])).collect()
    });
    let suspects: Vec<&Parsed<'_>> = parsed
        .iter()
        .zip(stand_for)
        .filter(|(_, first)| sound.get(*first) != Some(&true))
        .map(|(parsed, _)| parsed)
        .collect();
    let findings = in_parallel(&suspects, |chunk| {
        chunk.iter().map(|suspect| Findings::of(&validator, suspect)).collect()
    });
    for found in findings {
        faults.extend(found.faults);
        warnings.extend(found.warnings);
    }
}

/// The policies to check, and for each policy which of them stands for it.
fn representatives<'p, 's>(parsed: &'p [Parsed<'s>]) -> (Vec<&'p Parsed<'s>>, Vec<usize>) {
    let (mut firsts, mut stand_for) = (vec![], vec![]);
    let mut known: HashMap<&Kind, usize> = HashMap::new();
    for parsed in parsed {
        let next = firsts.len();
        let kind = parsed.kind.as_ref();
        let first = kind.map_or(next, |kind| *known.entry(kind).or_insert(next));
        if first == next {
            firsts.push(parsed);
        }
        stand_for.push(first);
    }
    (firsts, stand_for)
}

/// All that validation looks at in a policy that is nothing but a scope.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Kind {
    principal: Reach,
    /// `None` for any.
    actions: Option<(bool, Vec<EntityUid>)>,
    resource: Reach,
}

/// A constraint on principal or resource, without ids.
#[derive(PartialEq, Eq, Hash)]
enum Reach {
    Any,
    Is(EntityTypeName),
    Eq(EntityTypeName),
    In(EntityTypeName),
    IsIn(EntityTypeName, EntityTypeName),
}

impl Kind {
    /// `None` for a policy that has to be checked by itself.
    pub(super) fn of(policy: &Policy, text: &str) -> Option<Self> {
        // A backslash may write a letter that isn't plain.
        let plain = text.is_ascii() && !text.contains('\\');
        if !plain || policy.has_non_scope_constraint() {
            return None;
        }
        let type_of = |uid: EntityUid| uid.type_name().clone();
        Some(Self {
            principal: match policy.principal_constraint() {
                PrincipalConstraint::Any => Reach::Any,
                PrincipalConstraint::Is(name) => Reach::Is(name),
                PrincipalConstraint::Eq(uid) => Reach::Eq(type_of(uid)),
                PrincipalConstraint::In(uid) => Reach::In(type_of(uid)),
                PrincipalConstraint::IsIn(name, uid) => Reach::IsIn(name, type_of(uid)),
            },
            actions: match policy.action_constraint() {
                ActionConstraint::Any => None,
                ActionConstraint::Eq(uid) => Some((true, vec![uid])),
                ActionConstraint::In(uids) => Some((false, uids)),
            },
            resource: match policy.resource_constraint() {
                ResourceConstraint::Any => Reach::Any,
                ResourceConstraint::Is(name) => Reach::Is(name),
                ResourceConstraint::Eq(uid) => Reach::Eq(type_of(uid)),
                ResourceConstraint::In(uid) => Reach::In(type_of(uid)),
                ResourceConstraint::IsIn(name, uid) => Reach::IsIn(name, type_of(uid)),
            },
        })
    }
}

fn is_sound(validator: &Validator, policies: &[&Parsed<'_>]) -> bool {
    let policies: Result<Vec<Policy>, _> = policies.iter().map(|parsed| parsed.policy()).collect();
    policies.is_ok_and(|policies| {
        PolicySet::from_policies(policies).is_ok_and(|set| {
            validator.validate(&set, ValidationMode::Strict).validation_passed_without_warnings()
        })
    })
}

/// What validation tells of one policy, with places in its file.
#[derive(Default)]
struct Findings {
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Findings {
    /// Parses the policy anew, for offsets that are its own.
    fn of(validator: &Validator, parsed: &Parsed<'_>) -> Self {
        let &Parsed { source, statement, ref origin, .. } = parsed;
        let alone = Policy::parse(Some(PolicyId::new(&origin.id)), statement.text)
            .map_err(|error| error.to_string())
            .and_then(|policy| {
                PolicySet::from_policies([policy]).map_err(|error| error.to_string())
            });
        let set = match alone {
            Ok(set) => set,
            Err(error) => {
                let fault = source.fault(Some(origin.line), error);
                return Self { faults: vec![fault], ..Self::default() };
            }
        };
        let result = validator.validate(&set, ValidationMode::Strict);
        let place = |error: DetailedError| located(source, statement.at, error);
        let mut faults: Vec<Fault> =
            result.validation_errors().map(|error| place(DetailedError::from(error))).collect();
        let warnings = result.validation_warnings();
        let mut warnings: Vec<Fault> =
            warnings.map(|warning| place(DetailedError::from(warning))).collect();
        if !faults.is_empty() && is_sound_for_calls(validator, &set) {
            faults = faults.into_iter().map(|fault| fault.with_hint(FOR_CALLS)).collect();
        }
        // One mistake is found once for each kind of request that the policy covers.
        for found in [&mut faults, &mut warnings] {
            found.sort_by_key(|fault| fault.line);
            found.dedup();
        }
        Self { faults, warnings }
    }
}

/// Whether a policy on every principal and action would have no fault if it spoke of agents alone.
fn is_sound_for_calls(validator: &Validator, set: &PolicySet) -> bool {
    let narrowed = |policy: &Policy| {
        let agents = Policy::parse(None, "permit(principal is Agent, action, resource);").ok()?;
        let mut template = policy.to_pst().ok()?.body().clone();
        let (pst::PrincipalConstraint::Any, pst::ActionConstraint::Any) =
            (&template.principal, &template.action)
        else {
            return None;
        };
        template.principal = agents.to_pst().ok()?.body().principal.clone();
        PolicySet::from_policies([analysis::to_policy(template).ok()?]).ok()
    };
    set.policies().all(|policy| {
        narrowed(policy)
            .is_some_and(|set| validator.validate(&set, ValidationMode::Strict).validation_passed())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::vocabulary::SCHEMA;
    use cedar_policy::Schema;

    const PRINCIPALS: [&str; 7] = [
        "principal",
        "principal is Agent",
        "principal == Agent::\"%\"",
        "principal in Path::\"%\"",
        "principal is Server in Path::\"%\"",
        "principal == Tool::\"%\"",
        "principal == User::\"%\"",
    ];
    const ACTIONS: [&str; 5] = [
        "action",
        "action == Action::\"ping\"",
        "action in Action::\"tools/call\"",
        "action in [Action::\"asks\", Action::\"resources/read\"]",
        "action == Action::\"nothing\"",
    ];
    const RESOURCES: [&str; 6] = [
        "resource",
        "resource is Prompt",
        "resource == Tool::\"%\"",
        "resource in Server::\"%\"",
        "resource is Tool in Server::\"%\"",
        "resource in Group::\"%\"",
    ];

    fn findings(validator: &Validator, scope: &str, id: &str) -> Vec<String> {
        let text = format!("permit({});", scope.replace('%', id));
        let policy = Policy::parse(Some(PolicyId::new("p")), text).expect("a policy");
        let set = PolicySet::from_policies([policy]).expect("a set");
        let result = validator.validate(&set, ValidationMode::Strict);
        let faults = result.validation_errors().map(ToString::to_string);
        let warnings = result.validation_warnings().map(ToString::to_string);
        let mut told: Vec<_> = faults.chain(warnings).map(|told| told.replace(id, "%")).collect();
        told.sort();
        told
    }

    #[test]
    fn ids_make_no_difference_to_cedar() {
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA).expect("the schema");
        let validator = Validator::new(schema);
        let mut counts = [0, 0];
        for principal in PRINCIPALS {
            for action in ACTIONS {
                for resource in RESOURCES {
                    let scope = format!("{principal}, {action}, {resource}");
                    let found = findings(&validator, &scope, "[1]");
                    let other = findings(&validator, &scope, "spiffe://td/Agent; 1 == *");
                    assert_eq!(found, other, "{scope}");
                    counts[usize::from(found.is_empty())] += 1;
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }
}

//! What policies can say of calls that are made on somebody's behalf.

use super::*;
use crate::policy::Delegation;

const ROOT: &str = "spiffe://td/root";

/// Whether it is permitted with such a place in a chain, and whether it is listed.
fn judged(
    policies: &Policies,
    ask: &Ask<'_>,
    place: Option<(usize, usize, &'static str)>,
) -> (bool, bool) {
    let root = SpiffeId::parse(ROOT).expect("valid");
    let delegation = place.map(|(depth, hop, mode)| Delegation {
        depth,
        hop,
        mode,
        root: &root,
        user: None,
        tenant: None,
    });
    // Twice: the second answer comes from what was remembered.
    for _ in 0..2 {
        ask.ask(|question| policies.decide(&Question { delegation, ..*question }));
    }
    ask.ask(|question| {
        let question = Question { delegation, ..*question };
        let list = Method::parse("tools/list");
        let listed = policies.may_list(&Question { method: &list, ..question });
        (policies.decide(&question).permit, listed)
    })
}

#[test]
fn policies_can_tell_delegated_calls_from_others() {
    let ask = Ask::call(READER, "read_file").with(r#"{"path":"/srv/a"}"#);
    let (first, last) = (Some((3, 0, "full")), Some((3, 2, "readonly")));
    for (condition, direct, at_first, at_last) in [
        ("context has delegation", false, true, true),
        ("!(context has delegation)", true, false, false),
        ("context has delegation && context.delegation.depth <= 2", false, false, false),
        ("context has delegation && context.delegation.hop == 0", false, true, false),
        ("context has delegation && context.delegation.mode == \"readonly\"", false, false, true),
        (
            "context has delegation && context.delegation.root == \"spiffe://td/root\"",
            false,
            true,
            true,
        ),
        ("context.input.path like \"/srv/*\" && context has delegation", false, true, true),
        (
            "context.input.path like \"/etc/*\" || (context has delegation && context.delegation.hop == 2)",
            false,
            false,
            true,
        ),
    ] {
        let policies = policies(&format!(
            "permit(principal, action == Action::\"files/read_file\", resource) when {{ {condition} }};"
        ));
        for (place, permitted) in [(None, direct), (first, at_first), (last, at_last)] {
            let (permit, listed) = judged(&policies, &ask, place);
            assert_eq!(permit, permitted, "{condition} at {place:?}");
            assert!(listed || !permit, "{condition} at {place:?}");
        }
    }
}

#[test]
fn places_in_a_chain_are_remembered_apart() {
    let policies = policies(
        "permit(principal, action, resource) \
         when { context has delegation && context.delegation.hop == 1 };",
    );
    let ask = Ask::call(READER, "read_file");
    let permits = |place| judged(&policies, &ask, place).0;
    assert!(!permits(Some((2, 0, "full"))));
    assert!(permits(Some((2, 1, "full"))));
    assert!(!permits(None));
    assert!(!permits(Some((2, 0, "full"))));
}

//! Chains of delegation.

use std::time::Duration;

use super::*;
use crate::delegation::{Mode, Origin, Settings, Who};

#[test]
fn what_is_said_of_delegation_is_what_holds() {
    let read = |delegation: Value| {
        let folder = folder();
        let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
        page["delegation"] = delegation;
        parse(&page.to_string(), folder.path()).expect("no faults").delegation
    };
    let id = |text: &str| identity::SpiffeId::parse(text).expect("an ID");
    assert_eq!(read(json!({ "mayOriginate": [] })), Some(Settings::default()));
    let whole = json!({
        "mayOriginate": [
            { "id": "spiffe://td/ui", "mode": "full" },
            { "id": "spiffe://td/batch/*", "mode": "readonly" },
        ],
        "maxDepth": 3,
        "tenant": "acme",
        "ambient": "deny",
        "lifetime": "90s",
        "allowRevisit": [{ "from": "spiffe://td/b", "to": "spiffe://td/a" }],
        "domains": [{ "from": "td", "to": "partner.example" }],
    });
    let origin = |who: &str, mode| Origin { who: Who::parse(who).expect("who"), mode };
    let expected = Settings {
        origins: vec![
            origin("spiffe://td/ui", Mode::Full),
            origin("spiffe://td/batch/*", Mode::ReadOnly),
        ],
        max_depth: 3,
        ambient: false,
        tenant: Some("acme".into()),
        lifetime: Duration::from_secs(90),
        revisits: vec![(id("spiffe://td/b"), id("spiffe://td/a"))],
        domains: vec![("td".into(), "partner.example".into())],
    };
    assert_eq!(read(whole), Some(expected));
}

#[test]
fn faults_of_delegation_are_told() {
    let origin = |id: &str| json!({ "id": id, "mode": "full" });
    for (delegation, fault) in [
        (json!({}), "delegation.mayOriginate: is missing"),
        (
            json!({ "mayOriginate": [], "tenant": "a b" }),
            "delegation.tenant: is 1 to 64 visible ASCII characters",
        ),
        (
            json!({ "mayOriginate": [{ "id": "spiffe://td/a" }] }),
            "delegation.mayOriginate[0].mode: is missing",
        ),
        (
            json!({ "mayOriginate": [origin("spiffe://td/a*")] }),
            "delegation.mayOriginate[0].id: `spiffe://td/a*` names nobody (a SPIFFE ID, or a prefix \
             of IDs that ends in `/*`)",
        ),
        (
            json!({ "mayOriginate": [origin("spiffe://td/a"), origin("spiffe://td/a")] }),
            "delegation.mayOriginate[1].id: `spiffe://td/a` is there twice",
        ),
        (
            json!({ "mayOriginate": [], "lifetime": "500ms" }),
            "delegation.lifetime: is at least a second",
        ),
        (
            json!({ "mayOriginate": [], "domains": [{ "from": "td", "to": "td" }] }),
            "delegation.domains[0]: goes from somebody to itself",
        ),
        (
            json!({ "mayOriginate": [], "allowRevisit": [{ "from": "spiffe://td/a" }] }),
            "delegation.allowRevisit[0].to: is missing",
        ),
    ] {
        assert_eq!(faults_with("/delegation", delegation), [fault]);
    }
    let faults = faults_with("/delegation", json!({ "mayOriginate": [], "maxDepth": 11 }));
    assert!(faults.iter().any(|fault| fault.starts_with("delegation.maxDepth")), "{faults:?}");
}

//! Routes of plain HTTP.

use serde_json::json;

use super::*;
use crate::upstream::settings::Asked;

fn page_with(route: Value, upstream: Value) -> Value {
    let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
    let routes = page["listeners"][0]["routes"].as_array_mut().expect("a list");
    let mut it = json!({ "path": "/api", "protocol": "http", "upstream": "api" });
    merge(&mut it, route);
    routes.push(it);
    let mut it = json!({ "name": "api", "url": "https://api.example.org/v3" });
    merge(&mut it, upstream);
    page["upstreams"].as_array_mut().expect("a list").push(it);
    page
}

fn merge(into: &mut Value, more: Value) {
    let (Value::Object(into), Value::Object(more)) = (into, more) else { panic!("maps") };
    into.extend(more);
    into.retain(|_, value| !value.is_null());
}

#[test]
fn a_route_leads_to_a_web_api() {
    let folder = folder();
    let urls = json!(["https://one.example.org/v3", "https://two.example.org/v3"]);
    let page = page_with(
        json!({ "headers": ["X-Api-Version"], "repeatable": ["labels"] }),
        json!({ "url": null, "urls": urls }),
    );
    let config = parse(&page.to_string(), folder.path()).expect("no faults");
    let route = &config.listeners[0].routes[1];
    assert_eq!((route.protocol, route.at_root), (Protocol::Http, false));
    assert_eq!(route.headers, ["x-api-version"]);
    assert_eq!(route.repeatable, ["labels"]);
    let health = http(&config.upstreams[1]).health.as_ref().expect("several endpoints");
    assert_eq!(health.asked, Asked::Base);
}

#[test]
fn each_fault_of_such_a_route_is_told() {
    let nothing = || json!({});
    let own = "is nothing that a web API has; the routes to it have `protocol: http`";
    let place = |key: &str| format!("upstreams[1].{key}: {own}");
    for (route, upstream, faults) in [
        (json!({ "headers": [] }), nothing(), vec![]),
        (
            json!({ "headers": ["cookie", "x-a", "a b"] }),
            nothing(),
            ["[0]: `cookie`", "[2]: `a b`"]
                .map(|at| {
                    format!(
                        "listeners[0].routes[1].headers{at} is no header that can pass (such as \
                         `x-github-api-version`; some decide too much to be passed)"
                    )
                })
                .to_vec(),
        ),
        (
            json!({ "protocol": "mcp", "headers": ["x-a"], "repeatable": ["a"] }),
            nothing(),
            ["headers", "repeatable"]
                .map(|key| {
                    format!(
                        "listeners[0].routes[1].{key}: is for routes with `protocol: http`; other \
                         protocols have their own"
                    )
                })
                .to_vec(),
        ),
        (
            json!({ "upstream": "files" }),
            nothing(),
            vec![
                "listeners[0].routes[1].upstream: another route speaks another protocol with \
                 `files` (what is said in that protocol would pass here without being read)"
                    .to_owned(),
            ],
        ),
        (
            json!({ "messageForms": true }),
            nothing(),
            vec![
                "listeners[0].routes[1].messageForms: is for routes with `protocol: a2a`; nobody \
                 else has such messages"
                    .to_owned(),
            ],
        ),
        (
            json!({ "cardAtRoot": true }),
            nothing(),
            vec![
                "listeners[0].routes[1].cardAtRoot: is for routes with `protocol: a2a`; only an \
                 agent has a card"
                    .to_owned(),
            ],
        ),
        (
            nothing(),
            json!({ "url": "https://api.example.org/v3?key=1" }),
            vec!["upstreams[1].url: is a base that paths are added to, and has a query".to_owned()],
        ),
        (
            json!({ "repeatable": [""] }),
            nothing(),
            vec!["listeners[0].routes[1].repeatable: has a name that is empty".to_owned()],
        ),
        (nothing(), json!({ "transport": "sse" }), vec![place("transport")]),
        (nothing(), json!({ "tools": { "a": {} } }), vec![place("tools")]),
        (nothing(), json!({ "agentCard": {} }), vec![place("agentCard")]),
        (nothing(), json!({ "url": null, "command": ["x"] }), vec![place("command")]),
    ] {
        let page = page_with(route.clone(), upstream.clone());
        let told = faults_after(|it| *it = page);
        assert_eq!(told, faults, "{route} {upstream}");
    }
}

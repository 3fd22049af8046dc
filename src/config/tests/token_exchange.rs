//! Token services, and what is wrong about them.

use serde_json::json;

use super::*;
use crate::upstream::settings::{ClientSecret, TokenExchange};

fn exchange(url: &str, more: Value) -> Value {
    let mut it = json!({
        "url": url, "clientId": "lictor", "clientSecretEnv": "PATH", "audience": "crm",
    });
    let (Value::Object(all), Value::Object(more)) = (&mut it, more) else { panic!("maps") };
    all.extend(more);
    all.retain(|_, value| !value.is_null());
    it
}

#[test]
fn a_token_service_and_what_it_is_asked_for() {
    let settings = |exchange: Value| {
        let folder = folder();
        let mut page: Value = serde_saphyr::from_str(page()).expect("the page");
        page["upstreams"][0]["tokenExchange"] = exchange;
        let mut config = parse(&page.to_string(), folder.path()).expect("no faults");
        (config.upstreams.remove(0).token_exchange.expect("an exchange"), folder)
    };
    let (least, _folder) = settings(exchange("http://127.0.0.1:1/token", json!({})));
    let expected = TokenExchange {
        url: "http://127.0.0.1:1/token".parse().expect("a URL"),
        verification: upstream::Verification::Loopback,
        client_id: "lictor".into(),
        client_secret: ClientSecret::Environment("PATH".into()),
        audience: Some("crm".into()),
        resource: None,
        scopes: vec![],
        required: true,
    };
    assert_eq!(least, expected);
    let more = json!({
        "clientSecretEnv": null, "clientSecretFile": "key.pem", "roots": "roots.pem",
        "audience": null, "resource": "urn:crm", "scopes": ["a:b", "c"], "required": false,
    });
    let (most, folder) = settings(exchange("https://sts.example.org/token?tenant=a", more));
    let expected = TokenExchange {
        url: "https://sts.example.org/token?tenant=a".parse().expect("a URL"),
        verification: upstream::Verification::WebPki {
            roots: Some(folder.path().join("roots.pem")),
        },
        client_secret: ClientSecret::File(folder.path().join("key.pem")),
        audience: None,
        resource: Some("urn:crm".into()),
        scopes: vec!["a:b".into(), "c".into()],
        required: false,
        ..expected
    };
    assert_eq!(most, expected);
}

#[test]
fn faults_of_token_services() {
    let (https, at) = ("https://sts.example.org/", "upstreams[0].tokenExchange");
    for (exchange, fault) in [
        (exchange(https, json!({ "url": null })), ".url: is missing"),
        (
            exchange("http://sts.example.org/", json!({})),
            ".url: plain HTTP is for loopback addresses only (say `https://`, with `roots` where it \
             has no public name)",
        ),
        (
            exchange("https://lictor:hunter2@sts.example.org/", json!({})),
            ".url: has user information; credentials don't belong in a URL",
        ),
        (
            exchange("http://localhost/", json!({ "roots": "roots.pem" })),
            ".roots: needs `https`; nothing proves who answers plain HTTP",
        ),
        (exchange(https, json!({ "clientId": null })), ".clientId: is missing"),
        (exchange(https, json!({ "clientId": "" })), ".clientId: is empty"),
        (
            exchange(https, json!({ "clientSecretEnv": null })),
            ": needs `clientSecretFile` or `clientSecretEnv`",
        ),
        (
            exchange(https, json!({ "clientSecretFile": "key.pem" })),
            ": has both `clientSecretFile` and `clientSecretEnv`; keep one",
        ),
        (
            exchange(https, json!({ "clientSecretEnv": "LICTOR_NO_SUCH" })),
            ".clientSecretEnv: the environment has no `LICTOR_NO_SUCH`",
        ),
        (
            exchange(https, json!({ "clientSecret": "hunter2" })),
            ".clientSecret: unknown key (did you mean `clientSecretEnv`?)",
        ),
        (
            exchange(https, json!({ "audience": null })),
            ": needs `audience` or `resource` (a token for no upstream in particular would be good \
             for any)",
        ),
        (exchange(https, json!({ "audience": "" })), ".audience: is empty"),
        (
            exchange(https, json!({ "resource": "/mcp" })),
            ".resource: has to be an absolute URI without a fragment",
        ),
        (
            exchange(https, json!({ "resource": "https://crm.example.org/#a" })),
            ".resource: has to be an absolute URI without a fragment",
        ),
        (
            exchange(https, json!({ "scopes": ["a", "b c"] })),
            ".scopes[1]: is no scope (visible ASCII without spaces, quotes and backslashes)",
        ),
    ] {
        let told = faults_with("/upstreams/0/tokenExchange", exchange);
        assert_eq!(told, [format!("{at}{fault}")]);
        assert!(!told[0].contains("hunter2"));
    }
    let told = faults_after(|page| {
        page["upstreams"][0] = json!({
            "name": "files", "command": ["server"], "tokenExchange": exchange(https, json!({})),
        });
    });
    assert_eq!(told, [format!("{at}: is for servers with a `url` only")]);
}

//! Configurations that aren't taken over: the old one stays in force, whole, and it is told why.

use super::*;

/// A line of the log about a configuration that was not taken over.
async fn told(lictor: &Lictor, text: &str) {
    let looking = async {
        loop {
            let logs = lictor.logs();
            let mut lines = logs.iter().filter(|line| line.contains("configuration not reloaded"));
            if lines.any(|line| line.contains(text)) {
                return;
            }
            sleep(PAUSE).await;
        }
    };
    within(text, looking).await;
}

#[tokio::test]
async fn a_bad_configuration_changes_nothing_and_says_why() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let good = std::fs::read_to_string(lictor.directory().join("lictor.yaml")).expect("a file");
    // What every one of them would change besides.
    let route = "{ path: /mcp, protocol: mcp, upstream: files }";
    let more = format!("{route}, {{ path: /more, protocol: mcp, upstream: files }}");
    let other = good.replace(route, &more);
    let listener = other.lines().find(|line| line.contains("name: mutual")).expect("a listener");
    let cut = other.len() / 2;
    let rows = [
        ("half of it", other.get(..cut).expect("ASCII").to_owned(), ""),
        ("nothing", String::new(), "the file is empty"),
        ("an unknown key", format!("{other}nonesuch: 1\n"), "nonesuch"),
        ("no such upstream", other.replace("upstream: files }]", "upstream: nobody }]"), "nobody"),
        ("a class that isn't", other.replace("class: read", "class: reed"), "class"),
        ("no such policies", other.replace("directory: policies", "directory: none"), "none"),
        (
            "no such roots",
            other.replace(
                "upstreams:\n",
                "upstreams:\n- { name: far, url: 'https://far.example.org/', \
                 roots: none.pem }\n",
            ),
            "none.pem",
        ),
        // Restarts.
        ("an address", other.replacen("127.0.0.1:0", "127.0.0.2:0", 1), "listeners[0].bind"),
        ("a door", other.replacen("/agent-a", "/agent-c", 1), "listeners[0].tls"),
        (
            "a way",
            other.replacen("name: plain,", "name: plain, direction: outbound,", 1),
            "listeners[0].direction",
        ),
        (
            "a time",
            other.replacen("name: plain,", "name: plain, timeouts: { body: 5s },", 1),
            "listeners[0].timeouts.body",
        ),
        (
            "connections",
            other.replacen("name: plain,", "name: plain, maxConnections: 5,", 1),
            "listeners[0].maxConnections",
        ),
        (
            "one listener more",
            other.replace(
                listener,
                &format!("{listener}\n{}", listener.replace("name: mutual", "name: m2")),
            ),
            "the listener `m2` is new",
        ),
        ("one less", other.replace(&format!("{listener}\n"), ""), "the listener `mutual` is gone"),
        ("a ledger", other.replace("directory: ledger", "directory: ledger2"), "ledger: can't"),
        ("a state", format!("{other}state: {{ directory: state }}\n"), "state: can't"),
        (
            "an administration",
            other.replace("admin: { bind: '127.0.0.1:0'", "admin: { bind: '127.0.0.3:0'"),
            "admin.bind: can't",
        ),
        ("health", format!("{other}health: {{ bind: '127.0.0.1:0' }}\n"), "health.bind: can't"),
        ("logs", format!("{other}telemetry: {{ level: debug }}\n"), "telemetry: can't"),
        ("an identity", other.replace("key: key.pem", "key: other.pem"), "identity"),
    ];
    std::fs::copy(lictor.directory().join("key.pem"), lictor.directory().join("other.pem"))
        .expect("a file");
    let mut asked = 0;
    for (count, (name, text, why)) in rows.iter().enumerate() {
        assert_ne!(*text, other, "{name}");
        put(&lictor, "lictor.yaml", text);
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        reloads(&lictor, REJECTED, (count + 1) as f64).await;
        told(&lictor, why).await;
        assert_eq!(post_to(&lictor, "/mcp", &call("echo", "{}")).await.status, 200, "{name}");
        assert_eq!(post_to(&lictor, "/more", &call("echo", "{}")).await.status, 404, "{name}");
        asked += 2;
    }
    assert_eq!(sample(&metrics(&lictor).await, "lictor_config_reloads_total", APPLIED), 0.0);
    let restarts = rows.iter().filter(|(.., why)| why.contains("can't")).count();
    let lines = lictor.logs();
    let told = lines.iter().filter(|line| line.contains("restart Lictor for it")).count();
    assert!(told >= restarts, "{lines:#?}");
    // What was right in all of them.
    put(&lictor, "lictor.yaml", &other);
    reloads(&lictor, APPLIED, 1.0).await;
    assert_eq!(post_to(&lictor, "/more", &call("echo", "{}")).await.status, 200);
    lictor.stop(asked + 1).await;
}

#[tokio::test]
async fn policies_do_not_wait_for_a_configuration_that_waits_for_a_restart() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    edit(&lictor, "lictor.yaml", "directory: ledger", "directory: ledger2");
    put(
        &lictor,
        "policies/all.cedar",
        &format!(
            "{POLICIES}@id(\"no-echo\") forbid (principal, action, resource == Tool::\"files/echo\");"
        ),
    );
    let asking = async {
        let mut asked = 1;
        while post_to(&lictor, "/mcp", &call("echo", "{}")).await.json()["error"].is_null() {
            asked += 1;
            sleep(PAUSE).await;
        }
        asked
    };
    let asked = within("what is forbidden now", asking).await;
    told(&lictor, "ledger: can't change").await;
    lictor.stop(asked).await;
}

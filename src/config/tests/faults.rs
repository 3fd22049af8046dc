//! Each fault, with the words in which it is told.

use serde_json::json;

use super::*;

#[test]
fn each_fault_is_told_with_place_and_hint() {
    let plain = |bind: &str, more: Value| {
        let mut it = json!({
            "name": "plain", "bind": bind, "tls": "none", "identity": "spiffe://td/a",
            "routes": [{ "path": "/mcp", "protocol": "mcp", "upstream": "files" }],
        });
        let (Value::Object(it_), Value::Object(more)) = (&mut it, more) else { panic!("maps") };
        it_.extend(more);
        it
    };
    let route = |path: &str| json!([{ "path": path, "protocol": "mcp", "upstream": "files" }]);
    let two = json!([
        { "path": "/mcp", "protocol": "mcp", "upstream": "files" },
        { "path": "/MCP", "protocol": "mcp", "upstream": "files" },
    ]);
    let upstream = |url: &str, more: Value| {
        let mut it = json!({ "name": "other", "url": url });
        let (Value::Object(it_), Value::Object(more)) = (&mut it, more) else { panic!("maps") };
        it_.extend(more);
        it
    };
    for (pointer, value, fault) in [
        ("/ledgr", json!({}), "ledgr: unknown key (did you mean `ledger`?)"),
        (
            "/policy/zzz",
            json!(1),
            "policy.zzz: unknown key (known keys: directory, groups, pathTemplate)",
        ),
        ("/policy", json!({}), "policy.directory: is missing"),
        ("/policy", json!(null), "policy: has no value (give it one or leave the key out)"),
        ("/policy", json!([]), "policy: expected a map, found a list"),
        ("/policy/directory", json!(""), "policy.directory: is empty"),
        (
            "/policy/groups",
            json!({ "my ops": ["spiffe://td/a", "spiffe://td/a*"] }),
            "policy.groups[\"my ops\"][1]: `spiffe://td/a*` is no member: a workload path is one \
             or more segments of `A-Z`, `a-z`, `0-9`, `.`, `-`, `_` (a SPIFFE ID, or a prefix of \
             IDs that ends in `/*`)",
        ),
        (
            "/policy/pathTemplate",
            json!("/tenant/{tenant}/{tenant}"),
            "policy.pathTemplate: names two segments alike",
        ),
        ("/listeners", json!([]), "listeners: is empty (at least one entry is needed)"),
        (
            "/listeners/0/name",
            json!("In"),
            "listeners[0].name: \"In\" has the wrong form (1 to 63 characters of a-z, 0-9 and `-`, \
             such as `files`)",
        ),
        (
            "/listeners/0/tls",
            json!("mutal"),
            "listeners[0].tls: \"mutal\" is none of mutual, none (did you mean `mutual`?)",
        ),
        (
            "/listeners/0/tls",
            json!(true),
            "listeners[0].tls: true or false is none of mutual, none",
        ),
        (
            "/listeners/0/direction",
            json!("out"),
            "listeners[0].direction: \"out\" is none of inbound, outbound (did you mean `outbound`?)",
        ),
        (
            "/listeners/0/direction",
            json!("outbound"),
            "listeners[0].tls: calls of the workload beside come in over loopback (say `tls: none`)",
        ),
        (
            "/listeners/0/bind",
            json!("localhost:80"),
            "listeners[0].bind: `localhost:80` is no IP address with a port (such as \
             `127.0.0.1:8080` or `[::]:8443`)",
        ),
        (
            "/listeners/0/identity",
            json!("spiffe://td/a"),
            "listeners[0].identity: with mutual TLS, callers prove their identity (leave the key \
             out)",
        ),
        (
            "/listeners/0/hosts",
            json!(["ok.example.org", "*.example.org"]),
            "listeners[0].hosts[1]: `*.example.org` is not of the form that is sent (such as \
             `mcp.example.org:8443`)",
        ),
        (
            "/listeners/0/origins",
            json!(["null"]),
            "listeners[0].origins[0]: `null` is not of the form that is sent (such as \
             `https://app.example.org`)",
        ),
        (
            "/listeners/0/maxConnections",
            json!(0),
            "listeners[0].maxConnections: has to be at least 1",
        ),
        (
            "/listeners/0/maxConnections",
            json!(1e30),
            "listeners[0].maxConnections: has to be at most 1000000",
        ),
        (
            "/listeners/0/timeouts",
            json!({ "head": 30 }),
            "listeners[0].timeouts.head: expected text, found a number (a whole number and its \
             unit: ms, s, m, h or d, such as `30s`)",
        ),
        (
            "/listeners/0/timeouts",
            json!({ "head": "0s" }),
            "listeners[0].timeouts.head: has to be longer than zero",
        ),
        (
            "/listeners/0/routes",
            two,
            "listeners[0].routes[1].path: `/MCP` is the path of routes[0] already (paths that \
             differ in case only count as the same)",
        ),
        ("/listeners/0/routes", route("mcp"), "listeners[0].routes[0].path: has to start with `/`"),
        ("/listeners/0/routes", route("/a/../b"), "listeners[0].routes[0].path: has a dot segment"),
        (
            "/listeners/0/routes",
            route("/a/"),
            "listeners[0].routes[0].path: has an empty segment or a trailing slash",
        ),
        (
            "/listeners/0/routes",
            route("/a%2fb"),
            "listeners[0].routes[0].path: has to be written without percent-encoding",
        ),
        (
            "/listeners/0/routes",
            route("/a?b"),
            "listeners[0].routes[0].path: is a path without query and fragment",
        ),
        (
            "/listeners/0/routes",
            route("/a\\b"),
            "listeners[0].routes[0].path: may hold `A-Z`, `a-z`, `0-9`, `-`, `.`, `_`, `~` and `/` \
             only",
        ),
        (
            "/listeners/0/routes/0/upstream",
            json!("fils"),
            "listeners[0].routes[0].upstream: no upstream is named `fils` (did you mean `files`?)",
        ),
        (
            "/listeners/0/routes/0/upstream",
            json!("zzz"),
            "listeners[0].routes[0].upstream: no upstream is named `zzz`",
        ),
        (
            "/listeners/-",
            plain("0.0.0.0:1", json!({})),
            "listeners[1].bind: a listener without TLS has to bind a loopback address (such as \
             `127.0.0.1:8080`, or say `tls: mutual`)",
        ),
        (
            "/listeners/-",
            plain("127.0.0.1:8443", json!({})),
            "listeners[1].bind: `127.0.0.1:8443` is taken by `listeners[0].bind`",
        ),
        (
            "/listeners/-",
            plain("127.0.0.1:1", json!({ "identity": "agent" })),
            "listeners[1].identity: `agent`: a SPIFFE ID starts with `spiffe://`",
        ),
        (
            "/listeners/-",
            plain("127.0.0.1:1", json!({ "name": "inbound" })),
            "listeners[1].name: the name `inbound` is taken",
        ),
        (
            "/upstreams/-",
            upstream("http://127.0.0.1/", json!({ "name": "files" })),
            "upstreams[1].name: the name `files` is taken",
        ),
        (
            "/upstreams/-",
            upstream("http://10.0.0.1/", json!({})),
            "upstreams[1].url: plain HTTP is for loopback addresses only (say `https://`, with \
             `spiffeId` or `roots` where it has no public name)",
        ),
        (
            "/upstreams/-",
            upstream("http://127.0.0.1.example.org/", json!({})),
            "upstreams[1].url: plain HTTP is for loopback addresses only (say `https://`, with \
             `spiffeId` or `roots` where it has no public name)",
        ),
        (
            "/upstreams/-",
            upstream("http://127.0.0.1/", json!({ "spiffeId": "spiffe://td/a" })),
            "upstreams[1].spiffeId: needs `https`; nothing proves who answers plain HTTP",
        ),
        (
            "/upstreams/-",
            upstream("http://127.0.0.1/", json!({ "roots": "roots.pem" })),
            "upstreams[1].roots: needs `https`; nothing proves who answers plain HTTP",
        ),
        (
            "/upstreams/-",
            upstream("https://x/", json!({ "roots": "roots.pem", "spiffeId": "spiffe://td/a" })),
            "upstreams[1]: has both `spiffeId` and `roots`; keep one",
        ),
        (
            "/upstreams/-",
            upstream("https://x/", json!({ "spiffeId": "spiffe://td" })),
            "upstreams[1].spiffeId: `spiffe://td`: a workload path is one or more segments of \
             `A-Z`, `a-z`, `0-9`, `.`, `-`, `_`",
        ),
        (
            "/upstreams/-",
            upstream("https://u:secret@x/", json!({})),
            "upstreams[1].url: has user information; credentials don't belong in a URL",
        ),
        (
            "/upstreams/-",
            upstream("https://u:secret@", json!({})),
            "upstreams[1].url: is no URL: empty host (such as `http://127.0.0.1:9000/mcp`)",
        ),
        (
            "/upstreams/-",
            upstream("https://x/#a", json!({})),
            "upstreams[1].url: has a fragment, which is never sent",
        ),
        (
            "/upstreams/-",
            upstream("ftp://x/", json!({})),
            "upstreams[1].url: has to start with `http://` or `https://`",
        ),
        (
            "/upstreams/-",
            upstream("https://x/", json!({ "host": "https://y" })),
            "upstreams[1].host: `https://y` is no host (such as `files.example.org`)",
        ),
        (
            "/upstreams/-",
            upstream("https://x/", json!({ "tools": { "a.b": { "class": "list" } } })),
            "upstreams[1].tools[\"a.b\"].class: \"list\" is none of read, write, execute",
        ),
        (
            "/upstreams/-",
            upstream("https://x/", json!({ "trust": "blind" })),
            "upstreams[1].trust: \"blind\" is none of trusted",
        ),
        (
            "/identity/spiffe/workloadApi",
            json!("/run/agent.sock"),
            "identity.spiffe.workloadApi: has to be `unix:///path/of/socket` or \
             `tcp://address:port`",
        ),
        ("/identity", json!({}), "identity.spiffe: is missing"),
        (
            "/identity/spiffe/files",
            json!({ "certificate": "svid.pem", "key": "key.pem", "bundles": { "td": "key.pem" } }),
            "identity.spiffe: has both `workloadApi` and `files`; keep one",
        ),
        (
            "/identity/spiffe",
            json!({ "files":
                { "certificate": "svid.pem", "key": "key.pem", "bundles": { "TD": "key.pem" } } }),
            "identity.spiffe.files.bundles.TD: a trust domain is 1 to 255 characters of `a-z`, \
             `0-9`, `.`, `-`, `_`",
        ),
        (
            "/ledger/commitInterval",
            json!("99999999999999999999s"),
            "ledger.commitInterval: `99999999999999999999s` is no duration: number is too large or \
             cannot be represented without a lack of precision (values below 1ns are not \
             supported)",
        ),
        (
            "/limits",
            json!({ "body": "2MiB", "bodiesInFlight": "1MiB" }),
            "limits.bodiesInFlight: has to be at least `limits.body`, or no such body is served",
        ),
        ("/limits", json!({ "body": "0B" }), "limits.body: has to be more than zero"),
        (
            "/limits",
            json!({ "body": "99999999999999999999GiB" }),
            "limits.body: `99999999999999999999GiB` is too large",
        ),
        (
            "/limits",
            json!({ "body": "4" }),
            "limits.body: \"4\" has the wrong form (a whole number and its unit: B, kB, MB, GB, \
             KiB, MiB or GiB, such as `4MiB`)",
        ),
        ("/health", json!({}), "health.bind: is missing"),
        (
            "/health",
            json!({ "bind": "0.0.0.0:9440" }),
            "health.bind: `0.0.0.0:9440` is taken by `admin.bind`",
        ),
    ] {
        assert_eq!(faults_with(pointer, value.clone()), [fault], "{pointer}: {value}");
    }
}

#[test]
fn addresses_overlap_where_the_system_says_so() {
    for (listener, health, overlap) in [
        ("0.0.0.0:8443", "127.0.0.1:8443", true),
        ("127.0.0.1:8443", "0.0.0.0:8443", true),
        ("[::]:8443", "127.0.0.1:8443", true),
        ("[::]:8443", "0.0.0.0:8443", true),
        ("[::1]:8443", "[::1]:8443", true),
        ("0.0.0.0:8443", "[::1]:8443", false),
        ("127.0.0.1:8443", "127.0.0.2:8443", false),
        ("127.0.0.1:8443", "127.0.0.1:8444", false),
        ("127.0.0.1:0", "127.0.0.1:0", false),
    ] {
        let faults = faults_after(|page| {
            page["listeners"][0]["bind"] = json!(listener);
            page["health"] = json!({ "bind": health });
        });
        assert_eq!(faults.len(), usize::from(overlap), "{listener} {health} {faults:?}");
    }
}

#[test]
fn what_needs_an_identity_says_so() {
    let without = faults_after(|page| {
        page.as_object_mut().expect("a map").remove("identity");
        page["upstreams"][0] = json!({
            "name": "files", "url": "https://x/", "spiffeId": "spiffe://td/a"
        });
    });
    let hint = "(add `identity: { spiffe: { workloadApi: … } }`)";
    assert_eq!(
        without,
        [
            format!("listeners[0].tls: mutual TLS needs an identity of Lictor's own {hint}"),
            format!(
                "upstreams[0].spiffeId: an upstream with a SPIFFE ID needs an identity of Lictor's \
                 own {hint}"
            ),
        ]
    );
}

#[test]
fn unreadable_files_are_faults() {
    let files = json!({ "files":
        { "certificate": "no.pem", "key": "policies", "bundles": { "td": "no.pem" } } });
    let faults = faults_with("/identity/spiffe", files).join("\n");
    for (place, problem) in [
        ("identity.spiffe.files.certificate", "no.pem` can't be read: No such file"),
        ("identity.spiffe.files.key", "policies` can't be read: it is a directory"),
        ("identity.spiffe.files.bundles.td", "no.pem` can't be read: No such file"),
    ] {
        let told = faults.lines().any(|line| line.starts_with(place) && line.contains(problem));
        assert!(told, "{place}: {problem} in\n{faults}");
    }
    let directory = faults_with("/policy/directory", json!("nowhere")).join("\n");
    assert!(directory.contains("nowhere` can't be read: No such file"), "{directory}");
}

#[test]
fn a_faulty_part_hides_no_other() {
    let faults = faults_after(|page| {
        page["listeners"][0]["name"] = json!(7);
        page["listeners"][0]["bind"] = json!("x");
        page["listeners"][0]["routes"][0] = json!({ "path": "a", "upstream": "b", "mod": 1 });
        page["upstreams"][0]["name"] = json!("Files");
        page["upstreams"][0]["url"] = json!("http://example.org");
        page["ledger"] = json!({ "directory": [] });
        page["telemetry"] = json!({ "logs": "xml", "level": "info" });
    });
    let places: Vec<_> = faults.iter().filter_map(|line| line.split_once(": ")).collect();
    let mut places: Vec<_> = places.into_iter().map(|(place, _)| place).collect();
    places.sort_unstable();
    assert_eq!(
        places,
        [
            "ledger.directory",
            "listeners[0].bind",
            "listeners[0].name",
            "listeners[0].routes[0].mod",
            "listeners[0].routes[0].path",
            "listeners[0].routes[0].protocol",
            "listeners[0].routes[0].upstream",
            "telemetry.logs",
            "upstreams[0].name",
            "upstreams[0].url",
        ]
    );
}

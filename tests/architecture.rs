//! The import table of `docs/architecture.md`, held against the code: who may use whom.

#![expect(clippy::expect_used, clippy::string_slice, reason = "a test may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Module → the modules of ours that it may name. What everybody may use isn't listed: `telemetry`.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("admin", &["ledger", "policy", "revocation", "state", "upstream", "identity"]),
    ("bridge", &["protocol", "upstream"]),
    (
        "cli",
        &[
            "bridge",
            "config",
            "delegation",
            "governance",
            "identity",
            "ledger",
            "listener",
            "policy",
            "protocol",
            "proxy",
            "server",
            "state",
            "upstream",
        ],
    ),
    (
        "config",
        &[
            "admin",
            "delegation",
            "identity",
            "ledger",
            "limits",
            "listener",
            "policy",
            "protocol",
            "proxy",
            "state",
            "upstream",
            "written",
        ],
    ),
    ("delegation", &["identity", "protocol"]),
    ("denial", &["protocol", "identity", "delegation", "limits", "revocation"]),
    (
        "exchange",
        &[
            "delegation",
            "denial",
            "governance",
            "identity",
            "ledger",
            "limits",
            "policy",
            "protocol",
        ],
    ),
    ("governance", &["policy", "denial", "protocol", "identity", "delegation", "revocation"]),
    ("identity", &["tls"]),
    ("ledger", &[]),
    ("limits", &["identity", "protocol"]),
    ("listener", &["identity", "tls"]),
    ("policy", &["protocol", "identity", "limits", "written"]),
    ("protocol", &[]),
    (
        "proxy",
        &[
            "delegation",
            "denial",
            "exchange",
            "governance",
            "identity",
            "ledger",
            "limits",
            "listener",
            "policy",
            "protocol",
            "response",
            "revocation",
            "state",
            "upstream",
        ],
    ),
    ("response", &["protocol", "governance"]),
    ("revocation", &["identity", "ledger", "state"]),
    (
        "server",
        &[
            "admin",
            "config",
            "exchange",
            "governance",
            "identity",
            "ledger",
            "limits",
            "listener",
            "policy",
            "proxy",
            "protocol",
            "response",
            "revocation",
            "state",
            "upstream",
        ],
    ),
    ("state", &["tls"]),
    ("telemetry", &[]),
    ("tls", &[]),
    ("upstream", &["identity", "protocol", "governance", "tls"]),
    ("written", &[]),
];

/// Crate → the only modules that may name it.
const NAMED_IN: &[(&str, &[&str])] = &[
    ("pingora", &["proxy", "listener", "server"]),
    ("hyper", &["upstream", "admin", "cli"]),
    ("hyper_util", &["upstream", "admin", "cli"]),
    ("axum", &["admin"]),
    ("cedar_policy", &["policy"]),
    ("clap", &["cli"]),
    ("spiffe", &["identity"]),
    ("redb", &["state"]),
    ("redis", &["state"]),
];

/// Crate → modules that may not name it: they decide, and deciding waits for nothing.
const NOT_NAMED_IN: &[(&str, &[&str])] = &[(
    "tokio",
    &["protocol", "governance", "policy", "denial", "delegation", "exchange", "limits"],
)];

#[test]
fn modules_import_only_what_the_table_allows() {
    let mut faults = Vec::new();
    for (module, used) in uses() {
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == module) else {
            faults.push(format!("`{module}` has no row in the table"));
            continue;
        };
        for other in used {
            let known = MAY_IMPORT.iter().any(|(name, _)| *name == other);
            if known && other != module && other != "telemetry" && !allowed.contains(&&*other) {
                faults.push(format!("`{module}` uses `{other}`"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn crates_are_named_only_where_they_belong() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let module = module_of(&path);
        for (name, homes) in NAMED_IN {
            if names(&text, name) && !homes.contains(&&*module) {
                faults.push(format!("{} names `{name}`", path.display()));
            }
        }
        for (name, strangers) in NOT_NAMED_IN {
            let tests = path.ends_with("tests.rs");
            if !tests && names(&text, name) && strangers.contains(&&*module) {
                faults.push(format!("{} names `{name}`", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// What is forwarded for somebody else needs a permit; the way without one is for callers of their own.
#[test]
fn only_the_bridge_sends_without_a_permit() {
    let strangers: Vec<_> = sources()
        .into_iter()
        .filter(|(path, text)| {
            let module = module_of(path);
            let home = matches!(&*module, "bridge" | "cli" | "upstream");
            !home && code_of(text).contains("Unjudged")
        })
        .map(|(path, _)| path)
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn files_are_of_a_size_to_be_read() {
    let long: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| text.lines().count() > 600)
        .map(|(path, _)| path)
        .collect();
    assert!(long.is_empty(), "over 600 lines: {long:?}");
}

/// Module → the modules of ours that its files name in `crate::…`, in `use` lines and elsewhere.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let used = uses.entry(module_of(&path)).or_default();
        let code = code_of(&text);
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            match rest.strip_prefix('{') {
                Some(group) => used.extend(first_names(group)),
                None => used.extend(identifier(rest)),
            }
        }
    }
    uses
}

/// The first name of each item of a `{…}` group whose opening brace is gone.
fn first_names(group: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut start = true;
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => break,
            b'}' => depth -= 1,
            b',' if depth == 0 => start = true,
            _ if start && depth == 0 && byte.is_ascii_alphabetic() => {
                names.extend(identifier(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// Whether code names a crate in a path or a `use`.
fn names(text: &str, name: &str) -> bool {
    let code = code_of(text);
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + name.len()..];
        let starts =
            before.is_none_or(|c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | ':' | '.'));
        starts && (after.starts_with("::") && !code[..at].ends_with("r#"))
    })
}

/// Without comments and unit tests, which stand at a file's end.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(directory).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "tests") {
                    walk(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a readable file");
                let relative = path.strip_prefix(root()).expect("below src").to_owned();
                found.push((relative, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let is_test = |path: &Path| path.ends_with("tests.rs") || path.ends_with("properties.rs");
    found
        .retain(|(path, _)| !matches!(path.to_str(), Some("lib.rs" | "main.rs")) && !is_test(path));
    assert!(found.len() > 50, "the sources were found");
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// `proxy/relay.rs` and `proxy.rs` are both of module `proxy`.
fn module_of(path: &Path) -> String {
    let first =
        path.components().next().expect("a path").as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

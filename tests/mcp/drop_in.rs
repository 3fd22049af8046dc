//! `lictor run --mcp URL`: governance of one server without a file.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use tempfile::TempDir;

use crate::{
    http::Caller,
    process::{Process, lictor_says, stdout},
    site::{call, request, send},
    stub::{Stub, json, result},
};

#[tokio::test]
async fn one_line_governs_a_server() {
    let stub = Stub::answering(|seen| {
        json(&result(seen, r#"{"tools":[{"name":"wipe"},{"name":"echo"}]}"#))
    })
    .await;
    let home = TempDir::new().expect("a directory");
    let url = stub.url();
    let arguments = ["run", "--mcp", &url, "--bind", "127.0.0.1:0"];
    let mut places: Vec<(PathBuf, PathBuf)> = Vec::new();
    // The second time what is there is used, policies of the user's own included.
    for wipes in [true, false] {
        let mut lictor = Process::start(home.path(), &arguments, home.path());
        let address = lictor.address().await;
        let printed = lictor.printed();
        assert!(printed.contains(&format!("governing {url}")), "{printed}");
        let place = |name: &str| {
            let line = printed.lines().find_map(|line| line.trim().strip_prefix(name));
            PathBuf::from(line.expect("a line").trim())
        };
        let (policies, ledger) = (place("policies:"), place("ledger:"));
        assert!(policies.starts_with(home.path().join(".local/state/lictor")), "{printed}");
        let mode =
            ledger.parent().expect("a folder").metadata().expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o077, 0, "{mode:?}");

        let mut caller = Caller::plain(address).await;
        let before = stub.requests();
        let answer = send(&mut caller, "POST", &[], call("wipe", "{}")).await.whole().await;
        assert_eq!(answer.json().get("error").is_none(), wipes);
        assert_eq!(stub.requests() - before, usize::from(wipes));
        let list = send(&mut caller, "POST", &[], request("tools/list", "{}")).await.whole().await;
        assert_eq!(list.text().contains("wipe"), wipes, "{}", list.text());

        let forbid = r#"@id("no-wipe") forbid (principal, action, resource == Tool::"mcp/wipe");"#;
        std::fs::write(policies.join("mine.cedar"), forbid).expect("a file");
        drop(caller);
        assert!(lictor.stop().await.success());
        let directory = ledger.to_str().expect("UTF-8");
        let verified = lictor_says(home.path(), &["ledger", "verify", directory]).await;
        assert!(verified.status.success(), "{verified:?}");
        let listed = lictor_says(home.path(), &["ledger", "list", directory, "--json"]).await;
        let listed = stdout(&listed);
        let who = "spiffe://local.lictor.internal/operator";
        assert!(listed.lines().filter(|line| line.contains(who)).count() >= 2, "{listed}");
        places.push((policies, ledger));
    }
    assert_eq!(places[0], places[1]);
}

#[tokio::test]
async fn it_listens_on_loopback_only_and_takes_no_strange_url() {
    let home = TempDir::new().expect("a directory");
    for (url, bind) in [
        ("http://127.0.0.1:9/mcp", "0.0.0.0:0"),
        ("http://192.0.2.1/mcp", "127.0.0.1:0"),
        ("ftp://127.0.0.1/mcp", "127.0.0.1:0"),
        ("http://user@127.0.0.1/mcp", "127.0.0.1:0"),
        ("nonsense", "127.0.0.1:0"),
    ] {
        let arguments = ["run", "--mcp", url, "--bind", bind, "--validate-only"];
        let output = lictor_says(home.path(), &arguments).await;
        assert_eq!(output.status.code(), Some(64), "{url} {bind}: {output:?}");
    }
}

//! Who may have programs run.

use tempfile::TempDir;
use tokio::process::Command;

use super::*;
use crate::{
    process::{Process, lictor_says, stdout},
    site::call,
};

#[tokio::test]
async fn a_file_alone_runs_nothing() {
    let directory = site().written();
    let output = lictor_says(directory.path(), &["run", "--file", "lictor.yaml"]).await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(told.contains("`files`") && told.contains("--allow-stdio"), "{told}");
    assert!(!directory.path().join("ledger").exists());
    // Looking at it is nothing that needs a permission.
    for arguments in
        [&["run", "--file", "lictor.yaml", "--validate-only"][..], &["check", "lictor.yaml"]]
    {
        let output = lictor_says(directory.path(), arguments).await;
        assert!(output.status.success(), "{output:?}");
    }
    let checked = stdout(&lictor_says(directory.path(), &["check", "lictor.yaml"]).await);
    assert!(checked.contains("upstream files: runs `python3` with 1 argument"), "{checked}");
    let arguments = ["run", "--file", "lictor.yaml", "--allow-stdio"];
    let mut lictor = Process::start(directory.path(), &arguments, directory.path());
    lictor.told(|lines| lines.iter().find(|line| line.contains("listening")).cloned()).await;
    assert!(lictor.stop().await.success());
}

#[tokio::test]
async fn a_reload_runs_nothing_either() {
    let directory = Site::to("http://127.0.0.1:9/mcp").written();
    let mut lictor =
        Process::start(directory.path(), &["run", "--file", "lictor.yaml"], directory.path());
    lictor.told(|lines| lines.iter().find(|line| line.contains("listening")).cloned()).await;
    let file = directory.path().join("lictor.yaml");
    let text = std::fs::read_to_string(&file).expect("a file");
    let command = format!("command: {}", command(""));
    let changed = text.replace("url: 'http://127.0.0.1:9/mcp'", &command);
    assert_ne!(text, changed);
    std::fs::write(file, changed).expect("a file");
    let told = lictor
        .told(|lines| {
            lines.iter().find(|line| line.contains("configuration not reloaded")).cloned()
        })
        .await;
    assert!(told.contains("`files`") && told.contains("--allow-stdio"), "{told}");
    assert!(lictor.stop().await.success());
}

#[tokio::test]
async fn a_command_line_governs_a_command() {
    let home = TempDir::new().expect("a directory");
    let script = script();
    let arguments = ["run", "--bind", "127.0.0.1:0", "--env", "NEXTEST", "--", "python3", &script];
    let mut lictor = Process::start(home.path(), &arguments, home.path());
    let address = lictor.address().await;
    let printed = lictor.printed();
    assert!(printed.contains(&format!("governing python3 {script} at")), "{printed}");
    let mut caller = Caller::plain(address).await;
    let session = Session::open(&mut caller).await;
    let answer = session.post(&mut caller, &call("where", "{}")).await.whole().await;
    let here = home.path().canonicalize().expect("a directory");
    assert_eq!(text(&answer), here.to_str().expect("UTF-8"));
    let environment = session.call(&mut caller, "env", "{}").await;
    assert_eq!(environment.contains("NEXTEST"), std::env::var_os("NEXTEST").is_some());
    let pid = session.call(&mut caller, "pid", "{}").await;
    drop(caller);
    assert!(lictor.stop().await.success());
    let alive = Command::new("kill").args(["-0", &pid]).output().await.expect("`kill` runs");
    assert!(!alive.status.success());
}

#[tokio::test]
async fn a_command_line_says_what_it_wants() {
    let home = TempDir::new().expect("a directory");
    for arguments in [
        &["run", "--mcp", "http://127.0.0.1:9/mcp", "--", "cat"][..],
        &["run", "--file", "x.yaml", "--", "cat"],
        &["run", "--"],
        &["run", "--validate-only", "--", ""],
    ] {
        let output = lictor_says(home.path(), arguments).await;
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {output:?}");
    }
}

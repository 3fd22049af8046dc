//! The commands of `docs/revocation.md` and `docs/resilience.md`, run as they stand there.

use super::*;

const PAGES: [&str; 2] =
    [include_str!("../../../docs/revocation.md"), include_str!("../../../docs/resilience.md")];

#[tokio::test]
async fn the_commands_of_the_pages_work() {
    let blocks = PAGES.iter().flat_map(|page| page.split("```sh\n").skip(1));
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let lines: Vec<_> = blocks.flat_map(str::lines).filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 8, "{lines:?}");
    let stub = Stub::json().await;
    let template = "policy: { directory: policies, pathTemplate: '/tenant/{tenant}/{agent}' }";
    let directory = Site::to(&stub.url()).written();
    let file = directory.path().join("lictor.yaml");
    let yaml = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(&file, yaml.replace("policy: { directory: policies }", template))
        .expect("written");
    let lictor = Lictor::run(directory, None).await;
    let admin = address(&lictor.logs(), "administration listens", None).expect("it listens");
    let mut ids: Vec<String> = Vec::new();
    for line in lines {
        // Only where Lictor is found differs, and which revocation there is to lift.
        let line = line.replace("/run/secrets/lictor-admin", "token");
        let line = line.replace("127.0.0.1:9440", &admin.to_string());
        let line = match ids.last() {
            Some(id) => line.replace("01993f0e-8d11-7f02-b6cb-3a5d2f1c9e70", id.as_str()),
            None => line,
        };
        let binary = format!("{} revoke", env!("CARGO_BIN_EXE_lictor"));
        let line = line.replace("lictor revoke", &binary);
        let line = if line.contains("--admin") || line.contains("curl") {
            line
        } else {
            format!("{line} --admin http://{admin}")
        };
        let mut shell = Command::new("bash");
        shell.args(["-e", "-c", &line]).current_dir(lictor.directory());
        let output = within("a command", shell.output()).await.expect("bash runs");
        assert!(output.status.success(), "{line}: {output:?}");
        let told = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(!told.contains("\"error\""), "{line}: {told}");
        if let Some(id) = told.strip_prefix("revoked ").and_then(|told| told.split(':').next()) {
            ids.push(id.to_owned());
        }
    }
    assert!(recorded_any(&lictor).await);
    lictor.stop(0).await;
}

async fn recorded_any(lictor: &Lictor) -> bool {
    let entries = lictor.entries().await;
    entries.iter().any(|entry| entry["kind"] == "revocation" && entry["status"] == "lifted")
}

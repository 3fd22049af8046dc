//! The command line, as a user runs it.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    io::{self, Write},
    path::Path,
    process::{Command, ExitCode, Output},
};

use tempfile::TempDir;

const GOOD: &str = "
listeners:
  - name: local
    bind: 127.0.0.1:8080
    tls: none
    identity: spiffe://example.org/agent
    routes: [{ path: /mcp, protocol: mcp, upstream: files }]
upstreams:
  - { name: files, url: http://127.0.0.1:9000/mcp }
policy: { directory: policies }
ledger: { directory: ledger }
";

const GRACE: &str = "TERMINATION_GRACE_PERIOD_SECONDS";

fn lictor(arguments: &[&str], folder: &Path) -> Output {
    command(arguments, folder).output().expect("lictor runs")
}

fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.args(arguments).current_dir(folder).env_remove(GRACE);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn folder(config: &str) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("policies")).expect("a folder");
    std::fs::write(folder.path().join("lictor.yaml"), config).expect("a file");
    folder
}

#[test]
fn check_tells_limits_and_where_state_is() {
    let limit = "rateLimits: [{ name: per-agent, rate: 10/1m }]";
    let folder = folder(&format!("{GOOD}{limit}\nstate: {{ directory: owners }}\n"));
    let told = lictor(&["check", "lictor.yaml"], folder.path());
    let told = text(&told.stdout);
    assert!(told.contains("\nlimit per-agent\n"), "{told}");
    assert!(told.contains("\nstate: ") && told.contains("owners\n"), "{told}");
}

#[test]
fn check_tells_what_a_good_file_would_run() {
    let folder = folder(GOOD);
    let output = lictor(&["check", "lictor.yaml"], folder.path());
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        text(&output.stdout),
        "lictor.yaml: no faults\n\
         listener local: inbound, 127.0.0.1:8080, no TLS, every caller is spiffe://example.org/agent\n  \
         /mcp to files, enforce\n\
         upstream files: http://127.0.0.1:9000/mcp, loopback\n\
         policies: policies\n\
         ledger: ledger\n\
         state: in memory\n\
         administration: 127.0.0.1:9440\n\
         health: with administration\n\
         drain: 25s\n\
         warning: no policy permits anything, so every call is refused \
         (hint: write at least one `permit`)\n"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_drain_fits_the_grace_period() {
    let written = format!("{GOOD}drain: 2m\n");
    for (config, grace, told) in [
        (GOOD, "30", Ok("25s")),
        (GOOD, "600", Ok("9m 55s")),
        (GOOD, "3", Ok("1s")),
        (&written, "30", Ok("2m")),
        (&written, "soon", Ok("2m")),
        (GOOD, "soon", Err("is no whole number of seconds")),
        (GOOD, "", Err("is no whole number of seconds")),
    ] {
        let folder = folder(config);
        let mut command = command(&["check", "lictor.yaml"], folder.path());
        let output = command.env(GRACE, grace).output().expect("lictor runs");
        let fine = match told {
            Ok(drain) => text(&output.stdout).contains(&format!("\ndrain: {drain}\n")),
            Err(fault) => text(&output.stderr).contains(fault) && output.status.code() == Some(64),
        };
        assert!(fine, "{grace}: {output:?}");
    }
}

#[test]
fn check_tells_all_faults_at_once() {
    let bad = GOOD.replace("tls: none", "tls: nine").replace("upstream: files", "upstream: fils");
    let folder = folder(&bad.replace("ledger:", "ledgr:"));
    let output = lictor(&["check", "lictor.yaml"], folder.path());
    assert_eq!(text(&output.stdout), "");
    assert_eq!(
        text(&output.stderr),
        "lictor.yaml: listeners[0].tls: \"nine\" is none of mutual, none (did you mean `none`?)\n\
         lictor.yaml: ledgr: unknown key (did you mean `ledger`?)\n\
         lictor.yaml: listeners[0].routes[0].upstream: no upstream is named `fils` (did you mean \
         `files`?)\n\
         lictor.yaml: ledger: is missing\n\
         4 faults\n"
    );
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn a_wrong_command_line_is_a_fault() {
    let folder = folder(GOOD);
    for arguments in [&[][..], &["chek"], &["check"], &["check", "--schema", "lictor.yaml"]] {
        let output = lictor(arguments, folder.path());
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        assert!(text(&output.stderr).contains("Usage: "), "{arguments:?}");
    }
    let output = lictor(&["--version"], folder.path());
    assert_eq!(text(&output.stdout), concat!("lictor ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(output.status.code(), Some(0));
}

/// `lictor check --schema > docs/lictor.schema.json` writes it anew.
#[test]
fn the_published_schema_is_the_one_that_is_used() {
    let folder = folder(GOOD);
    let output = lictor(&["check", "--schema"], folder.path());
    assert_eq!(output.status.code(), Some(0));
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/lictor.schema.json");
    let published = std::fs::read_to_string(published).expect("the published schema");
    assert!(text(&output.stdout) == published, "docs/lictor.schema.json is not up to date");
}

/// A reader that has gone must not turn faults into success.
#[test]
fn what_cannot_be_told_is_no_success() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for arguments in [["lictor", "check", "nowhere.yaml"], ["lictor", "check", "--schema"]] {
        let code = lictor::cli::run(arguments.map(Into::into), &mut Gone, &mut Gone);
        // Exit codes can't be compared.
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(74)), "{arguments:?}");
    }
}

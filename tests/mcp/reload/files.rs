//! The files beside the configuration: each is followed, and a bad one changes nothing and says so.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use super::*;
use crate::{ca::Ca, site::ask};

#[tokio::test]
async fn a_bad_file_of_each_kind_changes_nothing_and_says_so() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let rows = [
        ("policies/all.cedar", "permit (principal, action, resource", "policies not reloaded"),
        ("policies/more.cedarschema", "entity ;", "policies not reloaded"),
        ("policies/team.grants.yaml", "nonesuch: 1", "policies not reloaded"),
        (
            "td-one.example.org.pem",
            "-----BEGIN CERTIFICATE-----\nAA",
            "identity can't be refreshed",
        ),
        ("svid.pem", "", "identity can't be refreshed"),
        ("key.pem", "no key", "identity can't be refreshed"),
        ("lictor.yaml", "listeners: [", "configuration not reloaded"),
    ];
    let mut asked = 0;
    for (file, text, said) in rows {
        let path = lictor.directory().join(file);
        let good = std::fs::read_to_string(&path).ok();
        let lines = lictor.logs().len();
        put(&lictor, file, text);
        lictor.signal("HUP").await;
        let looking = async {
            while !lictor.logs().iter().skip(lines).any(|line| line.contains(said)) {
                sleep(PAUSE).await;
            }
        };
        within(file, looking).await;
        for (tool, served) in [("echo", true), ("wipe", false)] {
            let mut caller = crate::site::agent_b(&lictor).await;
            let answer = send(&mut caller, "POST", &[], call(tool, "{}")).await.whole().await;
            assert_eq!(answer.json()["error"].is_null(), served, "{file}");
            asked += 1;
        }
        match good {
            Some(good) => put(&lictor, file, &good),
            None => std::fs::remove_file(path).expect("a file"),
        }
    }
    lictor.stop(asked).await;
}

/// Puts something at a path.
type Put = fn(&Path);

/// Files that nobody can read as policies, each with how it gets there and what is said of it.
const UNREADABLE: [(&str, Put, &str); 5] = [
    (
        "stop.grants.yml",
        |path| std::fs::write(path, "").expect("a file"),
        "is not read by this name",
    ),
    // As one of mode 0600 that is somebody else's, but for root too.
    ("secret.cedar", |path| symlink("/proc/self/mem", path).expect("a link"), "can't be read"),
    ("gone.cedar", |path| symlink("nowhere.cedar", path).expect("a link"), "can't be read"),
    ("latin.cedar", |path| std::fs::write(path, b"// caf\xe9\n").expect("a file"), "UTF-8"),
    ("pipe.cedar", pipe, "it is no file"),
];

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// Waits until so many changes of policies have been taken over, or not.
async fn policies(lictor: &Lictor, outcome: &[&str], count: f64) {
    let looking = async {
        while sample(&metrics(lictor).await, "lictor_policy_reloads_total", outcome) < count {
            sleep(PAUSE).await;
        }
    };
    within("a reload of policies", looking).await;
}

/// Whether administration says that the policies on disk are in force, as readiness and metrics.
async fn current(lictor: &Lictor) -> bool {
    let ready = ask(lictor, "/readyz").await;
    assert_eq!(ready.status, 200);
    let told = sample(&metrics(lictor).await, "lictor_policies_current", &[]);
    let degraded = ready.text().contains("the policies on disk aren't in force");
    assert_eq!(told, f64::from(!degraded));
    !degraded
}

/// Nobody sends a HUP here.
#[tokio::test]
async fn a_policy_file_that_cannot_be_read_is_told_and_waited_out() {
    let stub = Stub::json().await;
    let rows = UNREADABLE.map(|(name, place, reason)| (name, place, reason, stub.url()));
    let mut running = tokio::task::JoinSet::new();
    for (name, place, reason, url) in rows {
        running.spawn(async move {
            let lictor = Site::to(&url).start().await;
            let mut caller = crate::site::agent_b(&lictor).await;
            let mut refused = async || {
                let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
                !answer.json()["error"].is_null()
            };
            assert!(current(&lictor).await && !refused().await);
            let odd = lictor.directory().join("policies").join(name);
            place(&odd);
            policies(&lictor, REJECTED, 1.0).await;
            assert!(!current(&lictor).await && !refused().await, "{name}");
            // What is right beside it doesn't come into force either, but nobody is left to think so.
            let forbid = r#"forbid (principal, action, resource == Tool::"files/echo");"#;
            put(&lictor, "policies/stop.cedar", forbid);
            policies(&lictor, REJECTED, 2.0).await;
            assert!(!current(&lictor).await && !refused().await, "{name}");
            let lines = lictor.logs();
            let told = lines.iter().filter(|line| line.contains("policies not reloaded"));
            let told = told.filter(|line| line.contains(name) && line.contains(reason)).count();
            assert_eq!(told, 2, "{name}: {lines:#?}");
            std::fs::remove_file(&odd).expect("a file");
            policies(&lictor, APPLIED, 1.0).await;
            assert!(current(&lictor).await && refused().await, "{name}");
            // Each state of the directory was told once, however often it was looked at.
            let rejected = sample(&metrics(&lictor).await, "lictor_policy_reloads_total", REJECTED);
            assert_eq!(rejected, 2.0, "{name}");
            lictor.stop(4).await;
        });
    }
    running.join_all().await;
    assert_eq!(stub.requests(), 3 * UNREADABLE.len());
}

#[tokio::test]
async fn roots_of_an_upstream_are_read_again() {
    let (ca, other) = (Ca::new("far.test"), Ca::new("far.test"));
    let credential = ca.leaf("/far", |params| {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        params.subject_alt_names.push(rcgen::SanType::IpAddress(address));
    });
    let mut stub = Stub::scripted_tls(crate::identity::server(&credential)).await;
    let lictor = Site::to(&stub.url())
        .upstream("roots: far.pem")
        .file("far.pem", &other.root_pem())
        .start()
        .await;
    let echo = call("echo", "{}");
    assert_eq!(post_to(&lictor, "/mcp", &echo).await.status, 502);
    put(&lictor, "far.pem", &ca.root_pem());
    reloads(&lictor, APPLIED, 1.0).await;
    let serve = async |stub: &mut Stub| {
        let (answer, ()) = tokio::join!(post_to(&lictor, "/mcp", &echo), async {
            stub.call().await.answer("{}").await;
        });
        answer.status
    };
    assert_eq!(serve(&mut stub).await, 200);
    // Half a file: the roots of before are used, and it is told.
    put(&lictor, "far.pem", "-----BEGIN CERTIFICATE-----\nAA");
    reloads(&lictor, REJECTED, 1.0).await;
    logged(&lictor, "configuration not reloaded").await;
    assert_eq!(serve(&mut stub).await, 200);
    lictor.stop(3).await;
}

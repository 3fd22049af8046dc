//! The files beside the configuration: each is followed, and a bad one changes nothing and says so.

use super::*;
use crate::ca::Ca;

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

//! What happens when files change, the agent talks, and time passes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lictor::identity::{Files, PeerError, Settings, State};
use tempfile::TempDir;

use super::{
    ca::{Ca, at},
    site::{Call, Site, ask, caller, files, from_files, now, start, until},
    workload_api::{Agent, Script},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_files_are_used_by_the_next_handshake_without_a_restart() {
    let (old, new) = (Ca::new("one.test"), Ca::new("one.test"));
    let (source, directory) = from_files(&old.svid("/lictor"), &[&old]);
    let site = Site::start(&source);
    let (old_caller, new_caller) =
        (caller(Some(&old.svid("/agent"))), caller(Some(&new.svid("/agent"))));
    let mut warm = Call::connect(&site, &old_caller).await.expect("connected");
    assert_eq!(warm.ask().await.expect("served").0, 200);
    ask(&site, &new_caller).await.expect_err("not yet trusted");

    let own = new.svid("/lictor");
    own.write(directory.path(), &[&old, &new]);
    until(&source, |status| status.generation == 2).await;
    assert_eq!(warm.ask().await.expect("overlap").0, 200);
    let mut call = Call::connect(&site, &new_caller).await.expect("connected");
    assert_eq!(call.server, own.chain[0]);
    assert_eq!(call.ask().await.expect("served").0, 200);

    own.write(directory.path(), &[&new]);
    until(&source, |status| status.generation == 3).await;
    assert_eq!(warm.ask().await.expect("answered").0, 401);
    assert_eq!(call.ask().await.expect("served").0, 200);
    ask(&site, &caller(Some(&old.svid("/agent")))).await.expect_err("not trusted any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_do_not_fit_together_leave_the_old_set_in_use() {
    let ca = Ca::new("one.test");
    let own = ca.svid("/lictor");
    let (source, directory) = from_files(&own, &[&ca]);
    let first = until(&source, |status| status.state == State::Ready).await;
    let other = ca.svid("/lictor");
    let root = ca.root_pem();
    let half = root.split_at(root.len() / 2).0;
    for (file, content, mended) in [
        ("key.pem", other.key_pem().as_str(), own.key_pem().as_str()),
        ("svid.pem", other.chain_pem().as_str(), own.chain_pem().as_str()),
        ("svid.pem", "", own.chain_pem().as_str()),
        ("key.pem", "-----BEGIN PRIVATE KEY-----\nMIGH", own.key_pem().as_str()),
        ("one.test.pem", half, root.as_str()),
        ("one.test.pem", Ca::new("one.test").root_pem().as_str(), root.as_str()),
        ("one.test.pem", own.chain_pem().as_str(), root.as_str()),
    ] {
        let path = directory.path().join(file);
        std::fs::write(&path, content).expect("written");
        let status = until(&source, |status| status.state == State::Stale).await;
        assert_eq!((status.generation, &status.id), (first.generation, &first.id), "{file}");
        source.verify_peer(&ca.svid("/agent").chain, now()).expect("still serving");
        std::fs::write(&path, mended).expect("written");
        until(&source, |status| status.state == State::Ready).await;
    }
    // The whole of the new set at last.
    other.write(directory.path(), &[&ca]);
    until(&source, |status| status.generation == first.generation + 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_peer_is_refused_on_a_warm_connection() {
    let ca = Ca::new("one.test");
    let (source, _files) = from_files(&ca.svid("/lictor"), &[&ca]);
    let site = Site::start(&source);
    let mut call =
        Call::connect(&site, &caller(Some(&ca.svid_for("/agent", 2)))).await.expect("connected");
    assert_eq!(call.ask().await.expect("served").0, 200);
    let deadline = now() + 5;
    let refused = loop {
        match call.ask().await.expect("answered") {
            (200, _) if now() < deadline => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            answer => break answer,
        }
    };
    assert_eq!(refused, (401, PeerError::Expired.to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_ends_with_the_first_certificate_that_its_path_needs() {
    let ca = Ca::new("one.test");
    let (source, _files) = from_files(&ca.svid("/lictor"), &[&ca]);
    let site = Site::start(&source);
    let brief = ca.svid_via("/agent", |params| params.not_after = at(2));
    // Somebody who shows one that no path of theirs needs.
    let mut needless = ca.svid_via("/other", |_| {});
    needless.chain.extend(brief.chain.last().cloned());
    let mut other = Call::connect(&site, &caller(Some(&needless))).await.expect("connected");
    let mut call = Call::connect(&site, &caller(Some(&brief))).await.expect("connected");
    assert_eq!(call.ask().await.expect("served").0, 200);
    let deadline = now() + 5;
    while call.ask().await.expect("answered").0 == 200 {
        assert!(now() < deadline, "its intermediate has ended");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(call.ask().await.expect("answered").0, 401);
    ask(&site, &caller(Some(&brief))).await.expect_err("no handshake either");
    for _ in 0..2 {
        assert_eq!(other.ask().await.expect("served").0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_expiry_refuses_everybody_and_an_expired_root_is_dropped() {
    let (one, two) = (Ca::new("one.test"), Ca::expiring("two.test", 3));
    let (source, _files) = from_files(&one.svid_for("/lictor", 5), &[&one, &two]);
    let site = Site::start(&source);
    let mut call =
        Call::connect(&site, &caller(Some(&one.svid("/agent")))).await.expect("connected");
    assert_eq!(call.ask().await.expect("served").0, 200);
    source.verify_peer(&two.svid("/agent").chain, now()).expect("root still valid");
    until(&source, |status| status.state == State::Expired).await;
    let partner = source.snapshot().bundles().verify(
        &two.svid("/agent").chain,
        lictor::identity::Role::Client,
        now(),
    );
    assert!(partner.is_err(), "its root has expired");
    assert_eq!(call.ask().await, Ok((401, PeerError::NotReady.to_string())));
    ask(&site, &caller(Some(&one.svid("/agent")))).await.expect_err("no handshake either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_link_to_a_directory_is_noticed() {
    let ca = Ca::new("one.test");
    let directory = TempDir::new().expect("directory");
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str| {
        std::fs::create_dir(path(name)).expect("created");
        ca.svid("/lictor").write(&path(name), &[&ca]);
        std::os::unix::fs::symlink(name, path("..new")).expect("linked");
        std::fs::rename(path("..new"), path("..data")).expect("swapped");
    };
    write("..first");
    let file = |name: &str| path("..data").join(name);
    let source = start(Settings::Files(Files {
        certificate: file("svid.pem"),
        key: file("key.pem"),
        bundles: [("one.test".to_owned(), file("one.test.pem"))].into(),
    }));
    assert_eq!(source.status(now()).state, State::Ready);
    write("..second");
    until(&source, |status| status.generation == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_everything_rotates() {
    let (old, new) = (Ca::new("one.test"), Ca::new("one.test"));
    let (source, directory) = from_files(&old.svid("/lictor"), &[&old, &new]);
    let site = Arc::new(Site::start(&source));
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = [&old, &new, &old, &new]
        .into_iter()
        .map(|ca| {
            let (config, site) = (caller(Some(&ca.svid("/agent"))), Arc::clone(&site));
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let mut served = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut call = Call::connect(&site, &config).await.expect("connected");
                    for _ in 0..5 {
                        assert_eq!(call.ask().await.expect("answered").0, 200);
                        served += 1;
                    }
                }
                served
            })
        })
        .collect();
    for (generation, own) in [(2, &new), (3, &old), (4, &new)] {
        own.svid("/lictor").write(directory.path(), &[&old, &new]);
        until(&source, |status| status.generation >= generation).await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.expect("no failure") > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_files_are_waited_for() {
    let ca = Ca::new("one.test");
    let directory = TempDir::new().expect("directory");
    let own = ca.svid("/lictor");
    let written = own.write(directory.path(), &[&ca]);
    std::fs::remove_file(&written.key).expect("removed");
    let source = start(files(written));
    assert_eq!(source.status(now()).state, State::Starting);
    let refused = source.verify_peer(&ca.svid("/agent").chain, now()).expect_err("starting");
    assert_eq!(refused, PeerError::NotReady);
    own.write(directory.path(), &[&ca]);
    until(&source, |status| status.state == State::Ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_workload_api_is_followed_through_all_states() {
    let (one, two) = (Ca::new("one.test"), Ca::new("two.test"));
    let directory = TempDir::new().expect("directory");
    let socket = directory.path().join("agent.sock");
    let endpoint = format!("unix://{}", socket.display());
    let source = start(Settings::WorkloadApi { endpoint });
    assert_eq!(source.status(now()).state, State::Starting);

    let own = one.svid("/lictor");
    let agent = Agent::start(&socket, Script::serve(&one, "/lictor", &own, &[&two]));
    let ready = until(&source, |status| status.state == State::Ready).await;
    assert_eq!((ready.bundles, ready.generation), (2, 1));
    let site = Site::start(&source);
    let (ours, partners) = (caller(Some(&one.svid("/agent"))), caller(Some(&two.svid("/agent"))));
    let mut warm = Call::connect(&site, &partners).await.expect("connected");
    assert_eq!(warm.ask().await.expect("served").0, 200);

    // A new SVID is used by the next handshake; a bundle that is missing now is unloaded.
    let next = one.svid("/lictor");
    agent.play(Script::serve(&one, "/lictor", &next, &[]));
    until(&source, |status| status.generation == 2).await;
    let mut call = Call::connect(&site, &ours).await.expect("connected");
    assert_eq!(call.server, next.chain[0]);
    assert_eq!(call.ask().await.expect("served").0, 200);
    assert_eq!(warm.ask().await.expect("answered").0, 401);

    // The agent goes: what it said last stays in use.
    drop(agent);
    until(&source, |status| status.state == State::Stale).await;
    let confirmed = source.confirmed();
    assert!((1..=now()).contains(&confirmed), "{confirmed}");
    assert_eq!(call.ask().await.expect("served").0, 200);

    // It comes back with the same, then with something new.
    let agent = Agent::start(&socket, Script::serve(&one, "/lictor", &next, &[]));
    let again = until(&source, |status| status.state == State::Ready).await;
    assert_eq!(again.generation, 2);
    agent.play(Script::serve(&one, "/lictor", &one.svid("/lictor"), &[&two]));
    until(&source, |status| status.generation == 3 && status.bundles == 2).await;

    // It takes the identity back, and gives it again.
    agent.play(Script::Deny);
    until(&source, |status| status.state == State::Withdrawn).await;
    assert_eq!(call.ask().await, Ok((401, PeerError::NotReady.to_string())));
    ask(&site, &ours).await.expect_err("no handshake either");
    agent.play(Script::serve(&one, "/lictor", &one.svid("/lictor"), &[]));
    until(&source, |status| status.state == State::Ready).await;
    assert_eq!(call.ask().await.expect("served again").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_of_the_agent_ends_in_expiry_and_its_return_in_service() {
    let ca = Ca::new("one.test");
    let directory = TempDir::new().expect("directory");
    let socket = directory.path().join("agent.sock");
    let script = |seconds| Script::serve(&ca, "/lictor", &ca.svid_for("/lictor", seconds), &[]);
    let agent = Agent::start(&socket, script(3));
    let source = start(Settings::WorkloadApi { endpoint: format!("unix://{}", socket.display()) });
    until(&source, |status| status.state == State::Ready).await;
    drop(agent);
    until(&source, |status| status.state == State::Expired).await;
    let refused = source.verify_peer(&ca.svid("/agent").chain, now()).expect_err("expired");
    assert_eq!(refused, PeerError::NotReady);
    let _agent = Agent::start(&socket, script(60));
    until(&source, |status| status.state == State::Ready).await;
}

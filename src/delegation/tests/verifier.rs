//! What is remembered between chains, and what isn't.

use super::*;

#[test]
fn a_hop_is_shown_once_and_to_whom_it_was_made_for() {
    let world = World::new();
    let settings = world.settings();
    let header = world.sign(&world.claims(2));
    let present = || {
        let site =
            Site { snapshot: &world.members[2].snapshot, settings: &settings, now: world.now };
        Verifier::new().verify(&arrival(&header, &world.members[1].id), &site).expect("it holds")
    };
    let presented = present();
    let shown = presented.shown().expect("a last hop");
    assert_eq!(shown.issuer, &world.members[1].id);
    assert_eq!(shown.id, BASE64URL_NOPAD.encode(&[1; 16]));
    // The clock of whoever made it may be ahead, and ours may be behind when it is shown.
    assert_eq!((shown.from, shown.until), (world.now - 5, world.now + 65));
    assert_eq!(presented.taken(true).expect("taken").depth(), 2);
    assert_eq!(present().taken(false).err(), Some(ChainError::Replayed { hop: 1 }));
    // Somebody who overheard it, and somebody whom it wasn't made for.
    let settings = world.settings();
    for (peer, to, rule) in [(0, 2, Rule::Presenter), (1, 3, Rule::Audience)] {
        let snapshot = &world.members[to].snapshot;
        let site = Site { snapshot, settings: &settings, now: world.now };
        let shown = Verifier::new().verify(&arrival(&header, &world.members[peer].id), &site);
        assert_eq!(shown.err(), Some(ChainError::Hop { hop: 1, rule }));
    }
}

#[test]
fn what_is_remembered_ends_with_the_bundles_and_with_the_certificates() {
    let world = World::new();
    let settings = world.settings();
    let verifier = Verifier::new();
    let mut jti = 0_u8;
    let mut show = |snapshot: &Snapshot, now: u64| {
        jti += 1;
        let mut claims = world.claims(2);
        claims[0]["exp"] = (world.now + 3500).into();
        claims[1]["exp"] = (world.now + 3500).into();
        claims[1]["iat"] = now.into();
        claims[1]["jti"] = BASE64URL_NOPAD.encode(&[jti; 16]).into();
        let header = world.sign(&claims);
        let site = Site { snapshot, settings: &settings, now };
        let shown = verifier.verify(&arrival(&header, &world.members[1].id), &site);
        shown.err().map(|error| error.to_string())
    };
    let own = &world.members[2].credential;
    let both = Snapshot::of(own, &[&world.one, &world.two], 1);
    assert_eq!(show(&both, world.now), None);
    assert_eq!(show(&both, world.now + 1), None);
    // The same generation, and the certificates are over: our own as well, which is told first.
    assert_eq!(show(&both, world.now + 3600).as_deref(), Some("no valid SVID of our own"));
    // Another root of the same domain has taken the place of the one that vouched for everybody.
    let successor = Ca::new("one.test");
    let rotated = Snapshot::of(&successor.svid("/c"), &[&successor], 2);
    let refused = show(&rotated, world.now).expect("refused");
    assert!(refused.starts_with("hop 0: its SVID isn't believed: no path"), "{refused}");
    // A longer-lived verifier meets the end of a signer's certificate.
    let long = world.one.svid_for("/c", 7200);
    let snapshot = Snapshot::of(&long, &[&world.one], 3);
    assert_eq!(show(&snapshot, world.now), None);
    let refused = show(&snapshot, world.now + 3601).expect("refused");
    assert!(refused.starts_with("hop 0: its SVID isn't believed"), "{refused}");
}

#[test]
fn rules_are_checked_anew_for_hops_that_are_known() {
    let world = World::new();
    let verifier = Verifier::new();
    let claims = world.claims(3);
    world.show(&verifier, &world.sign(&claims), 3).expect("taken");
    // The signature of a P-256 key is another each time, so the prefix is kept as it was.
    let first = world.sign(&claims);
    let mut hops: Vec<_> = first.split('~').collect();
    hops.swap(0, 1);
    let swapped = world.show(&verifier, &hops.join("~"), 3).err();
    assert_eq!(swapped, Some(ChainError::Hop { hop: 0, rule: Rule::Depth }));
    let mut cut: Vec<_> = first.split('~').collect();
    cut.remove(1);
    let cut = world.show(&verifier, &cut.join("~"), 3).err();
    assert_eq!(cut, Some(ChainError::Hop { hop: 1, rule: Rule::Depth }));
}

#[test]
fn nobody_is_believed_without_an_svid_of_our_own() {
    let world = World::new();
    let header = world.sign(&world.claims(1));
    let settings = world.settings();
    let snapshot = &world.members[1].snapshot;
    let site = Site { snapshot, settings: &settings, now: world.now + 4000 };
    let shown = Verifier::new().verify(&arrival(&header, &world.members[0].id), &site);
    assert_eq!(shown.err(), Some(ChainError::NotReady));
}

#[test]
fn each_hop_says_what_it_lets_pass() {
    use crate::protocol::Class::{Execute, Read};
    let world = World::new();
    let mut claims = world.claims(3);
    claims[1]["cap"] = json!(["files|tools/call|read_*"]);
    claims[2]["mode"] = "readonly".into();
    let chain = world.show(&Verifier::new(), &world.sign(&claims), 3).expect("taken");
    let lets_pass = |class, name| {
        let by = |hop: &chain::Hop| {
            let within = hop.capabilities().permit(class, "files", "tools/call", name);
            (hop.mode().permits(class), within)
        };
        chain.hops().map(by).collect::<Vec<_>>()
    };
    assert_eq!(lets_pass(Read, "read_a"), [(true, true); 3]);
    assert_eq!(lets_pass(Execute, "read_a"), [(true, true), (true, true), (false, true)]);
    assert_eq!(lets_pass(Read, "write"), [(true, true), (true, false), (true, true)]);
}

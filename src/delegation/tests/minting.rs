//! What is made is taken, and what would not be taken isn't made.

use super::*;

fn next<'a>(to: &'a SpiffeId, capabilities: &'a Capabilities) -> Next<'a> {
    let (http_method, method) = ("POST", "tools/call");
    let id = Uuid::now_v7();
    Next { id, to, mode: None, capabilities, http_method, method, body: BODY }
}

impl World {
    fn svid(&self, at: usize) -> &crate::identity::Svid {
        self.members[at].snapshot.usable(self.now).expect("valid")
    }

    fn first(&self, next: &Next<'_>, settings: &Settings) -> Result<String, MintError> {
        originate(self.svid(0), settings, run(), Some("u-1"), next, self.now)
    }
}

#[test]
fn a_chain_grows_from_proxy_to_proxy() {
    let world = World::new();
    let settings = world.settings();
    let all = Capabilities::UNLIMITED;
    let some = Capabilities::parse(&["files|tools/call|read_*"]).expect("capabilities");
    let header = world.first(&next(&world.members[1].id, &all), &settings).expect("made");
    let chain = world.show(&Verifier::new(), &header, 1).expect("taken by b");
    let to_c = Next { mode: Some(Mode::ReadWrite), ..next(&world.members[2].id, &some) };
    let header = extend(world.svid(1), &chain, &settings, &to_c, world.now).expect("made");
    let chain = world.show(&Verifier::new(), &header, 2).expect("taken by c");
    let to_d = next(&world.members[3].id, &all);
    let header = extend(world.svid(2), &chain, &settings, &to_d, world.now).expect("made");
    assert!(header.len() < 6 * 1024, "{}", header.len());
    let chain = world.show(&Verifier::new(), &header, 3).expect("taken by d");
    let modes: Vec<_> = chain.hops().map(Hop::mode).collect();
    assert_eq!(modes, [Mode::Full, Mode::ReadWrite, Mode::ReadWrite]);
    for hop in chain.hops() {
        assert_eq!((hop.root(), hop.user()), (&world.members[0].id, Some("u-1")));
        assert_eq!((hop.run(), hop.expires()), (run(), world.now + 900));
    }
    let limits: Vec<_> = chain.hops().map(|hop| hop.capabilities().limit()).collect();
    assert_eq!(limits, [false, true, false]);
}

#[test]
fn a_hop_ends_with_its_parent_and_with_the_svid() {
    let world = World::new();
    let all = Capabilities::UNLIMITED;
    let to_b = next(&world.members[1].id, &all);
    let day = std::time::Duration::from_secs(86_400);
    let settings = Settings { lifetime: day, ..world.settings() };
    let header = world.first(&to_b, &settings).expect("made");
    let chain = world.show(&Verifier::new(), &header, 1).expect("taken");
    assert_eq!(chain.expires(), world.svid(0).not_after);
    let short = world.one.svid_for("/b", 60);
    let short = Snapshot::of(&short, &[&world.one], 1);
    let short = short.usable(world.now).expect("valid");
    let to_c = next(&world.members[2].id, &all);
    let header = extend(short, &chain, &settings, &to_c, world.now).expect("made");
    let chain = world.show(&Verifier::new(), &header, 2).expect("taken");
    assert_eq!(chain.expires(), short.not_after);
    let late = extend(world.svid(1), &chain, &settings, &to_c, world.now + 4000);
    assert!(matches!(late, Err(MintError::NotOurs(_) | MintError::Rule(Rule::Expired))));
}

#[test]
fn what_would_be_refused_isnt_made() {
    let world = World::new();
    let settings = world.settings();
    let all = Capabilities::UNLIMITED;
    let some = Capabilities::parse(&["files|tools/call|read_*"]).expect("capabilities");
    let more = Capabilities::parse(&["files|tools/call|*"]).expect("capabilities");
    let id = |at: usize| &world.members[at].id;
    let to_b = Next { mode: Some(Mode::ReadWrite), ..next(id(1), &some) };
    let header = world.first(&to_b, &settings).expect("made");
    let chain = world.show(&Verifier::new(), &header, 1).expect("taken");
    let extended = |at: usize, settings: &Settings, next: &Next<'_>| {
        let made = extend(world.svid(at), &chain, settings, next, world.now);
        made.expect_err("not made").to_string()
    };
    let to_c = next(id(2), &all);
    let long = "m".repeat(257);
    for (made, expected) in [
        (extended(2, &settings, &to_c), "the chain was made for `spiffe://one.test/b`"),
        (
            extended(1, &Settings { max_depth: 1, ..settings.clone() }, &to_c),
            "the chain has 1 hops already",
        ),
        (
            extended(1, &settings, &Next { mode: Some(Mode::Full), ..to_c }),
            "no such hop can be made: its mode is wider than that of the hop before",
        ),
        (
            extended(1, &settings, &Next { capabilities: &more, ..to_c }),
            "no such hop can be made: its capabilities aren't within those of the hops before",
        ),
        (
            extended(1, &settings, &next(id(0), &all)),
            "`spiffe://one.test/a` is in the chain already",
        ),
        (
            extended(1, &settings, &next(id(1), &all)),
            "`spiffe://one.test/b` is in the chain already",
        ),
        (
            extended(1, &settings, &next(id(4), &all)),
            "no such hop can be made: it goes to another trust domain, which isn't allowed",
        ),
        (extended(1, &settings, &Next { method: &long, ..to_c }), "`mth` isn't of its form"),
    ] {
        assert_eq!(made, expected);
    }
    let begun = |settings: &Settings, next: &Next<'_>| {
        world.first(next, settings).expect_err("not made").to_string()
    };
    let readers = Settings {
        origins: vec![Origin { who: Who::One(id(0).clone()), mode: Mode::ReadOnly }],
        ..Settings::default()
    };
    let full = Next { mode: Some(Mode::Full), ..to_b };
    for (made, expected) in [
        (
            begun(&Settings::default(), &to_b),
            "no such hop can be made: its issuer may not begin a chain",
        ),
        (
            begun(&readers, &full),
            "no such hop can be made: its mode is wider than its issuer may give",
        ),
        (begun(&settings, &next(id(0), &all)), "`spiffe://one.test/a` is in the chain already"),
    ] {
        assert_eq!(made, expected);
    }
    let other_run = originate(world.svid(0), &settings, Uuid::nil(), None, &to_b, world.now);
    assert_eq!(other_run.expect_err("not made").to_string(), "`run` isn't of its form");
}

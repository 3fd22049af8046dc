//! Each rule, broken once.

use super::*;

type Change = fn(&World, &mut [Value]);

#[test]
fn a_chain_that_breaks_no_rule_is_taken() {
    let world = World::new();
    for hops in 1..=3 {
        let header = world.sign(&world.claims(hops));
        let chain = world.show(&Verifier::new(), &header, hops).expect("taken");
        let ids: Vec<_> = chain.hops().map(|hop| hop.principal().id.clone()).collect();
        let expected: Vec<_> =
            world.members.iter().take(hops).map(|member| member.id.clone()).collect();
        assert_eq!(ids, expected);
        assert_eq!((chain.depth(), chain.expires()), (hops, world.now + 900));
    }
}

#[test]
fn each_rule_for_claims_is_kept() {
    let world = World::new();
    let cases: &[(&str, Change)] = &[
        ("hop 1: `iss` is missing", |_, hops| drop(remove(hops, 1, "iss"))),
        ("hop 2: `bh` is missing", |_, hops| drop(remove(hops, 2, "bh"))),
        ("hop 0: `mth` is missing", |_, hops| drop(remove(hops, 0, "mth"))),
        ("hop 0: `jti` isn't of its form", |_, hops| hops[0]["jti"] = "AAAA".into()),
        ("hop 0: `jti` isn't of its form", |_, hops| {
            // Two bits are left over in the last of 22 digits.
            hops[0]["jti"] = "AAAAAAAAAAAAAAAAAAAAAB".into();
        }),
        ("hop 1: `run` isn't of its form", |_, hops| hops[1]["run"] = RUN.to_uppercase().into()),
        ("hop 1: `run` isn't of its form", |_, hops| {
            hops[1]["run"] = "01993f0e-7b5a-4c3e-9a1d-0123456789ab".into();
        }),
        ("hop 1: `mode` isn't of its form", |_, hops| hops[1]["mode"] = "Full".into()),
        ("hop 1: `exp` isn't of its form", |_, hops| hops[1]["exp"] = json!(1.5e9)),
        ("hop 1: `exp` isn't of its form", |_, hops| hops[1]["exp"] = "1".into()),
        ("hop 1: `dep` isn't of its form", |_, hops| hops[1]["dep"] = (-1).into()),
        ("hop 1: `cap` isn't of its form", |_, hops| hops[1]["cap"] = "a|b|c".into()),
        ("hop 1: `cap` isn't of its form: 0 capabilities; there can be 1 to 32", |_, hops| {
            hops[1]["cap"] = json!([]);
        }),
        ("hop 1: `cap` isn't of its form", |_, hops| hops[1]["cap"] = json!([1])),
        ("hop 1: `usr` isn't of its form", |_, hops| hops[1]["usr"] = "".into()),
        ("hop 1: the payload has a member that isn't known", |_, hops| {
            hops[1]["nbf"] = 0.into();
        }),
        ("hop 1: `aud` isn't of its form", |_, hops| hops[1]["aud"] = json!([hops[1]["aud"]])),
        ("hop 1: `sub` is no SPIFFE ID", |_, hops| hops[1]["sub"] = "spiffe://one.test".into()),
        ("hop 0: its `dep` isn't its place", |_, hops| hops[0]["dep"] = 1.into()),
        ("hop 2: its `dep` isn't its place", |_, hops| hops[2]["dep"] = 1.into()),
        ("hop 0: its `sub` didn't begin the chain", |world, hops| {
            hops[0]["sub"] = world.members[1].id.as_str().into();
        }),
        ("hop 0: its `prv` isn't the hop before", |_, hops| {
            hops[0]["prv"] = BASE64URL_NOPAD.encode(&[0; 32]).into();
        }),
        ("hop 1: its `prv` isn't the hop before", |_, hops| {
            hops[1]["prv"] = BASE64URL_NOPAD.encode(&[0; 32]).into();
        }),
        ("hop 2: the hop before wasn't made for its `iss`", |world, hops| {
            hops[1]["aud"] = world.members[3].id.as_str().into();
        }),
        ("hop 2: its `sub` isn't that of the first hop", |world, hops| {
            hops[2]["sub"] = world.members[1].id.as_str().into();
        }),
        ("hop 1: its `usr` isn't that of the first hop", |_, hops| hops[1]["usr"] = "u".into()),
        ("hop 1: its `ten` isn't that of the first hop", |_, hops| hops[1]["ten"] = "t".into()),
        ("hop 1: `ten` isn't of its form", |_, hops| hops[1]["ten"] = "".into()),
        ("hop 1: its `run` isn't that of the first hop", |_, hops| {
            hops[1]["run"] = "01993f0e-7b5a-7c3e-9a1d-0123456789ac".into();
        }),
        ("hop 1: it was made in the future", |world, hops| {
            hops[1]["iat"] = (world.now + 6).into();
        }),
        ("hop 0: it has expired", |world, hops| hops[0]["exp"] = world.now.into()),
        ("hop 2: it has expired", |world, hops| hops[2]["exp"] = world.now.into()),
        ("hop 1: it lasts longer than the hop before", |world, hops| {
            hops[1]["exp"] = (world.now + 901).into();
        }),
        ("hop 0: it lasts longer than the SVID that signed it", |world, hops| {
            hops.iter_mut().for_each(|hop| hop["exp"] = (world.now + 4000).into());
        }),
        ("hop 1: its mode is wider than that of the hop before", |_, hops| {
            hops[0]["mode"] = "readwrite".into();
        }),
        ("hop 2: its capabilities aren't within those of the hops before", |_, hops| {
            hops[0]["cap"] = json!(["s|tools/call|read_*"]);
            hops[2]["cap"] = json!(["s|tools/call|read_a", "s|tools/call|*"]);
        }),
        ("hop 2: it was made for somebody else", |world, hops| {
            hops[2]["aud"] = world.members[1].id.as_str().into();
        }),
        ("hop 2: it is too old", |world, hops| hops[2]["iat"] = (world.now - 61).into()),
        ("hop 2: it was made for another body", |_, hops| {
            hops[2]["bh"] = BASE64URL_NOPAD.encode(&Sha256::digest("other")).into();
        }),
        ("hop 2: it was made for another HTTP method", |_, hops| hops[2]["htm"] = "GET".into()),
        ("hop 2: it was made for another method", |_, hops| hops[2]["mth"] = "ping".into()),
    ];
    for (expected, change) in cases {
        let mut claims = world.claims(3);
        change(&world, &mut claims);
        let refused = world.show(&Verifier::new(), &world.sign(&claims), 3).err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.starts_with(expected), "`{refused}` instead of `{expected}`");
    }
}

#[test]
fn what_is_just_within_the_rules_is_taken() {
    let world = World::new();
    let cases: &[(&str, Change)] = &[
        ("five seconds ahead", |world, hops| hops[2]["iat"] = (world.now + 5).into()),
        ("a minute old", |world, hops| hops[2]["iat"] = (world.now - 60).into()),
        ("an older hop before", |world, hops| hops[1]["iat"] = (world.now - 800).into()),
        ("a last second", |world, hops| hops[2]["exp"] = (world.now + 1).into()),
        ("narrower modes", |_, hops| {
            hops[1]["mode"] = "readwrite".into();
            hops[2]["mode"] = "readonly".into();
        }),
        ("narrower capabilities", |_, hops| {
            hops[0]["cap"] = json!(["s|tools/*|*", "t|*|*"]);
            hops[2]["cap"] = json!(["s|tools/call|a"]);
        }),
        ("the same user everywhere", |_, hops| {
            hops.iter_mut().for_each(|hop| hop["usr"] = "u-1".into());
        }),
    ];
    for (what, change) in cases {
        let mut claims = world.claims(3);
        change(&world, &mut claims);
        world.show(&Verifier::new(), &world.sign(&claims), 3).expect(what);
    }
}

#[test]
fn each_rule_for_headers_and_signatures_is_kept() {
    let world = World::new();
    let claims = world.claims(1);
    let claims = claims[0].to_string();
    let member = &world.members[0].credential;
    let good = header(member);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut header: Value = serde_json::from_str(&good).expect("JSON");
        change(&mut header);
        jws(&header.to_string(), &claims, member)
    };
    let x5c = |credential: &Credential| json!([BASE64.encode(&credential.chain[0])]);
    let whole = jws(&good, &claims, member);
    let (input, signature) = whole.rsplit_once('.').expect("parts");
    let padded = format!("{whole}==");
    let twice = good.replacen('{', r#"{"alg":"ES256","#, 1);
    let escaped = good.replacen('{', r#"{"\u0061lg":"ES256","#, 1);
    let claimed_twice = claims.replacen('{', r#"{"mode":"readonly","#, 1);
    let cases = [
        ("hop 0: the header has a member", with(&|header| header["crit"] = json!(["exp"]))),
        ("hop 0: the header has a member", with(&|header| header["kid"] = "1".into())),
        ("hop 0: the header has a member", with(&|header| header["jwk"] = json!({}))),
        ("hop 0: `typ` isn't of its form", with(&|header| header["typ"] = "JWT".into())),
        ("hop 0: `alg` isn't of its form", with(&|header| header["alg"] = "none".into())),
        ("hop 0: `alg` isn't of its form", with(&|header| header["alg"] = "HS256".into())),
        ("hop 0: `ES384` is no algorithm", with(&|header| header["alg"] = "ES384".into())),
        ("hop 0: `RS256` is no algorithm", with(&|header| header["alg"] = "RS256".into())),
        ("hop 0: `x5c` isn't of its form", with(&|header| header["x5c"] = json!([]))),
        ("hop 0: `x5c` isn't of its form", with(&|header| header["x5c"] = json!(["AA"]))),
        ("hop 0: its SVID isn't believed", with(&|header| header["x5c"] = json!(["AAAA"]))),
        ("hop 0: `x5c` is missing", with(&|header| drop(remove_from(header, "x5c")))),
        ("hop 0: the signature doesn't hold", {
            with(&|header| header["x5c"] = x5c(&world.members[1].credential))
        }),
        ("hop 0: it was signed by `spiffe://one.test/b`", {
            let other = &world.members[1].credential;
            jws(&header(other), &claims, other)
        }),
        ("hop 0: its SVID isn't believed: no path", {
            let forged = Ca::new("one.test").svid("/a");
            jws(&header(&forged), &claims, &forged)
        }),
        ("hop 0: its SVID isn't believed: no bundle", {
            let stranger = Ca::new("three.test").svid("/a");
            jws(&header(&stranger), &claims, &stranger)
        }),
        ("hop 0: the header isn't strict JSON: duplicate key", jws(&twice, &claims, member)),
        ("hop 0: the header isn't strict JSON: duplicate key", jws(&escaped, &claims, member)),
        ("hop 0: the payload isn't strict JSON: duplicate", jws(&good, &claimed_twice, member)),
        ("hop 0: the payload is no object", jws(&good, "[]", member)),
        ("hop 0: the header is no object", jws("1", &claims, member)),
        ("hop 0: the payload isn't strict JSON: nested", {
            jws(&good, &claims.replace(r#""full""#, "[[[]]]"), member)
        }),
        ("hop 0: a token has three parts", input.to_owned()),
        ("hop 0: a token has three parts", format!("{whole}.")),
        ("hop 0: a token has three parts", format!("{whole}.AAAA")),
        ("hop 0: the signature isn't canonical", padded),
        ("hop 0: the signature isn't canonical", whole.replace(signature, "A+/A")),
        ("hop 0: the signature doesn't hold", format!("{input}.")),
        ("hop 0: `typ` is missing", "e30..".to_owned()),
        ("hop 0: the header isn't strict JSON: invalid JSON", "..".to_owned()),
        ("hop 0: a token has three parts", "~".to_owned()),
        ("hop 1: a token has three parts", format!("{whole}~")),
        ("hop 0: the header isn't canonical", format!(" {whole}")),
        ("the chain is empty", String::new()),
        ("the chain is longer than 16384 bytes", "a".repeat(16 * 1024 + 1)),
    ];
    for (expected, header) in cases {
        let refused = world.show(&Verifier::new(), &header, 1).err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.starts_with(expected), "`{refused}` instead of `{expected}`");
    }
    world.show(&Verifier::new(), &whole, 1).expect("the one they were made from");
}

#[test]
fn every_bad_certificate_is_refused() {
    let world = World::new();
    for (what, reason, bad) in world.one.bad(&world.two) {
        let token = jws(&header(&bad), &world.claims(1)[0].to_string(), &bad);
        let refused = world.show(&Verifier::new(), &token, 1).expect_err(what).to_string();
        assert!(refused.starts_with("hop 0: its SVID isn't believed"), "{what}: {refused}");
        assert!(refused.contains(reason), "{what}: {refused}");
    }
}

#[test]
fn who_may_begin_a_chain_is_the_operators_to_say() {
    let world = World::new();
    let header = world.sign(&world.claims(2));
    let with = |who: &str, mode| Settings {
        origins: vec![Origin { who: Who::parse(who).expect("who"), mode }],
        ..Settings::default()
    };
    for (settings, expected) in [
        (with("spiffe://one.test/a", Mode::Full), None),
        (with("spiffe://one.test/*", Mode::Full), None),
        (with("spiffe://one.test/b", Mode::Full), Some("hop 0: its issuer may not begin a chain")),
        (Settings::default(), Some("hop 0: its issuer may not begin a chain")),
        (
            with("spiffe://one.test/a", Mode::ReadWrite),
            Some("hop 0: its mode is wider than its issuer may give"),
        ),
    ] {
        let shown = world.show_to(&Verifier::new(), &header, 2, &settings);
        assert_eq!(shown.err().map(|error| error.to_string()).as_deref(), expected);
    }
}

#[test]
fn chains_are_as_deep_as_the_operator_says() {
    let world = World::new();
    let header = world.sign(&world.claims(3));
    let settings = |max_depth| Settings { max_depth, ..world.settings() };
    let show = |depth| {
        let shown = world.show_to(&Verifier::new(), &header, 3, &settings(depth));
        shown.err()
    };
    assert_eq!(show(3), None);
    assert_eq!(show(2), Some(ChainError::TooDeep { limit: 2 }));
    assert_eq!(show(0), Some(ChainError::TooDeep { limit: 0 }));
    let many = ["a"; 12].join("~");
    let shown = world.show_to(&Verifier::new(), &many, 3, &settings(99));
    assert_eq!(shown.err(), Some(ChainError::TooDeep { limit: Settings::DEEPEST }));
}

#[test]
fn a_chain_comes_back_to_nobody_but_by_an_allowed_pair() {
    let world = World::new();
    let id = |at: usize| world.members[at].id.clone();
    // a → b → a: hops by a and b, shown to a.
    let mut claims = world.claims(2);
    claims[1]["aud"] = id(0).as_str().into();
    let header = world.sign(&claims);
    let show = |header: &str, peer: usize, to: usize, revisits: Vec<(SpiffeId, SpiffeId)>| {
        let settings = Settings { revisits, ..world.settings() };
        let snapshot = &world.members[to].snapshot;
        let site = Site { snapshot, settings: &settings, now: world.now };
        Verifier::new().verify(&arrival(header, &id(peer)), &site).err()
    };
    let back = ChainError::Loop { hop: 1, id: id(0) };
    assert_eq!(show(&header, 1, 0, vec![]), Some(back.clone()));
    assert_eq!(show(&header, 1, 0, vec![(id(0), id(1)), (id(2), id(0))]), Some(back));
    assert_eq!(show(&header, 1, 0, vec![(id(1), id(0))]), None);
    // a → a, even where it is listed.
    let mut claims = world.claims(1);
    claims[0]["aud"] = id(0).as_str().into();
    let header = world.sign(&claims);
    let itself = ChainError::Loop { hop: 0, id: id(0) };
    assert_eq!(show(&header, 0, 0, vec![(id(0), id(0))]), Some(itself));
}

#[test]
fn other_domains_are_reached_by_listed_pairs_in_their_direction() {
    let world = World::new();
    // a of one.test → e of two.test.
    let mut claims = world.claims(1);
    claims[0]["aud"] = world.members[4].id.as_str().into();
    let header = world.sign(&claims);
    for (domains, taken) in [
        (vec![], false),
        (vec![("two.test".into(), "one.test".into())], false),
        (vec![("one.test".into(), "two.test".into())], true),
    ] {
        let settings = Settings { domains, ..world.settings() };
        let snapshot = &world.members[4].snapshot;
        let site = Site { snapshot, settings: &settings, now: world.now };
        let shown = Verifier::new().verify(&arrival(&header, &world.members[0].id), &site);
        let refused = ChainError::Hop { hop: 0, rule: Rule::Domain };
        assert_eq!(shown.err(), (!taken).then_some(refused));
    }
}

fn remove(hops: &mut [Value], hop: usize, claim: &str) -> Option<Value> {
    remove_from(&mut hops[hop], claim)
}

fn remove_from(object: &mut Value, member: &str) -> Option<Value> {
    object.as_object_mut().expect("an object").remove(member)
}

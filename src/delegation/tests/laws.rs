//! What was signed is taken as it is or not at all, and a second reader agrees.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::{oracle::Oracle, *};

/// A world, and a chain of three hops in it that holds.
static GOOD: LazyLock<(World, String)> = LazyLock::new(|| {
    let world = World::new();
    let header = world.sign(&world.claims(3));
    (world, header)
});

/// What ours says, with nothing remembered and with the hops of a good chain remembered; and the oracle.
fn verdicts(header: &str) -> (bool, bool, bool) {
    let (world, _) = &*GOOD;
    let cold = world.show(&Verifier::new(), header, 3).is_ok();
    let warm = Verifier::new();
    let mut claims = world.claims(3);
    claims[2]["jti"] = BASE64URL_NOPAD.encode(&[9; 16]).into();
    let other = replaced_last(&claims);
    world.show(&warm, &other, 3).expect("taken");
    let warm = world.show(&warm, header, 3).is_ok();
    let oracle = Oracle {
        roots: vec![("one.test", world.one.root.to_vec()), ("two.test", world.two.root.to_vec())],
        origin: world.members[0].id.as_str(),
        peer: world.members[2].id.as_str(),
        own: world.members[3].id.as_str(),
        body: BODY,
        now: world.now,
    };
    (cold, warm, oracle.takes(header))
}

/// The first two hops of the good chain, and another third.
fn replaced_last(claims: &[Value]) -> String {
    let (world, good) = &*GOOD;
    let (before, _) = good.rsplit_once('~').expect("hops");
    let (_, second) = before.rsplit_once('~').expect("hops");
    let mut last = claims[2].clone();
    last["prv"] = BASE64URL_NOPAD.encode(&Sha256::digest(second)).into();
    let by = &world.members[2].credential;
    format!("{before}~{}", jws(&super::header(by), &last.to_string(), by))
}

#[test]
fn hops_cant_be_left_out_doubled_or_moved() {
    let (_, good) = &*GOOD;
    assert_eq!(verdicts(good), (true, true, true));
    let hops: Vec<&str> = good.split('~').collect();
    let [a, b, c] = hops[..] else { panic!("three hops") };
    for bad in [
        vec![a, b],
        vec![b, c],
        vec![a, c],
        vec![c],
        vec![a, b, c, c],
        vec![a, a, b, c],
        vec![b, a, c],
        vec![a, c, b],
        vec![c, b, a],
        vec![a, b, ""],
        vec!["", a, b, c],
    ] {
        assert_eq!(verdicts(&bad.join("~")), (false, false, false), "{} hops", bad.len());
    }
}

#[test]
fn a_hop_of_another_chain_doesnt_fit() {
    let (world, good) = &*GOOD;
    // Signed anew, so with other bytes, though all claims are the same but `prv`.
    let other = world.sign(&world.claims(3));
    let split = |chain: &str| chain.split('~').map(str::to_owned).collect::<Vec<_>>();
    for at in 0..3 {
        let mut mixed = split(good);
        mixed[at] = split(&other)[at].clone();
        assert_eq!(verdicts(&mixed.join("~")), (false, false, false), "hop {at}");
    }
}

/// A case takes some milliseconds; a world is another each time, so a case can't be kept.
fn few() -> ProptestConfig {
    ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn every_changed_byte_is_seen(at in any::<prop::sample::Index>(), byte in 0x20_u8..0x7f) {
        let (_, good) = &*GOOD;
        let mut bad = good.clone().into_bytes();
        let at = at.index(bad.len());
        prop_assume!(bad[at] != byte);
        bad[at] = byte;
        let bad = String::from_utf8(bad).expect("ASCII");
        prop_assert_eq!(verdicts(&bad), (false, false, false));
    }

    #[test]
    fn every_byte_more_or_less_is_seen(at in any::<prop::sample::Index>(), byte in 0x20_u8..0x7f) {
        let (_, good) = &*GOOD;
        let at = at.index(good.len());
        let mut longer = good.clone();
        longer.insert(at, char::from(byte));
        prop_assert_eq!(verdicts(&longer), (false, false, false));
        let mut shorter = good.clone();
        shorter.remove(at);
        prop_assert_eq!(verdicts(&shorter), (false, false, false));
    }

    #[test]
    fn another_reader_takes_the_same_chains(changes in prop::collection::vec(change(), 0..3)) {
        let (world, _) = &*GOOD;
        let mut claims = world.claims(3);
        for (hop, name, value) in changes {
            match value {
                Some(value) => claims[hop][name] = value,
                None => drop(claims[hop].as_object_mut().expect("an object").remove(name)),
            }
        }
        let header = world.sign(&claims);
        let (cold, warm, oracle) = verdicts(&header);
        prop_assert_eq!(cold, oracle, "{:?}", claims);
        prop_assert_eq!(warm, oracle, "{:?}", claims);
    }
}

/// A claim with another value, which may be as good as the one before, or without any.
fn change() -> impl Strategy<Value = (usize, &'static str, Option<Value>)> {
    let (world, _) = &*GOOD;
    let ids: Vec<Value> = world.members.iter().map(|member| member.id.as_str().into()).collect();
    let id = || prop::sample::select(ids.clone());
    let time = move || {
        let now = world.now;
        prop::sample::select(vec![-1000_i64, -61, -60, -1, 0, 1, 5, 6, 899, 900, 901, 3595, 3700])
            .prop_map(move |by| Value::from(now.saturating_add_signed(by)))
    };
    let of = |values: &[Value]| prop::sample::select(values.to_vec());
    let odd = of(&[json!(null), json!(""), json!([]), json!({}), json!(1.5), json!(-1), json!(7)]);
    let value = prop_oneof![
        (Just("iss"), id()),
        (Just("aud"), id()),
        (Just("sub"), id()),
        (Just("iat"), time()),
        (Just("exp"), time()),
        (Just("dep"), of(&[json!(0), json!(1), json!(2), json!("1"), json!(1.0)])),
        (Just("mode"), of(&[json!("full"), json!("readwrite"), json!("readonly"), json!("all")])),
        (
            Just("cap"),
            of(&[json!(["s|*|*"]), json!(["s|a|b"]), json!(["s|a*b|c"]), json!("s|a|b")])
        ),
        (Just("usr"), of(&[json!("u"), json!("v"), json!("x".repeat(257))])),
        (Just("ten"), of(&[json!("t"), json!("u"), json!(1), json!("x".repeat(257))])),
        (Just("run"), of(&[json!(RUN), json!("01993f0e-7b5a-7c3e-9a1d-0123456789ac")])),
        (Just("htm"), of(&[json!("POST"), json!("GET")])),
        (Just("mth"), of(&[json!("tools/call"), json!("tools/list")])),
        (Just("bh"), of(&[json!(BASE64URL_NOPAD.encode(&[1; 32])), json!("AA")])),
        (Just("prv"), of(&[json!(BASE64URL_NOPAD.encode(&[1; 32]))])),
        (Just("jti"), of(&[json!(BASE64URL_NOPAD.encode(&[3; 16])), json!("AAAA")])),
        (Just("more"), of(&[json!(1)])),
        (prop::sample::select(vec!["iss", "exp", "dep", "cap", "usr", "jti", "prv"]), odd),
    ];
    let names =
        vec!["iss", "aud", "sub", "run", "dep", "mode", "iat", "exp", "jti", "bh", "htm", "mth"];
    prop_oneof![
        4 => (0_usize..3, value).prop_map(|(hop, (name, value))| (hop, name, Some(value))),
        1 => (0_usize..3, prop::sample::select(names)).prop_map(|(hop, name)| (hop, name, None)),
    ]
}

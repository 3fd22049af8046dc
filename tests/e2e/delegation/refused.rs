//! Every chain that must not be taken, shown to the proxy of the server by somebody with a good SVID.

use std::sync::atomic::{AtomicU8, Ordering};

use lictor::telemetry::Clock;

use super::*;
use crate::ca::Credential;

fn now() -> u64 {
    Clock.unix().as_secs()
}

/// Makes chains of members of one trust domain.
pub(super) struct Forge {
    pub(super) members: Vec<(String, Credential)>,
    serial: AtomicU8,
}

impl Forge {
    pub(super) fn of(names: &[&str]) -> Self {
        let member =
            |name: &&str| (format!("spiffe://one.test/{name}"), CA.svid(&format!("/{name}")));
        Self { members: names.iter().map(member).collect(), serial: AtomicU8::new(0) }
    }

    fn id(&self, at: usize) -> &str {
        &self.members[at].0
    }

    /// The claims of a good hop from one member to the next.
    fn claims(&self, at: usize, to: &str, previous: Option<&str>) -> Value {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let mut claims = json!({
            "iss": self.id(at), "aud": to, "sub": self.id(0),
            "run": "01a22a97-e7e9-76c7-8857-8516ae04839f", "dep": at, "mode": "full",
            "iat": now(), "exp": now() + 600,
            "jti": data_encoding::BASE64URL_NOPAD.encode(&[serial; 16]),
            "bh": forged::digest(CALL.as_bytes()), "htm": "POST", "mth": "tools/call",
        });
        if let Some(previous) = previous {
            claims["prv"] = forged::digest(previous.as_bytes()).into();
        }
        claims
    }

    /// A chain through all members to `to`, each hop's claims changed by `change`.
    pub(super) fn chain(&self, to: &str, change: impl Fn(usize, &mut Value)) -> Vec<String> {
        let mut hops: Vec<String> = Vec::new();
        for at in 0..self.members.len() {
            let next = self.members.get(at + 1).map_or(to, |(id, _)| id);
            let mut claims = self.claims(at, next, hops.last().map(String::as_str));
            change(at, &mut claims);
            hops.push(forged::hop(&self.members[at].1, &claims));
        }
        hops
    }
}

pub(super) async fn shown(lictor: &Lictor, by: &Credential, header: &str, call: &str) -> Answer {
    let config = caller_tls().with_client_auth_cert(by.chain.clone(), by.key());
    let mut caller = Caller::tls(lictor.mutual, &config.expect("a credential"), false).await;
    let mut request = caller.request_to("POST", "/own", whole(call.to_owned()));
    let header = HeaderValue::from_str(header).expect("a header");
    request.headers_mut().insert("agent-delegation", header);
    caller.send(request).await.whole().await
}

#[tokio::test]
async fn chains_that_dont_hold_are_refused_one_and_all() {
    const C: &str = "spiffe://one.test/c";
    let server = Stub::json().await;
    let mcp = doors("protocol: mcp", "protocol: mcp");
    let c = proxy("c", &mcp, &upstreams(&server, None), ORIGINS).await;
    let two = Forge::of(&["a", "b"]);
    let b = &two.members[1].1;
    let good = |change: &dyn Fn(usize, &mut Value)| two.chain(C, change).join("~");
    let set = |at: usize, key: &'static str, value: Value| {
        move |hop: usize, claims: &mut Value| {
            if hop == at {
                claims[key] = value.clone();
            }
        }
    };

    // One that holds, once.
    let header = good(&|_, _| {});
    let answer = shown(&c, b, &header, CALL).await;
    assert!(answer.json()["result"].is_object(), "{}", answer.json());
    let mut count = 1;

    let six = Forge::of(&["a", "d", "e", "f", "g", "b"]);
    let back = Forge::of(&["a", "c", "b"]);
    let hops = two.chain(C, |_, _| {});
    let mut flipped = hops.join("~").into_bytes();
    flipped[40] ^= 1;
    let rows: Vec<(&str, String, &str, &str)> = vec![
        ("replayed", header.clone(), "delegation_invalid", "/b"),
        ("stolen", good(&|_, _| {}), "delegation_invalid", "/a"),
        (
            "for another call",
            good(&set(1, "bh", forged::digest(b"{}").into())),
            "delegation_invalid",
            "/b",
        ),
        (
            "for another server",
            two.chain("spiffe://one.test/d", |_, _| {}).join("~"),
            "delegation_invalid",
            "/b",
        ),
        ("a hop dropped", hops[1].clone(), "delegation_invalid", "/b"),
        ("hops in another order", format!("{}~{}", hops[1], hops[0]), "delegation_invalid", "/b"),
        ("a flipped bit", String::from_utf8(flipped).expect("ASCII"), "delegation_invalid", "/b"),
        (
            "a wider hop",
            good(&|at, claims| {
                claims["mode"] = if at == 0 { "readonly".into() } else { "full".into() }
            }),
            "delegation_invalid",
            "/b",
        ),
        (
            "wider capabilities",
            good(&|at, claims| {
                if at == 0 {
                    claims["cap"] = json!(["own|tools/call|look"])
                } else {
                    claims["cap"] = json!(["own|tools/call|*"])
                }
            }),
            "delegation_invalid",
            "/b",
        ),
        ("an expired parent", good(&set(0, "exp", (now() - 1).into())), "delegation_invalid", "/b"),
        (
            "outliving its parent",
            good(&set(0, "exp", (now() + 60).into())),
            "delegation_invalid",
            "/b",
        ),
        ("another root", good(&set(1, "sub", two.id(1).into())), "delegation_invalid", "/b"),
        (
            "a root that may not begin",
            Forge::of(&["d", "b"]).chain(C, |_, _| {}).join("~"),
            "delegation_invalid",
            "/b",
        ),
        ("six hops", six.chain(C, |_, _| {}).join("~"), "delegation_invalid", "/b"),
        ("a loop", back.chain(C, |_, _| {}).join("~"), "delegation_loop", "/b"),
        ("old", good(&set(1, "iat", (now() - 120).into())), "delegation_invalid", "/b"),
    ];
    for (what, header, kind, by) in &rows {
        let by = if *by == "/b" { b } else { &two.members[0].1 };
        let answer = shown(&c, by, header, CALL).await;
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["error"]["data"]["kind"]),
            (200, &json!(kind)),
            "{what}: {told}"
        );
        assert_eq!(answer.header("lictor-denial"), Some(*kind));
        count += 1;
    }
    // Within the chain, but not within what it says.
    let header = good(&|_, claims| claims["mode"] = "readonly".into()).replace(' ', "");
    let change = {
        let body = forged::digest(CHANGE.as_bytes());
        good(&|at, claims| {
            claims["mode"] = "readonly".into();
            if at == 1 {
                claims["bh"] = body.clone().into();
            }
        })
    };
    assert!(shown(&c, b, &header, CALL).await.json()["result"].is_object());
    let told = shown(&c, b, &change, CHANGE).await.json();
    assert_eq!(told["error"]["data"]["kind"], "delegation_denied", "{told}");
    // Two chains are none.
    count += 2;
    assert_eq!(server.requests(), 2);
    let closings = c.stop(count).await;
    let denied = closings.last().expect("entries");
    assert_eq!((&denied["stage"], &denied["hop"]), (&json!("delegation"), &json!(0)));
    assert_eq!(denied["hop_peer"], "spiffe://one.test/a");
}
